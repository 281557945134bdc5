"""Worlds of participants: groups that change and sites that fail, in virtual time, driven by one seed.

A host drives one `Participant` with its log on a disk that may be lost. It crashes between any two effects of a step
and comes back from its last checkpoint and the log behind it; then it must tell its application the same again. Links
lose, double and delay; they are cut, one way or both. A failure detector suspects whom it has not reached for some
time, and now and then somebody who is well. `verify.changes` judges what applications see.
"""

from collections.abc import Callable, Iterable
from heapq import heappop
from typing import Any

from ordercast.core.effects import Append, Deliver, Effect, Placed, Refuse, Safe, Send
from ordercast.core.events import Control, Event, Message, Multicast, Received, Tick
from ordercast.core.resume import Resume
from ordercast.epochs import events as e
from ordercast.epochs import snapshot
from ordercast.epochs.change import plan_change
from ordercast.epochs.messages import Decided
from ordercast.epochs.participant import Participant
from ordercast.epochs.requests import AddSite, Change
from ordercast.epochs.setup import ClassSetup, nothing
from ordercast.errors import LocalError
from ordercast.names import ClassId, Delivery, GroupId, SiteId
from ordercast.sim.mishaps import Case, Fault, Host, Mishaps, tells
from ordercast.sim.newest import Newest

BODY = b"x"
CHECKPOINTS = 0.02  # share of the steps after which a site keeps a checkpoint

__all__ = ["BODY", "Case", "Fault", "Host", "World", "findings", "judge"]


