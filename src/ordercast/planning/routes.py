"""A plan as machines read it: the next hops of each destination, and the trees of the swap objects."""

from collections.abc import Mapping, Sequence

from ordercast.errors import LocalError
from ordercast.names import GroupId, Shape, SiteId
from ordercast.planning.plan import Plan


class Routes:
    """The part of a plan that one class needs: where a destination enters, and the next hops below each site.

    `trees` names the plan's trees that are the parts of the class.
    """

    def __init__(self, plan: Plan, trees: Sequence[int]) -> None:
        self.groups = {group: plan.groups[group] for tree in trees for group in plan.classes[tree]}
        self.part_of = {group: part for part, tree in enumerate(trees) for group in plan.classes[tree]}
        self._parent: dict[tuple[int, SiteId], SiteId] = {}
        for group, part in self.part_of.items():
            for sender, receiver in plan.hops.get(group, ()):
                self._parent[part, receiver] = sender
        self._below: dict[tuple[int, SiteId], list[SiteId]] = {}
        for (part, receiver), sender in sorted(self._parent.items()):
            self._below.setdefault((part, sender), []).append(receiver)
        self._entries: dict[tuple[GroupId, ...], SiteId] = {}
        self._hops: dict[tuple[GroupId, ...], dict[SiteId, tuple[SiteId, ...]]] = {}
        self._members: dict[tuple[GroupId, ...], frozenset[SiteId]] = {}
        self._reached: dict[tuple[GroupId, ...], frozenset[SiteId]] = {}

    def parent(self, part: int, site: SiteId) -> SiteId | None:
        """Return the site above in the tree of a part, None at a root."""
        return self._parent.get((part, site))

    def below(self, part: int, site: SiteId) -> list[SiteId]:
        """Return all children of a site in the tree of a part, sorted."""
        return self._below.get((part, site), [])

    def parts_at(self, site: SiteId) -> list[int]:
        """Return the parts in whose tree a site is: as a member, or because messages pass it."""
        here = {part for part, child in self._parent if child == site} | {
            part for part, up in self._below if up == site
        }
        alone = [group for group, planned in self.groups.items() if site == planned.entry or site in planned.members]
        return sorted(here | {self.part_of[group] for group in alone})

    def path_up(self, part: int, site: SiteId) -> list[SiteId]:
        """Return the sites from this one up to the root of its tree in a part."""
        path = [site]
        while (above := self._parent.get((part, path[-1]))) is not None:
            path.append(above)
        return path

    def depth(self, part: int, site: SiteId) -> int:
        """Return the hops from a site up to the root of its tree in a part."""
        return len(self.path_up(part, site)) - 1

    def entry(self, groups: tuple[GroupId, ...]) -> SiteId:
        """Return where a message to these groups enters: as planned, or the lowest site above all their entries."""
        if groups not in self._entries:
            self._entries[groups] = self._lowest(groups)
        return self._entries[groups]

    def _lowest(self, groups: tuple[GroupId, ...]) -> SiteId:
        planned = self.groups.get("+".join(groups))
        if planned is not None:
            return planned.entry
        part = self.part_of[groups[0]]
        paths = [self.path_up(part, self.groups[group].entry) for group in groups]
        above_all = next((site for site in paths[0] if all(site in path for path in paths)), None)
        if above_all is None:
            raise LocalError(f"no site is above groups {', '.join(groups)}: declare the union {'+'.join(groups)}")
        return above_all

    def delivers(self, site: SiteId, groups: tuple[GroupId, ...]) -> bool:
        """Whether a site is in one of the groups."""
        members = self._members.get(groups)
        if members is None:
            members = frozenset(site for group in groups for site in self.groups[group].members)
            self._members[groups] = members
        return site in members

    def children(self, site: SiteId, groups: tuple[GroupId, ...]) -> tuple[SiteId, ...]:
        """Return the children to which a site passes a message to these groups."""
        if groups not in self._hops:
            self._hops[groups] = self._spread(groups)
        return self._hops[groups].get(site, ())

    def relays(self, site: SiteId, groups: tuple[GroupId, ...]) -> bool:
        """Whether a site is an extra node with one child: of messages to these groups it needs nothing but their place.

        MGT §4.2 calls it an intermediary.
        """
        return len(self.children(site, groups)) == 1 and not self.delivers(site, groups)

    def shortcut(self, child: SiteId, groups: tuple[GroupId, ...]) -> SiteId | None:
        """Return the first site below a child that has use of messages to these groups; None when that is the child."""
        site = child
        while self.relays(site, groups):
            (site,) = self.children(site, groups)
        return site if site != child else None

    def giver(self, site: SiteId, groups: tuple[GroupId, ...]) -> SiteId | None:
        """Return the site whose shortcut ends here, None where there is none."""
        entry = self.entry(groups)
        if site == entry or self.relays(site, groups):
            return None
        part = self.part_of[groups[0]]
        parent = above = self._parent[part, site]
        while above != entry and self.relays(above, groups):
            above = self._parent[part, above]
        return above if above != parent else None

    def passes(self, site: SiteId, groups: tuple[GroupId, ...]) -> bool:
        """Whether messages to these groups pass a site: it is their entry, or gets them from above."""
        reached = self._reached.get(groups)
        if reached is None:
            self.children(site, groups)
            below = (child for children in self._hops[groups].values() for child in children)
            reached = self._reached[groups] = frozenset((self.entry(groups), *below))
        return site in reached

    def _spread(self, groups: tuple[GroupId, ...]) -> dict[SiteId, tuple[SiteId, ...]]:
        entry = self.entry(groups)
        part = self.part_of[groups[0]]
        below: dict[SiteId, set[SiteId]] = {}
        for group in groups:
            for member in self.groups[group].members:
                site = member
                while site != entry:
                    above = self._parent[part, site]
                    below.setdefault(above, set()).add(site)
                    site = above
        return {site: tuple(sorted(children)) for site, children in below.items()}


