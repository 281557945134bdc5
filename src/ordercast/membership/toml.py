"""TOML, and the table of groups in it: a membership, a cluster, a workload are checked by the same rules and words.

Light to import, because sites read it when they start: no arrays here.
"""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ordercast.errors import InputError
from ordercast.names import GroupId, SiteId


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file: a membership, weights, a cluster, a workload."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text (byte {error.start})") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        reason = str(error)
        if "overwrite" in reason or "twice" in reason:
            reason = f"a name is given twice: {reason}"
        raise InputError(f"{path}: not TOML: {reason}") from None


def table_in(where: str | Path, given: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return a table of a file, with at least one entry."""
    table = given.get(name)
    if not isinstance(table, dict) or not table:
        raise InputError(f"{where}: no [{name}] table with at least one group")
    return table


def groups_in(where: str | Path, given: Mapping[str, Any]) -> dict[GroupId, list[SiteId]]:
    """Return the table `groups` of a file, checked: at least one group, none empty, no member twice.

    Errors begin with `where`, the name of the file.
    """
    groups = table_in(where, given, "groups")
    for group, members in groups.items():
        if not group:
            raise InputError(f"{where}: a group has an empty name")
        check_group(f"{where}: ", group)
        _check_members(f"{where}: group {group!r}", members)
    return groups


def _check_members(where: str, members: Any) -> None:
    if not isinstance(members, list):
        hint = " (a name with a dot needs quotes)" if isinstance(members, dict) else ""
        raise InputError(f"{where}: members must be a list of strings, not {members!r}{hint}")
    if not members:
        raise InputError(f"{where} is empty")
    seen: set[str] = set()
    for position, site in enumerate(members, start=1):
        if not isinstance(site, str):
            raise InputError(f"{where}: member {position} is not a string: {site!r}")
        if not site:
            raise InputError(f"{where}: member {position} has an empty name")
        if site in seen:
            raise InputError(f"{where}: member {site!r} appears twice")
        seen.add(site)


def unions_in(where: str | Path, given: Mapping[str, Any]) -> list[list[GroupId]]:
    """Return the list `unions` of a file: groups that messages go to at once; empty when there is none."""
    unions: Any = given.get("unions", [])
    right = isinstance(unions, list) and all(isinstance(union, list) for union in unions)
    if not right or not all(isinstance(name, str) for union in unions for name in union):
        raise InputError(f"{where}: unions is a list of lists of group names")
    return list(unions)


def check_group(where: str, group: GroupId) -> None:
    """Refuse a group whose name has a `+`: that is how logs and commands join the groups of one message."""
    if "+" in group:
        raise InputError(f"{where}group {group!r}: a name must not have a '+', which joins the groups of one message")
