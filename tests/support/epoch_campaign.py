"""The campaign of changes: every protocol, policy and delivery, under churn and faults, by seed."""

import random
from dataclasses import dataclass, replace

import msgspec

from ordercast.epochs.change import first_setup
from ordercast.epochs.requests import AddSite, Change, Create, Delete, Join, Leave, Move, RemoveSite, Set
from ordercast.epochs.setup import GroupSetup, Setup
from ordercast.names import Delivery, Level, Planner, Policy
from ordercast.protocols.registry import MACHINES, Causal
from ordercast.sim.changing import Case, Fault
from ordercast.sim.churn import destinations
from ordercast.sim.network import Network

SITES = "abcde"
PROTOCOLS = sorted(MACHINES)
PLANNERS = (Planner.ELIMINATION, Planner.GREEDY, Planner.CENTRAL, Planner.METAGROUP)
KINDS = ("crash", "lose", "pause", "cut", "one-way", "suspect")
SLOW = 0.35  # share of the seeds in which applications stop reading for a while
BURSTS = 0.4  # share of the seeds in which many messages are sent around each change
HASTE = (1.0, 1.0, 0.3, 0.1)  # everything happens in this share of the span: changes and faults meet
SPAN = 60.0
FOUND = (
    75, 189, 200, 476, 877, 1003, 2005, 2362, 2574, 2849, 3269, 3304, 3367, 3848, 4027, 4155, 4250, 7478, 8962,
    1636, 6637, 9376,
)  # fmt: skip
"""Seeds that have shown a bug: rare meetings of a lost disk, a removed site, a last member that leaves."""


@dataclass(frozen=True)
class Kind:
    """What a seed runs."""

    protocol: str
    policy: Policy
    delivery: Delivery
    causal: bool


def kinds(deliveries: tuple[Delivery, ...]) -> list[Kind]:
    """Return every combination that is accepted."""
    found = []
    for protocol in PROTOCOLS:
        for policy in Policy:
            for delivery in deliveries:
                for causal in (False, True):
                    refused = causal and policy is Policy.AVAILABLE and delivery is not Delivery.SAFE
                    if not refused and not (causal and MACHINES[protocol].causal is Causal.NEVER):
                        found.append(Kind(protocol, policy, delivery, causal))
    return found


ALL = kinds((Delivery.AGREED, Delivery.SAFE))
COPIED = kinds((Delivery.COPIED,))
LATER = 100_000
"""Seeds from here on are of kinds that came later: what earlier seeds have shown, they show still."""


def kind_of(seed: int) -> Kind:
    """Return what a seed runs."""
    return ALL[seed % len(ALL)] if seed < LATER else COPIED[seed % len(COPIED)]


def setup_of(kind: Kind, chance: random.Random) -> Setup:
    """Return four or five sites and two to four groups, some unions declared."""
    sites = SITES[: chance.choice([4, 5])]
    planner = chance.choice(PLANNERS)
    groups = {
        f"g{index}": GroupSetup(
            tuple(sorted(chance.sample(sites, chance.choice([1, 2, 3, 3])))),
            kind.protocol,
            planner,
            kind.policy,
            kind.delivery,
            copies=chance.choice([2, 3]) if kind.delivery is Delivery.COPIED else 2,
        )
        for index in range(chance.choice([2, 3, 4]))
    }
    unions = [tuple(sorted(chance.sample(sorted(groups), 2)))] if chance.random() < 0.4 else []
    level = chance.choice([Level.TOTAL, Level.ACYCLIC])
    return first_setup(sites, groups, level, unions, causal=kind.causal)


def sequenced(setup: Setup, seed: int) -> tuple[Setup, list[Change]]:
    """In some seeds name who sequences, members or not, and let that move; drawn apart from all other chances."""
    chance = random.Random(f"sequencers {seed}")
    sites, groups = sorted(setup.sites), dict(setup.groups)
    if chance.random() < 0.5 and MACHINES[groups["g0"].protocol].sequencers:
        named = tuple(sorted(chance.sample(sites, chance.choice([1, 1, 2]))))
        options = {"sequencers": named, "migrate": chance.random() < 0.5}
        groups = {name: msgspec.structs.replace(group, **options) for name, group in groups.items()}
        setup = first_setup(sites, groups, setup.level, setup.unions, causal=setup.causal)
    if random.Random(f"direct {seed}").random() < 0.5 and MACHINES[groups["g0"].protocol].direct:
        groups = {name: msgspec.structs.replace(group, direct_bytes=1) for name, group in groups.items()}
        setup = first_setup(sites, groups, setup.level, setup.unions, causal=setup.causal)
    moves: list[Change] = [
        Move(chance.choice(sorted(groups)), tuple(chance.sample(sites, chance.choice([0, 1, 1, 2]))))
        for _ in range(chance.choice([0, 0, 1, 2]))
    ]
    return setup, moves


