"""A simulated disk, for worlds of sites with histories: it does what the world says, and draws nothing itself.

The world holds the disk; a site holds the history that it opened on it, and loses it when it crashes. A write is
*pending* until the world commits it. Then it is durable, and acknowledged: the disk has a mark, as real histories do
(`history.mark`), and refuses to be opened when less is there than was acknowledged.
"""

from collections.abc import Collection
from typing import NamedTuple

from ordercast.errors import BugError, HistoryError
from ordercast.history.memory import Kept, MemoryHistory, Place
from ordercast.history.store import Checkpoint, Position, unknown
from ordercast.names import SiteId


class Backup(NamedTuple):
    """A copy of all that was on a disk."""

    kept: Kept | None
    marked: int


class Disk:
    """The disk of one site."""

    def __init__(self) -> None:
        self.full = False
        """Whether writes fail."""
        self._place = Place()
        self._marked = 0  # records that were acknowledged
        self._history: SimHistory | None = None

    @property
    def kept(self) -> Kept | None:
        """What is durable now; None before the first history, and when the disk was lost."""
        return self._place.kept

    @property
    def pending(self) -> bool:
        """Whether a write waits for its commit."""
        return self._history is not None and self._history.pending is not None

    def open(self, cluster: str, site: SiteId, new_incarnation: int) -> "SimHistory":
        """Open the history that is here, or create one; raises HistoryError when acknowledged records are missing."""
        kept = self._place.kept
        if kept is not None and kept.count < self._marked:
            raise HistoryError(f"disk of {site}: ends at record {kept.count}, but {self._marked} were written")
        self._history = SimHistory(self, self._place, self._place.take(cluster, site, new_incarnation))
        self._marked = self._history.count
        return self._history

    def crash(self, *, commit: bool = False) -> None:
        """The site dies. A pending write is lost; or it was committed just before, and nobody was told."""
        if self._history is not None:
            if commit:
                self._history.put_pending()
            self._history.pending = None
            self._history.close()
            self._history = None

    def tear(self, records: int) -> None:
        """Lose the last so many records, though not those in the checkpoint: a disk that lied, or a file that was cut.

        What was never acknowledged may go without a word; else the next `open` finds it.
        """
        kept = self._idle()
        checkpointed = kept.checkpoint.records if kept.checkpoint is not None else 0
        count = max(checkpointed, kept.count - records)
        first_position = kept.entries[0].position if kept.entries else kept.next_position
        kept.records = {number: data for number, data in kept.records.items() if number <= count}
        kept.entries = [entry for entry in kept.entries if entry.record <= count]
        for index, entry in enumerate(kept.entries[1:], start=1):
            if entry.position != kept.entries[index - 1].end:
                del kept.entries[index:]
                break
        kept.count = count
        kept.next_position = kept.entries[-1].end if kept.entries else first_position

    def lose(self) -> None:
        """Lose everything, the mark too: the site gets an empty disk."""
        assert self._history is None, "the site still runs"
        self._place, self._marked = Place(), 0

    def backup(self) -> Backup:
        """Copy what is durable now."""
        kept = self._place.kept
        return Backup(kept.copy() if kept is not None else None, self._marked)

    def restore(self, backup: Backup) -> None:
        """Put a copy back. Nothing here shows that it is old: only the peers know."""
        assert self._history is None, "the site still runs"
        self._place.kept = backup.kept.copy() if backup.kept is not None else None
        self._marked = backup.marked

    def acknowledge(self, count: int) -> None:
        """Move the mark: somebody is told that so many records are durable."""
        assert count >= self._marked, "what was acknowledged stays"
        self._marked = count

    def _idle(self) -> Kept:
        assert self._history is None, "the site still runs"
        assert self._place.kept is not None, "there is nothing on the disk"
        return self._place.kept


class SimHistory(MemoryHistory):
    """A history on a simulated disk. `append` is `write` and `commit` at once; a world calls them one by one."""

    def __init__(self, disk: Disk, place: Place, kept: Kept) -> None:
        """Use `Disk.open`."""
        super().__init__(place, kept)
        self._disk = disk
        self._failed = False
        self.pending: tuple[list[bytes], list[Position]] | None = None

    def write(self, records: list[bytes], positions: list[Position]) -> None:
        """Begin a write; it is durable after `commit`, and nothing of it is seen before."""
        if self.pending is not None:
            raise BugError("a write was begun before the last one was committed")
        new = unknown(positions, self.next_position, self.count + len(records))
        self._check_disk()
        self.pending = (list(records), new)

    def commit(self) -> None:
        """The pending write is durable, and acknowledged."""
        self._check_disk()
        self.put_pending()
        self._disk.acknowledge(self.count)

    def put_pending(self) -> None:
        """Make the pending write durable; nobody is told."""
        if self.pending is not None:
            self._kept.append(*self.pending)
            self.pending = None

    def append(self, records: list[bytes], positions: list[Position]) -> None:
        """Write and commit."""
        self.write(records, positions)
        self.commit()

    def keep(self, checkpoint: Checkpoint, from_delivered: int, needed: Collection[int] = ()) -> None:
        """Replace the checkpoint, and forget what nobody needs any more; at once, between two writes."""
        if self.pending is not None:
            raise BugError("a checkpoint was written before the last write was committed")
        self._check_disk()
        super().keep(checkpoint, from_delivered, needed)

    def _check_disk(self) -> None:
        self._check_open()
        self._failed = self._failed or self._disk.full
        if self._failed:
            raise HistoryError(f"disk of {self.identity.site}: full")
