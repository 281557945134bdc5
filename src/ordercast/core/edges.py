"""Numbered edges: per-edge sequence numbers, wait queues, resends (GS88 §3.2 and App. I; errata 3, 4, 5, 9, 16).

An edge is a sender, a receiver and a stream; streams keep traffic apart that must not wait for each other (errata 6).
The receiver takes numbers in order, parks what is early, drops what it had, and asks again for what is missing. The
sender keeps what is not acknowledged. A null message tells the last number sent, so that the loss of the last message
is noticed too. Acknowledgements are cumulative and wait for a tick; so do nulls.

With `subtree`, a number is acknowledged only when everything that was sent on because of it is acknowledged (`owe`): an
acknowledgement then says that the whole subtree below has the message, and a source knows what is safe.
"""

from collections.abc import Callable

from ordercast.core.effects import Append, Effect, Held, Refuse, Send
from ordercast.core.events import Control, Event, Message, Multicast, Received
from ordercast.errors import PeerError
from ordercast.names import SiteId

EARLY_AT_MOST = 100_000  # numbers further ahead than this are not parked: the wait queue is bounded (errata 62)
RESEND_AT_MOST = 256  # envelopes per request; the rest is asked for when these are there


Key = tuple[SiteId, int]
Originate = Callable[[Multicast, list[Effect]], None]
Take = Callable[[SiteId, Message, list[Effect]], None]
Check = Callable[[SiteId, Message], None]


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
    __slots__ = ("acked", "because", "kept", "sent", "since", "told")

    def __init__(self) -> None:
        self.sent = 0  # the number given last
        self.acked = 0
        self.told = 0  # the number given last when a tick last looked
        self.since = 0.0  # when a tick last saw something new
        self.kept: dict[int, Carry] = {}  # not yet acknowledged
        self.because: dict[int, tuple[Key, int]] = {}  # with `subtree`: the number of an incoming edge behind a number


class _In:
    __slots__ = ("asked", "asked_upto", "early", "expected", "fresh", "owed", "seen", "settled", "since")

    def __init__(self) -> None:
        self.expected = 1
        self.early: dict[int, Message] = {}  # the wait queue
        self.since = 0.0
        self.asked = False  # since the last tick
        self.asked_upto = 0
        self.seen = 0  # the highest number known to be missing
        self.fresh = False  # something to acknowledge
        self.settled = 0  # what may be acknowledged
        self.owed: dict[int, int] = {}  # how many acknowledgements a number waits for


class Edges:
    """All edges of one site; nulls are sent when nothing was acknowledged for `patience`."""

    def __init__(self, *, subtree: bool = False, patience: float = 0.0) -> None:
        self.subtree, self.patience = subtree, patience
        self.now = 0.0
        self._out: dict[Key, _Out] = {}
        self._in: dict[Key, _In] = {}

    def step(self, event: Event, originate: Originate, check: Check, take: Take) -> list[Effect]:
        """Take an event for a machine all of whose traffic runs over edges.

        `check` sees a message before anything changes and raises PeerError for what no honest peer sends. What can only
        be judged in its turn, `take` refuses with PeerError before it changes anything: the number is used up and
        logged, so that a replay goes the same way, and the host is asked to drop the link.
        """
        if isinstance(event, Received):
            if type(event.message) is not Carry:
                return self.control(event.sender, event.message)
            check(event.sender, event.message.message)
            effects: list[Effect] = [Append(event)]
            for message in self.receive(event.sender, event.message, effects):
                try:
                    take(event.sender, message, effects)
                except PeerError as error:
                    effects.append(Refuse(event.sender, str(error)))
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
                if not self.subtree:
                    edge.settled = carry.number
                if edge.asked_upto < edge.expected <= edge.seen:  # that was all we asked for: there is more
                    self._ask(sender, carry.stream, edge, edge.seen, effects)
                return [carry.message]
            ready = [carry.message]
            while edge.expected in edge.early:  # a loop, not a recursion per parked message (errata 5)
                ready.append(edge.early.pop(edge.expected))
                edge.expected += 1
            if not self.subtree:
                edge.settled = edge.expected - 1
            if edge.asked_upto < edge.expected <= edge.seen:
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

    def expected(self, key: Key) -> int:
        """Return the number that an edge waits for."""
        return self._in[key].expected

    def owe(self, key: Key, number: int, sent: list[tuple[SiteId, int]]) -> list[int]:
        """With `subtree`: this number settles when what was just sent to these edges is acknowledged.

        Returns the numbers of the edge that are settled now, in order.
        """
        edge = self._in.get(key)
        if edge is None:
            edge = self._in[key] = _In()
        edge.owed[number] = len(sent)
        for to, stream in sent:
            out = self._out[to, stream]
            out.because[out.sent] = (key, number)
        return self._settle(edge)

    @staticmethod
    def _settle(edge: _In) -> list[int]:
        settled = []
        while edge.owed.get(edge.settled + 1) == 0:
            edge.settled += 1
            del edge.owed[edge.settled]
            settled.append(edge.settled)
            edge.fresh = True
        return settled

    def _ask(self, sender: SiteId, stream: int, edge: _In, last: int, effects: list[Effect]) -> None:
        edge.seen = max(edge.seen, last)
        if not edge.asked or edge.expected > edge.asked_upto:
            edge.asked = True
            edge.asked_upto = min(last, edge.expected + RESEND_AT_MOST - 1)
            effects.append(Send(sender, Resend(stream, edge.expected, edge.asked_upto)))

    def control(self, sender: SiteId, message: Message) -> list[Effect]:
        """Handle acknowledgements, resend requests and nulls."""
        effects: list[Effect] = []
        match message:
            case Ack(stream, upto):
                out = self._known(sender, stream, upto)
                for number in range(out.acked + 1, upto + 1):
                    del out.kept[number]
                    if number in out.because:
                        key, behind = out.because.pop(number)
                        self._in[key].owed[behind] -= 1
                        self._settle(self._in[key])
                if upto > out.acked:
                    out.acked, out.since = upto, self.now
            case Resend(stream, first, last):
                out = self._known(sender, stream, last)
                first = max(first, out.acked + 1)
                last = min(last, first + RESEND_AT_MOST - 1)
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
            if edge.seen < edge.expected:
                edge.seen = edge.asked_upto = 0
            if edge.fresh:
                edge.fresh = False
                if sender:
                    effects.append(Send(sender, Ack(stream, edge.settled)))
        for (to, stream), out in self._out.items():
            if out.kept:
                if out.told == out.sent and now - out.since >= self.patience:  # nothing new, and not acknowledged
                    effects.append(Send(to, Null(stream, out.sent)))
                    out.since = now
                elif out.told != out.sent:
                    out.told, out.since = out.sent, now
        return effects

    def resume(self, peer: SiteId) -> list[Effect]:
        """A link is there again: tell the peer the last number of every edge to it, so that it can ask."""
        return [
            Send(peer, Null(stream, out.sent)) for (to, stream), out in self._out.items() if to == peer and out.kept
        ]

    def settled(self, key: Key) -> int:
        """With `subtree`: up to which number everything that came over an edge is safe."""
        edge = self._in.get(key)
        return edge.settled if edge is not None else 0

    def acked(self, key: Key) -> int:
        """Up to which number an edge was acknowledged."""
        out = self._out.get(key)
        return out.acked if out is not None else 0

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
        return not any(out.kept for out in self._out.values()) and not any(
            e.early or e.fresh for e in self._in.values()
        )
