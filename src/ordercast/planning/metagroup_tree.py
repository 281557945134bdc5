"""Forming and joining meta-groups (MGT §3, §4.1), as a site-level forest.

The first site of a meta-group (by name) is its primary site; its children are the other members and the primary sites
of the child meta-groups. The shortcuts of MGT §4.2 are left out because they break the order (errata 24, 25).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ordercast.membership.table import Indices
from ordercast.planning.forest import ClassGraph, Forest


@dataclass(frozen=True)
class MetaGroup:
    """The nodes that are in exactly the same groups of a class (MGT Def. 2)."""

    label: frozenset[int]
    nodes: list[int]

    @property
    def primary(self) -> int:
        """The member that orders for the others."""
        return self.nodes[0]


def meta_groups(graph: ClassGraph) -> list[MetaGroup]:
    """Collect the meta-groups of all classes, in the order of their first site."""
    found: dict[bytes, list[int]] = {}
    for node in range(len(graph.node_site)):
        found.setdefault(graph.groups_of(node).tobytes(), []).append(node)
    return [MetaGroup(frozenset(graph.groups_of(nodes[0]).tolist()), nodes) for nodes in found.values()]


def metagroup(graph: ClassGraph) -> Forest:
    """Build the propagation trees of MGT §4.1 over meta-groups and write them down as trees of sites."""
    metas = meta_groups(graph)
    builder = _Builder(metas, len(graph.labels))
    builder.build()
    parent: Indices = np.full(len(graph.node_site), -1, np.int32)
    for meta, above in zip(metas, builder.parent, strict=True):
        parent[meta.nodes] = meta.primary
        parent[meta.primary] = metas[above].primary if above >= 0 else -1
    entry = np.array([metas[primary].primary for primary in builder.primary], np.int32)
    return Forest.of(graph, parent, entry)


class _Builder:
    """`main` and `build_tree` of MGT §4.1; the depth-first recursion, which is essential (errata 26), is a stack."""

    def __init__(self, metas: list[MetaGroup], groups: int) -> None:
        self.metas = metas
        self.parent = [-1] * len(metas)
        self.marked = [False] * len(metas)
        self.primary = [-1] * groups  # pm(G): the primary meta-group
        self.by_cardinality: list[list[int]] = [[] for _ in range(groups)]
        for index in sorted(range(len(metas)), key=lambda i: (-len(metas[i].label), i)):
            for group in metas[index].label:
                self.by_cardinality[group].append(index)
        self.next_unmarked = [0] * groups

    def build(self) -> None:
        """Start a tree at the highest-cardinality meta-group of each group that has no primary meta-group yet."""
        for group, primary in enumerate(self.primary):
            if primary >= 0 or self.primary[group] >= 0:
                continue
            stack = [self._place(self.by_cardinality[group][0], -1)]
            while stack:
                joint = self._first_joint(stack[-1])
                if joint < 0:
                    stack.pop()
                else:
                    stack.append(self._place(joint, stack[-1]))

    def _place(self, meta: int, above: int) -> int:
        self.parent[meta], self.marked[meta] = above, True
        label = self.metas[meta].label
        for group in label:
            if self.primary[group] < 0:
                self.primary[group] = meta
        for other in {other for group in label for other in self._unmarked(group)}:
            if self.metas[other].label <= label:  # subsumed (MGT Def. 5): a leaf right below
                self.parent[other], self.marked[other] = meta, True
        return meta

    def _first_joint(self, meta: int) -> int:
        """Return the unmarked meta-group of highest cardinality that shares a group with this one, or -1."""
        firsts = (next(self._unmarked(group), -1) for group in self.metas[meta].label)
        joint = [first for first in firsts if first >= 0]
        return min(joint, key=lambda i: (-len(self.metas[i].label), i), default=-1)

    def _unmarked(self, group: int) -> Iterator[int]:
        metas = self.by_cardinality[group]
        start = self.next_unmarked[group]
        while start < len(metas) and self.marked[metas[start]]:
            start += 1
        self.next_unmarked[group] = start
        return (meta for meta in metas[start:] if not self.marked[meta])
