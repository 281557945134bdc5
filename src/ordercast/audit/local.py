"""A run directory in process: the same fold, the same verdict, no Spark."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from ordercast.audit import tables
from ordercast.audit.destinations import Destination
from ordercast.audit.fold import fold_deliveries, fold_sends
from ordercast.audit.kernels import Hashes, Key, fresh_key
from ordercast.audit.merge import ShuffledError, check_order
from ordercast.errors import InputError
from ordercast.membership.table import check_group
from ordercast.names import GroupId, SiteId

SHARE_ROWS = 100_000
SEQUENCE = ["site", "position", "msg_id"]


def read_members(folder: str, *, texts: bool) -> dict[GroupId, list[SiteId]]:
    """Read who is in which group; where logs write several groups as a text, no name has a `+`."""
    system, _ = tables.file_system(folder)
    found = tables.find(folder, "membership", tables.MEMBERSHIP, {})
    members: dict[GroupId, list[SiteId]] = {}
    for piece in found.pieces:
        for row in tables.read(system, piece, found.columns).to_pylist():
            if texts:
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
        self.members = read_members(folder, texts=texts(self._found, sent))
        self.stamped, self.epochs = self._found.stamped, "epoch" in self._found.columns
        self.context = "after" in sent.columns
        tables.choose_loops(self._found.rows)
        self._sends = _joined(self._system, sent, sent.pieces)

    @cached_property
    def _deliveries(self) -> Any:
        return _joined(self._system, self._found, self._found.pieces)

    def fold(self) -> tuple[Any, Any]:
        """Fold both tables; a site's rows that are spread over files in no order are brought together first."""
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

    def sends(self, groups: Iterable[Destination] | None) -> Any:
        """Return what was sent to these destinations, or all."""
        return self._sends if groups is None else tables.among(self._sends, "group", groups)

    def sends_named(self, ids: Iterable[str]) -> Any:
        """Return the sends of these messages."""
        return tables.among(self._sends, "msg_id", ids)

    def sends_alike(self) -> tuple[Any, int]:
        """Return the sends whose ids have the hash of another, and how many such hashes there are."""
        hashed = tables.hashes(self._sends.column("msg_id"), self._key)
        alike = repeated(hashed)
        return self._sends.filter(pa.array(np.isin(hashed, alike))), len(alike)

    def sequences(self, sites: Iterable[SiteId]) -> Any:
        """Return site, position and message of every delivery."""
        return self.logs(sites).select(SEQUENCE)


def texts(*found: tables.Table) -> bool:
    """Whether some table writes the groups of a message as one text."""
    return any(table.columns["group"] != tables.LISTS for table in found)


def repeated(hashed: Hashes) -> Hashes:
    """Return the hashes that are there more than once."""
    hashed = np.sort(hashed)
    return np.unique(hashed[1:][hashed[1:] == hashed[:-1]])


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
