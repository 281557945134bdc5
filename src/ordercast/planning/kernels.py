"""The loops that run over every membership, compiled: classes, elimination order and tree, routes of a forest.

Everything here works on plain index arrays (see `Membership` and `Forest`) and uses explicit stacks, so neither ten
million memberships nor a tree ten thousand levels deep is special.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ordercast.compiled import kernel

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]


@kernel
def find(leader: Ints, x: int) -> int:
    """Union-find with path halving."""
    while leader[x] != x:
        leader[x] = leader[leader[x]]
        x = leader[x]
    return x


@kernel
def unite(leader: Ints, a: int, b: int) -> None:
    """Join two sets; the smaller index leads, so a set is named by its first group."""
    a, b = find(leader, a), find(leader, b)
    if a < b:
        leader[b] = a
    elif b < a:
        leader[a] = b


@kernel
def connected(group_ptr: Longs, group_sites: Ints, site_count: int) -> Ints:
    """S1: the first group connected with each group (KIN §4.2, condition S1)."""
    groups = len(group_ptr) - 1
    leader = np.arange(groups).astype(np.int32)
    first = np.full(site_count, -1, np.int32)
    for g in range(groups):
        for at in range(group_ptr[g], group_ptr[g + 1]):
            s = group_sites[at]
            if first[s] < 0:
                first[s] = g
            else:
                unite(leader, first[s], g)
    for g in range(groups):
        leader[g] = find(leader, g)
    return leader


@kernel
def strongly_connected(ptr: Longs, adjacent: Ints, groups: int) -> Ints:
    """S2: the first group tied to each by chains of groups that share two or more sites (KIN §4.2, condition S2).

    Two groups sharing two sites are a 4-cycle of the incidence graph. Each 4-cycle is found from its vertex of highest
    degree, walking only to vertices of lower rank, so the work is the sum over memberships of the smaller of the two
    degrees: a hub site costs the sizes of its groups once, never the pairs of its groups.
    """
    vertices = len(ptr) - 1
    degree = np.empty(vertices, np.int64)
    for v in range(vertices):
        degree[v] = ptr[v + 1] - ptr[v]
    by_degree = np.argsort(-degree, kind="mergesort")
    rank = np.empty(vertices, np.int32)
    for position in range(vertices):
        rank[by_degree[position]] = position
    leader = np.arange(groups).astype(np.int32)
    seen_from = np.full(vertices, -1, np.int32)
    seen_by = np.empty(vertices, np.int32)
    for v in by_degree:
        for at in range(ptr[v], ptr[v + 1]):
            u = adjacent[at]
            if rank[u] < rank[v]:
                continue
            for then in range(ptr[u], ptr[u + 1]):
                w = adjacent[then]
                if rank[w] <= rank[v]:
                    continue
                if seen_from[w] != v:
                    seen_from[w] = v
                    seen_by[w] = u
                elif v < groups:
                    unite(leader, v, w)
                else:
                    unite(leader, seen_by[w], u)
    for g in range(groups):
        leader[g] = find(leader, g)
    return leader


@kernel
def biconnected(ptr: Longs, adjacent: Ints, groups: int) -> Ints:
    """`blocks`: the first group tied to each by simple cycles of the incidence graph, transitively.

    Hopcroft and Tarjan's blocks with an explicit stack. Blocks that meet at a group vertex merge because both unite
    with that group; blocks that meet at a site do not.
    """
    vertices = len(ptr) - 1
    leader = np.arange(groups).astype(np.int32)
    found = np.zeros(vertices, np.int32)
    low = np.zeros(vertices, np.int32)
    parent = np.full(vertices, -1, np.int32)
    cursor = ptr[:-1].copy()
    path = np.empty(vertices, np.int32)
    open_vertices = np.empty(vertices, np.int32)
    clock = 0
    for root in range(groups):
        if found[root]:
            continue
        clock += 1
        found[root] = low[root] = clock
        path[0] = open_vertices[0] = root
        deep = opened = 1
        while deep:
            v = path[deep - 1]
            if cursor[v] < ptr[v + 1]:
                w = adjacent[cursor[v]]
                cursor[v] += 1
                if not found[w]:
                    clock += 1
                    found[w] = low[w] = clock
                    parent[w] = v
                    path[deep] = open_vertices[opened] = w
                    deep += 1
                    opened += 1
                elif w != parent[v]:
                    low[v] = min(low[v], found[w])
                continue
            deep -= 1
            above = parent[v]
            if above < 0:
                continue
            low[above] = min(low[above], low[v])
            if low[v] >= found[above]:  # `above` closes a block: everything opened since v, and `above` itself
                first = above if above < groups else -1
                while True:
                    opened -= 1
                    x = open_vertices[opened]
                    if x < groups:
                        if first < 0:
                            first = x
                        unite(leader, first, x)
                    if x == v:
                        break
    for g in range(groups):
        leader[g] = find(leader, g)
    return leader


@kernel
def class_nodes(
    group_ptr: Longs, group_sites: Ints, site_ptr: Longs, site_groups: Ints, label: Ints, classes: int
) -> tuple[Ints, Ints, Ints, Longs, Ints]:
    """Give every (site, class) pair a node: its site, its class, the node of every membership, and the groups of nodes.

    Nodes are numbered by site first, so within a class the smaller node is the smaller name.
    """
    sites = len(site_ptr) - 1
    memberships = len(group_sites)
    node_site = np.empty(memberships, np.int32)
    node_class = np.empty(memberships, np.int32)
    member_node = np.empty(memberships, np.int32)
    cursor = group_ptr[:-1].copy()
    stamp = np.full(classes, -1, np.int32)
    node_of_class = np.empty(classes, np.int32)
    nodes = 0
    for s in range(sites):
        for at in range(site_ptr[s], site_ptr[s + 1]):
            g = site_groups[at]
            c = label[g]
            if stamp[c] != s:
                stamp[c] = s
                node_of_class[c] = nodes
                node_site[nodes] = s
                node_class[nodes] = c
                nodes += 1
            member_node[cursor[g]] = node_of_class[c]
            cursor[g] += 1
    node_ptr = np.zeros(nodes + 1, np.int64)
    for at in range(memberships):
        node_ptr[member_node[at] + 1] += 1
    for n in range(nodes):
        node_ptr[n + 1] += node_ptr[n]
    node_groups = np.empty(memberships, np.int32)
    fill = node_ptr[:-1].copy()
    for g in range(len(group_ptr) - 1):
        for at in range(group_ptr[g], group_ptr[g + 1]):
            n = member_node[at]
            node_groups[fill[n]] = g
            fill[n] += 1
    return node_site[:nodes].copy(), node_class[:nodes].copy(), member_node, node_ptr, node_groups


@kernel
def greedy_order(group_ptr: Longs, member_node: Ints, node_ptr: Longs, node_groups: Ints) -> tuple[Ints, Ints]:
    """Pick greedily (GS88 App. I): next is the node in most unmarked groups (ties: the first name), which marks them.

    Returns the picks in order and the pick that marked each group. One bucket per count, emptied from the top: counts
    only fall, so a bucket that is being read gets no new nodes, and a node whose count fell meanwhile moves down once
    for each time it is met. Picks in different partitions never influence each other's counts, so one global queue
    gives every partition its own greedy order.
    """
    nodes = len(node_ptr) - 1
    count = np.empty(nodes, np.int32)
    most = 0
    for n in range(nodes):
        count[n] = node_ptr[n + 1] - node_ptr[n]
        most = max(most, count[n])
    head = np.full(most + 1, -1, np.int32)
    following = np.empty(nodes, np.int32)
    for n in range(nodes):
        following[n] = head[count[n]]
        head[count[n]] = n
    entry = np.full(len(group_ptr) - 1, -1, np.int32)
    picks = np.empty(nodes, np.int32)
    picked = 0
    bucket = np.empty(nodes, np.int32)
    for level in range(most, 0, -1):
        size = 0
        n = head[level]
        while n >= 0:
            bucket[size] = n
            size += 1
            n = following[n]
        bucket[:size].sort()
        for n in bucket[:size]:
            if count[n] < level:
                following[n] = head[count[n]]
                head[count[n]] = n
                continue
            picks[picked] = n
            picked += 1
            for at in range(node_ptr[n], node_ptr[n + 1]):
                g = node_groups[at]
                if entry[g] < 0:
                    entry[g] = n
                    for m in range(group_ptr[g], group_ptr[g + 1]):
                        count[member_node[m]] -= 1
    return picks[:picked].copy(), entry


@kernel
def elimination_tree(
    group_ptr: Longs, member_node: Ints, node_ptr: Longs, node_groups: Ints, picks: Ints, entry: Ints
) -> Ints:
    """Return each node's parent (-1 at a root): the picks run backwards, joining what each pick had split.

    When pick p is put back, its groups reach exactly the partitions that its removal had left, and the first pick of
    each such partition is a child of p.
    """
    nodes = len(node_ptr) - 1
    parent = np.full(nodes, -1, np.int32)
    leader = np.arange(nodes).astype(np.int32)  # a set is named by its top: the pick made first, that is last in here
    for back in range(len(picks) - 1, -1, -1):
        p = picks[back]
        for at in range(node_ptr[p], node_ptr[p + 1]):
            g = node_groups[at]
            if entry[g] != p:
                continue
            for m in range(group_ptr[g], group_ptr[g + 1]):
                top = find(leader, member_node[m])
                if top != p:
                    parent[top] = p
                    leader[top] = p
    return parent


@kernel
def node_depths(parent: Ints) -> Ints:
    """Hops from each node up to its root."""
    nodes = len(parent)
    depth = np.full(nodes, -1, np.int32)
    path = np.empty(nodes, np.int32)
    for start in range(nodes):
        length = 0
        n = start
        while n >= 0 and depth[n] < 0:
            path[length] = n
            length += 1
            n = parent[n]
        above = depth[n] if n >= 0 else -1
        while length:
            length -= 1
            above += 1
            depth[path[length]] = above
    return depth


class Tree(NamedTuple):
    """A forest, prepared for questions about ancestors."""

    depth: Ints
    downwards: Ints
    """The nodes, each after its parent."""
    place: Ints
    """The place of each node in a walk that goes down first: a subtree is a range."""
    node_at: Ints
    head: Ints
    """The top of each node's heavy path (Sleator and Tarjan): there are few on the way from a node to its root."""


