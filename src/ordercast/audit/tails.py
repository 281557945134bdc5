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
        self._groups: dict[str, tuple[GroupId, ...]] = {}

    def rows(self, part: Part) -> list[dict[str, Any]]:
        """Return the rows of a part; of deliveries and sends, groups as tuples."""
        table, path = part.path.parent.name, part.path
        writer = path.stem.rpartition("-")[0].rpartition("-")[0]
        found, columns = read_part(str(path), *COLUMNS[table])
        rows: list[dict[str, Any]] = found.to_pylist()
        numbers = [row[BY[table]] for row in rows]
        ends = (numbers[0], numbers[-1]) if numbers else None
        if ends != (part.first, part.last) or any(a >= b for a, b in pairwise(numbers)):
            raise InputError(f"{path}: its rows are not from {part.first} to {part.last}, one after the other")
        by = "source" if table in ("sends", "drops") else "site"
        others = {str(row[by]) for row in rows} - {writer, writer.partition("@")[0]}
        if others:
            raise InputError(f"{path}: {by} {bounded(min(others))!r} is not who has written it")
        for name in columns:
            if name == "group" and table != "changes":
                for row in rows:
                    row[name] = self._named(row[name])
            elif columns[name] == schema.TEXT and rows and not isinstance(rows[0][name], str):
                for row in rows:
                    row[name] = str(row[name])
        return rows

    def deliveries(self, part: Part) -> list[Row]:
        """Return the rows of a part of deliveries/."""
        return [
            Row(
                row["msg_id"], row["group"], row["source"], row["source_seq"], row["site"], row["position"],
                row["epoch"], row["order_class"], row["stamp"], row.get("prev_stamp"), row.get("delivered_at", 0.0),
                row.get("body_hash"),
            )
            for row in self.rows(part)
        ]  # fmt: skip

    def _named(self, told: str | list[str]) -> tuple[GroupId, ...]:
        if not isinstance(told, str):
            return tuple(sorted(set(told)))
        found = self._groups.get(told)
        if found is None:
            found = self._groups[told] = tuple(sorted(set(told.split("+"))))
        return found
