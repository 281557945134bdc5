"""Classes: whether the groups that a level wants ordered together are, and whether stamps therefore prove an order.

A message to several groups is one to a group of its own, with the members of all of them: every destination in use is
a group here, and the rules for groups (docs/classes.md) say what must be in one class.
"""

from collections.abc import Iterable, Mapping

from ordercast.audit.merge import Merged
from ordercast.audit.rows import Source
from ordercast.membership.table import Membership
from ordercast.names import ClassRule, Level, SiteId
from ordercast.runs.destinations import Destination, Members, shown
from ordercast.verify import findings
from ordercast.verify.findings import Answer

Sites = Mapping[Destination, Iterable[SiteId]]


def judge_classes(source: Source, merged: Merged, level: str, found: Answer) -> None:
    """Every destination has one class, and the classes suit the level."""
    if not source.run.stamped:
        found.ok = None
        return
    for group, names in sorted(merged.classes.items()):
        if len(names) > 1:
            found.add(findings.several_classes(shown(group), sorted(names)))
    if level == "fifo":
        found.ok = found.ok and None
        return
    members = Members(source.run.members)
    sites = {group: members.of(group) for group in merged.classes}
    order = Level.TOTAL if level == "total" else Level.ACYCLIC
    for one, other in _apart(sites, merged.classes, ClassRule.for_level(order)):
        first, second = (min(merged.classes[group]) for group in (one, other))
        found.add(findings.apart((shown(one), shown(other)), (first, second), order))


def stamps_prove(merged: Merged, rule: ClassRule) -> bool:
    """Whether growing stamps prove the order that a rule stands for.

    They do when all destinations that the rule ties together are in one class; destinations count with the sites that
    really delivered their messages, strangers included.
    """
    sites: dict[Destination, set[SiteId]] = {}
    for site, group in merged.sets:
        sites.setdefault(group, set()).add(site)
    return all(len(names) == 1 for names in merged.classes.values()) and not _apart(sites, merged.classes, rule)


def _apart(
    sites: Sites, classes: Mapping[Destination, set[str]], rule: ClassRule
) -> list[tuple[Destination, Destination]]:
    """Return two destinations of different classes from each set that must be in one."""
    from ordercast.planning.classes import classes as required

    used = sorted(group for group, own in sites.items() if own and group in classes)
    if not used:
        return []
    found = []
    numbered = {f"{number:09d}": sites[group] for number, group in enumerate(used)}  # a group's name has no +
    for numbers in required(Membership.of(numbered), rule):
        together = [used[int(number)] for number in numbers]
        names = sorted({min(classes[group]) for group in together})
        if len(names) > 1:
            one, other = (min(g for g in together if min(classes[g]) == name) for name in names[:2])
            found.append((one, other))
    return found
