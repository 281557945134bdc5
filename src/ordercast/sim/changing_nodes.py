"""Worlds of nodes whose groups change: real `ChangingNode` objects with disks, connections, clients and operators.

What `sim.nodes` and `sim.faults` do to sites happens here too; beside that sites lose their disks and come back, and
operators ask for changes. The judge (`verify.changes`) sees what applications read, and nothing else of a node.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from ordercast.client.values import AckLevel, Receipt
from ordercast.core.configuration import Configuration
from ordercast.epochs.change import plan_change
from ordercast.epochs.events import MAY_BE_SENT
from ordercast.epochs.participant import Participant
from ordercast.epochs.requests import AddSite, Change, RemoveSite
from ordercast.epochs.setup import Setup
from ordercast.history.store import History
from ordercast.names import GroupId, SiteId
from ordercast.node import inputs as io
from ordercast.node.changing import ChangingNode
from ordercast.node.settings import Settings
from ordercast.node.status import status
from ordercast.sim import nodes
from ordercast.sim.clients import Sender
from ordercast.sim.exports import Exports
from ordercast.sim.faults import Fault, Run, bug
from ordercast.sim.follower import Follower
from ordercast.sim.ledger import Ledger, Life
from ordercast.sim.moving import Mover
from ordercast.sim.network import Network
from ordercast.sim.newest import Newest
from ordercast.verify.changes import Changes
from ordercast.wire import batch

LOOK_S = 0.2  # how often the failure detector looks
SETTLE_S = 30.0  # everything must be done so long after the last fault


@dataclass(frozen=True)
class ChangingCase:
    """What to run."""

    setup: Setup
    promises: frozenset[str]
    settings: Settings
    network: Network
    seed: int
    wire: float = 0.1
    span: float = 10.0
    """Seconds in which clients send, operators ask and faults happen."""
    messages: int = 12
    """Of each sender, about."""
    destinations: tuple[tuple[GroupId, ...], ...] = ()
    changes: tuple[tuple[float, SiteId, Change], ...] = ()
    faults: tuple[Fault, ...] = ()
    lazy: float = 0.0
    """How likely an application stops reading for a while after a batch."""


@dataclass(frozen=True)
class Cluster:
    """What a world of nodes asks of a deployment."""

    sites: list[SiteId]
    promises: frozenset[str]
    groups: Configuration


class ChangesLedger(Ledger):
    """Notes what clients tried and were told, and tells the judge."""

    judge: Changes
    newest: Newest
    post_again: Callable[[str], None]

    def attempt(self, life: Life, groups: tuple[GroupId, ...], ack: AckLevel, size: int, epoch: int) -> str:
        """Note a message before it is sent; returns its name: a source that has lost its disk is another one."""
        plain = super().attempt(life, groups, ack, size, epoch)
        attempt = self.attempts.pop(plain)
        site, disks = life[0], self.lost_disks[life[0]]
        name = f"{site}:{attempt.sent.number}" if not disks else f"{site}/{disks + 1}:{attempt.sent.number}"
        attempt.body = name.encode() + b" " + bytes(size)
        self.attempts[name] = attempt
        self.judge.sent(name, site, attempt.sent.number, groups)
        return name

    def refused(self, names: tuple[str, ...]) -> None:
        """The site says that it has not sent these, and will not."""
        super().refused(names)
        self.judge.dropped.update(names)

    def _may_be_lost(self, names: tuple[str, ...]) -> None:
        super()._may_be_lost(names)
        self.judge.lost.update(names)

    def ended(self, life: Life) -> None:
        """A life is over: what is not on the disk was never sent."""
        known = self.disks.get(life[0], set())
        for name, attempt in self.attempts.items():
            if attempt.life == life and name not in known and not attempt.acknowledged:
                self.judge.lost.add(name)

    def _acknowledged(self, name: str, receipt: Receipt, ack: AckLevel) -> None:
        attempt = self.attempts[name]
        attempt.acknowledged, attempt.receipt = True, receipt
        if name not in self.disks.get(attempt.sent.source, ()):
            self.problem("durability", f"{name} is acknowledged, and is not on the disk of {attempt.sent.source}")
        if ack == "safe":
            self.post_again(name)
            setup = self.newest.setup
            groups = [group for group in attempt.sent.groups if group in setup.groups]
            self.judge.called_safe(name, {site for group in groups for site in setup.members(group)})


class ChangingWorld(nodes.World):
    """One run."""

    ledger: ChangesLedger
    hosts: dict[SiteId, "ChangingHost"]  # type: ignore[assignment]

    def __init__(self, case: ChangingCase, trace: Callable[[str], None] | None = None) -> None:
        self.case = case
        self.judge, self.newest = Changes(case.promises), Newest(case.setup)
        cluster: Any = Cluster([], case.promises, Configuration({}, {}, ()))
        super().__init__(cluster, case.settings, case.seed, case.network, case.wire, trace)
        self.ledger = ChangesLedger(cluster.groups, case.promises, durable=True)
        self.ledger.judge, self.ledger.newest = self.judge, self.newest
        self.ledger.post_again = self._post_again
        self.exports = Exports()
        self.counted: dict[tuple[SiteId, tuple[GroupId, ...]], int] = {}  # posts of each site's client
        self.hosts = {site: ChangingHost(self, site, case.setup) for site in sorted(case.settings.sites)}

    def origin(self, site: SiteId, groups: tuple[GroupId, ...]) -> batch.Origin:
        """Return who posts, and its number for that."""
        self.counted[site, groups] = self.counted.get((site, groups), 0) + 1
        life = f"{site}/{self.ledger.lost_disks[site]}"
        return life.encode().ljust(16), self.counted[site, groups]

    def _post_again(self, name: str) -> None:
        """A client that did not hear its answer posts again, anywhere; what is safe is nothing new to anybody."""
        attempt = self.ledger.attempts[name]
        if attempt.origin is not None and self.chance.random() < 0.5:
            host = self.hosts[self.chance.choice(sorted(self.hosts))]
            post = io.Post(attempt.sent.groups, attempt.bodies, "none", None, attempt.origin, attempt.disks)
            self.after(self.chance.expovariate(1), host.post_again, post)


class ChangingHost(nodes.Host):
    """A site's process and machine, its failure detector, and its application."""

    world: ChangingWorld
    node: ChangingNode

    def __init__(self, world: ChangingWorld, site: SiteId, setup: Setup) -> None:
        super().__init__(world, site)
        self.first = setup if site in setup.sites else None
        self.empty = False  # it has lost its disk
        self.application = Follower(self)
        self._number = 0  # the configuration that the judge knows of
        exports = world.exports
        self._carry |= {
            io.Plan: self._plan, io.TakeSnapshot: self._take_snapshot, io.Dropped: self._dropped,
            io.Began: lambda output: exports.began(self.log, output),
            io.Sent: lambda output: exports.sent(self.log, output),
            io.Noted: lambda output: exports.noted(self.log, output),
            io.Delivered: lambda done: exports.delivered(self.log, self._called(done.lot.source, done.life), done),
        }  # fmt: skip

    @property
    def participant(self) -> Participant:
        """What takes part in changes."""
        return self.node.participant

    @property
    def log(self) -> str:
        """What the log of this life is called."""
        return self._called(self.site, self.node.incarnation)

    def _called(self, site: SiteId, life: int) -> str:
        return site if self.participant.setup.founders.get(site) == life else f"{site}@{life}"

    def make(self, history: History) -> ChangingNode:
        """Return the node of a new life."""
        world = self.world
        self._number = 0
        self.application.asked = []  # a node that restarts asks again
        return ChangingNode(self.site, world.settings, self.first, history, lambda: world.now)

    def start(self) -> None:
        """Begin a life."""
        if not self.runs:
            if self.life:
                self.world.ledger.ended(self.me)
            super().start()
            if self.runs:
                self.later(LOOK_S, self._detect)

    def carry(self, outputs: list[io.Output]) -> None:
        """Do what the node asks for, and see whether it is in another configuration."""
        super().carry(outputs)
        participant = self.participant
        if participant.setup.number > self._number and self.runs:
            for number in range(self._number + 1, participant.setup.number + 1):
                if number in participant.decisions:
                    self.world.newest.decided(self.site, participant.decisions[number], self.world.judge)
            self._number = participant.setup.number
        if participant.admitted:
            self.world.judge.taken_in(self.site)

    def _detect(self) -> None:
        """Let the failure detector look, now and then."""
        self.feed(io.Beat())
        self.later(LOOK_S, self._detect)

    def _plan(self, output: io.Plan) -> None:
        planned = plan_change(output.setup, output.wanted)
        self.later(self.world.chance.expovariate(100), self.feed, io.Planned(planned))

    def _dropped(self, output: io.Dropped) -> None:
        names = [body.partition(b" ")[0].decode() for body in output.bodies]
        self.world.note(f"{self.site} drops {', '.join(names)}: {output.reason}")
        if output.reason != MAY_BE_SENT:  # of the first post that says nothing
            self.world.judge.dropped.update(names)
        self.world.exports.not_sent(self.log, output)

    def post_again(self, post: io.Post) -> None:
        """Feed a post that was made elsewhere before, unless a site has lost its disk since (`client.lasting`)."""
        known = [a for a in self.world.ledger.attempts.values() if a.origin == post.origin]
        if self.runs and self.asleep is None and all(a.disks == self.participant.setup.disks for a in known):
            self.feed(post)

    def feed(self, given: io.Input) -> None:
        """Feed the node; posts of clients are counted."""
        if type(given) is io.Post and given.token is not None:
            origin = self.world.origin(self.site, given.groups)
            given = msgspec.structs.replace(given, origin=origin)
            for name in given.token:
                attempt = self.world.ledger.attempts[name]
                attempt.origin, attempt.bodies = origin, given.bodies
                attempt.disks = self.participant.setup.disks
        super().feed(given)

    def _take_snapshot(self, output: io.TakeSnapshot) -> None:
        self.application.asked.append(output)
        self.application.give()

    def lose(self, holders: Callable[[Setup, GroupId], tuple[SiteId, ...]]) -> None:
        """Lose the disk, and with it all that the application had."""
        setup = max((host.participant.setup for host in self.world.hosts.values() if host.life), key=lambda s: s.number)
        self.disk.lose()
        self.world.ledger.disk_lost(self.site)
        self.empty = True
        self.application.forget()
        self.world.judge.forgot(self.site, {group: holders(setup, group) for group in setup.groups})


