"""The MP protocol of GS88 §3.2 over any verified plan: GS88 trees, meta-group trees, the central site, our own.

A source sends to the entry of the destination. The entry puts the message in order with everything that passes it and
sends it down; every site passes on what it gets, in the order it got it. Edges are numbered (`core.edges`), source
traffic and tree traffic apart, and each class has streams of its own.

Stamp: the last stamp that came from above, zeros down to this site's depth, then this site's own counter. Bytes that
come from above later are larger, because an ancestor's counter stands where we wrote zeros.

With `causal`, a message carries what its source had sent and delivered, in all classes, and a site holds a stream back
until it has seen (passed on) those of them that are of the same class and pass it (errata 6, 7). That is causal order
wherever no site is in two classes: so causal deployments use `s1`. Without it a source's messages to different
groups may be delivered in another order than they were sent.

With `receipts` a source learns of its messages: their place, from the entry (errata 9), and when they are safe, because
acknowledgements then climb the tree: a site acknowledges what all its children have acknowledged.
"""

from collections import deque

import msgspec

from ordercast.core.edges import Ack, Carry, Edges, Key
from ordercast.core.effects import Append, Deliver, Effect, Held, Placed, Safe, Send
from ordercast.core.events import Control, Envelope, Event, Message, Multicast, Received, Tick
from ordercast.errors import PeerError
from ordercast.topology import Routes
from ordercast.types import GroupId, SiteId

Past = tuple[tuple[SiteId, GroupId, int], ...]
"""For a source and a group, the highest number of a message that came before."""
HERE = ""  # the sender of an edge that is none: messages that enter where they are sent


class Propagate(Message, frozen=True, gc=False):
    """A multicast on its way (GS88 App. I, record `message`); without a stamp on its way to its entry."""

    envelope: Envelope
    stamp: bytes = b""
    past: Past = ()
    receipt: bool = False
    """The source waits to hear of its place."""

    def __str__(self) -> str:
        return f"Propagate {self.envelope}"


class Place(Control, frozen=True, gc=False):
    """The entry tells the source where its message stands."""

    number: int
    stamp: bytes

    def __str__(self) -> str:
        return f"Place {self.number}"


class _Tree:
    """What one site keeps for one class."""

    __slots__ = ("above", "counter", "depth", "parent")

    def __init__(self, depth: int, parent: SiteId | None, epoch: int) -> None:
        self.depth, self.parent = depth, parent
        self.above = epoch.to_bytes(8, "big")  # the last stamp from above; every stamp starts with the epoch
        self.counter = 0

    def next_stamp(self) -> bytes:
        self.counter += 1
        return self.above.ljust(8 * (self.depth + 1), b"\0") + self.counter.to_bytes(8, "big")


