"""Counting, to compare with (HTW00 §3, §4, §5): the protocols of which the swaps are truncated versions.

A swap finds a message's predecessor, counting finds how many it has; a site delivers by number. Everything else is as
in `protocols.swap`: one counter per class, bodies to members, stubs to the rest of the class, outsiders ask the root.

`ArrowCounter` is the arrow with a mobile sequence number: a message that reached the sink waits there until the number
has arrived, is counted and multicast, and the number moves on to where it came from. `CombiningCounter` makes a round
trip: requests combine on the way up, a site is locked until the answer is back, which is split on the way down.
"""

from collections import deque
from collections.abc import Callable
from typing import Protocol

import msgspec

from ordercast.core.edges import Edges
from ordercast.core.effects import Deliver, Effect, Held
from ordercast.core.events import Envelope, Event, Message, Multicast
from ordercast.core.machine import NUMBER_AT_MOST, Groups
from ordercast.errors import PeerError
from ordercast.names import SiteId
from ordercast.planning.routes import SpanningTrees


class Ask(Message, frozen=True, gc=False):
    """A source outside the class asks to have its message counted."""

    envelope: Envelope

    def __str__(self) -> str:
        return f"Ask {self.envelope}"


class Count(Message, frozen=True, gc=False):
    """On its way to the counter: one message and where it came from, or so many that stayed behind."""

    order_class: int
    amount: int
    origin: SiteId
    envelope: Envelope | None = None

    def __str__(self) -> str:
        return f"Count {self.envelope or self.amount}"


class Grant(Message, frozen=True, gc=False):
    """So many have been counted."""

    order_class: int
    counted: int

    def __str__(self) -> str:
        return f"Grant {self.counted}"


class Numbered(Message, frozen=True, gc=False):
    """A message with its number; at a site that is no member, without the body."""

    number: int
    envelope: Envelope

    def __str__(self) -> str:
        return f"Numbered {self.envelope} number={self.number}"


