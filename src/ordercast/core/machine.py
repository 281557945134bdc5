"""The interface of a protocol: one site's part, a pure machine with one door."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Protocol

import msgspec

from ordercast.core.effects import Effect, Held
from ordercast.core.events import Envelope, Event
from ordercast.errors import LocalError, PeerError
from ordercast.names import GroupId, SiteId

NUMBER_AT_MOST = 2**62  # a number beyond this is a fault of the peer


class Groups(msgspec.Struct, frozen=True, dict=True):
    """Who is in which group, who may send, and which groups are ordered together: fixed for an epoch.

    A message to several groups is a message to a new group with the members of all of them, a *union*. Unions that are
    declared take part when classes are made. Any other is allowed where it cannot disturb another class: when it meets
    the sites of every other class in at most one site (docs/classes.md, "Messages to several groups"; errata 66).
    """

    members: dict[GroupId, tuple[SiteId, ...]]
    classes: tuple[tuple[GroupId, ...], ...]
    sources: tuple[SiteId, ...]
    """Every site that may send; groups are open, so a source need not be a member."""
    epoch: int = 1
    unions: tuple[tuple[GroupId, ...], ...] = ()
    """The declared ones; the groups of each are in one class."""

    @classmethod
    def of(
        cls,
        members: Mapping[GroupId, Sequence[SiteId]],
        classes: Sequence[Sequence[GroupId]],
        sources: Sequence[SiteId],
        epoch: int = 1,
    ) -> "Groups":
        """Build from tables in which a declared union stands as a group of its own, `A+B`."""
        plain = {group: tuple(sites) for group, sites in members.items() if "+" not in group}
        split = tuple(tuple(group for group in groups if "+" not in group) for groups in classes)
        unions = tuple(tuple(group.split("+")) for group in members if "+" in group)
        return cls(plain, split, tuple(sources), epoch, unions)

    def class_of(self, group: GroupId) -> int:
        """Return the index of a group's class."""
        return self._classes[group]

    @cached_property
    def _classes(self) -> dict[GroupId, int]:
        return {group: index for index, groups in enumerate(self.classes) for group in groups}

    def destination(self, groups: tuple[GroupId, ...]) -> int:
        """Return the class of a message to these groups; raises LocalError with the reason when it cannot be sent."""
        order_class = self._destinations.get(groups)
        if order_class is None:
            order_class = self._destinations[groups] = self._allowed(groups)
        return order_class

    @cached_property
    def _destinations(self) -> dict[tuple[GroupId, ...], int]:
        return {}

    def _allowed(self, groups: tuple[GroupId, ...]) -> int:
        if not groups:
            raise LocalError("a message to no group")
        for group in groups:
            if group not in self.members:
                raise LocalError(f"there is no group {group!r}")
        if tuple(sorted(set(groups))) != groups:
            raise LocalError(f"the groups of a message are named once, in order, not {'+'.join(groups)}")
        classes = {self.class_of(group) for group in groups}
        if len(classes) > 1:
            raise LocalError(f"groups {', '.join(groups)} are ordered apart: declare the union {'+'.join(groups)}")
        (order_class,) = classes
        if len(groups) > 1 and groups not in self.unions:
            self._check_union(groups, order_class)
        return order_class

    def _check_union(self, groups: tuple[GroupId, ...], order_class: int) -> None:
        sites = set(self.union(groups))
        for other, names in enumerate(self.classes):
            common = sorted(sites.intersection(self.union(names))) if other != order_class else []
            if len(common) > 1:
                raise LocalError(
                    f"{common[0]} and {common[1]} could see a message to {'+'.join(groups)} and one to groups "
                    f"{', '.join(names)} in two orders: declare the union {'+'.join(groups)}"
                )

    def check(self, sender: SiteId, envelope: Envelope) -> None:
        """Raise PeerError unless an honest source may have made this envelope (errata 62)."""
        try:
            order_class = self.destination(envelope.groups)
        except LocalError as error:
            raise PeerError(f"{sender} sent {envelope.msg_id}: {error}") from None
        if order_class != envelope.order_class:
            raise PeerError(f"{sender} sent {envelope} in class {envelope.order_class}, not {order_class}")
        if envelope.epoch != self.epoch:
            raise PeerError(f"{sender} sent {envelope} of epoch {envelope.epoch}, this is {self.epoch}")
        numbers = 0 < envelope.number <= NUMBER_AT_MOST and 0 < envelope.incarnation <= NUMBER_AT_MOST
        if envelope.source not in self._sources or not numbers:
            raise PeerError(f"{sender} sent {envelope}, whose source or number is none")

    @cached_property
    def everybody(self) -> frozenset[SiteId]:
        """Every member of every group."""
        return frozenset(site for sites in self.members.values() for site in sites)

    def is_source(self, site: SiteId) -> bool:
        """Whether a site may send."""
        return site in self._sources

    @cached_property
    def _sources(self) -> frozenset[SiteId]:
        return frozenset(self.sources)

    def union(self, groups: tuple[GroupId, ...]) -> tuple[SiteId, ...]:
        """Return the sites in any of the groups, sorted."""
        union = self._unions.get(groups)
        if union is None:
            union = self._unions[groups] = tuple(sorted({site for group in groups for site in self.members[group]}))
        return union

    @cached_property
    def _unions(self) -> dict[tuple[GroupId, ...], tuple[SiteId, ...]]:
        return {}

    def envelope(
        self, groups: tuple[GroupId, ...], source: SiteId, incarnation: int, number: int, body: bytes
    ) -> Envelope:
        """Make an envelope of a source to groups that it may send to; raises LocalError when it may not."""
        return Envelope(self.origin(source, groups), self.epoch, groups, source, incarnation, number, body)

    def origin(self, source: SiteId, groups: tuple[GroupId, ...]) -> int:
        """Return the class of a message of this source to these groups, or raise LocalError with what forbids it."""
        if source not in self._sources:
            raise LocalError(f"{source} is not one of the sources")
        return self.destination(groups)


class Machine(Protocol):
    """One site's part in a protocol. `step` touches no socket, disk, clock or random source."""

    me: SiteId
    sent: int
    """How many multicasts were originated here: the number of the last one."""

    def step(self, event: Event) -> list[Effect]:
        """Take one event to completion and return what is to be done, in order."""
        ...

    def held(self) -> list[Held]:
        """Return everything that waits here, why, and since when."""
        ...

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is unacknowledged: no tick would change anything."""
        ...
