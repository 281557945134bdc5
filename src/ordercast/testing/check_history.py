"""Holds any history to one behaviour: the one on disk, its twin in memory, the one of the simulator.

For one on disk: `check_history(lambda: partial(DiskHistory.open, new_folder()))`.
"""

from collections.abc import Callable
from typing import Protocol

from ordercast.errors import BugError, HistoryError, LocalError, OrdercastError
from ordercast.history.store import Checkpoint, History, Identity, Position


class Opener(Protocol):
    """Opens the history of one place; called again after `close`, it finds what was there."""

    def __call__(self, cluster: str, site: str, new_incarnation: int, /) -> History:
        """Open the history of a site, or create one of this incarnation where there is none."""
        ...


def check_history(place: Callable[[], Opener]) -> None:
    """Run all checks, each at a new, empty place; raises AssertionError at the first that fails."""
    for check in CHECKS:
        check(place())


def check_empty(opened: Opener) -> None:
    """A new history has its identity, and nothing else."""
    history = opened("c", "p", 7)
    assert history.identity == Identity("c", "p", 7)
    assert (history.count, history.first_position, history.next_position) == (0, 0, 0)
    assert history.checkpoint() is None
    assert list(history.records(0)) == []
    assert history.past(0, 10) == []
    history.append([], [])
    assert history.count == 0
    history.close()
    history.close()


def check_records(opened: Opener) -> None:
    """Records come back in order, also empty and large ones, now and after a restart."""
    written = [b"one", b"", bytes(3_000_000), b"four", *(b"%d" % number for number in range(600))]
    history = opened("c", "p", 1)
    history.append(written[:1], [])
    history.append(written[1:4], [])
    history.append(written[4:], [])
    for _ in range(2):
        assert history.count == len(written)
        assert list(history.records(0)) == written
        assert list(history.records(3)) == written[3:]
        assert list(history.records(len(written))) == []
        history.close()
        history = opened("c", "p", 2)
    history.close()


def check_identity(opened: Opener) -> None:
    """The incarnation is that of the creation; another site's or cluster's history is refused, and names both."""
    opened("c", "p", 1).close()
    history = opened("c", "p", 2)
    assert history.identity == Identity("c", "p", 1)
    history.append([b"x"], [])
    history.close()
    for cluster, site in (("c", "q"), ("d", "p")):
        said = _refused(HistoryError, opened, cluster, site, 3)
        assert "\n" not in said
        assert all(word in said for word in ("site p", f"site {site}", "'c'", f"'{cluster}'")), said
    history = opened("c", "p", 4)
    assert list(history.records(0)) == [b"x"]
    history.close()


def check_one_at_a_time(opened: Opener) -> None:
    """A history that is open is refused to others; nothing is written to one that is closed."""
    history = opened("c", "p", 1)
    assert "another process uses it" in _refused(HistoryError, opened, "c", "p", 1)
    history.append([b"x"], [])
    history.close()
    _refused(HistoryError, history.append, [b"y"], [])
    again = opened("c", "p", 1)
    assert list(again.records(0)) == [b"x"]
    again.close()


def check_past(opened: Opener) -> None:
    """Slices of the index come with their records, from any position on, also out of the order of the records."""
    history = opened("c", "p", 1)
    history.append([b"a", b"b", b"c"], [])
    history.append([b"d"], [Position(0, 2, 3, b"s0"), Position(2, 1, 1, b"s1")])
    history.append([], [Position(3, 5, 4, b"s2"), Position(8, 1, 3, b"s3")])
    entries = [
        (Position(0, 2, 3, b"s0"), b"c"),
        (Position(2, 1, 1, b"s1"), b"a"),
        (Position(3, 5, 4, b"s2"), b"d"),
        (Position(8, 1, 3, b"s3"), b"c"),
    ]
    assert (history.first_position, history.next_position) == (0, 9)
    assert history.past(0, 10) == entries
    assert history.past(0, 2) == entries[:2]
    assert history.past(1, 1) == entries[:1]
    assert history.past(7, 10) == entries[2:]
    assert history.past(9, 10) == []
    history.close()


def check_many_entries(opened: Opener) -> None:
    """A long index is read slice by slice without a gap, before and after a restart."""
    history = opened("c", "p", 1)
    _deliver(history, 1500, together=50)
    assert _read(history, 0) == list(range(1500))
    history.keep(Checkpoint(history.count, 1500, b"state"), 0)
    history.close()
    history = opened("c", "p", 1)
    assert history.next_position == 1500
    assert _read(history, 0) == list(range(1500))
    assert _read(history, 1234) == list(range(1234, 1500))
    history.close()


def check_entries_again(opened: Opener) -> None:
    """What a crash leaves out of the index is handed in again; what is known is passed over; a gap is a bug."""
    history = opened("c", "p", 1)
    _deliver(history, 5)
    history.close()
    history = opened("c", "p", 1)
    assert 0 <= history.next_position <= 5
    again = [Position(position, 1, position + 1, b"stamp") for position in range(5)]
    history.append([], again)
    history.append([], again[2:])
    assert _read(history, 0) == list(range(5))
    for wrong in (Position(6, 1, 1, b""), Position(5, 0, 1, b""), Position(5, 1, 6, b""), Position(5, 1, 0, b"")):
        _refused(BugError, history.append, [], [wrong])
    assert _read(history, 0) == list(range(5))
    history.close()


