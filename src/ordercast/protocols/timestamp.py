"""Timestamp order (GS88 §2, after [Lamp78, Schn82]).

A source stamps a message with its clock and sends it to the destinations. A destination delivers the smallest stamp
once it has heard a larger one from every source that could still send a smaller one: all sources of all its groups, on
FIFO edges (errata 51). It asks a silent source, which raises its clock and answers with a null. Ties go by source. What
happened before a message has a smaller stamp, so the order is causal too.
"""

from bisect import insort

import msgspec

from ordercast.core import stamps
from ordercast.core.configuration import NUMBER_AT_MOST, OrderClass
from ordercast.core.edges import Edges, step_over
from ordercast.core.effects import Deliver, Effect, Held
from ordercast.core.events import Envelope, Event, Message, Multicast
from ordercast.core.source import Source
from ordercast.core.streams import EdgesState
from ordercast.errors import PeerError
from ordercast.names import SiteId

JUMP_AT_MOST = 2**40  # a clock that jumps further is a fault of the peer (errata 62)


class Stamped(Message, frozen=True, gc=False, tag=30):
    """A multicast with its source's time."""

    time: int
    envelope: Envelope

    def __str__(self) -> str:
        return f"Stamped {self.envelope} time={self.time}"


class Ask(Message, frozen=True, gc=False, tag=31):
    """Is your clock past this?"""

    time: int

    def __str__(self) -> str:
        return f"Ask time={self.time}"


class Silent(Message, frozen=True, gc=False, tag=32):
    """Nothing of mine will be stamped at or below this any more: the null of a silent source."""

    time: int

    def __str__(self) -> str:
        return f"Silent time={self.time}"


Waiting = tuple[int, SiteId, int, Envelope, float]
"""Time, source, number, envelope, since when."""


class TimestampState(msgspec.Struct, array_like=True, tag="timestamp"):
    """The whole state of a machine."""

    edges: EdgesState[Stamped | Ask | Silent]
    clock: int
    heard: dict[SiteId, int]
    asked: dict[SiteId, int]
    queue: list[Waiting]

    def durable(self) -> object:
        """Return what a replay rebuilds: all but what the edges call volatile, and times."""
        return self.edges.durable(), self.clock, self.heard, self.asked, [waiting[:4] for waiting in self.queue]


class Timestamp:
    """One site's part: source and destination."""

    def __init__(self, order_class: OrderClass, source: Source) -> None:
        self.me, self.groups, self.source = source.me, order_class, source
        self.edges = Edges(self.me, order_class.id, streams=1)
        self.epoch = stamps.first_of(order_class.id)
        self.clock = 0
        self.heard = {site: 0 for site in order_class.sources if site != self.me}
        self.asked = dict.fromkeys(self.heard, 0)
        self.queue: list[Waiting] = []  # by (time, source)

    def step(self, event: Event) -> list[Effect]:
        """Take one event to completion."""
        return step_over(self.edges, event, self._originate, self._check, self._take)

    def _originate(self, multicast: Multicast, effects: list[Effect]) -> None:
        self.groups.origin(self.me, multicast.groups)
        envelope = self.source.envelope(self.groups.id, multicast)
        self.clock += 1
        for site in self.groups.union(multicast.groups):
            if site != self.me:
                effects.append(self.edges.send(site, 0, Stamped(self.clock, envelope)))
            else:
                insort(self.queue, (self.clock, self.me, envelope.number, envelope, self.edges.now))
        self._deliver(effects)

    def _check(self, sender: SiteId, message: Message) -> None:
        """Refuse what no honest peer sends, before anything changes (errata 62)."""
        match message:
            case Stamped(time, envelope):
                self.groups.check(sender, envelope)
                right = envelope.source == sender and self.me in self.groups.union(envelope.groups)
                right = right and sender in self.heard
            case Silent(time):
                right = sender in self.heard
            case Ask(time):
                right = sender in self.groups.sites
            case _:
                right, time = False, 0
        if not right:
            raise PeerError(f"{sender} sent {self.me} what is not for timestamps, or not its to send: {message}")
        if not 0 <= time <= min(self.clock + JUMP_AT_MOST, NUMBER_AT_MOST):
            raise PeerError(f"{sender} is {time - self.clock} ticks ahead")

    def _take(self, sender: SiteId, message: Message, effects: list[Effect]) -> None:
        match message:
            case Stamped(time, envelope):
                if time <= self.heard[sender]:
                    raise PeerError(f"{sender} stamped {envelope} with {time}, and said {self.heard[sender]} before")
                self._hear(sender, time)
                insort(self.queue, (time, sender, envelope.number, envelope, self.edges.now))
                self._deliver(effects)
            case Silent(time):
                self._hear(sender, time)
                self._deliver(effects)
            case Ask(time):
                self.clock = max(self.clock, time)
                effects.append(self.edges.send(sender, 0, Silent(self.clock)))

    def _hear(self, sender: SiteId, time: int) -> None:
        self.heard[sender] = max(self.heard[sender], time)
        self.clock = max(self.clock, time)

    def _deliver(self, effects: list[Effect]) -> None:
        """Deliver while every source has been heard past the smallest stamp; ask those who have not."""
        while self.queue:
            time, source, _, envelope, _ = self.queue[0]
            silent = self._silent(time, source)
            if silent:
                for site in silent:
                    if self.asked[site] < time:
                        self.asked[site] = time
                        effects.append(self.edges.send(site, 0, Ask(time)))
                return
            del self.queue[0]
            effects.append(Deliver(envelope, stamps.at(self.epoch, time, source)))

    def _silent(self, time: int, source: SiteId) -> list[SiteId]:
        """Return the sources whose next stamp could still be smaller; ties go by source (errata 51)."""
        before = time - 1
        return [site for site, last in self.heard.items() if last < before or (last == before and site < source)]

    def held(self) -> list[Held]:
        """Everything that waits here."""
        waits = []
        for time, source, _, envelope, since in self.queue:
            silent = ", ".join(self._silent(time, source))
            waits.append(Held(str(envelope), f"not heard past {time} from {silent}", since))
        return self.edges.held() + waits

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is unacknowledged."""
        return self.edges.idle and not self.queue

    @property
    def under_way(self) -> int:
        """What the slowest peer has not acknowledged, or what is held here, whichever is more."""
        return max(self.edges.under_way, len(self.queue))

    def snapshot(self) -> TimestampState:
        """Return the whole state."""
        return TimestampState(self.edges.snapshot(), self.clock, self.heard, self.asked, self.queue)

    def restore(self, state: TimestampState) -> None:
        """Take over a state."""
        self.edges.restore(state.edges)
        self.clock, self.queue = state.clock, state.queue
        self.heard |= state.heard
        self.asked |= state.asked
