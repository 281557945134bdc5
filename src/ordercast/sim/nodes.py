"""Worlds of nodes: virtual time, one seed, real `Node` objects, and a network, disks and clients around them.

A host carries out what its node asks for, as `live.site` does on asyncio. Beside that it crashes: in the middle of a
turn, while the disk writes, between a commit and the word of it. Everything else that can happen to a site is in
`sim.faults`. The ledger is told of what clients do and see, and of what disks hold; it never looks into a node.
"""

import random
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from ordercast.core.effects import Send
from ordercast.errors import HistoryError, OrdercastError
from ordercast.history.store import History
from ordercast.names import SiteId
from ordercast.node import inputs as io
from ordercast.node.node import Node
from ordercast.node.settings import Settings
from ordercast.protocols.registry import Deployment
from ordercast.sim.disk import Disk
from ordercast.sim.ledger import Ledger, Life
from ordercast.sim.lines import End, Line
from ordercast.sim.network import Network
from ordercast.sim.storage import Storage
from ordercast.wire.tags import Code

BEGIN = 1000.0  # the clock when a world begins, in seconds: incarnations are times
FIRST_CALL, LAST_CALL = 0.05, 2.0


class World:
    """One run. Nothing in here reads a clock or draws from anything but `chance`."""

    def __init__(
        self,
        deployment: Deployment,
        settings: Settings,
        seed: int = 0,
        network: Network | None = None,
        wire: float = 0.0,
        trace: Callable[[str], None] | None = None,
    ) -> None:
        """`wire` is the share of what is sent that passes the codec."""
        self.deployment, self.settings, self.wire, self.trace = deployment, settings, wire, trace
        self.network = network if network is not None else Network(latency=0.002)
        self.chance = random.Random(seed)
        self.now = BEGIN
        self.events = 0
        self.ledger = Ledger(deployment.groups, deployment.promises, settings.durable)
        self.ledger.places_known = not (self.network.loss or self.network.duplicate)
        self.cut: set[frozenset[SiteId]] = set()
        self.met: dict[tuple[SiteId, SiteId], int] = {}  # who has told whom something, and on which of its disks
        self.slow: dict[frozenset[SiteId], float] = {}
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0
        self.hosts = {site: Host(self, site) for site in deployment.sites}

    def after(self, seconds: float, do: Callable[..., None], *args: Any) -> None:
        """Let something happen later."""
        self._order += 1
        heappush(self._queue, (self.now + seconds, self._order, do, args))

    def run(self, until: float, events: int = 300_000) -> bool:
        """Run to a time, or until nothing is left to happen; returns whether nothing is left."""
        while self._queue and self._queue[0][0] <= until and self.events < events:
            self.now, _, do, args = heappop(self._queue)
            self.events += 1
            do(*args)
        if self._queue:
            self.now = max(self.now, until)
        return not self._queue

    def note(self, line: str) -> None:
        """Write one line of a trace."""
        if self.trace is not None:
            self.trace(f"{self.now - BEGIN:.4f} {line}")

    def delay(self, sender: SiteId, receiver: SiteId) -> float:
        """Return how long a message takes."""
        network = self.network
        usual = network.latency + network.jitter * self.chance.random()
        return usual * self.slow.get(frozenset((sender, receiver)), 1.0) if self.slow else usual

    def reachable(self, one: SiteId, other: SiteId) -> bool:
        """Whether a connection can be made."""
        return self.hosts[other].listens and frozenset((one, other)) not in self.cut


