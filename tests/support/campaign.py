"""The campaigns: every machine under every mix of faults, by seed; and the small cases that are tried whole."""

import dataclasses
import random

from msgspec.structs import replace

from ordercast.membership.table import Membership
from ordercast.names import ClassRule, Level, Planner, Shape
from ordercast.protocols.registry import MACHINES, Causal
from ordercast.sim.explorer import Case
from ordercast.sim.happenings import Crash
from ordercast.sim.network import Cut, Network
from ordercast.sim.scenario import Scenario, deploy

Kind = tuple[str, bool]
"""A protocol by name, and whether it runs with the causal option."""

HYBRID = "sequencer-hybrid"  # KIN's hybrid: causal everywhere, total in each group, a sequencer for each
SITES = [f"s{index}" for index in range(8)]
KINDS = [(name, False) for name in MACHINES]
KINDS += [(name, True) for name, kind in MACHINES.items() if kind.causal is not Causal.NEVER]
KINDS += [(HYBRID, True)]
QUICK = [Planner.GREEDY, Planner.ELIMINATION, Planner.METAGROUP, Planner.CENTRAL]
MIXES = ("calm", "jitter", "lossy", "faults")


def scenario(kind: Kind, mix: str, seed: int) -> Scenario:
    """Return a seeded case: eight sites, five groups of one to four, some unions of them declared."""
    protocol, causal = kind
    chance = random.Random(seed)
    members = Membership.of({f"g{index}": chance.sample(SITES, chance.choice([1, 2, 3, 3, 4])) for index in range(5)})
    alone = protocol == HYBRID
    level = chance.choice([Level.TOTAL, Level.ACYCLIC])
    rule = ClassRule.for_level(level) if kind == ("sequencer", True) and chance.random() < 0.7 else None
    if chance.random() < 0.5 and not alone:
        members = members.with_unions([chance.sample(members.groups, chance.choice([2, 2, 3]))])
    case = Scenario(
        members,
        protocol.removesuffix("-hybrid"),
        groups_alone=alone,
        planner=Planner.BEST if chance.random() < 0.05 else chance.choice(QUICK),
        tree=list(Shape)[seed % 4] if protocol in MACHINES and MACHINES[protocol].tree else Shape.BALANCED,
        upper=seed // 3 % 4 if protocol == "hybrid" else 1,
        by_source=seed // 4 % 2 == 0 and protocol in MACHINES and MACHINES[protocol].by_source,
        sequencers=("q1", "q2", min(members.sites))[: seed % 4] if protocol.startswith("sequencer") else (),
        direct_bytes=seed // 4 % 2 if protocol.startswith("sequencer") or protocol == "propagation" else 0,
        level=level,
        class_rule=rule,
        causal=causal,
        receipts=protocol in MACHINES and MACHINES[protocol].receipts and chance.random() < 0.5,
        messages=60,
        workload=chance.choice(["uniform", "zipf", "bursts", "requests"]),
        several=chance.choice([0.1, 0.3, 0.6]),
        seed=seed,
        prefix=True,
    )
    apart = random.Random(f"latencies {seed}")
    pairs = [(one, other) for one in members.sites for other in members.sites if one < other]
    latencies = {pair: apart.choice([0.2, 1.0, 5.0]) for pair in pairs} if case.tree is Shape.LATENCY else {}
    if mix == "calm":
        return dataclasses.replace(case, network=Network(latencies=latencies))
    if mix == "jitter":
        return dataclasses.replace(case, network=Network(jitter=4.0, latencies=latencies))
    lossy = Network(jitter=2.0, loss=0.1, duplicate=0.1, latencies=latencies)
    if mix == "lossy":
        return dataclasses.replace(case, network=lossy)
    sites = deploy(case).sites
    a, b = chance.sample(sites, 2)
    cut = Cut(a, b, 5, 40, one_way=chance.random() < 0.5)
    crashes = tuple(
        Crash(site, chance.uniform(5, 30), chance.uniform(31, 70), between=chance.random() < 0.7)
        for site in chance.sample(sites, 2)
    )
    pause = (Crash(chance.choice(sites), 80, 95, pause=True),)
    return dataclasses.replace(case, network=dataclasses.replace(lossy, cuts=(cut,)), crashes=crashes + pause)


EXPLORED: list[dict[str, int]] = [{}, {"losses": 1}, {"duplicates": 1}, {"crashes": 1}, {"reconnects": 1}]
RING = {"A": "ab", "B": "bc", "C": "ca"}
DENSE = {"A": "ab", "B": "bcd", "C": "acd"}


def small_case(protocol: str, faults: dict[str, int], groups: dict[str, str] = RING) -> Case:
    """Return 4 sites, 3 groups, 4 messages of two sources; with a fault 3 sites, 2 groups, 3 messages.

    One message goes to several groups.
    """
    orders = ["aA", "bAB", "bA"] if faults else ["aA", "aAB", "dC", "dA"]
    return several_case(protocol, {"A": "ab", "B": "abc"} if faults else groups, orders, faults)


def several_case(
    protocol: str,
    groups: dict[str, str],
    orders: list[str],
    faults: dict[str, int] | None = None,
    level: Level = Level.ACYCLIC,
    *,
    causal: bool = False,
    unions: tuple[str, ...] = (),
) -> Case:
    """Return a case by hand: an order is a source and its groups, each a letter; `unions` are declared."""
    multicasts = tuple((order[0], tuple(order[1:])) for order in orders)
    membership = Membership.of(groups).with_unions([tuple(union) for union in unions])
    deployment = deploy(Scenario(membership, protocol, level=level, causal=causal))
    sources = tuple(sorted({source for source, _ in multicasts}))
    deployment = replace(deployment, groups=replace(deployment.groups, sources=sources))
    return dataclasses.replace(Case(deployment, multicasts), **(faults or {}))  # type: ignore[arg-type]
