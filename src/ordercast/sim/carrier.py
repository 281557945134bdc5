"""The event queue in virtual time, and the links that put messages into it: delayed, lost, doubled, or not at all."""

import random
from heapq import heappush

from ordercast.core.effects import Send
from ordercast.core.events import Control, Event, LinkDown, LinkUp, Message, Received
from ordercast.core.resume import Resume
from ordercast.core.streams import Carry
from ordercast.names import SiteId
from ordercast.sim.film import Film, Mark, flight_of
from ordercast.sim.happenings import ARRIVE, LINK, RESUME, TICK, Happening, Link, Outcome, Resumed, Trace
from ordercast.sim.network import Network


class Carrier:
    """What carries messages; the world is one."""

    def __init__(
        self, network: Network, seed: int, tick: float, trace: Trace | None, film: Film | None, sites: list[SiteId]
    ) -> None:
        self.network, self.chance, self.trace, self.film = network, random.Random(seed), trace, film
        self.outcome = Outcome(load=dict.fromkeys(sites, 0))
        self.now, self.tick_every = 0.0, tick
        self._awake: dict[SiteId, None] = {}  # sites that have something to do at ticks
        self._ticking = False
        self._queue: list[tuple[float, int, int, SiteId, Happening]] = []
        self._order = 0
        self._pending = 0  # queued entries other than ticks
        self._down: set[SiteId] = set()
        self._free: dict[SiteId, float] = {}
        self._network_free = 0.0
        self._sessions: dict[frozenset[SiteId], int] = {}  # how often a link went up or down
        for cut in self.network.cuts:
            self._push(cut.begin, LINK, cut.a, Link(cut.a, cut.b, up=False))
            self._push(cut.end, LINK, cut.a, Link(cut.a, cut.b, up=True))

    def _push(self, time: float, kind: int, site: SiteId, what: Happening) -> None:
        self._order += 1
        self._pending += kind != TICK
        heappush(self._queue, (time, self._order, kind, site, what))

    def _wake(self, site: SiteId) -> None:
        self._awake[site] = None
        if not self._ticking:
            self._ticking = True
            self._push(self.now + self.tick_every, TICK, "", None)

    def _send(self, sender: SiteId, send: Send, on_network: dict[Message, float]) -> None:
        network, outcome, departs = self.network, self.outcome, self.now
        to, message = send.to, send.message
        if type(message) is not Carry and isinstance(message, Control):
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
            arrived = Resumed(Received(sender, send.message, send.class_id), ends, session)
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

    def _link(self, link: Link) -> None:
        """Tell both ends, as far as they are there, that their link is up or down."""
        ends = frozenset(link[:2])
        self._sessions[ends] = self._sessions.get(ends, 0) + 1
        if link.up and (self._down & ends or self.network.is_cut(link.one, link.other, self.now)):
            return
        for site, peer in ((link.one, link.other), (link.other, link.one)):
            if site in self.outcome.load:
                self._arrive(site, LinkUp(peer) if link.up else LinkDown(peer))

    def _arrive(self, site: SiteId, event: Event) -> None:
        """Something has reached a site."""
        raise NotImplementedError

    def _mark(self, site: SiteId, kind: str, text: str = "") -> None:
        if self.film is not None:
            self.film.happens(Mark(site, self.now, kind, text))

    def _tell(self, what: str) -> None:
        if self.trace:
            self.trace(f"{self.now:g} {what}")
