"""What a verdict rests on once the fold is there: who is suspicious, who is where, which destinations are in a class.

`Facts` is what the judges ask. `Known` answers from folds that were merged in this process; `spark.facts` answers the
same questions where folds are too many for one process.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from ordercast.audit.classes import Apart, apart_of
from ordercast.audit.merge import Merged, MergedSends, Sums, merge, merge_sends
from ordercast.names import ClassRule, GroupId, SiteId
from ordercast.runs.destinations import Destination, Members

SETS, TOLD, NUMBERS, EPOCHS, STAMPS = "sets", "told", "numbers", "epochs", "stamps"
SAYS = {
    SETS: "deliver other messages than were sent to them",
    TOLD: "are told other stamps, classes, epochs or bodies than others",
    NUMBERS: "have numbers of a source that fall, or repeats",
    EPOCHS: "have epochs that fall",
    STAMPS: "have stamps that do not grow, or other previous stamps",
}
"""What makes a site suspicious, in words."""


@dataclass
class Suspects:
    """The sites that the fold did not clear."""

    rows: dict[SiteId, int] = field(default_factory=dict)
    """How many rows each has; in the order of their names."""
    why: dict[str, set[SiteId]] = field(default_factory=dict)
    """The sites for each reason."""
    more: int = 0
    """How many there are beyond those, who are too many to be named."""
    more_why: dict[str, int] = field(default_factory=dict)


class Facts(Protocol):
    """What is known of a run after its fold."""

    @property
    def rows(self) -> int:
        """Count the deliveries."""
        ...

    def suspects(self, twice: Collection[Destination], *, everyone: bool) -> Suspects:
        """Return the sites that must be looked at: also the members of these destinations, or everyone."""
        ...

    def members_of(self, sites: Collection[SiteId]) -> Mapping[GroupId, Collection[SiteId]]:
        """Return who is in which group, of these sites at least."""
        ...

    def sent_to(self, sites: Collection[SiteId]) -> set[Destination]:
        """Return the destinations of what was sent to these sites."""
        ...

    def reach(self, sites: Collection[SiteId]) -> int:
        """Count what was sent to these sites, or their memberships, whichever is more."""
        ...

    def beside(self, groups: Collection[Destination]) -> dict[SiteId, set[Destination]]:
        """Return for each destination one site that was cleared: all of them were told the same of its messages."""
        ...

    def newest(self) -> Mapping[SiteId, int]:
        """Return the highest number of each source."""
        ...

    def several_classes(self) -> tuple[list[tuple[Destination, list[str]]], int]:
        """Return the first destinations that are in several classes, and how many there are."""
        ...

    def apart(self, rule: ClassRule, *, delivered: bool) -> Apart | None:
        """Return two destinations of different classes from each set that a rule wants in one.

        Destinations count with their members, or with the sites that really delivered their messages. None: they are
        too many to be judged.
        """
        ...

    def kinds(self, *, collide: bool) -> Mapping[SiteId, int] | None:
        """Return one site for all with the same groups and the same sequence, and how many it stands for.

        Where hashes of names collide, equal sums do not say that sequences are the same, and every site is a kind.
        None: their rows are too many to be searched.
        """
        ...

    def sites(self) -> Collection[SiteId]:
        """Return the sites that delivered something."""
        ...

    def close(self) -> None:
        """Let go of what was kept to answer."""
        ...


class Known:
    """Facts of a run whose folds fit this process."""

    def __init__(
        self,
        members: Mapping[GroupId, list[SiteId]],
        folded: Any,
        folded_sends: Any,
        search_at_most: int | None = None,
    ) -> None:
        """`search_at_most`: deliveries that are searched for cycles; None: however many there are."""
        self._search_at_most = search_at_most
        self.merged: Merged = merge(folded)
        self.sent: MergedSends = merge_sends(folded_sends)
        self._groups, self._members = members, Members(members)

    @property
    def rows(self) -> int:
        """Count the deliveries."""
        return self.merged.rows

    @cached_property
    def _why(self) -> dict[str, set[SiteId]]:
        merged = self.merged
        numbers = merged.fifo | merged.repeated
        odd, told = self._odd_sites(), self._told_differently()
        return {SETS: odd, TOLD: told, NUMBERS: numbers, EPOCHS: merged.epochs, STAMPS: merged.stamps}

    def suspects(self, twice: Collection[Destination], *, everyone: bool) -> Suspects:
        """Return the sites that must be looked at: also the members of these destinations, or everyone."""
        names = {site for sites in self._why.values() for site in sites}
        names |= {site for group in twice for site in self._members.of(group)}
        if everyone:
            names |= self.merged.sites.keys() | {site for sites in self._groups.values() for site in sites}
        self._suspects = names
        return Suspects({site: self.merged.sites.get(site, (0,))[0] for site in sorted(names)}, self._why)

    def _odd_sites(self) -> set[SiteId]:
        """Return the sites whose messages of some destination are not exactly those that were sent to it."""
        odd = set()
        expected = set()
        for group, sums in self.sent.sets.items():
            for site in self._members.of(group):
                expected.add((site, group))
                if self.merged.sets.get((site, group)) != sums:
                    odd.add(site)
        return odd | {site for site, _ in self.merged.sets.keys() - expected}

    def _told_differently(self) -> set[SiteId]:
        """Return the sites that were told another stamp, class, epoch or body of the same messages than another."""
        first: dict[tuple[Destination, Sums], tuple[SiteId, int]] = {}
        differ = set()
        for (site, group), told in sorted(self.merged.told.items()):
            other, theirs = first.setdefault((group, self.merged.sets[site, group]), (site, told))
            if theirs != told:
                differ |= {site, other}
        return differ

    def members_of(self, sites: Collection[SiteId]) -> Mapping[GroupId, Collection[SiteId]]:
        """Return who is in which group."""
        return self._groups

    def sent_to(self, sites: Collection[SiteId]) -> set[Destination]:
        """Return the destinations of what was sent to these sites."""
        wanted = set(sites)
        return {group for group in self.sent.sets if self._members.of(group) & wanted}

    def reach(self, sites: Collection[SiteId]) -> int:
        """Count what was sent to these sites; their memberships are here."""
        return sum(self.sent.sets[group][0] for group in self.sent_to(sites))

    def beside(self, groups: Collection[Destination]) -> dict[SiteId, set[Destination]]:
        """Return for each destination one site that was cleared."""
        clean = {}
        for group in groups:
            own = self._members.of(group) - self._suspects
            clean[group] = {site for site in own if (site, group) in self.merged.sets}
        return cover(clean)

    def newest(self) -> Mapping[SiteId, int]:
        """Return the highest number of each source."""
        return self.sent.newest

    def several_classes(self) -> tuple[list[tuple[Destination, list[str]]], int]:
        """Return the destinations that are in several classes, and how many there are."""
        found = [(group, sorted(names)) for group, names in sorted(self.merged.classes.items()) if len(names) > 1]
        return found, len(found)

    def apart(self, rule: ClassRule, *, delivered: bool) -> Apart:
        """Return two destinations of different classes from each set that a rule wants in one."""
        sites: dict[Destination, Iterable[SiteId]]
        if delivered:
            there: dict[Destination, set[SiteId]] = {}
            for site, group in self.merged.sets:
                there.setdefault(group, set()).add(site)
            sites = dict(there)
        else:
            sites = {group: self._members.of(group) for group in self.merged.classes}
        return apart_of(sites, self.merged.classes, rule)

    def kinds(self, *, collide: bool) -> Mapping[SiteId, int] | None:
        """Return one site for all with the same groups and the same sequence, and how many it stands for."""
        groups_of: dict[SiteId, set[Destination]] = {}
        for site, group in self.merged.sets:
            groups_of.setdefault(site, set()).add(group)
        kinds: dict[Any, SiteId] = {}
        many: dict[SiteId, int] = {}
        for site in sorted(self.merged.sites):
            kind = site if collide else (frozenset(groups_of[site]), self.merged.sites[site])
            first = kinds.setdefault(kind, site)
            many[first] = many.get(first, 0) + 1
        rows = sum(self.merged.sites[site][0] for site in many)
        return many if self._search_at_most is None or rows <= self._search_at_most else None

    def sites(self) -> Collection[SiteId]:
        """Return the sites that delivered something."""
        return self.merged.sites.keys()

    def close(self) -> None:
        """Nothing is kept outside this object."""


def cover(clean: Mapping[Destination, set[SiteId]]) -> dict[SiteId, set[Destination]]:
    """Choose one of its own sites for each destination, few of them in all."""
    chosen: dict[SiteId, set[Destination]] = {}
    for group, own in sorted(clean.items()):
        if own:
            chosen.setdefault(min(own & chosen.keys() or own), set()).add(group)
    return chosen
