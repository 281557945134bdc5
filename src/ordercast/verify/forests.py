"""The judge of a forest in arrays, for plans too large to be written down in names: same questions, same answers.

A plan is right when every member of every group hangs below the group's entry, over edges that lead up to a root, and
when the classes keep the level. `verify.plans` judges plans in names; this one looks at the arrays a planner made.
"""

from typing import Any

import numpy as np

from ordercast.names import Level
from ordercast.verify.findings import Finding


def judge_forest(
    parent: Any, entry: Any, group_of: Any, member_node: Any, labels: Any, finest: Any, level: Level
) -> Finding | None:
    """Return what is wrong with a forest, or None.

    `parent` and `entry` are the forest; `group_of` and `member_node` name the group and the node of every membership;
    `labels` are the classes of the groups, `finest` the finest classes that keep the level.
    """
    coarse = np.full(int(finest.max()) + 1, -1, np.int64)
    coarse[finest] = labels
    if bool((coarse[finest] != labels).any()):
        return Finding(str(level), "the classes are too fine for the level")
    start = np.where(parent < 0, np.arange(len(parent)), parent)
    top, depth = start, (parent >= 0).astype(np.int64)
    for _ in range(len(parent).bit_length()):
        depth, top = depth + depth[top], top[top]  # twice as far up each time
    if bool((parent[top] >= 0).any()):
        return Finding("forest", "edges lead in a circle")
    node, goal = member_node.astype(np.int64), entry[group_of].astype(np.int64)
    way = depth[node] - depth[goal]
    top = start
    for bit in range(len(parent).bit_length()):  # up by as many edges as the member is deeper than the entry
        node = np.where(way >> bit & 1, top[node], node)
        top = top[top]
    if bool((node != goal).any()):
        number = int(group_of[int(np.argmax(node != goal))])
        return Finding("PG2", f"a member of group number {number} is not below the group's entry")
    return None
