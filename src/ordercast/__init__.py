"""Totally ordered multicast to overlapping groups: planned, run live, proven from the logs."""

from ordercast.errors import InputError, LocalError, OrdercastError, PlanError
from ordercast.membership import Membership, read_membership
from ordercast.planning.request import Budget, Request
from ordercast.plans import make_plan
from ordercast.topology import Plan, read_plan
from ordercast.types import ClassRule, GroupId, Level, Objective, Planner, SiteId
from ordercast.verify.plans import judge

__version__ = "0.1.0"

__all__ = [
    "Budget",
    "ClassRule",
    "GroupId",
    "InputError",
    "Level",
    "LocalError",
    "Membership",
    "Objective",
    "OrdercastError",
    "Plan",
    "PlanError",
    "Planner",
    "Request",
    "SiteId",
    "judge",
    "make_plan",
    "read_membership",
    "read_plan",
]
