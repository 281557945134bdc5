"""Totally ordered multicast to overlapping groups: planned, run live, proven from the logs."""

from typing import TYPE_CHECKING, Any

from ordercast.errors import (
    BugError,
    DroppedError,
    HistoryError,
    InputError,
    LocalError,
    LostError,
    OrdercastError,
    PeerError,
    PlanError,
    UnreachableError,
)
from ordercast.names import ClassRule, GroupId, Level, Objective, Planner, SiteId

if TYPE_CHECKING:
    from ordercast.client.client import Client, connect
    from ordercast.client.values import Delivered, Gap, Receipt, Restored, RolledBack, ViewChanged
    from ordercast.live.config import Cluster, read_cluster
    from ordercast.live.site import Site
    from ordercast.membership.files import read_membership
    from ordercast.membership.table import Membership
    from ordercast.planning.make import make_plan
    from ordercast.planning.plan import Plan, read_plan
    from ordercast.planning.request import Budget, Request
    from ordercast.verify.plans import judge

__version__ = "0.1.0"

_LATER = {
    "Membership": "membership.table",
    "read_membership": "membership.files",
    "Budget": "planning.request",
    "Request": "planning.request",
    "make_plan": "planning.make",
    "Plan": "planning.plan",
    "read_plan": "planning.plan",
    "judge": "verify.plans",
    "Client": "client.client",
    "connect": "client.client",
    "Cluster": "live.config",
    "read_cluster": "live.config",
    "Delivered": "client.values",
    "Receipt": "client.values",
    "Gap": "client.values",
    "Restored": "client.values",
    "RolledBack": "client.values",
    "ViewChanged": "client.values",
    "Site": "live.site",
}


def __getattr__(name: str) -> Any:
    """Load what is asked for when it is: a client needs no planner, a planner no sockets."""
    if name not in _LATER:
        raise AttributeError(f"module 'ordercast' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"ordercast.{_LATER[name]}"), name)


__all__ = [
    "Budget",
    "BugError",
    "ClassRule",
    "Client",
    "Cluster",
    "Delivered",
    "DroppedError",
    "Gap",
    "GroupId",
    "HistoryError",
    "InputError",
    "Level",
    "LocalError",
    "LostError",
    "Membership",
    "Objective",
    "OrdercastError",
    "PeerError",
    "Plan",
    "PlanError",
    "Planner",
    "Receipt",
    "Request",
    "Restored",
    "RolledBack",
    "Site",
    "SiteId",
    "UnreachableError",
    "ViewChanged",
    "connect",
    "judge",
    "make_plan",
    "read_cluster",
    "read_membership",
    "read_plan",
]