class World(Mishaps):
    """One run. Nothing in here reads a clock or draws from anything but `chance`."""

    def __init__(self, case: Case, trace: Callable[[str], None] | None = None) -> None:
        super().__init__(case, trace)
        self.newest = Newest(case.setup)
        for time, site, groups in case.sends:
            self.at(time, self._multicast, site, groups)
        for time, site, change in case.changes:
            self.at(time, self._request, site, change)
        self.at(case.tick, self._ticks)

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

    # What goes in and out.

    def _multicast(self, site: SiteId, groups: tuple[GroupId, ...]) -> None:
        host = self.hosts.get(site)
        if host is None or not host.up or host.paused:
            return
        try:
            host.participant.setup.destination(site, groups)
        except LocalError:
            return
        self.feed(host, Multicast(groups, BODY, True))

    def _request(self, site: SiteId, change: Change) -> None:
        host = self.hosts.get(site)
        if host is not None and host.up and not host.paused:
            if isinstance(change, AddSite) and change.site not in self.hosts:
                self.add_site(change.site)
            self.newest.asked(change)
            self.feed(host, e.Requested(change))
        else:
            self.at(self.now + 5.0, self._request, site, change)

    def add_site(self, site: SiteId) -> None:
        """Start a site that nobody knows yet; it learns everything from the others."""
        self.hosts[site] = Host(self, site, nothing())
        self._links(site, up=True)

    def arrive(self, site: SiteId, event: Event) -> None:
        """Something has reached a site."""
        host = self.hosts.get(site)
        if host is None or not host.up:
            return
        if host.paused:
            host.waiting.append(event)
        elif host.outside is not None and isinstance(event, Received) and not isinstance(event.message, Control):
            host.outside.append(event)
        else:
            self.feed(host, event)

    def feed(self, host: Host, event: Event) -> None:
        """Let a site take an event, and carry out what it asks for; some of it when it is doomed."""
        self.events += 1
        if self.trace is not None and not isinstance(event, Tick):
            self.note(f"{host.site} <- {event}")
        effects = host.participant.step(event)
        if host.doomed:
            self.carry_out(host, effects[: self.chance.randrange(len(effects) + 1)])
            self.stop(host)
            return
        self.carry_out(host, effects)
        if self.chance.random() < CHECKPOINTS and host.up and host.participant.setup.number:
            host.checkpoint = snapshot.encode(host.participant)
            host.log, host.told = [], []

    def carry_out(self, host: Host, effects: Iterable[Effect]) -> None:
        """Do what a site asks for, in order."""
        for effect in effects:
            told = tells(effect)
            if told is not None:
                self.tell(host, effect, told)
                continue
            match effect:
                case Append(event):
                    host.log.append(event)
                    self._logged(host, event)
                case Send(to, message, class_id):
                    self._send(host.site, to, message, class_id)
                case Safe(number):
                    self._called_safe(self._name(host, number))
                case e.Plan(setup, wanted):
                    planned = plan_change(setup, wanted)
                    self.at(self.now, self.arrive, host.site, e.Made(planned))
                case e.Answered():
                    host.answers.append(effect)
                    self.note(f"{host.site}: {effect}")
                case e.Dropped(number, reason, _, _):
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
                late = 3 * self.case.tick if host.outside is not None else 0.0
                self.at(self.now + late, self.arrive, host.site, e.Snapshotted(effect.number, states))

    @staticmethod
    def _name(host: Host, number: int) -> str:
        life = host.participant.source.incarnation
        return f"{host.site}:{number}" if life == 1 else f"{host.site}/{life}:{number}"

    def _called_safe(self, message: str) -> None:
        sent, setup = self.judge.sends[message], self.newest.setup
        groups = [group for group in sent.groups if group in setup.groups]
        self.judge.called_safe(message, {site for group in groups for site in setup.members(group)})

    def _logged(self, host: Host, event: Event) -> None:
        """Something is durable: a message that was taken, or a decision."""
        if isinstance(event, Multicast):
            number = host.participant.source.sent
            self.judge.sent(self._name(host, number), host.site, number, event.groups)
        elif isinstance(event, Received) and isinstance(event.message, Decided):
            decision = host.participant.behind.decision(event.message.decision.number)
            assert decision is not None, "it was just taken"
            self.newest.decided(host.site, decision, self.judge)
            if host.participant.admitted:
                self.judge.taken_in(host.site)

    def tell(self, host: Host, effect: Effect, told: tuple[Any, ...]) -> None:
        """Tell an application something."""
        host.told.append(told)
        self.note(f"{host.site} {effect}")
        match effect:
            case Deliver(envelope, stamp):
                assert envelope.body == BODY, f"{host.site} delivers {envelope} without its body"
                participant, of_class = host.participant, self._class(envelope.class_id)
                if host.site in of_class.sites:
                    own = {group for group in envelope.groups if host.site in of_class.members[group]}
                else:  # what it missed while it was away
                    there = participant.installing.arrived.keys() | participant.counts.keys()
                    own = {group for group in envelope.groups if group in there}
                self.judge.delivered(host.site, envelope.msg_id, envelope.groups, stamp, own)
            case e.RolledBack(many):
                self.judge.rolled(host.site, many, safe=self._all_safe())
                if (too_few := without_reason(host.participant)) is not None:
                    self.judge.problem("copies", too_few)
            case e.Restored(group, count, state):
                known = state.decode().split("\n") if state else []
                if len(known) != count:
                    self.judge.problem("states", f"{host.site} gets {len(known)} messages of {group}, not {count}")
                self.judge.restored(host.site, group, known)
            case e.ViewChanged(group, members, _, left, _, away):
                self.judge.viewed(host.site, group, members, left, away)

    def _class(self, class_id: ClassId) -> ClassSetup:
        """Return a class that there is or was; a world that begins in the middle asks those who know."""
        if class_id not in self.newest.classes:
            for host in self.hosts.values():
                for decision in host.participant.decisions.values():
                    self.newest.classes |= decision.setup.classes | decision.closed
        return self.newest.classes[class_id]

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
            session = self.sessions.get(frozenset((sender, to)), 0) if isinstance(message, Resume) else None
            self.at(self.now + delay, self._land, sender, to, Received(sender, message, class_id), session)

    def _land(self, sender: SiteId, to: SiteId, event: Event, session: int | None = None) -> None:
        """Arrive, unless the link is cut; what is good for one link only goes with it."""
        if (sender, to) not in self.cut and session in (None, self.sessions.get(frozenset((sender, to)), 0)):
            self.arrive(to, event)


def without_reason(site: Participant) -> str | None:
    """Return why a site may not roll back, with delivery `copied`: fewer than so many copies can be gone.

    Gone are those who have not reported on a class that was closed, and those who have lost their disks since it began.
    """
    decision = site.behind.decision(site.setup.number)
    assert decision is not None
    gone = dict[ClassId, set[SiteId]]()
    for class_id in decision.cuts:
        of_class = decision.closed.get(class_id) or site.closed_class(class_id)
        lost = {s for s, (_, taken_in) in decision.setup.lives.items() if taken_in > class_id.epoch}
        gone[class_id] = set(of_class.sites) - set(decision.installers) | (of_class.sites & lost)
        if of_class.delivery is not Delivery.COPIED or len(gone[class_id]) >= of_class.copies:
            return None
    return f"{site.me} undoes what it has handed over, and gone are only {gone}" if gone else None


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
