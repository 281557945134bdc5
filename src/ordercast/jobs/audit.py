"""Audit on Spark: the fold on executors, piece by piece; the verdict from what comes back (audit/verdict.py)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordercast.audit import tables
from ordercast.audit.destinations import Destination
from ordercast.audit.fold import FOLDED, SPARK_FOLDED, fold_deliveries, fold_sends
from ordercast.audit.local import read_members, repeated, sequences, texts
from ordercast.audit.merge import ShuffledError, check_order
from ordercast.jobs.pieces import collect, fold_pieces, frame_of_pieces
from ordercast.jobs.session import Spark
from ordercast.types import SiteId

HASHES_AT_MOST = 20_000_000  # that come to the driver, to see whether one is there twice


class SparkSource:
    """A run directory anywhere Spark's workers and Arrow can read."""

    def __init__(self, spark: Spark, folder: str) -> None:
        self.spark, self.folder = spark, folder
        self._deliveries = tables.find(folder, "deliveries", tables.DELIVERIES, tables.OPTIONAL)
        self._sends = tables.find(folder, "sends", tables.SENDS, tables.CONTEXT)
        self.members = read_members(folder, texts=texts(self._deliveries, self._sends))
        self.stamped, self.epochs = self._deliveries.stamped, "epoch" in self._deliveries.columns
        self.context = "after" in self._sends.columns

    def _on(self, found: tables.Table, work: Callable[[Any], Any]) -> Any:
        return pa.concat_tables(fold_pieces(self.spark, self.folder, found.pieces, found.columns, work))

    def fold(self) -> tuple[Any, Any]:
        """Fold both tables; a site's rows that are spread over files in no order are brought together first."""
        folded = self._on(self._deliveries, fold_deliveries)
        try:
            check_order(folded)
        except ShuffledError:
            folded = self._fold_shuffled()
        return folded, self._on(self._sends, fold_sends)

    def _fold_shuffled(self) -> Any:
        """Sort rows by site and position first: a shuffle of everything, for logs that were never in order."""
        columns = self._deliveries.columns
        paths = sorted({piece.path for piece in self._deliveries.pieces})
        frame = self.spark.sql.read.parquet(*paths).select(*columns)
        frame = frame.repartition("site").sortWithinPartitions("site", "position")

        def fold(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                table = pa.Table.from_batches([batch])
                yield from fold_deliveries(tables.tidy(table, columns)).to_batches()

        return collect(frame.mapInArrow(fold, SPARK_FOLDED)).cast(FOLDED)

    def logs(self, sites: Iterable[SiteId]) -> Any:
        """Return all rows of these sites."""
        return _tidied(self._on(self._deliveries, _only("site", sites)), self._deliveries.columns)

    def sends(self, groups: Iterable[Destination] | None) -> Any:
        """Return what was sent to these destinations, or all."""
        return self._some_sends((lambda table: table) if groups is None else _only("group", groups))

    def sends_named(self, ids: Iterable[str]) -> Any:
        """Return the sends of these messages."""
        return self._some_sends(_only("msg_id", ids))

    def sends_alike(self) -> Any:
        """Return the sends whose ids have one hash: hashes come to the driver, or are counted where they are."""
        if self._sends.rows <= HASHES_AT_MOST:
            hashed = self._on(self._sends, _hashed).column("hash").to_numpy().view(np.uint64)
            alike = repeated(hashed)
        else:
            frame = frame_of_pieces(
                self.spark, self.folder, self._sends.pieces, self._sends.columns, _hashed, "hash bigint"
            )
            counted = collect(frame.groupBy("hash").count().where("count > 1").select("hash"))
            alike = counted.column("hash").to_numpy().view(np.uint64)

        def among(table: Any) -> Any:
            return table.filter(pa.array(np.isin(tables.hashes(table.column("msg_id")), alike)))

        return self._some_sends(among) if len(alike) else self._some_sends(lambda table: table.slice(0, 0))

    def _some_sends(self, work: Callable[[Any], Any]) -> Any:
        return _tidied(self._on(self._sends, work), self._sends.columns)

    def sequences(self, sites: Iterable[SiteId]) -> Any:
        """Return site, position and the hash of each message."""
        only = _only("site", sites)
        return self._on(self._deliveries, lambda table: sequences(only(table)))


def _tidied(table: Any, columns: Mapping[str, str]) -> Any:
    """Join what executors sent, where destinations are known by one text already."""
    kinds = {name: tables.TEXT if name == "group" else kind for name, kind in columns.items()}
    return tables.tidy(table, kinds)


def _hashed(table: Any) -> Any:
    return pa.table([pa.array(tables.hashes(table.column("msg_id")).view(np.int64))], names=["hash"])


def _only(name: str, values: Iterable[str]) -> Callable[[Any], Any]:
    wanted = pa.array(sorted(values), pa.string())

    def work(table: Any) -> Any:
        return table.filter(pc.is_in(table.column(name).cast(pa.string()), value_set=wanted))

    return work
