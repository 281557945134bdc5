"""The simulated disk: what a crash may take, what it may not, and what opening finds."""

import pytest

from ordercast.errors import BugError, HistoryError
from ordercast.history.store import Checkpoint, Position
from ordercast.sim.disk import Disk, SimHistory


def opened(disk: Disk) -> SimHistory:
    return disk.open("c", "p", 1)


def three_records() -> Disk:
    disk = Disk()
    opened(disk).append([b"a", b"b", b"c"], [])
    return disk


def test_a_write_is_seen_after_its_commit() -> None:
    disk = Disk()
    history = opened(disk)
    history.write([b"a"], [Position(0, 1, 1, b"s")])

    assert disk.pending
    assert (history.count, history.next_position) == (0, 0)
    history.commit()
    assert not disk.pending
    assert (history.count, history.next_position) == (1, 1)


def test_one_write_at_a_time() -> None:
    history = opened(Disk())
    history.write([b"a"], [])

    with pytest.raises(BugError):
        history.write([b"b"], [])
    with pytest.raises(BugError):
        history.keep(Checkpoint(0, 0, b""), 0)


@pytest.mark.parametrize("commit", [False, True])
def test_a_crash_loses_a_pending_write_wholly_or_not_at_all(commit: bool) -> None:
    disk = three_records()
    disk.crash()
    history = opened(disk)
    history.write([b"d", b"e"], [])
    disk.crash(commit=commit)

    assert list(opened(disk).records(0)) == [b"a", b"b", b"c", *([b"d", b"e"] if commit else [])]
    with pytest.raises(HistoryError, match="closed"):
        history.append([b"f"], [])


def test_a_torn_tail_that_was_acknowledged_is_found() -> None:
    """Issue 12 (h): never silently less."""
    disk = three_records()
    disk.crash()
    disk.tear(1)

    with pytest.raises(HistoryError, match="ends at record 2, but 3 were written"):
        opened(disk)


def test_a_torn_tail_that_was_never_acknowledged_is_no_error() -> None:
    disk = three_records()
    disk.crash()
    opened(disk).write([b"d", b"e"], [])
    disk.crash(commit=True)
    disk.tear(1)

    assert list(opened(disk).records(0)) == [b"a", b"b", b"c", b"d"]


def test_what_was_found_at_open_is_acknowledged() -> None:
    """Issue 12 (h): the mark is renewed at open."""
    disk = three_records()
    disk.crash()
    opened(disk).write([b"d"], [])
    disk.crash(commit=True)
    opened(disk)
    disk.crash()
    disk.tear(1)

    with pytest.raises(HistoryError):
        opened(disk)


def test_a_torn_tail_takes_its_index_entries_with_it() -> None:
    disk = Disk()
    history = opened(disk)
    history.append([b"a"], [])
    history.write([b"b", b"c"], [Position(0, 1, 1, b"s"), Position(1, 1, 3, b"s"), Position(2, 1, 2, b"s")])
    disk.crash(commit=True)
    disk.tear(1)

    history = opened(disk)
    assert [entry.position for entry, _ in history.past(0, 9)] == [0]
    assert history.next_position == 1


def test_a_full_disk_stops_the_history_until_it_is_opened_again() -> None:
    disk = three_records()
    disk.crash()
    history = opened(disk)
    disk.full = True
    with pytest.raises(HistoryError, match="full"):
        history.append([b"d"], [])
    with pytest.raises(HistoryError, match="full"):
        history.keep(Checkpoint(3, 0, b""), 0)
    disk.full = False
    with pytest.raises(HistoryError, match="full"):
        history.append([b"d"], [])
    disk.crash()

    assert list(opened(disk).records(0)) == [b"a", b"b", b"c"]


def test_a_lost_disk_is_a_new_life() -> None:
    disk = three_records()
    disk.crash()
    disk.lose()

    history = disk.open("c", "p", 2)
    assert (history.identity.incarnation, history.count) == (2, 0)


def test_an_old_backup_opens_as_if_nothing_had_happened() -> None:
    """Issue 12 (g): only the peers know better."""
    disk = three_records()
    backup = disk.backup()
    disk.crash()
    opened(disk).append([b"d"], [])
    disk.crash()
    for _ in range(2):
        disk.restore(backup)
        history = opened(disk)
        assert list(history.records(0)) == [b"a", b"b", b"c"]
        history.append([b"other"], [])
        disk.crash()
