"""Every planner, on every small family, judged by the edges of its plan; and the fast greedy against App. I."""

import random
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings

from ordercast import Budget, ClassRule, Level, Membership, PlanError, Planner, Request, judge, make_plan
from ordercast.planning.classes import class_labels
from ordercast.planning.forest import ClassGraph, Forest
from ordercast.planning.planners import FIXED
from ordercast.planning.propagation_graph import _Generator, greedy, literal_greedy
from ordercast.testing.strategies import memberships
from tests.planning.families import all_families, uniform

PROMISED = {
    Planner.GREEDY: {"PG3"},
    Planner.ELIMINATION: {"PG3"},
    Planner.METAGROUP: {"PG3", "MGT rule 1", "MGT rule 2"},
}


def graph_of(membership: Membership, rule: ClassRule = ClassRule.S1) -> ClassGraph:
    return ClassGraph.of(membership, class_labels(membership, rule))


def complaints(forest: Forest, level: Level, more: set[str] = frozenset()) -> list[str]:  # type: ignore[assignment]
    verdict = judge(forest.plan("any", level), forest.graph.membership.as_dict())
    wanted = {"form", "PG1", "PG2", "cost", str(level)} | more
    return [f"{name}: {found.example}" for name, found in verdict.findings.items() if name in wanted and not found.ok]


@pytest.mark.slow
@pytest.mark.parametrize("planner", FIXED)
def test_every_small_family_gets_a_right_plan(planner: Planner) -> None:
    """All families of up to 4 sites and 5 groups: PG1, PG2, an acyclic order, honest costs (errata 1, 26)."""
    count = 0
    for membership in all_families(4, 5):
        count += 1
        assert complaints(FIXED[planner](graph_of(membership)), Level.ACYCLIC, PROMISED.get(planner, set())) == []

    assert count == 4943


@pytest.mark.parametrize("planner", FIXED)
@pytest.mark.parametrize("level", Level)
@given(membership=memberships())
@settings(max_examples=60, deadline=None)
def test_plans_per_class_keep_their_level(planner: Planner, level: Level, membership: Membership) -> None:
    forest = FIXED[planner](graph_of(membership, ClassRule.for_level(level)))

    assert complaints(forest, level) == []


@given(membership=memberships(max_sites=10, max_groups=9))
@settings(max_examples=200, deadline=None)
def test_the_near_linear_greedy_is_the_greedy_of_app_i(membership: Membership) -> None:
    """Bucket queue and union-find give the forest of the step-by-step rule, when that has no intersecter rule."""
    graph = graph_of(membership)
    fast, literal = greedy(graph), literal_greedy(graph, intersecters_only=False)

    assert literal.parent.tolist() == fast.parent.tolist()
    assert literal.entry.tolist() == fast.entry.tolist()


def test_the_near_linear_greedy_is_the_same_on_large_instances() -> None:
    graph = graph_of(uniform(600, 120, 5, seed=4))

    assert np.array_equal(literal_greedy(graph, intersecters_only=False).parent, greedy(graph).parent)


class LiteralPartition(_Generator):
    """App. I as printed: "exists s in G" never holds, so G stays the groups that hold an intersecter (errata 1)."""

    placed_twice = False

    def _partitions(self, intersecters: Iterable[int]) -> list[tuple[set[int], set[int]]]:
        every = self.unmarked_groups
        self.unmarked_groups = {g for g in every if self.members[g] & set(intersecters)}
        parts = super()._partitions(intersecters)
        self.unmarked_groups = every
        return parts

    def _new_subtree(self, subroot: int) -> list[int]:
        before = self.parent.copy()
        subroots = super()._new_subtree(subroot)
        self.placed_twice |= bool(((before >= 0) & (before != self.parent)).any())
        return subroots


def test_errata_1_the_literal_partition_step_is_wrong() -> None:
    """Groups ab, ac, bd, ce, de: as printed a site gets two parents; repaired, the plan is right."""
    graph = graph_of(Membership.of({"g1": "ab", "g2": "ac", "g3": "bd", "g4": "ce", "g5": "de"}))
    literal = LiteralPartition(graph, True, ())
    literal.forest()

    assert literal.placed_twice
    assert [] == complaints(literal_greedy(graph), Level.ACYCLIC)


def test_equal_groups_stay_apart() -> None:
    """Errata 2: two groups with the same members are two groups."""
    plan = make_plan(Membership.of({"one": "abc", "two": "abc"}), Request(planner=Planner.GREEDY)).plan

    assert sorted(plan.groups) == ["one", "two"]
    assert all(edge.groups == ["one", "two"] for edge in plan.edges)


@pytest.mark.parametrize("planner", Planner)
def test_a_plan_is_a_function_of_the_membership(planner: Planner) -> None:
    """Errata 2: the order in which groups and members are given changes nothing, nor does planning twice."""
    groups = uniform(20, 10, 4, seed=1).as_dict()
    request = Request(planner=planner, budget=Budget(steps=3000))
    expected = make_plan(Membership.of(groups), request).plan
    for seed in range(5):
        chance = random.Random(seed)
        names = chance.sample(sorted(groups), len(groups))
        shuffled = {name: chance.sample(groups[name], len(groups[name])) for name in names}
        assert expected == make_plan(Membership.of(shuffled), request).plan


@pytest.mark.slow
@pytest.mark.parametrize("planner", Planner)
def test_trees_can_be_thousands_of_levels_deep(planner: Planner) -> None:
    """A chain of groups that share two sites each is one class and a tree no recursion would survive."""
    long = 900 if planner is Planner.GREEDY else 6000  # App. I is quadratic
    chain = {f"g{i:04}": [f"s{i:04}", f"t{i:04}", f"s{i + 1:04}", f"t{i + 1:04}"] for i in range(long)}
    request = Request(planner=planner, budget=Budget(steps=50), level=Level.TOTAL)
    plan = make_plan(Membership.of(chain), request).plan

    assert len(plan.classes) == 1
    if planner in {Planner.GREEDY, Planner.ELIMINATION}:
        above = {edge.child: edge.parent for edge in plan.edges}
        levels, site = 0, plan.groups[f"g{long - 1:04}"].entry
        while site in above:
            site, levels = above[site], levels + 1
        assert levels > long / 2.1


def test_classes_too_fine_for_the_level_are_refused_with_an_example() -> None:
    triangle = Membership.of({"G": "pq", "H": "qr", "I": "rp"})

    with pytest.raises(PlanError, match="acyclic does not hold: one message each"):
        make_plan(triangle, Request(planner=Planner.GREEDY, classes=ClassRule.S2))


def test_central_is_a_tree_of_depth_one_per_class() -> None:
    plan = make_plan(uniform(30, 12, 4, seed=2), Request(planner=Planner.CENTRAL)).plan

    assert {1} == {route.depth for route in plan.groups.values()}
    for groups in plan.classes:
        assert len({plan.groups[group].entry for group in groups}) == 1
