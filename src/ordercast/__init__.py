"""Totally ordered multicast to overlapping groups: planned, run live, proven from the logs."""

from typing import TYPE_CHECKING, Any

from ordercast.errors import HistoryError, InputError, LocalError, OrdercastError, PeerError, PlanError
from ordercast.names import ClassRule, GroupId, Level, Objective, Planner, SiteId

if TYPE_CHECKING:
    from ordercast.client.client import Client, LinkLostError, connect
    from ordercast.live.config import Cluster, read_cluster
    from ordercast.live.inbox import Delivered
    from ordercast.live.outbox import Receipt
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
    "LinkLostError": "client.client",
    "connect": "client.client",
    "Cluster": "live.config",
    "read_cluster": "live.config",
    "Delivered": "live.inbox",
    "Receipt": "live.outbox",
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
