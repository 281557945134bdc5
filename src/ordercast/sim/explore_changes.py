"""Every interleaving of a change with the traffic around it; and from each moment on, every single fault.

A moment is what all sites have, what is under way on each link, and what is still to be sent and asked for. From a
moment on, any site may take the next message of any of its links (links keep their order, as TCP does), send its next
message, or ask for its change. When nothing is under way, time passes: everybody ticks. Moments that were met before
are not met again. Every moment must lead to rest, and at rest every promise must hold.

Moments are many, but what a site does depends on that site and its event alone: there are some thousand different
steps in a hundred thousand moments. So each step is taken once, and remembered; only what it tells an application is
judged again in every moment.

Interleavings and faults together are too many. So a fault may happen in every moment, and what follows it runs on one
schedule (`sim.changing`): each message takes one latency, and the failure detector suspects who is silent.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ordercast.core.effects import Append, Effect, Placed, Send
from ordercast.core.events import Event, Message, Multicast, Received, Tick
from ordercast.epochs import events as e
from ordercast.epochs import snapshot
from ordercast.epochs.messages import Decided
from ordercast.epochs.participant import Participant
from ordercast.epochs.setup import Setup
from ordercast.errors import LocalError
from ordercast.names import ClassId, SiteId
from ordercast.sim.changing import BODY, Case, Fault, Host, World, findings
from ordercast.verify.changes import Changes

FAULTS = ("crash", "between", "lose", "loss", "double", "overtake", "suspect", "cut", "pause")
"""What may go wrong once: a site dies before it takes an event, or between two effects; it loses its disk; a message is
lost, doubled or overtaken; a site is suspected though it is well; a link is cut and heals; a site stands still."""

Way = tuple[SiteId, SiteId]
NEVER = float("inf")


@dataclass(frozen=True)
class Site:
    """One site in a moment."""

    state: bytes
    early: tuple[Any, ...]
    idle: bool
    key: int
    """A number for state and early: equal when they are."""
    log: tuple[Event, ...] = ()
    told: tuple[tuple[Any, ...], ...] = ()
    answers: tuple[e.Answered, ...] = ()


@dataclass(frozen=True)
class Taken:
    """What comes of an event at a site: the participant as it is then, and what it asks for."""

    after: Site
    participant: Participant
    effects: tuple[Effect, ...]
    said: tuple[tuple[Way, Event], ...]
    told: bool
    """Whether an application or the judge hears of it; if not, `said` is all there is."""


@dataclass(frozen=True)
class Moment:
    """Everything there is between two steps."""

    sites: dict[SiteId, Site]
    links: dict[Way, tuple[Event, ...]]
    """What is under way; from a site to itself: what its host answers."""
    todo: dict[SiteId, tuple[Event, ...]]
    judge: Changes
    verdict: bytes
    """A hash of what the judge knows."""

    @property
    def at_rest(self) -> bool:
        """Whether nothing is under way, nothing to be done, and no tick would change anything."""
        return not any(self.links.values()) and not any(self.todo.values()) and all(s.idle for s in self.sites.values())


def _known(judge: Changes) -> bytes:
    """Return a hash of all that a judge's verdict depends on."""
    seen = [(s, a.log, sorted(a.groups.items())) for s, a in sorted(judge.applications.items())]
    ledger = (sorted(judge.sends.items()), sorted(judge.safe), sorted(judge.dropped), judge.found)
    return hashlib.blake2b(repr((seen, ledger)).encode(), digest_size=16).digest()


@dataclass
class Explored:
    """What an exploration has found."""

    moments: int = 0
    ends: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    found: list[tuple[str, str, str]] = field(default_factory=list)
    """Property, what is wrong, and how to get there."""
    whole: bool = True
    """Whether every moment was met; False when the limit came first."""


