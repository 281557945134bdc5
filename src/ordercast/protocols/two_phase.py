"""Propose, then decide (GS88 §2, after Skeen and ABCAST in [BJ87]).

The source sends the message to all destinations; each gives it a priority higher than any it gave or learned so far;
the source takes the highest and tells it to all; a destination delivers in the order of priorities, once the first in
its queue is decided. Priorities are (number, site) pairs (errata 53) and the counter is raised to what was decided
(errata 52). One message may go to several groups: the destinations are their union.
"""

from bisect import bisect_left, insort
from collections import deque

import msgspec

from ordercast.core import stamps
from ordercast.core.configuration import NUMBER_AT_MOST, Destination, OrderClass
from ordercast.core.edges import Edges, step_over
from ordercast.core.effects import Deliver, Effect, Held
from ordercast.core.events import Envelope, Event, Message, Multicast
from ordercast.core.source import Source
from ordercast.core.streams import EdgesState
from ordercast.errors import PeerError
from ordercast.names import GroupId, SiteId

Priority = tuple[int, SiteId]
MsgKey = tuple[SiteId, int, int]
JUMP_AT_MOST = 2**40  # a priority that is further ahead is a fault of the peer (errata 62)


class Propose(Message, frozen=True, gc=False, tag=20):
    """First phase: the message itself."""

    envelope: Envelope

    def __str__(self) -> str:
        return f"Propose {self.envelope}"


class Proposal(Message, frozen=True, gc=False, tag=21):
    """A destination's priority for the source's message."""

    number: int
    priority: int

    def __str__(self) -> str:
        return f"Proposal {self.number} priority={self.priority}"


class Decide(Message, frozen=True, gc=False, tag=22):
    """Second phase: the highest priority, which is final."""

    number: int
    incarnation: int
    priority: int
    site: SiteId

    def __str__(self) -> str:
        return f"Decide {self.number} priority={self.priority},{self.site}"


class Undecided(msgspec.Struct, array_like=True):
    """At the source: who has not answered, and the highest priority so far."""

    envelope: Envelope
    destinations: tuple[SiteId, ...]
    waiting_for: list[SiteId]
    since: float
    highest: Priority = (0, "")


class Queued(msgspec.Struct, array_like=True):
    """At a destination: one message in the priority queue."""

    envelope: Envelope
    priority: Priority
    since: float
    decided: bool = False


Run = tuple[Destination, dict[int, None]]
"""Numbers of open messages in a row that have the same destination."""


class TwoPhaseState(msgspec.Struct, array_like=True, tag="two-phase"):
    """The whole state of a machine."""

    edges: EdgesState[Propose | Proposal | Decide]
    counter: int
    undecided: dict[int, Undecided]
    unsent: dict[int, tuple[Envelope, float]]
    lines: list[tuple[GroupId, list[Run]]]
    queue: list[tuple[MsgKey, Queued]]

    def durable(self) -> object:
        """Return what a replay rebuilds: all but what the edges call volatile, and times."""
        undecided = {number: (u.envelope, u.waiting_for, u.highest) for number, u in self.undecided.items()}
        queue = [(key, queued.priority, queued.decided) for key, queued in self.queue]
        return self.edges.durable(), self.counter, undecided, list(self.unsent), self.lines, queue