class SpanningTree:
    """A tree over some sites, for the swap objects; its root is the first by name, or the one nearest to all."""

    def __init__(
        self, sites: Sequence[SiteId], shape: Shape = Shape.BALANCED,
        latencies: Mapping[tuple[SiteId, SiteId], float] | None = None,
    ) -> None:  # fmt: skip
        """`latencies`: of pairs of sites, for a tree by latency; a pair that is not named takes 1."""
        self.sites, self.shape = tuple(sorted(sites)), shape
        self.root, self._parents = self.sites[0], dict[SiteId, SiteId]()
        self._number = {site: index for index, site in enumerate(self.sites)}
        if shape is Shape.LATENCY:
            self.root, self._parents = nearest_tree(self.sites, latencies or {})

    def __contains__(self, site: SiteId) -> bool:
        return site in self._number

    def are_neighbours(self, one: SiteId, other: SiteId) -> bool:
        """Whether an edge of the tree joins two sites."""
        return self.parent(one) == other or self.parent(other) == one

    def upper(self, levels: int) -> frozenset[SiteId]:
        """Return the root, and the sites at most so many levels below it."""
        found = part = {self.root}
        for _ in range(levels):
            part = {site for site in self.sites if self.parent(site) in part}
            if not part:
                break
            found = found | part
        return frozenset(found)

    def parent(self, site: SiteId) -> SiteId | None:
        """Return the parent of a site, None at the root."""
        if self.shape is Shape.LATENCY:
            return self._parents.get(site)
        number = self._number.get(site)
        if not number:
            return None
        if self.shape is Shape.BALANCED:
            return self.sites[(number - 1) // 2]
        return self.sites[0 if self.shape is Shape.STAR else number - 1]


def nearest_tree(
    sites: Sequence[SiteId], latencies: Mapping[tuple[SiteId, SiteId], float]
) -> tuple[SiteId, dict[SiteId, SiteId]]:
    """Return the site nearest to all, and the parents in a minimum spanning tree below it (Prim's algorithm)."""

    def between(one: SiteId, other: SiteId) -> float:
        return latencies.get((one, other), latencies.get((other, one), 1.0))

    root = min(sites, key=lambda site: (sum(between(site, other) for other in sites if other != site), site))
    nearest = {site: (between(root, site), root) for site in sites if site != root}
    parents: dict[SiteId, SiteId] = {}
    while nearest:
        site = min(nearest, key=lambda name: (nearest[name][0], name))
        parents[site] = nearest.pop(site)[1]
        for other, known in nearest.items():
            nearest[other] = min(known, (between(site, other), site))
    return root, parents
