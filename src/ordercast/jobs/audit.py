"""Audit on Spark: the fold on executors, piece by piece; the verdict from what comes back (audit/verdict.py)."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pyarrow as pa

from ordercast.audit import tables
from ordercast.audit.fold import FOLDED, SPARK_FOLDED, fold_deliveries, fold_sends
from ordercast.audit.kernels import Key, fresh_key
from ordercast.audit.local import SEQUENCE, read_members
from ordercast.audit.merge import ShuffledError, check_order
from ordercast.jobs.pieces import collect, decoded, fold_pieces, frame_of_pieces, schema_of
from ordercast.jobs.session import Spark
from ordercast.types import GroupId, SiteId


class SparkSource:
    """A run directory anywhere Spark's workers and Arrow can read."""

    def __init__(self, spark: Spark, folder: str, key: Key | None = None) -> None:
        self.spark, self.folder, self._key = spark, folder, key or fresh_key()
        self._deliveries = tables.find(folder, "deliveries", tables.DELIVERIES, tables.OPTIONAL)
        self._sends = tables.find(folder, "sends", tables.SENDS, tables.CONTEXT)
        self.members = read_members(folder)
        self.stamped, self.context = self._deliveries.stamped, "after" in self._sends.columns

    def _on(self, found: tables.Table, work: Callable[[Any], Any]) -> Any:
        return pa.concat_tables(fold_pieces(self.spark, self.folder, found.pieces, found.columns, work))

    def fold(self) -> tuple[Any, Any]:
        """Fold both tables; a site's rows that are spread over files in no order are brought together first."""
        key = self._key  # the same on all executors, or sums could not be compared
        folded = self._on(self._deliveries, lambda table: fold_deliveries(table, key))
        try:
            check_order(folded)
        except ShuffledError:
            folded = self._fold_shuffled()
        return folded, self._on(self._sends, lambda table: fold_sends(table, key))

    def _fold_shuffled(self) -> Any:
        """Sort rows by site and position first: a shuffle of everything, for logs that were never in order."""
        columns, key = self._deliveries.columns, self._key
        frame = frame_of_pieces(self.spark, self.folder, self._deliveries.pieces, columns, decoded, schema_of(columns))
        frame = frame.repartition("site").sortWithinPartitions("site", "position")

        def fold(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                table = pa.Table.from_batches([batch])
                yield from fold_deliveries(tables.tidy(table, columns), key).to_batches()

        return collect(frame.mapInArrow(fold, SPARK_FOLDED)).cast(FOLDED)

    def logs(self, sites: Iterable[SiteId]) -> Any:
        """Return all rows of these sites."""
        return tables.tidy(self._on(self._deliveries, _only("site", sites)), self._deliveries.columns)

    def sends(self, groups: Iterable[GroupId] | None) -> Any:
        """Return what was sent to these groups, or all."""
        work = (lambda table: table) if groups is None else _only("group", groups)
        return tables.tidy(self._on(self._sends, work), self._sends.columns)

    def sequences(self, sites: Iterable[SiteId]) -> Any:
        """Return site, position and message of every delivery."""
        only = _only("site", sites)
        found = self._on(self._deliveries, lambda table: only(table).select(SEQUENCE))
        return tables.tidy(found, {name: self._deliveries.columns[name] for name in SEQUENCE})


def _only(name: str, values: Iterable[str]) -> Callable[[Any], Any]:
    wanted = sorted(values)
    return lambda table: tables.among(table, name, wanted)
