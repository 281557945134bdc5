"""What a site has delivered in one class, and what of it every member has (errata 58).

Every destination D has a stream: its members deliver the same messages to D in the same order, so a count says which.
Members tell the *first* member of D how many they have; the first one tells them, and sources from outside, how many
all of them have. What is stable leaves the track; the rest is what a report tells, line by line.
"""

from collections import deque
from collections.abc import Iterable, Iterator

import msgspec

from ordercast.core.configuration import Destination
from ordercast.core.events import Envelope
from ordercast.epochs.messages import ClassReport, Counts, Id, Line
from ordercast.names import ClassId, Delivery, SiteId

Stream = tuple[SiteId, int, Destination]
"""Source, incarnation and destination."""


class Entry(msgspec.Struct, array_like=True):
    """One delivered message."""

    class_id: ClassId
    order: int
    stamp: bytes
    envelope: Envelope
    index: int
    """It is so manieth to its destination in its class."""
    handed: bool = False
    """The application has it."""

    @property
    def id(self) -> Id:
        """What identifies the message."""
        return id_of(self.envelope)

    @property
    def line(self) -> Line:
        """The message as a report tells it."""
        return Line(self.order, self.stamp, self.id, self.envelope.groups, self.index)


def id_of(envelope: Envelope) -> Id:
    """Return what identifies a message."""
    return Id(envelope.source, envelope.incarnation, envelope.number)


class Recent:
    """The last messages of a group, each with its count: what a site can give to one that comes back.

    They go into one message (`State`) and into checkpoints, so there is a bound on their bytes, too.
    """

    most = 16_384
    most_bytes = 16 * 2**20

    def __init__(self, kept: Iterable[tuple[int, Entry]] = ()) -> None:
        self._kept: deque[tuple[int, Entry]] = deque()
        self.bytes = 0
        for count, entry in kept:
            self.append(count, entry)

    def append(self, count: int, entry: Entry) -> None:
        """Keep one more, and forget the oldest."""
        self._kept.append((count, entry))
        self.bytes += len(entry.envelope.body)
        while len(self._kept) > self.most or (self.bytes > self.most_bytes and self._kept):
            self.bytes -= len(self._kept.popleft()[1].envelope.body)

    def __iter__(self) -> Iterator[tuple[int, Entry]]:
        return iter(self._kept)

    def __len__(self) -> int:
        return len(self._kept)


