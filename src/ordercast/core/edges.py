"""Numbered edges: per-edge sequence numbers, wait queues, resends (GS88 §3.2 and App. I; errata 3, 4, 5, 9, 16).

An edge has a sender, a receiver and a stream (`core.streams`).

The receiver takes numbers in order. It parks what is early, drops what it had, and asks again for what is missing. The
sender keeps what is not acknowledged. A null message tells the last number sent, so the receiver also notices when the
last message is lost. Acknowledgements and nulls are sent at ticks. When a link comes up, both ends compare their counts
(`core.resume`).

With `subtree`, a site acknowledges a number only when the whole subtree below has it (`core.settling`).

Invariants: acked <= sent; settled < expected; every number in `beyond` lies between settled + 1 and expected.
"""

from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, TypeVar

from ordercast.core.effects import Append, Effect, Held, Refuse, Send
from ordercast.core.events import Event, Forgot, LinkDown, LinkUp, Message, Multicast, PeerReset, Received, Tick
from ordercast.core.resume import LOST, Resume, began_anew, check_resume, who_lost
from ordercast.core.settling import Settling, ranges_beyond
from ordercast.core.streams import Ack, Carry, EdgesState, In, Key, Null, Out, Range, Resend, counts_of, forget, resumed
from ordercast.errors import PeerError
from ordercast.names import ClassId, SiteId

EARLY_AT_MOST = 100_000  # numbers further ahead than this are not parked: the wait queue is bounded (errata 62)
RESEND_AT_MOST = 256  # envelopes per request; the rest is asked for when these are there

Originate = Callable[[Multicast, list[Effect]], None]
Take = Callable[[SiteId, Any, list[Effect]], None]
Check = Callable[[SiteId, Message], None]
T = TypeVar("T")


