"""The only ways to a plan, and every one of them ends before the judge: made, given, in arrays.

`planning.cache` adds the fourth, read from where an earlier run has left it. Light to import: planners and their
compiled kernels are loaded when there is something to plan.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from ordercast.errors import InputError, PlanError
from ordercast.names import ClassRule, GroupId, Level, SiteId
from ordercast.planning.plan import Plan
from ordercast.verify.plans import Verdict, judge

if TYPE_CHECKING:
    from ordercast.membership.table import Membership
    from ordercast.planning.forest import Forest
    from ordercast.planning.request import Request


class Made(msgspec.Struct, frozen=True):
    """A plan, what the judge said of it, and how the search got there (`best` only)."""

    plan: Plan
    verdict: Verdict
    steps: int = 0
    reference_load: int | None = None


def make_plan(
    membership: "Membership",
    request: "Request | None" = None,
    progress: Callable[[float], None] = lambda fraction: None,
) -> Made:
    """Plan a membership and judge the plan by its edges; raises PlanError when the level does not hold."""
    from ordercast.planning.planners import plan_forest
    from ordercast.planning.request import Request

    request = request or Request()
    planned = plan_forest(membership, request, progress)
    plan = planned.forest.plan(request.planner, request.level, request.weights)
    verdict = judge(plan, membership.as_dict())
    if (why := _refused(verdict)) is not None:
        raise PlanError(f"classes {request.class_rule}, level {request.level}: {why}")
    return Made(plan, verdict, planned.steps, planned.reference_load)


def check_plan(
    plan: Plan,
    members: Mapping[GroupId, Iterable[SiteId]],
    level: Level | None = None,
    where: str = "the plan cannot run",
) -> Verdict:
    """Judge a plan that somebody else made: for these groups (a union `A+B` is one of them), and for this level.

    Raises InputError, which begins with `where`, when the plan must not run.
    """
    verdict = judge(plan, members)
    why = _refused(verdict)
    if why is None and level not in (None, plan.level):
        why = f"it is for level {plan.level}, not {level}"
    if why is not None:
        raise InputError(f"{where}: {why}")
    return verdict


def make_forest(membership: "Membership", request: "Request") -> "Forest":
    """Plan a membership that is too large to write its plan down in names; raises PlanError like `make_plan`.

    A cap on the load is the caller's to check: sites here may stand for many.
    """
    from ordercast.planning.classes import class_labels
    from ordercast.planning.planners import plan_forest
    from ordercast.verify.forests import judge_forest

    forest = plan_forest(membership, replace(request, max_load=None)).forest
    graph = forest.graph
    finest = class_labels(membership, ClassRule.for_level(request.level))
    found = judge_forest(
        forest.parent, forest.entry, membership.edge_groups, graph.member_node, graph.labels, finest, request.level
    )
    if found is not None:
        raise PlanError(f"classes {request.class_rule}, level {request.level}: {found.property} does not hold: {found}")
    return forest


def _refused(verdict: Verdict) -> str | None:
    """Say why a plan must not run, or None."""
    broken = verdict.broken
    return None if broken is None else f"{broken} does not hold: {verdict.findings[broken].says}"
