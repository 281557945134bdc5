"""Numbered edges: per-edge sequence numbers, wait queues, resends (GS88 §3.2 and App. I; errata 3, 4, 5, 9, 16).

An edge is a sender, a receiver and a stream; streams keep traffic apart that must not wait for each other (errata 6).
The receiver takes numbers in order, parks what is early, drops what it had, and asks again for what is missing. The
sender keeps what is not acknowledged. A null message tells the last number sent, so that the loss of the last message
is noticed too. Acknowledgements are cumulative and wait for a tick; so do nulls.
"""

from collections.abc import Callable

from ordercast.core.effects import Append, Effect, Held, Send
from ordercast.core.events import Control, Event, Message, Multicast, Received
from ordercast.errors import PeerError
from ordercast.types import SiteId

EARLY_AT_MOST = 100_000  # numbers further ahead than this are a fault of the peer, not of the network (errata 62)
RESEND_AT_MOST = 256  # envelopes per request; the rest is asked for when these are there


Originate = Callable[[Multicast, list[Effect]], None]
Take = Callable[[SiteId, Message, list[Effect]], None]


class Carry(Message, frozen=True, gc=False):
    """A message with its number on this edge."""

    stream: int
    number: int
    message: Message

    def __str__(self) -> str:
        return f"{self.message} seq={self.number}"


class Null(Control, frozen=True, gc=False):
    """I am alive, and this was the last number (GS88 §3.2, null messages)."""

    stream: int
    last: int

    def __str__(self) -> str:
        return f"Null last={self.last}"


class Resend(Control, frozen=True, gc=False):
    """Send these numbers again."""

    stream: int
    first: int
    last: int

    def __str__(self) -> str:
        return f"Resend {self.first}-{self.last}"


class Ack(Control, frozen=True, gc=False):
    """I have everything up to this number."""

    stream: int
    upto: int

    def __str__(self) -> str:
        return f"Ack {self.upto}"


class _Out:
    __slots__ = ("acked", "kept", "sent", "told")

    def __init__(self) -> None:
        self.sent = 0  # the number given last
        self.acked = 0
        self.told = 0  # the number given last when a tick last looked
        self.kept: dict[int, Carry] = {}  # not yet acknowledged


class _In:
    __slots__ = ("asked", "early", "expected", "fresh", "since")

    def __init__(self) -> None:
        self.expected = 1
        self.early: dict[int, Message] = {}  # the wait queue
        self.since = 0.0
        self.asked = False  # since the last tick
        self.fresh = False  # something to acknowledge


Key = tuple[SiteId, int]


class Edges:
    """All edges of one site."""

    def __init__(self) -> None:
        self.now = 0.0
        self._out: dict[Key, _Out] = {}
        self._in: dict[Key, _In] = {}

    def step(self, event: Event, originate: Originate, take: Take) -> list[Effect]:
        """Take an event for a machine all of whose traffic runs over edges."""
        if isinstance(event, Received):
            if type(event.message) is not Carry:
                return self.control(event.sender, event.message)
            effects: list[Effect] = [Append(event)]
            for message in self.receive(event.sender, event.message, effects):
                take(event.sender, message, effects)
            return effects
        if isinstance(event, Multicast):
            effects = [Append(event)]
            originate(event, effects)
            return effects
        return self.tick(event.now)

    def send(self, to: SiteId, stream: int, message: Message) -> Send:
        """Give the message the next number of its edge and keep it until it is acknowledged."""
        out = self._out.get((to, stream))
        if out is None:
            out = self._out[to, stream] = _Out()
        # GS88 App. I never advances next_seq#_out in originate_message; we count every send on an edge (errata 3).
        out.sent += 1
        carry = out.kept[out.sent] = Carry(stream, out.sent, message)
        return Send(to, carry)

    def receive(self, sender: SiteId, carry: Carry, effects: list[Effect]) -> list[Message]:
        """Return the messages that are now in order; adds a request to `effects` when one is missing."""
        key = (sender, carry.stream)
        edge = self._in.get(key)
        if edge is None:
            edge = self._in[key] = _In()
        edge.fresh = True
        if carry.number == edge.expected:
            edge.expected += 1
            if not edge.early:
                return [carry.message]
            ready = [carry.message]
            while edge.expected in edge.early:  # a loop, not a recursion per parked message (errata 5)
                ready.append(edge.early.pop(edge.expected))
                edge.expected += 1
            return ready
        if carry.number < edge.expected:  # a duplicate must not sit at the head of the queue (errata 5)
            return []
        if carry.number > edge.expected + EARLY_AT_MOST:
            raise PeerError(f"{sender} sent number {carry.number} where {edge.expected} is next")
        if not edge.early:
            edge.since = self.now
        edge.early[carry.number] = carry.message
        self._ask(sender, carry.stream, edge, carry.number - 1, effects)
        return []

    def _ask(self, sender: SiteId, stream: int, edge: _In, last: int, effects: list[Effect]) -> None:
        if not edge.asked:
            edge.asked = True
            effects.append(Send(sender, Resend(stream, edge.expected, min(last, edge.expected + RESEND_AT_MOST))))

    def control(self, sender: SiteId, message: Message) -> list[Effect]:
        """Handle acknowledgements, resend requests and nulls."""
        effects: list[Effect] = []
        match message:
            case Ack(stream, upto):
                out = self._known(sender, stream, upto)
                for number in range(out.acked + 1, upto + 1):
                    del out.kept[number]
                out.acked = max(out.acked, upto)
            case Resend(stream, first, last):
                out = self._known(sender, stream, last)
                effects += [Send(sender, out.kept[n]) for n in range(first, last + 1) if n in out.kept]
            case Null(stream, last):
                edge = self._in.setdefault((sender, stream), _In())
                edge.fresh = True
                if last >= edge.expected:
                    missing = min(edge.early) - 1 if edge.early else last
                    self._ask(sender, stream, edge, missing, effects)
            case _:
                raise PeerError(f"{sender} sent what no edge knows: {message}")
        return effects

    def _known(self, sender: SiteId, stream: int, number: int) -> _Out:
        out = self._out.get((sender, stream))
        if out is None or number > out.sent:
            raise PeerError(f"{sender} speaks of number {number} that was never sent to it")
        return out

    def tick(self, now: float) -> list[Effect]:
        """Acknowledge what came, and tell those who have not acknowledged what was last."""
        self.now = now
        effects: list[Effect] = []
        for (sender, stream), edge in self._in.items():
            edge.asked = False
            if edge.fresh:
                edge.fresh = False
                effects.append(Send(sender, Ack(stream, edge.expected - 1)))
        for (to, stream), out in self._out.items():
            if out.kept:
                if out.told == out.sent:  # nothing new for a whole tick, and still not acknowledged
                    effects.append(Send(to, Null(stream, out.sent)))
                out.told = out.sent
        return effects

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
        return not any(out.kept for out in self._out.values()) and not any(
            e.early or e.fresh for e in self._in.values()
        )
