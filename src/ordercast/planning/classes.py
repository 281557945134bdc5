"""Which groups are ordered together: s1, s2, blocks (KIN §4.2; ours, proved in docs/classes.md)."""

import numpy as np

from ordercast.membership.table import Indices, Membership, Offsets
from ordercast.names import ClassRule, GroupId, Level
from ordercast.planning import kernels


def class_labels(membership: Membership, rule: ClassRule) -> Indices:
    """Return the class of each group; classes are numbered by their first group."""
    match rule:
        case ClassRule.S1:
            leader = kernels.connected(membership.group_ptr, membership.group_sites, len(membership.sites))
        case ClassRule.S2:
            leader = kernels.strongly_connected(*_incidence(membership), len(membership.groups))
        case ClassRule.BLOCKS:
            leader = kernels.biconnected(*_incidence(membership), len(membership.groups))
    if membership.unions:
        leader = _with_unions(membership, leader)
    labels: Indices = np.unique(leader, return_inverse=True)[1].astype(np.int32)
    return labels


def _with_unions(membership: Membership, leader: Indices) -> Indices:
    """Put every declared union and its groups into one class; classes that meet in a union merge."""
    number = {group: index for index, group in enumerate(membership.groups)}
    leader = leader.copy()
    for union in membership.unions:
        together = leader[[number["+".join(union)], *(number[group] for group in union)]]
        leader[np.isin(leader, together)] = together.min()
    return leader


def are_right(membership: Membership, chosen: list[list[GroupId]], level: Level) -> bool:
    """Whether these classes keep a level: they are as coarse as the finest ones that do (docs/classes.md)."""
    class_of = {group: index for index, groups in enumerate(chosen) for group in groups}
    finest = classes(membership, ClassRule.for_level(level))
    return all(len({class_of[group] for group in groups}) == 1 for groups in finest)


def classes(membership: Membership, rule: ClassRule) -> list[list[GroupId]]:
    """Return the classes as lists of group names."""
    return named(membership, class_labels(membership, rule))


def named(membership: Membership, labels: Indices) -> list[list[GroupId]]:
    """Turn labels into lists of group names, both in name order."""
    lists: list[list[GroupId]] = [[] for _ in range(int(labels.max()) + 1)]
    for group, label in zip(membership.groups, labels.tolist(), strict=True):
        lists[label].append(group)
    return lists


def _incidence(membership: Membership) -> tuple[Offsets, Indices]:
    """Return the whole bipartite graph: vertices 0..G-1 are groups, G.. are sites."""
    groups = len(membership.groups)
    ptr = np.concatenate([membership.group_ptr, membership.site_ptr[1:] + len(membership)])
    return ptr, np.concatenate([membership.group_sites + np.int32(groups), membership.site_groups])
