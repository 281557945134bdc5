"""A run as data: groups, protocol, network, faults, workload, seed; and its judged outcome."""

import random
from dataclasses import dataclass, field
from functools import cached_property

from ordercast.core.configuration import Configuration
from ordercast.errors import InputError
from ordercast.membership.table import Membership
from ordercast.names import ClassRule, Level, Planner, Shape, SiteId
from ordercast.planning.classes import are_right, classes
from ordercast.planning.make import check_plan, make_plan
from ordercast.planning.plan import Plan
from ordercast.planning.request import Budget, Request
from ordercast.protocols.registry import MACHINES, Deployment, class_rule, placed
from ordercast.sim.film import Film
from ordercast.sim.happenings import Crash, Outcome, Trace
from ordercast.sim.network import Network
from ordercast.sim.workload import WORKLOADS, answer
from ordercast.sim.world import World
from ordercast.verify.findings import Sent
from ordercast.verify.record import Record

SEARCH = Budget(steps=20_000)  # for `best`: in steps, so that a run is a function of its seed


@dataclass(frozen=True)
class Scenario:
    """What to run."""

    membership: Membership
    protocol: str = "propagation"
    planner: Planner = Planner.ELIMINATION
    plan: Plan | None = None
    tree: Shape = Shape.BALANCED
    """Of a swap object."""
    upper: int = 1
    """With hybrid: so many levels of the tree below its root run the arrow."""
    sequencers: tuple[SiteId, ...] = ()
    """Who sequences, with protocol sequencer; also sites in no group. Without any, members do."""
    by_source: bool = False
    """With a swap object: sources multicast their messages themselves (HTW00 §3)."""
    direct_bytes: int = 0
    """Bodies of so many bytes or more go another way than the order (`Deployment.direct_bytes`); 0: none."""
    level: Level = Level.ACYCLIC
    class_rule: ClassRule | None = None
    causal: bool = False
    groups_alone: bool = False
    """A class for each group: with a causal sequencer KIN's hybrid order."""
    messages: int = 100
    senders: int = 4
    span: float = 50.0
    workload: str = "uniform"
    several: float = 0.2
    """Share of the messages that go to several groups at once, where the classes allow it."""
    receipts: bool = False
    """Sources ask for the place and the safety of their messages (propagation)."""
    network: Network = field(default_factory=Network)
    crashes: tuple[Crash, ...] = ()
    tick: float = 5.0
    seed: int = 0
    prefix: bool = False
    """Judge the prefix property too (`verify.online`)."""
    patience: float = 3000.0
    """How long after the last send to wait for quiescence; what is held then is a finding."""


@dataclass(frozen=True)
class Verdict:
    """The outcome of a run, judged by what its protocol promises."""

    deployment: Deployment
    outcome: Outcome
    findings: dict[str, str | None]

    @property
    def ok(self) -> bool:
        """Whether every promise was kept and nothing was left waiting."""
        return all(example is None for example in self.findings.values())

    @cached_property
    def record(self) -> Record:
        """What was kept of the run, for the judges of `verify.deliveries`."""
        logs: dict[SiteId, list[str]] = {}
        stamps: dict[SiteId, list[tuple[int, bytes]]] = {}
        for delivery in self.outcome.deliveries:
            logs.setdefault(delivery.site, []).append(delivery.envelope.msg_id)
            order = self.deployment.groups.order_of(delivery.envelope.groups)
            stamps.setdefault(delivery.site, []).append((order, delivery.stamp))
        sends = {e.msg_id: Sent(e.groups, e.source, e.number, after) for e, _, after in self.outcome.sent}
        return Record(self.deployment.groups.members, sends, logs, stamps)


def deploy(scenario: Scenario) -> Deployment:
    """Choose classes for the level, plan where the protocol needs it, name the sources; refuse what would not hold."""
    membership, protocol, level = scenario.membership, scenario.protocol, scenario.level
    if protocol not in MACHINES:
        raise InputError(f"protocol is one of {', '.join(MACHINES)}, not {protocol!r}")
    kind = MACHINES[protocol]
    rule = scenario.class_rule or class_rule(protocol, level, causal=scenario.causal)
    split = [list(membership.groups)] if rule is None else classes(membership, rule)
    plan = scenario.plan if kind.plan else None
    if kind.plan and plan is None:
        asked = Request(scenario.planner, level, rule, budget=SEARCH, seed=scenario.seed)
        plan = make_plan(membership, asked).plan
    elif plan is not None:
        check_plan(plan, membership.as_dict())
    if plan is not None:
        split = plan.classes
    if scenario.groups_alone:
        if not kind.groups_alone or not scenario.causal:
            raise InputError("a class for each group is KIN's hybrid: sequencer, causal")
        if membership.unions:
            raise InputError("with each group ordered alone nothing is sent to the groups of a union at once")
        split = [[group] for group in membership.groups]
    elif not are_right(membership, split, level):
        raise InputError(f"classes {rule} do not keep the level {level}")
    groups = Configuration.of(membership.as_dict(), split, sources(scenario), causal=scenario.causal)
    if scenario.sequencers and not kind.sequencers:
        raise InputError(f"protocol {protocol} has no sequencers")
    return Deployment(
        protocol, groups, plan, level, scenario.causal, scenario.receipts,
        shape=scenario.tree, upper=scenario.upper, by_source=scenario.by_source,
        latencies=dict(scenario.network.latencies), direct_bytes=scenario.direct_bytes,
        placed=placed(groups, scenario.sequencers),
    )  # fmt: skip


def sources(scenario: Scenario) -> list[SiteId]:
    """Return the senders: half of them members, half outsiders that are in no group."""
    sites = list(scenario.membership.sites)
    chance = random.Random(scenario.seed)
    inside = chance.sample(sites, min(len(sites), (scenario.senders + 1) // 2))
    outside = [f"source-{index}" for index in range(scenario.senders - len(inside))]
    return sorted(inside + outside)


def run(scenario: Scenario, trace: Trace | None = None, *, keep: bool = True, film: Film | None = None) -> Verdict:
    """Run a scenario to quiescence and judge it while it goes on; without `keep` memory is bounded."""
    deployment = deploy(scenario)
    groups = deployment.groups
    durable = any(not crash.pause for crash in scenario.crashes)
    world = World(deployment, scenario.seed, scenario.network, scenario.tick, trace, durable, keep, film)
    world.watch.prefix = scenario.prefix
    orders = WORKLOADS[scenario.workload](world.chance, groups, scenario.messages, scenario.span, scenario.several)
    world.feed(orders, answer(groups) if scenario.workload == "requests" else None)
    for crash in scenario.crashes:
        world.crash(crash)
    return judge(world, 2 * scenario.span + scenario.patience)


def judge(world: World, until: float = float("inf")) -> Verdict:
    """Run a world to its end, and say what its judges found."""
    outcome = world.run(until)
    held = next((f"{site}: {waiting[0]}" for site, waiting in sorted(outcome.held.items())), None)
    found = {name: None if finding is None else finding.says for name, finding in world.watch.findings().items()}
    return Verdict(world.deployment, outcome, found | {"held": held})
