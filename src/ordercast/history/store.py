"""The interface of a history: what a site must not forget.

Machines are deterministic, so a history is the inputs a machine asked to have written (`Append`), and a *checkpoint*:
the machine as it was, from which the later inputs are stepped through again. Beside them stands an *index*: which
messages were delivered, and in which record each of them came. So a reader that resumes is served without a machine.
"""

from collections.abc import Collection, Iterator
from typing import NamedTuple, Protocol

import msgspec

from ordercast.errors import BugError, HistoryError
from ordercast.names import SiteId


class Identity(msgspec.Struct, frozen=True):
    """Whose history this is; written once, when it is created."""

    cluster: str
    site: SiteId
    incarnation: int
    """Grows from one history of a site to its next: a site that comes back with another one has lost the first."""


class Position(NamedTuple):
    """An entry of the index: `count` messages were delivered from `position` on; their envelope stands in `record`."""

    position: int
    count: int  # type: ignore[assignment]  # a tuple's method of that name is not used
    record: int
    stamp: bytes

    @property
    def end(self) -> int:
        """The position behind the last of them."""
        return self.position + self.count


class Checkpoint(NamedTuple):
    """A site as it was after so many records and so many delivered messages."""

    records: int
    delivered: int
    state: bytes


class History(Protocol):
    """Records counted from 1, delivered messages from 0, and the last checkpoint.

    Any thread may call, one at a time. A history that raises HistoryError while it writes refuses all later writes:
    what became of the last one is known only after it is closed and opened again.
    """

    @property
    def identity(self) -> Identity:
        """Whose history this is."""
        ...

    @property
    def count(self) -> int:
        """The number of the last record."""
        ...

    @property
    def next_position(self) -> int:
        """The position behind the last entry of the index: the next entry begins here."""
        ...

    @property
    def first_position(self) -> int:
        """The oldest position a reader may resume from; equal to `next_position` when there is none."""
        ...

    def checkpoint(self) -> Checkpoint | None:
        """Return the last checkpoint; None when there is none, and all records since the first are there."""
        ...

    def records(self, after: int) -> Iterator[bytes]:
        """Yield all records after one, in order; raises HistoryError when one is missing or damaged.

        Records up to the checkpoint may be forgotten: ask for those after `checkpoint().records`.
        """
        ...

    def append(self, records: list[bytes], positions: list[Position]) -> None:
        """Write records and index entries, all or nothing. The records are durable when this returns.

        Index entries are durable with the next `keep` at the latest. What a crash leaves out of the index was delivered
        after the last checkpoint: the site delivers it again when it replays, and hands it in again. Entries before
        `next_position` are known, and passed over.
        """
        ...

    def keep(self, checkpoint: Checkpoint, from_delivered: int, needed: Collection[int] = ()) -> None:
        """Replace the checkpoint, and forget what nobody needs any more. Durable when this returns.

        All deliveries up to the checkpoint must have been handed to `append`; no checkpoint is older than the last one.
        Kept are: records after the checkpoint; index entries from the position `from_delivered` on, or a little before;
        the records these refer to, however old; and the records `needed`, whose envelopes are held back now and will
        get their entries later.
        """
        ...

    def past(self, begin: int, at_most: int) -> list[tuple[Position, bytes]]:
        """Return up to so many entries with their records, in order; the first one contains the position `begin`.

        Fewer when they are large, none only from `next_position` on. Raises LocalError before `first_position`.
        """
        ...

    def close(self) -> None:
        """Let go of everything; a second time does nothing."""
        ...


def refuse_others(where: str, found: Identity, cluster: str, site: SiteId) -> None:
    """Raise HistoryError when a history belongs to another site or cluster."""
    if (found.cluster, found.site) != (cluster, site):
        raise HistoryError(
            f"{where}: the history of site {found.site} of cluster {found.cluster!r}, opened for site {site} of cluster"
            f" {cluster!r}; nothing was changed"
        )


def unknown(positions: list[Position], next_position: int, count: int) -> list[Position]:
    """Return the entries that are new; they must follow each other, and refer to records that are written."""
    new = [entry for entry in positions if entry.position >= next_position]
    for entry in new:
        if entry.position != next_position or entry.count < 1 or not 0 < entry.record <= count:
            raise BugError(f"{entry} does not follow position {next_position} in a history of {count} records")
        next_position = entry.end
    return new


def check_keep(checkpoint: Checkpoint, kept: int, history: History) -> None:
    """Raise BugError for a checkpoint that is ahead of its history, or older than the last one, at record `kept`."""
    if not kept <= checkpoint.records <= history.count or checkpoint.delivered > history.next_position:
        raise BugError(
            f"a checkpoint at record {checkpoint.records} and position {checkpoint.delivered}, after one at record"
            f" {kept}, of a history that ends at record {history.count} and position {history.next_position}"
        )