class Edges:
    """All edges of one site in one class; nulls are sent when nothing was acknowledged for `patience`."""

    def __init__(
        self, me: SiteId, class_id: ClassId, streams: int, *, subtree: bool = False, patience: float = 0.0
    ) -> None:
        self.me, self.class_id, self.streams = me, class_id, streams
        self.subtree, self.patience = subtree, patience
        self.now = 0.0
        self._out: dict[Key, Out[Any]] = {}  # sorted by key, so that ticks send in one order
        self._in: dict[Key, In[Any]] = {}
        self._down: set[SiteId] = set()  # whom nothing reaches, as the host has promised
        self.settling = Settling(self._incoming)

    def passes(self, event: Event) -> list[Effect]:
        """Take what happens to all edges or to all edges of a peer: time and links."""
        match event:
            case Tick(now):
                return self.tick(now)
            case LinkUp(peer):
                self._down.discard(peer)
                return self._link_up(peer)
            case LinkDown(peer, whole):
                self._down |= {peer} if whole else set()
                return []  # what is under way may be lost; it is kept until it is acknowledged
            case PeerReset(peer, incarnation):
                met = any(key[0] == peer for key in (*self._out, *self._in))
                return [Refuse(peer, began_anew(self.me, peer, incarnation), LOST)] if met else []
            case Forgot(peer):
                return [Append(event)] if forget(self._out, self._in, peer) else []
        raise TypeError(f"no edge takes {event!r}")

    def check_stream(self, sender: SiteId, stream: int) -> None:
        """Raise PeerError for a stream that this class does not have."""
        if not 0 <= stream < self.streams:
            raise PeerError(f"{sender} speaks of stream {stream}; class {self.class_id} has {self.streams}")

    def _outgoing(self, key: Key) -> Out[Any]:
        out = self._out.get(key)
        if out is None:
            out = self._out[key] = Out()
            self._out = dict(sorted(self._out.items(), key=_by_key))
        return out

    def _incoming(self, key: Key) -> In[Any]:
        edge = self._in.get(key)
        if edge is None:
            edge = self._in[key] = In()
            self._in = dict(sorted(self._in.items(), key=_by_key))
        return edge

    # Messages out and in.

    def send(self, to: SiteId, stream: int, message: Message) -> Send:
        """Give the message the next number of its edge and keep it until it is acknowledged."""
        out = self._out.get((to, stream)) or self._outgoing((to, stream))
        # GS88 App. I never advances next_seq#_out in originate_message; we count every send on an edge (errata 3).
        out.sent += 1
        carry = out.kept[out.sent] = Carry(stream, out.sent, message)
        if to in self._down and not out.unsaid:
            out.unsaid = out.sent
        return Send(to, carry, self.class_id)

    def is_new(self, sender: SiteId, carry: Carry[Any]) -> bool:
        """Whether a message will be kept: one that came before, or comes too early, leaves no trace and no record."""
        edge = self._in.get((sender, carry.stream))
        expected = 1 if edge is None else edge.expected
        if carry.number == expected:
            return True
        early = edge is not None and carry.number in edge.early
        return expected < carry.number <= expected + EARLY_AT_MOST and not early

    def receive(self, sender: SiteId, carry: Carry[Any], effects: list[Effect]) -> list[Any]:
        """Return the messages that are now in order; adds a request to `effects` when one is missing."""
        key = (sender, carry.stream)
        edge = self._in.get(key) or self._incoming(key)
        edge.fresh = True
        if carry.number == edge.expected:
            edge.expected += 1
            ready = [carry.message]
            while edge.expected in edge.early:  # a loop, not a recursion per parked message (errata 5)
                ready.append(edge.early.pop(edge.expected))
                edge.expected += 1
            if not self.subtree:
                edge.settled = edge.expected - 1
            if edge.asked_upto < edge.expected <= edge.seen:  # that was all we asked for: there is more
                self._ask(sender, carry.stream, edge, min(edge.early) - 1 if edge.early else edge.seen, effects)
            return ready
        if carry.number < edge.expected:  # a duplicate must not sit at the head of the queue (errata 5)
            return []
        if carry.number > edge.expected + EARLY_AT_MOST:  # too far ahead to be kept: it will be asked for
            self._ask(sender, carry.stream, edge, carry.number - 1, effects)
            return []
        if not edge.early:
            edge.since = self.now
        edge.early[carry.number] = carry.message
        self._ask(sender, carry.stream, edge, carry.number - 1, effects)
        return []

    def is_next(self, sender: SiteId, carry: Carry[Any]) -> bool:
        """Count a message that is simply the next one of its edge, and say so: what `receive` mostly finds."""
        edge = self._in.get((sender, carry.stream))
        if edge is None or carry.number != edge.expected or edge.early or edge.seen:
            return False
        edge.fresh = True
        edge.expected += 1
        if not self.subtree:
            edge.settled = carry.number
        return True

    def expected(self, key: Key) -> int:
        """Return the number that an edge waits for."""
        return self._in[key].expected

    def _ask(self, sender: SiteId, stream: int, edge: In[Any], last: int, effects: list[Effect]) -> None:
        edge.seen = max(edge.seen, last)
        if not edge.asked or edge.expected > edge.asked_upto:
            edge.asked = True
            edge.asked_upto = min(last, edge.expected + RESEND_AT_MOST - 1)
            effects.append(Send(sender, Resend(stream, edge.expected, edge.asked_upto), self.class_id))

    def owe(self, key: Key, number: int, sent: list[Key]) -> None:
        """With `subtree`: this number settles when what was just sent to these edges is acknowledged."""
        self.settling.owe(key, number, [self._out[edge] for edge in sent])

    # Control.

    def control(self, sender: SiteId, message: Message) -> list[Effect]:
        """Handle acknowledgements, resend requests, nulls and what a peer tells when a link comes up."""
        effects: list[Effect] = []
        match message:
            case Ack(stream, upto, beyond):
                self._acknowledged(sender, stream, upto, beyond)
            case Resend(stream, first, last):
                out = self._known(sender, stream, last)
                out.unsaid = 0  # from now on the peer may have it
                first = max(first, out.acked + 1)
                last = min(last, first + RESEND_AT_MOST - 1)
                effects += [Send(sender, out.kept[n], self.class_id) for n in range(first, last + 1) if n in out.kept]
            case Null(stream, last):
                self.check_stream(sender, stream)
                self._told_last(sender, stream, last, effects)
            case Resume(stream, sent, _, _):
                self.check_stream(sender, stream)
                check_resume(sender, message)
                sends, takes = self._out.get((sender, stream)), self._in.get((sender, stream))
                reason = who_lost(self.me, sender, message, counts_of(sends, takes))
                if reason is not None:
                    return [Refuse(sender, reason, LOST)]
                if sends is not None:
                    sends.unsaid = 0
                if sent:
                    self._told_last(sender, stream, sent, effects)
            case _:
                raise PeerError(f"{sender} sent what no edge knows: {message}")
        return effects

    def _acknowledged(self, sender: SiteId, stream: int, upto: int, beyond: tuple[Range, ...]) -> None:
        out = self._known(sender, stream, upto)
        numbers: Iterable[int] = range(out.acked + 1, upto + 1)
        if beyond:
            before = upto
            for first, last in beyond:
                if not before < first <= last <= out.sent:
                    raise PeerError(f"{sender} acknowledges {first}-{last}, which makes no sense here")
                before = last
            numbers = chain(numbers, *(range(max(first, out.acked + 1), last + 1) for first, last in beyond))
        kept, because = out.kept, out.because
        for number in numbers:  # some perhaps for the second time
            if kept.pop(number, None) is not None and number in because:
                self.settling.pay(*because.pop(number))
        if upto > out.acked:
            out.acked, out.since = upto, self.now
        assert out.acked <= out.sent, "acknowledged before it was sent"

    def _told_last(self, sender: SiteId, stream: int, last: int, effects: list[Effect]) -> None:
        edge = self._incoming((sender, stream))
        edge.fresh = True
        if last >= edge.expected:
            missing = min(edge.early) - 1 if edge.early else last
            self._ask(sender, stream, edge, missing, effects)

    def _known(self, sender: SiteId, stream: int, number: int) -> Out[Any]:
        out = self._out.get((sender, stream))
        if out is None or number > out.sent:
            raise PeerError(f"{sender} speaks of number {number} that was never sent to it")
        return out

    # Time and links.

    def tick(self, now: float) -> list[Effect]:
        """Acknowledge what came, and tell those who have not acknowledged what was last."""
        self.now = now
        effects: list[Effect] = []
        for (sender, stream), edge in self._in.items():
            edge.asked = False
            if edge.seen < edge.expected:
                edge.seen = edge.asked_upto = 0
            if edge.fresh:
                edge.fresh = False
                beyond = ranges_beyond(edge) if edge.beyond else ()
                effects.append(Send(sender, Ack(stream, edge.settled, beyond), self.class_id))
        for (to, stream), out in self._out.items():
            if out.kept:
                if out.told == out.sent and now - out.since >= self.patience:  # nothing new, and not acknowledged
                    effects.append(Send(to, Null(stream, out.sent), self.class_id))
                    out.since = now
                elif out.told != out.sent:
                    out.told, out.since = out.sent, now
        return effects

    def _link_up(self, peer: SiteId) -> list[Effect]:
        """Tell the peer what this site knows of every stream between them, so that both can compare and ask."""
        return [Send(peer, told, self.class_id) for told in resumed(self._out, self._in, peer)]

    # Looking.

    @property
    def under_way(self) -> int:
        """How many messages the slowest peer has not acknowledged."""
        return max((len(out.kept) for out in self._out.values()), default=0)

    def held(self) -> list[Held]:
        """What is parked here."""
        return [
            Held(str(message), f"number {edge.expected} from {sender} is missing", edge.since)
            for (sender, _), edge in self._in.items()
            for message in edge.early.values()
        ]

    @property
    def idle(self) -> bool:
        """Whether nothing is parked, nothing is unacknowledged and nothing is to be acknowledged."""
        if any(out.kept for out in self._out.values()):
            return False
        return not any(edge.early or edge.fresh for edge in self._in.values())

    def snapshot(self) -> EdgesState[Any]:
        """Return the whole state."""
        for edge in self._in.values():
            if len(edge.early) > 1:
                edge.early = dict(sorted(edge.early.items()))
        return EdgesState(self.now, list(self._out.items()), list(self._in.items()), self.settling.own)

    def restore(self, state: EdgesState[Any]) -> None:
        """Take over a state."""
        self.now, self.settling.own = state.now, state.own
        self._out, self._in = _sorted(state.outgoing), _sorted(state.incoming)
        for out in self._out.values():
            out.unsaid = 0  # an earlier life may have sent it since


