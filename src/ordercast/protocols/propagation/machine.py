"""The MP protocol of GS88 §3.2 over any verified plan: GS88 trees, meta-group trees, the central site, our own.

A source sends to the entry of the destination. The entry puts the message in order with everything that passes it and
sends it down; every site passes on what it gets, in the order it got it. Edges are numbered (`core.edges`); source
traffic and tree traffic are streams of their own, for each part of the class.

Stamp: the last stamp that came from above, zeros down to this site's depth, then this site's own counter. Bytes that
come from above later are larger, because an ancestor's counter stands where we wrote zeros.

A message may wait for others: its `past` names, for a source and a destination, the last message that came before it
(`protocols.propagation.pasts`). A site holds a stream back until it has passed on those of them that pass here (errata
6, 7, 66). A stream from above is held back by what comes to this site directly, and the other way round; both never
wait for each other, because the parent keeps to the same rule: what passes it is in the right order in its stream.

When its class is closed (GS88 §5.1), the roots of its trees order nothing more and send `Close` down, behind everything
that they have sent. A site that gets it has everything; it passes it on, and orders nothing more either. What a source
had sent and nobody has ordered by then is not in this class; its source sends it again in the next one (`epochs`).

With `direct_bytes` large bodies go past extra nodes (MGT §4.2, repaired: errata 24, 25). The tree still gives every
message its place, in a message without body; whoever has use of it waits for both. So the order is the tree's.

With `receipts` a source learns of its messages: their place, from the entry (errata 9), and when they are safe, because
acknowledgements then climb the tree: a site acknowledges a message when all its children have. `causal` needs them.
"""

from collections import OrderedDict, deque
from collections.abc import Sequence

import msgspec

from ordercast.core import stamps
from ordercast.core.configuration import Destination, OrderClass
from ordercast.core.edges import Edges
from ordercast.core.effects import Append, Deliver, Effect, Finished, Held, Placed, Refuse, Send
from ordercast.core.events import Envelope, Event, Finish, Message, Multicast, Received, Tick
from ordercast.core.source import Source
from ordercast.core.streams import HERE, Carry, EdgesState, Key
from ordercast.names import ClassId, SiteId
from ordercast.planning.routes import Routes
from ordercast.protocols.propagation.bodies import Bodies, MsgKey, place_of
from ordercast.protocols.propagation.messages import Body, Close, Place, Propagate, Settled
from ordercast.protocols.propagation.own import Own
from ordercast.protocols.propagation.pasts import Pasts
from ordercast.protocols.propagation.rules import Rules
from ordercast.protocols.propagation.waiting import Entry, Waiting


class Tree(msgspec.Struct, array_like=True):
    """What one site keeps for the tree of one part."""

    depth: int
    above: bytes
    """The last stamp from above."""
    counter: int = 0

    def next_stamp(self) -> bytes:
        """Return the stamp of a message that enters here."""
        self.counter += 1
        skipped = self.depth + 1 - len(self.above) // stamps.NUMBER
        return self.above + stamps.level(0) * skipped + stamps.level(self.counter)


class PropagationState(msgspec.Struct, array_like=True, tag="propagation"):
    """The whole state of a machine."""

    edges: EdgesState[Propagate | Close | Body]
    pasts: Pasts
    trees: dict[int, Tree]
    seen: dict[tuple[SiteId, Destination], int]
    waiting: list[tuple[Key, list[Entry]]]
    not_safe: list[int]
    placing: dict[int, SiteId]
    told_safe: int
    times_told: int
    sent: int
    closed: list[int] = []
    bodies: list[tuple[MsgKey, bytes]] = []

    def durable(self) -> object:
        """Return what a replay rebuilds.

        Volatile is what the edges call so and what follows acknowledgements, which are not logged: most of the pasts,
        `not_safe`, `told_safe`, `times_told` and `placing`.
        """
        waiting = [(key, [(message, number) for message, _, number in queue]) for key, queue in self.waiting]
        return self.edges.durable(), self.pasts.several, self.trees, self.seen, waiting, self.closed, self.bodies


