"""Worlds of participants: groups that change and sites that fail, in virtual time, driven by one seed.

A host drives one `Participant` with its log on a disk that may be lost. It crashes between any two effects of a step
and comes back from its last checkpoint and the log behind it; then it must tell its application the same again. Links
lose, double and delay; they are cut, one way or both. A failure detector suspects whom it has not reached for some
time, and now and then somebody who is well. `verify.changes` judges what applications see.
"""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import Any

import msgspec

from ordercast.core.effects import Append, Deliver, Effect, Placed, Refuse, Safe, Send
from ordercast.core.events import Event, LinkDown, LinkUp, Message, Multicast, Received, Tick
from ordercast.epochs import events as e
from ordercast.epochs import snapshot
from ordercast.epochs.change import Change, plan_change
from ordercast.epochs.messages import Decided
from ordercast.epochs.participant import Participant
from ordercast.epochs.setup import Setup
from ordercast.errors import LocalError
from ordercast.names import ClassId, Delivery, GroupId, SiteId
from ordercast.sim.network import Network
from ordercast.verify.changes import Changes

CHECKPOINTS = 0.02  # share of the steps after which a site keeps a checkpoint


@dataclass(frozen=True)
class Fault:
    """Something goes wrong at a time, for a while."""

    kind: str
    """crash, lose (its disk too), pause, cut, one-way, suspect."""
    at: float
    site: SiteId
    other: SiteId = ""
    lasts: float = 20.0


@dataclass(frozen=True)
class Case:
    """What to run."""

    setup: Setup
    promises: frozenset[str]
    network: Network = field(default_factory=Network)
    seed: int = 0
    sends: tuple[tuple[float, SiteId, tuple[GroupId, ...]], ...] = ()
    changes: tuple[tuple[float, SiteId, Change], ...] = ()
    faults: tuple[Fault, ...] = ()
    tick: float = 1.0
    suspect_after: float = 6.0
    settle: float = 400.0
    """How long after the last event everything must be done."""


class Host:
    """A site: its participant, its disk, and its application."""

    def __init__(self, world: "World", site: SiteId, setup: Setup) -> None:
        self.world, self.site = world, site
        self.life = 1
        self.first = setup
        self.participant = Participant(site, setup)
        self.log: list[Event] = []
        self.checkpoint: bytes | None = None
        self.told: list[tuple[Any, ...]] = []  # what the application was told since the checkpoint
        self.up, self.paused, self.doomed = True, False, False
        self.waiting: list[Event] = []
        self.unseen: dict[SiteId, float] = {}  # since when peers are out of reach
        self.answers: list[e.Answered] = []