def change(setup: Setup, chance: random.Random) -> Change:
    """Return a request; some cannot be done, and must be refused."""
    group, site = chance.choice(sorted(setup.groups)), chance.choice(sorted(setup.sites))
    some = tuple(sorted(chance.sample(sorted(setup.sites), 2)))
    protocol = chance.choice(PROTOCOLS)
    found: list[Change] = [
        Join(group, site), Join(group, site), Leave(group, site), Leave(group, site), Create("h0", some),
        Create("h1", some), Delete(group), Delete("h0"), Set(group, planner=chance.choice(PLANNERS)),
        Set(group, protocol=protocol), Set(group, policy=chance.choice(list(Policy))),
        AddSite(site, "elsewhere"),
    ]  # fmt: skip
    return chance.choice(found)


def case(seed: int, kind: Kind | None = None) -> Case:
    """Return a seeded case."""
    chance = random.Random(seed)
    kind = kind or kind_of(seed)
    setup, moves = sequenced(setup_of(kind, chance), seed)
    sites = sorted(setup.sites)
    network = Network(latency=chance.choice([0.2, 1.0]), jitter=chance.choice([0.0, 0.5, 2.0]))
    if chance.random() < 0.4:
        network = Network(latency=0.5, jitter=1.0, loss=chance.choice([0.0, 0.1]), duplicate=chance.choice([0.0, 0.1]))
    sends = []
    for _ in range(chance.choice([10, 20, 40])):
        site = chance.choice(sites)
        sends.append((chance.uniform(0, SPAN), site, chance.choice(destinations(setup, site))))
    sends += [(chance.uniform(0, SPAN), chance.choice(sites), ("h0",)) for _ in range(3)]
    changes = [
        (chance.uniform(1, SPAN), chance.choice(sites), change(setup, chance))
        for _ in range(chance.choice([0, 1, 3, 6]))
    ]
    if chance.random() < 0.15:
        changes.append((chance.uniform(20, SPAN), chance.choice(sites), RemoveSite(chance.choice(sites))))
    moving = random.Random(f"moving {seed}")
    changes += [(moving.uniform(1, SPAN), moving.choice(sites), move) for move in moves]
    removed = {asked.site for _, _, asked in changes if isinstance(asked, RemoveSite)}
    some: list[Fault] = []
    for _ in range(chance.choice([0, 1, 2, 3, 5])):
        site, other = chance.sample(sites, 2)
        fault = chance.choice(KINDS)
        # A majority must keep what it promised, and an operator must not remove the last who has what another lost.
        if fault == "lose" and (removed - {site} or any(one.kind == "lose" for one in some)):
            fault = "crash"
        lasts = chance.choice([2.0, 10.0, 30.0])
        some.append(
            Fault(
                fault,
                chance.uniform(1, SPAN),
                site,
                other if fault != "suspect" or chance.random() < 0.5 else "",
                lasts,
            )
        )
    slow = random.Random(-1 - seed)  # of its own, so that what other seeds have shown is not drawn anew
    if slow.random() < SLOW:
        some += [Fault("slow", slow.uniform(1, SPAN), slow.choice(sites), lasts=slow.choice([5.0, 20.0])) for _ in "12"]
    if slow.random() < BURSTS:
        for at, _, _ in list(changes):
            for _ in range(slow.choice([4, 12])):
                site = slow.choice(sites)
                sends.append((at + slow.uniform(-3.0, 4.0), site, slow.choice(destinations(setup, site))))
        sends = [(max(at, 0.0), site, groups) for at, site, groups in sends]
    haste = slow.choice(HASTE)
    sends = [(haste * at, site, groups) for at, site, groups in sends]
    changes = [(haste * at, site, asked) for at, site, asked in changes]
    some = [replace(fault, at=haste * fault.at) for fault in some]
    promises = {
        "fifo",
        "total",
        *(["acyclic"] if setup.level is Level.ACYCLIC else []),
        *(["causal"] if kind.causal else []),
    }
    at_hand = random.Random(f"at hand {seed}").choice([1, 2, 4, 64])
    return Case(setup, frozenset(promises), network, seed, tuple(sends), tuple(changes), tuple(some), at_hand=at_hand)
