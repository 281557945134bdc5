"""Counting, to compare with (HTW00 §3, §4, §5): the protocols of which the swaps are truncated versions.

A swap finds a message's predecessor, counting finds how many it has; a site delivers by number. Everything else is as
in `protocols.swap`: one counter per class, bodies to members, stubs to the rest of the class, outsiders ask the root.

`ArrowCounter` is the arrow with a mobile sequence number: a message that reached the sink waits there until the number
has arrived, is counted and multicast, and the number moves on to where it came from. `CombiningCounter` makes a round
trip: requests combine on the way up, a site is locked until the answer is back, which is split on the way down.
"""

from collections import deque
from typing import Any, Protocol

import msgspec

from ordercast.core import stamps
from ordercast.core.configuration import NUMBER_AT_MOST, OrderClass
from ordercast.core.edges import Edges, step_over
from ordercast.core.effects import Deliver, Effect, Held
from ordercast.core.events import Envelope, Event, Message, Multicast
from ordercast.core.source import Source
from ordercast.core.streams import EdgesState
from ordercast.errors import HistoryError, PeerError
from ordercast.names import SiteId
from ordercast.planning.routes import SpanningTree


class Ask(Message, frozen=True, gc=False, tag=50):
    """A source outside the class asks to have its message counted."""

    envelope: Envelope

    def __str__(self) -> str:
        return f"Ask {self.envelope}"


class Count(Message, frozen=True, gc=False, tag=51):
    """On its way to the counter: one message and where it came from, or so many that stayed behind."""

    amount: int
    origin: SiteId
    envelope: Envelope | None = None

    def __str__(self) -> str:
        return f"Count {self.envelope or self.amount}"


class Grant(Message, frozen=True, gc=False, tag=52):
    """So many have been counted."""

    counted: int

    def __str__(self) -> str:
        return f"Grant {self.counted}"


class Numbered(Message, frozen=True, gc=False, tag=53):
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


class ArrowCounterState(msgspec.Struct, array_like=True, tag="arrow"):
    """The state of an arrow with a sequence number."""

    link: SiteId
    number: int | None
    queue: list[Count]


class CombiningCounterState(msgspec.Struct, array_like=True, tag="combining"):
    """The state of a counting tree's node."""

    counted: int
    gathered: list[tuple[SiteId, Count]]
    climbing: list[tuple[SiteId, Count]]


CounterState = ArrowCounterState | CombiningCounterState


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

    @property
    def next_amount(self) -> int:
        """How many messages the next grant numbers."""
        ...

    def snapshot(self) -> CounterState:
        """Return the state."""
        ...

    def restore(self, state: Any) -> None:
        """Take over a state of the same kind."""
        ...


class ArrowCounter:
    """The arrow with a mobile sequence number (HTW00 §4)."""

    def __init__(self, me: SiteId, parent: SiteId | None) -> None:
        self.me = me
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
                sends.append((count.origin, Grant(self.number)))
                self.number = None
        return Counted(tuple(sends), tuple(numbered))

    @property
    def waiting(self) -> list[Count]:
        """What reached this sink before the number did."""
        return list(self.queue)

    @property
    def next_amount(self) -> int:
        """How many messages the next grant numbers: all that wait, because one of another site is the last."""
        return len(self.queue)

    def snapshot(self) -> ArrowCounterState:
        """Return the state."""
        return ArrowCounterState(self.link, self.number, list(self.queue))

    def restore(self, state: object) -> None:
        """Take over a state."""
        if not isinstance(state, ArrowCounterState):
            raise _wrong_counter(state)
        self.link, self.number, self.queue = state.link, state.number, deque(state.queue)


class CombiningCounter:
    """The combining tree with a round trip (HTW00 §5); the root counts."""

    def __init__(self, me: SiteId, parent: SiteId | None) -> None:
        self.me, self.parent = me, parent
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
        return Counted(sends=((self.parent, Count(amount, self.me)),))

    def grant(self, counted: int) -> Counted:
        """Split the answer in the order in which the requests came, and unlock."""
        numbered, sends = [], []
        for came_from, count in self.climbing:
            if came_from != self.me:
                sends.append((came_from, Grant(counted)))
            elif count.envelope is not None:
                numbered.append((counted + 1, count.envelope))
            counted += count.amount
        self.climbing, self.counted = [], counted
        return Counted((*sends, *self._climb().sends), tuple(numbered))

    @property
    def waiting(self) -> list[Count]:
        """What climbs, and what waits for it."""
        return [count for _, count in self.climbing + self.gathered]

    @property
    def next_amount(self) -> int:
        """How many messages the next grant numbers."""
        return sum(count.amount for _, count in self.climbing)

    def snapshot(self) -> CombiningCounterState:
        """Return the state."""
        return CombiningCounterState(self.counted, self.gathered, self.climbing)

    def restore(self, state: object) -> None:
        """Take over a state."""
        if not isinstance(state, CombiningCounterState):
            raise _wrong_counter(state)
        self.counted, self.gathered, self.climbing = state.counted, state.gathered, state.climbing


def _wrong_counter(state: object) -> HistoryError:
    return HistoryError(f"a snapshot of another counter: {type(state).__name__}")


class CountingState(msgspec.Struct, array_like=True, tag="counting"):
    """The whole state of a machine."""

    edges: EdgesState[Ask | Count | Grant | Numbered]
    counter: CounterState | None
    next: int
    early: dict[int, tuple[Envelope, float]]

    def durable(self) -> object:
        """Return what a replay rebuilds: all but what the edges call volatile, and times."""
        early = {number: envelope for number, (envelope, _) in self.early.items()}
        return self.edges.durable(), self.counter, self.next, early


