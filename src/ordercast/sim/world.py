"""The world: an event queue in virtual time that feeds machines and applies their effects, driven by one seed.

Crashes lose the machine and everything under way to it, between two events or between two effects of one step; a
restart builds the machine of the last checkpoint and steps it through the rest of its log. What it delivers then must
be what it had delivered, and perhaps more: so a host goes on without doubling anything. Ticks go only to sites that
have something to do, so a run ends by itself when nothing is left: that is quiescence.

Sites are told of their links: a link is down while it is cut or one of its ends is, and up again after that. What two
sites tell each other when a link comes up (`Resume`) is only good for that link: it is lost when the link is.
"""

from collections.abc import Iterator
from heapq import heappop

from ordercast.core.effects import Append, Deliver, Effect, Held, Placed, Refuse, Safe, Send
from ordercast.core.events import Envelope, Event, Message, Multicast, Received, Tick
from ordercast.core.machines import Machines
from ordercast.names import GroupId, SiteId
from ordercast.protocols.registry import Deployment
from ordercast.sim.carrier import Carrier
from ordercast.sim.film import Film, Mark
from ordercast.sim.happenings import (
    ARRIVE,
    FAULT,
    LINK,
    MULTICAST,
    ORDER,
    RESUME,
    TICK,
    Crash,
    Delivery,
    Happening,
    Link,
    Outcome,
    Trace,
)
from ordercast.sim.network import Network
from ordercast.sim.workload import Order, Reply
from ordercast.verify.online import Watch

CHECKPOINTS = 0.02  # share of the steps after which a durable site keeps a checkpoint


class World(Carrier):
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
        super().__init__(network or Network(), seed, tick, trace, film, deployment.sites)
        self.deployment, self.keep = deployment, keep
        self.watch = Watch(deployment.groups.members, deployment.promises, receipts=deployment.receipts)
        self.watch.all_places = not (self.network.loss or self.network.cuts or self.network.jitter or durable)
        self.machines: dict[SiteId, Machines] = {site: deployment.machines(site) for site in deployment.sites}
        self.logs: dict[SiteId, list[Event]] | None = {site: [] for site in self.machines} if durable else None
        self._checkpoints: dict[SiteId, tuple[bytes, int]] = {}  # a snapshot, and what had been delivered by then
        self._handed: dict[SiteId, list[tuple[Envelope, bytes]]] = {site: [] for site in self.machines}
        self._doomed: set[SiteId] = set()
        self._orders: Iterator[Order] = iter(())
        self._reply: Reply | None = None
        self._paused: dict[SiteId, list[Event]] = {}
        self._delivered_at = dict.fromkeys(self.machines, 0)
        self._order_of = {group: deployment.groups.order_of((group,)) for group in deployment.groups.members}

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
        if kind == ARRIVE and not self._down and not self._paused:
            self._feed(site, what)  # type: ignore[arg-type]
            return
        if kind == ORDER:
            self._next_order()
        if kind == FAULT:
            self._fault(site, what)
        elif kind == LINK:
            self._link(what)  # type: ignore[arg-type]
        elif kind == RESUME:
            if self._sessions.get(what.ends, 0) == what.session:  # type: ignore[union-attr]
                self._arrive(site, what.event)  # type: ignore[union-attr]
        else:
            self._arrive(site, what)  # type: ignore[arg-type]

    def _arrive(self, site: SiteId, event: Event) -> None:
        if site in self._down:
            if self.trace and type(event) is Received:
                self.trace(f"{self.now:g} {site} is down, lost: {event}")
        elif site in self._paused:
            self._paused[site].append(event)
        else:
            self._feed(site, event)

    def _feed(self, site: SiteId, event: Event) -> None:
        self.outcome.events += 1
        if self.trace:
            self.trace(f"{self.now:g} {site} <- {event}")
        effects = self.machines[site].step(event)
        self._awake[site] = None
        if not self._ticking:
            self._wake(site)
        (self._apply if self.logs is None else self._carry_out)(site, effects)

    def _carry_out(self, site: SiteId, effects: list[Effect]) -> None:
        """Apply what a step of a durable site asks for, or some of it when it is doomed; checkpoint now and then."""
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
        self._mark(site, "multicast", f"{site}:{number} {'+'.join(event.groups)}")
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
        order = self._order_of[envelope.groups[0]]
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
            for event in self._paused.pop(site):
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
                self._tell(f"{site} pauses")
            elif crash.between and site in self.machines:
                self._doomed.add(site)
            else:
                self._stop(site)
            if crash.back is not None:
                self._push(crash.back, FAULT, site, crash)

    def _stop(self, site: SiteId) -> None:
        self._down.add(site)
        for other in self.machines:
            if other != site:
                self._link(Link(site, other, up=False))
        self.watch.lost_receipts(site)
        self._tell(f"{site} crashes")
        self._mark(site, "crash")

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
        self._replay(site, machine, self._handed[site][before:])
        self._wake(site)
        self._tell(f"{site} is back, {len(self.logs[site])} events replayed")
        self._mark(site, "back")
        for other in self.machines:
            if other != site:
                self._link(Link(site, other, up=True))

    def _replay(self, site: SiteId, machine: Machines, again: list[tuple[Envelope, bytes]]) -> None:
        """Step a machine through its log; it must deliver `again` what it had delivered, and perhaps more."""
        assert self.logs is not None
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
                elif type(effect) is not Append and type(effect) is not Send:
                    raise AssertionError(f"{site} asks in a replay for what it had not asked for before: {effect}")
        if again:
            self.watch.differs(site, again[0][0].source, again[0][0].number)