class Counted(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a step of a counter."""

    sends: tuple[tuple[SiteId, Message], ...] = ()
    numbered: tuple[tuple[int, Envelope], ...] = ()


NOTHING = Counted()


class Counter(Protocol):
    """One site's part in counting the messages of a class."""

    def count(self, came_from: SiteId, count: Count) -> Counted:
        """Take a request of this site or a neighbour."""
        ...

    def grant(self, counted: int) -> Counted:
        """Learn how many have been counted."""
        ...

    def may_come(self, sender: SiteId, message: "Count | Grant") -> bool:
        """Whether an honest site of the class may send this here, as the counter stands now."""
        ...

    @property
    def waiting(self) -> list[Count]:
        """What waits for a number here."""
        ...


class ArrowCounter:
    """The arrow with a mobile sequence number (HTW00 §4)."""

    def __init__(self, me: SiteId, parent: SiteId | None, order_class: int) -> None:
        self.me, self.order_class = me, order_class
        self.link = me if parent is None else parent
        self.number: int | None = 0 if parent is None else None  # of the last message queued here, once it is known
        self.queue: deque[Count] = deque()  # reached this sink, and the number is not here

    def count(self, came_from: SiteId, count: Count) -> Counted:
        """Flip the arrow and pass on; at the sink wait for the number."""
        if came_from == self.link != self.me:
            raise PeerError(f"{came_from} sent {count} against the arrow")
        next_hop, self.link = self.link, came_from
        if next_hop != self.me:
            return Counted(sends=((next_hop, count),))
        self.queue.append(count)
        return self._advance()

    def may_come(self, sender: SiteId, message: Count | Grant) -> bool:
        """A request carries its message; a grant comes only to a sink that waits for the number."""
        if isinstance(message, Grant):
            return self.number is None
        return message.envelope is not None and message.amount == 1

    def grant(self, counted: int) -> Counted:
        """The number has arrived."""
        self.number = counted
        return self._advance()

    def _advance(self) -> Counted:
        """Count what waits; with a message of another site the number leaves."""
        numbered, sends = [], []
        while self.queue and self.number is not None:
            count = self.queue.popleft()
            assert count.envelope is not None
            self.number += 1
            numbered.append((self.number, count.envelope))
            if count.origin != self.me:
                sends.append((count.origin, Grant(self.order_class, self.number)))
                self.number = None
        return Counted(tuple(sends), tuple(numbered))

    @property
    def waiting(self) -> list[Count]:
        """What reached this sink before the number did."""
        return list(self.queue)


class CombiningCounter:
    """The combining tree with a round trip (HTW00 §5); the root counts."""

    def __init__(self, me: SiteId, parent: SiteId | None, order_class: int) -> None:
        self.me, self.parent, self.order_class = me, parent, order_class
        self.counted = 0  # at the root
        self.gathered: list[tuple[SiteId, Count]] = []
        self.climbing: list[tuple[SiteId, Count]] = []  # this site is locked until they are granted

    def count(self, came_from: SiteId, count: Count) -> Counted:
        """At the root: answer. Elsewhere: climb, or gather while locked."""
        self.gathered.append((came_from, count))
        if self.parent is None:
            self.climbing, self.gathered = self.gathered, []
            return self.grant(self.counted)
        return self._climb()

    def may_come(self, sender: SiteId, message: Count | Grant) -> bool:
        """Requests climb without their messages; a grant comes from above, to whom waits for one."""
        if isinstance(message, Grant):
            return sender == self.parent and bool(self.climbing)
        return sender != self.parent and message.envelope is None

    def _climb(self) -> Counted:
        if self.climbing or not self.gathered or self.parent is None:
            return NOTHING
        self.climbing, self.gathered = self.gathered, []
        amount = sum(count.amount for _, count in self.climbing)
        return Counted(sends=((self.parent, Count(self.order_class, amount, self.me)),))

    def grant(self, counted: int) -> Counted:
        """Split the answer in the order in which the requests came, and unlock."""
        numbered, sends = [], []
        for came_from, count in self.climbing:
            if came_from != self.me:
                sends.append((came_from, Grant(self.order_class, counted)))
            elif count.envelope is not None:
                numbered.append((counted + 1, count.envelope))
            counted += count.amount
        self.climbing, self.counted = [], counted
        return Counted((*sends, *self._climb().sends), tuple(numbered))

    @property
    def waiting(self) -> list[Count]:
        """What climbs, and what waits for it."""
        return [count for _, count in self.climbing + self.gathered]


class _Line:
    """The hold-back of one class: the next number, and what came before its turn."""

    __slots__ = ("early", "next")

    def __init__(self) -> None:
        self.next = 1
        self.early: dict[int, tuple[Envelope, float]] = {}


class CountingMulticast:
    """One site's part: count, multicast with the number, deliver by number."""

    def __init__(
        self,
        me: SiteId,
        groups: Groups,
        trees: SpanningTrees,
        make: Callable[[SiteId, SiteId | None, int], Counter],
        *,
        incarnation: int = 1,
    ) -> None:
        self.me, self.groups, self.trees, self.incarnation = me, groups, trees, incarnation
        self.edges = Edges()
        self.sent = 0
        classes = [c for c in range(len(groups.classes)) if me in trees.sites(c)]
        self.counters = {c: make(me, trees.parent(c, me), c) for c in classes}
        self.lines = {c: _Line() for c in classes}

    def step(self, event: Event) -> list[Effect]:
        """Take one event to completion."""
        return self.edges.step(event, self._originate, self._check, self._take)

    def _originate(self, multicast: Multicast, effects: list[Effect]) -> None:
        envelope = self.groups.envelope(multicast.groups, self.me, self.incarnation, self.sent + 1, multicast.body)
        self.sent += 1
        order_class = envelope.order_class
        if order_class in self.counters:
            self._count(self.me, Count(order_class, 1, self.me, envelope), effects)
        else:
            effects.append(self.edges.send(self.trees.root(order_class), 0, Ask(envelope)))

    def _check(self, sender: SiteId, message: Message) -> None:
        """Refuse what no honest peer sends, before anything changes (errata 62)."""
        right = False
        match message:
            case Ask(envelope) | Numbered(_, envelope):
                self.groups.check(sender, envelope)
                sites = self.trees.sites(envelope.order_class)
                if isinstance(message, Ask):
                    right = envelope.source == sender not in sites and self.trees.root(envelope.order_class) == self.me
                else:
                    right = sender in sites and self.me in sites and 0 < message.number <= NUMBER_AT_MOST
            case Count(order_class, amount, origin, counted) if order_class in self.counters:
                if counted is not None:
                    self.groups.check(sender, counted)
                    right = counted.order_class == order_class
                right = right or counted is None
                right = right and self.trees.are_neighbours(order_class, sender, self.me)
                right = right and origin in self.trees.sites(order_class) and 0 < amount <= NUMBER_AT_MOST
            case Grant(order_class, counted_so_far) if order_class in self.counters:
                right = sender in self.trees.sites(order_class) and 0 <= counted_so_far <= NUMBER_AT_MOST
        if not right:
            raise PeerError(f"{sender} sent {self.me} what is not for counting, or not its to send: {message}")

    def _take(self, sender: SiteId, message: Message, effects: list[Effect]) -> None:
        match message:
            case Count(order_class) | Grant(order_class):
                counter = self.counters[order_class]
                late = isinstance(message, Grant) and message.counted < self.lines[order_class].next - 1
                if late or not counter.may_come(sender, message):
                    raise PeerError(f"{sender} sent {self.me} what is not expected now: {message}")
                if isinstance(message, Count):
                    self._count(sender, message, effects)
                else:
                    self._done(order_class, counter.grant(message.counted), effects)
            case Ask(envelope):
                self._count(self.me, Count(envelope.order_class, 1, self.me, envelope), effects)
            case Numbered(number, envelope):
                self._deliver(number, envelope, effects)

    def _count(self, came_from: SiteId, count: Count, effects: list[Effect]) -> None:
        self._done(count.order_class, self.counters[count.order_class].count(came_from, count), effects)

    def _done(self, order_class: int, counted: Counted, effects: list[Effect]) -> None:
        effects += [self.edges.send(to, 0, message) for to, message in counted.sends]
        for number, envelope in counted.numbered:
            members = self.groups.union(envelope.groups)
            full = Numbered(number, envelope)
            stub = Numbered(number, msgspec.structs.replace(envelope, body=b""))
            for site in self.trees.sites(order_class):
                if site != self.me:
                    effects.append(self.edges.send(site, 1, full if site in members else stub))
            self._deliver(number, envelope, effects)

    def _deliver(self, number: int, envelope: Envelope, effects: list[Effect]) -> None:
        line = self.lines[envelope.order_class]
        if number < line.next or number in line.early:
            raise PeerError(f"two messages with number {number}: {envelope}")
        line.early[number] = (envelope, self.edges.now)
        while line.next in line.early:
            ready, _ = line.early.pop(line.next)
            if self.me in self.groups.union(ready.groups):
                stamp = self.groups.epoch.to_bytes(8, "big") + line.next.to_bytes(8, "big")
                effects.append(Deliver(ready, stamp))
            line.next += 1

    def held(self) -> list[Held]:
        """Everything that waits here."""
        early = [
            Held(str(envelope), f"number {line.next} is missing", since)
            for line in self.lines.values()
            for envelope, since in line.early.values()
        ]
        waits = [Held(str(c), "its number is not here", 0.0) for o in self.counters.values() for c in o.waiting]
        return self.edges.held() + early + waits

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is unacknowledged."""
        waits = any(counter.waiting for counter in self.counters.values())
        return self.edges.idle and not waits and not any(line.early for line in self.lines.values())
