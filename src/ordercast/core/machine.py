"""The interface of a protocol: one site's part, a pure machine with one door."""

from functools import cached_property
from typing import Protocol

import msgspec

from ordercast.core.effects import Effect, Held
from ordercast.core.events import Event
from ordercast.types import GroupId, SiteId


class Groups(msgspec.Struct, frozen=True, dict=True):
    """Who is in which group, who may send, and which groups are ordered together: fixed for an epoch."""

    members: dict[GroupId, tuple[SiteId, ...]]
    classes: tuple[tuple[GroupId, ...], ...]
    sources: tuple[SiteId, ...]
    """Every site that may send; groups are open, so a source need not be a member."""
    epoch: int = 1

    def class_of(self, group: GroupId) -> int:
        """Return the index of a group's class."""
        return self._classes[group]

    @cached_property
    def _classes(self) -> dict[GroupId, int]:
        return {group: index for index, groups in enumerate(self.classes) for group in groups}

    def union(self, groups: tuple[GroupId, ...]) -> tuple[SiteId, ...]:
        """Return the sites in any of the groups, sorted."""
        union = self._unions.get(groups)
        if union is None:
            union = self._unions[groups] = tuple(sorted({site for group in groups for site in self.members[group]}))
        return union

    @cached_property
    def _unions(self) -> dict[tuple[GroupId, ...], tuple[SiteId, ...]]:
        return {}


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
