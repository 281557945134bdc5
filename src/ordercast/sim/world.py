"""The world: an event queue in virtual time that feeds machines and applies their effects, driven by one seed.

Crashes lose the machine and everything under way to it, between two events or between two effects of one step; a
restart builds the machine of the last checkpoint and steps it through the rest of its log. What it delivers then must
be what it had delivered, and perhaps more: so a host goes on without doubling anything. Ticks go only to sites that
have something to do, so a run ends by itself when nothing is left: that is quiescence.

Sites are told of their links: a link is down while it is cut or one of its ends is, and up again after that. What two
sites tell each other when a link comes up (`Resume`) is only good for that link: it is lost when the link is.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

import msgspec

from ordercast.core.effects import Append, Deliver, Effect, Held, Placed, Refuse, Safe, Send
from ordercast.core.events import Control, Envelope, Event, LinkDown, LinkUp, Message, Multicast, Received, Tick
from ordercast.core.machines import Machines
from ordercast.core.resume import Resume
from ordercast.names import GroupId, SiteId
from ordercast.protocols.registry import Deployment
from ordercast.sim.film import Film, Flight, Mark
from ordercast.sim.network import Network
from ordercast.sim.workload import Order, Reply
from ordercast.verify.online import Watch


@dataclass(frozen=True)
class Crash:
    """A site stops at a time; with `back` it restarts then, from its log. A pause keeps all that comes in."""

    site: SiteId
    at: float
    back: float | None = None
    pause: bool = False
    between: bool = False
    """Stop in the middle of the next step after that time, between two of its effects."""


class Link(NamedTuple):
    """The link between two sites comes up, or goes down."""

    one: SiteId
    other: SiteId
    up: bool


class _Resumed(NamedTuple):
    """What was told when a link came up, and which link that was."""

    event: Received
    ends: frozenset[SiteId]
    session: int


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One delivery, as it happened."""

    site: SiteId
    envelope: Envelope
    stamp: bytes
    time: float


@dataclass
class Outcome:
    """What a run left behind."""

    sent: list[tuple[Envelope, float, int]] = field(default_factory=list)
    """Envelope, time, and how many messages its source had delivered by then; empty when nothing is kept."""
    deliveries: list[Delivery] = field(default_factory=list)
    sends: int = 0
    delivered: int = 0
    held: dict[SiteId, list[Held]] = field(default_factory=dict)
    messages: int = 0
    """Network messages that the papers count."""
    control: int = 0
    events: int = 0
    time: float = 0.0
    load: dict[SiteId, int] = field(default_factory=dict)
    """Counted messages sent plus received, per site."""


MULTICAST, ORDER, ARRIVE, TICK, FAULT, LINK, RESUME = range(7)
CHECKPOINTS = 0.02  # share of the steps after which a durable site keeps a checkpoint
Trace = Callable[[str], None]
Happening = Event | Crash | Link | _Resumed | None