class Propagation:
    """One site's part in message passing along a plan."""

    def __init__(
        self, order_class: OrderClass, source: Source, routes: Routes,
        *, causal: bool = False, receipts: bool = False, patience: float = 0.0, direct_bytes: int = 0,
    ) -> None:  # fmt: skip
        """Bodies of `direct_bytes` or more go past extra nodes; 0: none."""
        self.me, self.groups, self.source, self.routes, self.causal = source.me, order_class, source, routes, causal
        self.id: ClassId = order_class.id
        self.receipts = receipts or causal
        self.rules = Rules(self.me, order_class, routes, causal=causal, direct=direct_bytes > 0)
        streams = 2 * len(order_class.parts)  # of a part: from sources, and down the tree
        streams += len(order_class.parts) if direct_bytes else 0  # and bodies past extra nodes
        self.edges = Edges(self.me, self.id, streams, subtree=self.receipts, patience=patience)
        self.first_stamp = stamps.first_of(self.id)
        self.trees: dict[int, Tree] = {}
        self.pasts = Pasts()
        self.bodies = Bodies(self.me, routes, direct_bytes)
        self.waiting = Waiting(self.me, routes, self.bodies)
        self.own = Own(self.id)
        self.closed: list[int] = []  # parts in which nothing more is ordered here

    def step(self, event: Event) -> list[Effect]:
        """Take one event to completion."""
        if isinstance(event, Received):
            message = event.message
            if type(message) is not Carry:
                return self._control(event, message)
            self.rules.check(event.sender, message)
            parts = len(self.groups.parts)
            if message.stream < 2 * parts and not message.stream % 2 and message.stream // 2 in self.closed:
                return []  # too late: its source sends it again in the next class
            effects: list[Effect] = [Append(event)] if self.edges.is_new(event.sender, message) else []
            key = (event.sender, message.stream)
            ready = self.edges.receive(event.sender, message, effects)
            take = self._arrive if message.stream < 2 * parts else self._take_body
            for number, inner in enumerate(ready, self.edges.expected(key) - len(ready)):
                take(key, inner, number, effects)
        elif isinstance(event, Multicast):
            effects = self._originate(event)
        elif isinstance(event, Finish):
            effects = self._finish(event)
        else:
            effects = self.edges.passes(event)
            if self.causal and isinstance(event, Tick):
                effects += self.own.tell_settled(sorted(self.groups.sites - {self.me}))
        if self.edges.settling.safe:
            self._safe(effects)
        return effects

    # What this site hears of its messages.

    def _control(self, event: Received, message: Message) -> list[Effect]:
        sender = event.sender
        if type(message) is Place:
            return self.own.placed(sender, message)
        if type(message) is Settled:
            news = self.pasts.forget(sender, message.number, own=False)
            return [Append(event)] if news else []  # a restarted site must not name again what is everywhere
        effects = self.edges.control(sender, message)
        if self.edges.settling.safe:
            self._safe(effects)
        return effects

    # What this site sends.

    def _originate(self, multicast: Multicast) -> list[Effect]:
        """`originate_message`: hand it to the primary destination, which may be this site."""
        groups = multicast.groups
        part = self.groups.origin(self.me, groups)
        entry = self.routes.entry(groups)
        effects: list[Effect] = [Append(multicast)]
        safe = self.own.safe_upto if self.causal else 0
        envelope = self.source.envelope(self.id, multicast)
        number, stream = envelope.number, 2 * part
        self.own.sent = number
        elsewhere = lambda other: self.routes.entry(other) != entry  # noqa: E731
        past = self.pasts.before(self.me, part, groups, number, causal=self.causal, elsewhere=elsewhere)
        message = Propagate(envelope, b"", past, multicast.receipt, safe)
        if self.receipts:
            self.own.not_safe[number] = None
        if entry == self.me:
            if part in self.closed:  # the end has come, and the host does not know yet: it will send this again
                return effects
            self._arrive((HERE, stream), message, number, effects)
            return effects
        effects.append(self.edges.send(entry, stream, message))
        if self.receipts:
            self.edges.owe((HERE, stream), number, [(entry, stream)])
        if multicast.receipt:
            self.own.placing[number] = entry
        return effects

    def _safe(self, effects: list[Effect]) -> None:
        """Tell which of this site's messages are safe, and name them no more."""
        effects += self.own.safe(self.edges.settling.safe)
        self.edges.settling.safe.clear()
        self.pasts.forget(self.me, self.own.safe_upto if self.receipts else 0, own=True)

    # What passes here.

    def _arrive(self, key: Key, message: Propagate | Close, number: int, effects: list[Effect]) -> None:
        """Pass on now, or behind what its stream already holds back."""
        if not self.waiting.queues and self.waiting.missing(message) is None:
            self._pass_on(key, message, number, effects)
            return
        self.waiting.put(key, (message, self.edges.now, number))
        self._release(effects)

    def _take_body(self, key: Key, message: Body, number: int, effects: list[Effect]) -> None:
        """Keep a body until its place comes; it has settled: where its message is, the tree says."""
        self.bodies.take(message.envelope)
        if self.receipts:
            self.edges.owe(key, number, [])
        if self.waiting.queues:
            self._release(effects)

    def _release(self, effects: list[Effect]) -> None:
        """Pass on what waits for nothing any more."""
        for key, message, number in self.waiting.ready():
            self._pass_on(key, message, number, effects)

    def _pass_on(self, key: Key, message: Propagate | Close, number: int, effects: list[Effect]) -> None:
        """`send_message` and `queue_for_delivery`; messages are values, so no counter is confused (errata 4)."""
        if isinstance(message, Close):
            self._close(key[1] // 2, effects)
            if self.receipts:
                self._owe(key, number, self.routes.below(key[1] // 2, self.me))
            return
        message = self.bodies.joined(message)
        envelope = message.envelope
        part = key[1] // 2
        tree = self.trees.get(part)
        if tree is None:
            tree = self.trees[part] = Tree(self.routes.depth(part, self.me), self.first_stamp)
        if message.stamp:
            if message.stamp <= tree.above:
                effects.append(Refuse(key[0], f"{key[0]} sent {envelope} with a stamp that does not grow"))
                return
            tree.above = message.stamp
        else:
            message = msgspec.structs.replace(message, stamp=tree.next_stamp())
            if message.receipt:
                self._tell_place(envelope, message.stamp, effects)
        self.waiting.seen[envelope.source, envelope.groups] = envelope.number
        if self.routes.delivers(self.me, envelope.groups):
            effects.append(Deliver(envelope, message.stamp))
            if self.causal:
                self.pasts.forget(envelope.source, message.safe, own=envelope.source == self.me)
                self.pasts.remember(message)
        children = self.routes.children(self.me, envelope.groups)
        ends = self.bodies.ends(children, envelope)
        for end in ends.values():
            effects.append(self.edges.send(end, 2 * len(self.groups.parts) + part, Body(envelope)))
        for child in children:
            effects.append(self.edges.send(child, 2 * part + 1, place_of(message) if child in ends else message))
        if self.receipts:
            self._owe(key, number, children)

    def _owe(self, key: Key, number: int, children: Sequence[SiteId]) -> None:
        """A message is acknowledged when the children have acknowledged what was just sent to them."""
        down = key[1] - key[1] % 2 + 1
        self.edges.owe(key, number, [(child, down) for child in children])

    # Closing.

    def _finish(self, event: Finish) -> list[Effect]:
        """Begin to close the parts in whose tree this site is a root; elsewhere the end may have come already."""
        effects: list[Effect] = [Append(event)]
        if self._all_closed:
            effects.append(Finished())
        for part in self.routes.parts_at(self.me):
            if part not in self.closed and self.routes.parent(part, self.me) is None:
                self._close(part, effects)
        return effects

    def _close(self, part: int, effects: list[Effect]) -> None:
        """Order nothing more in a part; what its sources have sent and is held back here stays theirs."""
        self.closed.append(part)
        self.waiting.drop(2 * part)
        for child in self.routes.below(part, self.me):
            effects.append(self.edges.send(child, 2 * part + 1, Close()))
        if self._all_closed:
            effects.append(Finished())

    @property
    def _all_closed(self) -> bool:
        return bool(self.closed) and all(part in self.closed for part in self.routes.parts_at(self.me))

    def _tell_place(self, envelope: Envelope, stamp: bytes, effects: list[Effect]) -> None:
        here = envelope.source == self.me
        place = Place(envelope.number, stamp)
        effects.append(Placed(envelope.number, stamp) if here else Send(envelope.source, place, self.id))

    # Looking.

    def held(self) -> list[Held]:
        """Everything that waits here."""
        return [*self.edges.held(), *self.waiting.held(), *self.bodies.held(self.edges.now)]

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is unacknowledged."""
        held = bool(self.waiting.queues or self.bodies.kept)
        return (not self.causal or self.own.all_told) and not held and self.edges.idle

    @property
    def under_way(self) -> int:
        """What is not safe, or what the slowest peer has not acknowledged, or what is held here; the most of these."""
        return max(self.edges.under_way, len(self.own.not_safe), sum(map(len, self.waiting.queues.values())))

    def snapshot(self) -> PropagationState:
        """Return the whole state."""
        return PropagationState(
            self.edges.snapshot(),
            self.pasts.sorted(),
            dict(sorted(self.trees.items())),
            dict(sorted(self.waiting.seen.items())),
            [(key, list(queue)) for key, queue in sorted(self.waiting.queues.items())],
            sorted(self.own.not_safe),
            dict(sorted(self.own.placing.items())),
            self.own.told_safe,
            self.own.times_told,
            self.own.sent,
            sorted(self.closed),
            sorted(self.bodies.kept.items()),
        )

    def restore(self, state: PropagationState) -> None:
        """Take over a state."""
        self.edges.restore(state.edges)
        self.pasts, self.trees, self.waiting.seen = state.pasts, state.trees, state.seen
        self.waiting.queues = {key: deque(queue) for key, queue in state.waiting}
        self.own.not_safe, self.own.placing = OrderedDict.fromkeys(state.not_safe), state.placing
        self.own.told_safe, self.own.times_told, self.own.sent = state.told_safe, state.times_told, state.sent
        self.closed = list(state.closed)
        self.bodies.kept = dict(state.bodies)
