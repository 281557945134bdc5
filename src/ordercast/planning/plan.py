"""Frozen plans: an entry per group and the edges its messages cross. Names only; no planner, no protocol."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

import msgspec

from ordercast.errors import InputError
from ordercast.names import GroupId, Level, SiteId


class GroupPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One group: where its messages enter (the primary destination) and whom they reach."""

    entry: SiteId
    members: list[SiteId]
    depth: int
    """Hops from the entry to the farthest member."""
    extra: list[SiteId]
    """Extra nodes: non-members that handle the group's messages (GS88 §3.1)."""


class Edge(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A link that carries the messages of exactly these groups, each class as a FIFO stream of its own (errata 73)."""

    parent: SiteId = msgspec.field(name="from")
    child: SiteId = msgspec.field(name="to")
    groups: list[GroupId]


class Cost(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a plan costs when every group gets one message from outside (GS88 §4)."""

    mean_depth: float
    mean_extra: float
    max_load: int
    """Messages sent plus received at the busiest site."""
    messages: int
    weighted_depth: float | None = None
    """Mean depth by traffic, when weights were given."""


class Plan(msgspec.Struct, frozen=True, dict=True):
    """Route tables for a membership: all that the propagation machine needs to know."""

    planner: str
    level: Level
    epoch: int
    classes: list[list[GroupId]]
    groups: dict[GroupId, GroupPlan]
    edges: list[Edge]
    cost: Cost

    def children(self) -> dict[SiteId, list[Edge]]:
        """Return the edges that leave each site."""
        leaving: dict[SiteId, list[Edge]] = {}
        for edge in self.edges:
            leaving.setdefault(edge.parent, []).append(edge)
        return leaving

    def class_of(self) -> dict[GroupId, int]:
        """Return the index of each group's class."""
        return {group: index for index, groups in enumerate(self.classes) for group in groups}

    @cached_property
    def hops(self) -> dict[GroupId, list[tuple[SiteId, SiteId]]]:
        """The edges (from, to) that each group's messages cross."""
        found: dict[GroupId, list[tuple[SiteId, SiteId]]] = {}
        for group, sender, receiver in self.crossings():
            found.setdefault(group, []).append((sender, receiver))
        return found

    def crossings(self) -> Iterator[tuple[GroupId, SiteId, SiteId]]:
        """Yield (group, from, to) for every edge and every group on it."""
        for edge in self.edges:
            for group in edge.groups:
                yield group, edge.parent, edge.child


def read_plan(path: str | Path) -> Plan:
    """Read a plan from JSON; says what is wrong and where. The plan is not judged: see `verify.plans`."""
    try:
        return msgspec.json.decode(Path(path).read_bytes(), type=Plan)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: not a plan: {error}") from None
