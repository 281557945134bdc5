"""Audit on Spark: the fold on executors, piece by piece; the verdict from what comes back (audit/verdict.py)."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from ordercast.audit import columns
from ordercast.audit.facts import Known
from ordercast.audit.fold import FOLDED, SPARK_FOLDED, fold_deliveries, fold_sends
from ordercast.audit.kernels import Key, fresh_key
from ordercast.audit.local import SEQUENCE, repeated
from ordercast.audit.merge import ShuffledError, check_order
from ordercast.names import SiteId
from ordercast.runs import reader
from ordercast.runs.destinations import Destination
from ordercast.runs.reader import Run, Table
from ordercast.runs.schema import TEXT
from ordercast.spark.pieces import collect, decoded, fold_pieces, frame_of_pieces, schema_of
from ordercast.spark.session import Spark

HASHES_AT_MOST = 20_000_000  # that come to the driver, to see whether one is there twice


class SparkSource:
    """A run directory anywhere Spark's workers and Arrow can read."""

    def __init__(self, spark: Spark, folder: str, key: Key | None = None) -> None:
        self.spark, self.folder, self._key = spark, folder, key or fresh_key()
        self.run = Run(folder)

    def _on(self, found: Table, work: Callable[[Any], Any]) -> Any:
        return pa.concat_tables(fold_pieces(self.spark, self.folder, found.pieces, found.columns, work))

    def facts(self) -> Known:
        """Fold everything, and merge the folds."""
        return Known(self.run.members, *self.fold())

    def fold(self) -> tuple[Any, Any]:
        """Fold both tables; a site's rows that are spread over files in no order are brought together first."""
        key, bodies = self._key, self.run.sent_bodies  # one key for all executors, or sums could not be compared
        folded = self._on(self.run.deliveries, lambda table: fold_deliveries(table, key, sent_bodies=bodies))
        try:
            check_order(folded)
        except ShuffledError:
            folded = self._fold_shuffled()
        return folded, self._on(self.run.sends, lambda table: fold_sends(table, key, bodies=bodies))

    def _fold_shuffled(self) -> Any:
        """Sort rows by site and position first: a shuffle of everything, for logs that were never in order."""
        found, key, bodies = self.run.deliveries, self._key, self.run.sent_bodies
        known = _known(found.columns)
        frame = frame_of_pieces(self.spark, self.folder, found.pieces, found.columns, decoded, schema_of(known))
        frame = frame.repartition("site").sortWithinPartitions("site", "position")

        def fold(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                table = pa.Table.from_batches([batch])
                yield from fold_deliveries(reader.tidy(table, known), key, sent_bodies=bodies).to_batches()

        return collect(frame.mapInArrow(fold, SPARK_FOLDED)).cast(FOLDED)

    def logs(self, sites: Iterable[SiteId]) -> Any:
        """Return all rows of these sites."""
        return reader.tidy(self._on(self.run.deliveries, _only("site", sites)), _known(self.run.deliveries.columns))

    def sends(self, groups: Iterable[Destination] | None) -> Any:
        """Return what was sent to these destinations, or all."""
        return self._some_sends((lambda table: table) if groups is None else _only("group", groups))

    def sends_named(self, ids: Iterable[str]) -> Any:
        """Return the sends of these messages."""
        return self._some_sends(_only("msg_id", ids))

    def sends_alike(self) -> tuple[Any, int]:
        """Return the sends whose ids have the hash of another, and how many such hashes there are.

        Hashes come to the driver, or, when they are very many, are counted where they are.
        """
        key = self._key

        def hashed(table: Any) -> Any:
            return pa.table([pa.array(columns.hashes(table.column("msg_id"), key).view(np.int64))], names=["hash"])

        if self.run.sends.rows <= HASHES_AT_MOST:
            alike = repeated(self._on(self.run.sends, hashed).column("hash").to_numpy().view(np.uint64))
        else:
            sends = self.run.sends
            frame = frame_of_pieces(self.spark, self.folder, sends.pieces, sends.columns, hashed, "hash bigint")
            counted = collect(frame.groupBy("hash").count().where("count > 1").select("hash"))
            alike = counted.column("hash").to_numpy().view(np.uint64)

        def among(table: Any) -> Any:
            return table.filter(pa.array(np.isin(columns.hashes(table.column("msg_id"), key), alike)))

        return self._some_sends(among if len(alike) else lambda table: table.slice(0, 0)), len(alike)

    def _some_sends(self, work: Callable[[Any], Any]) -> Any:
        return reader.tidy(self._on(self.run.sends, work), _known(self.run.sends.columns))

    def sequences(self, sites: Iterable[SiteId]) -> Any:
        """Return site, position and message of every delivery."""
        only = _only("site", sites)
        found = self._on(self.run.deliveries, lambda table: only(table).select(SEQUENCE))
        return reader.tidy(found, {name: self.run.deliveries.columns[name] for name in SEQUENCE})


def _known(columns: Mapping[str, str]) -> dict[str, str]:
    """Return the columns as executors send them: destinations are known by one text already."""
    return {name: TEXT if name == "group" else kind for name, kind in columns.items()}


def _only(name: str, values: Iterable[str]) -> Callable[[Any], Any]:
    wanted = sorted(values)
    return lambda table: columns.among(table, name, wanted)
