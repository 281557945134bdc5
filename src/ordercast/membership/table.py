"""Who is in which group: the incidence of sites and groups, as arrays.

Names live in two sorted tuples and everything else is an index into them, so ten million memberships fit in a few
arrays, ties are broken by name, and the order of rows in a file can never change a result.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ordercast.errors import InputError
from ordercast.membership.toml import check_group
from ordercast.names import GroupId, SiteId

Indices = NDArray[np.int32]
Offsets = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Membership:
    """The bipartite graph of groups and sites; `group_sites[group_ptr[g]:group_ptr[g + 1]]` are the members of g."""

    sites: Sequence[SiteId]
    groups: Sequence[GroupId]
    group_ptr: Offsets
    group_sites: Indices

    @classmethod
    def of(cls, groups: Mapping[GroupId, Iterable[SiteId]]) -> "Membership":
        """Build from plain collections; members are sets here, so a repeated one is one."""
        for group in groups:
            check_group("", group)
        return cls._build(groups)

    @classmethod
    def _build(cls, groups: Mapping[GroupId, Iterable[SiteId]]) -> "Membership":
        members = {group: sorted(set(sites)) for group, sites in sorted(groups.items())}
        for group, sites_of_group in members.items():
            if not sites_of_group:
                raise InputError(f"group {group!r} has no members")
        sites = sorted({site for of_group in members.values() for site in of_group})
        number = {site: index for index, site in enumerate(sites)}
        flat = [number[site] for of_group in members.values() for site in of_group]
        ptr = np.cumsum([0, *(len(of_group) for of_group in members.values())])
        return cls(tuple(sites), tuple(members), ptr.astype(np.int64), np.array(flat, np.int32))

    def with_unions(self, unions: Iterable[Sequence[GroupId]]) -> "Membership":
        """Declare that messages go to several groups at once: a union `A+B` is planned as a group of its own."""
        members = self.as_dict()
        for union in unions:
            names = sorted(set(union))
            for name in names:
                if name not in members or "+" in name:
                    raise InputError(f"union {'+'.join(union)}: there is no group {name!r}")
            if len(names) < 2:
                raise InputError(f"union {'+'.join(union)!r}: names at least two groups")
            members["+".join(names)] = sorted({site for name in names for site in members[name]})
        return Membership._build(members) if len(members) > len(self.groups) else self

    @cached_property
    def unions(self) -> tuple[tuple[GroupId, ...], ...]:
        """The declared unions, each as the groups it is made of."""
        return tuple(tuple(name.split("+")) for name in self.groups if "+" in name)

    def __len__(self) -> int:
        """Count the memberships, that is the edges of the incidence graph."""
        return len(self.group_sites)

    @cached_property
    def _by_site(self) -> tuple[Offsets, Indices]:
        key = self.group_sites.astype(np.int64)
        key *= len(self.groups)
        key += self.edge_groups
        key.sort()
        ptr = np.zeros(len(self.sites) + 1, np.int64)
        np.cumsum(np.bincount(self.group_sites, minlength=len(self.sites)), out=ptr[1:])
        return ptr, (key % len(self.groups)).astype(np.int32)

    @property
    def site_ptr(self) -> Offsets:
        """Offsets into `site_groups`, one site after the other."""
        return self._by_site[0]

    @property
    def site_groups(self) -> Indices:
        """The groups of each site, ascending."""
        return self._by_site[1]

    @property
    def edge_groups(self) -> Indices:
        """The group of every membership, beside `group_sites`."""
        return np.repeat(np.arange(len(self.groups), dtype=np.int32), np.diff(self.group_ptr))

    def members(self, group: int) -> Indices:
        """Return the sites of one group, by index."""
        return self.group_sites[self.group_ptr[group] : self.group_ptr[group + 1]]

    def as_dict(self) -> dict[GroupId, list[SiteId]]:
        """Return group name -> member names, both sorted."""
        return {name: [self.sites[s] for s in self.members(g)] for g, name in enumerate(self.groups)}
