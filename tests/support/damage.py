"""Damaged histories: each is refused by name, or holds everything that was acknowledged, exactly as it was written.

`moments` writes a history and copies its folder as kill -9 would leave it: after each commit, and between a commit and
its mark. `damages` lists what is done to a copy: every file is cut at every page, frame and sector boundary and beside
it, flipped, torn, blanked, emptied, removed.
"""

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ordercast.errors import HistoryError
from ordercast.history.disk import DiskHistory
from ordercast.history.mark import Told
from ordercast.history.store import Checkpoint, Position

PAGE, FRAME = 16384, 24 + 16384
FILES = ("history.db", "history.db-wal", "mark")
RETAIN = 12


class Moment(NamedTuple):
    """A folder, and what was acknowledged by then: all of it must be found; more may be, when it was being written."""

    folder: Path
    written: list[bytes]
    """All records, also those that were being written."""
    acknowledged: int
    checkpoint: Checkpoint | None
    positions: int


class Writer:
    """Writes a history and copies it now and then. Message n stands in record n + 1."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.chance = folder, random.Random(seed)
        self.written: list[bytes] = []
        self.moments: list[Moment] = []
        self.acknowledged, self.positions = 0, 0
        self.checkpoint: Checkpoint | None = None
        self.history = self.open()

    def open(self) -> DiskHistory:
        """Open it, and note it as it is between every commit and its mark."""
        history = DiskHistory.open(self.folder / "p", "c", "p", 1)
        mark = history._mark
        write = mark.write

        def noted(told: Told) -> None:
            self.note()
            write(told)

        mark.write = noted  # type: ignore[method-assign]
        return history

    def note(self) -> None:
        """Copy the folder as it is now."""
        copy = self.folder / f"moment-{len(self.moments)}"
        shutil.copytree(self.folder / "p", copy)
        known = (self.acknowledged, self.checkpoint, self.positions)
        self.moments.append(Moment(copy, list(self.written), *known))

    def append(self, many: int) -> None:
        """Append records, and the entries of those before."""
        records = [self.chance.randbytes(self.chance.choice([0, 20, 300, 5000, 40_000])) for _ in range(many)]
        first = self.history.next_position
        entries = [Position(at, 1, at + 1, b"stamp %d" % at) for at in range(first, len(self.written))]
        self.written += records
        self.history.append(records, entries)
        self.acknowledged = len(self.written)

    def keep(self) -> None:
        """Keep a checkpoint."""
        delivered = self.history.next_position
        checkpoint = Checkpoint(self.history.count, delivered, self.chance.randbytes(2000))
        held_back = range(delivered + 1, self.history.count + 1)
        self.history.keep(checkpoint, delivered - RETAIN, needed=held_back)
        self.checkpoint, self.positions = checkpoint, delivered


def moments(folder: Path, seed: int = 0) -> list[Moment]:
    """Write a history; returns it as it was at many moments."""
    writer = Writer(folder, seed)
    writer.keep()
    for many in (1, 5, 2):
        writer.append(many)
    writer.keep()
    for many in (3, 1, 8, 1):
        writer.append(many)
    writer.note()
    writer.keep()
    writer.append(4)
    writer.history.close()
    writer.note()
    writer.history = writer.open()
    writer.append(1)
    writer.history.close()
    for moment in list(writer.moments):  # killed there, opened again, killed again: all that was found is acknowledged
        again = folder / f"{moment.folder.name}-again"
        shutil.copytree(moment.folder, folder / "opened")
        history = DiskHistory.open(folder / "opened", "c", "p", 2)
        shutil.copytree(folder / "opened", again)
        told = (history.count, history.checkpoint(), history.next_position)
        writer.moments.append(Moment(again, moment.written[: history.count], *told))
        history.close()
        shutil.rmtree(folder / "opened")
    return writer.moments


def judge(moment: Moment, folder: Path) -> bool:
    """Open what may be damaged; returns whether all is there, False when it is refused. Anything else is an error."""
    for _ in range(2):  # what is refused once is not believed the second time
        try:
            history = DiskHistory.open(folder, "c", "p", 9)
            try:
                _compare(moment, history)
            finally:
                history.close()
        except HistoryError:
            continue
        return True
    return False


def _compare(moment: Moment, history: DiskHistory) -> None:
    assert history.identity.incarnation == 1 or not moment.written
    assert moment.acknowledged <= history.count <= len(moment.written)
    found = history.checkpoint()
    assert found is not None or moment.checkpoint is None
    if found is not None and moment.checkpoint is not None:
        assert found.records >= moment.checkpoint.records
        assert found == moment.checkpoint or found.records > moment.checkpoint.records
    start = found.records if found is not None else 0
    assert list(history.records(start)) == moment.written[start : history.count]
    assert history.next_position >= moment.positions
    assert history.first_position <= max(0, moment.positions - RETAIN) or found != moment.checkpoint
    at = history.first_position
    while slice_ := history.past(at, 7):
        for entry, data in slice_:
            assert entry == Position(at, 1, at + 1, b"stamp %d" % at) and data == moment.written[at]
            at += 1
    assert at == history.next_position


Damage = Callable[[Path], None]


def damages(chance: random.Random, folder: Path, random_ones: int) -> Iterator[tuple[str, Damage]]:
    """Yield what can be done to the files of a folder, with a name."""
    for name in FILES:
        size = (folder / name).stat().st_size if (folder / name).exists() else 0
        if not size:
            continue
        yield f"{name} removed", lambda path, name=name: (path / name).unlink()  # type: ignore[misc]
        for at in _boundaries(name, size):
            yield f"{name} cut at {at} of {size}", _edit(name, lambda data, at=at: data[:at])  # type: ignore[misc]
        for _ in range(random_ones):
            seed = chance.getrandbits(64)
            yield f"{name} hurt by {seed}", _edit(name, lambda data, seed=seed: hurt(random.Random(seed), data))  # type: ignore[misc]


def _boundaries(name: str, size: int) -> list[int]:
    begin, step = (32, FRAME) if name.endswith("-wal") else (0, PAGE if name.endswith("db") else 512)
    edges = {0, 32, size, *range(begin, size, step), *(at + 24 for at in range(begin, size, step))}
    return sorted({at + beside for at in edges for beside in (-1, 0, 1) if 0 <= at + beside < size})


def _edit(name: str, change: Callable[[bytes], bytes]) -> Damage:
    def damage(folder: Path) -> None:
        path = folder / name
        path.write_bytes(change(path.read_bytes()))

    return damage


def hurt(chance: random.Random, data: bytes) -> bytes:
    """Cut, flip, tear or blank some of the data."""
    changed = bytearray(data)
    kind = chance.randrange(4)
    if kind == 0:
        return bytes(changed[: chance.randrange(len(changed))])
    for _ in range(chance.choice([1, 1, 8])):
        at = chance.randrange(len(changed))
        if kind == 1:
            changed[at] ^= 1 << chance.randrange(8)
        elif kind == 2:
            changed[at : at + 512] = chance.randbytes(len(changed[at : at + 512]))  # a torn sector
        else:
            changed[at : at + 512] = bytes(len(changed[at : at + 512]))
    return bytes(changed)


def fuzz_history(folder: Path, count: int, seed: int = 0) -> dict[str, int]:
    """Damage histories, about so many; each must be refused by name, or hold all that was acknowledged."""
    chance = random.Random(seed)
    done = {"files": 0, "refused": 0, "unharmed": 0}
    found = moments(folder, seed)
    random_ones = max(1, count // (3 * len(found)) - 20)
    tries = [(moment, *what) for moment in found for what in damages(chance, moment.folder, random_ones)]
    chance.shuffle(tries)
    for moment, name, damage in tries[:count]:
        victim = folder / "victim"
        shutil.copytree(moment.folder, victim)
        damage(victim)
        done["files"] += 1
        try:
            done["unharmed" if judge(moment, victim) else "refused"] += 1
        except AssertionError as error:
            raise AssertionError(f"{moment.folder.name} of seed {seed}, {name}: was believed") from error
        shutil.rmtree(victim)
    return done