@kernel
def tree_of(parent: Ints) -> Tree:
    """Prepare a forest for questions about ancestors."""
    nodes = len(parent)
    depth = node_depths(parent)
    downwards = np.argsort(depth, kind="mergesort").astype(np.int32)
    size = np.ones(nodes, np.int32)
    for at in range(nodes - 1, -1, -1):
        n = downwards[at]
        if parent[n] >= 0:
            size[parent[n]] += size[n]
    heavy = np.full(nodes, -1, np.int32)
    for n in downwards:
        above = parent[n]
        if above >= 0 and (heavy[above] < 0 or size[n] > size[heavy[above]]):
            heavy[above] = n
    place, node_at = np.empty(nodes, np.int32), np.empty(nodes, np.int32)
    free, head = np.empty(nodes, np.int32), np.empty(nodes, np.int32)
    roots = 0
    for n in downwards:
        above = parent[n]
        if above < 0:
            place[n] = roots
            roots += size[n]
        else:
            place[n] = free[above]
            free[above] += size[n]
        free[n] = place[n] + 1
        node_at[place[n]] = n
        head[n] = head[above] if above >= 0 and heavy[above] == n else n
    return Tree(depth, downwards, place, node_at, head)


@kernel
def lowest_above(head: Ints, depth: Ints, parent: Ints, a: int, b: int) -> int:
    """Return the lowest node above two nodes; raises ValueError when they are in two trees."""
    while head[a] != head[b]:
        if depth[head[a]] >= depth[head[b]]:
            a = parent[head[a]]
        else:
            b = parent[head[b]]
        if a < 0 or b < 0:
            raise ValueError("no node is above all members of a group")
    return a if depth[a] <= depth[b] else b


