"""The judge against a naive twin: every run of a small plan, message by message, every class of an edge a stream."""

import os
import random
from collections import defaultdict
from itertools import combinations

import msgspec
import pytest
from hypothesis import given, settings

from ordercast import ClassRule, Level, Membership, Plan, Planner, Request, judge, make_plan
from ordercast.errors import PlanError
from ordercast.planning.plan import Cost, Edge, GroupPlan
from ordercast.testing.strategies import seeds

Logs = tuple[tuple[str, ...], ...]
State = tuple[tuple[str, ...], Logs, Logs]  # still outside, on each link, seen by each site


def by_hand(routes: dict[str, tuple[str, str, list[tuple[str, str]]]], classes: list[list[str]] | None = None) -> Plan:
    """Write a plan down: group -> (entry, members, edges). Its costs are not filled in."""
    carried: dict[tuple[str, str], list[str]] = defaultdict(list)
    for group, (_, _, edges) in routes.items():
        for edge in edges:
            carried[edge].append(group)
    groups = {group: GroupPlan(entry, sorted(members), 0, []) for group, (entry, members, _) in routes.items()}
    edges_ = [Edge(*ends, on_it) for ends, on_it in sorted(carried.items())]
    return Plan("by hand", Level.ACYCLIC, 1, classes or [sorted(routes)], groups, edges_, Cost(0, 0, 0, 0))


def every_outcome(plan: Plan) -> set[Logs]:
    """All the logs that one message per group can leave behind: what every site delivers, in order."""
    sites = sorted({s for e in plan.edges for s in (e.parent, e.child)} | {r.entry for r in plan.groups.values()})
    number = {site: index for index, site in enumerate(sites)}
    ends = [
        (number[edge.parent], number[edge.child], frozenset(edge.groups).intersection(groups))
        for edge in plan.edges
        for groups in plan.classes
        if not set(groups).isdisjoint(edge.groups)
    ]
    start: State = (tuple(sorted(plan.groups)), tuple(() for _ in ends), tuple(() for _ in sites))
    seen, todo = {start}, [start]
    outcomes: set[Logs] = set()
    while todo:
        outside, links, logs = todo.pop()
        moves: list[tuple[str, int, int | None]] = [
            (group, number[plan.groups[group].entry], None) for group in outside
        ]
        moves += [(link[0], ends[index][1], index) for index, link in enumerate(links) if link]
        if not moves:
            outcomes.add(
                tuple(tuple(g for g in log if s in plan.groups[g].members) for s, log in zip(sites, logs, strict=True))
            )
        for group, site, link_index in moves:
            after_links = [link[1:] if index == link_index else link for index, link in enumerate(links)]
            for index, (parent, _, groups) in enumerate(ends):
                if parent == site and group in groups:
                    after_links[index] += (group,)
            after_logs = tuple((*log, group) if index == site else log for index, log in enumerate(logs))
            still_outside = tuple(g for g in outside if link_index is not None or g != group)
            state: State = (still_outside, tuple(after_links), after_logs)
            if state not in seen:
                seen.add(state)
                todo.append(state)
    return outcomes


def disagree(logs: Logs) -> bool:
    for one, other in combinations(logs, 2):
        common = [g for g in one if g in other]
        if common != [g for g in other if g in one]:
            return True
    return False


def cyclic(logs: Logs) -> bool:
    before = {(a, b) for log in logs for a, b in combinations(log, 2)}
    left = {group for log in logs for group in log}
    while left:
        free = {g for g in left if not any(b == g and a in left for a, b in before)}
        if not free:
            return True
        left -= free
    return False


def random_plan(seed: int) -> Plan:
    """Three or four groups over five sites, each with a random tree of its own: few of them agree with each other."""
    chance = random.Random(seed)
    sites = "abcde"
    routes = {}
    shared = {site: chance.choice(sites) for site in sites}  # most edges come from one tree, so that some plans hold
    for index in range(chance.choice([2, 3, 3, 4])):
        members = chance.sample(sites, chance.choice([2, 2, 3]))
        entry = chance.choice(sites if chance.random() < 0.3 else members)
        placed, edges = [entry], []
        extra = chance.sample(sites, chance.choice([0, 0, 1]))
        for site in chance.sample(members, len(members)) + extra:
            if site in placed:
                continue
            parent = shared[site] if shared[site] in placed and chance.random() < 0.8 else chance.choice(placed)
            edges.append((parent, site))
            placed.append(site)
        routes[f"g{index}"] = (entry, "".join(members), edges)
    names = list(routes)
    split = chance.choice([0, 0, 1, len(names)])  # one class, two, or one for each group
    classes = [[name] for name in names] if split == len(names) else [names[split:], names[:split]]
    return by_hand(routes, [groups for groups in classes if groups])


