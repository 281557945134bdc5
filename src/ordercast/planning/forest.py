"""A forest over (site, class) nodes: what every planner makes, and how it becomes a Plan.

Any rooted forest that has all members of a group in one tree is a valid plan when each group enters at or above the
lowest node over its members: messages only ever flow down, edges are FIFO, so the order is acyclic (docs/classes.md).
"""

from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

import numpy as np

from ordercast.membership.table import Indices, Membership, Offsets
from ordercast.names import Level
from ordercast.planning import kernels
from ordercast.planning.classes import named
from ordercast.planning.plan import Cost, Edge, GroupPlan, Plan
from ordercast.planning.request import Weights


@dataclass(frozen=True, eq=False)
class ClassGraph:
    """The membership split by classes: a node for every (site, class) pair, so a site can be in several trees."""

    membership: Membership
    labels: Indices
    node_site: Indices
    node_class: Indices
    member_node: Indices
    node_ptr: Offsets
    node_groups: Indices

    @classmethod
    def of(cls, membership: Membership, labels: Indices) -> "ClassGraph":
        """Split a membership by the class of each group."""
        arrays = kernels.class_nodes(
            membership.group_ptr,
            membership.group_sites,
            membership.site_ptr,
            membership.site_groups,
            labels,
            int(labels.max()) + 1,
        )
        return cls(membership, labels, *arrays)

    def nodes_of(self, group: int) -> Indices:
        """Return the nodes of a group's members."""
        return self.member_node[self.membership.group_ptr[group] : self.membership.group_ptr[group + 1]]

    def groups_of(self, node: int) -> Indices:
        """Return the groups of a node, all of its class."""
        return self.node_groups[self.node_ptr[node] : self.node_ptr[node + 1]]

    def names(self, node: int) -> str:
        """Return the site name of a node."""
        return self.membership.sites[int(self.node_site[node])]


@dataclass(frozen=True, eq=False)
class Forest:
    """Parents of nodes (-1 at a root) and the entry node of each group.

    Nodes past those of the graph are hubs: sites put into a class of which they have no group.
    """

    graph: ClassGraph
    parent: Indices
    entry: Indices
    hub_site: Indices

    @classmethod
    def of(
        cls, graph: ClassGraph, parent: Indices, entry: Indices | None = None, hub_site: Indices | None = None
    ) -> "Forest":
        """Enter each group at the lowest node above its members, unless told otherwise."""
        if entry is None:
            entry = kernels.lowest_entries(graph.membership.group_ptr, graph.member_node, parent)
        return cls(graph, parent, entry, np.empty(0, np.int32) if hub_site is None else hub_site)

    @property
    def node_site(self) -> Indices:
        """The site of every node, hubs included."""
        return np.concatenate([self.graph.node_site, self.hub_site])

    @cached_property
    def _sizes(self) -> tuple[Offsets, Indices, Offsets]:
        graph = self.graph
        return kernels.route_sizes(graph.membership.group_ptr, graph.member_node, self.parent, self.entry)

    @cached_property
    def routes(self) -> tuple[Offsets, Indices]:
        """Offsets per group, and the lower node of every edge that the group's messages cross."""
        graph, crossed = self.graph, self._sizes[0]
        return crossed, kernels.route_nodes(
            graph.membership.group_ptr, graph.member_node, self.parent, self.entry, crossed
        )

    @property
    def depth(self) -> Indices:
        """Hops from the entry to the farthest member, per group."""
        return self._sizes[1]

    @property
    def extra(self) -> Offsets:
        """Non-members that handle the group's messages, per group: sites reached, less the members."""
        return np.diff(self._sizes[0]) + 1 - np.diff(self.graph.membership.group_ptr)

    @property
    def passes(self) -> Offsets:
        """How many groups' messages cross the edge above each node."""
        return self._sizes[2]

    @property
    def load(self) -> Offsets:
        """Messages sent plus received per site when every group gets one message from outside."""
        return self.load_of(np.ones(len(self.graph.membership.sites), np.int64))

    def load_of(self, weight: Offsets) -> Offsets:
        """Return the load of each site where a site receives for so many that are all sent to by its parent."""
        site, passes = self.node_site, self.passes
        load = np.bincount(site[self.entry], minlength=len(weight)).astype(np.int64)
        np.add.at(load, site, passes)
        below = np.flatnonzero(self.parent >= 0)
        np.add.at(load, site[self.parent[below]], (passes * weight[site])[below])
        return load

    def cost(self, weights: Weights | None = None) -> Cost:
        """Sum up: the exact definitions are in docs/formats.md."""
        return Cost(
            mean_depth=float(self.depth.mean()),
            mean_extra=float(self.extra.mean()),
            max_load=int(self.load.max()),
            messages=int(self._sizes[0][-1]) + len(self.entry),
            weighted_depth=None if weights is None else float(np.average(self.depth, weights=weights)),
        )

    def plan(self, planner: str, level: Level, weights: Weights | None = None) -> Plan:
        """Write the forest down as names. Trees that share an edge between two sites share its FIFO link."""
        membership = self.graph.membership
        site, (crossed, lower) = self.node_site, self.routes
        groups, names = {}, membership.sites
        reached, bounds = site[lower].tolist(), crossed.tolist()
        entries, depths = site[self.entry].tolist(), self.depth.tolist()
        for g, name in enumerate(membership.groups):  # plain lists: a call of numpy per group is dear with 100,000
            members = membership.members(g).tolist()
            extra = {*reached[bounds[g] : bounds[g + 1]], entries[g]}.difference(members)
            groups[name] = GroupPlan(
                entry=names[entries[g]],
                members=[names[s] for s in members],
                depth=int(depths[g]),
                extra=[names[s] for s in sorted(extra)],
            )
        carried = np.repeat(np.arange(len(membership.groups)), np.diff(crossed))
        rows = zip(site[self.parent[lower]].tolist(), site[lower].tolist(), carried.tolist(), strict=True)
        edges = [
            Edge(membership.sites[a], membership.sites[b], [membership.groups[g] for _, _, g in same])
            for (a, b), same in groupby(sorted(rows), key=lambda row: row[:2])
        ]
        cost = self.cost(weights)
        return Plan(planner, level, 1, named(membership, self.graph.labels), groups, edges, cost)
