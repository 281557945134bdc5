"""One message to several groups is a message to a new group (errata 66): which are allowed, and what they must keep."""

from itertools import combinations

import pytest
from msgspec.structs import replace

from ordercast import ClassRule, Level, Membership, Planner, Request, judge, make_plan
from ordercast.core.configuration import Configuration
from ordercast.errors import InputError, LocalError
from ordercast.names import ClassId
from ordercast.planning.classes import classes
from ordercast.protocols.registry import MACHINES, Causal
from ordercast.sim.explorer import Explorer
from ordercast.sim.network import Network
from ordercast.sim.scenario import Scenario, deploy
from ordercast.sim.scenario import judge as judge_world
from ordercast.sim.world import World
from tests.support.campaign import several_case

CROSSED = {"A": "sxy", "B": "txy", "C": "st"}
"""A+B meets C in s and t, although neither A nor B meets it in more than one site."""
CAUSAL = [name for name, kind in MACHINES.items() if kind.causal is not Causal.NEVER]
ALL_LEVELS = [(protocol, level) for protocol in MACHINES for level in Level]


@pytest.mark.parametrize("protocol", MACHINES)
def test_a_union_that_could_break_the_order_is_refused(protocol: str) -> None:
    """Level total: A and B are one class, C is another, and s and t could see A+B and C in two orders."""
    machine = deploy(Scenario(Membership.of(CROSSED), protocol, level=Level.TOTAL)).groups

    with pytest.raises(LocalError, match=r"s and t could see a message to A\+B and one to groups C in two orders"):
        machine.destination(("A", "B"))
    assert machine.destination(("A",)) != machine.destination(("C",))


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "level"), ALL_LEVELS)
def test_a_declared_union_is_kept_in_every_interleaving(protocol: str, level: Level) -> None:
    """4 sites, 3 groups, one union, 3 messages: every machine, both levels, every order of arrivals."""
    case = several_case(protocol, CROSSED, ["xAB", "xC", "yA"], level=level, unions=("AB",))
    explored = Explorer(case).run()

    assert explored.findings == {}
    assert explored.complete


@pytest.mark.slow
@pytest.mark.parametrize("protocol", MACHINES)
def test_a_declared_union_survives_a_crash_at_every_effect(protocol: str) -> None:
    """3 sites, 3 groups, one union, 2 messages; a crash between any two effects of any step."""
    case = several_case(protocol, {"A": "ax", "B": "bx", "C": "ab"}, ["aAB", "bC"], {"crashes": 1}, unions=("AB",))
    explored = Explorer(case).run()

    assert explored.findings == {}
    assert explored.complete


@pytest.mark.slow
@pytest.mark.parametrize("protocol", CAUSAL)
def test_causal_order_of_several_groups_in_every_interleaving(protocol: str) -> None:
    """3 sites, 3 groups: a message to A+B, one of the same source to C, and an answer of a member, in every order."""
    case = several_case(protocol, {"A": "ab", "B": "bc", "C": "ca"}, ["aAB", "aC", "bBC"], causal=True)
    explored = Explorer(case).run()

    assert explored.findings == {}
    assert explored.complete


def test_without_the_rule_two_sites_disagree() -> None:
    """The printed S2 with the union let through: the explorer finds the two orders."""
    case = several_case("sequencer", CROSSED, ["xAB", "yC"], level=Level.TOTAL)
    groups = case.deployment.groups
    together = groups._destinations["A", "B"] = groups.destination(("A",))
    groups.order_class(together)._destinations["A", "B"] = 0
    explored = Explorer(case).run()

    assert "total" in explored.findings


def families(sites: int, most: int) -> list[dict[str, str]]:
    """All families of up to so many different groups of two or more sites."""
    names = "abcd"[:sites]
    groups = ["".join(members) for many in range(1, sites + 1) for members in combinations(names, many)]
    found = []
    for many in range(1, most + 1):
        for chosen in combinations(groups, many):
            found.append(dict(zip("GHIJ", chosen, strict=False)))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("level", Level)
def test_allowed_unions_are_safe_in_all_small_families(level: Level) -> None:
    """docs/classes.md: any two destinations of different classes share at most one site, whatever is sent together.

    At level acyclic, besides: classes and sites form a graph without cycles. Declared and undeclared unions are mixed.
    """
    for family in families(4, 3):
        names = sorted(family)
        several = [union for many in (2, 3) for union in combinations(names, many)]
        for declared in [(), *((union,) for union in several)]:
            membership = Membership.of(family).with_unions(declared)
            groups = Configuration.of(membership.as_dict(), classes(membership, ClassRule.for_level(level)), ())
            sent: list[tuple[ClassId, frozenset[str]]] = []
            for groups_of_message in [(name,) for name in names] + several:
                try:
                    order_class = groups.destination(groups_of_message)
                except LocalError:
                    assert groups_of_message not in declared
                    continue
                sent.append((order_class, frozenset(groups.union(groups_of_message))))
            for (one, here), (other, there) in combinations(sent, 2):
                assert one == other or len(here & there) <= 1, (family, declared)
            if level is Level.ACYCLIC:
                assert is_forest({(order_class, site) for order_class, sites in sent for site in sites}), family


