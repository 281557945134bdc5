"""The campaign of nodes: every protocol under every mix of faults, by seed, in small and crowded worlds.

Limits are so small that every policy is met in a few seconds: windows fill, batches are cut, readers block and are
dropped, checkpoints are taken all the time.
"""

import random
from functools import lru_cache

from msgspec.structs import replace

from ordercast.membership.table import Membership
from ordercast.names import ClassRule, GroupId, Level, SiteId
from ordercast.node.settings import Limits, Settings
from ordercast.protocols.registry import MACHINES, Deployment
from ordercast.sim.clients import Habits
from ordercast.sim.faults import Fault, NodeCase
from ordercast.sim.network import Network
from ordercast.sim.scenario import Scenario, deploy
from tests.support.campaign import HYBRID, KINDS, QUICK, Kind

SITES = [f"s{index}" for index in range(5)]
MIXES = ("calm", "jitter", "lossy", "resets", "crashes", "disks", "readers", "everything")
LOSSES = ("lost", "restored")
"""A history is lost, or an old one comes back: nothing may diverge, and what concerns that site may be stuck."""
ALL_MIXES = (*MIXES, *LOSSES)
SPAN = 5.0
PATIENCE = 0.5


@lru_cache(maxsize=512)
def deployment(kind: Kind, seed: int) -> Deployment:
    """Return five sites, four groups of one to four, some unions declared; every site may send."""
    protocol, causal = kind
    chance = random.Random(seed)
    members = Membership.of({f"g{index}": chance.sample(SITES, chance.choice([1, 2, 3, 3, 4])) for index in range(4)})
    alone = protocol == HYBRID
    level = chance.choice([Level.TOTAL, Level.ACYCLIC])
    rule = ClassRule.for_level(level) if kind == ("sequencer", True) and chance.random() < 0.7 else None
    if chance.random() < 0.5 and not alone:
        members = members.with_unions([chance.sample(members.groups, chance.choice([2, 2, 3]))])
    name = protocol.removesuffix("-hybrid")
    scenario = Scenario(
        members, name, groups_alone=alone, planner=chance.choice(QUICK), level=level, class_rule=rule, causal=causal,
        receipts=MACHINES[name].receipts, seed=seed, direct_bytes=seed // 4 % 2 if MACHINES[name].direct else 0,
    )  # fmt: skip
    found = deploy(scenario)
    sources = tuple(sorted({*found.groups.everybody, *SITES}))
    return replace(found, groups=replace(found.groups, sources=sources), patience=PATIENCE)


def case(kind: Kind, mix: str, seed: int) -> NodeCase:
    """Return a seeded case."""
    found = deployment(kind, seed)
    chance = random.Random(f"{seed} {mix}")
    durable = mix in ("disks", "everything", *LOSSES) or chance.random() < 0.8
    crowded = mix in ("readers", "everything") or chance.random() < 0.5
    network = {
        "calm": Network(latency=0.002),
        "lossy": Network(latency=0.002, jitter=0.02, loss=0.1, duplicate=0.1),
    }.get(mix, Network(latency=0.001, jitter=chance.choice([0.002, 0.02])))
    if mix == "everything" and chance.random() < 0.3:
        network = Network(latency=0.002, jitter=0.02, loss=0.05, duplicate=0.05)
    return NodeCase(
        found,
        settings(found, durable=durable, limits=tight(chance) if crowded else Limits(checkpoint_bytes=4000)),
        network,
        seed,
        wire=chance.choice([0.0, 0.1, 1.0]),
        span=SPAN,
        messages=chance.choice([6, 12, 25]),
        readers=readers(found, mix, chance),
        faults=faults(found, mix, chance, durable=durable),
    )


def settings(found: Deployment, *, durable: bool = True, limits: Limits | None = None) -> Settings:
    """Return what the nodes of a deployment know of their cluster."""
    sites = frozenset(found.sites)
    return Settings("test", sites, durable, f"plan of {found.protocol}", b"{}", limits or Limits(), exporting=True)


def tight(chance: random.Random) -> Limits:
    """Return limits that are met all the time."""
    return Limits(
        envelope_bytes=chance.choice([30, 100]),
        envelope_messages=chance.choice([2, 8]),
        window_bytes=chance.choice([1, 50, 300]),
        window_envelopes=chance.choice([1, 3]),
        inbox_bytes=chance.choice([1, 200, 600]),
        checkpoint_bytes=chance.choice([1, 300, 2000]),
    )


def readers(found: Deployment, mix: str, chance: random.Random) -> tuple[tuple[SiteId, str, Habits], ...]:
    """Return who reads how, beside one at each site that reads everything at once."""
    if mix == "calm":
        return ()
    plans = []
    for site in found.sites:
        own = sorted(group for group, sites in found.groups.members.items() if site in sites)
        for index in range(chance.choice([0, 1, 2]) if own else 0):
            plans.append((site, f"r{index}", _habits(own, mix, chance)))
    return tuple(plans)


def _habits(own: list[GroupId], mix: str, chance: random.Random) -> Habits:
    groups = frozenset(chance.sample(own, chance.randint(1, len(own)))) if chance.random() < 0.4 else None
    lazy = mix in ("readers", "everything")
    return Habits(
        groups,
        policy=chance.choice(["block", "drop", "gap"]),
        every=chance.choice([0.0, 0.01, 0.1]) if lazy else 0.01,
        stops=chance.choice([0.0, 0.1, 0.3]) if lazy else 0.0,
        leaves=chance.choice([0.0, 0.1, 0.3]) if lazy else 0.02,
        goes=0.3,
    )


FAULTS = {
    "resets": ["reset", "reset", "cut", "slow", "pause"],
    "crashes": ["kill", "kill", "between", "between", "drain", "pause"],
    "disks": ["full", "kill", "between", "drain"],
    "everything": ["reset", "cut", "slow", "pause", "kill", "between", "drain", "full"],
}
MANY = {"resets": 10, "crashes": 5, "disks": 5, "everything": 8}


def faults(found: Deployment, mix: str, chance: random.Random, *, durable: bool) -> tuple[Fault, ...]:
    """Return what goes wrong when."""
    sites = found.sites
    if mix in LOSSES:
        site, at = chance.choice(sites), chance.uniform(1, 3)
        if mix == "lost":
            share = chance.choice([0.5, 1.0])  # with everybody down at once, only what is on disks is known
            others = [other for other in sites if other != site and chance.random() < share]
            return (*(Fault("kill", at, other, lasts=0.3) for other in others), Fault("lost", at, site))
        return (Fault("backup", chance.uniform(0.3, at), site), Fault("restore", at, site))
    some = []
    many = MANY.get(mix, 0)
    for _ in range(many if durable or mix == "resets" else min(many, 2)):
        site, other = chance.sample(sites, 2)
        lasts = chance.choice([0.05, 0.3, 1.0, 6.0])
        some.append(Fault(chance.choice(FAULTS[mix]), chance.uniform(0.2, 0.9 * SPAN), site, other, lasts))
    return tuple(some)


def turn(seed: int) -> tuple[Kind, str]:
    """Return the protocol and the mix whose turn it is: all pairs come within 180 seeds."""
    return KINDS[seed % len(KINDS)], ALL_MIXES[(seed + seed // len(KINDS)) % len(ALL_MIXES)]


def replay(kind: Kind, mix: str, seed: int) -> str:
    """Return the command that runs one case again."""
    causal = " --causal" if kind[1] else ""
    return f"python -m benchmarks.campaign --nodes --kind {kind[0]}{causal} --mix {mix} --first {seed} --seeds 1"
