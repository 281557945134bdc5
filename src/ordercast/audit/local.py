"""A run directory in process: the same fold, the same verdict, no Spark."""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from ordercast.audit.columns import among, choose_loops, hashes
from ordercast.audit.facts import Known
from ordercast.audit.fold import fold_deliveries, fold_sends
from ordercast.audit.kernels import Hashes, Key, fresh_key
from ordercast.audit.merge import ShuffledError, check_order
from ordercast.audit.rows import Rows, untouched
from ordercast.names import SiteId
from ordercast.runs import reader
from ordercast.runs.destinations import Destination
from ordercast.runs.reader import Piece, Run, Table

SHARE_ROWS = 100_000
SEQUENCE = ["site", "position", "msg_id"]


class LocalSource:
    """Folds some files at a time; everything comes into memory only when rows have to be looked at."""

    def __init__(self, folder: str, key: Key | None = None) -> None:
        self._key = key or fresh_key()
        self.run = Run(folder)
        self.run.members  # noqa: B018 - read now: what is wrong with it is told first
        self._system, _ = reader.file_system(folder)
        choose_loops(self.run.deliveries.rows)
        self._sends = _joined(self._system, self.run.sends, self.run.sends.pieces)

    @cached_property
    def _deliveries(self) -> Any:
        return _joined(self._system, self.run.deliveries, self.run.deliveries.pieces)

    def facts(self) -> Known:
        """Fold everything, and merge the folds."""
        return Known(self.run.members, *self.fold())

    def fold(self) -> tuple[Any, Any]:
        """Fold both tables; a site's rows that are spread over files in no order are brought together first."""
        found = self.run.deliveries
        shares = _shares(found.pieces)
        folded = pa.concat_tables([self._fold(_joined(self._system, found, share)) for share in shares])
        try:
            check_order(folded)
        except ShuffledError:
            folded = self._fold(self._deliveries)
        return folded, fold_sends(self._sends, self._key, bodies=self.run.sent_bodies)

    def _fold(self, table: Any) -> Any:
        return fold_deliveries(table, self._key, sent_bodies=self.run.sent_bodies)

    def logs(self, sites: Iterable[SiteId] | None, keep: Rows = untouched) -> Any:
        """Return the rows of these sites, or of all, or what `keep` leaves of them."""
        return keep(self._deliveries if sites is None else among(self._deliveries, "site", sites))

    def sends(self, groups: Iterable[Destination] | None) -> Any:
        """Return what was sent to these destinations, or all."""
        return self._sends if groups is None else among(self._sends, "group", groups)

    def sends_named(self, ids: Iterable[str]) -> Any:
        """Return the sends of these messages."""
        return among(self._sends, "msg_id", ids)

    def sends_alike(self) -> tuple[Any, int, bool]:
        """Return the sends whose ids have the hash of another, how many such hashes there are, and no more."""
        hashed = hashes(self._sends.column("msg_id"), self._key)
        alike = repeated(hashed)
        return self._sends.filter(pa.array(np.isin(hashed, alike))), len(alike), False

    def on_cycles(self, sites: Iterable[SiteId] | None) -> None:
        """Search nothing by hashes: all names are here."""

    def sequences(self, sites: Iterable[SiteId] | None, only: Hashes | None = None) -> Any:
        """Return site, position and message of every delivery."""
        return self.logs(sites).select(SEQUENCE)


def repeated(hashed: Hashes) -> Hashes:
    """Return the hashes that are there more than once."""
    hashed = np.sort(hashed)
    return np.unique(hashed[1:][hashed[1:] == hashed[:-1]])


def _shares(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Deal out pieces so that small ones share a fold and large ones need not be joined."""
    share: list[Piece] = []
    rows = 0
    for piece in pieces:
        share.append(piece)
        rows += piece.rows
        if rows >= SHARE_ROWS:
            yield share
            share, rows = [], 0
    if share:
        yield share


def _joined(system: Any, found: Table, pieces: Sequence[Piece]) -> Any:
    parts = [reader.read(system, piece, found.columns, threads=True) for piece in pieces]
    parts = [part for part in parts if len(part)] or parts[:1]
    return reader.tidy(pa.concat_tables(parts, promote_options="permissive"), found.columns)
