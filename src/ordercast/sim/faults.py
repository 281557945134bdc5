"""What goes wrong in a world of nodes, as data; and a whole run: faults, then calm, then the verdict."""

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ordercast.errors import InputError, LocalError
from ordercast.names import GroupId, SiteId
from ordercast.node.inputs import Drain
from ordercast.node.settings import Settings
from ordercast.node.status import explain, status
from ordercast.protocols.registry import Deployment
from ordercast.sim.clients import Application, Habits, Sender
from ordercast.sim.disk import Backup
from ordercast.sim.judging import findings
from ordercast.sim.network import Network
from ordercast.sim.nodes import BEGIN, Host, World

SILENCE_S = 5.0  # peers give up on a process that says nothing for so long
CALM_S = 240.0  # a calm world must be done after so long
REFUSED_S = 10.0  # a world in which somebody is refused for ever is looked at after so long


@dataclass(frozen=True)
class Fault:
    """Something happens to a site, or between two, at a time; some things last."""

    kind: str
    at: float
    site: SiteId
    other: SiteId = ""
    lasts: float = 1.0


@dataclass(frozen=True)
class NodeCase:
    """What to run."""

    deployment: Deployment
    settings: Settings
    network: Network
    seed: int
    wire: float = 0.1
    span: float = 5.0
    """Seconds in which clients send and faults happen."""
    messages: int = 12
    """Of each sender, about."""
    readers: tuple[tuple[SiteId, str, Habits], ...] = ()
    faults: tuple[Fault, ...] = ()

    @property
    def kind_to_links(self) -> bool:
        """Whether no message is lost or overtaken."""
        return not (self.faults or self.network.loss or self.network.duplicate)

    @property
    def loses(self) -> bool:
        """Whether a history is lost: then the site may be refused, and what concerns it may be stuck."""
        return any(fault.kind in ("lost", "restore") for fault in self.faults)


@dataclass(frozen=True)
class NodeVerdict:
    """How it went."""

    findings: list[tuple[str, str]]
    events: int
    delivered: int

    @property
    def ok(self) -> bool:
        """Whether every promise was kept and nothing is left."""
        return not self.findings