class World:
    """One run. Nothing in here reads a clock or draws from anything but `chance`."""

    def __init__(self, case: Case, trace: Callable[[str], None] | None = None) -> None:
        self.case, self.trace = case, trace
        self.chance = random.Random(case.seed)
        self.now = 0.0
        self.judge = Changes(case.promises)
        self.queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0
        self.hosts = {site: Host(self, site, case.setup) for site in sorted(case.setup.sites)}
        self.cut: dict[tuple[SiteId, SiteId], int] = {}  # one way each, and how often
        self.forced: set[tuple[SiteId, SiteId]] = set()  # who suspects whom for no reason
        self.messages: dict[str, int] = {}
        self.events = 0
        self.stopped_at: dict[ClassId, float] = {}
        for time, site, groups in case.sends:
            self.at(time, self._multicast, site, groups)
        for time, site, change in case.changes:
            self.at(time, self._request, site, change)
        for fault in case.faults:
            self.at(fault.at, getattr(self, "_" + fault.kind.replace("-", "_")), fault)
        self.at(case.tick, self._ticks)

    def at(self, time: float, do: Callable[..., None], *args: Any) -> None:
        """Let something happen at a time."""
        self._order += 1
        heappush(self.queue, (time, self._order, do, args))

    def note(self, line: str) -> None:
        """Write one line of a trace."""
        if self.trace is not None:
            self.trace(f"{self.now:.2f} {line}")

    # Time and faults.

    def run(self, until: float) -> None:
        """Run to a time."""
        while self.queue and self.queue[0][0] <= until:
            self.now, _, do, args = heappop(self.queue)
            do(*args)
        self.now = until

    def _ticks(self) -> None:
        for host in list(self.hosts.values()):
            if host.up and not host.paused:
                self._detect(host)
                if not host.participant.idle or host.participant.suspected:
                    self.feed(host, Tick(self.now))
        self.at(self.now + self.case.tick, self._ticks)

    def reaches(self, one: SiteId, other: SiteId) -> bool:
        """Whether what one says gets to the other."""
        host = self.hosts.get(other)
        return host is not None and host.up and not host.paused and (one, other) not in self.cut

    def _detect(self, host: Host) -> None:
        """Suspect whom nothing was heard of for some time, and trust those who are back."""
        for other in sorted(self.hosts):
            if other == host.site:
                continue
            linked = self.reaches(other, host.site) and self.reaches(host.site, other)
            well = linked and (host.site, other) not in self.forced
            if well:
                host.unseen.pop(other, None)
                if other in host.participant.suspected:
                    self.feed(host, e.Trusted(other))
            else:
                since = host.unseen.setdefault(other, self.now)
                long = self.now - since >= self.case.suspect_after or (host.site, other) in self.forced
                if long and other not in host.participant.suspected and host.up:
                    self.feed(host, e.Suspected(other))

    def _crash(self, fault: Fault) -> None:
        host = self.hosts.get(fault.site)
        if host is not None and host.up:
            if self.chance.random() < 0.5:
                host.doomed = True
                self.at(self.now + 2 * self.case.tick, self._kill_doomed, host)
            else:
                self.stop(host)
        self.at(self.now + fault.lasts, self._back, fault.site)

    def _kill_doomed(self, host: Host) -> None:
        if host.doomed and host.up:
            self.stop(host)

    def _lose(self, fault: Fault) -> None:
        host = self.hosts.get(fault.site)
        if host is not None and host.up:
            self.stop(host)
            host.log, host.checkpoint, host.told = [], None, []
            host.life += 1
            host.first = nothing(host.first)
            setup = max((h.participant.setup for h in self.hosts.values()), key=lambda setup: setup.number)
            self.judge.forgot(host.site, {g for g in setup.groups if set(setup.members(g)) <= {host.site}})
        self.at(self.now + fault.lasts, self._back, fault.site)

    def stop(self, host: Host) -> None:
        """End a site's life without a word."""
        self.note(f"{host.site} crashes")
        host.up = host.doomed = False
        host.paused, host.waiting = False, []
        self._links(host.site, up=False)

    def _back(self, site: SiteId) -> None:
        host = self.hosts.get(site)
        if host is not None and host.doomed:
            self.stop(host)
        if host is not None and not host.up:
            self.start(host)

    def start(self, host: Host) -> None:
        """Begin a site's next life: step through the log, tell the application what it was told, and perhaps more."""
        host.up, host.unseen = True, {}
        participant = host.participant = Participant(host.site, host.first, host.life)
        if host.checkpoint is not None:
            participant.restore(snapshot.decode(host.checkpoint))
            participant.suspected.clear()
            participant.manager.__init__(participant)  # type: ignore[misc]
        again = list(host.told)
        for event in host.log:
            for effect in participant.step(event):
                told = self._tells(host, effect)
                if told is not None and again:
                    if again[0] != told:
                        self.judge.problem(
                            "replay", f"{host.site} says {told} after a restart, and had said {again[0]}"
                        )
                    again.pop(0)
                elif told is not None:
                    self._tell(host, effect, told)
                elif isinstance(effect, (Placed, Safe)):
                    self._apply(host, [effect])
        if again:
            self.judge.problem("replay", f"{host.site} does not say {again[0]} again after a restart")
        self.note(f"{host.site} is back, configuration {participant.setup.number}")
        self._links(host.site, up=True)

    def _links(self, site: SiteId, *, up: bool) -> None:
        for other in sorted(self.hosts):
            if other != site and self.hosts[other].up:
                self._link(site, other, up=up)

    def _link(self, one: SiteId, other: SiteId, *, up: bool) -> None:
        for a, b in ((one, other), (other, one)):
            host = self.hosts[a]
            if host.up:
                self._arrive(a, LinkUp(b) if up else LinkDown(b))

    def _pause(self, fault: Fault) -> None:
        host = self.hosts.get(fault.site)
        if host is not None and host.up and not host.paused:
            host.paused = True
            self.note(f"{host.site} pauses")
            self.at(self.now + fault.lasts, self._resume, host)

    def _resume(self, host: Host) -> None:
        if not host.paused:
            return
        host.paused = False
        self.note(f"{host.site} goes on")
        waiting, host.waiting = host.waiting, []
        for event in waiting:
            if host.up:
                self.feed(host, event)

    def _cut(self, fault: Fault) -> None:
        self._one_way(fault)
        self._one_way(replace(fault, site=fault.other, other=fault.site))

    def _one_way(self, fault: Fault) -> None:
        way = (fault.site, fault.other)
        self.cut[way] = self.cut.get(way, 0) + 1
        self.note(f"cut {way}")
        self.at(self.now + fault.lasts, self._mend, way)

    def _mend(self, way: tuple[SiteId, SiteId]) -> None:
        if way in self.cut:
            self.cut[way] -= 1
            if not self.cut[way]:
                del self.cut[way]
                self.note(f"mended {way}")
                if way[0] in self.hosts and way[1] in self.hosts and self.hosts[way[0]].up and self.hosts[way[1]].up:
                    self._link(*way, up=True)

    def _suspect(self, fault: Fault) -> None:
        """Suspect a site that is well, at some others or at all of them."""
        by = [s for s in sorted(self.hosts) if s != fault.site and (not fault.other or s == fault.other)]
        pairs = [(s, fault.site) for s in by]
        self.forced.update(pairs)
        self.at(self.now + fault.lasts, self.forced.difference_update, pairs)

    def calm(self) -> None:
        """All faults end."""
        self.cut.clear()
        self.forced.clear()
        for host in list(self.hosts.values()):
            if host.doomed:
                self.stop(host)
            self._resume(host)
            if not host.up:
                self.start(host)
        for one in sorted(self.hosts):
            for other in sorted(self.hosts):
                if one < other:
                    self._link(one, other, up=True)

    # What goes in and out.

    def _multicast(self, site: SiteId, groups: tuple[GroupId, ...]) -> None:
        host = self.hosts.get(site)
        if host is None or not host.up or host.paused:
            return
        try:
            host.participant.setup.destination(site, groups)
        except LocalError:
            return
        self.feed(host, Multicast(groups, b"", True))

    def _request(self, site: SiteId, change: Change) -> None:
        host = self.hosts.get(site)
        if host is not None and host.up and not host.paused:
            self.feed(host, e.Requested(change))
        else:
            self.at(self.now + 5.0, self._request, site, change)

    def add_site(self, site: SiteId) -> None:
        """Start a site that nobody knows yet; it learns everything from the others."""
        self.hosts[site] = Host(self, site, nothing(self.case.setup))
        self._links(site, up=True)

    def _arrive(self, site: SiteId, event: Event) -> None:
        host = self.hosts.get(site)
        if host is None or not host.up:
            return
        if host.paused:
            host.waiting.append(event)
        else:
            self.feed(host, event)

    def feed(self, host: Host, event: Event) -> None:
        """Let a site take an event, and carry out what it asks for; some of it when it is doomed."""
        self.events += 1
        if self.trace is not None and not isinstance(event, Tick):
            self.note(f"{host.site} <- {event}")
        effects = host.participant.step(event)
        if host.doomed:
            self._apply(host, effects[: self.chance.randrange(len(effects) + 1)])
            self.stop(host)
            return
        self._apply(host, effects)
        if self.chance.random() < CHECKPOINTS and host.up and host.participant.setup.number:
            host.checkpoint = snapshot.encode(host.participant)
            host.log, host.told = [], []

    def _apply(self, host: Host, effects: Iterable[Effect]) -> None:
        for effect in effects:
            told = self._tells(host, effect)
            if told is not None:
                self._tell(host, effect, told)
                continue
            match effect:
                case Append(event):
                    host.log.append(event)
                    self._logged(host, event)
                case Send(to, message, class_id):
                    self._send(host.site, to, message, class_id)
                case Safe(number):
                    self.judge.called_safe(self._name(host, number))
                case e.Plan(setup, wanted):
                    planned = plan_change(setup, wanted)
                    self.at(self.now, self._arrive, host.site, e.Made(planned))
                case e.Answered():
                    host.answers.append(effect)
                    self.note(f"{host.site}: {effect}")
                case e.Dropped(number, reason):
                    self.judge.dropped.add(self._name(host, number))
                    self.note(f"{host.site} drops {number}: {reason}")
                case Refuse():
                    raise AssertionError(f"{host.site} refuses an honest peer: {effect}")
                case Placed() | e.TakeSnapshot():
                    pass
                case _:
                    raise TypeError(f"no such effect: {effect!r}")
            if isinstance(effect, e.TakeSnapshot):
                groups = self.judge.at(host.site).groups
                states = tuple((group, "\n".join(groups.get(group, [])).encode()) for group in effect.groups)
                self.at(self.now, self._arrive, host.site, e.Snapshotted(effect.number, states))

    @staticmethod
    def _name(host: Host, number: int) -> str:
        life = host.participant.source.incarnation
        return f"{host.site}:{number}" if life == 1 else f"{host.site}/{life}:{number}"

    def _logged(self, host: Host, event: Event) -> None:
        """Something is durable: a message that was taken, or a decision."""
        if isinstance(event, Multicast):
            number = host.participant.source.sent
            self.judge.sent(self._name(host, number), host.site, number, event.groups)
        elif isinstance(event, Received) and isinstance(event.message, Decided):
            decision = event.message.decision
            bare = msgspec.structs.replace(decision, ballot=(0, ""))
            self.judge.decided(host.site, decision.number, bare)
            if host.participant.admitted:
                self.judge.taken_in(host.site)

    @staticmethod
    def _tells(host: Host, effect: Effect) -> tuple[Any, ...] | None:
        """Return what an effect tells the application, if anything."""
        match effect:
            case Deliver(envelope, stamp):
                return ("deliver", envelope.msg_id, stamp)
            case e.RolledBack(many):
                return ("rolled back", many)
            case e.Restored(group, count, _, gap):
                return ("restored", group, count, gap)
            case e.ViewChanged(group, members, _, _, epoch, _):
                return ("view", group, members, epoch)
        return None

    def _tell(self, host: Host, effect: Effect, told: tuple[Any, ...]) -> None:
        host.told.append(told)
        self.note(f"{host.site} {effect}")
        match effect:
            case Deliver(envelope, stamp):
                participant = host.participant
                of_class = participant.setup.classes.get(envelope.class_id) or participant.earlier.get(
                    envelope.class_id
                )
                own = {g for g in envelope.groups if of_class is None or host.site in of_class.members.get(g, ())}
                own |= {g for g in envelope.groups if g in participant.installing.arrived or g in participant.counts}
                self.judge.delivered(host.site, envelope.msg_id, envelope.groups, stamp, own)
            case e.RolledBack(many):
                self.judge.rolled(host.site, many, safe=self._all_safe())
            case e.Restored(group, count, state, _):
                known = state.decode().split("\n") if state else []
                if len(known) != count:
                    self.judge.problem("states", f"{host.site} gets {len(known)} messages of {group}, not {count}")
                self.judge.restored(host.site, group, known)
            case e.ViewChanged(group, _, _, left, epoch, _):
                decision = host.participant.decisions.get(epoch)
                away = decision.setup.away.get(host.site, ()) if decision is not None else (group,)
                if host.site in left and group not in away:
                    self.judge.left(host.site, group)

    def _all_safe(self) -> bool:
        return all(group.delivery is Delivery.SAFE for group in self.case.setup.groups.values())

    def _send(self, sender: SiteId, to: SiteId, message: Message, class_id: ClassId) -> None:
        name = type(message).__name__
        self.messages[name] = self.messages.get(name, 0) + 1
        network, chance = self.case.network, self.chance
        if to not in self.hosts or (sender, to) in self.cut or chance.random() < network.loss:
            return
        for _ in range(2 if chance.random() < network.duplicate else 1):
            delay = network.latency + network.jitter * chance.random()
            self.at(self.now + delay, self._land, sender, to, Received(sender, message, class_id))

    def _land(self, sender: SiteId, to: SiteId, event: Event) -> None:
        if (sender, to) not in self.cut:
            self._arrive(to, event)


