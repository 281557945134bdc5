"""Predecessor order over a swap object (HTW00 §3), one object per class (errata 44).

A swap object answers "which message came right before mine?". Whoever learns the answer multicasts the pair (HTW00 §3):
the body to the members of the destination, a stub to the other sites of the class, so that nobody waits for a
predecessor it never gets. A site delivers a message right after its predecessor, and because it sees every stub it can
count: the count is the position, and the stamp (errata 47).

The object is an arrow (`protocols.arrow`), a combining tree (`protocols.combining`) or both (`protocols.hybrid`). A
source outside the class asks the root of the class's tree to swap for it.
"""

from collections.abc import Callable
from typing import Protocol

import msgspec

from ordercast.core.edges import Edges
from ordercast.core.effects import Append, Deliver, Effect, Held
from ordercast.core.events import Envelope, Event, Message, Multicast, Tick
from ordercast.core.machine import NUMBER_AT_MOST, Groups
from ordercast.errors import PeerError
from ordercast.names import SiteId
from ordercast.planning.routes import SpanningTrees

MsgKey = tuple[SiteId, int, int]
"""Source, incarnation, number."""


def key_of(envelope: Envelope) -> MsgKey:
    """Return what identifies a message."""
    return (envelope.source, envelope.incarnation, envelope.number)


class Swap(Message, frozen=True, gc=False):
    """`swap(first, last)` on its way: find the predecessor of `envelope`, leave `last` as the value."""

    envelope: Envelope
    last: MsgKey

    def __str__(self) -> str:
        return f"Swap {self.envelope}"


class Request(Message, frozen=True, gc=False):
    """A source outside the class asks to have its message swapped in."""

    envelope: Envelope

    def __str__(self) -> str:
        return f"Request {self.envelope}"


class Ordered(Message, frozen=True, gc=False):
    """The pair <predecessor, message>; at a site that is no member, without the body."""

    predecessor: MsgKey | None
    envelope: Envelope

    def __str__(self) -> str:
        before = "⊥" if self.predecessor is None else f"{self.predecessor[0]}:{self.predecessor[2]}"
        return f"Ordered {self.envelope} after {before}"


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


class Swapped(msgspec.Struct, frozen=True, gc=False):
    """The outcome of a step of a swap object."""

    forward: tuple[tuple[SiteId, Swap], ...] = ()
    ordered: tuple[tuple[MsgKey | None, Envelope], ...] = ()


NOTHING = Swapped()


class _Chain:
    """The hold-back of one class: what was delivered last (of each source too), how many, and who waits for whom."""

    __slots__ = ("count", "done", "last", "waiting")

    def __init__(self) -> None:
        self.last: MsgKey | None = None
        self.count = 0
        self.waiting: dict[MsgKey | None, tuple[Envelope, float]] = {}
        self.done: dict[tuple[SiteId, int], int] = {}

    def has_passed(self, key: MsgKey | None) -> bool:
        """Whether what follows this message is known already: a second one would fork the chain (errata 49)."""
        if key == self.last:
            return False
        return key is None or key[2] <= self.done.get(key[:2], 0)