class World:
    """One run. Nothing in here reads a clock or draws from anything but `chance`."""

    def __init__(
        self,
        deployment: Deployment,
        seed: int = 0,
        network: Network | None = None,
        tick: float = 5.0,
        trace: Trace | None = None,
        durable: bool = False,
        keep: bool = True,
        film: Film | None = None,
    ) -> None:
        self.deployment, self.network, self.tick_every = deployment, network or Network(), tick
        self.chance = random.Random(seed)
        self.trace, self.keep, self.film = trace, keep, film
        self.watch = Watch(deployment.groups.members, deployment.promises, receipts=deployment.receipts)
        self.watch.all_places = not (self.network.loss or self.network.cuts or self.network.jitter or durable)
        self.machines: dict[SiteId, Machines] = {site: deployment.machines(site) for site in deployment.sites}
        self.outcome = Outcome(load=dict.fromkeys(self.machines, 0))
        self.logs: dict[SiteId, list[Event]] | None = {site: [] for site in self.machines} if durable else None
        self._checkpoints: dict[SiteId, tuple[bytes, int]] = {}  # a snapshot, and what had been delivered by then
        self._handed: dict[SiteId, list[tuple[Envelope, bytes]]] = {site: [] for site in self.machines}
        self._doomed: set[SiteId] = set()
        self.now = 0.0
        self._orders: Iterator[Order] = iter(())
        self._reply: Reply | None = None
        self._queue: list[tuple[float, int, int, SiteId, Happening]] = []
        self._order = 0
        self._pending = 0  # queued entries other than ticks
        self._awake: dict[SiteId, None] = {}
        self._ticking = False
        self._down: set[SiteId] = set()
        self._paused: dict[SiteId, list[Event]] = {}
        self._free: dict[SiteId, float] = {}
        self._network_free = 0.0
        self._delivered_at = dict.fromkeys(self.machines, 0)
        self._sessions: dict[frozenset[SiteId], int] = {}  # how often a link went up or down
        for cut in self.network.cuts:
            self._push(cut.begin, LINK, cut.a, Link(cut.a, cut.b, up=False))
            self._push(cut.end, LINK, cut.a, Link(cut.a, cut.b, up=True))

    def multicast(self, time: float, source: SiteId, groups: tuple[GroupId, ...], body: bytes = b"") -> None:
        """Let the application at a site send."""
        self._push(time, MULTICAST, source, Multicast(groups, body, self.deployment.receipts))

    def feed(self, orders: Iterator[Order], reply: Reply | None = None) -> None:
        """Let applications send these, in the order of their times, and answer what is delivered to them."""
        self._orders, self._reply = orders, reply
        self._next_order()

    def _next_order(self) -> None:
        order = next(self._orders, None)
        if order is not None:
            self._push(order.time, ORDER, order.source, Multicast(order.groups, order.body, self.deployment.receipts))

    def crash(self, crash: Crash) -> None:
        """Schedule a crash or a pause, and its end."""
        if self.logs is None and not crash.pause:
            raise ValueError("a world with crashes must be durable")
        self._push(crash.at, FAULT, crash.site, crash)

    def run(self, until: float = float("inf"), events: int = 100_000_000) -> Outcome:
        """Run until nothing is left to do, or a limit; what is then still held is in the outcome."""
        queue, outcome = self._queue, self.outcome
        while queue and queue[0][0] <= until and outcome.events < events:
            self.step_one()
        self.outcome.time = self.now
        for site, machine in self.machines.items():
            held = machine.held()
            if not held and not machine.idle and site not in self._down:
                held = [Held(site, "something is not acknowledged, or not forgotten", self.now)]
            if held:
                self.outcome.held[site] = held
        return self.outcome

    def step_one(self) -> None:
        """Let the next thing happen."""
        self.now, _, kind, site, what = heappop(self._queue)
        if kind == TICK:
            self._tick_all()
            return
        self._pending -= 1
        if kind == ORDER:
            self._next_order()
        if kind == FAULT:
            self._fault(site, what)
        elif kind == LINK:
            self._link(what)  # type: ignore[arg-type]
        elif kind == RESUME and self._sessions.get(what.ends, 0) != what.session:  # type: ignore[union-attr]
            pass  # the link it was about is gone
        elif site in self._down:
            if self.trace and kind in (ARRIVE, RESUME):
                self.trace(f"{self.now:g} {site} is down, lost: {what}")
        elif site in self._paused:
            self._paused[site].append(what.event if kind == RESUME else what)  # type: ignore[union-attr,arg-type]
        else:
            self._feed(site, what.event if kind == RESUME else what)  # type: ignore[union-attr,arg-type]

    def _push(self, time: float, kind: int, site: SiteId, what: Happening) -> None:
        self._order += 1
        self._pending += kind != TICK
        heappush(self._queue, (time, self._order, kind, site, what))

    def _feed(self, site: SiteId, event: Event) -> None:
        self.outcome.events += 1
        if self.trace:
            self.trace(f"{self.now:g} {site} <- {event}")
        effects = self.machines[site].step(event)
        self._awake[site] = None
        if not self._ticking:
            self._ticking = True
            self._push(self.now + self.tick_every, TICK, "", None)
        self._carry_out(site, effects)

    def _carry_out(self, site: SiteId, effects: list[Effect]) -> None:
        """Apply what a step asks for, or some of it when the site is doomed; keep a checkpoint now and then."""
        if site in self._doomed:
            self._doomed.discard(site)
            self._apply(site, effects[: self.chance.randrange(len(effects) + 1)])
            self._stop(site)
            return
        self._apply(site, effects)
        if self.logs is not None and self.chance.random() < CHECKPOINTS:
            state = self.deployment.encode(self.machines[site].snapshot())
            self._checkpoints[site] = (state, len(self._handed[site]))
            self.logs[site].clear()

    def _note_sent(self, site: SiteId, event: Multicast) -> None:
        number = self.machines[site].sent
        self.outcome.sends += 1
        self.watch.sent(site, number, event.groups, event.body)
        if self.film is not None:
            self.film.happens(Mark(site, self.now, "multicast", f"{site}:{number} {'+'.join(event.groups)}"))
        if self.keep:
            class_id = self.deployment.groups.destination(event.groups)
            envelope = Envelope(class_id, event.groups, site, 1, number, event.body)
            self.outcome.sent.append((envelope, self.now, self._delivered_at[site]))

    def _apply(self, site: SiteId, effects: list[Effect]) -> None:
        """Apply effects in order; what is to be durable is in the log before what follows (see `core.effects`)."""
        on_network: dict[Message, float] = {}
        for effect in effects:
            kind = type(effect)
            if kind is Send:
                self._send(site, effect, on_network)  # type: ignore[arg-type]
            elif kind is Deliver:
                self._deliver(site, effect.envelope, effect.stamp)  # type: ignore[union-attr]
            elif kind is Append:
                if self.logs is not None:
                    self.logs[site].append(effect.event)  # type: ignore[union-attr]
                if type(effect.event) is Multicast:  # type: ignore[union-attr]
                    self._note_sent(site, effect.event)  # type: ignore[union-attr]
            elif kind is Placed:
                self.watch.placed(site, effect.number, effect.stamp)  # type: ignore[union-attr]
            elif kind is Safe:
                self.watch.safe(site, effect.number)  # type: ignore[union-attr]
            elif kind is Refuse:
                raise AssertionError(f"{site} refuses an honest peer: {effect}")
            else:
                raise TypeError(f"no such effect: {effect!r}")

    def _deliver(self, site: SiteId, envelope: Envelope, stamp: bytes) -> None:
        self.outcome.delivered += 1
        order = self.deployment.groups.order_of(envelope.groups)
        self.watch.delivered(site, envelope.source, envelope.number, order, stamp, envelope.body)
        if self.logs is not None:
            self._handed[site].append((envelope, stamp))
        if self.keep:
            self._delivered_at[site] += 1
            self.outcome.deliveries.append(Delivery(site, envelope, stamp, self.now))
        if self.trace:
            self.trace(f"{self.now:g} {site} delivers {envelope.msg_id}")
        if self.film is not None:
            self.film.happens(Mark(site, self.now, "deliver", envelope.msg_id))
        if self._reply is not None and (groups := self._reply(site, envelope)):
            self._push(self.now, MULTICAST, site, Multicast(groups, b"reply", self.deployment.receipts))

    def _send(self, sender: SiteId, send: Send, on_network: dict[Message, float]) -> None:
        network, outcome, departs = self.network, self.outcome, self.now
        to, message = send.to, send.message
        if isinstance(message, Control):
            outcome.control += 1
            if type(message) is Resume:
                self._resume(sender, send)
                return
        else:
            outcome.load[sender] += 1
            outcome.load[to] += 1
            if network.broadcast:
                departs = self._broadcast(message, on_network)
            else:
                outcome.messages += 1
                if network.processing:
                    departs = self._free[sender] = max(departs, self._free.get(sender, 0.0)) + network.processing
        if self.film is not None:
            self._fly(sender, send, departs)
            return
        if network.plain:
            self._order += 1
            self._pending += 1
            received = Received(sender, message, send.class_id)
            heappush(self._queue, (departs + network.latency, self._order, ARRIVE, to, received))
            return
        for delay in network.delays(self.chance, sender, to, self.now):
            self._push(departs + delay, ARRIVE, to, Received(sender, message, send.class_id))

    def _resume(self, sender: SiteId, send: Send) -> None:
        """Send what is good for this link only: it goes with a link that is down by the time it arrives."""
        if self.film is not None:
            self.film.flies(flight_of(sender, send.to, send.message, self.now, self.now + self.network.latency))
        ends = frozenset((sender, send.to))
        session = self._sessions.get(ends, 0)
        for delay in self.network.delays(self.chance, sender, send.to, self.now):
            arrived = _Resumed(Received(sender, send.message, send.class_id), ends, session)
            self._push(self.now + delay, RESUME, send.to, arrived)

    def _fly(self, sender: SiteId, send: Send, departs: float) -> None:
        """Send, and film it."""
        assert self.film is not None
        to, message = send.to, send.message
        delays = self.network.delays(self.chance, sender, to, self.now)
        for delay in delays:
            self._push(departs + delay, ARRIVE, to, Received(sender, message, send.class_id))
        for delay in delays or [self.network.latency]:
            lost = not delays or to in self._down
            self.film.flies(flight_of(sender, to, message, departs, departs + delay, lost=lost))

    def _broadcast(self, message: Message, on_network: dict[Message, float]) -> float:
        """One transmission reaches all who are sent this message; return when it leaves for them."""
        inner: Message = getattr(message, "message", message)
        if inner not in on_network:
            self.outcome.messages += 1
            self._network_free = on_network[inner] = max(self._network_free, self.now) + self.network.broadcast
        return on_network[inner] - self.network.latency

    def _tick_all(self) -> None:
        """Let time pass for those who have something to do; no more ticks when nobody has and nothing is under way."""
        tick = Tick(self.now)
        for site in list(self._awake):
            if site in self._down or site in self._paused:
                continue
            machine = self.machines[site]
            self.outcome.events += 1
            self._carry_out(site, machine.step(tick))
            if machine.idle and site not in self._down:
                del self._awake[site]
        if self._awake and (self._pending or not self._awake.keys() <= self._down):
            self._push(self.now + self.tick_every, TICK, "", None)
        else:
            self._ticking = False

    def _fault(self, site: SiteId, crash: Happening) -> None:
        assert isinstance(crash, Crash)
        if crash.pause and site in self._paused:
            held_up = self._paused.pop(site)
            for event in held_up:
                self._feed(site, event)
        elif site in self._doomed:  # no event came in time: it stops before one
            self._doomed.discard(site)
            self._stop(site)
            self._restart(site)
        elif site in self._down:
            self._restart(site)
        else:
            if crash.pause:
                self._paused[site] = []
                if self.trace:
                    self.trace(f"{self.now:g} {site} pauses")
            elif crash.between and site in self.machines:
                self._doomed.add(site)
            else:
                self._stop(site)
            if crash.back is not None:
                self._push(crash.back, FAULT, site, crash)

    def _link(self, link: Link) -> None:
        """Tell both ends, as far as they are there, that their link is up or down."""
        ends = frozenset(link[:2])
        self._sessions[ends] = self._sessions.get(ends, 0) + 1
        if link.up and (self._down & ends or self.network.is_cut(link.one, link.other, self.now)):
            return
        for site, peer in ((link.one, link.other), (link.other, link.one)):
            if site in self._paused:
                self._paused[site].append(LinkUp(peer) if link.up else LinkDown(peer))
            elif site in self.machines and site not in self._down:
                self._feed(site, LinkUp(peer) if link.up else LinkDown(peer))

    def _stop(self, site: SiteId) -> None:
        self._down.add(site)
        for other in self.machines:
            if other != site:
                self._link(Link(site, other, up=False))
        self.watch.lost_receipts(site)
        if self.trace:
            self.trace(f"{self.now:g} {site} crashes")
        if self.film is not None:
            self.film.happens(Mark(site, self.now, "crash"))

    def _restart(self, site: SiteId) -> None:
        """Build the machine anew and step it through its log; its effects were done, or its edges will see to them.

        Deliveries that were logged and not handed over are handed over now.
        """
        assert self.logs is not None
        self._down.discard(site)
        state, before = self._checkpoints.get(site, (None, 0))
        machine = self.machines[site] = self.deployment.machines(site)
        if state is not None:
            machine.restore(self.deployment.decode(state))
        again = self._handed[site][before:]
        for event in self.logs[site]:
            for effect in machine.step(event):
                if type(effect) is Deliver:
                    now = (effect.envelope, effect.stamp)
                    if not again:
                        self._deliver(site, *now)
                    elif again.pop(0) != now:
                        self.watch.differs(site, effect.envelope.source, effect.envelope.number)
                elif type(effect) in (Placed, Safe):
                    self._apply(site, [effect])
                elif type(effect) not in (Append, Send):
                    raise TypeError(f"a replay asks for what was not asked for before: {effect!r}")
        if again:
            self.watch.differs(site, again[0][0].source, again[0][0].number)
        self._awake[site] = None
        if not self._ticking:
            self._ticking = True
            self._push(self.now + self.tick_every, TICK, "", None)
        if self.trace:
            self.trace(f"{self.now:g} {site} is back, {len(self.logs[site])} events replayed")
        if self.film is not None:
            self.film.happens(Mark(site, self.now, "back"))
        for other in self.machines:
            if other != site:
                self._link(Link(site, other, up=True))


def flight_of(
    sender: SiteId, to: SiteId, message: Message, departs: float, arrives: float, *, lost: bool = False
) -> Flight:
    """Return a message as a picture shows it."""
    inner: Message = getattr(message, "message", message)
    envelope: Envelope | None = getattr(inner, "envelope", None)
    if isinstance(message, Control):
        return Flight(sender, to, departs, arrives, str(message), lost=lost)
    name = envelope.msg_id if envelope is not None else str(inner)
    return Flight(sender, to, departs, arrives, f"{type(inner).__name__} {name}" if envelope else name, name, lost)
