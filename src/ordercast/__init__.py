"""Totally ordered multicast to overlapping groups: planned, run live, proven from the logs."""

from typing import TYPE_CHECKING, Any

from ordercast.errors import HistoryError, InputError, LocalError, OrdercastError, PeerError, PlanError
from ordercast.membership import Membership, read_membership
from ordercast.planning.request import Budget, Request
from ordercast.plans import make_plan
from ordercast.topology import Plan, read_plan
from ordercast.types import ClassRule, GroupId, Level, Objective, Planner, SiteId
from ordercast.verify.plans import judge

if TYPE_CHECKING:
    from ordercast.runtime.client import Client, LinkLostError, connect
    from ordercast.runtime.config import Cluster, read_cluster
    from ordercast.runtime.inbox import Delivered
    from ordercast.runtime.site import Receipt, Site

__version__ = "0.1.0"

_LIVE = {
    "Client": "client",
    "LinkLostError": "client",
    "connect": "client",
    "Cluster": "config",
    "read_cluster": "config",
    "Delivered": "inbox",
    "Receipt": "site",
    "Site": "site",
}


def __getattr__(name: str) -> Any:
    """Load the live system when it is first asked for: planning and judging do not need it."""
    if name not in _LIVE:
        raise AttributeError(f"module 'ordercast' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"ordercast.runtime.{_LIVE[name]}"), name)


__all__ = [
    "Budget",
    "ClassRule",
    "Client",
    "Cluster",
    "Delivered",
    "GroupId",
    "HistoryError",
    "InputError",
    "Level",
    "LinkLostError",
    "LocalError",
    "Membership",
    "Objective",
    "OrdercastError",
    "PeerError",
    "Plan",
    "PlanError",
    "Planner",
    "Receipt",
    "Request",
    "Site",
    "SiteId",
    "connect",
    "judge",
    "make_plan",
    "read_cluster",
    "read_membership",
    "read_plan",
]
