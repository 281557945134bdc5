"""A plan as machines read it: the next hops of each destination, and the trees of the swap objects."""

from ordercast.errors import LocalError
from ordercast.names import GroupId, SiteId
from ordercast.planning.plan import Plan


class Routes:
    """A plan as a machine reads it: where a destination enters, and the next hops below each site."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.class_of = plan.class_of()
        self._parent: dict[tuple[int, SiteId], SiteId] = {}
        for group, sender, receiver in plan.crossings():
            self._parent[self.class_of[group], receiver] = sender
        self._entries: dict[tuple[GroupId, ...], SiteId] = {}
        self._hops: dict[tuple[GroupId, ...], dict[SiteId, tuple[SiteId, ...]]] = {}
        self._members: dict[tuple[GroupId, ...], frozenset[SiteId]] = {}
        self._reached: dict[tuple[GroupId, ...], frozenset[SiteId]] = {}

    def parent(self, order_class: int, site: SiteId) -> SiteId | None:
        """Return the site above in the tree of a class, None at a root."""
        return self._parent.get((order_class, site))

    def path_up(self, order_class: int, site: SiteId) -> list[SiteId]:
        """Return the sites from this one up to the root of its tree in a class."""
        path = [site]
        while (above := self._parent.get((order_class, path[-1]))) is not None:
            path.append(above)
        return path

    def depth(self, order_class: int, site: SiteId) -> int:
        """Return the hops from a site up to the root of its tree in a class."""
        return len(self.path_up(order_class, site)) - 1

    def entry(self, groups: tuple[GroupId, ...]) -> SiteId:
        """Return where a message to these groups enters: as planned, or the lowest site above all their entries."""
        if groups not in self._entries:
            self._entries[groups] = self._lowest(groups)
        return self._entries[groups]

    def _lowest(self, groups: tuple[GroupId, ...]) -> SiteId:
        planned = self.plan.groups.get("+".join(groups))
        if planned is not None:
            return planned.entry
        order_class = self.class_of[groups[0]]
        paths = [self.path_up(order_class, self.plan.groups[group].entry) for group in groups]
        above_all = next((site for site in paths[0] if all(site in path for path in paths)), None)
        if above_all is None:
            raise LocalError(f"no site is above groups {', '.join(groups)}: declare the union {'+'.join(groups)}")
        return above_all

    def delivers(self, site: SiteId, groups: tuple[GroupId, ...]) -> bool:
        """Whether a site is in one of the groups."""
        members = self._members.get(groups)
        if members is None:
            members = frozenset(site for group in groups for site in self.plan.groups[group].members)
            self._members[groups] = members
        return site in members

    def children(self, site: SiteId, groups: tuple[GroupId, ...]) -> tuple[SiteId, ...]:
        """Return the children to which a site passes a message to these groups."""
        if groups not in self._hops:
            self._hops[groups] = self._spread(groups)
        return self._hops[groups].get(site, ())

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
        order_class = self.class_of[groups[0]]
        below: dict[SiteId, set[SiteId]] = {}
        for group in groups:
            for member in self.plan.groups[group].members:
                site = member
                while site != entry:
                    above = self._parent[order_class, site]
                    below.setdefault(above, set()).add(site)
                    site = above
        return {site: tuple(sorted(children)) for site, children in below.items()}


class SpanningTrees:
    """A tree over the sites of each class, for the swap objects; sites in heap order, so its depth is logarithmic."""

    def __init__(self, members: dict[GroupId, tuple[SiteId, ...]], classes: tuple[tuple[GroupId, ...], ...]) -> None:
        self._sites = [tuple(sorted({site for group in groups for site in members[group]})) for groups in classes]
        self._number = [{site: index for index, site in enumerate(sites)} for sites in self._sites]

    def sites(self, order_class: int) -> tuple[SiteId, ...]:
        """Return the sites of a class."""
        return self._sites[order_class]

    def are_neighbours(self, order_class: int, one: SiteId, other: SiteId) -> bool:
        """Whether an edge of a class's tree joins two sites."""
        return self.parent(order_class, one) == other or self.parent(order_class, other) == one

    def root(self, order_class: int) -> SiteId:
        """Return the root of a class's tree."""
        return self._sites[order_class][0]

    def parent(self, order_class: int, site: SiteId) -> SiteId | None:
        """Return the parent of a site, None at the root."""
        number = self._number[order_class].get(site)
        return self._sites[order_class][(number - 1) // 2] if number else None
