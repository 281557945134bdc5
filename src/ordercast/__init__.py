"""Totally ordered multicast to overlapping groups: planned, run live, proven from the logs."""

from typing import TYPE_CHECKING, Any

from ordercast.errors import HistoryError, InputError, LocalError, OrdercastError, PeerError, PlanError
from ordercast.types import ClassRule, GroupId, Level, Objective, Planner, SiteId

if TYPE_CHECKING:
    from ordercast.membership import Membership, read_membership
    from ordercast.planning.request import Budget, Request
    from ordercast.plans import make_plan
    from ordercast.runtime.client import Client, LinkLostError, connect
    from ordercast.runtime.config import Cluster, read_cluster
    from ordercast.runtime.inbox import Delivered
    from ordercast.runtime.outbox import Receipt
    from ordercast.runtime.site import Site
    from ordercast.topology import Plan, read_plan
    from ordercast.verify.plans import judge

__version__ = "0.1.0"

_LATER = {
    "Membership": "membership",
    "read_membership": "membership",
    "Budget": "planning.request",
    "Request": "planning.request",
    "make_plan": "plans",
    "Plan": "topology",
    "read_plan": "topology",
    "judge": "verify.plans",
    "Client": "runtime.client",
    "LinkLostError": "runtime.client",
    "connect": "runtime.client",
    "Cluster": "runtime.config",
    "read_cluster": "runtime.config",
    "Delivered": "runtime.inbox",
    "Receipt": "runtime.outbox",
    "Site": "runtime.site",
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
