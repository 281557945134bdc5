"""From a membership to a judged plan. No plan leaves here that its level does not hold for."""

from collections.abc import Callable
from dataclasses import dataclass

from ordercast.errors import PlanError
from ordercast.membership.table import Membership
from ordercast.planning.plan import Plan
from ordercast.planning.request import Request
from ordercast.verify.plans import Verdict, judge


@dataclass(frozen=True)
class Made:
    """A plan, what the judge said of it, and how the search got there (`best` only)."""

    plan: Plan
    verdict: Verdict
    steps: int = 0
    reference_load: int | None = None


def make_plan(
    membership: Membership, request: Request | None = None, progress: Callable[[float], None] = lambda fraction: None
) -> Made:
    """Plan a membership and judge the plan by its edges; raises PlanError when the level does not hold."""
    from ordercast.planning.planners import plan_forest  # compiled kernels: loaded when there is something to plan

    request = request or Request()
    planned = plan_forest(membership, request, progress)
    plan = planned.forest.plan(request.planner, request.level, request.weights)
    verdict = judge(plan, membership.as_dict())
    if (broken := verdict.broken) is not None:
        classes = f"classes {request.class_rule}, level {request.level}"
        raise PlanError(f"{classes}: {broken} does not hold: {verdict.findings[broken].example}")
    return Made(plan, verdict, planned.steps, planned.reference_load)
