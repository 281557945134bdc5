"""Rows as Python values, for what the fold could not clear; and what to say of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

from ordercast.audit.destinations import Destination, shown
from ordercast.audit.tables import listed
from ordercast.names import GroupId, SiteId

SHOWN_AT_MOST = 10


class Source(Protocol):
    """Where rows come from: in process, or Spark."""

    stamped: bool
    epochs: bool
    """Whether deliveries say of which epoch they are."""
    context: bool
    """Whether sends say how many deliveries came before them."""
    members: dict[GroupId, list[SiteId]]

    def fold(self) -> tuple[Any, Any]:
        """Return the folds of deliveries and of sends."""
        ...

    def logs(self, sites: Iterable[SiteId]) -> Any:
        """Return all rows of these sites."""
        ...

    def sends(self, groups: Iterable[Destination] | None) -> Any:
        """Return what was sent to these destinations, or all."""
        ...

    def sends_named(self, ids: Iterable[str]) -> Any:
        """Return the sends of these messages."""
        ...

    def sends_alike(self) -> tuple[Any, int]:
        """Return the sends whose ids have the hash of another, and how many such hashes there are."""
        ...

    def sequences(self, sites: Iterable[SiteId]) -> Any:
        """Return site, position and message of every delivery."""
        ...


class Row(NamedTuple):
    """One delivery."""

    site: SiteId
    position: int
    msg_id: str
    group: Destination
    source: SiteId
    source_seq: int
    epoch: int
    order_class: str | None
    stamp: bytes | None
    prev_stamp: bytes | None

    def shown(self) -> dict[str, Any]:
        """Return what an example shows."""
        return {"site": self.site, "position": self.position, "msg_id": self.msg_id, "group": shown(self.group)}


class Send(NamedTuple):
    """One message as it was sent."""

    msg_id: str
    group: Destination
    source: SiteId
    source_seq: int
    after: int

    def shown(self, site: SiteId) -> dict[str, Any]:
        """Return what an example shows of a message that a site does not deliver."""
        return {"site": site, "position": None, "msg_id": self.msg_id, "group": shown(self.group)}

    def told(self) -> str:
        """Say how it was sent."""
        return f"to {shown(self.group)} as number {self.source_seq} of {self.source}"


@dataclass
class Finding:
    """What is to be said of one property; `ok` is None when it was not judged."""

    ok: bool | None = True
    violations: int = 0
    example: dict[str, Any] | None = None

    def add(
        self, says: str, kind: str, deliveries: Sequence[dict[str, Any]] = (), *, many: int = 1, **facts: Any
    ) -> None:
        """Count a violation; the first is the example, in words and as facts that a program can check."""
        self.ok = False
        self.violations += many
        if self.example is None:
            self.example = {"says": says, "kind": kind, **facts, "deliveries": list(deliveries)}


def step(site: SiteId, first: str, then: str) -> dict[str, str]:
    """Return "at this site, this before that" as a program reads it."""
    return {"site": site, "first": first, "then": then}


@dataclass
class Sends:
    """What was sent, by id; an id that several messages have goes by the first of them, whatever order they came in."""

    one: dict[str, Send] = field(default_factory=dict)
    more: dict[str, list[Send]] = field(default_factory=dict)

    def add(self, table: Any) -> None:
        """Take in a table of sends."""
        for sent in tuples(Send, table, {"after": 0}):
            other = self.one.setdefault(sent.msg_id, sent)
            if other is not sent:
                every = self.more.setdefault(sent.msg_id, [other])
                every.append(sent)
                self.one[sent.msg_id] = min(every)

    def get(self, row: Row) -> Send | None:
        """Return the send that a delivery is of: the one that fits, or the first of its id."""
        for sent in self.more.get(row.msg_id, ()):
            if (sent.group, sent.source, sent.source_seq) == (row.group, row.source, row.source_seq):
                return sent
        return self.one.get(row.msg_id)

    def by_group(self) -> dict[Destination, list[Send]]:
        """Return the sends of each destination."""
        found: dict[Destination, list[Send]] = {}
        for msg_id, sent in self.one.items():
            for each in self.more.get(msg_id, (sent,)):
                found.setdefault(each.group, []).append(each)
        return dict(sorted(found.items()))


def tuples(kind: Any, table: Any, defaults: dict[str, Any]) -> list[Any]:
    """Turn a table into rows, column by column: many times faster than row by row."""
    names = table.column_names
    columns = [listed(table.column(n)) if n in names else [defaults.get(n)] * len(table) for n in kind._fields]
    return list(map(kind._make, zip(*columns, strict=True)))


def rows_of(table: Any) -> dict[SiteId, list[Row]]:
    """Return the log of each site in a table, in order."""
    found: dict[SiteId, list[Row]] = {}
    for row in tuples(Row, table, {"epoch": 0}):
        found.setdefault(row.site, []).append(row)
    for own in found.values():
        own.sort(key=lambda row: row.position)
        if any(a.position == b.position for a, b in pairwise(own)):  # the same, whatever order pieces come in
            own.sort(key=lambda row: (row.position, *map(str, row[2:])))
    return found


def firsts(log: Iterable[Row]) -> list[Row]:
    """Return the first delivery of each message."""
    found: dict[str, Row] = {}
    for row in log:
        found.setdefault(row.msg_id, row)
    return list(found.values())
