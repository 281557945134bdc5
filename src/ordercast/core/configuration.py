"""Who is in which group and which groups are ordered together, as values that never change.

A **class** is a set of groups that are ordered together, on its own: it has its own machine at every site, its own
streams and its own stamps. Causal order binds everything together, because a context crosses classes through senders.
So with `causal` there is one class, and its groups fall into **parts**: each part has one order, and what came before a
message in another part is carried along with it. Without `causal` a class has one part.

A message to several groups is a message to a new group with the members of all of them, a *union*. Declared unions take
part when classes are made. Any other union is allowed where it cannot disturb another order: when it meets the sites of
every other class and part in at most one site (docs/classes.md, "Messages to several groups"; errata 66).
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import msgspec

from ordercast.core.events import Envelope
from ordercast.errors import LocalError, PeerError
from ordercast.names import ClassId, GroupId, SiteId

NUMBER_AT_MOST = 2**62  # a number beyond this is a fault of the peer
Destination = tuple[GroupId, ...]
"""The groups of a message, each once, sorted."""
Members = dict[GroupId, tuple[SiteId, ...]]


def sites_of(members: Mapping[GroupId, Sequence[SiteId]], groups: Iterable[GroupId]) -> tuple[SiteId, ...]:
    """Return the sites in any of the groups, sorted."""
    return tuple(sorted({site for group in groups for site in members[group]}))


class Neighbour(msgspec.Struct, frozen=True):
    """Another order that shares two or more sites with a class: its groups, and those sites."""

    groups: tuple[GroupId, ...]
    sites: tuple[SiteId, ...]


class OrderClass(msgspec.Struct, frozen=True, dict=True):
    """One class: all that a machine is built with. It does not refer to the whole configuration."""

    id: ClassId
    parts: tuple[tuple[GroupId, ...], ...]
    members: Members
    """Of the groups of this class."""
    sources: tuple[SiteId, ...]
    """Every site that may send; groups are open, so a source need not be a member."""
    unions: tuple[Destination, ...] = ()
    """The declared ones; the groups of each are in one part."""
    neighbours: tuple[Neighbour, ...] = ()
    open: bool = False
    """Anybody may send, not only `sources`."""

    def part_of(self, group: GroupId) -> int:
        """Return the index of a group's part."""
        return self._parts[group]

    @cached_property
    def _parts(self) -> dict[GroupId, int]:
        return {group: index for index, groups in enumerate(self.parts) for group in groups}

    def destination(self, groups: Destination) -> int:
        """Return the part of a message to these groups; raises LocalError with the reason when it cannot be sent."""
        part = self._destinations.get(groups)
        if part is None:
            part = self._destinations[groups] = self._allowed(groups)
        return part

    @cached_property
    def _destinations(self) -> dict[Destination, int]:
        return {}

    def _allowed(self, groups: Destination) -> int:
        check_names(groups, self.members)
        parts = {self.part_of(group) for group in groups}
        if len(parts) > 1:
            raise apart(groups)
        (part,) = parts
        if len(groups) > 1 and groups not in self.unions:
            self._check_union(groups, part)
        return part

    def _check_union(self, groups: Destination, part: int) -> None:
        sites = set(self.union(groups))
        others = [Neighbour(names, self.union(names)) for index, names in enumerate(self.parts) if index != part]
        for other in (*self.neighbours, *others):
            common = sorted(sites.intersection(other.sites))
            if len(common) > 1:
                raise LocalError(
                    f"{common[0]} and {common[1]} could see a message to {'+'.join(groups)} and one to groups "
                    f"{', '.join(other.groups)} in two orders: declare the union {'+'.join(groups)}"
                )

    def origin(self, source: SiteId, groups: Destination) -> int:
        """Return the part of a message of this source to these groups, or raise LocalError with what forbids it."""
        if not self.is_source(source):
            raise LocalError(f"{source} is not one of the sources")
        return self.destination(groups)

    def check(self, sender: SiteId, envelope: Envelope) -> int:
        """Return the part of an envelope; raises PeerError unless an honest source may have made it (errata 62)."""
        try:
            part = self.destination(envelope.groups)
        except LocalError as error:
            raise PeerError(f"{sender} sent {envelope.msg_id}: {error}") from None
        if envelope.class_id != self.id:
            raise PeerError(f"{sender} sent {envelope} in class {envelope.class_id}, not {self.id}")
        numbers = 0 < envelope.number <= NUMBER_AT_MOST and 0 < envelope.incarnation <= NUMBER_AT_MOST
        if not numbers or not self.is_source(envelope.source):
            raise PeerError(f"{sender} sent {envelope}, whose source or number is none")
        return part

    @cached_property
    def sites(self) -> frozenset[SiteId]:
        """Every member of every group."""
        return frozenset(site for sites in self.members.values() for site in sites)

    def is_source(self, site: SiteId) -> bool:
        """Whether a site may send."""
        return self.open or site in self._sources

    @cached_property
    def _sources(self) -> frozenset[SiteId]:
        return frozenset(self.sources)

    def union(self, groups: Destination) -> tuple[SiteId, ...]:
        """Return the sites in any of the groups, sorted."""
        union = self._unions.get(groups)
        if union is None:
            union = self._unions[groups] = sites_of(self.members, groups)
        return union

    @cached_property
    def _unions(self) -> dict[Destination, tuple[SiteId, ...]]:
        return {}