def check_checkpoint(opened: Opener) -> None:
    """The last checkpoint is the one that counts, with the records after it; one from the future is a bug."""
    history = opened("c", "p", 1)
    history.keep(Checkpoint(0, 0, b"at first"), 0)
    assert history.checkpoint() == Checkpoint(0, 0, b"at first")
    _deliver(history, 6)
    history.keep(Checkpoint(4, 4, b"then"), 0)
    for _ in range(2):
        assert history.checkpoint() == Checkpoint(4, 4, b"then")
        assert list(history.records(4)) == [b"4", b"5"]
        history.close()
        history = opened("c", "p", 1)
    history.append([], [Position(position, 1, position + 1, b"stamp") for position in range(6)])
    for wrong in (Checkpoint(7, 6, b""), Checkpoint(6, 7, b""), Checkpoint(3, 3, b"")):
        _refused(BugError, history.keep, wrong, 0)
    assert history.checkpoint() == Checkpoint(4, 4, b"then")
    history.close()


def check_checkpoint_within_an_append(opened: Opener) -> None:
    """A checkpoint may stand between two records of one append; what comes after it is looked at later."""
    history = opened("c", "p", 1)
    history.append([b"0", b"1", b"2", b"3"], [])
    history.append([], [Position(0, 1, 1, b"s"), Position(1, 1, 2, b"s")])
    history.keep(Checkpoint(2, 2, b"state"), 0)
    assert list(history.records(2)) == [b"2", b"3"]
    history.append([b"4"], [])
    history.keep(Checkpoint(5, 2, b"state"), 0)
    assert _read(history, 0) == [0, 1]
    history.close()


def check_forgetting(opened: Opener) -> None:
    """A reader may resume from the position that was asked for; what is before it is refused sooner or later."""
    history = opened("c", "p", 1)
    for done in range(10, 101, 10):
        _deliver(history, 10)
        history.keep(Checkpoint(done, done, b"state"), done - 15)
        assert history.first_position <= max(0, done - 15)
        assert _read(history, history.first_position) == list(range(history.first_position, done))
    assert history.first_position > 50
    said = _refused(LocalError, history.past, history.first_position - 1, 1)
    assert f"position {history.first_position - 1} " in said
    _refused(HistoryError, list, history.records(0))
    history.close()
    history = opened("c", "p", 1)
    assert _read(history, history.first_position) == list(range(history.first_position, 100))
    history.keep(Checkpoint(100, 100, b"state"), 1000)
    assert (history.first_position, history.next_position, history.count) == (100, 100, 100)
    history.close()
    history = opened("c", "p", 1)
    assert (history.first_position, history.next_position, history.count) == (100, 100, 100)
    assert history.past(100, 1) == []
    _deliver(history, 3)
    assert _read(history, 100) == [100, 101, 102]
    history.close()


def check_a_record_after_its_position(opened: Opener) -> None:
    """A position that a checkpoint counts may stand in a record after it: the next checkpoint does not forget that."""
    history = opened("c", "p", 1)
    history.append([b"0", b"1"], [Position(0, 1, 1, b"s")])
    history.append([b"2"], [Position(1, 1, 3, b"s")])
    history.keep(Checkpoint(2, 2, b"state"), 0)
    for record in range(3, 7):
        history.append([b"%d" % record], [])
    history.keep(Checkpoint(7, 2, b"state"), 0)
    history.append([b"7"], [])
    history.keep(Checkpoint(8, 2, b"state"), 0)
    assert [data for _, data in history.past(0, 10)] == [b"0", b"2"]
    history.close()


def check_held_back(opened: Opener) -> None:
    """A message that is held back over many checkpoints is there when it is delivered, and goes with its entry."""
    history = opened("c", "p", 1)
    history.append([b"held", bytes(1000), b"twice"], [Position(0, 1, 3, b"s")])
    for done in range(4, 10):
        history.append([b"%d" % done], [])
        history.keep(Checkpoint(done, 1, b"state"), 1, needed=[1, 3])
    history.close()
    history = opened("c", "p", 1)
    _refused(HistoryError, list, history.records(0))
    history.append([b"last"], [Position(1, 1, 1, b"s"), Position(2, 1, 3, b"s")])
    history.keep(Checkpoint(10, 3, b"state"), 1)
    history.keep(Checkpoint(10, 3, b"state"), 1)
    assert history.past(1, 9) == [(Position(1, 1, 1, b"s"), b"held"), (Position(2, 1, 3, b"s"), b"twice")]
    history.close()
    history = opened("c", "p", 1)
    assert [data for _, data in history.past(1, 9)] == [b"held", b"twice"]
    history.close()


def _deliver(history: History, count: int, together: int = 1) -> None:
    """Append records, some together, each delivered as one message, its entry coming with the next append."""
    entries: list[Position] = []
    for _ in range(0, count, together):
        first = history.next_position + len(entries)
        positions = range(first, first + together)
        history.append([b"%d" % position for position in positions], entries)
        before = history.count - together + 1 - first
        entries = [Position(position, 1, before + position, b"stamp") for position in positions]
    history.append([], entries)


def _read(history: History, begin: int) -> list[int]:
    """Read the past as a reader does; returns what stands in the records."""
    found: list[int] = []
    while slice_ := history.past(begin, 64):
        assert len(slice_) <= 64
        found += [int(data) for _, data in slice_]
        begin = slice_[-1][0].end
    return found


def _refused(kind: type[OrdercastError], work: Callable[..., object], *given: object) -> str:
    """Return what the error says that must come."""
    try:
        work(*given)
    except kind as error:
        return str(error)
    raise AssertionError(f"no {kind.__name__}")


CHECKS: tuple[Callable[[Opener], None], ...] = (
    check_empty,
    check_records,
    check_identity,
    check_one_at_a_time,
    check_past,
    check_many_entries,
    check_entries_again,
    check_checkpoint,
    check_checkpoint_within_an_append,
    check_forgetting,
    check_a_record_after_its_position,
    check_held_back,
)
"""All checks, one by one: a test may run each by its name."""
