"""Folds on executors, in shares: dealt out by site and merged, then dealt out by destination and compared.

They travel packed (`audit.packed`). A task may have several shares; it works on one after the other.
"""

from collections.abc import Callable, Collection, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from ordercast.audit.kernels import Key
from ordercast.audit.merge import of_kind
from ordercast.audit.packed import SPARK_PACKED, packed, share_by_share, shares_of, unpacked
from ordercast.audit.spread import SPARK_REDUCED, compare_groups, reduce_folds, rows_of_kind
from ordercast.runs.destinations import Destination
from ordercast.spark.pieces import collect

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class Tables(Protocol):
    """Where the rows of a run are."""

    def folds(self, *, together: bool) -> "DataFrame":
        """Return the folds of deliveries, packed; `together`: after the rows of each site were sorted."""
        ...

    def sends_folded(self) -> "DataFrame":
        """Return the folds of sends, packed, as `audit.spread` has them."""
        ...

    def belongs(self) -> "DataFrame":
        """Return who is a member of what: site, group; a group as the destination it is."""
        ...


class Shares:
    """The folds of a run, merged site by site; executors keep them."""

    def __init__(self, tables: Tables, shares: int, key: Key, folds: "DataFrame | None") -> None:
        self._tables, self._shares, self._key = tables, shares, key
        self._kept: list[DataFrame] = []
        self._sends, sent = self._counted(self._send_shares(tables.sends_folded()))
        self._reduced, told = self._reduce(folds or tables.folds(together=False))
        if told["shuffled"]:
            self._kept.pop().unpersist()
            self._reduced, told = self._reduce(tables.folds(together=True))
        self.rows = told["rows"]
        """How many deliveries there are."""
        self._unions = told["unions"] + sent["unions"]

    @property
    def session(self) -> "SparkSession":
        """The session that these are in."""
        return self._reduced.sparkSession

    def keep(self, frame: "DataFrame") -> "DataFrame":
        """Let executors keep what is asked several times, until `close`."""
        self._kept.append(frame.persist())
        return frame

    def close(self) -> None:
        """Let go of what executors keep."""
        for frame in self._kept:
            frame.unpersist()
        self._kept.clear()

    def _counted(self, frame: "DataFrame") -> "tuple[DataFrame, dict[str, int]]":
        """Keep packed rows, and count what is in them."""
        from pyspark.sql import functions as F  # noqa: N812

        kept = self.keep(frame)
        kinds = {kind: F.sum(F.when(F.col("kind") == kind, F.col("n"))) for kind in ("unions", "shuffled")}
        counts = [F.coalesce(total, F.lit(0)).alias(kind) for kind, total in kinds.items()]
        rows = F.coalesce(F.sum("rows"), F.lit(0)).alias("rows")
        return kept, collect(kept.agg(rows, *counts)).to_pylist()[0]

    def _send_shares(self, sends: "DataFrame") -> "DataFrame":
        key, shares = self._key, self._shares

        def each(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                for data in batch.column("data").to_pylist():
                    yield from by_group(unpacked([data]), shares, key).to_batches()

        return sends.mapInArrow(each, SPARK_PACKED)

    def _reduce(self, folds: "DataFrame") -> "tuple[DataFrame, dict[str, int]]":
        """Merge the folds of each site, once; what is kept is a row per site and per (site, destination)."""
        key, shares = self._key, self._shares

        def deal(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                for data in batch.column("data").to_pylist():
                    table = unpacked([data])
                    names = pc.coalesce(table.column("site"), table.column("group"))
                    yield from packed("folds", table, shares_of(names, shares, key)).to_batches()

        def reduce(batches: Iterator[Any]) -> Iterator[Any]:
            for table in share_by_share(batches):
                yield from by_group(reduce_folds(table, key), shares, key).to_batches()

        dealt = self._shuffled(folds.mapInArrow(deal, SPARK_PACKED))
        return self._counted(dealt.mapInArrow(reduce, SPARK_PACKED))

    def _shuffled(self, rows: "DataFrame") -> "DataFrame":
        """Bring shares together: a task may have several, one after the other."""
        return rows.repartition(self._shares, "share").sortWithinPartitions("share")

    def some(self, kind: str, keep: Callable[[Any], Any]) -> "DataFrame":
        """Return some rows of what was merged."""
        return self._unpacked(self._reduced, kind, keep)

    def some_sends(self, kind: str, keep: Callable[[Any], Any]) -> "DataFrame":
        """Return some rows of what was sent."""
        return self._unpacked(self._sends, kind, keep)

    @staticmethod
    def _unpacked(packed_rows: "DataFrame", kind: str, keep: Callable[[Any], Any]) -> "DataFrame":
        """Return some rows of what is packed."""

        def each(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                for data in batch.column("data").to_pylist():
                    yield from keep(unpacked([data])).to_batches()

        return packed_rows.where(f"kind = '{kind}'").mapInArrow(each, SPARK_REDUCED)

    def of_kind(self, kind: str) -> "DataFrame":
        """Return the rows of one kind of what was merged."""
        where = {"site": "sites", "run": "sites", "union": "unions"}.get(kind, "groups")
        return self.some(where, lambda table: of_kind(table, kind))

    @cached_property
    def members(self) -> "DataFrame":
        """Who is a member of which destination: the groups, and what messages to several of them went to."""
        belongs = self._tables.belongs()
        return belongs.union(self._of_unions) if self._unions else belongs

    @property
    def _of_unions(self) -> "DataFrame":
        unions = self.of_kind("union").union(self._unpacked(self._sends, "unions", lambda table: table))
        parts = self._tables.belongs().withColumnRenamed("group", "order_class")
        return unions.select("group", "order_class").distinct().join(parts, "order_class").select("site", "group")

    def compared(self, twice: Collection[Destination], *, everyone: bool) -> "DataFrame":
        """Return what does not fit, destination by destination (`audit.spread.compare_groups`)."""
        key, shares = self._key, self._shares

        def deal(batches: Iterator[Any]) -> Iterator[Any]:
            for batch in batches:
                columns = {"site": batch.column("site"), "group": batch.column("group")}
                rows = rows_of_kind("member", batch.num_rows, **columns)
                yield from by_group(rows, shares, key).to_batches()

        def compare(batches: Iterator[Any]) -> Iterator[Any]:
            for table in share_by_share(batches):
                yield from compare_groups(table, twice, everyone=everyone).to_batches()

        rows = self._reduced.where("kind = 'groups'").union(self._sends.where("kind = 'groups'"))
        rows = rows.union(self.members.mapInArrow(deal, SPARK_PACKED))
        return self.keep(self._shuffled(rows).mapInArrow(compare, SPARK_REDUCED))


def by_group(table: Any, shares: int, key: Key) -> Any:
    """Pack what was reduced: what belongs to destinations by these, what belongs to sites as it is."""
    kind = table.column("kind")
    site = of_kind(table, "site")
    rows = pc.sum(site.column("n")).as_py() or 0
    groups = table.filter(pc.is_in(kind, value_set=pa.array(["set", "class", "send", "member"])))
    parts = [
        packed("groups", groups, shares_of(groups.column("group"), shares, key)) if len(groups) else groups.slice(0, 0),
        packed("sites", pa.concat_tables([site, of_kind(table, "run")]), rows=rows),
        packed("unions", of_kind(table, "union")),
        packed("newest", of_kind(table, "newest")),
        packed("shuffled", of_kind(table, "shuffled")),
    ]
    return pa.concat_tables([part for part in parts if len(part)] or parts[1:2])
