"""The writer of a live site: what it is told in batches stands in the run directory message by message, once."""

import hashlib
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ordercast.audit.local import LocalSource
from ordercast.audit.verdict import audit
from ordercast.errors import InputError
from ordercast.runs import schema, writer
from ordercast.runs.writer import DeliveredRow, RunWriter, SentRow, write_run
from ordercast.wire import batch

MEMBERS = {"a": ["p", "q"], "b": ["q"]}


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    by = "position" if table == "deliveries" else "source_seq"
    return sorted(pq.read_table(folder / table).to_pylist(), key=lambda row: row.get(by, 0))


def new_writer(folder: Path, site: str) -> RunWriter:
    out = RunWriter(folder, site, batch.unpack)
    out.members(MEMBERS)
    return out


def write(out: RunWriter) -> None:
    out.write(out.take())


def sends(out: RunWriter, first: int, bodies: list[bytes]) -> None:
    out.sent(first, len(bodies), ("a",), 0, batch.pack(first, bodies))


def delivers(
    out: RunWriter, position: int, first: int, bodies: list[bytes], stamp: bytes, before: bytes | None = None
) -> None:
    body = batch.pack(first, bodies)
    out.delivered(position, first, len(bodies), ("a",), "p", 1, "a", stamp, before, body)


def hashed(body: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(body, digest_size=8).digest(), "little", signed=True)


def test_a_batch_becomes_rows(tmp_path: Path) -> None:
    out = new_writer(tmp_path, "p")
    sends(out, 1, [b"x", b"y"])
    delivers(out, 0, 1, [b"x", b"y"], b"\1")
    delivers(out, 2, 3, [b"z"], b"\2", b"\1\0\0\0\1")
    write(out)

    assert list(pq.read_schema(next((tmp_path / "deliveries").iterdir())).names) == list(schema.WRITTEN["deliveries"])
    assert [(row["msg_id"], row["group"], row["body_hash"]) for row in rows(tmp_path, "sends")] == [
        ("p:1", "a", hashed(b"x")), ("p:2", "a", hashed(b"y")),
    ]  # fmt: skip
    assert [
        (row["position"], row["source_seq"], row["stamp"], row["prev_stamp"], row["body_hash"])
        for row in rows(tmp_path, "deliveries")
    ] == [
        (0, 1, b"\1\0\0\0\0", None, hashed(b"x")),
        (1, 2, b"\1\0\0\0\1", b"\1\0\0\0\0", hashed(b"y")),
        (2, 3, b"\2\0\0\0\0", b"\1\0\0\0\1", hashed(b"z")),
    ]


def test_a_restart_goes_on_where_the_last_part_ended(tmp_path: Path) -> None:
    """The history delivers everything again; what was written is not written again, in the middle of a batch either."""
    out = new_writer(tmp_path, "p")
    sends(out, 1, [b"x", b"y"])
    delivers(out, 0, 1, [b"x", b"y"], b"\1")
    write(out)
    sends(out, 3, [b"lost"])  # collected, not written
    again = new_writer(tmp_path, "p")
    sends(again, 1, [b"x", b"y", b"z"])
    delivers(again, 0, 1, [b"x", b"y", b"z"], b"\1")
    write(again)

    assert (again.next_position, again.next_send) == (3, 4)
    assert [row["msg_id"] for row in rows(tmp_path, "sends")] == ["p:1", "p:2", "p:3"]
    assert [(row["position"], row["prev_stamp"]) for row in rows(tmp_path, "deliveries")] == [
        (0, None), (1, b"\1\0\0\0\0"), (2, b"\1\0\0\0\1"),
    ]  # fmt: skip


def test_names_of_sites_do_not_mix(tmp_path: Path) -> None:
    """`p` does not take the parts of `p-1` for its own."""
    other = new_writer(tmp_path, "p-1")
    delivers(other, 0, 1, [b"x"], b"\1")
    write(other)

    assert new_writer(tmp_path, "p").next_position == 0
    assert new_writer(tmp_path, "p-1").next_position == 1


def test_a_writer_is_full_by_rows_and_by_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "ROWS_AT_MOST", 3)
    monkeypatch.setattr(writer, "BYTES_AT_MOST", 1000)
    out = new_writer(tmp_path, "p")
    delivers(out, 0, 1, [b"x"] * 2, b"\1")
    assert not out.full
    delivers(out, 2, 3, [b"x"], b"\2")
    assert out.full
    out.take()
    assert not out.full
    sends(out, 1, [b"x" * 1000])
    assert out.full


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "run").write_text("a file")

    with pytest.raises(InputError, match=r"run/membership/part-0\.parquet: "):
        new_writer(tmp_path / "run", "p")


@pytest.mark.parametrize("lost", [False, True])
def test_a_lost_disk_is_seen_by_its_bodies(lost: bool, tmp_path: Path) -> None:
    """Issue 12, point 7, a lost disk: q delivers a new body under the id and the stamp of an old message."""
    p, q = new_writer(tmp_path, "p"), new_writer(tmp_path, "q")
    sends(p, 1, [b"old"])
    delivers(p, 0, 1, [b"old"], b"\1")
    delivers(q, 0, 1, [b"new" if lost else b"old"], b"\1")
    write(p)
    write(q)
    verdict = audit(LocalSource(str(tmp_path)), "acyclic")

    assert verdict.ok is not lost
    assert verdict.properties["body"].says == ("q delivers p:1 with another body than was sent" if lost else "")


def test_a_whole_run_replaces_what_was_there(tmp_path: Path) -> None:
    for many in (2, 1):
        sent = [SentRow(f"p:{n}", ("a",), "p", n, 0.0, 0, b"x") for n in range(1, many + 1)]
        done = [
            DeliveredRow(site, f"p:{n}", ("a",), "p", n, 1, 0.5, "a", bytes([n]), b"x")
            for n in range(1, many + 1)
            for site in "pq"
        ]
        write_run(tmp_path, MEMBERS, sent, done)
        verdict = audit(LocalSource(str(tmp_path)), "acyclic")

        assert (verdict.ok, verdict.deliveries, verdict.notes) == (True, 2 * many, [])
    write_run(tmp_path, MEMBERS, [], [])
    assert rows(tmp_path, "deliveries") == []


def test_what_a_kill_leaves_behind_is_passed_over(tmp_path: Path) -> None:
    """A part that was being written when its site was killed is a hidden file: whoever reads the folder ignores it."""
    seen: list[Path] = []

    def killed(table: Any, path: Path, row_group_size: int | None = None, *, derived: bool = False) -> None:
        path.write_bytes(b"PAR1")
        seen.append(path)
        raise KeyboardInterrupt

    whole, writer.write_table = writer.write_table, killed
    try:
        with pytest.raises(KeyboardInterrupt):
            writer._write(tmp_path, "membership", "p", {"site": ["p"], "group": ["a"]})
    finally:
        writer.write_table = whole
    writer._write(tmp_path, "membership", "q", {"site": ["q"], "group": ["a"]})

    assert seen[0].exists()
    assert rows(tmp_path, "membership") == [{"site": "q", "group": "a"}]