@pytest.mark.slow
@given(seed=seeds())
@settings(max_examples=1500 if "ORDERCAST_CAMPAIGN" in os.environ else 500, deadline=None)
def test_the_judge_is_right_about_total_and_acyclic(seed: int) -> None:
    """On plans that are mostly no forests: total and acyclic hold exactly when no run of all breaks them."""
    plan = random_plan(seed)
    verdict = judge(plan)
    assert verdict.findings["PG2"].ok, verdict
    outcomes = every_outcome(plan)

    assert verdict.findings["total"].ok == (not any(map(disagree, outcomes))), verdict
    assert verdict.findings["acyclic"].ok == (not any(map(cyclic, outcomes))), verdict


def test_random_plans_show_every_verdict() -> None:
    """The comparison above is worth something: it meets plans that are acyclic, only total, and neither."""
    verdicts = {
        (v.findings["total"].ok, v.findings["acyclic"].ok) for v in (judge(random_plan(seed)) for seed in range(700))
    }

    assert {(True, True), (True, False), (False, False)} == verdicts


TREE = {"A": ("a", "abc", [("a", "b"), ("b", "c")]), "B": ("b", "bc", [("b", "c")])}


@pytest.mark.parametrize(
    ("change", "name", "example"),
    [
        ({"A": ("a", "abc", [("a", "b")])}, "PG2", "member 'c' of 'A' has no path from the entry 'a'"),
        ({"A": ("a", "abc", [("a", "b"), ("b", "c"), ("a", "c")])}, "PG2", "'c' gets the messages of 'A' twice"),
        (
            {"A": ("a", "abc", [("a", "b"), ("b", "c"), ("c", "a")])},
            "PG2",
            "'a' gets the messages of 'A' twice: from 'outside'",
        ),
        (
            {"B": ("b", "bc", [("b", "c"), ("d", "e")])},
            "PG2",
            "edge 'd' -> 'e' lists 'B' but none of its messages reach it",
        ),
        ({"B": ("", "bc", [("b", "c")])}, "PG1", "group 'B' has no entry"),
        ({"B": ("c", "bc", [("c", "b")])}, "total", "a message to 'A' and one to 'B' can differ in order"),
        ({"B": ("a", "bc", [("a", "b"), ("b", "c")])}, "PG3", "the entry 'a' of 'B' is not a member"),
        ({"B": ("b", "bc", [("b", "d"), ("d", "c")])}, "PG4", "'d' is an extra node of 'B'"),
    ],
)
def test_what_is_broken_is_named(
    change: dict[str, tuple[str, str, list[tuple[str, str]]]], name: str, example: str
) -> None:
    assert judge(by_hand(TREE)).findings[name].ok
    found = judge(by_hand(TREE | change)).findings[name]

    assert not found.ok
    assert example in found.says


def test_a_plan_for_another_membership_is_refused() -> None:
    members = {"g": ["a", "b"], "h": ["b", "c"]}
    plan = make_plan(Membership.of(members), Request(planner=Planner.GREEDY)).plan

    assert judge(plan, members).ok
    assert not judge(plan, members | {"h": ["b", "d"]}).ok
    assert not judge(plan, members | {"i": ["a"]}).ok
    assert not judge(plan, {"g": ["a", "b"]}).ok


def test_classes_must_hold_every_group_once() -> None:
    assert not judge(by_hand(TREE, [["A"]])).findings["form"].ok
    assert not judge(by_hand(TREE, [["A", "B"], ["B"]])).findings["form"].ok
    assert not judge(by_hand(TREE, [["A", "B", "C"]])).findings["form"].ok


def test_a_plan_that_lies_about_its_cost_is_found_out() -> None:
    plan = make_plan(Membership.of({"g": ["a", "b"]}), Request(planner=Planner.GREEDY)).plan
    lie = msgspec.structs.replace(plan, cost=msgspec.structs.replace(plan.cost, max_load=1))

    assert judge(plan).findings["cost"].ok
    assert not judge(lie).findings["cost"].ok


def test_two_parents_in_a_circle_are_not_a_forest() -> None:
    """Each site has one parent, but a is above b and b above a: two messages can cross on the way."""
    plan = by_hand({"A": ("a", "ab", [("a", "b")]), "B": ("b", "ab", [("b", "a")])})

    assert not judge(plan).findings["total"].ok


