"""Conversations about changes as text files, step by step: what applications see, and who is in which configuration.

    cluster PROTOCOL [available] [safe] alpha=a,b beta=b,c x     participants of these groups, and a site in no group
    multicast x alpha [beta]                                     an application sends
    ask a join alpha x                                           a request: join, leave, create, delete, remove, set
    carry x->c c->d                                              the next message of each link arrives
    settle                                                       everything arrives, and time passes, until all rest
    tick                                                         time passes at every site
    suspect c | suspect c by a | trust c                         the failure detectors of all others, or of one
    silence c | hear c                                           what c says is lost from now on; no longer
    crash c | restart c                                          a site dies; it comes back with its log
    held                                                         what waits, and why

`carry` and `tick` tell everything that is said. `settle` tells only what applications see, and configurations.
"""

from collections import deque
from collections.abc import Callable, Iterable

from ordercast.core.effects import Append, Deliver, Effect, Placed, Refuse, Safe, Send
from ordercast.core.events import Event, LinkUp, Message, Multicast, Received, Tick
from ordercast.epochs import events as e
from ordercast.epochs.change import first_setup, plan_change
from ordercast.epochs.participant import Participant
from ordercast.epochs.setup import GroupSetup
from ordercast.errors import InputError
from ordercast.names import ClassId, Delivery, Policy, SiteId
from ordercast.sim.churn import read_change

ROUNDS = 60  # of everything that is under way, then a tick; a cluster that does not rest by then never will