class Bench(World):
    """A world in which one site takes one event; what it says goes nowhere but into `said`."""

    def __init__(self, case: Case) -> None:
        super().__init__(replace(case, sends=(), changes=(), faults=()))
        self.said: list[tuple[Way, Event]] = []

    def at(self, time: float, do: Callable[..., None], *args: Any) -> None:
        """Keep what the host itself answers."""
        if do == self.arrive:  # nothing else happens by itself here
            self.said.append(((args[0], args[0]), args[1]))

    def _send(self, sender: SiteId, to: SiteId, message: Message, class_id: ClassId) -> None:
        self.said.append(((sender, to), Received(sender, message, class_id)))

    def take(self, site: SiteId, at: Site, event: Event) -> tuple[Participant, list[Effect]]:
        """Let a site that is as it is in a moment take an event; no chance, no checkpoint, and nothing carried out."""
        self.said = []
        host = self.hosts[site] = _host(self, self.case.setup, site, at)
        if isinstance(event, Multicast):
            try:
                host.participant.setup.destination(site, event.groups)
            except LocalError:
                return host.participant, []
        return host.participant, list(host.participant.step(event))

    def say(self, site: SiteId, at: Site, taken: Taken, judge: Changes) -> Site:
        """Carry out what a site asked for, before this judge."""
        self.judge, self.said = judge, []
        host = self.hosts[site]
        host.participant = taken.participant
        host.log, host.told, host.answers = list(at.log), list(at.told), list(at.answers)
        self.carry_out(host, taken.effects)
        return replace(taken.after, log=tuple(host.log), told=tuple(host.told), answers=tuple(host.answers))


def _host(world: World, setup: Setup, site: SiteId, at: Site) -> Host:
    host = Host(world, site, setup)
    host.participant.restore(snapshot.decode(at.state))
    host.participant.early.extend(at.early)
    host.log, host.told, host.answers = list(at.log), list(at.told), list(at.answers)
    return host


def _is_told(effect: Effect) -> bool:
    """Whether an application or the judge hears of an effect, or a host answers it."""
    if isinstance(effect, Append):
        event = effect.event
        return isinstance(event, Multicast) or (isinstance(event, Received) and isinstance(event.message, Decided))
    return not isinstance(effect, Send | Placed)


