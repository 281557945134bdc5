"""Audit on Spark: the fold on executors, piece by piece; the verdict from what comes back (audit/verdict.py)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ordercast.audit import columns
from ordercast.audit.facts import Facts, Known
from ordercast.audit.fold import FOLDED, fold_deliveries, fold_sends
from ordercast.audit.kernels import Hashes, Key, fresh_key
from ordercast.audit.local import SEQUENCE, repeated
from ordercast.audit.merge import ShuffledError, check_order
from ordercast.audit.packed import SPARK_PACKED, packed, unpacked
from ordercast.audit.rows import Rows, untouched
from ordercast.audit.search import Suspected, hashed_logs, on_cycles
from ordercast.audit.spread import as_destinations, reduce_sends
from ordercast.names import SiteId
from ordercast.runs import reader
from ordercast.runs.destinations import Destination
from ordercast.runs.reader import Run, Table
from ordercast.runs.schema import TEXT
from ordercast.spark import facts
from ordercast.spark.pieces import collect, decoded, fold_pieces, frame_of_pieces, schema_of
from ordercast.spark.searching import hashed, repeated_hashes, with_hashes
from ordercast.spark.session import Spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TOO_MANY = pa.table([pa.array(["many"] if field.name == "kind" else [None], field.type) for field in FOLDED], FOLDED)
"""What a piece sends when its folds are more than its part of what the driver takes."""
HASHES_AT_MOST = 20_000_000  # that come to the driver, to see whether one is there twice


class SparkSource:
    """A run directory anywhere Spark's workers and Arrow can read."""

    def __init__(self, spark: Spark, folder: str, key: Key | None = None) -> None:
        self.spark, self.folder, self._key = spark, folder, key or fresh_key()
        self.run = Run(folder)
        if self.run.membership.rows <= facts.MEMBERS_AT_MOST:
            self.run.members  # noqa: B018 - read now: what is wrong with it is told first

    def _on(self, found: Table, work: Callable[[Any], Any]) -> Any:
        return pa.concat_tables(fold_pieces(self.spark, self.folder, found.pieces, found.columns, work))

    def facts(self) -> Facts:
        """Fold everything. Folds that fit the driver are merged there; more stay on executors."""
        run = self.run
        if run.membership.rows <= facts.MEMBERS_AT_MOST:
            folded = self._fold()
            if folded is not None:
                sends = self._on(run.sends, self._fold_sends)
                return Known(run.members, folded, sends, search_at_most=facts.SEARCH_AT_MOST)
        rows = run.deliveries.rows + run.sends.rows + run.membership.rows
        return facts.Spread(self, rows, self._key)

    def _fold(self) -> Any:
        """Return the folds of deliveries, or None when there are too many of them.

        One key for all executors, or sums could not be compared. A site's rows that are spread over files in no order
        are brought together first.
        """
        found, fold = self.run.deliveries, self._fold_deliveries
        share, least = facts.FOLDS_AT_MOST / max(found.rows, 1), facts.FOLDS_AT_MOST // len(found.pieces)

        def some(table: Any) -> Any:
            made = fold(table)
            return made if len(made) <= max(least, share * len(table)) else TOO_MANY

        folded = self._on(found, some)
        if "many" in folded.column("kind").unique().to_pylist():
            return None
        try:
            check_order(folded)
        except ShuffledError:
            folded = unpacked(collect(self.folds(together=True)).column("data").to_pylist())
        return folded

    @property
    def _fold_deliveries(self) -> Callable[[Any], Any]:
        key, bodies = self._key, self.run.sent_bodies
        return lambda table: fold_deliveries(table, key, sent_bodies=bodies)

    @property
    def _fold_sends(self) -> Callable[[Any], Any]:
        key, bodies = self._key, self.run.sent_bodies
        return lambda table: fold_sends(table, key, bodies=bodies)

    def folds(self, *, together: bool) -> "DataFrame":
        """Return the folds of deliveries, packed; `together`: of rows that were sorted by site and position first."""
        found, fold = self.run.deliveries, self._fold_deliveries
        if not together:
            work = partial(_packed_folds, fold)
            return frame_of_pieces(self.spark, self.folder, found.pieces, found.columns, work, SPARK_PACKED)
        known = _known(found.columns)
        frame = frame_of_pieces(self.spark, self.folder, found.pieces, found.columns, decoded, schema_of(known))
        frame = frame.repartition("site").sortWithinPartitions("site", "position")

        def each(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                table = pa.Table.from_batches([batch])
                yield from packed("folds", fold(reader.tidy(table, known))).to_batches()

        return frame.mapInArrow(each, SPARK_PACKED)

    def sends_folded(self) -> "DataFrame":
        """Return the folds of sends, packed."""
        found, fold = self.run.sends, self._fold_sends

        def work(table: Any) -> Any:
            return packed("sends", reduce_sends(fold(table)))

        return frame_of_pieces(self.spark, self.folder, found.pieces, found.columns, work, SPARK_PACKED)

    def belongs(self) -> "DataFrame":
        """Return who is a member of what: site, group; a group as the destination it is."""
        found, texts = self.run.membership, self.run.texts
        return frame_of_pieces(
            self.spark, self.folder, found.pieces, found.columns, lambda table: as_destinations(table, texts=texts),
            "site string, group string",
        )  # fmt: skip

    def logs(self, sites: Iterable[SiteId], keep: Rows = untouched) -> Any:
        """Return the rows of these sites, or what `keep` leaves of them on executors."""
        only = _only("site", sites)
        return reader.tidy(
            self._on(self.run.deliveries, lambda table: keep(only(table))), _known(self.run.deliveries.columns)
        )

    def sends(self, groups: Iterable[Destination] | None) -> Any:
        """Return what was sent to these destinations, or all."""
        return self._some_sends((lambda table: table) if groups is None else _only("group", groups))

    def sends_named(self, ids: Iterable[str]) -> Any:
        """Return the sends of these messages."""
        return self._some_sends(_only("msg_id", ids))

    def sends_alike(self) -> tuple[Any, int, bool]:
        """Return the sends whose ids have the hash of another, how many hashes, and whether there are more.

        Hashes come to the driver, or, when they are very many, are counted where they are.
        """
        key = self._key

        def hashed(table: Any) -> Any:
            return pa.table([pa.array(columns.hashes(table.column("msg_id"), key).view(np.int64))], names=["hash"])

        sends = self.run.sends
        ids = replace(sends, columns={"msg_id": sends.columns["msg_id"]})
        if sends.rows <= HASHES_AT_MOST:
            alike = repeated(self._on(ids, hashed).column("hash").to_numpy().view(np.uint64))
        else:
            frame = frame_of_pieces(self.spark, self.folder, ids.pieces, ids.columns, hashed, "hash bigint")
            counted = collect(repeated_hashes(frame))
            alike = counted.column("hash").to_numpy().view(np.uint64)
        alike, more = alike[: facts.ALIKE_AT_MOST], len(alike) > facts.ALIKE_AT_MOST

        def among(table: Any) -> Any:
            return table.filter(pa.array(np.isin(columns.hashes(table.column("msg_id"), key), alike)))

        return self._some_sends(among if len(alike) else lambda table: table.slice(0, 0)), len(alike), more

    def _some_sends(self, work: Callable[[Any], Any]) -> Any:
        return reader.tidy(self._on(self.run.sends, work), _known(self.run.sends.columns))

    def on_cycles(self, sites: Iterable[SiteId] | None) -> Suspected:
        """Search the logs of these sites, or of all, by hashes: executors send eight bytes a delivery."""
        key, only = self._key, _only("site", sites)
        found = self.run.deliveries
        try:
            return on_cycles(self._on(found, lambda table: hashed_logs(only(table), key)))
        except ShuffledError:
            kinds = schema_of({name: found.columns[name] for name in SEQUENCE})
            rows = frame_of_pieces(
                self.spark, self.folder, found.pieces, found.columns, lambda t: decoded(only(t).select(SEQUENCE)), kinds
            )
            return on_cycles(collect(hashed(rows, key)))

    def sequences(self, sites: Iterable[SiteId] | None, only: Hashes | None = None) -> Any:
        """Return site, position and message of deliveries: of some sites or all, of messages of these hashes or all."""
        own, messages = _only("site", sites), with_hashes(only, self._key)
        found = self._on(self.run.deliveries, lambda table: messages(own(table).select(SEQUENCE)))
        return reader.tidy(found, {name: self.run.deliveries.columns[name] for name in SEQUENCE})


def _packed_folds(fold: Callable[[Any], Any], table: Any) -> Any:
    return packed("folds", fold(table))


def _known(columns: Mapping[str, str]) -> dict[str, str]:
    """Return the columns as executors send them: destinations are known by one text already."""
    return {name: TEXT if name == "group" else kind for name, kind in columns.items()}


def _only(name: str, values: Iterable[str] | None) -> Callable[[Any], Any]:
    if values is None:
        return lambda table: table
    wanted = sorted(values)
    return lambda table: columns.among(table, name, wanted)