@kernel
def lowest_entries(group_ptr: Longs, member_node: Ints, parent: Ints) -> Ints:
    """Return the lowest node above all members of each group: the nearest place that can order it."""
    tree = tree_of(parent)
    entry = np.empty(len(group_ptr) - 1, np.int32)
    for g in range(len(group_ptr) - 1):
        top = member_node[group_ptr[g]]
        for at in range(group_ptr[g] + 1, group_ptr[g + 1]):
            top = lowest_above(tree.head, tree.depth, parent, top, member_node[at])
        entry[g] = top
    return entry


@kernel
def route_sizes(group_ptr: Longs, member_node: Ints, parent: Ints, entry: Ints) -> tuple[Longs, Ints, Longs]:
    """Measure the routes of all groups without walking them: in a deep tree that would be quadratic.

    Returns offsets per group of the edges its messages cross; its depth, hops from the entry to the farthest member;
    and per node how many groups cross the edge above it. With the members in the order of a walk that goes down first,
    a route is the paths to all members, less the path to where each two neighbours part, less the path to the entry.
    """
    groups, tree = len(group_ptr) - 1, tree_of(parent)
    passes = np.zeros(len(parent), np.int64)
    crossed = np.zeros(groups + 1, np.int64)
    depth = np.zeros(groups, np.int32)
    for g in range(groups):
        own = tree.place[member_node[group_ptr[g] : group_ptr[g + 1]]]
        own.sort()
        top = entry[g]
        for place in (own[0], own[-1]):  # a subtree is a range: what is between them is below the entry, too
            if lowest_above(tree.head, tree.depth, parent, top, tree.node_at[place]) != top:
                raise ValueError("a member of a group is not below its entry")
        passes[top] -= 1
        edges = -np.int64(tree.depth[top])
        before = -1
        for place in own:
            n = tree.node_at[place]
            depth[g] = max(depth[g], tree.depth[n] - tree.depth[top])
            edges += tree.depth[n]
            passes[n] += 1
            if before >= 0:
                parting = lowest_above(tree.head, tree.depth, parent, before, n)
                edges -= tree.depth[parting]
                passes[parting] -= 1
            before = n
        crossed[g + 1] = crossed[g] + edges
    for at in range(len(parent) - 1, -1, -1):
        n = tree.downwards[at]
        if parent[n] >= 0:
            passes[parent[n]] += passes[n]
    return crossed, depth, passes


@kernel
def route_nodes(group_ptr: Longs, member_node: Ints, parent: Ints, entry: Ints, crossed: Longs) -> Ints:
    """Return the lower node of every edge each group's messages cross; `crossed` are the offsets of the groups."""
    stamp = np.full(len(parent), -1, np.int32)
    lower = np.empty(crossed[-1], np.int32)
    for g in range(len(group_ptr) - 1):
        fill = crossed[g]
        stamp[entry[g]] = g
        for at in range(group_ptr[g], group_ptr[g + 1]):
            n = member_node[at]
            while stamp[n] != g:
                stamp[n] = g
                lower[fill] = n
                fill += 1
                n = parent[n]
    return lower
