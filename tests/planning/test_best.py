"""`best`: within the cap, never worse than what it starts from, the same for the same seed, and near the optimum."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings

from ordercast import Budget, ClassRule, Level, Membership, Objective, PlanError, Planner, Request, judge, make_plan
from ordercast.membership.table import Indices
from ordercast.planning.best import best
from ordercast.planning.classes import class_labels
from ordercast.planning.forest import ClassGraph, Forest
from ordercast.planning.planners import FIXED, plan_forest
from ordercast.testing.strategies import memberships, seeds
from tests.planning.families import uniform

VALUE = {
    Objective.DELAY: lambda forest: forest.cost().mean_depth,
    Objective.EXTRA: lambda forest: forest.cost().mean_extra,
    Objective.LOAD: lambda forest: forest.cost().max_load,
}


@pytest.mark.parametrize("objective", Objective)
@given(membership=memberships(), seed=seeds())
@settings(max_examples=40, deadline=None)
def test_never_worse_than_greedy_or_metagroup(objective: Objective, membership: Membership, seed: int) -> None:
    request = Request(objective=objective, budget=Budget(steps=500), seed=seed)
    graph = ClassGraph.of(membership, class_labels(membership, request.class_rule))
    found = plan_forest(membership, request).forest
    verdict = judge(found.plan("best", Level.ACYCLIC), membership.as_dict())

    cap = FIXED[Planner.GREEDY](graph).cost().max_load
    assert verdict.ok, verdict
    assert verdict.findings["cost"].ok, verdict
    assert found.cost().max_load <= cap
    for planner in (Planner.GREEDY, Planner.ELIMINATION, Planner.METAGROUP):
        other = FIXED[planner](graph)
        if other.cost().max_load <= cap:
            assert VALUE[objective](found) <= VALUE[objective](other) + 1e-9


def test_the_search_knows_its_costs() -> None:
    """The running sums of the annealing are what the finished forest costs: or the best it kept would not be."""
    membership = uniform(40, 20, 5, seed=3)
    found = plan_forest(membership, Request(budget=Budget(steps=30_000))).forest
    greedy = FIXED[Planner.GREEDY](found.graph).cost()

    assert found.cost().mean_depth < 0.7 * greedy.mean_depth
    assert found.cost().max_load <= greedy.max_load


def test_seed_and_steps_give_the_same_plan() -> None:
    membership = uniform(40, 20, 5, seed=5)
    plans = [
        make_plan(membership, Request(seed=seed, budget=Budget(steps=steps))).plan
        for seed, steps in ((1, 9000), (1, 9000), (2, 9000))
    ]

    assert plans[0] == plans[1]
    assert plans[0] != plans[2]


def test_a_budget_of_seconds_can_be_repeated_in_steps() -> None:
    membership = uniform(40, 20, 5, seed=6)
    timed = make_plan(membership, Request(budget=Budget(seconds=0.2)))
    again = make_plan(membership, Request(budget=Budget(steps=timed.steps)))

    assert timed.plan == again.plan


def test_more_load_buys_less_delay_and_too_little_is_refused() -> None:
    membership = uniform(60, 30, 5, seed=7)
    budget = Budget(steps=30_000)
    tight = make_plan(membership, Request(budget=budget))
    assert tight.reference_load is not None
    loose = make_plan(membership, Request(budget=budget, max_load=3 * tight.reference_load))

    assert loose.plan.cost.mean_depth < tight.plan.cost.mean_depth
    with pytest.raises(PlanError, match="no plan found with a load of at most 3"):
        make_plan(membership, Request(budget=budget, max_load=3))


def test_busy_groups_come_first_when_weights_say_so() -> None:
    membership = uniform(60, 30, 5, seed=8)
    weights = 1.0 / np.arange(1, 31)
    budget = Budget(steps=30_000)
    plain = plan_forest(membership, Request(budget=budget)).forest
    weighted = plan_forest(membership, Request(budget=budget, weights=weights)).forest

    assert weighted.cost(weights).weighted_depth < plain.cost(weights).weighted_depth  # type: ignore[operator]


def test_a_hub_is_used_when_it_helps() -> None:
    """Two groups of a class are full to the cap; the idle site of another class can order them, non-member or not."""
    groups = {f"g{i}": [f"a{i}", f"b{i}", f"a{(i + 1) % 6}", f"b{(i + 1) % 6}"] for i in range(6)}
    groups |= {"far": ["idle", "idle2"]}
    membership = Membership.of(groups)
    request = Request(budget=Budget(steps=40_000), max_load=40)
    plan = make_plan(membership, request).plan

    assert plan.cost.mean_depth == 1.0
    assert any(route.entry not in route.members for route in plan.groups.values())


def every_tree(places: int) -> list[Indices]:
    """All rooted trees over so many nodes, as parent arrays."""
    trees = []
    for parents in product(range(-1, places), repeat=places):
        if parents.count(-1) != 1 or any(parent == node for node, parent in enumerate(parents)):
            continue
        if all(_reaches_root(parents, node) for node in range(places)):
            trees.append(np.array(parents, np.int32))
    return trees


def _reaches_root(parents: tuple[int, ...], node: int) -> bool:
    for _ in parents:
        node = parents[node]
        if node < 0:
            return True
    return False


@pytest.mark.slow
@pytest.mark.parametrize("objective", Objective)
def test_small_instances_reach_the_optimum_over_all_trees(objective: Objective) -> None:
    """Six sites in one class: all 7,776 rooted trees are tried; the search finds a best one."""
    trees = every_tree(6)
    assert len(trees) == 6**5
    for seed in range(4):
        membership = uniform(6, 5, 3, seed)
        graph = ClassGraph.of(membership, class_labels(membership, ClassRule.S1))
        if len(membership.sites) < 6 or len(set(graph.labels.tolist())) > 1:
            continue
        greedy = FIXED[Planner.GREEDY](graph)
        cap = greedy.cost().max_load
        within = [forest for forest in (Forest.of(graph, tree) for tree in trees) if forest.cost().max_load <= cap]
        optimum = min(VALUE[objective](forest) for forest in within)
        found = best(graph, [greedy], cap, objective, budget=Budget(steps=20_000), seed=seed).forest

        assert optimum == pytest.approx(VALUE[objective](found))


@pytest.mark.slow
@pytest.mark.parametrize("level", Level)
def test_never_worse_where_greedy_is_already_good(level: Level) -> None:
    """At level total greedy's depth is close to the least; `best` may lower the load, but not give up delay for it."""
    for seed in range(6):
        membership = uniform(200, 40, 5, seed)
        graph = ClassGraph.of(membership, class_labels(membership, ClassRule.for_level(level)))
        greedy = FIXED[Planner.GREEDY](graph).cost()
        found = plan_forest(membership, Request(level=level, budget=Budget(steps=30_000), seed=seed)).forest.cost()

        assert found.mean_depth <= greedy.mean_depth + 1e-9
        assert found.max_load <= greedy.max_load
