"""Every machine keeps what it declares: under delay, loss, duplication, cuts, crashes and pauses; and no more."""

import dataclasses
import os
from datetime import date
from itertools import product

import pytest
from msgspec.structs import replace

from ordercast import ClassRule, Membership, Plan
from ordercast.errors import LocalError
from ordercast.planning.plan import Edge
from ordercast.protocols.registry import MACHINES
from ordercast.sim.explorer import Explorer
from ordercast.sim.network import Cut, Network
from ordercast.sim.scenario import Scenario, deploy, judge, run
from ordercast.sim.world import World
from ordercast.verify.deliveries import JUDGES
from tests.support.campaign import EXPLORED, KINDS, MIXES, RING, Kind, scenario, several_case, small_case


@pytest.mark.slow
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0] + ("-causal" if kind[1] else ""))
def test_machines_keep_what_they_promise(kind: Kind, mix: str) -> None:
    """16 seeds of each mix, 2,000 in `make sim`: every promise kept, stamps grow, nothing left held in the end."""
    for seed in range(16):
        verdict = run(scenario(kind, mix, seed))

        broken = {name: example for name, example in verdict.findings.items() if example is not None}
        assert {} == broken, f"seed {seed}"
        assert verdict.outcome.deliveries


def test_a_run_is_a_function_of_its_seed() -> None:
    lines: list[list[str]] = [[], [], []]
    for seed, into in zip((3, 3, 4), lines, strict=True):
        run(scenario(("propagation", False), "faults", seed), trace=into.append)

    assert lines[0] == lines[1]
    assert lines[0] != lines[2]


@pytest.mark.parametrize("kind", [("propagation", False), ("two-phase", False), ("timestamp", False)])
def test_causal_order_across_groups_is_not_promised_and_does_not_hold(kind: Kind) -> None:
    """Errata 6, 7, 54: without the option some run breaks causality, so the declaration is exact.

    One Lamport clock respects causality; a clock for each class does not.
    """
    broken = 0
    for seed in range(40):
        rule = ClassRule.S1 if kind[0] == "propagation" else None
        case = dataclasses.replace(scenario(kind, "jitter", seed), class_rule=rule, span=30.0)
        broken += JUDGES["causal"](run(case).record) is not None

    assert broken


def test_errata_6_a_source_s_messages_to_two_groups() -> None:
    """d->c->a, A={d,c,a} enters at d, B={c,a} at c; x sends m1 to A, then m2 to B, and c may get m2 first."""
    family = Membership.of({"A": ["d", "c", "a"], "B": ["c", "a"]})
    for causal, expected in ((False, ["x:2", "x:1"]), (True, ["x:1", "x:2"])):
        case = Scenario(family, causal=causal, senders=0)
        plan_edges = {"A": ("d", [("d", "c"), ("c", "a")]), "B": ("c", [("c", "a")])}
        deployment = deploy(case)
        assert deployment.plan is not None
        plan = by_hand(deployment.plan, plan_edges)
        deployment = replace(deployment, plan=plan, groups=replace(deployment.groups, sources=("x",)))
        world = World(deployment)
        world.multicast(0.0, "x", ("A",))
        world.multicast(0.1, "x", ("B",))
        verdict = judge(world)

        assert expected == verdict.record.logs["c"]
        assert verdict.ok


def by_hand(plan: Plan, routes: dict[str, tuple[str, list[tuple[str, str]]]]) -> Plan:
    """Send the groups of a plan other ways."""
    carried: dict[tuple[str, str], list[str]] = {}
    for group, (_, edges) in routes.items():
        for edge in edges:
            carried.setdefault(edge, []).append(group)
    groups = {group: replace(plan.groups[group], entry=entry, extra=[]) for group, (entry, _) in routes.items()}
    return replace(plan, groups=groups, edges=[Edge(*ends, on_it) for ends, on_it in carried.items()])


