"""The compiled inner loop of `best`: simulated annealing over rooted trees.

Any rooted tree over the sites of a class is a valid plan once each group enters at the lowest place above its members,
so the search walks freely among trees. A tree is made of *places* (parent, children, depth); a node (site, class)
stands at a place, and exchanging two nodes only exchanges who stands where. Three moves reach every tree: hang a
subtree elsewhere, exchange two nodes, take one node out and put it above or below another place.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ordercast.compiled import kernel
from ordercast.planning.kernels import Ints, Longs

DEPTH, EXTRA, EXCESS, SQUARES = range(4)


class State(NamedTuple):
    """One tree per class with the running sums of its cost; arrays only, changed in place by the kernels."""

    # The problem.
    group_ptr: Longs
    member_node: Ints
    node_ptr: Longs
    node_groups: Ints
    class_ptr: Longs
    class_places: Ints  # the places of each class; class c owns class_places[class_ptr[c]:class_ptr[c + 1]]
    place_class: Ints
    weight: NDArray[np.float64]  # traffic of each group, mean 1
    cap: Longs  # [0]: load above this is excess
    # The tree.
    parent: Ints
    first_child: Ints
    next_sibling: Ints
    previous_sibling: Ints
    depth: Ints
    node_at: Ints
    place_of: Ints
    site_at: Ints
    # What it costs.
    entry: Ints
    load: Longs
    sums: NDArray[np.float64]  # by DEPTH, EXTRA, EXCESS, SQUARES
    # Scratch.
    stamp: Longs
    clock: Longs  # [0] place stamps, [1] group stamps
    group_stamp: Longs
    queue: Ints
    touched: Ints
    chance: NDArray[np.uint64]


@kernel
def draw(chance: NDArray[np.uint64], below: int) -> int:
    """Return the next number of xorshift64*, from 0 to `below` - 1."""
    x = chance[0]
    x ^= x >> np.uint64(12)
    x ^= x << np.uint64(25)
    x ^= x >> np.uint64(27)
    chance[0] = x
    return int(((x * np.uint64(2685821657736338717)) >> np.uint64(33)) % np.uint64(below))


@kernel
def add_load(state: State, site: int, by: int) -> None:
    """Change one site's load and the sums over sites."""
    before = state.load[site]
    after = before + by
    state.load[site] = after
    cap = state.cap[0]
    state.sums[EXCESS] += max(after - cap, 0) - max(before - cap, 0)
    state.sums[SQUARES] += after * after - before * before


@kernel
def account(state: State, group: int, sign: int) -> None:
    """Add a group's cost to the sums, or take it away (`sign` -1) before the tree changes."""
    begin, end = state.group_ptr[group], state.group_ptr[group + 1]
    top = state.place_of[state.member_node[begin]]
    deepest = state.depth[top]
    for at in range(begin + 1, end):
        other = state.place_of[state.member_node[at]]
        deepest = max(deepest, state.depth[other])
        while top != other:
            if state.depth[top] >= state.depth[other]:
                top = state.parent[top]
            else:
                other = state.parent[other]
    state.entry[group] = top
    state.clock[0] += 1
    clock = state.clock[0]
    state.stamp[top] = clock
    add_load(state, state.site_at[top], sign)
    reached = 1
    for at in range(begin, end):
        place = state.place_of[state.member_node[at]]
        while state.stamp[place] != clock:
            state.stamp[place] = clock
            reached += 1
            add_load(state, state.site_at[place], sign)
            place = state.parent[place]
            add_load(state, state.site_at[place], sign)
    state.sums[DEPTH] += sign * state.weight[group] * (deepest - state.depth[top])
    state.sums[EXTRA] += sign * state.weight[group] * (reached - (end - begin))


@kernel
def unlink(state: State, place: int) -> None:
    """Take a place out of its parent's list of children."""
    before, after = state.previous_sibling[place], state.next_sibling[place]
    if before >= 0:
        state.next_sibling[before] = after
    elif state.parent[place] >= 0:
        state.first_child[state.parent[place]] = after
    if after >= 0:
        state.previous_sibling[after] = before


@kernel
def link(state: State, place: int, parent: int) -> None:
    """Make a place the first child of another, or a root."""
    state.parent[place] = parent
    state.previous_sibling[place] = -1
    state.next_sibling[place] = -1
    if parent >= 0:
        first = state.first_child[parent]
        state.next_sibling[place] = first
        if first >= 0:
            state.previous_sibling[first] = place
        state.first_child[parent] = place