class Story:
    """Participants, links that keep what is said, and applications that keep what they have seen."""

    def __init__(self, words: list[str]) -> None:
        protocol, policy, delivery = words[0], Policy.ATOMIC, Delivery.AGREED
        groups: dict[str, tuple[SiteId, ...]] = {}
        sites: list[SiteId] = []
        for word in words[1:]:
            name, is_group, members = word.partition("=")
            if is_group:
                groups[name] = tuple(sorted(members.split(",")))
            elif word in list(Policy):
                policy = Policy(word)
            elif word in list(Delivery):
                delivery = Delivery(word)
            else:
                sites.append(word)
        made = {g: GroupSetup(m, protocol, policy=policy, delivery=delivery) for g, m in groups.items()}
        self.setup = first_setup(sites, made)
        self.sites = {site: Participant(site, self.setup) for site in self.setup.sites}
        self.logs: dict[SiteId, list[Event]] = {site: [] for site in self.sites}
        self.seen: dict[SiteId, list[str]] = {site: [] for site in self.sites}
        self.links: dict[tuple[SiteId, SiteId], deque[tuple[Message, ClassId]]] = {}
        self.down: set[SiteId] = set()
        self.silent: set[SiteId] = set()
        self.now = 0.0
        self._loud = True

    def opened(self) -> list[str]:
        """Say which classes there are."""
        found = []
        for class_id, of_class in self.setup.classes.items():
            plan = of_class.plan
            edges = [f"{edge.parent}->{edge.child}" for edge in plan.edges] if plan is not None else []
            found.append(
                f"class {class_id}: {' '.join(of_class.groups)}" + (f" over {' '.join(edges)}" if edges else "")
            )
        return found

    def run(self, command: str) -> list[str]:
        """Run one command and return what happened."""
        word, *rest = command.split()
        does: dict[str, Callable[[list[str]], list[str]]] = {
            "multicast": lambda rest: self._feed(rest[0], Multicast(tuple(sorted(rest[1:])), b"x")),
            "ask": lambda rest: self._feed(rest[0], e.Requested(read_change(" ".join(rest[1:])))),
            "carry": lambda rest: [line for link in rest for line in self._carry(*link.split("->"))],
            "settle": lambda rest: self._settle(),
            "tick": lambda rest: self._tick(),
            "suspect": self._suspect,
            "trust": self._trust,
            "silence": lambda rest: self.silent.update(rest) or [],  # type: ignore[func-returns-value]
            "hear": lambda rest: self.silent.difference_update(rest) or [],  # type: ignore[func-returns-value]
            "crash": self._crash,
            "restart": self._restart,
            "held": lambda rest: [f"{s}: {held}" for s, site in self._up() for held in site.held()] or ["nothing"],
        }
        if word not in does:
            raise InputError(f"{word}: a story knows {', '.join(does)}")
        self._loud = word != "settle"
        return does[word](rest)

    def _up(self) -> list[tuple[SiteId, Participant]]:
        return [(name, site) for name, site in self.sites.items() if name not in self.down]

    def _feed(self, name: SiteId, event: Event) -> list[str]:
        if name in self.down:
            return []
        site = self.sites[name]
        before = site.setup.number
        said = self._do(name, site.step(event))
        if site.setup.number != before:
            decision = site.decisions[site.setup.number]
            along = [str(class_id) for class_id in decision.along_trees]
            report = [str(class_id) for class_id in decision.cuts]
            closes = [f"{' '.join(along)} along the tree"] if along else []
            closes += [f"{' '.join(report)} by report"] if report else []
            said.insert(0, f"{name} is in {site.setup.number}, which closes {' and '.join(closes) or 'nothing'}")
        return said

    def _do(self, name: SiteId, effects: Iterable[Effect]) -> list[str]:
        said: list[str] = []
        for effect in effects:
            match effect:
                case Append(event):
                    self.logs[name].append(event)
                case Send(to, message, class_id):
                    lost = name in self.silent or to in self.down or to not in self.sites
                    if not lost:
                        self.links.setdefault((name, to), deque()).append((message, class_id))
                    said += [f"{name} -> {to}  {message}{' (lost)' if lost else ''}"] if self._loud else []
                case Deliver(envelope):
                    self.seen[name].append(envelope.msg_id)
                    said.append(f"{name} delivers {envelope}")
                case e.Plan(setup, wanted):
                    said += self._feed(name, e.Made(plan_change(setup, wanted)))
                case e.TakeSnapshot(number, groups):
                    state = tuple((group, " ".join(self.seen[name]).encode()) for group in groups)
                    said += self._feed(name, e.Snapshotted(number, state))
                case e.RolledBack(many):
                    del self.seen[name][len(self.seen[name]) - many :]
                    said.append(f"{name} undoes {many}")
                case e.Restored(group, count, state):
                    said.append(f"{name} gets the state of {group} after {count}: {state.decode()}")
                case e.ViewChanged() | e.Answered() | e.Dropped() | Refuse():
                    said.append(f"{name}: {effect}")
                case Placed() | Safe():
                    pass
        return said

    def _carry(self, sender: SiteId, to: SiteId) -> list[str]:
        queue = self.links.get((sender, to))
        if not queue:
            raise InputError(f"nothing is under way from {sender} to {to}")
        message, class_id = queue.popleft()
        return self._feed(to, Received(sender, message, class_id))

    def _tick(self) -> list[str]:
        self.now += 1.0
        return [line for name, _ in self._up() for line in self._feed(name, Tick(self.now))]

    def _settle(self) -> list[str]:
        said: list[str] = []
        for _ in range(ROUNDS):
            while any(self.links.values()):
                for link in sorted(link for link, queue in self.links.items() if queue):
                    said += self._carry(*link)
            if all(site.idle for _, site in self._up()):
                return said
            said += self._tick()
        return said

    def _suspect(self, rest: list[str]) -> list[str]:
        by = rest[2:] or [name for name, _ in self._up() if name != rest[0]]
        return [line for name in by for line in self._feed(name, e.Suspected(rest[0]))]

    def _trust(self, rest: list[str]) -> list[str]:
        by = [name for name, site in self._up() if rest[0] in site.suspected]
        return [line for name in by for line in self._feed(name, e.Trusted(rest[0]))]

    def _crash(self, rest: list[str]) -> list[str]:
        self.down.update(rest)
        for link in self.links:
            if set(link).intersection(rest):
                self.links[link].clear()
        return []

    def _restart(self, rest: list[str]) -> list[str]:
        (name,) = rest
        self.down.discard(name)
        site = self.sites[name] = Participant(name, self.setup)
        for event in self.logs[name]:
            site.step(event)
        peers = [other for other, _ in self._up() if other != name]
        said = [line for other in peers for line in self._feed(name, LinkUp(other))]
        return said + [line for other in peers for line in self._feed(other, LinkUp(name))]