def is_forest(edges: set[tuple[ClassId, str]]) -> bool:
    """Whether the graph of classes and sites has no cycle: leaves are taken away until none is left."""
    while edges:
        ends = [end for edge in edges for end in (("class", edge[0]), ("site", edge[1]))]
        leaves = {e for e in edges if ends.count(("class", e[0])) == 1 or ends.count(("site", e[1])) == 1}
        if not leaves:
            return False
        edges = edges - leaves
    return True


def test_two_undeclared_unions_of_two_classes_may_not_meet_twice() -> None:
    """K={A,B} and L={C,D}: A+B meets each of C and D once, and C+D meets A+B twice; both are refused."""
    family = {"A": "apx", "B": "bpx", "C": "aqy", "D": "bqy"}
    groups = deploy(Scenario(Membership.of(family), "sequencer", level=Level.TOTAL)).groups
    a, b, c, d = (groups.destination((group,)) for group in "ABCD")
    assert a == b != c == d

    for union in (("A", "B"), ("C", "D")):
        with pytest.raises(LocalError, match="declare the union"):
            groups.destination(union)


@pytest.mark.parametrize("planner", Planner)
def test_a_declared_union_is_planned_and_judged_as_a_group(planner: Planner) -> None:
    """Even where its groups share no site: one tree holds all members, and the union has an entry of its own."""
    apart = Membership.of({"A": "ab", "B": "cd", "C": "d"}).with_unions([("B", "A"), ("A", "C")])
    made = make_plan(apart, Request(planner, Level.TOTAL))

    assert made.verdict.ok
    assert [["A", "A+B", "A+C", "B", "C"]] == made.plan.classes
    assert list("abcd") == made.plan.groups["A+B"].members
    other = replace(made.plan.groups["A+B"], members=list("abc"))
    assert "form" == judge(replace(made.plan, groups=made.plan.groups | {"A+B": other})).broken


def test_unions_that_make_no_sense_are_refused() -> None:
    family = Membership.of({"A": "ab", "B": "bc"})
    for union, reason in (("AX", "there is no group 'X'"), ("AA", "at least two groups"), ("", "at least two groups")):
        with pytest.raises(InputError, match=reason):
            family.with_unions([tuple(union)])


@pytest.mark.parametrize("protocol", MACHINES)
def test_fifo_between_a_group_and_a_union_with_it(protocol: str) -> None:
    """X sends to H, then to G+H, then to H: in every run the members of H deliver them so."""
    family = Membership.of({"G": "abc", "H": "cde", "I": "eab"})
    for seed in range(40):
        deployment = deploy(Scenario(family, protocol, senders=2, seed=seed))
        world = World(deployment, seed, Network(jitter=5.0, loss=0.05))
        for source in deployment.groups.sources:
            for time, groups in enumerate([("H",), ("G", "H"), ("H",), ("G", "H", "I"), ("G",), ("H", "I")]):
                world.multicast(float(time), source, groups)
        verdict = judge_world(world)

        assert verdict.ok, (seed, verdict.findings)


def test_errata_66_naming_only_what_shares_a_group_waits_in_a_circle() -> None:
    """M0 to A+C and m2 to B+D come from above, m1 to A+B enters below: each waits for the one before it.

    With all that its source sent before, m2 waits above for m0, and nothing is left waiting.
    """
    family = Membership.of({"A": "pa", "B": "pb", "C": "rpa", "D": "rpb"})
    for seed in range(60):
        deployment = deploy(Scenario(family, class_rule=ClassRule.S1, senders=2, seed=seed))
        world = World(deployment, seed, Network(jitter=6.0))
        for source in deployment.groups.sources:
            for groups in (("A", "C"), ("A", "B"), ("B", "D"), ("A",), ("B",)):
                world.multicast(0.0, source, groups)
        verdict = judge_world(world)

        assert verdict.ok, (seed, verdict.findings)


@pytest.mark.parametrize("protocol", CAUSAL)
def test_causal_order_with_several_groups_goes_on(protocol: str) -> None:
    """Two messages of one source, to g0+g1 and then to g3: the tree stopped for ever."""
    family = Membership.of({"g0": "abc", "g1": "bcd", "g2": "cde", "g3": "dea"})
    for seed in range(30):
        deployment = deploy(Scenario(family, protocol, causal=True, senders=3, seed=seed))
        world = World(deployment, seed, Network(jitter=4.0))
        for source in deployment.groups.sources:
            world.multicast(0.0, source, ("g0", "g1"))
            world.multicast(0.1, source, ("g3",))
            world.multicast(0.2, source, ("g1", "g2", "g3"))
        verdict = judge_world(world)

        assert verdict.ok, (seed, verdict.findings)