class Explorer:
    """Explores a case: its changes and sends in every order, their times ignored.

    With `later`, messages are sent only in what follows a fault, at their times: the change alone has few moments.
    """

    def __init__(
        self,
        case: Case,
        limit: int = 100_000,
        *,
        later: bool = False,
        say: Callable[[Explored], None] | None = None,
    ) -> None:
        self.case, self.limit, self.later, self.say = case, limit, later, say
        self.explored = Explored()
        self.bench = Bench(case)
        self._taken: dict[tuple[SiteId, int, int], Taken] = {}
        self._sites: dict[tuple[bytes, str], int] = {}
        self._events: dict[str, int] = {}
        self._known: dict[int, tuple[Event, int]] = {}

    def _site(self, participant: Participant) -> Site:
        state, early = snapshot.encode(participant), tuple(participant.early)
        number = self._sites.setdefault((state, repr(early)), len(self._sites))
        return Site(state, early, participant.idle, number)

    def _number(self, event: Event) -> int:
        """Return a number for an event: equal when events are."""
        known = self._known.get(id(event))
        if known is None or known[0] is not event:
            known = self._known[id(event)] = event, self._events.setdefault(repr(event), len(self._events))
        return known[1]

    def _key(self, moment: Moment) -> bytes:
        """Return a hash of all that the future, and the verdict on the past, depend on."""
        sites = [(site, at.key) for site, at in moment.sites.items()]
        links = sorted((way, [self._number(event) for event in held]) for way, held in moment.links.items() if held)
        left = sorted((site, len(events)) for site, events in moment.todo.items())
        return hashlib.blake2b(repr((sites, moment.verdict, links, left)).encode(), digest_size=16).digest()

    def _first(self) -> Moment:
        world = World(replace(self.case, sends=(), changes=(), faults=()))
        todo: dict[SiteId, tuple[Event, ...]] = {}
        acts: list[tuple[float, SiteId, Event]] = [
            *((time, site, Multicast(groups, BODY, True)) for time, site, groups in self.case.sends if not self.later),
            *((time, site, e.Requested(change)) for time, site, change in self.case.changes),
        ]
        for _, site, event in sorted(acts, key=lambda act: act[:2]):
            todo[site] = (*todo.get(site, ()), event)
        sites = {site: self._site(host.participant) for site, host in world.hosts.items()}
        return Moment(sites, {}, todo, world.judge, _known(world.judge))

    def run(self, faults: Iterable[str] = (), every: int = 1) -> Explored:
        """Meet every moment; from every so manieth one, let each of these faults happen."""
        kinds = tuple(faults)
        first = self._first()
        explored = self.explored
        key = self._key(first)
        paths: dict[bytes, tuple[bytes, str]] = {key: (b"", "")}  # where from, and by what
        ways_in: dict[bytes, list[bytes]] = {}
        ends: list[bytes] = []
        stack = [(key, first)]
        while stack:
            key, moment = stack.pop()
            if explored.moments >= self.limit:
                explored.whole = False
                break
            explored.moments += 1
            if self.say is not None:
                self.say(explored)
            if moment.at_rest:
                ends.append(key)
                self._judge(moment, self._path(paths, key))
                continue
            if kinds and explored.moments % every == 0:
                self._faults(moment, kinds, self._path(paths, key))
            for name, after in self._next(moment):
                then = self._key(after)
                ways_in.setdefault(then, []).append(key)
                if then not in paths:
                    paths[then] = (key, name)
                    stack.append((then, after))
        explored.ends = len(ends)
        if explored.whole:
            self._all_end(paths, ways_in, ends)
        return explored

    def _all_end(
        self, paths: dict[bytes, tuple[bytes, str]], ways_in: dict[bytes, list[bytes]], ends: list[bytes]
    ) -> None:
        """Every moment must lead to rest: go back from all ends, and see who was not met."""
        met, stack = set(ends), list(ends)
        while stack:
            for before in ways_in.get(stack.pop(), ()):
                if before not in met:
                    met.add(before)
                    stack.append(before)
        for key in paths:
            if key not in met:
                self.explored.found.append(("rest", "it never comes to rest", self._path(paths, key)))
                return

    @staticmethod
    def _path(paths: dict[bytes, tuple[bytes, str]], key: bytes) -> str:
        steps = []
        while key:
            key, name = paths[key]
            steps.append(name)
        return "; ".join(reversed(steps[:-1]))

    def _next(self, moment: Moment) -> Iterator[tuple[str, Moment]]:
        """Return every moment that may come next, and what happens."""
        for (sender, to), held in moment.links.items():
            if held:
                links = {**moment.links, (sender, to): held[1:]}
                yield f"{to} <- {held[0]}", self._step(replace(moment, links=links), to, held[0])
        for site, events in moment.todo.items():
            if events:
                left = replace(moment, todo={**moment.todo, site: events[1:]})
                yield f"{site}: {events[0]}", self._step(left, site, events[0])
        if not any(moment.links.values()):
            after = moment
            for site, at in moment.sites.items():
                if not at.idle:
                    after = self._step(after, site, Tick(0.0))
            yield "tick", after

    def _step(self, moment: Moment, site: SiteId, event: Event) -> Moment:
        at = moment.sites[site]
        step = site, at.key, self._number(event)
        taken = self._taken.get(step)
        if taken is None:
            taken = self._taken[step] = self._take(site, at, event)
        after, said, judge, verdict = taken.after, taken.said, moment.judge, moment.verdict
        if taken.told:
            judge = judge.copy()
            after = self.bench.say(site, at, taken, judge)
            said, verdict = tuple(self.bench.said), _known(judge)
        else:
            logged = [effect.event for effect in taken.effects if isinstance(effect, Append)]
            after = replace(after, log=(*at.log, *logged), told=at.told, answers=at.answers)
        links = dict(moment.links)
        for way, event_said in said:
            if way[1] in moment.sites:
                links[way] = (*links.get(way, ()), event_said)
        return Moment({**moment.sites, site: after}, links, moment.todo, judge, verdict)

    def _take(self, site: SiteId, at: Site, event: Event) -> Taken:
        participant, effects = self.bench.take(site, at, event)
        sent = [((site, a.to), Received(site, a.message, a.class_id)) for a in effects if isinstance(a, Send)]
        told = any(map(_is_told, effects))
        return Taken(self._site(participant), participant, tuple(effects), tuple(sent), told)

    def _judge(self, moment: Moment, path: str) -> None:
        for name, says in findings(self._world(moment)):
            self.explored.found.append((name, says, path))

    # Faults.

    def _world(self, moment: Moment) -> World:
        """Return a world that goes on from a moment: a latency for each message, then what is still to be done."""
        world = World(replace(self.case, sends=self.case.sends if self.later else (), changes=(), faults=()))
        world.judge = moment.judge.copy()
        for site, at in moment.sites.items():
            world.hosts[site] = _host(world, self.case.setup, site, at)
        for (sender, to), held in moment.links.items():
            for event in held:
                if sender == to:
                    world.at(0.0, world.arrive, to, event)
                else:
                    world.at(self.case.network.latency, world._land, sender, to, event)
        for site, events in moment.todo.items():
            for index, event in enumerate(events):
                world.at(2.5 + 3 * index, self._act, world, site, event)
        return world

    @staticmethod
    def _act(world: World, site: SiteId, event: Event) -> None:
        if isinstance(event, Multicast):
            world._multicast(site, event.groups)
        else:
            assert isinstance(event, e.Requested)
            world._request(site, event.change)

    def _faults(self, moment: Moment, kinds: tuple[str, ...], path: str) -> None:
        for kind in kinds:
            for name, faulty in self._faulty(moment, kind):
                self.explored.faults[kind] = self.explored.faults.get(kind, 0) + 1
                faulty.run(60.0)
                faulty.calm()
                end = faulty.now + self.case.settle
                while faulty.now < end and not all(host.participant.idle for host in faulty.hosts.values()):
                    faulty.run(faulty.now + 10.0)
                for what, says in findings(faulty):
                    self.explored.found.append((what, says, f"{path}; {name}"))

    def _faulty(self, moment: Moment, kind: str) -> Iterator[tuple[str, World]]:
        """Return a world for every place in which a fault may happen now."""
        ways = [way for way, held in moment.links.items() if held and way[0] != way[1]]
        if kind in ("loss", "double", "overtake"):
            for way in ways:
                held = moment.links[way]
                if kind == "overtake" and len(held) < 2:
                    continue
                changed = {"loss": held[1:], "double": (held[0], *held), "overtake": (*held[1:2], held[0], *held[2:])}
                links = {**moment.links, way: changed[kind]}
                yield f"{kind} of {held[0]} to {way[1]}", self._world(replace(moment, links=links))
            return
        for site in moment.sites:
            if kind == "between":
                yield from self._dies_between(moment, site)
                continue
            others = [other for other in moment.sites if other > site] if kind == "cut" else [""]
            for other in others:
                world = self._world(moment)
                lasts = 25.0 if kind != "lose" else 5.0
                world.at(0.0, getattr(world, "_" + kind), Fault(kind, 0.0, site, other, lasts))
                yield f"{kind} {site} {other}", world

    def _dies_between(self, moment: Moment, site: SiteId) -> Iterator[tuple[str, World]]:
        """Let a site die after each of the effects of what it takes next, from each link."""
        for way, held in moment.links.items():
            if way[1] != site or not held:
                continue
            count, effects = 0, 1
            while count < effects:
                links = {**moment.links, way: held[1:]}
                world = self._world(replace(moment, links=links))
                host = world.hosts[site]
                steps = host.participant.step(held[0])
                effects = len(steps)
                world.carry_out(host, steps[:count])
                world.stop(host)
                world.at(25.0, world._back, site)
                yield f"{site} dies after {count} effects of {held[0]}", world
                count += 1
