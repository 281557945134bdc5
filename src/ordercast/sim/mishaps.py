"""What goes wrong in a world of participants: crashes, lost disks, pauses, cuts, false suspicion; and calm."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from heapq import heappush
from typing import Any

from ordercast.core.effects import Deliver, Effect, Placed, Safe
from ordercast.core.events import Event, LinkDown, LinkUp
from ordercast.epochs import events as e
from ordercast.epochs import snapshot
from ordercast.epochs.behind import Behind
from ordercast.epochs.participant import Participant
from ordercast.epochs.requests import Change
from ordercast.epochs.setup import Setup, nothing
from ordercast.names import ClassId, GroupId, SiteId
from ordercast.sim.network import Network
from ordercast.verify.changes import Changes


@dataclass(frozen=True)
class Fault:
    """Something goes wrong at a time, for a while."""

    kind: str
    """crash, lose (its disk too), pause, cut, one-way, suspect, slow (its application reads nothing)."""
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
    at_hand: int = Behind.at_hand
    """Decisions that sites keep unpacked."""


class Host:
    """A site: its participant, its disk, and its application."""

    def __init__(self, world: "Mishaps", site: SiteId, setup: Setup) -> None:
        self.world, self.site = world, site
        self.life = 1
        self.first = setup
        self.participant = self.new_participant()
        self.log: list[Event] = []
        self.checkpoint: bytes | None = None
        self.told: list[tuple[Any, ...]] = []  # what the application was told since the checkpoint
        self.up, self.paused, self.doomed = True, False, False
        self.died: tuple[Any, ...] | None = None  # what must survive a crash, as it was
        self.waiting: list[Event] = []
        self.outside: list[Event] | None = None  # what waits because the application reads nothing
        self.unseen: dict[SiteId, float] = {}  # since when peers are out of reach
        self.answers: list[e.Answered] = []

    def new_participant(self) -> Participant:
        """Return the participant of a life, before it has read its log."""
        made = Participant(self.site, self.first, self.life)
        made.behind.at_hand = self.world.case.at_hand
        return made


class Mishaps:
    """The part of a world that breaks things; `sim.changing.World` is the whole."""

    def __init__(self, case: Case, trace: Callable[[str], None] | None = None) -> None:
        self.case, self.trace = case, trace
        self.chance = random.Random(case.seed)
        self.now = 0.0
        self.judge = Changes(case.promises)
        self.queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0
        self.hosts = {site: Host(self, site, case.setup) for site in sorted(case.setup.sites)}
        self.cut: dict[tuple[SiteId, SiteId], int] = {}  # one way each, and how often
        self.sessions: dict[frozenset[SiteId], int] = {}  # how often a link went up or down
        self.forced: set[tuple[SiteId, SiteId]] = set()  # who suspects whom for no reason
        self.messages: dict[str, int] = {}
        self.events = 0
        self.stopped_at: dict[ClassId, float] = {}
        for fault in case.faults:
            self.at(fault.at, getattr(self, "_" + fault.kind.replace("-", "_")), fault)

    def at(self, time: float, do: Callable[..., None], *args: Any) -> None:
        """Let something happen at a time."""
        self._order += 1
        heappush(self.queue, (time, self._order, do, args))

    def note(self, line: str) -> None:
        """Write one line of a trace."""
        if self.trace is not None:
            self.trace(f"{self.now:.2f} {line}")

    def reaches(self, one: SiteId, other: SiteId) -> bool:
        """Whether what one says gets to the other."""
        host = self.hosts.get(other)
        return host is not None and host.up and not host.paused and (one, other) not in self.cut

    def _detect(self, host: Host) -> None:
        """Suspect whom nothing was heard of for some time, and trust those who are back."""
        for other in sorted(self._in_doubt(host)):
            linked = self.reaches(other, host.site) and self.reaches(host.site, other)
            well = linked and (host.site, other) not in self.forced
            if well:
                host.unseen.pop(other, None)
                if other in host.participant.detected:
                    self.feed(host, e.Trusted(other))
            else:
                since = host.unseen.setdefault(other, self.now)
                long = self.now - since >= self.case.suspect_after or (host.site, other) in self.forced
                if long and other not in host.participant.detected and host.up:
                    self.feed(host, e.Suspected(other))

    def _in_doubt(self, host: Host) -> set[SiteId]:
        """Return the peers that may be out of reach, or were; all others are well, and looking at them takes long."""
        found = {site for site, other in self.hosts.items() if not other.up or other.paused}
        found |= host.unseen.keys() | host.participant.detected
        found |= {b for a, b in self.forced if a == host.site}
        for ends in self.cut:
            if host.site in ends:
                found |= set(ends)
        return found & self.hosts.keys() - {host.site}

    def _crash(self, fault: Fault) -> None:
        host = self.hosts.get(fault.site)
        if host is not None and host.up:
            if self.chance.random() < 0.5:
                host.doomed = True
                self.at(self.now + 2 * self.case.tick, self._kill_doomed, host)
            else:
                self.stop(host, between=False)
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
            host.first = nothing()
            setup = max((h.participant.setup for h in self.hosts.values()), key=lambda setup: setup.number)
            self.judge.forgot(host.site, {group: self._holders(setup, group) for group in setup.groups})
        self.at(self.now + fault.lasts, self._back, fault.site)

    def _holders(self, setup: Setup, group: GroupId) -> tuple[SiteId, ...]:
        """Return the members that have a group's state, and do not wait for it."""
        return tuple(s for s in setup.members(group) if group not in self.hosts[s].participant.installing.states)

    def stop(self, host: Host, *, between: bool = True) -> None:
        """End a site's life without a word; `between`: perhaps in the middle of what it did."""
        self.note(f"{host.site} crashes")
        host.died = None if between else kept(host.participant)
        host.up = host.doomed = False
        host.paused, host.waiting, host.outside = False, [], None
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
        participant = host.participant = host.new_participant()
        if host.checkpoint is not None:
            participant.restore(snapshot.decode(host.checkpoint))
        again = list(host.told)
        for event in host.log:
            for effect in participant.replay(event):
                told = tells(effect)
                if told is not None and again:
                    if again[0] != told:
                        self.judge.problem(
                            "replay", f"{host.site} says {told} after a restart, and had said {again[0]}"
                        )
                    again.pop(0)
                elif told is not None:
                    self.tell(host, effect, told)
                elif isinstance(effect, (Placed, Safe, e.Dropped)):
                    self.carry_out(host, [effect])
        if host.died is not None and host.first.number and kept(participant) != host.died:
            self.judge.problem("replay", f"{host.site} is {kept(participant)} after a restart, and was {host.died}")
        if again:
            self.judge.problem("replay", f"{host.site} does not say {again[0]} again after a restart")
        self.carry_out(host, participant.again())
        self.note(f"{host.site} is back, configuration {participant.setup.number}")
        self._links(host.site, up=True)

    def _links(self, site: SiteId, *, up: bool) -> None:
        for other in sorted(self.hosts):
            if other != site and self.hosts[other].up:
                self._link(site, other, up=up)

    def _link(self, one: SiteId, other: SiteId, *, up: bool) -> None:
        ends = frozenset((one, other))
        self.sessions[ends] = self.sessions.get(ends, 0) + 1
        for a, b in ((one, other), (other, one)):
            host = self.hosts[a]
            if host.up:
                self.arrive(a, LinkUp(b) if up else LinkDown(b))

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

    def _slow(self, fault: Fault) -> None:
        """The application reads nothing for a while: messages of classes wait outside, control is let in."""
        host = self.hosts.get(fault.site)
        if host is not None and host.up and host.outside is None:
            host.outside = []
            self.note(f"{host.site} reads nothing")
            self.at(self.now + fault.lasts, self._read, host)

    def _read(self, host: Host) -> None:
        waiting, host.outside = host.outside or [], None
        for event in waiting:
            self.arrive(host.site, event)

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
            self._read(host)
            if not host.up:
                self.start(host)
        for one in sorted(self.hosts):
            for other in sorted(self.hosts):
                if one < other:
                    self._link(one, other, up=True)

    # What the whole world does.

    def feed(self, host: Host, event: Event) -> None:
        """Let a site take an event, and carry out what it asks for."""
        raise NotImplementedError

    def arrive(self, site: SiteId, event: Event) -> None:
        """Something has reached a site."""
        raise NotImplementedError

    def carry_out(self, host: Host, effects: Iterable[Effect]) -> None:
        """Do what a site asks for, in order."""
        raise NotImplementedError

    def tell(self, host: Host, effect: Effect, told: tuple[Any, ...]) -> None:
        """Tell an application something."""
        raise NotImplementedError


def tells(effect: Effect) -> tuple[Any, ...] | None:
    """Return what an effect tells the application, if anything."""
    match effect:
        case Deliver(envelope, stamp):
            return ("deliver", envelope.msg_id, stamp)
        case e.RolledBack(many):
            return ("rolled back", many)
        case e.Restored(group, count, _, gap, _):
            return ("restored", group, count, gap)
        case e.ViewChanged(group, members, _, _, epoch, _):
            return ("view", group, members, epoch)
    return None


def kept(site: Participant) -> tuple[Any, ...]:
    """Return what must survive a crash of a participant, in short."""
    own = {number: own.class_id for number, own in site.sending.own.items()}
    tracks = {class_id: dict(track.counts) for class_id, track in site.tracks.items()}
    return (
        site.setup.number, sorted(site.closed), sorted(site.reported), sorted(site.halted), sorted(site.draining),
        site.council.promised, site.council.accepted is None, own, tracks, dict(site.counts), sorted(site.undone),
        sorted(site.asked_for), site.requests, sorted(site.installing.todo), sorted(site.installing.states),
    )  # fmt: skip
