"""Rows as Python values, for what the fold could not clear."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

from ordercast.audit.columns import codes, listed
from ordercast.audit.kernels import Hashes
from ordercast.names import SiteId
from ordercast.runs.destinations import Destination, groups_of
from ordercast.runs.reader import Told
from ordercast.verify.findings import Delivery, MsgId, Sent

if TYPE_CHECKING:
    from ordercast.audit.facts import Facts
    from ordercast.audit.search import Suspected

Rows = Callable[[Any], Any]
"""What makes a table of another one."""
COLUMN = {"groups": "group", "number": "source_seq", "body": "body_hash"}
"""Where a column has another name than the field."""


def untouched(table: Any) -> Any:
    """Leave a table as it is."""
    return table


class Source(Protocol):
    """Where rows come from: in process, or Spark."""

    @property
    def run(self) -> Told:
        """Which columns there are, and who is a member of what."""
        ...

    def facts(self) -> "Facts":
        """Fold everything; return what a verdict rests on."""
        ...

    def logs(self, sites: Iterable[SiteId], keep: Rows = untouched) -> Any:
        """Return the rows of these sites, or what `keep` leaves of them where they are."""
        ...

    def sends(self, groups: Iterable[Destination] | None) -> Any:
        """Return what was sent to these destinations, or all."""
        ...

    def sends_named(self, ids: Iterable[MsgId]) -> Any:
        """Return the sends of these messages."""
        ...

    def sends_alike(self) -> tuple[Any, int, bool]:
        """Return the sends whose ids have the hash of another, how many hashes, and whether there are more."""
        ...

    def on_cycles(self, sites: Iterable[SiteId] | None) -> "Suspected | None":
        """Search the logs of these sites, or of all, by hashes; None where names are searched at once."""
        ...

    def sequences(self, sites: Iterable[SiteId] | None, only: Hashes | None = None) -> Any:
        """Return site, position and message of deliveries: of some sites or all, of messages of these hashes or all."""
        ...


@dataclass
class Sends:
    """What was sent, by id; an id that several messages have goes by the first of them, whatever order they came in."""

    one: dict[MsgId, Sent] = field(default_factory=dict)
    more: dict[MsgId, list[Sent]] = field(default_factory=dict)

    def add(self, table: Any) -> None:
        """Take in a table of sends."""
        for msg_id, sent in zip(listed(table.column("msg_id")), _tuples(Sent, table), strict=True):
            other = self.one.setdefault(msg_id, sent)
            if other is not sent:
                self.more[msg_id] = sorted([*self.more.get(msg_id, [other]), sent])
                self.one[msg_id] = self.more[msg_id][0]


def _tuples(kind: Any, table: Any) -> list[Any]:
    """Turn a table into tuples, column by column: many times faster than row by row."""
    columns = [_column(table, COLUMN.get(name, name), kind._field_defaults.get(name)) for name in kind._fields]
    return list(map(kind._make, zip(*columns, strict=True)))


def _column(table: Any, name: str, default: Any) -> list[Any]:
    if name not in table.column_names:
        return [default] * len(table)
    if name != "group":
        return listed(table.column(name))
    numbers, names = codes(table, name)
    groups = [groups_of(known) for known in names]
    return [groups[number] for number in numbers.tolist()]


def rows_of(table: Any) -> dict[SiteId, list[Delivery]]:
    """Return the log of each site in a table, in order."""
    found: dict[SiteId, list[Delivery]] = {}
    for row in _tuples(Delivery, table):
        found.setdefault(row.site, []).append(row)
    for own in found.values():
        own.sort(key=lambda row: row.position)
        if any(a.position == b.position for a, b in pairwise(own)):  # the same, whatever order pieces come in
            own.sort(key=lambda row: (row.position, *map(str, row[2:])))
    return found