@kernel
def settle(state: State, root: int) -> None:
    """Correct the depths below a place that moved."""
    state.depth[root] = state.depth[state.parent[root]] + 1 if state.parent[root] >= 0 else 0
    state.queue[0] = root
    length = 1
    at = 0
    while at < length:
        place = state.queue[at]
        at += 1
        child = state.first_child[place]
        while child >= 0:
            state.depth[child] = state.depth[place] + 1
            state.queue[length] = child
            length += 1
            child = state.next_sibling[child]


@kernel
def touch(state: State, root: int, count: int, within: bool) -> int:
    """Collect the groups that a change at `root` concerns; returns how many are collected by now.

    They have a member below and enter above; with `within`, those that enter at `root` too.
    """
    highest = state.depth[root] + (1 if within else 0)
    state.queue[0] = root
    length = 1
    at = 0
    while at < length:
        place = state.queue[at]
        at += 1
        node = state.node_at[place]
        for index in range(state.node_ptr[node], state.node_ptr[node + 1]):
            group = state.node_groups[index]
            if state.group_stamp[group] != state.clock[1] and state.depth[state.entry[group]] < highest:
                state.group_stamp[group] = state.clock[1]
                state.touched[count] = group
                count += 1
        child = state.first_child[place]
        while child >= 0:
            state.queue[length] = child
            length += 1
            child = state.next_sibling[child]
    return count


@kernel
def account_touched(state: State, count: int, sign: int) -> None:
    """Account for every collected group."""
    for at in range(count):
        account(state, state.touched[at], sign)


@kernel
def is_below(state: State, place: int, above: int) -> bool:
    """Tell whether a place is in the subtree of another (or is it)."""
    while state.depth[place] > state.depth[above]:
        place = state.parent[place]
    return place == above


@kernel
def energy(state: State, price: NDArray[np.float64]) -> float:
    """Return what the annealing makes small: the sums at their prices."""
    sums = state.sums
    return float(price[0] * sums[0] + price[1] * sums[1] + price[2] * sums[2] + price[3] * sums[3])


@kernel
def prepare(state: State, parent: Ints) -> None:
    """Set up the tree with every node at the place of its own number, and sum up its cost."""
    for place in range(len(parent)):
        link(state, place, parent[place])
    for place in range(len(parent)):
        if parent[place] < 0:
            settle(state, place)
    for group in range(len(state.group_ptr) - 1):
        account(state, group, 1)


@kernel
def exchange(state: State, a: int, b: int) -> None:
    """Let two nodes change places."""
    node_a, node_b = state.node_at[a], state.node_at[b]
    site_a, site_b = state.site_at[a], state.site_at[b]
    state.node_at[a], state.node_at[b] = node_b, node_a
    state.site_at[a], state.site_at[b] = site_b, site_a
    state.place_of[node_a], state.place_of[node_b] = b, a


@kernel
def hang(state: State, place: int, parent: int) -> None:
    """Hang a subtree below another place."""
    unlink(state, place)
    link(state, place, parent)
    settle(state, place)


@kernel
def any_place(state: State, near: int) -> int:
    """Draw a place of the same class: mostly one that shares a group, or a neighbour in the tree."""
    node = state.node_at[near]
    groups = state.node_ptr[node + 1] - state.node_ptr[node]
    kind = draw(state.chance, 16)
    if kind < 10 and groups:
        group = state.node_groups[state.node_ptr[node] + draw(state.chance, groups)]
        if kind < 3:
            found = state.entry[group]
        else:
            begin, end = state.group_ptr[group], state.group_ptr[group + 1]
            found = state.place_of[state.member_node[begin + draw(state.chance, end - begin)]]
            if kind < 6 and state.parent[found] >= 0:
                found = state.parent[found]
        return int(found)
    if kind < 13 and state.parent[near] >= 0:
        found = state.parent[near]
        if state.parent[found] >= 0 and kind < 12:
            found = state.parent[found]
        return int(found)
    group_class = state.place_class[near]
    begin, end = state.class_ptr[group_class], state.class_ptr[group_class + 1]
    return int(state.class_places[begin + draw(state.chance, end - begin)])


@kernel
def accept(state: State, price: NDArray[np.float64], before: float, heat: float) -> bool:
    """Metropolis: always downhill, uphill by chance."""
    worse = energy(state, price) - before
    return worse <= 0 or draw(state.chance, 1 << 30) < math.exp(-worse / heat) * (1 << 30)


