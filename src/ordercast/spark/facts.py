"""Facts of a run whose folds are too many for the driver: they stay on executors, and only answers come back.

Folds are shuffled by site and merged, then by destination and compared (`audit.spread`); `spark.shares`
has them. A clean log sends a few rows to the driver, whatever its size. What comes back otherwise has a bound,
and beyond it nothing is said to hold.
"""

from collections.abc import Collection, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordercast.audit.classes import Apart, apart_pairs
from ordercast.audit.facts import Suspects, cover
from ordercast.audit.kernels import Key
from ordercast.audit.merge import coded, of_kind
from ordercast.audit.spread import FLAGS, NAMED
from ordercast.membership.table import Membership
from ordercast.names import ClassRule, GroupId, SiteId
from ordercast.runs.destinations import Destination, groups_of
from ordercast.spark.pieces import collect, counted
from ordercast.spark.shares import Shares, Tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLDS_AT_MOST = 400_000  # that are merged on the driver: more than a kilobyte and 30 microseconds each
MEMBERS_AT_MOST = 400_000  # memberships that are held as names on the driver
TASK_ROWS = 400_000  # folds, or rows of destinations, that a task takes at once
SUSPECTS_AT_MOST = 200_000  # that are named to the driver
PAIRS_AT_MOST = 12_000_000  # of sites and groups, or classes, that come to the driver as numbers, to judge classes
SEARCH_AT_MOST = 40_000_000  # deliveries that are searched for cycles
ALIKE_AT_MOST = 1_000_000  # ids that may not be unique
SEVERAL_AT_MOST = 1_000  # destinations in several classes that are told by name


class Spread:
    """Facts that are asked from executors (`audit.facts.Facts`)."""

    def __init__(self, tables: Tables, rows: int, key: Key, folds: "DataFrame | None" = None) -> None:
        """`rows`: about how many folds there are; `folds`: the folds, if they are there already."""
        self._tables = tables
        self._shares = Shares(tables, max(2, -(-rows // TASK_ROWS)), key, folds)
        self._twice: list[Destination] = []
        self._everyone = False

    def close(self) -> None:
        """Let go of what executors keep."""
        self._shares.close()

    def _of_kind(self, kind: str) -> "DataFrame":
        return self._shares.of_kind(kind)

    @property
    def _members(self) -> "DataFrame":
        return self._shares.members

    @cached_property
    def _compared(self) -> "DataFrame":
        """What does not fit, destination by destination."""
        return self._shares.compared(self._twice, everyone=self._everyone)

    @property
    def rows(self) -> int:
        """Count the deliveries."""
        return self._shares.rows

    @cached_property
    def _suspicious(self) -> "DataFrame":
        """Site, n, flags of every suspect."""
        from pyspark.sql import functions as F  # noqa: N812

        every = self._everyone

        def alone(table: Any) -> Any:
            sites = of_kind(table, "site")
            return sites if every else sites.filter(pc.greater(sites.column("flags"), 0))

        flags = F.col("flags").bitwiseOR(F.lit(NAMED if every else 0)).alias("flags")
        found = self._shares.some("sites", alone).select("site", flags)
        found = found.union(self._compared.where("kind = 'suspect'").select("site", "flags"))
        found = self._shares.keep(found.groupBy("site").agg(F.bit_or("flags").alias("flags")))
        if not counted(found):
            return found.select("site", F.lit(0).alias("n"), "flags")
        rows = self._of_kind("site").select("site", "n")
        told = found.join(rows, "site", "left").select("site", F.coalesce("n", F.lit(0)).alias("n"), "flags")
        return self._shares.keep(told)

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
        return F.broadcast(self._shares.session.createDataFrame(names))

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
        sent = self._shares.some_sends("groups", lambda table: of_kind(table, "send")).select("group")
        return set(collect(own.join(sent, "group", "left_semi")).column("group").to_pylist())

    def reach(self, sites: Collection[SiteId]) -> int:
        """Count what was sent to these sites, or their memberships, whichever is more."""
        from pyspark.sql import functions as F  # noqa: N812

        own = self._members.join(self._named(sites, "site"), "site").select("group")
        sent = self._shares.some_sends("groups", lambda table: of_kind(table, "send")).select("group", "n")
        messages = sent.join(own.distinct(), "group", "left_semi").agg(F.coalesce(F.sum("n"), F.lit(0)).alias("n"))
        found: list[int] = collect(messages.union(own.agg(F.count("*")))).column("n").to_pylist()
        return max(found)

    def beside(self, groups: Collection[Destination]) -> dict[SiteId, set[Destination]]:
        """Return for each destination one site that was cleared."""
        from pyspark.sql import functions as F  # noqa: N812

        wanted = pa.array(sorted(groups), pa.string())

        def keep(table: Any) -> Any:
            sets = of_kind(table, "set")
            return sets.filter(pc.is_in(sets.column("group"), value_set=wanted))

        there = self._shares.some("groups", keep).select("site", "group")
        clean = there.join(self._members, ["site", "group"], "left_semi").join(self._suspicious, "site", "left_anti")
        clean = self._shares.keep(clean)
        first = set(collect(clean.groupBy("group").agg(F.min("site").alias("site"))).column("site").to_pylist())
        if not first:
            return {}
        pairs = collect(clean.join(self._named(first, "site"), "site").select("site", "group"))
        own: dict[Destination, set[SiteId]] = {}
        for site, group in zip(pairs.column("site").to_pylist(), pairs.column("group").to_pylist(), strict=True):
            own.setdefault(group, set()).add(site)
        return cover(own)

    def newest(self) -> Mapping[SiteId, int]:
        """Return the highest number of each source."""
        from pyspark.sql import functions as F  # noqa: N812

        sent = self._shares.some_sends("newest", lambda table: table)
        found = collect(sent.groupBy("site").agg(F.max("n").alias("n")))
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

        edges = self._compared.where("kind = 'edge'")  # of sites that lack all of a destination
        lacking = counted(edges.limit(1)) > 0
        runs = self._shares.some("sites", lambda table: of_kind(table, "run") if lacking else several_classes_of(table))
        edges = runs.union(edges).select("site", "order_class")
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


def several_classes_of(table: Any) -> Any:
    """Return the classes of sites that have several."""
    runs = of_kind(table, "run")
    _, site = coded(runs.column("site"))
    return runs.filter(pa.array(np.bincount(site)[site] > 1)) if len(runs) else runs


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
