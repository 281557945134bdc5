"""Routes are measured without walking them; here they are walked."""

import numpy as np
import pytest

from ordercast.planning import kernels
from ordercast.planning.kernels import Ints


def walked(groups: list[list[int]], parent: Ints, entry: list[int]) -> tuple[list[int], list[int], list[int]]:
    """Return edges, depth of each group, and how many groups cross the edge above each node."""
    passes = [0] * len(parent)
    edges, depths = [], []
    for members, top in zip(groups, entry, strict=True):
        crossed: set[int] = set()
        deepest = 0
        for member in members:
            hops, n = 0, member
            while n != top:
                crossed.add(n)
                n, hops = int(parent[n]), hops + 1
            deepest = max(deepest, hops)
        for n in crossed:
            passes[n] += 1
        edges.append(len(crossed))
        depths.append(deepest)
    return edges, depths, passes


def above(parent: Ints, node: int) -> list[int]:
    found = [node]
    while parent[found[-1]] >= 0:
        found.append(int(parent[found[-1]]))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_routes_are_those_that_a_walk_finds(seed: int) -> None:
    """Forests of every depth, groups inside one tree, entries at and above the lowest node over the members."""
    chance = np.random.default_rng(seed)
    nodes = int(chance.integers(1, 60))
    reach = int(chance.integers(1, nodes + 1))  # short reach: deep trees
    order = chance.permutation(nodes)
    parent = np.full(nodes, -1, np.int32)
    for at in range(1, nodes):
        if chance.random() < 0.95:
            parent[order[at]] = order[chance.integers(max(0, at - reach), at)]
    root = [above(parent, n)[-1] for n in range(nodes)]
    groups, lowest, entry = [], [], []
    for _ in range(int(chance.integers(1, 12))):
        tree = [n for n in range(nodes) if root[n] == root[int(chance.integers(nodes))]] or [0]
        tree = [n for n in tree if root[n] == root[tree[0]]]
        own = chance.permutation(tree)[: int(chance.integers(1, 6))].tolist()
        common = [n for n in above(parent, own[0]) if all(n in above(parent, other) for other in own)]
        groups.append(own)
        lowest.append(common[0])
        entry.append(common[int(chance.integers(len(common)))])
    ptr = np.cumsum([0, *map(len, groups)]).astype(np.int64)
    flat = np.array([n for own in groups for n in own], np.int32)
    edges, depths, passes = walked(groups, parent, entry)
    found = kernels.route_sizes(ptr, flat, parent, np.array(entry, np.int32))

    assert kernels.lowest_entries(ptr, flat, parent).tolist() == lowest
    assert (np.diff(found[0]).tolist(), found[1].tolist(), found[2].tolist()) == (edges, depths, passes)


@pytest.mark.slow
def test_a_path_of_a_million_nodes_is_no_work() -> None:
    """Every group has the two ends: a walk would take 10^11 steps."""
    nodes, groups = 1_000_000, 100_000
    parent = np.arange(-1, nodes - 1, dtype=np.int32)
    ptr = np.arange(groups + 1, dtype=np.int64) * 2
    flat = np.tile(np.array([nodes - 1, 0], np.int32), groups)
    entry = kernels.lowest_entries(ptr, flat, parent)
    crossed, depth, passes = kernels.route_sizes(ptr, flat, parent, entry)

    assert (entry.max(), crossed[-1], depth.min(), passes[1:].min()) == (0, groups * (nodes - 1), nodes - 1, groups)