class Run:
    """One case: the world, its clients, its faults."""

    def __init__(self, case: NodeCase, trace: Callable[[str], None] | None = None) -> None:
        self.case = case
        self.world = World(case.deployment, case.settings, case.seed, case.network, case.wire, trace)
        world, span = self.world, case.span
        self.senders, self.applications = list[Sender](), list[Application]()
        self.lost = set[SiteId]()  # sites whose disk was lost when something was on it
        self.saved: dict[SiteId, tuple[Backup, set[str], int]] = {}
        for site, host in world.hosts.items():
            if not case.loses:
                host.on_start.append(partial(check_memory, host))
            destinations = allowed(case.deployment, site)
            if destinations:
                patient = world.chance.random() < 0.3
                sender = Sender(host, destinations, case.messages, 0.6 * span / max(1, case.messages), patient=patient)
                host.on_resolve = sender.answered
                self.senders.append(sender)
            if any(site in sites for sites in case.deployment.groups.members.values()):
                self.applications.append(Application(host, "tail", Habits()))
        for site, name, habits in case.readers:
            self.applications.append(Application(world.hosts[site], name, habits))
        for host in world.hosts.values():
            world.after(world.chance.uniform(0, 0.1), host.start)
        if case.kind_to_links:  # nothing is said before there is a link for it: so nothing is said twice
            for sender in self.senders:
                sender.begins = 1.0
            world.after(0.2, self._link_all)
        for fault in case.faults:
            world.after(fault.at, getattr(self, f"_{fault.kind}"), fault)

    def _link_all(self) -> None:
        hosts = self.world.hosts
        for host in hosts.values():
            for peer in hosts:
                if peer > host.site:
                    host.dial(peer)

    def verdict(self) -> NodeVerdict:
        """Run to the end and judge."""
        world, case = self.world, self.case
        try:
            world.run(BEGIN + case.span)
            self._calm()
            world.run(world.now + 3.0)
            for host in world.hosts.values():  # who was still to stop when all was calm
                host.start()
            world.run(world.now + 3.0)
            for sender in self.senders:
                sender.last_words()
            done = world.run(world.now + (REFUSED_S if case.loses else CALM_S))
        except Exception as error:  # a bug of a node is a finding, and the seed that shows it is printed
            return NodeVerdict([bug(error)], world.events, 0)
        found = findings(world.ledger, whole=not case.loses, from_epoch=self._epoch())
        found += self._refusals() if case.loses else self._leftovers(done=done)
        return NodeVerdict(found, world.events, sum(map(len, world.ledger.logs.values())))

    def _epoch(self) -> int:
        return max((host.node.peers.epoch for host in self.world.hosts.values()), default=0)

    def _leftovers(self, *, done: bool) -> list[tuple[str, str]]:
        found = []
        for site, host in self.world.hosts.items():
            if not host.runs:
                found.append(("alive", f"{site} does not run: {host.stopped}"))
                continue
            found += [("held", f"{site}: {what}") for what in left_at(host)]
        for application in self.applications:
            if application.refused is not None:
                found.append(("readers", f"{application.name}: {application.refused}"))
            elif (
                not application.gone
                and application.reading is not None
                and (unread := self.world.ledger.unread(application.reading))
            ):
                found.append(("readers", unread))
        resent = sum(status(host.node).counts["resent"] for host in self.world.hosts.values() if host.runs)
        if resent and self.case.kind_to_links:
            found.append(("resent", f"{resent} messages were sent again, though no link lost any"))
        if not done and not found:
            found.append(("idle", "the world does not come to rest"))
        return found

    def _refusals(self) -> list[tuple[str, str]]:
        """A site that lost its history must know, or nobody was ever told anything by it."""
        found = []
        for fault in self.case.faults:
            host = self.world.hosts[fault.site]
            if fault.kind == "lost" and fault.site in self.lost and host.runs:
                said = host.node.peers.lost or "nothing"
                if not said.startswith(f"{fault.site} has lost its history"):
                    found.append(("lost", f"{fault.site} lost its history, and its status says {said}"))
            elif fault.site in self.world.ledger.forgotten and host.runs and host.node.peers.lost is None:
                found += self._differs(host)
        return found

    def _differs(self, host: Host) -> list[tuple[str, str]]:
        """A site that went back and was not refused must have come to the same log."""
        forgotten = self.world.ledger.forgotten[host.site]
        log = self.world.ledger.log_of(host.me)[self.saved[host.site][2] :]
        if log[: len(forgotten)] == forgotten:
            return []
        return [("lost", f"{host.site} has an old history, goes on another way, and its status says nothing")]

    # Faults.

    def _reset(self, fault: Fault) -> None:
        end = self.world.hosts[fault.site].links.get(fault.other)
        if end is not None:
            self.world.note(f"link {fault.site} {fault.other} is reset")
            end.line.reset()

    def _cut(self, fault: Fault) -> None:
        self.world.cut.add(frozenset((fault.site, fault.other)))
        self._reset(fault)
        self.world.after(fault.lasts, self.world.cut.discard, frozenset((fault.site, fault.other)))

    def _slow(self, fault: Fault) -> None:
        pair = frozenset((fault.site, fault.other))
        self.world.slow[pair] = 100.0
        self.world.after(fault.lasts, self._fast, pair)

    def _fast(self, pair: frozenset[SiteId]) -> None:
        self.world.slow.pop(pair, None)

    def _kill(self, fault: Fault) -> None:
        host = self.world.hosts[fault.site]
        host.crash()
        self.world.after(fault.lasts, host.start)

    def _between(self, fault: Fault) -> None:
        """Crash in the middle of the next turn."""
        host = self.world.hosts[fault.site]
        host.doomed = host.runs
        self.world.after(fault.lasts, self._back, host)

    def _back(self, host: Host) -> None:
        if host.doomed:
            host.crash()
        host.start()

    def _drain(self, fault: Fault) -> None:
        host = self.world.hosts[fault.site]
        for sender in self.senders:
            if sender.host is host and host.runs and host.asleep is None:
                sender.burst(3)
        if host.runs and not host.sleeps(host.feed, Drain()):
            host.feed(Drain())
        self.world.after(fault.lasts, host.start)

    def _pause(self, fault: Fault) -> None:
        host = self.world.hosts[fault.site]
        host.sleep()
        if fault.lasts > SILENCE_S:
            self.world.after(SILENCE_S, self._silent, host)
        self.world.after(fault.lasts, host.wake)

    def _silent(self, host: Host) -> None:
        for end in list(host.ends):
            if host.asleep is not None:
                end.line.other(end).abort()

    def _full(self, fault: Fault) -> None:
        """The disk is full; somebody makes room and starts the site again."""
        host = self.world.hosts[fault.site]
        host.disk.full = True
        self.world.after(fault.lasts, self._room, host)

    def _room(self, host: Host) -> None:
        host.disk.full = False
        host.start()

    def _lost(self, fault: Fault) -> None:
        host = self.world.hosts[fault.site]
        host.crash()
        if host.disk.kept is not None and host.disk.kept.count:
            self.lost.add(fault.site)
        host.disk.lose()
        self.world.ledger.disk_lost(fault.site)
        self.world.after(fault.lasts, host.start)

    def _backup(self, fault: Fault) -> None:
        host = self.world.hosts[fault.site]
        backup, names = host.disk.backup(), set(self.world.ledger.disks.get(fault.site, ()))
        self.saved[fault.site] = (backup, names, len(self.world.ledger.log_of(host.me)))

    def _restore(self, fault: Fault) -> None:
        host = self.world.hosts[fault.site]
        host.crash()
        if fault.site in self.saved:
            backup, names, delivered = self.saved[fault.site]
            host.disk.restore(backup)
            self.world.ledger.disk_restored(fault.site, names, delivered)
        self.world.after(fault.lasts, host.start)

    def _calm(self) -> None:
        """All faults end: everybody runs, is reachable, has room on its disk, and reads."""
        world = self.world
        world.note("calm")
        world.cut.clear()
        world.slow.clear()
        for host in world.hosts.values():
            host.disk.full = False
            if host.doomed:
                host.crash()
            host.wake()
            if host.life:  # who was never started is not started now
                host.start()
        for application in self.applications:
            application.calm_down()


