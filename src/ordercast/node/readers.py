"""What applications read: one stream per reader, a bound on what waits for it, and what happens when it is reached.

A reader that begins in the past is fed from the history, slice by slice, as fast as it reads, until it has caught up;
from then on it gets what is delivered. Policy when a reader is too far behind: `block` lets the messages of its classes
wait outside, so that their senders wait; `drop` ends the reader and says where it may go on; `gap` skips what waits for
it and says so in its stream: total order with gaps (HTW00 §6.3).
"""

from collections import deque
from collections.abc import Callable, Iterable

from ordercast.client.values import Gap, Lot, Place, Policy, Restored, ViewChanged, said_in, said_lot
from ordercast.errors import DroppedError, LocalError, OrdercastError
from ordercast.names import ClassId, GroupId, SiteId
from ordercast.node.inputs import More, Output, ReadPast

OVERHEAD = 64  # what a batch takes beside its bytes, about
SLICE = 64  # entries of the history that are read at once
SEEK = 1024  # the same, for a reader that seeks a message


class NotHereError(Exception):
    """A reader seeks a message that this site has passed, and never delivered or does not keep."""


class Reader:
    """One reader: what waits for it, and how far it is."""

    __slots__ = (
        "away",
        "bytes",
        "ended",
        "found",
        "groups",
        "lots",
        "me",
        "name",
        "next",
        "past",
        "place",
        "policy",
        "reading",
    )

    def __init__(
        self, name: str, groups: frozenset[GroupId] | None, policy: Policy, begin: int, place: Place | None = None,
        me: SiteId = "",
    ) -> None:  # fmt: skip
        self.name, self.groups, self.policy, self.me = name, groups, policy, me
        self.place = place  # it gets nothing before this message is found, and what comes after it
        self.found: int | None = None  # the position after it
        self.away: set[GroupId] = set()  # while it is sought: where the site was out because it was suspected
        self.next = begin  # the position it gets next
        self.past = False  # it is fed from the history
        self.reading = False  # a slice of the history is on its way
        self.lots: deque[Lot] = deque()
        self.bytes = 0
        self.ended: OrdercastError | None = None  # there will be nothing more, and why

    def wants(self, groups: Iterable[GroupId]) -> bool:
        """Whether a message to these groups is for this reader."""
        return self.groups is None or not self.groups.isdisjoint(groups)

    def put(self, lot: Lot, many: int) -> None:
        """Add what comes next."""
        end = lot.position + many
        if end <= self.next:
            return
        assert lot.position <= self.next, f"reader {self.name} missed positions {self.next} to {lot.position - 1}"
        if self.place is not None:
            self._seek(lot, many, self.place)
        elif self.wants(lot.groups):
            lot = lot.starting_at(self.next)
            self.lots.append(lot)
            self.bytes += len(lot.body) + OVERHEAD
        self.next = end

    def _seek(self, lot: Lot, many: int, place: Place) -> None:
        """See whether this is the message that was read last; stamps of a group grow.

        A site may have got it through another of its groups, before it came into one that is read here: then it lacks
        what came to that one until then (errata 122). Who was only suspected, and is not given a state when it is back,
        lacks nothing.
        """
        if self._enters(lot) and self.found is not None:
            raise NotHereError
        if self.found is not None:
            return
        if not lot.source or set(place.groups).isdisjoint(lot.groups) or lot.stamp < place.stamp:
            return
        if (lot.stamp, lot.source) != (place.stamp, place.source) or not 0 <= place.number - lot.first < many:
            raise NotHereError
        self.found = lot.position + place.number - lot.first + 1

    def _enters(self, lot: Lot) -> bool:
        """Whether the site comes into a group here that this reader reads."""
        said = said_in(lot)
        if not isinstance(said, ViewChanged):
            return isinstance(said, Restored) and self.wants(lot.groups)
        joins = self.me in said.joined and said.group not in self.away
        if self.me in said.away:
            self.away.add(said.group)
        elif self.me in said.members or self.me in said.left:
            self.away.discard(said.group)
        return joins and self.wants(lot.groups)

    def begin(self) -> None:
        """Go on behind the message that was sought."""
        assert self.found is not None
        self.place, self.next = None, self.found

    def skip(self) -> None:
        """Throw the messages away that wait, and say so in their place; what the site says beside them stays."""
        kept: deque[Lot] = deque()
        for lot in self.lots:
            said = said_in(lot)
            if said is not None and not isinstance(said, Gap):
                kept.append(lot)
                continue
            first, last = (said.first, said.last) if said is not None else (lot.position, lot.last)
            before = said_in(kept[-1]) if kept else None
            if isinstance(before, Gap):
                first = before.first
                kept.pop()
            kept.append(said_lot(last, (), Gap(first, last)))
        self.lots, self.bytes = kept, sum(len(lot.body) + OVERHEAD for lot in kept)

    def take(self) -> Lot | None:
        """Return what comes next and count it no more; None when nothing is there."""
        if not self.lots:
            return None
        lot = self.lots.popleft()
        self.bytes -= len(lot.body) + OVERHEAD
        return lot