class Configuration(msgspec.Struct, frozen=True, dict=True):
    """All groups, and the classes they are in: fixed for an epoch."""

    members: Members
    classes: dict[ClassId, tuple[tuple[GroupId, ...], ...]]
    """For each class the groups of its parts."""
    sources: tuple[SiteId, ...]
    epoch: int = 1
    unions: tuple[Destination, ...] = ()

    @classmethod
    def of(
        cls,
        members: Mapping[GroupId, Sequence[SiteId]],
        orders: Sequence[Sequence[GroupId]],
        sources: Sequence[SiteId],
        epoch: int = 1,
        *,
        causal: bool = False,
    ) -> "Configuration":
        """Build from tables in which a declared union stands as a group of its own, `A+B`.

        Each order becomes a class of its own, or, with `causal`, a part of the only class.
        """
        plain = {group: tuple(sites) for group, sites in members.items() if "+" not in group}
        split = tuple(tuple(group for group in groups if "+" not in group) for groups in orders)
        unions = tuple(tuple(group.split("+")) for group in members if "+" in group)
        classes = (split,) if causal else tuple((groups,) for groups in split)
        ids = {ClassId(epoch, index): parts for index, parts in enumerate(classes)}
        return cls(plain, ids, tuple(sources), epoch, unions)

    def in_epoch(self, epoch: int) -> "Configuration":
        """Return the same groups and classes, all opened anew in another epoch."""
        classes = {ClassId(epoch, class_id.index): parts for class_id, parts in self.classes.items()}
        return msgspec.structs.replace(self, classes=classes, epoch=epoch)

    def destination(self, groups: Destination) -> ClassId:
        """Return the class of a message to these groups; raises LocalError with the reason when it cannot be sent."""
        class_id = self._destinations.get(groups)
        if class_id is None:
            check_names(groups, self.members)
            classes = {self._class_of[group] for group in groups}
            if len(classes) > 1:
                raise apart(groups)
            (class_id,) = classes
            self.order_class(class_id).destination(groups)
            self._destinations[groups] = class_id
        return class_id

    @cached_property
    def _destinations(self) -> dict[Destination, ClassId]:
        return {}

    @cached_property
    def _class_of(self) -> dict[GroupId, ClassId]:
        return {g: class_id for class_id, parts in self.classes.items() for groups in parts for g in groups}

    def origin(self, source: SiteId, groups: Destination) -> ClassId:
        """Return the class of a message of this source to these groups, or raise LocalError with what forbids it."""
        if source not in self.sources:
            raise LocalError(f"{source} is not one of the sources")
        return self.destination(groups)

    def order_class(self, class_id: ClassId) -> OrderClass:
        """Return the value of one class."""
        found = self._order_classes.get(class_id)
        if found is None:
            found = self._order_classes[class_id] = self._one_class(class_id)
        return found

    @cached_property
    def _order_classes(self) -> dict[ClassId, OrderClass]:
        return {}

    def _one_class(self, class_id: ClassId) -> OrderClass:
        parts = self.classes[class_id]
        own = {group for groups in parts for group in groups}
        members = {group: sites for group, sites in self.members.items() if group in own}
        shared: dict[int, list[SiteId]] = {}
        for site in sites_of(members, own):
            for order in self._orders_at[site]:
                shared.setdefault(order, []).append(site)
        neighbours = [
            Neighbour(self.orders[order], tuple(sites))
            for order, sites in sorted(shared.items())
            if len(sites) > 1 and self.orders[order][0] not in own
        ]
        unions = tuple(union for union in self.unions if own.issuperset(union))
        return OrderClass(class_id, parts, members, self.sources, unions, tuple(neighbours))

    @cached_property
    def orders(self) -> tuple[tuple[GroupId, ...], ...]:
        """The groups of every part of every class: stamps are comparable inside one of these."""
        return tuple(groups for parts in self.classes.values() for groups in parts)

    @cached_property
    def _orders_at(self) -> dict[SiteId, list[int]]:
        found: dict[SiteId, list[int]] = {}
        for order, groups in enumerate(self.orders):
            for site in sites_of(self.members, groups):
                found.setdefault(site, []).append(order)
        return found

    def order_of(self, groups: Destination) -> int:
        """Return which of the orders a message to these groups is in."""
        return self._orders[groups[0]]

    @cached_property
    def _orders(self) -> dict[GroupId, int]:
        return {group: index for index, groups in enumerate(self.orders) for group in groups}

    def orders_in(self, class_id: ClassId) -> range:
        """Return which of the orders are the parts of a class."""
        first = self._orders[self.classes[class_id][0][0]]
        return range(first, first + len(self.classes[class_id]))

    @cached_property
    def everybody(self) -> frozenset[SiteId]:
        """Every member of every group."""
        return frozenset(site for sites in self.members.values() for site in sites)

    def is_source(self, site: SiteId) -> bool:
        """Whether a site may send."""
        return site in self.sources

    def union(self, groups: Destination) -> tuple[SiteId, ...]:
        """Return the sites in any of the groups, sorted."""
        return sites_of(self.members, groups)


def check_names(groups: Destination, members: Mapping[GroupId, Sequence[SiteId]]) -> None:
    """Raise LocalError unless these are groups that exist, each once, sorted."""
    if not groups:
        raise LocalError("a message to no group")
    for group in groups:
        if group not in members:
            raise LocalError(f"there is no group {group!r}")
    if tuple(sorted(set(groups))) != groups:
        raise LocalError(f"the groups of a message are named once, in order, not {'+'.join(groups)}")


def apart(groups: Destination) -> LocalError:
    """Return why groups that are ordered apart get no common message."""
    return LocalError(f"groups {', '.join(groups)} are ordered apart: declare the union {'+'.join(groups)}")