class Track(msgspec.Struct, array_like=True):
    """One class at one site. `stable` never exceeds `counts`; entries are in the order in which they were delivered."""

    counts: dict[Destination, int] = {}
    """Messages delivered here."""
    stable: dict[Destination, int] = {}
    """Messages that every member has."""
    last: dict[Stream, int] = {}
    """The number of the last message of each stream."""
    safe: dict[Stream, int] = {}
    """The same among what is stable."""
    entries: list[Entry] = []
    """Delivered, and not stable or not handed over."""
    heard: dict[Destination, dict[SiteId, int]] = {}
    """At the first member: what the others have."""
    told: dict[Destination, int] = {}
    """Counts that the first member was told last."""
    waited: dict[Destination, int] = {}
    """For how many ticks that has not become stable."""
    behind: int = 0
    """What is delivered here is handed over after this configuration is done; 0 for at once."""
    copied: dict[Destination, int] = {}
    """With delivery `copied`: messages that so many members have as are asked for; this site may lack some of them."""

    def add(self, class_id: ClassId, order: int, stamp: bytes, envelope: Envelope) -> Entry:
        """Count a delivery."""
        groups = envelope.groups
        self.counts[groups] = self.counts.get(groups, 0) + 1
        self.last[envelope.source, envelope.incarnation, groups] = envelope.number
        entry = Entry(class_id, order, stamp, envelope, self.counts[groups])
        self.entries.append(entry)
        return entry

    def undo(self, entry: Entry) -> None:
        """Take back a delivery; later ones to its destination were taken back before."""
        envelope = entry.envelope
        groups, stream = envelope.groups, (envelope.source, envelope.incarnation, envelope.groups)
        self.entries.remove(entry)
        self.counts[groups] -= 1
        of_stream = [e.envelope for e in self.entries if e.envelope.groups == groups]
        left = [e.number for e in of_stream if (e.source, e.incarnation) == (envelope.source, envelope.incarnation)]
        self.last[stream] = max(left, default=self.safe.get(stream, 0))

    def is_stable(self, entry: Entry) -> bool:
        """Whether every member has a message."""
        return entry.index <= self.stable.get(entry.envelope.groups, 0)

    def settle(self, counts: Counts) -> list[Entry]:
        """So many messages are stable; returns those that were not known to be."""
        news: list[Entry] = []
        for groups, told in counts:
            count = min(told, self.counts.get(groups, 0))
            if count > self.stable.get(groups, 0):
                before = self.stable.get(groups, 0)
                self.stable[groups] = count
                news += [e for e in self.entries if e.envelope.groups == groups and before < e.index <= count]
        for entry in news:
            envelope = entry.envelope
            stream = (envelope.source, envelope.incarnation, envelope.groups)
            self.safe[stream] = max(self.safe.get(stream, 0), envelope.number)
        return news

    def prune(self) -> None:
        """Forget entries that are stable and handed over."""
        if self.entries:
            self.entries = [entry for entry in self.entries if not (entry.handed and self.is_stable(entry))]

    def ready(self, delivery: Delivery) -> list[Entry]:
        """Return what may be handed over now, in order: all, or what is copied, or only what is stable."""
        found: list[Entry] = []
        if self.behind:
            return found
        for entry in self.entries:
            if not entry.handed:
                if not (delivery is Delivery.AGREED or self.is_copied(entry) or self.is_stable(entry)):
                    break
                found.append(entry)
        return found

    def is_copied(self, entry: Entry) -> bool:
        """Whether so many members have a message as are asked for; false where delivery is not `copied`."""
        return entry.index <= self.copied.get(entry.envelope.groups, 0)

    @property
    def unstable(self) -> list[Destination]:
        """The destinations with messages that are not known to be stable."""
        return [groups for groups, count in self.counts.items() if count > self.stable.get(groups, 0)]

    def report(self) -> ClassReport:
        """Return what a report tells of this class."""
        lines = tuple(entry.line for entry in self.entries if not self.is_stable(entry))
        return ClassReport(tuple(sorted(self.stable.items())), lines, tuple(self.lasts))

    @property
    def lasts(self) -> list[tuple[Id, Destination]]:
        """The last message of each stream, sorted."""
        return [(Id(source, life, number), groups) for (source, life, groups), number in sorted(self.last.items())]

    # At the first member of a destination.

    def heard_from(self, groups: Destination, site: SiteId, count: int, others: tuple[SiteId, ...]) -> int:
        """Take note of what a member has; returns how many messages all members have then."""
        heard = self.heard.setdefault(groups, {})
        heard[site] = max(heard.get(site, 0), count)
        return min([self.counts.get(groups, 0), *(heard.get(other, 0) for other in others)])

    def copied_to(self, groups: Destination, others: tuple[SiteId, ...], copies: int) -> int:
        """Return how many messages so many members have, this one among them or not; all members, if they are fewer."""
        heard = self.heard.get(groups, {})
        counts = sorted((self.counts.get(groups, 0), *(heard.get(other, 0) for other in others)), reverse=True)
        return counts[min(copies, len(counts)) - 1]

    def whereabouts(self, source: SiteId, life: int, groups: Destination) -> tuple[int, tuple[tuple[int, bytes], ...]]:
        """Return up to which number a source's messages are safe, and the places of the others that were delivered."""
        safe = self.safe.get((source, life, groups), 0)
        placed = [
            (entry.envelope.number, entry.stamp)
            for entry in self.entries
            if (entry.envelope.source, entry.envelope.incarnation, entry.envelope.groups) == (source, life, groups)
            and entry.envelope.number > safe
        ]
        return safe, tuple(placed)
