"""A run directory in process: the same fold, the same verdict, no Spark."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import pyarrow as pa

from ordercast.audit import tables
from ordercast.audit.fold import fold_deliveries, fold_sends
from ordercast.audit.kernels import Key, fresh_key
from ordercast.audit.merge import ShuffledError, check_order
from ordercast.errors import InputError
from ordercast.membership import check_group
from ordercast.types import GroupId, SiteId

SHARE_ROWS = 100_000
SEQUENCE = ["site", "position", "msg_id"]


def read_members(folder: str) -> dict[GroupId, list[SiteId]]:
    """Read who is in which group."""
    system, _ = tables.file_system(folder)
    found = tables.find(folder, "membership", tables.MEMBERSHIP, {})
    members: dict[GroupId, list[SiteId]] = {}
    for piece in found.pieces:
        for row in tables.read(system, piece, found.columns).to_pylist():
            check_group(f"{piece.path}: ", row["group"])
            members.setdefault(row["group"], []).append(row["site"])
    if not members:
        raise InputError(f"{folder}: membership/: no rows")
    return {group: sorted(set(sites)) for group, sites in sorted(members.items())}


class LocalSource:
    """Folds some files at a time; everything comes into memory only when rows have to be looked at."""

    def __init__(self, folder: str, key: Key | None = None) -> None:
        self._key = key or fresh_key()
        self._system, _ = tables.file_system(folder)
        self._found = tables.find(folder, "deliveries", tables.DELIVERIES, tables.OPTIONAL)
        sent = tables.find(folder, "sends", tables.SENDS, tables.CONTEXT)
        self.members = read_members(folder)
        self.stamped, self.context = self._found.stamped, "after" in sent.columns
        self._sends = _joined(self._system, sent, sent.pieces)

    @cached_property
    def _deliveries(self) -> Any:
        return _joined(self._system, self._found, self._found.pieces)

    def fold(self) -> tuple[Any, Any]:
        """Fold both tables; a site's rows that are spread over files in no order are brought together first."""
        if self._found.rows > tables.PLAIN_ROWS:  # every share is small, all together are not
            tables.load_compiler()
        shares = _shares(self._found.pieces)
        folded = pa.concat_tables([self._fold(_joined(self._system, self._found, share)) for share in shares])
        try:
            check_order(folded)
        except ShuffledError:
            folded = self._fold(self._deliveries)
        return folded, fold_sends(self._sends, self._key)

    def _fold(self, table: Any) -> Any:
        return fold_deliveries(table, self._key)

    def logs(self, sites: Iterable[SiteId]) -> Any:
        """Return all rows of these sites."""
        return tables.among(self._deliveries, "site", sites)

    def sends(self, groups: Iterable[GroupId] | None) -> Any:
        """Return what was sent to these groups, or all."""
        return self._sends if groups is None else tables.among(self._sends, "group", groups)

    def sequences(self, sites: Iterable[SiteId]) -> Any:
        """Return site, position and message of every delivery."""
        return self.logs(sites).select(SEQUENCE)


def _shares(pieces: Sequence[tables.Piece]) -> Iterator[list[tables.Piece]]:
    """Deal out pieces so that small ones share a fold and large ones need not be joined."""
    share: list[tables.Piece] = []
    rows = 0
    for piece in pieces:
        share.append(piece)
        rows += piece.rows
        if rows >= SHARE_ROWS:
            yield share
            share, rows = [], 0
    if share:
        yield share


def _joined(system: Any, found: tables.Table, pieces: Sequence[tables.Piece]) -> Any:
    parts = [tables.read(system, piece, found.columns, threads=True) for piece in pieces]
    parts = [part for part in parts if len(part)] or parts[:1]
    return tables.tidy(pa.concat_tables(parts, promote_options="permissive"), found.columns)