class TwoPhase:
    """One site's part: source and destination."""

    def __init__(self, order_class: OrderClass, source: Source) -> None:
        self.me, self.groups, self.source = source.me, order_class, source
        self.edges = Edges(self.me, order_class.id, streams=1)
        self.epoch = stamps.first_of(order_class.id)
        self.counter = 0
        self.undecided: dict[int, Undecided] = {}
        self.unsent: dict[int, tuple[Envelope, float]] = {}  # by number
        self.lines: dict[GroupId, deque[Run]] = {}  # for each group this site's open messages, in order
        self.queued: dict[MsgKey, Queued] = {}
        self.queue: list[tuple[int, SiteId, MsgKey]] = []  # by priority
        self.may_start: deque[int] = deque()  # numbers of unsent messages whose turn may have come

    def step(self, event: Event) -> list[Effect]:
        """Take one event to completion."""
        effects = step_over(self.edges, event, self._originate, self._check, self._take)
        while self.may_start:  # a loop: a message whose only destination is its source is decided while it starts
            self._start(self.may_start.popleft(), effects)
        return effects

    def _originate(self, multicast: Multicast, effects: list[Effect]) -> None:
        self.groups.origin(self.me, multicast.groups)
        envelope = self.source.envelope(self.groups.id, multicast)
        self.unsent[envelope.number] = (envelope, self.edges.now)
        for group in envelope.groups:
            line = self.lines.setdefault(group, deque())
            if not line or line[-1][0] != envelope.groups:
                line.append((envelope.groups, {}))
            line[-1][1][envelope.number] = None
        self.may_start.append(envelope.number)

    def _check(self, sender: SiteId, message: Message) -> None:
        """Refuse what no honest peer sends, before anything changes (errata 62)."""
        match message:
            case Propose(envelope):
                self.groups.check(sender, envelope)
                right = envelope.source == sender and self.me in self.groups.union(envelope.groups)
            case Proposal(_, priority):
                right = self._is_near(priority)
            case Decide(_, _, priority, site):
                right = self._is_near(priority) and site in self.groups.sites
            case _:
                right = False
        if not right:
            raise PeerError(f"{sender} sent {self.me} what is not for two-phase, or not its to send: {message}")

    def _is_near(self, priority: int) -> bool:
        return 0 < priority <= min(self.counter + JUMP_AT_MOST, NUMBER_AT_MOST)

    def _start(self, number: int, effects: list[Effect]) -> None:
        """Propose a message, unless an earlier one that shares a group, but has other destinations, is open.

        Over one and the same group FIFO edges keep a source's messages in order; with different destinations some
        counter may be high at one of them only, and the later message would overtake (errata 54, 67).
        """
        envelope, since = self.unsent.get(number, (None, 0.0))
        if envelope is None or any(number not in self.lines[group][0][1] for group in envelope.groups):
            return
        del self.unsent[number]
        destinations = self.groups.union(envelope.groups)
        self.undecided[number] = Undecided(envelope, destinations, list(destinations), since)
        for site in destinations:
            self._to(site, Propose(envelope), effects)

    def _close(self, envelope: Envelope) -> None:
        """A message is decided: those behind the last of its run may start."""
        for group in envelope.groups:
            line = self.lines[group]
            del line[0][1][envelope.number]
            if not line[0][1]:
                line.popleft()
                if line:
                    self.may_start.extend(line[0][1])
                else:
                    del self.lines[group]

    def _to(self, site: SiteId, message: Message, effects: list[Effect]) -> None:
        """Send over the edge, or do it right here when it is for this site."""
        if site == self.me:
            self._take(site, message, effects)
        else:
            effects.append(self.edges.send(site, 0, message))

    def _take(self, sender: SiteId, message: Message, effects: list[Effect]) -> None:
        match message:
            case Propose(envelope):
                key = (envelope.source, envelope.incarnation, envelope.number)
                if key in self.queued:
                    raise PeerError(f"{sender} proposed {envelope} twice")
                self.counter += 1
                self.queued[key] = Queued(envelope, (self.counter, self.me), self.edges.now)
                insort(self.queue, (self.counter, self.me, key))
                self._to(sender, Proposal(envelope.number, self.counter), effects)
            case Proposal(number, priority):
                self._count(sender, number, priority, effects)
            case Decide(number, incarnation, priority, site):
                self._decide((sender, incarnation, number), (priority, site), effects)

    def _count(self, sender: SiteId, number: int, priority: int, effects: list[Effect]) -> None:
        """Collect a proposal; with the last one the priority is final."""
        undecided = self.undecided.get(number)
        if undecided is None or sender not in undecided.waiting_for:
            raise PeerError(f"{sender} proposed for {number}, which it was not asked for")
        undecided.waiting_for.remove(sender)
        undecided.highest = max(undecided.highest, (priority, sender))
        if not undecided.waiting_for:
            del self.undecided[number]
            for site in undecided.destinations:
                self._to(site, Decide(number, self.source.incarnation, *undecided.highest), effects)
            self._close(undecided.envelope)

    def _decide(self, key: MsgKey, priority: Priority, effects: list[Effect]) -> None:
        queued = self.queued.get(key)
        if queued is None or queued.decided:
            raise PeerError(f"{key[0]} decided what is not undecided here: {key}")
        if priority < queued.priority:
            raise PeerError(f"{key[0]} decided {key} with a lower priority than {self.me} proposed")
        # "Higher than any given so far" must mean any given or decided, or two sites deliver in two orders (errata 52).
        self.counter = max(self.counter, priority[0])
        del self.queue[bisect_left(self.queue, (*queued.priority, key))]
        queued.decided, queued.priority = True, priority
        insort(self.queue, (*priority, key))
        ready = 0
        for number, site, first in self.queue:
            head = self.queued[first]
            if not head.decided:
                break
            ready += 1
            del self.queued[first]
            effects.append(Deliver(head.envelope, stamps.at(self.epoch, number, site)))
        del self.queue[:ready]

    def held(self) -> list[Held]:
        """Everything that waits here."""
        waits = [
            Held(
                str(q.envelope),
                "an earlier priority is undecided" if q.decided else "its priority is undecided",
                q.since,
            )
            for q in self.queued.values()
        ]
        waits += [
            Held(str(envelope), "an earlier one of this source is undecided", since)
            for envelope, since in self.unsent.values()
        ]
        for number, undecided in self.undecided.items():
            missing = ", ".join(sorted(undecided.waiting_for))
            waits.append(Held(f"{self.me}:{number}", f"no priority yet from {missing}", undecided.since))
        return self.edges.held() + waits

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is unacknowledged."""
        return self.edges.idle and not self.queued and not self.undecided and not self.unsent

    @property
    def under_way(self) -> int:
        """What the slowest peer has not acknowledged, or what is held here, whichever is more."""
        return max(self.edges.under_way, len(self.queued), len(self.undecided) + len(self.unsent))

    def snapshot(self) -> TwoPhaseState:
        """Return the whole state."""
        lines = [(group, list(line)) for group, line in sorted(self.lines.items())]
        queue = [(key, self.queued[key]) for _, _, key in self.queue]
        return TwoPhaseState(self.edges.snapshot(), self.counter, self.undecided, self.unsent, lines, queue)

    def restore(self, state: TwoPhaseState) -> None:
        """Take over a state."""
        self.edges.restore(state.edges)
        self.counter, self.undecided, self.unsent = state.counter, state.undecided, state.unsent
        self.lines = {group: deque(line) for group, line in state.lines}
        self.queued = dict(state.queue)
        self.queue = sorted((*queued.priority, key) for key, queued in state.queue)
