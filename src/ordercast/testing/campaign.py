"""The campaigns: every machine under every mix of faults, by seed; and the small cases that are tried whole."""

import dataclasses
import random

from msgspec.structs import replace

from ordercast.membership import Membership
from ordercast.protocols.deployment import MACHINES
from ordercast.sim.explorer import Case
from ordercast.sim.network import Cut, Network
from ordercast.sim.scenario import Scenario, deploy
from ordercast.sim.world import Crash
from ordercast.types import ClassRule, Planner

Kind = tuple[str, bool]
"""A protocol by name, and whether it runs with the causal option."""

HYBRID = "sequencer-hybrid"  # KIN's hybrid: causal everywhere, total in each group, a sequencer for each
SITES = [f"s{index}" for index in range(8)]
KINDS = [(name, False) for name in MACHINES] + [("propagation", True), ("sequencer", True), (HYBRID, True)]
MIXES = ("calm", "jitter", "lossy", "faults")


def scenario(kind: Kind, mix: str, seed: int) -> Scenario:
    """Return a seeded case: eight sites, five groups of three; causal order is promised inside connected classes."""
    protocol, causal = kind
    chance = random.Random(seed)
    case = Scenario(
        Membership.of({f"g{index}": chance.sample(SITES, 3) for index in range(5)}),
        protocol.removesuffix("-hybrid"),
        groups_alone=protocol == HYBRID,
        planner=chance.choice([Planner.GREEDY, Planner.ELIMINATION, Planner.METAGROUP, Planner.CENTRAL]),
        causal=causal,
        class_rule=ClassRule.S1 if causal else None,
        messages=60,
        workload=chance.choice(["uniform", "zipf", "bursts", "requests"]),
        seed=seed,
    )
    if mix == "calm":
        return case
    if mix == "jitter":
        return dataclasses.replace(case, network=Network(jitter=4.0))
    lossy = Network(jitter=2.0, loss=0.1, duplicate=0.1)
    if mix == "lossy":
        return dataclasses.replace(case, network=lossy)
    sites = deploy(case).sites
    a, b = chance.sample(sites, 2)
    cut = Cut(a, b, 5, 40, one_way=chance.random() < 0.5)
    crashes = (Crash(chance.choice(sites), chance.uniform(5, 30), chance.uniform(31, 70)),)
    pause = (Crash(chance.choice(sites), 80, 95, pause=True),)
    return dataclasses.replace(case, network=dataclasses.replace(lossy, cuts=(cut,)), crashes=crashes + pause)


EXPLORED: list[dict[str, int]] = [{}, {"losses": 1}, {"duplicates": 1}, {"crashes": 1}]
RING = {"A": "ab", "B": "bc", "C": "ca"}
DENSE = {"A": "ab", "B": "bcd", "C": "acd"}


def small_case(protocol: str, faults: dict[str, int], groups: dict[str, str] = RING) -> Case:
    """Return 4 sites, 3 groups, 4 messages of two sources; with a fault 3 sites, 2 groups, 3 messages."""
    orders = ["aA", "bB", "bA"] if faults else ["aA", "aB", "dC", "dA"]
    multicasts = tuple((order[0], (order[1],)) for order in orders)
    deployment = deploy(Scenario(Membership.of({"A": "ab", "B": "abc"} if faults else groups), protocol))
    sources = tuple(sorted({source for source, _ in multicasts}))
    deployment = dataclasses.replace(deployment, groups=replace(deployment.groups, sources=sources))
    return dataclasses.replace(Case(deployment, multicasts), **faults)  # type: ignore[arg-type]
