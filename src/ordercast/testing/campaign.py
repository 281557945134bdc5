"""The random campaign: every machine under every mix of faults, by seed."""

import dataclasses
import random

from ordercast.membership import Membership
from ordercast.protocols.deployment import MACHINES
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
        workload=chance.choice(["uniform", "zipf", "bursts"]),
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
