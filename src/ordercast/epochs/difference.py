"""What a configuration has that the one before had not: so much is told to those who are in the one before.

A configuration names every site, group and class. Most of them stay as they are, and a site that is told only of what
changes shares all else with the configuration that it had: it costs neither time nor memory again.
"""

from typing import Any

import msgspec

from ordercast.epochs.setup import Setup
from ordercast.names import ClassId, GroupId, SiteId

TABLES = ("sites", "groups", "classes", "away", "lives", "answered", "founders")


class Gone(msgspec.Struct, frozen=True, array_like=True):
    """The keys of each table that are not there any more."""

    sites: tuple[SiteId, ...] = ()
    groups: tuple[GroupId, ...] = ()
    classes: tuple[ClassId, ...] = ()
    away: tuple[SiteId, ...] = ()
    lives: tuple[SiteId, ...] = ()
    answered: tuple[SiteId, ...] = ()
    founders: tuple[SiteId, ...] = ()


def difference(old: Setup, new: Setup) -> tuple[Setup, Gone]:
    """Return the new configuration without what the old one has too, and what is gone."""
    put: dict[str, Any] = {}
    gone: dict[str, Any] = {}
    for table in TABLES:
        before, after = getattr(old, table), getattr(new, table)
        same = (key for key in before.keys() & after.keys() if before[key] is after[key] or before[key] == after[key])
        unchanged = set(same)
        put[table] = {key: value for key, value in after.items() if key not in unchanged}
        gone[table] = tuple(sorted(before.keys() - after.keys()))
    return msgspec.structs.replace(new, **put), Gone(**gone)


def together(old: Setup, news: Setup, gone: Gone) -> Setup:
    """Return the new configuration; what stays is the same object."""
    whole: dict[str, Any] = {}
    for table in TABLES:
        before, put, without = getattr(old, table), getattr(news, table), getattr(gone, table)
        kept = {key: value for key, value in before.items() if key not in without} if without else before
        whole[table] = dict(sorted({**kept, **put}.items())) if put else kept
    return msgspec.structs.replace(news, **whole)
