"""The mapping file: where the logs are, which format they have, and which field of a row is which column."""

import glob
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ordercast.errors import InputError
from ordercast.imports import kafka, nats, redis
from ordercast.imports.rows import Reader, Row, object_in
from ordercast.imports.values import BODY, MISSING, SpecError, Value, look_up, path_of, value_of
from ordercast.membership.files import read_membership
from ordercast.membership.toml import groups_in, read_toml
from ordercast.names import GroupId, SiteId
from ordercast.runs import schema

FORMATS = ("jsonl", "kafka", "nats", "redis")
DERIVED, IN_ORDER = "from deliveries", "order of lines"
TOP = ("format", "printed", "data", "membership", "groups", "message", "deliveries", "sends")
HOW = ("files", "format", "printed", "data", "when")
MESSAGE = ("msg_id", "group", "source", "source_seq")
REQUIRED = {"deliveries": ("site", *MESSAGE), "sends": MESSAGE}


@dataclass(frozen=True)
class TableMapping:
    """How one table of the run is made."""

    name: str
    files: Sequence[Path]
    read: Reader
    columns: Mapping[str, Value]
    """As the run directory has them, but `body` for a body to be hashed, and no `position` where lines give it."""
    when: Callable[[Row], bool] | None
    positions: bool
    """Whether positions are given by the order of lines."""


@dataclass(frozen=True)
class Import:
    """A whole mapping."""

    members: Mapping[GroupId, Sequence[SiteId]]
    deliveries: TableMapping
    sends: TableMapping | None
    """None: derived from the deliveries, because the mapping asks for that."""


def read_mapping(path: Path) -> Import:
    """Read a mapping file and find the files that it names; says what is wrong with it."""
    given = read_toml(path)
    unknown = sorted(given.keys() - set(TOP))
    if unknown:
        raise InputError(f"{path}: unknown key {unknown[0]!r} (there are {', '.join(TOP)})")
    sends = given.get("sends")
    if sends is None:
        why = f'or, when nobody recorded them, sends = "{DERIVED}": then completeness and creation are not judged'
        raise InputError(f"{path}: no sends: give a table [sends], {why}")
    if isinstance(sends, str) and sends != DERIVED:
        raise InputError(f'{path}: sends = "{sends[:60]}": give a table [sends] or "{DERIVED}"')
    members = _members(path, given)
    deliveries = _table(path, given, "deliveries")
    return Import(members, deliveries, None if sends == DERIVED else _table(path, given, "sends"))


def _members(path: Path, given: Mapping[str, Any]) -> Mapping[GroupId, Sequence[SiteId]]:
    """Return who is in which group: the table `groups`, or another file."""
    if ("groups" in given) == ("membership" in given):
        raise InputError(f'{path}: say who is in which group: a table [groups], or membership = "FILE"')
    if "groups" in given:
        return groups_in(path, given)
    if not isinstance(given["membership"], str):
        raise InputError(f"{path}: membership is the name of a file")
    return read_membership(path.parent / given["membership"]).as_dict()


def _table(path: Path, given: Mapping[str, Any], name: str) -> TableMapping:
    table, message = given.get(name), given.get("message", {})
    if not isinstance(table, dict) or not isinstance(message, dict):
        raise InputError(
            f"{path}: no table [{name}]" if table is None else f"{path}: [{name}] and [message] are tables"
        )
    kinds = {c: k for c, k in schema.WRITTEN[name].items() if c not in schema.CHANGING_ONLY} | {"body": BODY}
    shared = {*MESSAGE, "body", "body_hash"}
    for where, keys, known in (("message", message, shared), (name, table, {*HOW, *kinds})):
        unknown = sorted(keys.keys() - known)
        if unknown:
            raise InputError(f"{path}: [{where}]: unknown key {unknown[0]!r} (there are {', '.join(sorted(known))})")
    specs = {c: s for c, s in (message | table).items() if c not in HOW}
    if "body" in table:  # said here, so it counts instead of what [message] says
        specs = {c: s for c, s in specs.items() if c != "body_hash" or c in table}
    positions = name == "deliveries" and specs.get("position", IN_ORDER) == IN_ORDER
    if positions:
        specs.pop("position", None)
    for column in REQUIRED[name]:
        if column not in specs:
            raise InputError(f"{path}: [{name}] does not say what {column} is")
    if "body" in specs and "body_hash" in specs:
        raise InputError(f"{path}: [{name}]: give body or body_hash, not both")
    how = {key: table.get(key, given.get(key)) for key in ("format", "printed", "data")}
    return TableMapping(
        name, _files(path, name, table.get("files")), _reader(path, name, how), _columns(path, name, specs, kinds),
        _when(path, name, table.get("when")), positions,
    )  # fmt: skip


