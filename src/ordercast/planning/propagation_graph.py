"""The PG generator (GS88 §3.1, App. I), twice: as printed and repaired, and near-linear.

Where we differ from App. I: the partition step asks for "s in g", not "s in G" (errata 1); ties go by site name, or by
the caller's preference, so that the graph is a pure function of the membership (errata 2); recursion is a work list.
"""

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from ordercast.membership.table import Indices
from ordercast.names import SiteId
from ordercast.planning import kernels
from ordercast.planning.forest import ClassGraph, Forest


def greedy(graph: ClassGraph) -> Forest:
    """Build the greedy forest without the intersecter rule, in near-linear time.

    GS88 lets only a site that shares a group with the current subroot become its child. Correctness does not need that
    (any site of the partition will do) and it makes trees deeper, so this planner leaves it out.
    """
    arrays = (graph.membership.group_ptr, graph.member_node, graph.node_ptr, graph.node_groups)
    picks, entry = kernels.greedy_order(*arrays)
    return Forest.of(graph, kernels.elimination_tree(*arrays, picks, entry), entry)


def literal_greedy(graph: ClassGraph, *, intersecters_only: bool = True, prefer: Sequence[SiteId] = ()) -> Forest:
    """Follow App. I step by step: about quadratic in groups; for the paper's figures, and to check `greedy`.

    `prefer` lists sites that win ties, first to last: GS88 picks c over b "arbitrarily" in figure 3.
    """
    return _Generator(graph, intersecters_only, prefer).forest()


class _Generator:
    def __init__(self, graph: ClassGraph, intersecters_only: bool, prefer: Sequence[SiteId]) -> None:
        self.graph, self.intersecters_only = graph, intersecters_only
        nodes = len(graph.node_site)
        self.members = [set(graph.nodes_of(g).tolist()) for g in range(len(graph.labels))]
        self.groups = [graph.groups_of(n).tolist() for n in range(nodes)]
        favour = {site: place for place, site in enumerate(prefer)}
        self.tie = [(favour.get(graph.names(n), len(favour)), n) for n in range(nodes)]
        self.unmarked_groups = set(range(len(self.members)))
        self.unmarked_sites = set(range(nodes))
        self.parent: Indices = np.full(nodes, -1, np.int32)
        self.entry: Indices = np.full(len(self.members), -1, np.int32)

    def forest(self) -> Forest:
        """Place a root and its tree, and again while a group has no primary destination (`main`)."""
        while self.unmarked_groups:
            work = [self._most_frequent(self.unmarked_groups, self.unmarked_sites)]
            while work:
                work += self._new_subtree(work.pop())
        assert not self.unmarked_sites, "a site that is in a group is always placed"
        return Forest.of(self.graph, self.parent, self.entry)

    def _new_subtree(self, subroot: int) -> list[int]:
        """Place the children of a subroot; return those that have partitions of their own below them."""
        self.unmarked_sites.discard(subroot)
        root_groups = [g for g in self.groups[subroot] if g in self.unmarked_groups]
        intersecters = {s for g in root_groups for s in self.members[g]} & self.unmarked_sites
        for g in root_groups:
            self.entry[g] = subroot
        self.unmarked_groups.difference_update(root_groups)
        subroots = []
        in_partition: set[int] = set()
        for groups, sites in self._partitions(intersecters):
            in_partition |= sites
            child = self._most_frequent(groups, sites & intersecters if self.intersecters_only else sites)
            self.parent[child] = subroot
            subroots.append(child)
        for leaf in intersecters - in_partition:
            self.parent[leaf] = subroot
            self.unmarked_sites.discard(leaf)  # App. I forgets to mark it; no unmarked group has it any more
        return subroots

    def _partitions(self, intersecters: Iterable[int]) -> list[tuple[set[int], set[int]]]:
        """Split the unmarked groups reachable from the intersecters into connected parts (groups, sites)."""
        parts = []
        seen: set[int] = set()
        for start in sorted(intersecters):
            first = [g for g in self.groups[start] if g in self.unmarked_groups and g not in seen]
            if not first:
                continue
            groups, sites, frontier = set(first), set[int](), first
            while frontier:
                reached = {s for g in frontier for s in self.members[g]} - sites
                sites |= reached
                frontier = list({g for s in reached for g in self.groups[s]} & self.unmarked_groups - groups)
                groups.update(frontier)
            seen |= groups
            parts.append((groups, sites))
        return parts

    def _most_frequent(self, groups: Iterable[int], among: set[int]) -> int:
        count: Counter[int] = Counter(s for g in groups for s in self.members[g] if s in among)
        return min(count, key=lambda s: (-count[s], self.tie[s]))
