"""The parts of a run directory as live sites write them, read once and in order."""

import os
from collections import deque
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from ordercast.errors import InputError, bounded
from ordercast.names import GroupId, SiteId
from ordercast.runs import schema
from ordercast.runs.reader import read_part
from ordercast.verify.findings import Delivery

BY = {"sends": "source_seq", "deliveries": "position", "changes": "position", "drops": "source_seq"}
"""What the parts of a table are counted by."""
COLUMNS: dict[str, tuple[schema.Columns, schema.Columns]] = {
    "sends": (schema.SENDS, {"body_hash": schema.WHOLE, "post": schema.TEXT}),
    "deliveries": (
        {**schema.DELIVERIES, "epoch": schema.WHOLE, "order_class": schema.TEXT, "stamp": schema.BINARY},
        {"prev_stamp": schema.BINARY, "delivered_at": schema.NUMBER, "body_hash": schema.WHOLE},
    ),
    "changes": (schema.CHANGES, {}),
    "drops": (schema.DROPS, {}),
}
"""The columns that are needed of each table, and those that may be there."""


class Row(NamedTuple):
    """A delivery as a site's log tells it."""

    msg_id: str
    groups: tuple[GroupId, ...]
    source: SiteId
    number: int
    site: SiteId
    position: int
    epoch: int
    order_class: str
    stamp: bytes
    prev_stamp: bytes | None
    delivered_at: float
    body: int | None

    def told(self) -> Delivery:
        """Return it as evidence."""
        return Delivery(
            self.site, self.position, self.msg_id, self.groups, self.source, self.number, self.epoch,
            self.order_class, self.stamp, self.prev_stamp, self.body,
        )  # fmt: skip


ROW = (
    "msg_id", "group", "source", "source_seq", "site", "position", "epoch", "order_class", "stamp", "prev_stamp",
    "delivered_at", "body_hash",
)  # fmt: skip
"""The columns of a `Row`."""


class Held(NamedTuple):
    """What cannot be judged yet."""

    site: SiteId
    reason: str
    seconds: float


class Part(NamedTuple):
    """A file of a table: whose rows, from where to where."""

    first: int
    last: int
    path: Path


class Tail:
    """The parts of one table by writer, in order: `SITE-first-last.parquet`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: set[str] = set()
        self._parts: dict[str, deque[Part]] = {}

    def look(self) -> None:
        """Find new parts."""
        try:
            names = {entry.name for entry in os.scandir(self.folder)}
        except FileNotFoundError:
            return
        found: dict[str, list[Part]] = {}
        for name in names - self._seen:
            self._seen.add(name)
            if name.startswith((".", "_")) or not name.endswith(".parquet"):
                continue
            site, _, last = name.removesuffix(".parquet").rpartition("-")
            site, _, first = site.rpartition("-")
            numbers = first.isascii() and first.isdecimal() and last.isascii() and last.isdecimal()
            if not (site and numbers and int(first) <= int(last)):
                raise InputError(
                    f"{self.folder / name}: not a part that a live site writes; a whole run is judged once"
                )
            found.setdefault(site, []).append(Part(int(first), int(last), self.folder / name))
        for site, parts in found.items():
            self._parts[site] = deque(sorted([*self._parts.get(site, ()), *parts]))

    def take(self, writer: str, at: int) -> Part | None:
        """Return the part in which a writer's rows go on at a number, if it is there; what is before is read."""
        parts = self._parts.get(writer)
        while parts and parts[0].last < at:
            parts.popleft()
        return parts.popleft() if parts and parts[0].first <= at else None

    def next(self, writer: str) -> Part | None:
        """Return the next part of a writer, whatever is before it."""
        parts = self._parts.get(writer)
        return parts[0] if parts else None

    def take_all(self, writer: str) -> list[Part]:
        """Return all parts of a writer."""
        parts, self._parts[writer] = self._parts.get(writer, deque()), deque()
        return list(parts)

    def writers(self) -> list[str]:
        """Return who has written parts."""
        return sorted(self._parts)


class Reader:
    """Reads parts row by row, by the rules of a run: what cannot be judged is refused by file and row."""

    def __init__(self) -> None:
        self._groups: dict[str | tuple[str, ...], tuple[GroupId, ...]] = {}

    def columns(self, part: Part) -> dict[str, list[Any]]:
        """Return the columns of a part; of deliveries and sends, groups as tuples."""
        table, path = part.path.parent.name, part.path
        writer = path.stem.rpartition("-")[0].rpartition("-")[0]
        found, kinds = read_part(str(path), *COLUMNS[table])
        columns: dict[str, list[Any]] = {name: found.column(name).to_pylist() for name in kinds}
        numbers = columns[BY[table]]
        if (numbers[:1], numbers[-1:]) != ([part.first], [part.last]) or any(a >= b for a, b in pairwise(numbers)):
            raise InputError(f"{path}: its rows are not from {part.first} to {part.last}, one after the other")
        for name, kind in kinds.items():
            if name == "group" and table != "changes":
                columns[name] = [self._groups.get(told) or self._named(told) for told in map(_text, columns[name])]
            elif kind == schema.TEXT and not isinstance(columns[name][0], str):
                columns[name] = list(map(str, columns[name]))
        by = "source" if table in ("sends", "drops") else "site"
        others = set(columns[by]) - {writer, writer.partition("@")[0]}
        if others:
            raise InputError(f"{path}: {by} {bounded(min(others))!r} is not who has written it")
        return columns

    def rows(self, part: Part) -> list[dict[str, Any]]:
        """Return the rows of a part."""
        columns = self.columns(part)
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    def deliveries(self, part: Part) -> list[Row]:
        """Return the rows of a part of deliveries/."""
        columns = self.columns(part)
        many = len(columns["position"])
        absent = {"prev_stamp": None, "delivered_at": 0.0, "body_hash": None}
        of = [columns.get(name, [absent.get(name)] * many) for name in ROW]
        return list(map(Row._make, zip(*of, strict=True)))

    def _named(self, told: str | tuple[str, ...]) -> tuple[GroupId, ...]:
        groups = told if isinstance(told, tuple) else told.split("+")
        found = self._groups[told] = tuple(sorted(set(groups)))
        return found


def _text(told: str | int | list[str]) -> str | tuple[str, ...]:
    return told if isinstance(told, str) else str(told) if isinstance(told, int) else tuple(told)