@pytest.mark.parametrize("protocol", MACHINES)
def test_one_multicast_to_several_groups_is_delivered_once_in_one_place(protocol: str) -> None:
    family = Membership.of({"A": "abc", "B": "bcd", "C": "cda"})
    for seed in range(10):
        deployment = deploy(Scenario(family, protocol, senders=2, seed=seed))
        world = World(deployment, seed, Network(jitter=3.0))
        for time, source in product(range(4), deployment.groups.sources):
            world.multicast(float(time), source, ("A", "B"))
            world.multicast(time + 0.5, source, (world.chance.choice("ABC"),))
        verdict = judge(world)

        assert verdict.ok, verdict.findings


@pytest.mark.parametrize("protocol", ["propagation", "sequencer", "arrow"])
def test_groups_that_are_ordered_apart_cannot_share_a_multicast(protocol: str) -> None:
    deployment = deploy(Scenario(Membership.of({"A": "ab", "B": "cd"}), protocol, senders=1))
    world = World(deployment)
    world.multicast(0.0, deployment.groups.sources[0], ("A", "B"))

    with pytest.raises(LocalError):
        world.run()


def test_what_is_held_says_why_and_since_when() -> None:
    """Cut a site off for good: what waits for it names its reason and its time."""
    deployment = deploy(Scenario(Membership.of({"A": "abc"}), "two-phase", senders=1))
    source = deployment.groups.sources[0]
    silent = next(site for site in "abc" if site != source)
    world = World(deployment, network=Network(cuts=(Cut(source, silent, 0.0, 1e9),)))
    world.multicast(0.0, source, ("A",))
    verdict = judge(world, until=100.0)

    assert any(f"no priority yet from {silent}" in held.reason for held in verdict.outcome.held[source])
    assert f"{silent} does not deliver {source}:1" == verdict.findings["completeness"]


BY_SOURCE = [(name, faults) for faults in EXPLORED for name, kind in MACHINES.items() if kind.by_source]
SMALL = [(protocol, faults) for faults in EXPLORED for protocol in MACHINES]
TODAY = date.today().toordinal()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "faults"), SMALL if "ORDERCAST_CAMPAIGN" in os.environ else SMALL[TODAY % 3 :: 3], ids=str
)
def test_every_interleaving_of_a_small_case(protocol: str, faults: dict[str, int]) -> None:
    """Without faults 4 sites, 3 groups in a ring, 4 messages; with one fault 3 sites, 2 groups, 3 messages.

    A third of them a day; all of them in `make sim`.
    """
    explored = Explorer(small_case(protocol, faults)).run()

    assert explored.complete
    assert {} == explored.findings, explored.trace
    assert explored.ends > 5


@pytest.mark.slow
@pytest.mark.parametrize("faults", EXPLORED, ids=str)
@pytest.mark.parametrize("protocol", ["sequencer", "propagation"])
def test_every_interleaving_with_bodies_that_are_sent_directly(protocol: str, faults: dict[str, int]) -> None:
    """KIN 4.1, MGT 4.2: bodies and places overtake each other, are lost, come twice, meet a crash.

    In the ring the tree is a chain, and messages to one of the groups go past the site in the middle.
    """
    ring = several_case("propagation", RING, ["cC", "bB", "aA"], faults)
    case = ring if protocol == "propagation" else small_case(protocol, faults)
    case = dataclasses.replace(case, deployment=replace(case.deployment, direct_bytes=1))
    explored = Explorer(case).run()

    assert explored.complete
    assert {} == explored.findings, explored.trace
    assert explored.ends > 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "faults"), BY_SOURCE if "ORDERCAST_CAMPAIGN" in os.environ else BY_SOURCE[TODAY % 3 :: 3], ids=str
)
def test_every_interleaving_where_sources_multicast(protocol: str, faults: dict[str, int]) -> None:
    """HTW00 3: the swap goes without the body, its answer goes to the source. A third a day; all in `make sim`."""
    case = small_case(protocol, faults)
    explored = Explorer(dataclasses.replace(case, deployment=replace(case.deployment, by_source=True))).run()

    assert explored.complete
    assert {} == explored.findings, explored.trace
    assert explored.ends > 5


def test_causality_that_passes_through_another_class() -> None:
    """Seed 194 of the campaign: x sends to one class, then to another; who delivers the second sends to the first."""
    verdict = run(scenario(("propagation", True), "jitter", 194))

    assert verdict.ok, verdict.findings
