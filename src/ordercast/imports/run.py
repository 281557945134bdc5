"""One way from logs to a run directory, whatever the format: files, lines, rows, columns, parts."""

import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from ordercast.errors import InputError
from ordercast.imports.lines import lines
from ordercast.imports.mapping import DERIVED, Import, TableMapping, read_mapping
from ordercast.imports.rows import FILE, LINE, Row, RowError
from ordercast.imports.tables import Parts, derive_sends
from ordercast.imports.values import Value
from ordercast.names import GroupId, SiteId

NAMED_AT_MOST, GROUPS_AT_MOST = 5, 100_000
Tell = Callable[[int], None]


@dataclass
class Imported:
    """What came out of an import."""

    deliveries: int = 0
    sends: int = 0
    passed_over: dict[str, int] = field(default_factory=dict)
    """Rows of each table's files that `when` left out."""
    logs: dict[SiteId, int] = field(default_factory=dict)
    """How many deliveries each site has."""
    groups: set[GroupId] = field(default_factory=set)
    """What messages were delivered to, as logs write it."""
    notes: list[str] = field(default_factory=list)


def import_logs(mapping: Path, out: Path, tell: Tell = lambda many: None) -> Imported:
    """Write the run directory that a mapping describes; nothing is there unless all of it is.

    `tell` hears of so many bytes more of the files that they have been read.
    """
    given = read_mapping(mapping)
    new = out.with_name(f".{out.name}.{os.getpid()}.tmp")
    absent = [folder for folder in new.parents if not folder.exists()]
    try:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise InputError(f"{out}: there is something already; give a folder that is new or empty")
        new.mkdir(parents=True)
        found = _written(given, new, tell)
        new.replace(out)
    except OSError as error:
        raise InputError(f"{out}: {error.strerror}") from None
    finally:
        shutil.rmtree(new, ignore_errors=True)
        for folder in absent:
            with suppress(OSError):  # there is a run in it
                folder.rmdir()
    return found


def size_of(mapping: Path) -> int:
    """Return how many bytes an import reads."""
    given = read_mapping(mapping)
    return sum(path.stat().st_size for table in (given.deliveries, given.sends) if table for path in table.files)


def _written(given: Import, folder: Path, tell: Tell) -> Imported:
    found = Imported()
    members = Parts(folder, "membership", ("site", "group"))
    for group, sites in sorted(given.members.items()):
        for site in sites:
            members.add((site, group), len(site) + len(group))
    members.end()
    found.deliveries = _table(given.deliveries, folder, found, tell)
    if given.sends is None:
        found.sends = derive_sends(folder, found.deliveries, folder / ".spill")
    else:
        found.sends = _table(given.sends, folder, found, tell)
    found.notes = _notes(given, found)
    return found


def _table(given: TableMapping, folder: Path, found: Imported, tell: Tell) -> int:
    """Write one table, and return how many rows it has."""
    names = ["body_hash" if column == "body" else column for column in given.columns]
    if given.positions:
        names.insert(1, "position")
    parts = Parts(folder, given.name, names)
    is_log, group = given.name == "deliveries", names.index("group")
    for size, values in _rows(given, found, tell):
        parts.add(values, size)
        if is_log:
            found.logs[values[0]] = found.logs.get(values[0], 0) + 1
            if len(found.groups) < GROUPS_AT_MOST:
                found.groups.add(values[group])
    parts.end()
    if not parts.rows:
        raise InputError(f"{given.files[0]}: no row for {given.name}/ here, nor in the other files of the mapping")
    return parts.rows


def _rows(given: TableMapping, found: Imported, tell: Tell) -> Iterator[tuple[int, list[Any]]]:
    """Yield the values of each row that counts, in the order of the table's columns, and how long its line was."""
    columns, read, when = list(given.columns.items()), given.read, given.when
    is_log = given.name == "deliveries"
    positions: dict[SiteId, Iterator[int]] = defaultdict(count)
    passed = 0
    for path in given.files:
        name = str(path)
        for number, line in lines(path, tell):
            many = 0
            try:
                for row in read(line):
                    many += 1
                    row[FILE], row[LINE] = name, number
                    if when is not None and not when(row):
                        passed += 1
                        continue
                    values = _values(columns, row)
                    if given.positions:
                        values.insert(1, next(positions[values[0]]))
                    elif is_log and values[1] < 0:
                        raise RowError(f"position: {values[1]} is negative")
                    yield len(line), values
            except RowError as error:
                entry = f", entry {many}" if many > 1 else ""
                raise InputError(f"{path}: line {number}{entry}: {error}") from None
    if when is not None:
        found.passed_over[given.name] = passed


def _values(columns: Sequence[tuple[str, Value]], row: Row) -> list[Any]:
    """Return the values of a row; what is wrong with one is said with its column."""
    try:
        return [value(row) for _, value in columns]
    except RowError:
        for column, value in columns:
            try:
                value(row)
            except RowError as error:
                raise RowError(f"{column}: {error}") from None
        raise


def _notes(given: Import, found: Imported) -> list[str]:
    """Say what then cannot be judged, and what looks like a mistake in the mapping."""
    notes = []
    if given.sends is None:
        notes.append(f"sends/ was made of deliveries ({DERIVED}): audit will not judge creation and completeness")
    if not given.deliveries.columns.keys() & {"body", "body_hash"}:
        notes.append("no body and no body_hash: audit will not compare bodies")
    sites = {site for members in given.members.values() for site in members}
    groups = {name for text in found.groups for name in text.split("+")}
    for what, names in (
        ("members of a group delivered nothing", sites - found.logs.keys()),
        ("sites delivered something and are in no group", found.logs.keys() - sites),
        ("groups have deliveries and are not in the membership", groups - given.members.keys()),
    ):
        if names:
            more = " ..." if len(names) > NAMED_AT_MOST else ""
            notes.append(f"{len(names)} {what}: {', '.join(sorted(names)[:NAMED_AT_MOST])}{more}")
    return notes
