"""Predecessor order over a swap object (HTW00 §3), one object per class (errata 44).

A swap object answers "which message came right before mine?". The pair is multicast: the body to the members of the
destination, a stub to the other sites of the class, so that nobody waits for a predecessor it never gets. Who finds the
predecessor multicasts the pair at once (§4), and the body travels with the swap; or it tells the source, which
multicasts (§3): one hop more, and bodies take the shortest way. A site delivers a message right after its predecessor,
and because it sees every stub it can count: the count is the position, and the stamp (errata 47).

The object is an arrow (`protocols.arrow`), a combining tree (`protocols.combining`) or both (`protocols.hybrid`). A
source outside the class asks the root of the class's tree to swap for it.

When its class is closed (`Finish`), the root swaps an end in, like a message to nobody: what comes before it is the
history, and what follows it is not in this class; its source sends it again in the next one (`epochs`).
"""

from typing import Any, Protocol

import msgspec

from ordercast.core import stamps
from ordercast.core.configuration import NUMBER_AT_MOST, OrderClass
from ordercast.core.edges import Edges, step_over
from ordercast.core.effects import Append, Deliver, Effect, Finished, Held
from ordercast.core.events import Envelope, Event, Finish, Message, Multicast, Tick
from ordercast.core.source import Source
from ordercast.core.streams import EdgesState
from ordercast.errors import HistoryError, PeerError
from ordercast.names import SiteId
from ordercast.planning.routes import SpanningTree

MsgKey = tuple[SiteId, int, int]
"""Source, incarnation, number."""


def is_end(key: MsgKey | None) -> bool:
    """Whether this is the end of a class; messages are numbered from 1."""
    return key is not None and not key[2]


def key_of(envelope: Envelope) -> MsgKey:
    """Return what identifies a message."""
    return (envelope.source, envelope.incarnation, envelope.number)


def shown(key: MsgKey | None) -> str:
    """Return a message as it is called in traces; ⊥ is the paper's word for none."""
    return "⊥" if key is None else f"{key[0]}:{key[2]}"


class Swap(Message, frozen=True, gc=False, tag=40):
    """`swap(first, last)` on its way: find the predecessor of `envelope`, leave `last` as the value."""

    envelope: Envelope
    last: MsgKey
    bare: bool = False
    """Its source has kept the body, to multicast it (§3)."""

    def __str__(self) -> str:
        return f"Swap {self.envelope}"


class Request(Message, frozen=True, gc=False, tag=41):
    """A source outside the class asks to have its message swapped in."""

    envelope: Envelope

    def __str__(self) -> str:
        return f"Request {self.envelope}"


class Ordered(Message, frozen=True, gc=False, tag=42):
    """The pair <predecessor, message>; at a site that is no member, without the body."""

    predecessor: MsgKey | None
    envelope: Envelope

    def __str__(self) -> str:
        return f"Ordered {self.envelope} after {shown(self.predecessor)}"


class Found(Message, frozen=True, gc=False, tag=43):
    """The answer of a swap, for its source to multicast: the predecessor of its message."""

    predecessor: MsgKey | None
    number: int

    def __str__(self) -> str:
        return f"Found {shown(self.predecessor)} before {self.number}"


class ArrowState(msgspec.Struct, array_like=True, tag="arrow"):
    """The state of an arrow."""

    link: SiteId
    value: MsgKey | None


class CombiningState(msgspec.Struct, array_like=True, tag="combining"):
    """The state of a combining tree's node."""

    value: MsgKey | None
    gathered: list[Swap]
    busy: bool


ObjectState = ArrowState | CombiningState


