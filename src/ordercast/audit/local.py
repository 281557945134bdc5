"""A run directory in process: the same fold, the same verdict, no Spark."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordercast.audit import tables
from ordercast.audit.fold import fold_deliveries, fold_sends
from ordercast.errors import InputError
from ordercast.types import GroupId, SiteId


def read_members(folder: str) -> dict[GroupId, list[SiteId]]:
    """Read who is in which group."""
    system, _ = tables.file_system(folder)
    found = tables.find(folder, "membership", tables.MEMBERSHIP, {})
    members: dict[GroupId, list[SiteId]] = {}
    for piece in found.pieces:
        for row in tables.read(system, piece, found.columns).to_pylist():
            members.setdefault(row["group"], []).append(row["site"])
    if not members:
        raise InputError(f"{folder}: membership/: no rows")
    return {group: sorted(set(sites)) for group, sites in sorted(members.items())}


class LocalSource:
    """Everything in memory, one piece."""

    def __init__(self, folder: str) -> None:
        system, _ = tables.file_system(folder)
        found = tables.find(folder, "deliveries", tables.DELIVERIES, tables.OPTIONAL)
        sent = tables.find(folder, "sends", tables.SENDS, tables.CONTEXT)
        self.members = read_members(folder)
        self.stamped, self.context = found.stamped, "after" in sent.columns
        self._deliveries = _whole(system, found)
        self._sends = _whole(system, sent)

    def fold(self) -> tuple[Any, Any]:
        """Fold both tables."""
        return fold_deliveries(self._deliveries), fold_sends(self._sends)

    def logs(self, sites: Iterable[SiteId]) -> Any:
        """Return all rows of these sites."""
        return _among(self._deliveries, "site", sites)

    def sends(self, groups: Iterable[GroupId] | None) -> Any:
        """Return what was sent to these groups, or all."""
        return self._sends if groups is None else _among(self._sends, "group", groups)

    def sequences(self, sites: Iterable[SiteId]) -> Any:
        """Return site, position and the hash of each message."""
        return sequences(self.logs(sites))


def sequences(table: Any) -> Any:
    """Return site, position and the hash of each message."""
    hashed = tables.hashes(table.column("msg_id")).view(np.int64)
    site = table.column("site").cast(pa.string())
    return pa.table([site, table.column("position"), pa.array(hashed)], names=["site", "position", "hash"])


def _among(table: Any, name: str, values: Iterable[str]) -> Any:
    wanted = pa.array(sorted(values), pa.string())
    kept = table.filter(pc.is_in(table.column(name).cast(pa.string()), value_set=wanted))
    return kept.combine_chunks()


def _whole(system: Any, found: tables.Table) -> Any:
    parts = [tables.read(system, piece, found.columns, threads=True) for piece in found.pieces]
    parts = [part for part in parts if len(part)] or parts[:1]
    return tables.tidy(pa.concat_tables(parts, promote_options="permissive"), found.columns)
