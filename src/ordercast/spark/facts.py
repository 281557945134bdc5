"""Facts of a run whose folds are too many for the driver: they stay on executors, and only answers come back.

Folds are shuffled by site and merged, then by destination and compared (`audit.spread`). A clean log sends a few rows
to the driver, whatever its size. What comes back otherwise has a bound, and beyond it nothing is said to hold.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordercast.audit.classes import Apart, apart_pairs
from ordercast.audit.facts import Suspects, cover
from ordercast.audit.kernels import Key
from ordercast.audit.merge import coded
from ordercast.audit.spread import FLAGS, NAMED, SPARK_REDUCED, compare_groups, reduce_folds
from ordercast.membership.table import Membership
from ordercast.names import ClassRule, GroupId, SiteId
from ordercast.runs.destinations import Destination, groups_of
from ordercast.spark.pieces import collect, counted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLDS_AT_MOST = 1_000_000  # that are merged on the driver: a kilobyte each
MEMBERS_AT_MOST = 1_000_000  # memberships that are held as names on the driver
TASK_ROWS = 250_000  # folds, or rows of destinations, that a task takes at once
SUSPECTS_AT_MOST = 200_000  # that are named to the driver
PAIRS_AT_MOST = 12_000_000  # of sites and groups, or classes, that come to the driver as numbers, to judge classes
SEARCH_AT_MOST = 40_000_000  # deliveries that are searched for cycles
ALIKE_AT_MOST = 1_000_000  # ids that may not be unique
SEVERAL_AT_MOST = 1_000  # destinations in several classes that are told by name


class Tables(Protocol):
    """Where the rows of a run are."""

    def folds(self, *, together: bool) -> "DataFrame":
        """Return the folds of deliveries; `together`: after the rows of each site were sorted."""
        ...

    def sends_folded(self) -> "DataFrame":
        """Return the folds of sends, as `audit.spread` has them."""
        ...

    def belongs(self) -> "DataFrame":
        """Return who is a member of what: site, group; a group as the destination it is."""
        ...


def whole(work: Callable[[Any], Any]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return a function for `mapInArrow` that works on all rows of a partition at once."""

    def each(batches: Iterator[Any]) -> Iterator[Any]:
        own = [batch for batch in batches if batch.num_rows]
        if own:
            yield from work(pa.Table.from_batches(own)).to_batches(max_chunksize=100_000)

    return each