class Readers:
    """All readers of a site."""

    def __init__(
        self,
        limit: int,
        class_of: Callable[[tuple[GroupId, ...]], ClassId],
        own: frozenset[GroupId],
        tell: Callable[[Output], None],
        me: SiteId = "",
    ) -> None:
        self.limit, self.class_of, self.own, self.tell, self.me = limit, class_of, own, tell, me
        self.all: list[Reader] = []
        self.recent: deque[Lot] = deque()  # delivered, and not yet in the index of the history

    def open(
        self,
        name: str,
        groups: frozenset[GroupId] | None,
        policy: Policy,
        after: int | Place | None,
        first: int,
        end: int,
    ) -> Reader:
        """Open a reader after a position or message, or from now on; positions are kept from `first`, `end` is next."""
        place = after if isinstance(after, Place) else None
        begin = first if isinstance(after, Place) else end if after is None else after + 1
        if begin > end or begin < 0:
            raise LocalError(f"position {after} was never delivered here; the last one is {end - 1}")
        if begin < first and begin < end:
            raise LocalError(f"position {begin} is not kept here any more")
        reader = Reader(name, groups, policy, begin, place, self.me)
        self.all.append(reader)
        if begin < end:
            reader.past = True
            self._read(reader)
        return reader

    def put(self, lot: Lot, many: int) -> None:
        """Give what was delivered to those who have caught up."""
        for reader in list(self.all):
            if reader.past:
                continue
            self._put(reader, lot, many)
            if reader.policy == "gap" and reader.bytes > self.limit:
                reader.skip()
            if reader.policy != "block" and reader.bytes > self.limit:
                self.end(reader, DroppedError(f"reader {reader.name} was too far behind", reader.next - 1))
            elif reader.lots:
                self.tell(More(reader))

    def took(self, reader: Reader) -> None:
        """A reader has taken something: fetch more of the past for it when it has little left."""
        if reader.past and reader.bytes <= self.limit // 2:
            self._read(reader)

    def _read(self, reader: Reader) -> None:
        if not reader.reading:
            reader.reading = True
            self.tell(ReadPast(reader, reader.next, SLICE if reader.place is None else SEEK))

    def catch_up(self, reader: Reader, lots: list[tuple[Lot, int]], end: int) -> None:
        """Give a slice of the past to a reader; when it has all that is in the index, it goes on with what is new."""
        reader.reading = False
        if reader not in self.all:
            return
        for lot, many in lots:
            self._put(reader, lot, many)
        if reader.ended is not None:
            return
        if reader.next >= (self.recent[0].position if self.recent else end):
            for lot in self.recent:
                self._put(reader, lot, lot.count)
            if reader.ended is not None:
                return
            if reader.place is not None and reader.found is not None:  # all that follows it was looked at
                reader.begin()
                self._read(reader)
                self.tell(More(reader))
                return
            reader.past = False
        elif reader.bytes <= self.limit // 2:
            self._read(reader)
        if reader.lots:
            self.tell(More(reader))

    def _put(self, reader: Reader, lot: Lot, many: int) -> None:
        seeks = reader.place
        if reader.ended is not None:
            return
        try:
            reader.put(lot, many)
        except NotHereError:
            assert seeks is not None
            message = f"{seeks.source}:{seeks.number}"
            self.end(reader, LocalError(f"{message} is not kept here, or was never delivered here"))
        if reader.place is not None and reader.found is not None and not reader.past:
            reader.begin()
            reader.put(lot, many)
        if seeks is not None and reader.place is None:
            self.tell(More(reader))

    def written(self, many: int) -> None:
        """So many entries more are in the index of the history."""
        for _ in range(many):
            self.recent.popleft()

    def leave(self, reader: Reader) -> None:
        """A reader reads no more."""
        if reader in self.all:
            self.all.remove(reader)

    def close(self, error: OrdercastError) -> None:
        """End all readers after what they have."""
        for reader in list(self.all):
            self.end(reader, error)

    def end(self, reader: Reader, error: OrdercastError) -> None:
        """End a reader after what it has."""
        reader.ended = error
        self.leave(reader)
        self.tell(More(reader))

    @property
    def full(self) -> bool:
        """Whether any reader is so far behind that others wait for it."""
        return any(reader.bytes > self.limit for reader in self.all)

    def holds_up(self, class_id: ClassId) -> Reader | None:
        """Return the reader because of which the messages of a class wait outside, if any."""
        for reader in self.all:
            if reader.bytes > self.limit and reader.policy == "block" and not reader.past:
                groups = self.own if reader.groups is None else reader.groups
                if any(self.class_of((group,)) == class_id for group in groups):
                    return reader
        return None
