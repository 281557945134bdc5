"""Run directories in which groups change: what is read, what is refused in one line, and the verdict."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ordercast.audit.changing import audit_changing
from ordercast.audit.local import LocalSource
from ordercast.audit.verdict import Verdict
from ordercast.errors import InputError
from ordercast.runs.writer import RunWriter
from ordercast.wire import batch


def written(folder: Path) -> Path:
    """Sites p and q begin in x; r joins; each site writes its own parts."""
    stamps = [epoch.to_bytes(8, "big") + bytes(7) + bytes([1]) for epoch in (1, 2)]
    views = {"members": ("p", "q", "r"), "joined": ("r",), "left": (), "away": ()}
    for life, site in enumerate("pqr", start=7):
        out = RunWriter(folder, site, batch.unpack, life)
        out.site = site if site != "r" else f"r@{life}"
        out.lives()
        if site != "r":
            out.members({"x": [site]})
        bodies = [batch.pack(number, [b"%d" % number]) for number in (1, 2)]
        if site == "p":
            for number, body in enumerate(bodies, start=1):
                out.sent(number, 1, ("x",), 0, body, "")
        if site == "r":
            out.changed(0, kind="state", epoch=2, group="x")
        else:
            out.delivered(0, 1, 1, ("x",), "p", 1, "1.0 x", stamps[0], None, bodies[0])
        out.changed(1, kind="view", epoch=2, group="x", **views)
        out.delivered(2, 2, 1, ("x",), "p", 2, "2.0 x", stamps[1], None, bodies[1])
        out.write(out.take())
    return folder


def judged(folder: Path, **options: Any) -> Verdict:
    return audit_changing(LocalSource(str(folder)), "acyclic", **options)


def rewrite(folder: Path, table: str, change: Callable[[list[dict[str, Any]]], object]) -> None:
    """Change the rows of every file of a table, in place."""
    for path in (folder / table).glob("*.parquet"):
        old = pq.read_table(path)
        rows = old.to_pylist()
        change(rows)
        pq.write_table(pa.Table.from_pylist(rows, schema=old.schema), path)


def test_a_right_run_holds(tmp_path: Path) -> None:
    verdict = judged(written(tmp_path))

    assert verdict.ok and verdict.deliveries == 5, verdict.as_json()
    assert {name for name, found in verdict.properties.items() if found.ok is None} == {"classes", "causal"}
    assert verdict.notes == []


def test_what_was_undone_is_not_compared(tmp_path: Path) -> None:
    """Without the row that says so, the message would have come twice."""
    folder = written(tmp_path)
    out = RunWriter(folder, "p", batch.unpack, 7)
    out.changed(3, kind="undone", epoch=0, undone_from=2)
    stamp = (2).to_bytes(8, "big") + bytes(7) + bytes([1])
    out.delivered(4, 2, 1, ("x",), "p", 2, "2.0 x", stamp, None, batch.pack(2, [b"2"]))
    out.write(out.take())

    assert judged(folder).ok
    rewrite(folder, "changes", lambda rows: [row.update(undone_from=9) for row in rows if row["kind"] == "undone"])
    assert [*judged(folder).broken()] == ["duplicate"]


def test_bodies_that_are_not_told_are_not_compared(tmp_path: Path) -> None:
    folder = written(tmp_path)
    for path in (folder / "deliveries").glob("*.parquet"):
        pq.write_table(pq.read_table(path).drop_columns(["body_hash"]), path)
    verdict = judged(folder)

    assert verdict.properties["body"].ok is None
    assert "bodies were not compared: deliveries/ has no column body_hash" in verdict.notes


@pytest.mark.parametrize(
    ("table", "wrong", "says"),
    [
        ("changes", {"kind": "viewed"}, "kind 'viewed' is not one of view, state, undone"),
        ("changes", {"kind": "_init__"}, "kind '_init__' is not one of"),
        ("changes", {"epoch": -1}, "epoch -1 is negative"),
        ("changes", {"members": ["p", None]}, "a name in a list is null"),
        ("changes", {"site": "a@b"}, "'a@b' is not a site, nor site@incarnation"),
        ("lives", {"site": "@7"}, "'@7' is not a site, nor site@incarnation"),
        ("deliveries", {"position": 2**40}, "begins at position"),
    ],
    ids=str,
)
def test_what_no_site_writes_is_refused(tmp_path: Path, table: str, wrong: dict[str, Any], says: str) -> None:
    folder = written(tmp_path)
    if table == "deliveries":
        rewrite(folder, "changes", lambda rows: rows.clear())
    rewrite(folder, table, lambda rows: [row.update(wrong) for row in rows])

    with pytest.raises(InputError, match=says):
        judged(folder)


def test_a_folder_without_rows_is_no_table(tmp_path: Path) -> None:
    """A kill in the middle of the first part leaves such a one."""
    folder = written(tmp_path)
    (folder / "drops").mkdir()
    (folder / "drops" / ".p@7-1-1.9.tmp").write_bytes(b"half")

    assert judged(folder).ok
