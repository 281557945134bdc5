"""A disk in a world of nodes: it keeps a history over crashes, fills up, is lost, is restored from an old backup."""

import random

from ordercast.errors import HistoryError
from ordercast.history.memory import Kept, MemoryHistory, Place
from ordercast.history.store import Position
from ordercast.names import SiteId


class FullableHistory(MemoryHistory):
    """A history on a disk that may be full: then a write fails, and so does every one after it."""

    drive: "Drive"
    broken = False

    def _check_open(self) -> None:
        self.broken = self.broken or self.drive.full
        if self.broken:
            raise HistoryError("no space left on the disk")
        super()._check_open()


class Drive:
    """One per host."""

    def __init__(self, chance: random.Random) -> None:
        self.full = False
        self.backup: Kept | None = None
        self._chance = chance
        self._place = Place()
        self._history: FullableHistory | None = None
        self._begun: tuple[list[bytes], list[Position]] | None = None  # a write that may be on disk or not

    def open(self, cluster: str, site: SiteId, incarnation: int) -> MemoryHistory:
        """Open the history that is here, or begin one."""
        self._begun = None
        self._history = FullableHistory.open(self._place, cluster, site, incarnation)
        self._history.drive = self
        return self._history

    def begins(self, records: list[bytes], positions: list[Position]) -> None:
        """A write begins."""
        self._begun = (records, positions)

    def ended(self) -> None:
        """A write is done."""
        self._begun = None

    def crash(self) -> None:
        """Lose power: a write that had begun is done or not; entries of the index since the checkpoint may be gone."""
        kept, chance = self._place.kept, self._chance
        if kept is None:
            return
        if self._begun is not None and not self.full and chance.random() < 0.5:
            records, positions = self._begun
            kept.append(records, [entry for entry in positions if entry.position >= kept.next_position])
        self._begun = None
        durable = kept.checkpoint.delivered if kept.checkpoint is not None else 0
        while kept.entries and kept.entries[-1].position >= durable and chance.random() < 0.5:
            kept.next_position = kept.entries.pop().position

    def records(self) -> list[bytes]:
        """Return all records that are here."""
        return list(self._place.kept.records.values()) if self._place.kept is not None else []

    def lose(self) -> bool:
        """Lose everything; returns whether there was anything."""
        kept = self._place.kept
        self._place = Place()
        return kept is not None and kept.count > 0

    def back_up(self) -> None:
        """Copy everything."""
        self.backup = self._place.kept.copy() if self._place.kept is not None else None

    def restore(self) -> None:
        """Go back to the copy."""
        self._place = Place()
        self._place.kept = self.backup.copy() if self.backup is not None else None
