"""How far back readers may go: by messages, by bytes, by time; whatever is reached first.

Sizes and times are known at marks: one at each checkpoint, and eight in the time that messages are kept. What lies
before a mark is forgotten as a whole, so a little more is kept than was asked for: what came between two marks.
"""

import msgspec

from ordercast.node.settings import Limits

MARKS_AT_MOST = 512  # with more, every second one is dropped
PARTS = 8  # a checkpoint at least after this part of the time


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """What there was at a checkpoint."""

    at: float
    delivered: int
    """Messages delivered until then."""
    bytes: int
    """Bytes of records until then."""


class Retention:
    """One per node."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.marks: list[Mark] = []
        self.bytes = 0  # of records, by the last checkpoint
        self._first = 0  # what lies before was too old already

    def restore(self, marks: list[Mark]) -> None:
        """Go on after a restart."""
        self.marks = list(marks)
        self.bytes = marks[-1].bytes if marks else 0

    def mark(self, now: float, delivered: int) -> None:
        """Note how much there is now; `bytes` is up to date when a checkpoint is taken."""
        self.marks.append(Mark(now, delivered, self.bytes))
        if len(self.marks) > MARKS_AT_MOST:
            del self.marks[:-1:2]

    def oldest(self, now: float, delivered: int) -> int:
        """Return the position from which on messages are kept; forgets marks that tell nothing more."""
        limits, found = self.limits, max(self._first, delivered - self.limits.retain_messages)
        for mark in self.marks:
            old = limits.retain_seconds is not None and now - mark.at >= limits.retain_seconds
            large = limits.retain_bytes is not None and self.bytes - mark.bytes >= limits.retain_bytes
            if old or large:
                found = max(found, mark.delivered)
        self.marks = [mark for mark in self.marks if mark.delivered > found or mark is self.marks[-1]]
        self._first = found
        return found

    def due(self, now: float) -> bool:
        """Whether it is time for a checkpoint, so that times are known well enough."""
        seconds = self.limits.retain_seconds
        return seconds is not None and (not self.marks or now - self.marks[-1].at >= seconds / PARTS)

    def look(self, now: float, delivered: int) -> None:
        """Time passes, and nothing is written: note when the last was there."""
        if self.due(now) and (not self.marks or delivered > self.marks[-1].delivered):
            self.mark(now, delivered)

    def late(self, now: float, first: int, delivered: int) -> bool:
        """Whether something is too old that is still kept: positions from `first` on."""
        return self.limits.retain_seconds is not None and first < self.oldest(now, delivered)