class SwapMulticast:
    """One site's part: swap, multicast the pair, deliver after the predecessor."""

    def __init__(
        self,
        me: SiteId,
        groups: Groups,
        trees: SpanningTrees,
        make: Callable[[SiteId, SpanningTrees, int], SwapObject],
        *,
        incarnation: int = 1,
    ) -> None:
        self.me, self.groups, self.trees, self.incarnation = me, groups, trees, incarnation
        self.edges = Edges()
        self.sent = 0
        self.objects = {c: make(me, trees, c) for c in range(len(groups.classes)) if me in trees.sites(c)}
        self.chains = {c: _Chain() for c in self.objects}

    def step(self, event: Event) -> list[Effect]:
        """Take one event to completion."""
        effects = self.edges.step(event, self._originate, self._check, self._take)
        if not isinstance(event, Tick):
            return effects
        if any(swap_object.restless for swap_object in self.objects.values()):
            effects.insert(0, Append(event))  # once: what was combined when must be the same after a restart
        for order_class, swap_object in self.objects.items():
            self._done(order_class, swap_object.tick(), effects)
        return effects

    def _originate(self, multicast: Multicast, effects: list[Effect]) -> None:
        envelope = self.groups.envelope(multicast.groups, self.me, self.incarnation, self.sent + 1, multicast.body)
        self.sent += 1
        if envelope.order_class in self.objects:
            self._swap(self.me, Swap(envelope, key_of(envelope)), effects)
        else:
            effects.append(self.edges.send(self.trees.root(envelope.order_class), 0, Request(envelope)))

    def _check(self, sender: SiteId, message: Message) -> None:
        """Refuse what no honest peer sends, before anything changes (errata 62)."""
        if not isinstance(message, Swap | Request | Ordered):
            raise PeerError(f"{sender} sent what is not for a swap: {message}")
        envelope = message.envelope
        self.groups.check(sender, envelope)
        sites = self.trees.sites(envelope.order_class)
        match message:
            case Swap(_, last):
                right = self.trees.are_neighbours(envelope.order_class, sender, self.me)
                right = right and self.groups.is_source(last[0]) and 0 < last[2] <= NUMBER_AT_MOST
            case Request():
                right = envelope.source == sender not in sites and self.trees.root(envelope.order_class) == self.me
            case Ordered():
                right = sender in sites and self.me in sites
        if not right:
            raise PeerError(f"{sender} sent {self.me} what is not its to send: {message}")

    def _take(self, sender: SiteId, message: Message, effects: list[Effect]) -> None:
        match message:
            case Swap(envelope, last) as swap:
                if self.chains[envelope.order_class].has_passed(last):
                    raise PeerError(f"{sender} sent {swap}, which is to leave {last} behind: that was ordered")
                self._swap(sender, swap, effects)
            case Request(envelope):
                self._swap(self.me, Swap(envelope, key_of(envelope)), effects)
            case Ordered(predecessor, envelope):
                self._order(predecessor, envelope, effects)

    def _swap(self, came_from: SiteId, swap: Swap, effects: list[Effect]) -> None:
        order_class = swap.envelope.order_class
        self._done(order_class, self.objects[order_class].swap(came_from, swap), effects)

    def _done(self, order_class: int, swapped: Swapped, effects: list[Effect]) -> None:
        for to, swap in swapped.forward:
            effects.append(self.edges.send(to, 0, swap))
        for predecessor, envelope in swapped.ordered:
            self._multicast(order_class, predecessor, envelope, effects)

    def _multicast(
        self, order_class: int, predecessor: MsgKey | None, envelope: Envelope, effects: list[Effect]
    ) -> None:
        """Send the pair: the body to members only, a stub to the rest of the class (errata 44)."""
        chain = self.chains[order_class]
        if predecessor in chain.waiting or chain.has_passed(predecessor):  # before anything is sent
            raise PeerError(f"two messages after {predecessor}: {envelope}")
        members = set(self.groups.union(envelope.groups))
        full = Ordered(predecessor, envelope)
        stub = Ordered(predecessor, msgspec.structs.replace(envelope, body=b""))
        for site in self.trees.sites(order_class):
            if site != self.me:
                effects.append(self.edges.send(site, 1, full if site in members else stub))
        self._order(predecessor, envelope, effects)

    def _order(self, predecessor: MsgKey | None, envelope: Envelope, effects: list[Effect]) -> None:
        """Deliver after the predecessor, and then whatever waited for this one."""
        chain = self.chains[envelope.order_class]
        if predecessor in chain.waiting or chain.has_passed(predecessor):
            raise PeerError(f"two messages after {predecessor}: {envelope}")
        chain.waiting[predecessor] = (envelope, self.edges.now)
        while (waiting := chain.waiting.pop(chain.last, None)) is not None:
            ready = waiting[0]
            chain.last = key_of(ready)
            chain.done[chain.last[:2]] = ready.number
            chain.count += 1
            if self.me in self.groups.union(ready.groups):
                stamp = self.groups.epoch.to_bytes(8, "big") + chain.count.to_bytes(8, "big")
                effects.append(Deliver(ready, stamp))

    def held(self) -> list[Held]:
        """Everything that waits here."""
        waits = [
            Held(str(envelope), f"its predecessor {predecessor} was not delivered", since)
            for chain in self.chains.values()
            for predecessor, (envelope, since) in chain.waiting.items()
        ]
        combining = [
            Held(str(s), "combining until the next tick", 0.0) for o in self.objects.values() for s in o.waiting
        ]
        return self.edges.held() + waits + combining

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is unacknowledged."""
        held_back = any(chain.waiting for chain in self.chains.values()) or any(
            o.restless for o in self.objects.values()
        )
        return self.edges.idle and not held_back