class Host:
    """A site's process and machine: a node, a disk, connections, clients; it may be down, or asleep."""

    def __init__(self, world: World, site: SiteId) -> None:
        self.world, self.site = world, site
        self.storage = Storage(self)
        self.node: Node
        self.life = 0
        self.runs = False
        self.told_lost = False  # in this life: a peer says that this site has lost its history
        self.doomed = False  # it crashes in the middle of its next turn
        self.asleep: list[tuple[Callable[..., None], tuple[Any, ...]]] | None = None
        self.links: dict[SiteId, End] = {}
        self.ends: dict[End, None] = {}  # in the order they were made
        self.stopped: OrdercastError | str | None = None
        self.on_start: list[Callable[[], None]] = []
        self.on_resolve: Callable[[Any], None] = lambda token: None
        self.on_answer: Callable[[io.Resolve], None] = lambda output: None
        self.on_more: dict[Any, Callable[[], None]] = {}
        self._waits: dict[SiteId, float] = {}  # whom we keep calling, and how long until the next call
        self._calls: set[SiteId] = set()  # calls that are planned
        self._wake_number = 0
        self._carry: dict[type, Callable[[Any], None]] = {
            Send: self._send, io.Write: self.storage.write, io.Keep: self.storage.keep, io.ReadPast: self.storage.read,
            io.Resolve: self._resolve, io.Delivered: self._delivered, io.Sent: lambda output: None,
            io.More: self._more, io.WakeAt: self._wake_at, io.Dial: lambda output: self.dial(output.peer),
            io.Hangup: self._hang_up, io.Anew: self._begin_anew,
            io.Note: lambda output: world.note(f"{site} {output.event} {output.facts}"), io.Stopped: self._stopped,
        }  # fmt: skip

    @property
    def me(self) -> Life:
        """This life of the site."""
        return self.site, self.life

    @property
    def disk(self) -> Disk:
        """What keeps its history."""
        return self.storage.disk

    @property
    def listens(self) -> bool:
        """Whether somebody takes calls; a process that sleeps does."""
        return self.runs

    # Lives.

    def start(self) -> None:
        """Begin a life: open the history, replay it, call the peers."""
        if self.runs:
            return
        world, settings = self.world, self.world.settings
        self.life += 1
        self.stopped, self.told_lost = None, False
        history = self.storage.open(settings, int(world.now * 1000))
        self.node = self.make(history)
        self.runs = True
        world.note(f"{self.site} starts, life {self.life}")
        try:
            for outputs in self.node.start():
                self.carry(outputs)
        except HistoryError as error:  # somebody makes room, and starts it again
            self.node.fail(error)
            self.carry(self.node.turn())
        for begin in self.on_start if self.runs else ():
            begin()

    def make(self, history: History) -> Node:
        """Return the node of a new life."""
        world = self.world
        return Node(self.site, world.settings, world.deployment, history, lambda: world.now)

    def crash(self) -> None:
        """End this life without a word: kill -9, or the power fails."""
        if not self.runs:
            return
        world = self.world
        world.note(f"{self.site} crashes")
        world.ledger.gone(self.me)
        world.ledger.places_known = False
        self._end(abruptly=True)

    def _end(self, *, abruptly: bool) -> None:
        self.runs, self.doomed, self.asleep = False, False, None
        for end in self.ends:
            end.closed, other = True, end.line.other(end)
            if abruptly and self.world.chance.random() < 0.5:
                end.line.dead = True
            self.world.after(self.world.delay(self.site, other.host.site), other.lost)
        self.links.clear()
        self.ends.clear()
        self._waits.clear()
        self._calls.clear()
        self.on_more.clear()
        self.storage.power_off()

    def sleep(self) -> None:
        """Stop the process for a while (SIGSTOP); peers give up on it only when it takes too long."""
        if self.runs and self.asleep is None:
            self.world.note(f"{self.site} sleeps")
            self.asleep = []

    def sleeps(self, do: Callable[..., None], *args: Any) -> bool:
        """Whether the process is stopped; then this is done when it goes on."""
        if self.asleep is None:
            return False
        self.asleep.append((do, args))
        return True

    def wake(self) -> None:
        """Let the process go on with all that came meanwhile."""
        waiting, self.asleep = self.asleep, None
        for do, args in waiting or ():
            do(*args)

    def _stopped(self, output: io.Stopped) -> None:
        self.stopped = output.error if output.error is not None else "drained"
        self.world.note(f"{self.site} stopped: {self.stopped}")
        self.world.ledger.places_known = False
        if output.error is not None or not self.world.settings.durable:
            self.world.ledger.crashed.add(self.me)
        self._end(abruptly=False)

    # Feeding the node, and carrying out what it asks for.

    def later(self, seconds: float, do: Callable[..., None], *args: Any) -> None:
        """Let something happen in this life, if it lasts so long."""
        self.world.after(seconds, self._in_life, self.life, do, args)

    def _in_life(self, life: int, do: Callable[..., None], args: tuple[Any, ...]) -> None:
        if life == self.life and self.runs and not self.sleeps(self._in_life, life, do, args):
            do(*args)

    def feed(self, given: io.Input) -> None:
        """Feed the node."""
        if self.runs:
            if self.world.trace is not None and not isinstance(given, io.Wake):
                self.world.note(f"{self.site} <- {given}")
            self.carry(self.node.take(given))

    def carry(self, outputs: list[io.Output]) -> None:
        """Do what the node asks for, in order; some of it when the host is doomed."""
        chance = self.world.chance
        if self.doomed:
            outputs = outputs[: chance.randrange(len(outputs) + 1)]
        for output in outputs:
            self._carry[type(output)](output)
        for end in list(self.links.values()):
            if end.waiting:
                end.flush()
        if self.doomed:
            self.crash()

    def _send(self, effect: Send) -> None:
        end = self.links.get(effect.to)
        if end is not None and end.up:
            end.waiting.append((effect.class_id, effect.message))

    def _delivered(self, output: io.Delivered) -> None:
        self.world.ledger.delivered(self.me, output.lot, output.before)

    def _resolve(self, output: io.Resolve) -> None:
        if output.token is not None and output.token[0] == "flush":
            self.world.ledger.flushed(output.token, output.error)
        elif output.token is not None:
            names: tuple[str, ...] = output.token
            self.world.ledger.answered(names, output.receipts, output.error)
            self.on_resolve(names)
            self.on_answer(output)

    def _more(self, output: io.More) -> None:
        wake = self.on_more.get(output.reader)
        if wake is not None:
            wake()

    def _wake_at(self, output: io.WakeAt) -> None:
        self._wake_number += 1
        self.later(max(0.0, output.time - self.world.now), self._wake, self._wake_number)

    def _wake(self, number: int) -> None:
        if number == self._wake_number:  # a later word replaces an earlier one
            self.feed(io.Wake())

    # Connections.

    def dial(self, peer: SiteId) -> None:
        """Keep a link to a peer, from now on."""
        self._waits.setdefault(peer, FIRST_CALL)
        self._call_later(peer, self.world.chance.uniform(0, 0.01))

    def _call_later(self, peer: SiteId, wait: float) -> None:
        if peer in self._waits and peer not in self._calls:
            self._calls.add(peer)
            self.later(wait, self._call, peer)

    def _call(self, peer: SiteId) -> None:
        self._calls.discard(peer)
        if peer in self.links or any(end.wanted == peer for end in self.ends):
            return
        if not self.world.reachable(self.site, peer):
            self._waits[peer] = min(2 * self._waits[peer], LAST_CALL)
            self._call_later(peer, self._waits[peer])
            return
        line = Line(self, self.world.hosts[peer])
        for end in line.ends:
            end.host.ends[end] = None
        line.ends[0].greet(peer)

    def prefers(self, end: End) -> bool:
        """Whether a link that has just greeted is better than the one we have: of two, the lower name's call stays."""
        old = self.links.get(end.peer or "")
        return old is None or not old.up or old.boot != end.boot or end.dialler == min(self.site, end.peer or "")

    def linked(self, end: End, peer: SiteId) -> None:
        """From now on this is the link to a peer."""
        old = self.links.pop(peer, None)
        if old is not None:
            old.abort()
            self.feed(io.LinkLost(peer))
        self.links[peer] = end

    def unlinked(self, end: End) -> None:
        """A connection is gone."""
        self.ends.pop(end, None)
        peer = end.peer or end.wanted
        if end.peer is not None and self.links.get(end.peer) is end:
            del self.links[end.peer]
            self.world.ledger.places_known = False
            self.feed(io.LinkLost(end.peer))
        if peer in self._waits:
            self._waits[peer] = FIRST_CALL if end.peer is not None else min(2 * self._waits[peer], LAST_CALL)
            self._call_later(peer, self._waits[peer])

    def _begin_anew(self, output: io.Anew) -> None:
        for end in list(self.links.values()):
            end.abort()

    def _hang_up(self, output: io.Hangup) -> None:
        self.world.note(f"{self.site} hangs up on {output.peer}: {output.reason}")
        end = self.links.get(output.peer)
        if end is not None:
            end.refuse(output.reason, Code(output.code)) if output.reason else end.close()