class Spread:
    """Facts that are asked from executors (`audit.facts.Facts`)."""

    def __init__(self, tables: Tables, rows: int, key: Key, folds: "DataFrame | None" = None) -> None:
        """`rows`: about how many folds there are; `folds`: the folds, if they are there already."""
        self._tables, self._key = tables, key
        self._tasks = max(2, -(-rows // TASK_ROWS))
        self._kept: list[DataFrame] = []
        self._sends = self._keep(tables.sends_folded())  # asked several times, and made of reading all sends
        self._reduced, told = self._reduce(folds or tables.folds(together=False))
        if told["shuffled"]:
            self._kept.pop().unpersist()
            self._reduced, told = self._reduce(tables.folds(together=True))
        self._rows, self._sites = int(told["rows"] or 0), int(told["sites"])
        self._twice: list[Destination] = []
        self._everyone = False

    def _keep(self, frame: "DataFrame") -> "DataFrame":
        self._kept.append(frame.persist())
        return frame

    def close(self) -> None:
        """Let go of what executors keep."""
        for frame in self._kept:
            frame.unpersist()
        self._kept.clear()

    def _reduce(self, folds: "DataFrame") -> "tuple[DataFrame, dict[str, Any]]":
        """Merge the folds of each site, once; what is kept is a row per site and per (site, destination)."""
        from pyspark.sql import functions as F  # noqa: N812

        key = self._key
        by_site = folds.repartition(self._tasks, F.coalesce("site", "group"))
        reduced = self._keep(by_site.mapInArrow(whole(lambda table: reduce_folds(table, key)), SPARK_REDUCED))
        is_site = F.col("kind") == "site"
        totals = reduced.agg(
            F.sum(F.when(is_site, F.col("n"))).alias("rows"),
            F.count_if(is_site).alias("sites"),
            F.count_if(F.col("kind") == "shuffled").alias("shuffled"),
        )
        return reduced, collect(totals).to_pylist()[0]

    def _of_kind(self, kind: str) -> "DataFrame":
        return self._reduced.where(f"kind = '{kind}'")

    @cached_property
    def _members(self) -> "DataFrame":
        """Who is a member of which destination: the groups, and what messages to several of them went to."""
        belongs = self._tables.belongs()
        unions = self._of_kind("union").select("group", "order_class")
        unions = unions.union(self._sends.where("kind = 'union'").select("group", "order_class")).distinct()
        parts = belongs.withColumnRenamed("group", "order_class")
        several = unions.join(parts, "order_class").select("site", "group")
        return belongs.union(several)

    @cached_property
    def _compared(self) -> "DataFrame":
        """What does not fit, destination by destination."""
        from pyspark.sql import functions as F  # noqa: N812

        twice, everyone = self._twice, self._everyone
        nothing = F.lit(None)
        members = self._members.select(
            F.lit("member").alias("kind"), "site", "group", nothing.cast("string").alias("order_class"),
            *(nothing.cast("bigint").alias(name) for name in ("n", "x1", "x2", "told", "p0", "p1", "flags")),
        )  # fmt: skip
        rows = self._reduced.where("kind in ('set', 'class')").union(self._sends.where("kind = 'send'"))
        by_group = rows.union(members).repartition(self._tasks, "group")
        found = by_group.mapInArrow(whole(lambda table: compare_groups(table, twice, everyone=everyone)), SPARK_REDUCED)
        return self._keep(found)

    @property
    def rows(self) -> int:
        """Count the deliveries."""
        return self._rows

    @cached_property
    def _suspicious(self) -> "DataFrame":
        """Site, n, flags of every suspect."""
        from pyspark.sql import functions as F  # noqa: N812

        own = F.col("flags").bitwiseOR(F.lit(NAMED if self._everyone else 0)).alias("flags")
        alone = self._of_kind("site").select("site", "n", own)
        beside = self._compared.where("kind = 'suspect'").select("site", F.lit(0).cast("bigint").alias("n"), "flags")
        both = alone.union(beside).groupBy("site").agg(F.max("n").alias("n"), F.bit_or("flags").alias("flags"))
        return self._keep(both.where("flags <> 0"))

    def suspects(self, twice: Collection[Destination], *, everyone: bool) -> Suspects:
        """Return the sites that must be looked at, the first of them by name; how many more there are is counted."""
        from pyspark.sql import functions as F  # noqa: N812

        self._twice, self._everyone = sorted(twice), everyone
        named = collect(self._suspicious.orderBy("site").limit(SUSPECTS_AT_MOST + 1))
        found, flags = named.slice(0, SUSPECTS_AT_MOST), named.column("flags").to_numpy()[:SUSPECTS_AT_MOST]
        sites = found.column("site").to_pylist()
        suspects = Suspects(dict(zip(sites, found.column("n").to_pylist(), strict=True)))
        for why, flag in FLAGS.items():
            suspects.why[why] = {sites[at] for at in np.flatnonzero(flags & flag)}
        if len(named) > SUSPECTS_AT_MOST:
            counts = [F.count_if(F.col("flags").bitwiseAND(F.lit(flag)) > 0).alias(why) for why, flag in FLAGS.items()]
            told = collect(self._suspicious.agg(F.count("*").alias("every"), *counts)).to_pylist()[0]
            suspects.more = told["every"] - len(sites)
            suspects.more_why = {why: told[why] - len(suspects.why[why]) for why in FLAGS}
        return suspects

    def _named(self, sites: Collection[str], column: str) -> "DataFrame":
        """Return a table of these names, small beside what it is joined with."""
        from pyspark.sql import functions as F  # noqa: N812

        names = pa.table({column: pa.array(sorted(sites), pa.string())})
        return F.broadcast(self._reduced.sparkSession.createDataFrame(names))

    def members_of(self, sites: Collection[SiteId]) -> Mapping[GroupId, Collection[SiteId]]:
        """Return in which groups these sites are."""
        own = collect(self._tables.belongs().join(self._named(sites, "site"), "site").select("site", "group"))
        found: dict[GroupId, set[SiteId]] = {}
        for site, group in zip(own.column("site").to_pylist(), own.column("group").to_pylist(), strict=True):
            found.setdefault(groups_of(group)[0], set()).add(site)
        return found

    def sent_to(self, sites: Collection[SiteId]) -> set[Destination]:
        """Return the destinations of what was sent to these sites."""
        own = self._members.join(self._named(sites, "site"), "site").select("group").distinct()
        sent = self._sends.where("kind = 'send'").select("group")
        return set(collect(own.join(sent, "group", "left_semi")).column("group").to_pylist())

    def beside(self, groups: Collection[Destination]) -> list[SiteId]:
        """Return for each destination a site that was cleared."""
        from pyspark.sql import functions as F  # noqa: N812

        there = self._of_kind("set").select("site", "group").join(self._named(groups, "group"), "group")
        clean = there.join(self._members, ["site", "group"], "left_semi").join(self._suspicious, "site", "left_anti")
        clean = self._keep(clean)
        first = set(collect(clean.groupBy("group").agg(F.min("site").alias("site"))).column("site").to_pylist())
        if not first:
            return []
        pairs = collect(clean.join(self._named(first, "site"), "site").select("site", "group"))
        own: dict[Destination, set[SiteId]] = {}
        for site, group in zip(pairs.column("site").to_pylist(), pairs.column("group").to_pylist(), strict=True):
            own.setdefault(group, set()).add(site)
        return cover(own)

    def newest(self) -> Mapping[SiteId, int]:
        """Return the highest number of each source."""
        from pyspark.sql import functions as F  # noqa: N812

        sent = self._sends.where("kind = 'newest'").groupBy("site").agg(F.max("n").alias("n"))
        found = collect(sent)
        return dict(zip(found.column("site").to_pylist(), found.column("n").to_pylist(), strict=True))

    def several_classes(self) -> tuple[list[tuple[Destination, list[str]]], int]:
        """Return the first destinations that are in several classes, and how many there are."""
        return self._several

    @cached_property
    def _several(self) -> tuple[list[tuple[Destination, list[str]]], int]:
        from pyspark.sql import functions as F  # noqa: N812

        several = self._compared.where("kind = 'several'")
        several = several.groupBy("group").agg(F.array_sort(F.collect_set("order_class")).alias("classes"))
        first = collect(several.orderBy("group").limit(SEVERAL_AT_MOST + 1))
        named = list(zip(first.column("group").to_pylist(), first.column("classes").to_pylist(), strict=True))
        return named[:SEVERAL_AT_MOST], counted(several) if len(named) > SEVERAL_AT_MOST else len(named)

    def apart(self, rule: ClassRule, *, delivered: bool) -> Apart | None:
        """Return two destinations of different classes from each set that a rule wants in one.

        If sites and classes form a forest, no rule ties destinations of different classes (docs/classes.md,
        Sufficiency): then nothing comes to the driver but the sites that are in several classes. Otherwise the whole
        incidence of sites and destinations does, up to a bound.
        """
        if self._is_forest:
            return []
        groups = self._of_kind("class").groupBy("group").agg({"order_class": "min"})
        groups = groups.withColumnRenamed("min(order_class)", "order_class")
        pairs = self._of_kind("set").select("site", "group") if delivered else self._members.distinct()
        found = collect(pairs.join(groups, "group").select("site", "group", "order_class").limit(PAIRS_AT_MOST + 1))
        if len(found) > PAIRS_AT_MOST:
            return None
        of_group, group = _in_order(found.column("group"))
        of_class, order_class = _in_order(found.column("order_class"))
        _, site = _in_order(found.column("site"))
        classes = np.zeros(len(of_group), np.int64)
        classes[group] = order_class
        pairs_apart = apart_pairs(_incidence(site, group), classes, rule) if len(group) else []
        name = [(of_group[at].as_py(), of_class[int(classes[at])].as_py()) for pair in pairs_apart for at in pair]
        return list(zip(name[::2], name[1::2], strict=True))

    @cached_property
    def _is_forest(self) -> bool:
        """Whether sites and classes form a forest, as far as the driver can see: each site beside its classes."""
        from pyspark.sql import functions as F  # noqa: N812

        edges = self._of_kind("run").union(self._compared.where("kind = 'edge'")).select("site", "order_class")
        several = edges.groupBy("site").agg(F.collect_set("order_class").alias("classes")).where("size(classes) > 1")
        shared = collect(several.select("site", F.explode("classes").alias("order_class")).limit(PAIRS_AT_MOST + 1))
        if len(shared) > PAIRS_AT_MOST:
            return False
        if not len(shared):
            return True
        of_site, site = coded(shared.column("site"))
        of_class, order_class = coded(shared.column("order_class"))
        from ordercast.planning.classes import class_labels

        trees = int(class_labels(_incidence(site, order_class), ClassRule.S1).max()) + 1
        return len(shared) == len(of_site) + len(of_class) - trees

    def kinds(self, *, collide: bool) -> Mapping[SiteId, int] | None:
        """Return one site for all with the same groups and the same sequence, and how many it stands for."""
        from pyspark.sql import functions as F  # noqa: N812

        keys = ["n", "p0", "p1", "x1", "told", *(["site"] if collide else [])]
        kinds = self._of_kind("site").groupBy(*keys).agg(F.min("site").alias("first"), F.count("*").alias("many"))
        rows = collect(kinds.agg(F.sum("n").alias("n"))).column("n")[0].as_py()
        if rows > SEARCH_AT_MOST:
            return None
        found = collect(kinds.select("first", "many").orderBy("first"))
        return dict(zip(found.column("first").to_pylist(), found.column("many").to_pylist(), strict=True))

    def sites(self) -> Collection[SiteId]:
        """Return the sites that delivered something: asked only of small runs."""
        found: list[SiteId] = collect(self._of_kind("site").select("site")).column("site").to_pylist()
        return found


def _in_order(column: Any) -> tuple[Any, Any]:
    """Return the different names of a column in their order, and the number of each row's."""
    names, number = coded(column)
    order = pc.sort_indices(names)
    rank = np.empty(len(names), np.int32)
    rank[order.to_numpy()] = np.arange(len(names), dtype=np.int32)
    return names.take(order), rank[number]


def _incidence(site: Any, group: Any) -> Membership:
    """Return pairs of numbers as a membership; nobody asks it for names."""
    order = np.lexsort((site, group))
    ptr = np.zeros(int(group.max()) + 2, np.int64)
    np.cumsum(np.bincount(group), out=ptr[1:])
    return Membership(("",) * (int(site.max()) + 1), ("",) * (len(ptr) - 1), ptr, site[order].astype(np.int32))
