"""Which site sequences which part (KIN §4.2): by load, on members or on sites of their own."""

from collections.abc import Collection, Mapping, Sequence

from ordercast.names import GroupId, SiteId

Members = Mapping[GroupId, Sequence[SiteId]]


def weight(members: Members) -> int:
    """Return how many ACCEPTs the sequencer of these groups sends when every group gets one message."""
    return sum(map(len, members.values()))


def place(
    parts: Sequence[tuple[Members, Collection[SiteId]]], load: Mapping[SiteId, int] | None = None
) -> list[SiteId]:
    """Return the sequencer of each part; a part is the members of its groups, and who may sequence it.

    The heaviest part goes first, to the site with the least load so far. Where nobody is named, a site that is in most
    of the groups sequences them: it needs no message to reach itself. Ties go to the first name.
    """
    busy = dict(load or {})
    chosen = dict[int, SiteId]()
    for index in sorted(range(len(parts)), key=lambda index: (-weight(parts[index][0]), index)):
        members, named = parts[index]
        site = min(named or _in_most(members), key=lambda site: (busy.get(site, 0), site))
        busy[site] = busy.get(site, 0) + weight(members)
        chosen[index] = site
    return [chosen[index] for index in range(len(parts))]


def _in_most(members: Members) -> list[SiteId]:
    count: dict[SiteId, int] = {}
    for sites in members.values():
        for site in sites:
            count[site] = count.get(site, 0) + 1
    return [site for site in count if count[site] == max(count.values())]