def test_a_site_in_several_trees_is_fine() -> None:
    """One class per pair that meets at one site: no cycle of classes and sites, so any merging is acyclic."""
    chain = {"A": ("a", "ab", [("a", "b")]), "B": ("c", "bc", [("c", "b")]), "C": ("d", "cd", [("d", "c")])}

    assert judge(by_hand(chain, [["A"], ["B"], ["C"]])).findings["acyclic"].ok


def test_classes_are_no_alibi() -> None:
    """The judge goes by the edges: a plan that claims one class for three independent trees is still cyclic."""
    triangle = {"G": ("p", "pq", [("p", "q")]), "H": ("q", "qr", [("q", "r")]), "I": ("r", "rp", [("r", "p")])}
    verdict = judge(by_hand(triangle, [["G", "H", "I"]]))

    assert verdict.findings["total"].ok
    assert not verdict.findings["acyclic"].ok


def test_one_link_has_one_entry() -> None:
    """Two entries for b -> c would be two FIFO links, over which two messages can pass each other."""
    plan = by_hand(TREE)
    split = [Edge("a", "b", ["A"]), Edge("b", "c", ["A"]), Edge("b", "c", ["B"])]

    assert judge(plan).findings["form"].ok
    assert not judge(msgspec.structs.replace(plan, edges=split)).findings["form"].ok


def test_a_plan_without_groups_is_refused() -> None:
    assert not judge(Plan("none", Level.ACYCLIC, 1, [], {}, [], Cost(0, 0, 0, 0))).ok


def test_errata_73_two_classes_on_one_edge_are_two_streams() -> None:
    """One tree for many groups, written down with a class for each: classes overtake each other on an edge."""
    chance = random.Random(5)
    groups = {f"g{i:02}": chance.sample([f"s{j:03}" for j in range(200)], 5) for i in range(40)}
    plan = make_plan(Membership.of(groups), Request(planner=Planner.ELIMINATION, classes="s1")).plan  # type: ignore[arg-type]
    singles = msgspec.structs.replace(plan, classes=[[group] for group in plan.groups])

    assert judge(plan, groups).ok
    assert not judge(singles, groups).findings["acyclic"].ok


def test_classes_that_are_too_fine_for_the_level_are_refused() -> None:
    """The triangle of KIN: S2 makes three classes, and the central planner sends all of them over the same edges."""
    triangle = Membership.of({"G": "pq", "H": "qr", "I": "rp"})
    for planner in Planner:
        with pytest.raises(PlanError, match="acyclic does not hold"):
            make_plan(triangle, Request(planner, Level.ACYCLIC, ClassRule.S2))
        assert make_plan(triangle, Request(planner, Level.TOTAL, ClassRule.S2)).verdict.ok


def test_what_no_forest_is_cannot_run() -> None:
    """A site with two parents in one class, and a circle: the machine has one parent per site and class."""
    two_parents = {"A": ("a", "ac", [("a", "c")]), "B": ("b", "bc", [("b", "c")])}
    circle = {"A": ("a", "ab", [("a", "b")]), "B": ("b", "ab", [("b", "a")])}

    assert judge(by_hand(TREE)).findings["forest"].ok
    assert "two parents" in judge(by_hand(two_parents)).findings["forest"].says
    assert "above itself" in judge(by_hand(circle)).findings["forest"].says
    assert "forest" == judge(by_hand(two_parents)).broken


def test_a_plan_that_lies_about_its_form_is_refused() -> None:
    plan = make_plan(Membership.of({"g": ["a", "b"], "h": ["b", "c"]}), Request(planner=Planner.GREEDY)).plan
    replace = msgspec.structs.replace
    nameless = replace(plan.groups["g"], members=["", "a", "b"])
    wrong_extra = replace(plan.groups["g"], extra=["c"])

    assert judge(plan).ok
    assert "form" == judge(replace(plan, epoch=-1)).broken
    assert "form" == judge(replace(plan, epoch=0)).broken
    assert "form" == judge(replace(plan, groups=plan.groups | {"g": nameless})).broken
    assert "extra" == judge(replace(plan, groups=plan.groups | {"g": wrong_extra})).broken


def test_many_harmless_meetings_cost_nothing() -> None:
    """Three groups in a ring that also share 600 extra leaves: only the ring decides."""
    leaves = [f"leaf{i}" for i in range(600)]
    ring = {"G": ("p", ["p", "q"]), "H": ("q", ["q", "r"]), "I": ("r", ["r", "p"])}
    routes = {}
    for group, (entry, members) in ring.items():
        routes[group] = (entry, members, [(entry, members[1]), *((entry, leaf) for leaf in leaves)])
    verdict = judge(by_hand(routes))  # type: ignore[arg-type]

    assert verdict.findings["total"].ok
    assert not verdict.findings["acyclic"].ok
