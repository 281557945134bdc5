"""The judge of forests in arrays agrees with the judge of plans in names."""

import random

import numpy as np

from ordercast import ClassRule, Level, Planner, Request, judge
from ordercast.planning.classes import class_labels
from ordercast.planning.forest import ClassGraph, Forest
from ordercast.planning.planners import plan_forest
from ordercast.verify.findings import Finding
from ordercast.verify.forests import judge_forest
from tests.planning import families


def found(forest: Forest, level: Level) -> Finding | None:
    graph = forest.graph
    finest = class_labels(graph.membership, ClassRule.for_level(level))
    members = graph.membership.edge_groups, graph.member_node
    return judge_forest(forest.parent, forest.entry, *members, graph.labels, finest, level)


def test_both_judges_say_the_same() -> None:
    """Random families, planners, classes and levels; right plans, and plans that are right for another level only."""
    verdicts = set()
    for seed in range(120):
        chance = random.Random(seed)
        family = families.uniform(10, 8, chance.choice([2, 3]), seed)
        planner = chance.choice([Planner.GREEDY, Planner.ELIMINATION, Planner.METAGROUP, Planner.CENTRAL])
        level, rule = chance.choice(list(Level)), chance.choice(list(ClassRule))
        forest = plan_forest(family, Request(planner, level, rule)).forest
        verdict = judge(forest.plan(planner, level), family.as_dict())

        assert verdict.ok == (found(forest, level) is None), (seed, verdict, found(forest, level))
        verdicts.add(verdict.ok)

    assert verdicts == {True, False}


def test_a_member_that_hangs_elsewhere_and_a_circle_are_found() -> None:
    family = families.uniform(10, 8, 3, 1)
    graph = ClassGraph.of(family, class_labels(family, ClassRule.BLOCKS))
    forest = plan_forest(family, Request(Planner.ELIMINATION)).forest
    below = int(np.flatnonzero(forest.parent >= 0)[-1])
    cut, circle = forest.parent.copy(), forest.parent.copy()
    cut[below] = -1
    circle[forest.parent[below]] = below

    assert found(forest, Level.ACYCLIC) is None
    assert "not below" in str(found(Forest.of(graph, cut, forest.entry), Level.ACYCLIC))
    assert found(Forest.of(graph, circle, forest.entry), Level.ACYCLIC) is not None
