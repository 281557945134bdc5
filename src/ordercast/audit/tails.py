"""The parts of a run directory as live sites write them, read once and in order."""

import os
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ordercast.errors import InputError
from ordercast.names import GroupId, SiteId
from ordercast.verify.findings import Delivery

SENDS = ("msg_id", "group", "source", "source_seq", "body_hash")
DELIVERIES = (
    "msg_id", "group", "source", "source_seq", "site", "position", "epoch", "order_class", "stamp", "prev_stamp",
    "delivered_at", "body_hash",
)  # fmt: skip
BY = {"sends": "source_seq", "deliveries": "position", "changes": "position"}
"""What the parts of a table are counted by."""


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
    body: int

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
    """The parts of one table, in the order of each writer: `SITE-first-last.parquet`."""

    def __init__(self, folder: Path, done: Mapping[str, int], *, gaps: bool = False) -> None:
        """`done`: up to where each writer's rows are read, by `TABLE/WRITER`; `gaps`: parts need not meet."""
        self.folder, self._done, self._may_gap = folder, done, gaps
        self._first = 1 if folder.name == "sends" else 0
        self._seen: set[str] = set()
        self._parts: dict[SiteId, list[Part]] = {}
        self.gaps: dict[SiteId, tuple[str, float]] = {}

    def look(self) -> None:
        """Find new parts."""
        try:
            names = {entry.name for entry in os.scandir(self.folder)}
        except FileNotFoundError:
            return
        for name in names - self._seen:
            self._seen.add(name)
            site, _, rest = name.removesuffix(".parquet").rpartition("-")
            site, _, first = site.rpartition("-")
            if name.startswith((".", "_")) or not name.endswith(".parquet"):
                continue
            if not (site and first.isdecimal() and rest.isdecimal()):
                raise InputError(
                    f"{self.folder / name}: not a part that a live site writes; a whole run is judged once"
                )
            self._parts.setdefault(site, []).append(Part(int(first), int(rest), self.folder / name))
            self._parts[site].sort()

    def take(self, site: SiteId) -> Part | None:
        """Return the part of a site that comes next, if it is there."""
        parts = self._parts.get(site, [])
        after = max(self._first, self._done.get(f"{self.folder.name}/{site}", 0))
        while parts and parts[0].last < after:
            parts.pop(0)
        if parts and (self._may_gap or parts[0].first <= after):
            self.gaps.pop(site, None)
            return parts.pop(0)
        if parts:
            reason = f"{self.folder.name}/ of {site} from {after} to {parts[0].first - 1} are not there"
            self.gaps[site] = (reason, self.gaps.get(site, (reason, time.monotonic()))[1])
        return None

    def sites(self) -> list[SiteId]:
        """Return whose parts there are."""
        return sorted(self._parts)


class Reader:
    """Reads parts row by row; what was read before is left out, and what is no part is refused by name."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        """Up to where the rows of each writer are read, by `TABLE/WRITER`."""
        self._groups: dict[str, tuple[GroupId, ...]] = {}

    def rows(self, path: Path, names: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a part of `sends/`, `deliveries/` or `changes/`, by these columns."""
        table, site = path.parent.name, path.stem.rpartition("-")[0].rpartition("-")[0]
        try:
            found = pq.ParquetFile(path).read(list(names))
            columns = [found.column(name).to_pylist() for name in names]
        except (pa.ArrowException, OSError, KeyError) as error:
            raise InputError(f"{path}: {str(error).splitlines()[0]}") from None
        key, numbers = f"{table}/{site}", columns[names.index(BY[table])]
        if table != "changes":
            at = names.index("group")
            columns[at] = [self._groups.get(text) or self._named(text) for text in columns[at]]
        skip = sum(number < self.done[key] for number in numbers)
        self.done[key] = max(self.done[key], numbers[-1] + 1) if numbers else self.done[key]
        yield from islice(zip(*columns, strict=True), skip, None)

    def _named(self, text: str) -> tuple[GroupId, ...]:
        found = self._groups[text] = tuple(sorted(set(text.split("+"))))
        return found