@kernel
def try_hang(state: State, place: int, target: int, price: NDArray[np.float64], heat: float) -> bool:
    """Move a subtree below another place, if accepted."""
    old = state.parent[place]
    if old < 0 or target == old or is_below(state, target, place):
        return False
    before = energy(state, price)
    state.clock[1] += 1
    count = touch(state, place, 0, False)
    account_touched(state, count, -1)
    hang(state, place, target)
    account_touched(state, count, 1)
    if accept(state, price, before, heat):
        return True
    account_touched(state, count, -1)
    hang(state, place, old)
    account_touched(state, count, 1)
    return False


@kernel
def try_exchange(state: State, a: int, b: int, price: NDArray[np.float64], heat: float) -> bool:
    """Exchange two nodes, if accepted."""
    if a == b:
        return False
    before = energy(state, price)
    state.clock[1] += 1
    count = touch(state, b, touch(state, a, 0, True), True)
    account_touched(state, count, -1)
    exchange(state, a, b)
    account_touched(state, count, 1)
    if accept(state, price, before, heat):
        return True
    account_touched(state, count, -1)
    exchange(state, a, b)
    account_touched(state, count, 1)
    return False


@kernel
def take_out(state: State, place: int, keep: Ints) -> int:
    """Give a place's children to its parent and cut it loose; remembers the children in `keep`."""
    parent = state.parent[place]
    count = 0
    child = state.first_child[place]
    while child >= 0:
        keep[count] = child
        count += 1
        child = state.next_sibling[child]
    for at in range(count):
        hang(state, keep[at], parent)
    unlink(state, place)
    state.first_child[place] = -1
    state.parent[place] = state.next_sibling[place] = state.previous_sibling[place] = -1
    return count


@kernel
def try_insert(
    state: State, place: int, target: int, above: bool, price: NDArray[np.float64], heat: float, keep: Ints
) -> bool:
    """Take a single node out and put it above (or as a leaf below) another place, if accepted."""
    old = state.parent[place]
    if old < 0 or target == place:  # a root leaves its place by exchange, or when another is put above it
        return False
    before = energy(state, price)
    state.clock[1] += 1
    count = touch(state, place, 0, True)
    if above:
        count = touch(state, target, count, False)
    account_touched(state, count, -1)
    children = take_out(state, place, keep)
    over = state.parent[target]
    if above:
        unlink(state, target)
        link(state, place, over)
        link(state, target, place)
    else:
        link(state, place, target)
    settle(state, place)
    account_touched(state, count, 1)
    if accept(state, price, before, heat):
        return True
    account_touched(state, count, -1)
    if above:
        unlink(state, target)
        unlink(state, place)
        link(state, target, over)
        settle(state, target)
    else:
        unlink(state, place)
    link(state, place, old)
    for at in range(children):
        unlink(state, keep[at])
        link(state, keep[at], place)
    settle(state, place)
    account_touched(state, count, 1)
    return False


@kernel
def anneal(
    state: State,
    price: NDArray[np.float64],
    goal: NDArray[np.float64],
    hot: float,
    cold: float,
    start: int,
    stop: int,
    total: int,
    best: NDArray[np.float64],
    best_parent: Ints,
    best_node_at: Ints,
    lower_cap: bool,
    limit: float,
) -> None:
    """Run steps `start` to `stop` of `total`, cooling from `hot` to `cold`; keeps the best tree without excess.

    `goal` prices the sums for keeping (the objective, then its tie-breakers). With `lower_cap`, every tree found
    without excess lowers the cap to just under its busiest site: so load itself is made small. A tree is only kept
    while its objective does not pass `limit`.
    """
    keep = np.empty(len(state.parent), np.int32)
    places = len(state.parent)
    for step in range(start, stop):
        heat = hot * (cold / hot) ** (step / total)
        place = draw(state.chance, places)
        target = any_place(state, place)
        kind = draw(state.chance, 16)
        if kind < 8:
            changed = try_hang(state, place, target, price, heat)
        elif kind < 11:
            changed = try_exchange(state, place, target, price, heat)
        elif kind < 13:
            changed = try_insert(state, place, target, False, price, heat, keep)
        else:
            changed = try_insert(state, place, target, True, price, heat, keep)
        if changed and state.sums[EXCESS] == 0:
            value = energy(state, goal)
            if value > limit:
                continue
            if lower_cap:
                busiest = state.load.max()
                value += 1e6 * busiest
                state.cap[0] = busiest - 1
                excess = 0
                for load in state.load:
                    excess += max(load - state.cap[0], 0)
                state.sums[EXCESS] = excess
            if value < best[0] - 1e-9:
                best[0] = value
                best_parent[:] = state.parent
                best_node_at[:] = state.node_at
