"""A backup of a stopped site: the same history comes back, and nothing else is taken for one."""

import shutil
from pathlib import Path

import pytest

from ordercast.errors import HistoryError, InputError
from ordercast.history.backup import back_up, restore
from ordercast.history.disk import DiskHistory
from ordercast.history.store import Checkpoint, Position


def written(folder: Path, records: int = 40) -> None:
    """Write a history with an index and a checkpoint in the middle."""
    history = DiskHistory.open(folder, "bank", "p", 7)
    for number in range(1, records + 1):
        history.append([b"record %d" % number], [Position(number - 1, 1, number, b"stamp")])
        if number == records // 2:
            history.keep(Checkpoint(number, number, b"state"), 5)
    history.close()


def content(folder: Path) -> tuple[object, ...]:
    history = DiskHistory.open(folder, "bank", "p", 8)
    try:
        kept = history.checkpoint()
        assert kept is not None
        return history.identity, kept, list(history.records(kept.records)), history.past(history.first_position, 1000)
    finally:
        history.close()


def test_what_comes_back_is_what_was_there(tmp_path: Path) -> None:
    written(tmp_path / "p")
    before = content(tmp_path / "p")
    identity, records = back_up(tmp_path / "p", tmp_path / "p.backup", "bank", "p")
    shutil.rmtree(tmp_path / "p")

    assert (identity, records) == restore(tmp_path / "p.backup", tmp_path / "p", "bank", "p")
    assert (identity.incarnation, records) == (7, 40)
    assert content(tmp_path / "p") == before
    assert {path.name for path in tmp_path.iterdir()} == {"p", "p.backup"}, "nothing half done is left"
    assert (tmp_path / "p.backup").stat().st_mode & 0o777 == 0o600


def test_a_site_that_runs_is_not_backed_up(tmp_path: Path) -> None:
    written(tmp_path / "p")
    history = DiskHistory.open(tmp_path / "p", "bank", "p", 8)

    with pytest.raises(HistoryError, match="another process uses it"):
        back_up(tmp_path / "p", tmp_path / "p.backup", "bank", "p")

    history.close()
    assert not (tmp_path / "p.backup").exists()


def test_nothing_is_written_over(tmp_path: Path) -> None:
    written(tmp_path / "p")
    back_up(tmp_path / "p", tmp_path / "p.backup", "bank", "p")

    with pytest.raises(InputError, match="is there already"):
        back_up(tmp_path / "p", tmp_path / "p.backup", "bank", "p")
    with pytest.raises(InputError, match="has something here"):
        restore(tmp_path / "p.backup", tmp_path / "p", "bank", "p")
    with pytest.raises(InputError, match="has no history"):
        back_up(tmp_path / "q", tmp_path / "q.backup", "bank", "q")
    assert not (tmp_path / "q").exists()


def test_a_damaged_history_is_not_backed_up(tmp_path: Path) -> None:
    written(tmp_path / "p")
    database = tmp_path / "p" / "history.db"
    data = database.read_bytes()
    database.write_bytes(data.replace(b"record 30", b"record 31"))

    with pytest.raises(HistoryError):
        back_up(tmp_path / "p", tmp_path / "p.backup", "bank", "p")
    assert not (tmp_path / "p.backup").exists()


@pytest.mark.parametrize("damage", ["cut", "flip", "text", "absent", "another site", "another cluster"])
def test_what_is_no_backup_of_this_site_is_refused(tmp_path: Path, damage: str) -> None:
    written(tmp_path / "p")
    file = tmp_path / "p.backup"
    back_up(tmp_path / "p", file, "bank", "p")
    data = bytearray(file.read_bytes())
    if damage == "cut":
        file.write_bytes(data[: len(data) // 2])
    elif damage == "flip":
        data[len(data) // 2] ^= 4
        file.write_bytes(data)
    elif damage == "text":
        file.write_text("no backup")
    elif damage == "absent":
        file.unlink()
    site, cluster = ("q" if damage == "another site" else "p"), ("shop" if damage == "another cluster" else "bank")

    with pytest.raises((InputError, HistoryError)):
        restore(file, tmp_path / "new" / site, cluster, site)
    assert not list((tmp_path / "new").rglob("*")), "nothing is left"
