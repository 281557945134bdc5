"""The history on disk: whose it is, who may open it, and what a full disk or a crash leaves behind."""

import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ordercast.errors import HistoryError
from ordercast.history import disk
from ordercast.history.disk import DiskHistory
from ordercast.history.mark import HEAD_BYTES, Mark
from ordercast.history.store import Checkpoint, Position


def opened(folder: Path, site: str = "p", cluster: str = "c") -> DiskHistory:
    return DiskHistory.open(folder, cluster, site, 1)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def killed(folder: Path, copy: Path) -> Path:
    """Return a folder as kill -9 leaves it: with the write-ahead log."""
    shutil.copytree(folder, copy)
    return copy


def test_swapped_folders_are_refused_and_left_as_they_are(tmp_path: Path) -> None:
    """Issue 12 (g): swapped folders delivered everything twice."""
    for site in "pq":
        history = opened(tmp_path / site, site)
        history.append([b"of " + site.encode()], [])
        killed(tmp_path / site, tmp_path / f"copy of {site}")
        history.close()
    for folder in (tmp_path / "q", tmp_path / "copy of q"):
        before = files(folder)
        with pytest.raises(HistoryError) as refused:
            opened(folder, "p")
        assert str(refused.value) == (
            f"{folder}: the history of site q of cluster 'c', opened for site p of cluster 'c'; nothing was changed"
        )
        assert files(folder) == before


def test_a_database_of_another_site_is_refused(tmp_path: Path) -> None:
    """Issue 12 (g), with only the database swapped."""
    for site in "pq":
        opened(tmp_path / site, site).close()
    shutil.copy(tmp_path / "q" / "history.db", tmp_path / "p" / "history.db")

    with pytest.raises(HistoryError, match="the history of site q of cluster 'c', beside a mark of site p"):
        opened(tmp_path / "p")


@pytest.mark.parametrize("closed", [True, False])
def test_a_folder_of_version_1_is_refused_in_one_line_and_left_as_it_is(tmp_path: Path, closed: bool) -> None:
    folder = tmp_path / "p"
    folder.mkdir()
    old = sqlite3.connect(folder / "history.db", isolation_level=None)
    old.execute("PRAGMA page_size=16384")
    old.execute("PRAGMA journal_mode=WAL")
    old.execute("CREATE TABLE records (seq INTEGER PRIMARY KEY, crc INTEGER NOT NULL, data BLOB NOT NULL)")
    old.execute("INSERT INTO records VALUES (1, 2, x'03')")
    (folder / "mark").write_bytes((1).to_bytes(8, "big"))
    if not closed:
        folder = killed(folder, tmp_path / "copy")
    old.close()
    before = files(folder)

    with pytest.raises(HistoryError) as refused:
        opened(folder)

    assert str(refused.value) == (
        f"{folder}: a history of version 0.1, which this version cannot read; nothing was changed. Move it aside to"
        " start over"
    )
    assert files(folder) == before


def test_a_later_format_is_refused(tmp_path: Path) -> None:
    opened(tmp_path / "p").close()
    database = sqlite3.connect(tmp_path / "p" / "history.db")
    database.execute("PRAGMA user_version=3")
    database.close()

    with pytest.raises(HistoryError, match="has format 3, this program reads 2"):
        opened(tmp_path / "p")