def _columns(path: Path, name: str, specs: Mapping[str, Any], kinds: Mapping[str, str]) -> dict[str, Value]:
    found = {}
    for column, kind in kinds.items():
        if column in specs:
            try:
                null = column in schema.MAY_BE_NULL
                found[column] = value_of(specs[column], kind, may_be_null=null)
            except SpecError as error:
                raise InputError(f"{path}: [{name}] {column}: {error}") from None
    return found


def _files(path: Path, name: str, patterns: Any) -> list[Path]:
    """Return the files that patterns name, seen from the mapping's folder: each once, `part-2` before `part-10`."""
    if isinstance(patterns, str):
        patterns = [patterns]
    if not isinstance(patterns, list) or not patterns or not all(isinstance(p, str) and p for p in patterns):
        raise InputError(f'{path}: [{name}] does not say which files: files = "deliveries/*.jsonl"')
    found: dict[Path, None] = {}
    for pattern in patterns:
        names = glob.glob(pattern, root_dir=path.parent, recursive=True)  # noqa: PTH207 - Path has no absolute patterns
        there = sorted(names, key=_by_number)
        files = [path.parent / one for one in there if (path.parent / one).is_file()]
        if not files:
            raise InputError(f"{path}: [{name}] files: nothing is called {pattern!r} in {path.parent}")
        found |= dict.fromkeys(files)
    return list(found)


def _by_number(name: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"([0-9]+)", name)]


def _reader(path: Path, name: str, how: Mapping[str, Any]) -> Reader:
    kind, printed, data = how["format"], how["printed"], how["data"]
    if kind not in FORMATS:
        raise InputError(f"{path}: [{name}] format is one of {', '.join(FORMATS)}, not {str(kind)[:40]!r}")
    if printed is not None and (
        kind != "kafka" or printed != [p for p in kafka.PRINTED if p in printed] or not printed
    ):
        raise InputError(
            f"{path}: [{name}] printed is for format kafka: a list of {', '.join(kafka.PRINTED)}, so sorted"
        )
    if data is not None and (kind != "nats" or data not in ("base64", "text")):
        raise InputError(f'{path}: [{name}] data is for format nats: "base64" or "text"')
    if kind == "kafka":
        return kafka.kcat if printed is None else kafka.console(printed)
    if kind == "nats":
        return nats.reader(base64_data=data == "base64")
    return redis.read if kind == "redis" else lambda line: (object_in(line),)


def _when(path: Path, name: str, given: Any) -> Callable[[Row], bool] | None:
    """Return which rows count: those whose fields have one of these values."""
    if given is None:
        return None
    if not isinstance(given, dict) or not given:
        raise InputError(f'{path}: [{name}] when is a table: when = {{ kind = "send" }}')
    wanted = []
    for key, told in given.items():
        values = told if isinstance(told, list) else [told]
        if not values or not all(isinstance(value, str | int) for value in values):
            raise InputError(f"{path}: [{name}] when: {key!r} is a text, a whole number, or a list of them")
        try:
            wanted.append((path_of(key), {str(value) for value in values}))
        except SpecError as error:
            raise InputError(f"{path}: [{name}] when: {error}") from None

    def counts(row: Row) -> bool:
        found = ((look_up(row, keys), values) for keys, values in wanted)
        return all(value is not MISSING and str(value) in values for value, values in found)

    return counts