class SwapObject(Protocol):
    """One site's part in a swap object: what to send on the tree, and which predecessors it found."""

    def swap(self, came_from: SiteId, swap: Swap) -> "Swapped":
        """Take a swap from this site or a neighbour."""
        ...

    def tick(self) -> "Swapped":
        """Time has passed."""
        ...

    @property
    def waiting(self) -> list[Swap]:
        """What the object holds back."""
        ...

    @property
    def restless(self) -> bool:
        """Whether a tick would change the object."""
        ...

    def snapshot(self) -> ObjectState:
        """Return the state."""
        ...

    def restore(self, state: Any) -> None:
        """Take over a state of the same kind."""
        ...


class Swapped(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a step of a swap object."""

    forward: tuple[tuple[SiteId, Swap], ...] = ()
    ordered: tuple[tuple[MsgKey | None, Envelope], ...] = ()


NOTHING = Swapped()


class SwapState(msgspec.Struct, array_like=True, tag="swap"):
    """The whole state of a machine."""

    edges: EdgesState[Swap | Request | Ordered | Found]
    swap_object: ObjectState | None
    last: MsgKey | None
    count: int
    done: list[tuple[SiteId, int, int]]
    """Source, incarnation, number."""
    waiting: list[tuple[MsgKey | None, Envelope, float]]
    finishing: bool = False
    finished: bool = False
    asking: list[tuple[Envelope, float]] = []

    def durable(self) -> object:
        """Return what a replay rebuilds: all but what the edges call volatile, and times."""
        waiting = [(predecessor, envelope) for predecessor, envelope, _ in self.waiting]
        own = (self.finishing, self.finished, [envelope for envelope, _ in self.asking])
        return self.edges.durable(), self.swap_object, self.last, self.count, self.done, waiting, own


class SwapMulticast:
    """One site's part: swap, multicast the pair, deliver after the predecessor."""

    def __init__(
        self, order_class: OrderClass, source: Source, tree: SpanningTree, swap_object: SwapObject | None,
        *, by_source: bool = False,
    ) -> None:  # fmt: skip
        """`by_source`: sources multicast their messages themselves (§3), not who finds the predecessor (§4)."""
        self.by_source = by_source
        self.me, self.groups, self.source, self.tree, self.object = source.me, order_class, source, tree, swap_object
        self.edges = Edges(self.me, order_class.id, streams=2)
        self.epoch = stamps.first_of(order_class.id)
        self.last: MsgKey | None = None  # what was delivered last, or passed over because it is for others
        self.count = 0
        self.done: dict[tuple[SiteId, int], int] = {}  # the same for each source and incarnation
        self.waiting: dict[MsgKey | None, tuple[Envelope, float]] = {}  # by predecessor
        self.finishing = self.finished = False  # the class closes; all of it is here
        self.asking: dict[int, tuple[Envelope, float]] = {}  # by number: own messages without a predecessor (§3)

    def step(self, event: Event) -> list[Effect]:
        """Take one event to completion."""
        if isinstance(event, Finish):
            effects: list[Effect] = [Append(event)]
            self._finish(effects)
        else:
            effects = step_over(self.edges, event, self._originate, self._check, self._take)
        if isinstance(event, Tick) and self.object is not None and self.object.restless:
            effects.insert(0, Append(event))  # what was combined when must be the same after a restart
            self._done(self.object.tick(), effects)
        if self.finishing and not self.finished and self.ended:
            self.finished = True
            effects.append(Finished())
        return effects

    @property
    def ended(self) -> bool:
        """Whether everything of the class was delivered here, and nothing follows."""
        return is_end(self.last)

    def _finish(self, effects: list[Effect]) -> None:
        """The class closes: the root swaps the end in."""
        if not self.finishing and self.me == self.tree.root:
            end = Envelope(self.groups.id, (), self.me, self.source.incarnation, 0, b"")
            self._swap(self.me, Swap(end, key_of(end)), effects)
        self.finishing = True

    def _originate(self, multicast: Multicast, effects: list[Effect]) -> None:
        self.groups.origin(self.me, multicast.groups)
        envelope = self.source.envelope(self.groups.id, multicast)
        if self.object is not None:
            swap = Swap(envelope, key_of(envelope))
            if self.by_source:
                self.asking[envelope.number] = (envelope, self.edges.now)
                swap = Swap(msgspec.structs.replace(envelope, body=b""), key_of(envelope), bare=True)
            self._swap(self.me, swap, effects)
        else:
            effects.append(self.edges.send(self.tree.root, 0, Request(envelope)))

    def _check(self, sender: SiteId, message: Message) -> None:
        """Refuse what no honest peer sends, before anything changes (errata 62)."""
        if isinstance(message, Found):
            if not self.by_source or self.me not in self.tree or sender not in self.tree:
                raise PeerError(f"{sender} sent {self.me} what is not its to send: {message}")
            return
        if not isinstance(message, Swap | Request | Ordered):
            raise PeerError(f"{sender} sent what is not for a swap: {message}")
        envelope = message.envelope
        if is_end(key_of(envelope)):
            self._check_end(sender, message)
        else:
            self.groups.check(sender, envelope)
        match message:
            case Swap(_, last):
                right = self.tree.are_neighbours(sender, self.me)
                right = right and self.groups.is_source(last[0]) and 0 <= last[2] <= NUMBER_AT_MOST
                right = right and not (is_end(last) and last[0] != self.tree.root)
                bare = self.by_source and envelope.source in self.tree and not is_end(key_of(envelope))
                right = right and message.bare == bare and not (bare and envelope.body)
            case Request():
                right = envelope.source == sender and sender not in self.tree and self.tree.root == self.me
            case Ordered():
                right = sender in self.tree and self.me in self.tree
        if not right:
            raise PeerError(f"{sender} sent {self.me} what is not its to send: {message}")

    def _check_end(self, sender: SiteId, message: Swap | Request | Ordered) -> None:
        end = message.envelope
        right = end.class_id == self.groups.id and not end.groups and end.source == self.tree.root
        if not right or not 0 < end.incarnation <= NUMBER_AT_MOST or isinstance(message, Request):
            raise PeerError(f"{sender} sent an end that is none: {message}")

    def _take(self, sender: SiteId, message: Message, effects: list[Effect]) -> None:
        match message:
            case Swap(_, last) as swap:
                if self._has_passed(last):
                    raise PeerError(f"{sender} sent {swap}, which is to leave {last} behind: that was ordered")
                self._swap(sender, swap, effects)
            case Request(envelope):
                self._swap(self.me, Swap(envelope, key_of(envelope)), effects)
            case Ordered(predecessor, envelope):
                self._order(predecessor, envelope, effects)
            case Found(predecessor, number):
                if number not in self.asking:
                    raise PeerError(f"{sender} sent {message}, and that is known or was not asked")
                self._multicast(predecessor, self.asking.pop(number)[0], effects)

    def _has_passed(self, key: MsgKey | None) -> bool:
        """Whether what follows this message is known already: a second one would fork the chain (errata 49)."""
        if key == self.last or is_end(key):
            return False
        return key is None or key[2] <= self.done.get(key[:2], 0)

    def _swap(self, came_from: SiteId, swap: Swap, effects: list[Effect]) -> None:
        assert self.object is not None
        self._done(self.object.swap(came_from, swap), effects)

    def _done(self, swapped: Swapped, effects: list[Effect]) -> None:
        for to, swap in swapped.forward:
            effects.append(self.edges.send(to, 0, swap))
        for predecessor, envelope in swapped.ordered:
            if envelope.source == self.me and envelope.number in self.asking:
                self._multicast(predecessor, self.asking.pop(envelope.number)[0], effects)
            elif self.by_source and envelope.groups and envelope.source in self.tree and not self.ended:
                effects.append(self.edges.send(envelope.source, 1, Found(predecessor, envelope.number)))
            else:
                self._multicast(predecessor, envelope, effects)

    def _multicast(self, predecessor: MsgKey | None, envelope: Envelope, effects: list[Effect]) -> None:
        """Send the pair: the body to members only, a stub to the rest of the class (errata 44)."""
        if self.ended:
            return  # its source sends it again, in another class
        self._check_fork(predecessor, envelope)  # before anything is sent
        members = self.groups.union(envelope.groups)
        full = Ordered(predecessor, envelope)
        stub = Ordered(predecessor, msgspec.structs.replace(envelope, body=b""))
        for site in self.tree.sites:
            if site != self.me:
                effects.append(self.edges.send(site, 1, full if site in members else stub))
        self._order(predecessor, envelope, effects)

    def _check_fork(self, predecessor: MsgKey | None, envelope: Envelope) -> None:
        if predecessor in self.waiting or self._has_passed(predecessor):
            raise PeerError(f"two messages after {predecessor}: {envelope}")

    def _order(self, predecessor: MsgKey | None, envelope: Envelope, effects: list[Effect]) -> None:
        """Deliver after the predecessor, and then whatever waited for this one."""
        if self.ended:
            return
        self._check_fork(predecessor, envelope)
        self.waiting[predecessor] = (envelope, self.edges.now)
        while (waiting := self.waiting.pop(self.last, None)) is not None:
            ready = waiting[0]
            self.last = key_of(ready)
            if self.ended:
                self.waiting.clear()
                return
            self.done[self.last[:2]] = ready.number
            self.count += 1
            if self.me in self.groups.union(ready.groups):
                effects.append(Deliver(ready, stamps.at(self.epoch, self.count)))

    def held(self) -> list[Held]:
        """Everything that waits here."""
        waits = [
            Held(str(envelope), f"its predecessor {predecessor} was not delivered", since)
            for predecessor, (envelope, since) in self.waiting.items()
        ]
        combining = self.object.waiting if self.object is not None else []
        waits += [Held(str(e), "its predecessor is not known yet", since) for e, since in self.asking.values()]
        waits += [Held(str(swap), "combining until the next tick", self.edges.now) for swap in combining]
        return self.edges.held() + waits

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is unacknowledged."""
        restless = self.object is not None and self.object.restless
        waits = restless or self.waiting or (self.asking and not self.ended)
        return not waits and self.edges.idle and self.finishing == self.finished

    @property
    def under_way(self) -> int:
        """What the slowest peer has not acknowledged, or what is held here, whichever is more."""
        combining = len(self.object.waiting) if self.object is not None else 0
        return max(self.edges.under_way, len(self.waiting), len(self.asking), combining)

    def snapshot(self) -> SwapState:
        """Return the whole state."""
        swap_object = self.object.snapshot() if self.object is not None else None
        done = sorted((*key, number) for key, number in self.done.items())
        waiting = [(predecessor, *waits) for predecessor, waits in self.waiting.items()]
        waiting.sort(key=lambda entry: entry[0] or ("", 0, 0))
        ending = (self.finishing, self.finished, [self.asking[number] for number in sorted(self.asking)])
        return SwapState(self.edges.snapshot(), swap_object, self.last, self.count, done, waiting, *ending)

    def restore(self, state: SwapState) -> None:
        """Take over a state."""
        self.edges.restore(state.edges)
        if (self.object is None) != (state.swap_object is None):
            raise HistoryError("a snapshot of a site in the class, or of one outside it, and this is the other")
        if self.object is not None:
            self.object.restore(state.swap_object)
        self.last, self.count = state.last, state.count
        self.finishing, self.finished = state.finishing, state.finished
        self.asking = {envelope.number: (envelope, since) for envelope, since in state.asking}
        self.done = {(source, incarnation): number for source, incarnation, number in state.done}
        self.waiting = {predecessor: (envelope, since) for predecessor, envelope, since in state.waiting}


def wrong_object(state: object) -> HistoryError:
    """Return the error for a state of another kind of swap object."""
    return HistoryError(f"a snapshot of another swap object: {type(state).__name__}")
