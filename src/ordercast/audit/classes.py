"""Classes: whether the groups that a level wants ordered together are, and whether stamps therefore prove an order.

A message to several groups is one to a group of its own, with the members of all of them: every destination in use is
a group here, and the rules for groups (docs/classes.md) say what must be in one class.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from ordercast.audit.kernels import Longs
from ordercast.audit.rows import Source
from ordercast.membership.table import Membership
from ordercast.names import ClassRule, Level, SiteId
from ordercast.runs.destinations import Destination, shown
from ordercast.verify import findings
from ordercast.verify.findings import Answer

if TYPE_CHECKING:
    from ordercast.audit.facts import Facts

Sites = Mapping[Destination, Iterable[SiteId]]
Apart = list[tuple[tuple[Destination, str], tuple[Destination, str]]]
"""Two destinations and their classes, which should be one."""


def judge_classes(source: Source, facts: "Facts", level: str, found: Answer) -> bool:
    """Every destination has one class, and the classes suit the level; returns whether that could be judged."""
    if not source.run.stamped:
        found.ok = None
        return True
    several, many = facts.several_classes()
    for group, names in several:
        found.add(findings.several_classes(shown(group), names))
    found.violations += many - len(several)
    if level == "fifo":
        found.ok = found.ok and None
        return True
    order = Level.TOTAL if level == "total" else Level.ACYCLIC
    apart = facts.apart(ClassRule.for_level(order), delivered=False)
    for (one, first), (other, second) in apart or ():
        found.add(findings.apart((shown(one), shown(other)), (first, second), order))
    return apart is not None


def stamps_prove(facts: "Facts", rule: ClassRule) -> bool:
    """Whether growing stamps prove the order that a rule stands for.

    They do when all destinations that the rule ties together are in one class; destinations count with the sites that
    really delivered their messages, strangers included.
    """
    return not facts.several_classes()[1] and facts.apart(rule, delivered=True) == []


def apart_of(sites: Sites, classes: Mapping[Destination, set[str]], rule: ClassRule) -> Apart:
    """Return two destinations of different classes from each set that must be in one."""
    used = sorted(group for group, own in sites.items() if own and group in classes)
    if not used:
        return []
    numbered = {f"{number:09d}": sites[group] for number, group in enumerate(used)}  # a group's name has no +
    of_group = [min(classes[group]) for group in used]
    names = sorted(set(of_group))
    number = {name: index for index, name in enumerate(names)}
    codes = np.array([number[name] for name in of_group], np.int64)
    pairs = apart_pairs(Membership.of(numbered), codes, rule)
    return [((used[one], of_group[one]), (used[other], of_group[other])) for one, other in pairs]


def apart_pairs(membership: Membership, classes: Longs, rule: ClassRule) -> list[tuple[int, int]]:
    """Return two groups of different classes from each set that must be in one: the first of the first two classes."""
    from ordercast.planning.classes import class_labels

    tied = class_labels(membership, rule).astype(np.int64)
    order = np.lexsort((np.arange(len(tied)), classes, tied))
    tied, own = tied[order], classes[order]
    begins = np.flatnonzero(np.concatenate([[True], (tied[1:] != tied[:-1]) | (own[1:] != own[:-1])]))
    found: list[tuple[int, int]] = []
    last = -1
    for one, other in pairwise(begins.tolist()):
        if tied[one] == tied[other] != last:
            last = int(tied[one])
            found.append((int(order[one]), int(order[other])))
    return found