class CountingMulticast:
    """One site's part: count, multicast with the number, deliver by number."""

    def __init__(self, order_class: OrderClass, source: Source, tree: SpanningTree, counter: Counter | None) -> None:
        self.me, self.groups, self.source, self.tree, self.counter = source.me, order_class, source, tree, counter
        self.edges = Edges(self.me, order_class.id, streams=2)
        self.epoch = stamps.first_of(order_class.id)
        self.next = 1  # the number that is delivered next, here or elsewhere
        self.early: dict[int, tuple[Envelope, float]] = {}

    def step(self, event: Event) -> list[Effect]:
        """Take one event to completion."""
        return step_over(self.edges, event, self._originate, self._check, self._take)

    def _originate(self, multicast: Multicast, effects: list[Effect]) -> None:
        self.groups.origin(self.me, multicast.groups)
        envelope = self.source.envelope(self.groups.id, multicast)
        if self.counter is not None:
            self._done(self.counter.count(self.me, Count(1, self.me, envelope)), effects)
        else:
            effects.append(self.edges.send(self.tree.root, 0, Ask(envelope)))

    def _check(self, sender: SiteId, message: Message) -> None:
        """Refuse what no honest peer sends, before anything changes (errata 62)."""
        right = False
        match message:
            case Ask(envelope):
                self.groups.check(sender, envelope)
                right = envelope.source == sender and sender not in self.tree and self.tree.root == self.me
            case Numbered(number, envelope):
                self.groups.check(sender, envelope)
                right = sender in self.tree and self.me in self.tree and 0 < number <= NUMBER_AT_MOST
            case Count(amount, origin, counted):
                if counted is not None:
                    self.groups.check(sender, counted)
                right = self.tree.are_neighbours(sender, self.me)
                right = right and origin in self.tree and 0 < amount <= NUMBER_AT_MOST
            case Grant(counted_so_far):
                right = sender in self.tree and self.me in self.tree and 0 <= counted_so_far <= NUMBER_AT_MOST
        if not right:
            raise PeerError(f"{sender} sent {self.me} what is not for counting, or not its to send: {message}")

    def _take(self, sender: SiteId, message: Message, effects: list[Effect]) -> None:
        match message:
            case Count():
                self._done(self._expecting(sender, message).count(sender, message), effects)
            case Grant(counted):
                counter = self._expecting(sender, message)
                upto = counted + counter.next_amount
                if counted < self.next - 1 or any(counted < number <= upto for number in self.early):
                    raise PeerError(f"{sender} grants numbers after {counted}, and some of them are given: {message}")
                self._done(counter.grant(counted), effects)
            case Ask(envelope):
                assert self.counter is not None
                self._done(self.counter.count(self.me, Count(1, self.me, envelope)), effects)
            case Numbered(number, envelope):
                self._deliver(number, envelope, effects)

    def _expecting(self, sender: SiteId, message: Count | Grant) -> Counter:
        assert self.counter is not None
        if not self.counter.may_come(sender, message):
            raise PeerError(f"{sender} sent {self.me} what is not expected now: {message}")
        return self.counter

    def _done(self, counted: Counted, effects: list[Effect]) -> None:
        effects += [self.edges.send(to, 0, message) for to, message in counted.sends]
        for number, envelope in counted.numbered:
            members = self.groups.union(envelope.groups)
            full = Numbered(number, envelope)
            stub = Numbered(number, msgspec.structs.replace(envelope, body=b""))
            for site in self.tree.sites:
                if site != self.me:
                    effects.append(self.edges.send(site, 1, full if site in members else stub))
            self._deliver(number, envelope, effects)

    def _deliver(self, number: int, envelope: Envelope, effects: list[Effect]) -> None:
        if number < self.next or number in self.early:
            raise PeerError(f"two messages with number {number}: {envelope}")
        self.early[number] = (envelope, self.edges.now)
        while self.next in self.early:
            ready, _ = self.early.pop(self.next)
            if self.me in self.groups.union(ready.groups):
                effects.append(Deliver(ready, stamps.at(self.epoch, self.next)))
            self.next += 1

    def held(self) -> list[Held]:
        """Everything that waits here."""
        early = [
            Held(str(envelope), f"number {self.next} is missing", since) for envelope, since in self.early.values()
        ]
        counting = self.counter.waiting if self.counter is not None else []
        waits = [Held(str(count), "its number is not here", self.edges.now) for count in counting]
        return self.edges.held() + early + waits

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is unacknowledged."""
        waits = self.counter is not None and self.counter.waiting
        return not self.early and not waits and self.edges.idle

    @property
    def under_way(self) -> int:
        """What the slowest peer has not acknowledged, or what is held here, whichever is more."""
        counting = len(self.counter.waiting) if self.counter is not None else 0
        return max(self.edges.under_way, len(self.early), counting)

    def snapshot(self) -> CountingState:
        """Return the whole state."""
        counter = self.counter.snapshot() if self.counter is not None else None
        return CountingState(self.edges.snapshot(), counter, self.next, dict(sorted(self.early.items())))

    def restore(self, state: CountingState) -> None:
        """Take over a state."""
        self.edges.restore(state.edges)
        if (self.counter is None) != (state.counter is None):
            raise HistoryError("a snapshot of a site in the class, or of one outside it, and this is the other")
        if self.counter is not None:
            self.counter.restore(state.counter)
        self.next, self.early = state.next, state.early
