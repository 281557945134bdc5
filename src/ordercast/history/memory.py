"""Histories in memory: a twin of the one on disk that behaves the same, and one for sites that keep nothing."""

from collections.abc import Collection, Iterator
from typing import Self

import msgspec

from ordercast.errors import HistoryError, LocalError
from ordercast.history.store import Checkpoint, Identity, Position, check_keep, refuse_others, unknown
from ordercast.names import SiteId


class Kept(msgspec.Struct):
    """What a history in memory holds: the files of the twin. It outlives who has it open."""

    identity: Identity
    records: dict[int, bytes] = {}
    entries: list[Position] = []
    checkpoint: Checkpoint | None = None
    count: int = 0
    next_position: int = 0

    def copy(self) -> "Kept":
        """Return a copy that does not change with this one."""
        return Kept(
            self.identity, dict(self.records), list(self.entries), self.checkpoint, self.count, self.next_position
        )

    def append(self, records: list[bytes], entries: list[Position]) -> None:
        """Add records and index entries."""
        for data in records:
            self.count += 1
            self.records[self.count] = data
        self.entries += entries
        self.next_position = entries[-1].end if entries else self.next_position

    def keep(self, checkpoint: Checkpoint, from_delivered: int, needed: Collection[int]) -> None:
        """Replace the checkpoint, and forget what nobody needs."""
        self.checkpoint = checkpoint
        from_delivered = min(from_delivered, checkpoint.delivered)
        self.entries = [entry for entry in self.entries if entry.end > from_delivered]
        wanted = {entry.record for entry in self.entries}.union(needed)
        self.records = {
            number: data for number, data in self.records.items() if number > checkpoint.records or number in wanted
        }


class Place:
    """Where a history in memory is kept, as a folder keeps one on disk; empty at first."""

    def __init__(self) -> None:
        self.kept: Kept | None = None
        self.used = False

    def take(self, cluster: str, site: SiteId, new_incarnation: int) -> Kept:
        """Return what is kept here, or begin; one history at a time may use it."""
        if self.used:
            raise HistoryError("memory: another process uses it")
        if self.kept is None:
            self.kept = Kept(Identity(cluster, site, new_incarnation))
        refuse_others("memory", self.kept.identity, cluster, site)
        self.used = True
        return self.kept


class MemoryHistory:
    """Behaves as `DiskHistory`; `place` is what survives a restart."""

    def __init__(self, place: Place, kept: Kept) -> None:
        """Use `open`."""
        self._place, self._kept = place, kept
        self._closed = False

    @classmethod
    def open(cls, place: Place, cluster: str, site: SiteId, new_incarnation: int) -> Self:
        """Open the history of a site, or create one of this incarnation where there is none."""
        return cls(place, place.take(cluster, site, new_incarnation))

    @property
    def identity(self) -> Identity:
        """Whose history this is."""
        return self._kept.identity

    @property
    def count(self) -> int:
        """The number of the last record."""
        return self._kept.count

    @property
    def next_position(self) -> int:
        """The position behind the last entry of the index."""
        return self._kept.next_position

    @property
    def first_position(self) -> int:
        """The oldest position a reader may resume from."""
        return self._kept.entries[0].position if self._kept.entries else self._kept.next_position

    def checkpoint(self) -> Checkpoint | None:
        """Return the last checkpoint."""
        return self._kept.checkpoint

    def records(self, after: int) -> Iterator[bytes]:
        """Yield all records after one, in order."""
        for number in range(after + 1, self.count + 1):
            yield self._record(number)

    def _record(self, number: int) -> bytes:
        data = self._kept.records.get(number)
        if data is None:
            raise HistoryError(f"memory: record {number} is missing")
        return data

    def append(self, records: list[bytes], positions: list[Position]) -> None:
        """Add records and index entries."""
        new = unknown(positions, self.next_position, self.count + len(records))
        self._check_open()
        self._kept.append(records, new)

    def keep(self, checkpoint: Checkpoint, from_delivered: int, needed: Collection[int] = ()) -> None:
        """Replace the checkpoint, and forget what nobody needs any more."""
        last = self._kept.checkpoint
        check_keep(checkpoint, last.records if last is not None else 0, self)
        self._check_open()
        self._kept.keep(checkpoint, from_delivered, needed)

    def past(self, begin: int, at_most: int) -> list[tuple[Position, bytes]]:
        """Return index entries from a position on with their records."""
        if begin < self.first_position:
            raise LocalError(f"position {begin} is not kept here any more; the oldest is {self.first_position}")
        entries = [entry for entry in self._kept.entries if entry.end > begin][:at_most]
        return [(entry, self._record(entry.record)) for entry in entries]

    def _check_open(self) -> None:
        if self._closed:
            raise HistoryError("memory: closed")

    def close(self) -> None:
        """Let another one use the place."""
        if not self._closed:
            self._closed, self._place.used = True, False


class NoHistory:
    """For sites that are declared not durable: it counts, and keeps nothing."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.count = self.next_position = 0

    @property
    def first_position(self) -> int:
        """No reader can resume from what was delivered."""
        return self.next_position

    def checkpoint(self) -> Checkpoint | None:
        """There is none."""
        return None

    def records(self, after: int) -> Iterator[bytes]:
        """There are none."""
        return iter(())

    def append(self, records: list[bytes], positions: list[Position]) -> None:
        """Count them."""
        self.count += len(records)
        self.next_position = positions[-1].end if positions else self.next_position

    def keep(self, checkpoint: Checkpoint, from_delivered: int, needed: Collection[int] = ()) -> None:
        """Do nothing: nothing is kept."""

    def past(self, begin: int, at_most: int) -> list[tuple[Position, bytes]]:
        """Refuse what is past."""
        if begin < self.next_position:
            raise LocalError(f"position {begin} is not kept here: this site is not durable")
        return []

    def close(self) -> None:
        """Do nothing: there is nothing to let go of."""