def step_over(edges: Edges, event: Event, originate: Originate, check: Check, take: Take) -> list[Effect]:
    """Take an event for a machine all of whose traffic runs over edges.

    `check` sees a message before anything changes and raises PeerError for what no honest peer sends. What can only be
    judged in its turn, `take` refuses with PeerError before it changes anything: the number is used up and logged, so
    that a replay goes the same way, and the host is asked to drop the link.
    """
    if type(event) is Received:
        sender, carry = event.sender, event.message
        if type(carry) is not Carry:
            return edges.control(sender, carry)
        if not 0 <= carry.stream < edges.streams:
            edges.check_stream(sender, carry.stream)
        check(sender, carry.message)
        if edges.is_next(sender, carry):
            effects: list[Effect] = [Append(event)]
            ready = [carry.message]
        else:
            effects = [Append(event)] if edges.is_new(sender, carry) else []
            ready = edges.receive(sender, carry, effects)
        for message in ready:
            try:
                take(sender, message, effects)
            except PeerError as error:
                effects.append(Refuse(sender, str(error)))
        return effects
    if isinstance(event, Multicast):
        effects = [Append(event)]
        originate(event, effects)
        return effects
    return edges.passes(event)


def _sorted(edges: Iterable[tuple[Key, T]]) -> dict[Key, T]:
    return dict(sorted(edges, key=_by_key))


def _by_key(entry: tuple[Key, object]) -> Key:
    return entry[0]
