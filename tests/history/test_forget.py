"""What a checkpoint forgets: records that nobody needs, and with work that does not grow with what is kept."""

import os
import random
from functools import partial
from pathlib import Path

import pytest

from ordercast.history.disk import DiskHistory
from ordercast.history.memory import MemoryHistory, Place
from ordercast.history.store import Checkpoint, History, Position
from ordercast.testing.check_history import Opener


def opened(folder: Path) -> DiskHistory:
    return DiskHistory.open(folder / "p", "c", "p", 1)


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in (folder / "p").iterdir())


def deliver(history: History, many: int, data: bytes) -> None:
    """Append records in commits of ten, each delivered as one message with the next commit."""
    for _ in range(0, many, 10):
        first, known = history.count, history.next_position
        history.append([data] * 10, [])
        history.append([], [Position(known + index, 1, first + index + 1, b"stamp") for index in range(10)])


@pytest.mark.slow
def test_short_lives_do_not_fill_the_disk(tmp_path: Path) -> None:
    """Issue 12 (f): a site that keeps a checkpoint in every life takes no more room in its twentieth than before."""
    sizes = []
    for _ in range(20):
        history = opened(tmp_path)
        deliver(history, 100, os.urandom(5000))
        history.keep(Checkpoint(history.count, history.next_position, b"state"), history.next_position - 50)
        history.close()
        sizes.append(size(tmp_path))

    assert max(sizes[5:]) < 1.2 * max(sizes[:5])


@pytest.mark.slow
def test_room_is_given_back(tmp_path: Path) -> None:
    """Issue 12 (f): disk space is never given back. It is now, as far as the next records will not need it."""
    history = opened(tmp_path)
    deliver(history, 2000, os.urandom(5000))
    history.keep(Checkpoint(2000, 2000, b"state"), 0)
    full = size(tmp_path)
    for done in range(2010, 2050, 10):
        deliver(history, 10, b"small")
        history.keep(Checkpoint(done, done, b"state"), done - 10)
    history.close()

    assert full > 10_000_000
    assert size(tmp_path) < 500_000


def test_what_is_carried_for_others_is_forgotten(tmp_path: Path) -> None:
    """A site that carries much and delivers little keeps what it delivered, not what came in the same commits."""
    history = opened(tmp_path)
    for done in range(50, 1001, 50):
        for _ in range(5):
            first, known = history.count, history.next_position
            history.append([os.urandom(5000) for _ in range(10)], [])
            history.append([], [Position(known, 1, first + 4, b"")])
        history.keep(Checkpoint(done, history.next_position, b"state"), 0)
    assert len(history.past(0, 1000)) == 100
    history.close()

    assert size(tmp_path) < 2_000_000  # of 5,000,000 written, 500,000 are wanted


def test_the_work_does_not_grow_with_what_is_kept(tmp_path: Path) -> None:
    """Bounded work per call: a checkpoint looks at what came since the last one."""
    history = opened(tmp_path)
    assert history.database._connection is not None
    work = []
    for done in range(100, 2001, 100):
        deliver(history, 100, b"x")
        statements: list[str] = []
        history.database._connection.set_trace_callback(statements.append)
        history.keep(Checkpoint(done, done, b"state"), 0)
        history.database._connection.set_trace_callback(None)
        work.append(len(statements))
    history.close()

    assert max(work[5:]) <= max(work[:5])


@pytest.mark.slow
def test_disk_and_memory_forget_alike(tmp_path: Path) -> None:
    """Messages are held back for long, delivered out of order, several of one record; readers resume everywhere."""
    for seed in range(12):
        chance = random.Random(seed)
        place, folder = Place(), tmp_path / str(seed)
        openers: list[Opener] = [partial(DiskHistory.open, folder), partial(MemoryHistory.open, place)]
        histories: list[History] = [each("c", "p", 1) for each in openers]
        held: list[int] = []
        for _ in range(40):
            _one_step(chance, histories, held)
            if chance.random() < 0.1:
                _all_known(histories, held)
                for history in histories:
                    history.close()
                histories = [each("c", "p", 1) for each in openers]
            _compare(*histories)
        for history in histories:
            history.close()


def _one_step(chance: random.Random, histories: list[History], held: list[int]) -> None:
    count, position = histories[0].count, histories[0].next_position
    if chance.random() < 0.3:
        _all_known(histories, held, chance.choice([0, 5, 50]))
        return
    records = [chance.randbytes(chance.choice([0, 10, 1000, 20_000])) for _ in range(chance.randint(0, 6))]
    for record in range(count + 1, count + len(records) + 1):
        held += [record] * chance.choice([0, 1, 1, 2])
    entries = []
    for _ in range(chance.randint(0, len(held))):
        record = held.pop(chance.randrange(len(held)))
        entries.append(Position(position, chance.randint(1, 3), record, chance.randbytes(4)))
        position = entries[-1].end
    for history in histories:
        history.append(records, entries)


def _all_known(histories: list[History], held: list[int], retain: int = 20) -> None:
    for history in histories:
        delivered = history.next_position
        history.keep(Checkpoint(history.count, delivered, b"%d" % delivered), delivered - retain, needed=held)


def _compare(disk: History, memory: History) -> None:
    assert (disk.count, disk.next_position) == (memory.count, memory.next_position)
    assert disk.first_position <= memory.first_position
    assert disk.checkpoint() == memory.checkpoint()
    after = checkpoint.records if (checkpoint := memory.checkpoint()) is not None else 0
    assert list(disk.records(after)) == list(memory.records(after))
    begin = memory.first_position
    assert disk.past(begin, 10_000) == memory.past(begin, 10_000)
    assert disk.past(disk.first_position, 10_000)[-1:] == memory.past(begin, 10_000)[-1:]