def test_only_the_owner_may_read(tmp_path: Path) -> None:
    folder = tmp_path / "p"
    folder.mkdir(mode=0o755)
    old = os.umask(0)
    try:
        history = opened(folder)
        history.append([b"secret"], [])
    finally:
        os.umask(old)
    modes = {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
    history.close()

    assert folder.stat().st_mode & 0o777 == 0o700
    assert modes == {"history.db": 0o600, "history.db-wal": 0o600, "mark": 0o600}


@pytest.mark.slow
def test_two_processes_cannot_use_one_folder(tmp_path: Path) -> None:
    history = opened(tmp_path / "p")
    history.append([b"ours"], [])
    code = (
        "import sys; from pathlib import Path; from ordercast.history.disk import DiskHistory;"
        "DiskHistory.open(Path(sys.argv[1]), 'c', 'p', 1)"
    )
    other = subprocess.run([sys.executable, "-c", code, tmp_path / "p"], capture_output=True, text=True, check=False)

    assert f"HistoryError: {tmp_path / 'p'}: another process uses it" in other.stderr
    history.append([b"still ours"], [])
    history.close()


def test_a_full_disk_is_an_error_and_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    history = opened(tmp_path / "p")
    history.append([bytes(20_000)], [])
    (pages,) = history.database.execute("PRAGMA page_count").fetchone()
    history.database.execute(f"PRAGMA max_page_count={pages + 20}")
    with pytest.raises(HistoryError, match="full"):
        for _ in range(100):
            history.append([bytes(20_000)], [])
    acknowledged = history.count
    assert 1 < acknowledged < 100
    for _ in range(2):
        with pytest.raises(HistoryError, match="closed to writes since"):
            history.append([b"small"], [])
    with pytest.raises(HistoryError, match="closed to writes since"):
        history.keep(Checkpoint(1, 0, b""), 0)
    assert list(history.records(0)) == [bytes(20_000)] * acknowledged
    history.close()

    history = opened(tmp_path / "p")
    assert history.count == acknowledged
    history.append([b"goes on"], [])
    history.close()


@pytest.mark.slow
def test_a_file_that_may_not_grow_is_an_error(tmp_path: Path) -> None:
    """The operating system refuses the write, not SQLite."""
    code = (
        "import resource, sys; from pathlib import Path\n"
        "from ordercast.errors import HistoryError; from ordercast.history.disk import DiskHistory\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (500_000, 500_000))\n"
        "history = DiskHistory.open(Path(sys.argv[1]), 'c', 'p', 1)\n"
        "try:\n"
        "    while True: history.append([bytes(20_000)], [])\n"
        "except HistoryError as error: print(history.count, error)\n"
    )
    run = subprocess.run([sys.executable, "-c", code, tmp_path / "p"], capture_output=True, text=True, check=True)

    acknowledged, _, said = run.stdout.partition(" ")
    assert "history.db" in said
    history = opened(tmp_path / "p")
    assert list(history.records(0))[: int(acknowledged)] == [bytes(20_000)] * int(acknowledged)
    history.close()


@pytest.mark.slow
def test_a_crash_while_a_history_is_created_is_no_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At every point where something is made durable, what is there can be opened, or created again."""
    copies: list[Path] = []

    def note() -> None:
        copies.append(killed(tmp_path / "p", tmp_path / f"copy {len(copies)}"))

    def noted(real: Callable[..., object]) -> Callable[..., object]:
        def work(*given: object) -> object:
            note()
            done = real(*given)
            note()
            return done

        return work

    for name in ("fsync", "pwrite"):
        monkeypatch.setattr(os, name, noted(getattr(os, name)))
    opened(tmp_path / "p").close()
    monkeypatch.undo()

    assert len(copies) > 10
    for copy in copies:
        history = opened(copy)
        history.append([b"x"], [])
        history.close()


def test_a_database_that_is_gone_is_missed(tmp_path: Path) -> None:
    """Also before the first record: nothing may begin anew in silence."""
    opened(tmp_path / "p").close()
    (tmp_path / "p" / "history.db").unlink()

    with pytest.raises(HistoryError, match=r"history\.db: missing"):
        opened(tmp_path / "p")


def test_the_mark_is_renewed_at_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 12 (h): a process is killed between a commit and its mark; the next one goes on, and others build on it.

    Then the end of the log is cut off. Before, the mark still stood one commit back, and the loss was silent.
    """
    history = opened(tmp_path / "p")
    history.append([b"a"], [])
    with monkeypatch.context() as patched:
        patched.setattr(Mark, "write", lambda *_: None)
        history.append([b"b"], [])
    folder = killed(tmp_path / "p", tmp_path / "killed")
    history.close()
    history = opened(folder)
    assert list(history.records(0)) == [b"a", b"b"]
    again = killed(folder, tmp_path / "killed again")
    history.close()
    log = again / "history.db-wal"
    log.write_bytes(log.read_bytes()[:-1])

    with pytest.raises(HistoryError, match="ends at record 1, but 2 were written"):
        opened(again)


def test_a_checkpoint_that_was_acknowledged_is_missed(tmp_path: Path) -> None:
    history = opened(tmp_path / "p")
    history.append([b"a"], [])
    history.keep(Checkpoint(1, 0, b"state"), 0)
    folder = killed(tmp_path / "p", tmp_path / "killed")
    history.close()
    log = folder / "history.db-wal"
    log.write_bytes(log.read_bytes()[:-1])

    with pytest.raises(HistoryError, match="the checkpoint at record 1 is missing"):
        opened(folder)


def test_large_records_come_in_small_slices(tmp_path: Path) -> None:
    """Issue 12 (e): a slice of the past is bounded by its bytes, too."""
    history = opened(tmp_path / "p")
    history.append([bytes(1_500_000)] * 8, [])
    history.append([], [Position(at, 1, at + 1, b"") for at in range(8)])

    begin, sizes = 0, []
    while found := history.past(begin, 64):
        sizes.append(len(found))
        begin = found[-1][0].end
    history.close()

    assert sizes == [3, 3, 2]


def test_a_slice_of_the_past_reads_little(tmp_path: Path) -> None:
    """Issue 12 (e): an index of positions, instead of a machine that steps through everything."""
    history = opened(tmp_path / "p")
    for first in range(0, 4000, 40):
        entries = [Position(at, 1, at + 1, b"") for at in range(history.next_position, first)]
        history.append([b"%d" % number for number in range(first, first + 40)], entries)
    statements: list[str] = []
    assert history.database._connection is not None
    history.database._connection.set_trace_callback(statements.append)
    found = history.past(1990, 64)
    history.close()

    assert [data for _, data in found] == [b"%d" % number for number in range(1990, 2054)]
    rows = [said for said in statements if "data" in said or "*" in said]
    assert len(rows) <= 2 + 64 // 40 + 2


def test_the_index_is_written_in_few_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A row for each entry made small commits a fifth slower."""
    monkeypatch.setattr(disk, "ROW_ENTRIES", 20)
    history = opened(tmp_path / "p")
    for at in range(40):
        history.append([b"x"], [Position(at - 1, 1, at, b"")] if at else [])
    (rows,) = history.database.execute("SELECT count(*) FROM positions").fetchone()
    history.close()

    assert rows == 1


def test_a_mark_with_a_flipped_bit_is_refused(tmp_path: Path) -> None:
    """Else it might say less than was acknowledged, or name another site."""
    history = opened(tmp_path / "p")
    history.append([b"a", b"b", b"c"], [])
    history.close()
    path = tmp_path / "p" / "mark"
    good = path.read_bytes()
    head, told = good.index(b"\0"), len(good) - HEAD_BYTES
    for at in [*range(0, head, 7), *range(HEAD_BYTES, HEAD_BYTES + told)]:
        bad = bytearray(good)
        bad[at] ^= 1
        path.write_bytes(bad)
        with pytest.raises(HistoryError, match="mark: damaged"):
            opened(tmp_path / "p")
    path.write_bytes(good)
    opened(tmp_path / "p").close()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ("DELETE FROM positions WHERE first = 4", "the index ends at 4, but 6 were written"),
        ("DELETE FROM positions WHERE first = 0", "the index does not begin at 0"),
        ("DELETE FROM positions WHERE first = 2", "the index lacks position 2"),
        ("UPDATE positions SET crc = crc + 1 WHERE first = 2", "the index from position 2 on is damaged"),
        ("UPDATE positions SET data = 'x' WHERE first = 2", "damaged"),
        ("UPDATE chunks SET crc = crc + 1 WHERE first = 3", "the records from 3 on are damaged"),
        ("DELETE FROM chunks WHERE first = 3", "record 3 is missing"),
        ("DELETE FROM chunks WHERE first = 7", "ends at record 6, but 7 were written"),
        ("UPDATE checkpoint SET crc = crc + 1", "the checkpoint at record 6 is damaged"),
        ("DELETE FROM checkpoint", "the checkpoint at record 6 is missing"),
        ("DELETE FROM identity", "the history of nobody"),
    ],
)
def test_a_row_that_is_damaged_or_gone_is_missed(tmp_path: Path, change: str, says: str) -> None:
    history = opened(tmp_path / "p")
    for at in range(0, 6, 2):
        history.append([b"a", b"b"], [])
        history.append([], [Position(at, 1, at + 1, b""), Position(at + 1, 1, at + 2, b"")])
        history.keep(Checkpoint(at + 2, at + 2, b"state"), 0)
    history.append([b"g"], [])
    history.close()
    database = sqlite3.connect(tmp_path / "p" / "history.db")
    database.execute(change)
    database.commit()
    database.close()

    with pytest.raises(HistoryError, match=says):
        history = opened(tmp_path / "p")
        try:
            history.past(0, 10)
        finally:
            history.close()