def nothing(setup: Setup) -> Setup:
    """Return what a site without a history knows: no configuration at all."""
    return Setup(0, {}, {}, setup.level, setup.causal, (), (), {})


def judge(case: Case, trace: Callable[[str], None] | None = None) -> tuple[list[tuple[str, str]], World]:
    """Run a case: faults, then calm, then the verdict."""
    world = World(case, trace)
    ends = [time for time, *_ in case.sends] + [time for time, *_ in case.changes]
    ends += [fault.at + fault.lasts for fault in case.faults]
    world.run(max(ends, default=0.0) + 1.0)
    world.calm()
    end = world.now + case.settle
    while world.now < end:
        world.run(world.now + 10 * case.tick)
        newest = max((host.participant.setup for host in world.hosts.values()), key=lambda setup: setup.number)
        if all(host.participant.idle for site, host in world.hosts.items() if site in newest.sites):
            break
    return findings(world), world


def findings(world: World) -> list[tuple[str, str]]:
    """Return what is wrong at the end of a run."""
    number = max(host.participant.setup.number for host in world.hosts.values())
    last = next(h.participant.setup for h in world.hosts.values() if h.participant.setup.number == number)
    found = []
    for site in sorted(last.sites):
        participant = world.hosts[site].participant
        if participant.setup.number != number:
            found.append(("configurations", f"{site} is in {participant.setup.number}, others in {number}"))
        for held in participant.held()[:3]:
            found.append(("held", f"{site}: {held}"))
        if not participant.idle and not participant.held():
            found.append(("idle", f"{site} does not come to rest"))
    for site, groups in last.away.items():
        found.append(("away", f"{site} was not taken back into {', '.join(groups)}"))
    there = frozenset(s for s in last.sites if world.hosts[s].participant.setup.number == number)
    return found + world.judge.findings({group: last.members(group) for group in last.groups}, there)