class ChangingRun(Run):
    """One case: the world, its clients, its operators, its faults."""

    world: ChangingWorld

    def __init__(self, case: ChangingCase, trace: Callable[[str], None] | None = None) -> None:
        self.changing = case
        self.world = ChangingWorld(case, trace)
        self.senders, self.applications, self.saved = [], [], {}
        world = self.world
        for site, host in world.hosts.items():
            sender = Sender(host, list(case.destinations), case.messages, 0.7 * case.span / max(1, case.messages),
                            patient=world.chance.random() < 0.3)  # fmt: skip
            host.on_resolve = sender.answered
            if site in case.setup.sites:
                self.senders.append(sender)
                world.after(world.chance.uniform(0, 0.1), host.start)
        for at, site, change in case.changes:
            world.after(at, self._asks, site, change)
        for fault in case.faults:
            world.after(fault.at, getattr(self, f"_{fault.kind}"), fault)
        self.movers = [Mover(world, group) for group in sorted(case.setup.groups) if self._may_move(group)]

    def _may_move(self, group: GroupId) -> bool:
        """Whether what is read of a group stays read; with a disk, or a site, what only it had may go."""
        case = self.changing
        loses = any(fault.kind == "lose" for fault in case.faults)
        removes = any(isinstance(change, RemoveSite) for _, _, change in case.changes)
        return not (case.setup.may_undo(group) or loses or removes)

    def _list_of(self, group: GroupId) -> list[str] | None:
        """Return what the members of a group have; None when it was deleted, or nobody is there."""
        last = self.world.newest.setup
        if group in self.world.newest.deleted or group not in last.groups or not last.members(group):
            return None
        return self.world.judge.at(last.members(group)[0]).groups.get(group, [])

    def _asks(self, site: SiteId, change: Change) -> None:
        host = self.world.hosts[site]
        if not host.runs or host.asleep is not None:
            self.world.after(0.5, self._asks, site, change)
            return
        self.world.newest.asked(change)
        if isinstance(change, AddSite):
            self.world.hosts[change.site].start()
        host.feed(io.Ask(change))

    def _lose(self, fault: Fault) -> None:
        """The disk is lost, and the site comes back with an empty one."""
        host = self.world.hosts[fault.site]
        host.crash()
        host.lose(self._holders)
        self.world.after(fault.lasts, host.start)

    def _holders(self, setup: Setup, group: GroupId) -> tuple[SiteId, ...]:
        hosts = self.world.hosts
        return tuple(s for s in setup.members(group) if group not in hosts[s].participant.installing.states)

    def _island(self, fault: Fault) -> None:
        """A site is cut off from all others."""
        for other in self.world.hosts:
            if other != fault.site:
                self._cut(replace(fault, other=other))

    def _suspects(self, fault: Fault) -> None:
        """Somebody is suspected for no reason."""
        host = self.world.hosts[fault.site]
        if host.runs and host.asleep is None:
            host.feed(io.Suspect(fault.other))

    def findings(self) -> list[tuple[str, str]]:
        """Run to the end and judge."""
        world, case = self.world, self.changing
        try:
            world.run(nodes.BEGIN + case.span)
            self._calm()
            for host in world.hosts.values():
                host.application.calm_down()
            for mover in self.movers:
                mover.calm_down()
            world.run(world.now + 3.0)
            for host in world.hosts.values():  # who was still to stop when all was calm
                if host.life:
                    host.start()
            for _ in range(int(SETTLE_S)):
                world.run(world.now + 1.0)
                if not self._left():
                    break
        except Exception as error:  # a bug of a node is a finding, and the seed that shows it is printed
            return [bug(error)]
        last = world.newest.setup
        there = frozenset(site for site in last.sites if world.hosts[site].runs)
        found = self._left() + world.ledger.problems
        found += [("receipts", f"nobody answers who sent {names[0]}") for names in world.ledger.open]
        found += world.judge.findings({group: last.members(group) for group in last.groups}, there)
        return found + list(world.exports.findings(case.promises, case.seed))

    def _left(self) -> list[tuple[str, str]]:
        """Return what is not done."""
        found = []
        last = self.world.newest.setup
        for site in sorted(last.sites):
            host = self.world.hosts[site]
            if not host.runs:
                found.append(("alive", f"{site} does not run: {host.stopped}"))
                continue
            said = status(host.node)
            number = host.participant.setup.number
            if number != last.number:
                found.append(("configurations", f"{site} is in {number}, others in {last.number}"))
            found += [("held", f"{site}: {held.what} waits: {held.reason}") for held in said.held[:3]]
            facts = {
                "posts wait": said.posts_waiting, "messages are parked": said.parked,
                "envelopes are unsafe": said.unsafe_envelopes, "positions are unread":
                host.node.deliveries.count - host.application.next, "things wait for the disk": host.node.pipeline.open,
            }  # fmt: skip
            found += [("left", f"{site}: {many} {what}") for what, many in facts.items() if many]
            if not host.participant.idle and not said.held:
                found.append(("idle", f"{site} does not come to rest"))
        for mover in self.movers:
            found += mover.wrong(self._list_of)
        for site, groups in last.away.items():
            found.append(("away", f"{site} was not taken back into {', '.join(groups)}"))
        return found


def run(case: ChangingCase, trace: Callable[[str], None] | None = None) -> tuple[list[tuple[str, str]], ChangingRun]:
    """Run a case and judge it."""
    ran = ChangingRun(case, trace)
    return ran.findings(), ran