def bug(error: Exception) -> tuple[str, str]:
    """Return what a node raised as a finding; what a user did wrong is raised again."""
    if isinstance(error, InputError):
        raise error
    where = traceback.extract_tb(error.__traceback__)[-1]
    return "bug", f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"


def left_at(host: Host) -> list[str]:
    """Return what is left at a site that should have nothing to do."""
    node = host.node
    said = status(node)
    found = [f"{held.what} waits: {held.reason}" for held in said.held]
    found += [f"{window.envelopes} envelopes to {window.to} are not safe" for window in said.windows]
    facts = {
        "posts wait": said.posts_waiting, "messages are parked": said.parked, "bytes are unsafe": said.unsafe_bytes,
        "envelopes are unsafe": said.unsafe_envelopes, "envelopes under way": said.under_way,
        "bytes unread": sum(said.reader_bytes), "bodies are held back": len(node.deliveries.bodies),
        "refused": len(said.refused), "things wait for the disk": int(node.pipeline.open),
    }  # fmt: skip
    found += [f"{many} {what}" for what, many in facts.items() if many]
    if not node.machines.idle:
        found.append("its machines are not idle")
    return found


def check_memory(host: Host) -> None:
    """A site that was started again knows what it has delivered."""
    last = {entry.source: entry.number for entry in host.world.ledger.log_of(host.me)}
    for source, number in last.items():
        for fact in explain(host.node, f"{source}:{number}")["facts"]:
            if "has not delivered" in fact:
                host.world.ledger.problem("explained", f"{source}:{number}: {fact}")


def allowed(deployment: Deployment, site: SiteId) -> list[tuple[GroupId, ...]]:
    """Return where a site may send to: every group, every pair that is allowed, every declared union."""
    configuration = deployment.groups
    groups = sorted(configuration.members)
    several = {(a, b) for a in groups for b in groups if a < b} | set(configuration.unions)
    found = []
    for destination in [*((group,) for group in groups), *sorted(several)]:
        try:
            deployment.check(site, destination)
        except LocalError:
            continue
        found.append(destination)
    return found


def run(case: NodeCase, trace: Callable[[str], None] | None = None) -> NodeVerdict:
    """Run a case and judge it."""
    return Run(case, trace).verdict()
