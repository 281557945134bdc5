"""GS88 Tables 1 and 2, and the costs of plans counted message by message."""

from collections import Counter

import pytest
from hypothesis import given, settings

from ordercast import ClassRule, Membership, Planner
from ordercast.planning.classes import class_labels
from ordercast.planning.cost import broadcast, mean_terms, point_to_point, two_phase_load
from ordercast.planning.forest import ClassGraph
from ordercast.planning.planners import FIXED
from ordercast.testing.strategies import memberships


def test_table_1() -> None:
    """N and D for n = 5, d = 3, ε = 2 with L = 10, P = 1, as printed."""
    table = point_to_point(members=5, depth=3, extra=2)

    assert {k: t.messages for k, t in table.items()} == {"two-phase": 15, "centralized": 5, "propagation": 7}
    delays = {name: terms.delay(latency=10, processing=1) for name, terms in table.items()}
    assert delays == {"two-phase": 3 * 10 + 11, "centralized": 2 * 10 + 5, "propagation": 4 * 10 + 7}


def test_table_2() -> None:
    table = broadcast(members=5, depth=3)

    assert {k: t.messages for k, t in table.items()} == {"two-phase": 7, "centralized": 2, "propagation": 4}
    assert {k: t.delay(broadcast=2) for k, t in table.items()} == {"two-phase": 14, "centralized": 4, "propagation": 8}


@pytest.mark.parametrize("planner", FIXED)
@given(membership=memberships())
@settings(max_examples=40, deadline=None)
def test_costs_are_what_sending_the_messages_costs(planner: Planner, membership: Membership) -> None:
    """One message per group, sent by hand along the plan's edges: load, messages, depth, extra nodes."""
    forest = FIXED[planner](ClassGraph.of(membership, class_labels(membership, ClassRule.BLOCKS)))
    plan = forest.plan(planner, "acyclic")  # type: ignore[arg-type]
    load: Counter[str] = Counter()
    messages = 0
    for group, route in plan.groups.items():
        arrived, todo = {route.entry: 0}, [route.entry]
        load[route.entry] += 1
        messages += 1
        while todo:
            site = todo.pop()
            for edge in plan.edges:
                if edge.parent == site and group in edge.groups:
                    load.update([site, edge.child])
                    messages += 1
                    arrived[edge.child] = arrived[site] + 1
                    todo.append(edge.child)
        assert route.depth == max(arrived[site] for site in route.members)
        assert route.extra == sorted(arrived.keys() - set(route.members))

    assert (max(load.values()), messages) == (plan.cost.max_load, plan.cost.messages)
    assert messages == pytest.approx(mean_terms(forest)["propagation"].messages * len(plan.groups))


def test_two_phase_load_is_three_messages_per_membership() -> None:
    membership = Membership.of({"g": "abc", "h": "cd"})

    assert two_phase_load(membership).tolist() == [3, 3, 6, 3]