class Propagation:
    """One site's part in message passing along a plan."""

    def __init__(
        self,
        me: SiteId,
        routes: Routes,
        *,
        incarnation: int = 1,
        causal: bool = False,
        receipts: bool = False,
        patience: float = 0.0,
    ) -> None:
        self.me, self.routes, self.incarnation, self.causal, self.receipts = me, routes, incarnation, causal, receipts
        self.edges = Edges(subtree=receipts, patience=patience)
        self.sent = 0
        self.local: dict[int, int] = {}  # messages that entered where they were sent, per stream
        self.of_class: dict[int, _Tree] = {}
        self.seen: dict[tuple[SiteId, GroupId], int] = {}
        self.past: dict[tuple[SiteId, GroupId], int] = {}
        self.waiting: dict[Key, deque[tuple[Propagate, float, int]]] = {}
        self.unsafe: dict[Key, deque[tuple[int, int]]] = {}  # own messages: (number on the edge, number), per edge

    def step(self, event: Event) -> list[Effect]:
        """Take one event to completion."""
        if isinstance(event, Received):
            message = event.message
            if type(message) is not Carry:
                return self._control(event.sender, message)
            self._from_whom(event.sender, message.message)
            effects: list[Effect] = [Append(event)]
            key = (event.sender, message.stream)
            ready = self.edges.receive(event.sender, message, effects)
            for number, inner in enumerate(ready, self.edges.expected(key) - len(ready)):
                assert type(inner) is Propagate
                self._arrive(key, inner, number, effects)
            return effects
        if isinstance(event, Multicast):
            effects = [Append(event)]
            self._originate(event, effects)
            return effects
        assert isinstance(event, Tick)
        return self.edges.tick(event.now)

    def _from_whom(self, sender: SiteId, message: Message) -> None:
        """What comes down comes from the parent, what is to be ordered from its source, to its entry (errata 62).

        Checked before anything changes: what is refused leaves no trace.
        """
        if type(message) is not Propagate:
            raise PeerError(f"{sender} sent what is not for propagation: {message}")
        envelope = message.envelope
        if message.stamp:
            if sender != self._tree(envelope.order_class).parent:
                raise PeerError(f"{sender} sent {envelope} down, and is not above {self.me}")
        elif envelope.source != sender or self.routes.entry(envelope.groups) != self.me:
            raise PeerError(f"{sender} sent {envelope}, which is not its own or does not enter at {self.me}")

    def forget(self, peer: SiteId) -> list[int]:
        """A peer has lost everything: begin anew with it; return this site's messages that may be lost with it."""
        self.edges.forget(peer)
        for tree in self.of_class.values():
            if tree.parent == peer:
                tree.above = self.routes.plan.epoch.to_bytes(8, "big")
        lost = [number for key in [k for k in self.unsafe if k[0] == peer] for _, number in self.unsafe.pop(key)]
        effects: list[Effect] = []
        self._safe(effects)  # what only the peer had not acknowledged is as safe as it will be
        return lost + [effect.number for effect in effects if isinstance(effect, Safe)]

    def _control(self, sender: SiteId, message: Message) -> list[Effect]:
        if type(message) is Place:
            return [Placed(message.number, message.stamp)] if self.receipts else []
        effects = self.edges.control(sender, message)
        if self.receipts and type(message) is Ack:
            self._safe(effects)
        return effects

    def _safe(self, effects: list[Effect]) -> None:
        """Tell which of this site's messages are safe: acknowledged by their entry, or settled when it is this site."""
        for key, numbers in self.unsafe.items():
            upto = self.edges.settled(key) if not key[0] else self.edges.acked(key)
            while numbers and numbers[0][0] <= upto:
                effects.append(Safe(numbers.popleft()[1]))

    def _originate(self, multicast: Multicast, effects: list[Effect]) -> None:
        """`originate_message`: hand it to the primary destination, which may be this site."""
        entry = self.routes.entry(multicast.groups)
        order_class = self.routes.class_of[multicast.groups[0]]
        self.sent += 1
        epoch = self.routes.plan.epoch
        envelope = Envelope(order_class, epoch, multicast.groups, self.me, self.incarnation, self.sent, multicast.body)
        past: Past = ()
        if self.causal:
            past = tuple((source, group, number) for (source, group), number in sorted(self.past.items()))
            for group in multicast.groups:
                self.past[self.me, group] = self.sent
        message = Propagate(envelope, b"", past, multicast.receipt)
        stream = 2 * order_class
        key = (HERE if entry == self.me else entry, stream)
        at = self.local.get(stream, 0) + 1
        if self.receipts:
            own = self.unsafe.setdefault(key, deque())
        if entry == self.me:
            self.local[stream] = at
            if self.receipts:
                own.append((at, self.sent))
            self._arrive(key, message, at, effects)
            if self.receipts:
                self._safe(effects)
        else:
            send = self.edges.send(entry, stream, message)
            if self.receipts:
                assert isinstance(send.message, Carry)
                own.append((send.message.number, self.sent))
            effects.append(send)

    def _arrive(self, key: Key, message: Propagate, number: int, effects: list[Effect]) -> None:
        """Pass on now, or behind what its stream already holds back."""
        if not self.causal:
            self._pass_on(key, message, number, effects)
            return
        self.waiting.setdefault(key, deque()).append((message, self.edges.now, number))
        self._release(effects)

    def _release(self, effects: list[Effect]) -> None:
        """Pass on the heads of streams whose past has been seen, until none is left."""
        moved = True
        while moved:
            moved = False
            for key, queue in sorted(self.waiting.items()):
                while queue and self._missing(queue[0][0]) is None:
                    message, _, number = queue.popleft()
                    self._pass_on(key, message, number, effects)
                    moved = True

    def _missing(self, message: Propagate) -> tuple[SiteId, GroupId, int] | None:
        """Return an earlier message that passes here and was not seen yet."""
        classes, own = self.routes.class_of, message.envelope.order_class
        for source, group, number in message.past:
            if self.seen.get((source, group), 0) < number and classes[group] == own and self._passes(group):
                return source, group, number
        return None

    def _passes(self, group: GroupId) -> bool:
        route = self.routes.plan.groups[group]
        return self.me == route.entry or self.me in route.members or self.me in route.extra

    def _pass_on(self, key: Key, message: Propagate, number: int, effects: list[Effect]) -> None:
        """`send_message` and `queue_for_delivery`; messages are values, so no counter is confused (errata 4)."""
        envelope = message.envelope
        order_class = envelope.order_class
        tree = self._tree(order_class)
        if message.stamp:
            tree.above = message.stamp
        elif self.routes.entry(envelope.groups) == self.me:
            message = msgspec.structs.replace(message, stamp=tree.next_stamp())
            if message.receipt:
                self._tell_place(envelope, message.stamp, effects)
        else:
            raise PeerError(f"{envelope.source} sent {envelope} here, where it does not enter")
        if self.causal:
            for group in envelope.groups:
                self.seen[envelope.source, group] = envelope.number
        if self.routes.delivers(self.me, envelope.groups):
            effects.append(Deliver(envelope, message.stamp))
            if self.causal:
                self._remember(message)
        children = self.routes.children(self.me, envelope.groups)
        for child in children:
            effects.append(self.edges.send(child, 2 * order_class + 1, message))
        if self.receipts:
            self.edges.owe(key, number, [(child, 2 * order_class + 1) for child in children])

    def _tree(self, order_class: int) -> _Tree:
        tree = self.of_class.get(order_class)
        if tree is None:
            above = self.routes.path_up(order_class, self.me)[1:]
            epoch = self.routes.plan.epoch
            tree = self.of_class[order_class] = _Tree(len(above), above[0] if above else None, epoch)
        return tree

    def _tell_place(self, envelope: Envelope, stamp: bytes, effects: list[Effect]) -> None:
        if envelope.source == self.me:
            effects.append(Placed(envelope.number, stamp))
        else:
            effects.append(Send(envelope.source, Place(envelope.number, stamp)))

    def _remember(self, message: Propagate) -> None:
        """Add a delivered message and its past to what the next one of this site comes after."""
        envelope = message.envelope
        own = [(envelope.source, group, envelope.number) for group in envelope.groups]
        for source, group, number in (*message.past, *own):
            self.past[source, group] = max(self.past.get((source, group), 0), number)

    def held(self) -> list[Held]:
        """Everything that waits here."""
        late = []
        for queue in self.waiting.values():
            missing = self._missing(queue[0][0]) if queue else None
            for message, since, _ in queue:
                late.append(Held(str(message.envelope), f"{missing} comes before it and was not seen", since))
        return self.edges.held() + late

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is unacknowledged."""
        return self.edges.idle and not any(self.waiting.values())
