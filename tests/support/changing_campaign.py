"""The campaign of changing nodes: real sites with disks, connections and clients, while groups change, by seed."""

import random

import msgspec

from ordercast.epochs.requests import AddSite, Join, RemoveSite
from ordercast.names import Delivery, Level, Policy
from ordercast.node.settings import Limits, Settings
from ordercast.sim.changing_nodes import ChangingCase
from ordercast.sim.churn import destinations
from ordercast.sim.faults import Fault
from ordercast.sim.network import Network
from tests.support.epoch_campaign import SITES, Kind, change, kind_of, sequenced, setup_of

SPAN = 10.0
FAULTS = ("kill", "between", "drain", "pause", "reset", "cut", "slow", "full", "suspects", "lose", "island")
NEW = "f"
"""A site that may be added."""


def tight(chance: random.Random) -> Limits:
    """Return limits that are met all the time."""
    return Limits(
        envelope_bytes=chance.choice([30, 100]),
        envelope_messages=chance.choice([2, 8]),
        window_bytes=chance.choice([1, 50, 300]),
        inbox_bytes=chance.choice([1, 200, 600]),
        checkpoint_bytes=chance.choice([1, 300, 2000]),
    )


def case(seed: int, kind: Kind | None = None) -> ChangingCase:
    """Return a seeded case."""
    chance = random.Random(f"changing nodes {seed}")
    kind = kind or kind_of(seed)
    setup, moves = sequenced(setup_of(kind, chance), seed)
    sites = sorted(setup.sites)
    network = Network(latency=0.002, jitter=chance.choice([0.0, 0.005, 0.02]))
    if chance.random() < 0.25:
        network = Network(latency=0.002, jitter=0.02, loss=0.05, duplicate=0.05)
    changes = [
        (chance.uniform(0.5, 0.8 * SPAN), chance.choice(sites), change(setup, chance))
        for _ in range(chance.choice([0, 1, 3, 6]))
    ]
    removes = chance.random() < 0.1
    if removes:
        changes.append((chance.uniform(0.3, 0.8) * SPAN, chance.choice(sites), RemoveSite(chance.choice(sites))))
    faults: list[Fault] = []
    for _ in range(chance.choice([0, 2, 4, 7])):
        site, other = chance.sample(sites, 2)
        what = chance.choice(FAULTS)
        if what == "lose" and (removes or any(one.kind == "lose" for one in faults)):
            what = "kill"
        lasts = chance.choice([0.05, 0.3, 1.0, 3.0])
        faults.append(Fault(what, chance.uniform(0.3, 0.8 * SPAN), site, other, lasts))
    if kind.policy is Policy.AVAILABLE and kind.delivery is not Delivery.SAFE:  # who is cut off may have to roll back
        at, site = chance.uniform(1, 0.4 * SPAN), chance.choice(sites)
        faults.append(Fault("island", at, site, lasts=3.0))
        if chance.random() < 0.5:
            faults.append(Fault("kill", at + chance.uniform(0.2, 3.0), site, lasts=0.3))
    if chance.random() < 0.3:
        at = chance.uniform(0.5, 0.5 * SPAN)
        changes += [(at, sites[0], AddSite(NEW)), (at + 0.5, sites[1], Join(chance.choice(sorted(setup.groups)), NEW))]
    moving = random.Random(f"moving {seed}")
    changes += [(moving.uniform(0.5, 0.8 * SPAN), moving.choice(sites), move) for move in moves]
    promises = {"fifo", "total", *(["acyclic"] if setup.level is Level.ACYCLIC else []), *(["causal"] * kind.causal)}
    where = sorted({groups for site in sites for groups in destinations(setup, site)} | {("h0",)})
    limits = tight(chance) if chance.random() < 0.5 else Limits(checkpoint_bytes=4000)
    limits = msgspec.structs.replace(limits, retain_seconds=random.Random(f"retention {seed}").choice([None, 20.0]))
    settings = Settings(
        "test",
        frozenset(SITES) | {NEW},
        True,
        "changes",
        b"{}",
        limits,
        exporting=True,
        changes=True,
        suspect_beats=5,
        migrate_at=3,
    )
    return ChangingCase(
        setup,
        frozenset(promises),
        settings,
        network,
        seed,
        chance.choice([0.0, 0.1, 1.0]),
        SPAN,
        chance.choice([5, 10, 20]),
        tuple(where),
        tuple(changes),
        tuple(faults),
        chance.choice([0.0, 0.0, 0.1, 0.3]),
    )
