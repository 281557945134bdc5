"""Plan on Spark: a membership table of any size, read once.

Sites with exactly the same groups are one meta-group (MGT, `spark.metagroups`), and one of them stands for all. What is
left after that mostly fits the driver, where the near-linear kernels find classes and forest; when it does not,
executors do the same for connected parts of it (`spark.components`). The other sites of a meta-group hang below their
representative. The result is the in-process planner's, site by site.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from ordercast.errors import InputError, PlanError
from ordercast.membership.table import Membership
from ordercast.membership.toml import check_group
from ordercast.names import Planner
from ordercast.planning.forest import Forest
from ordercast.planning.make import make_forest
from ordercast.planning.plan import Cost
from ordercast.planning.request import Request
from ordercast.runs import reader, schema
from ordercast.spark.components import SHARE, in_shares, of_kind
from ordercast.spark.metagroups import merged, sets_of_sites, sites_and_sets
from ordercast.spark.pieces import collect, fold_pieces, frame_of_pieces, refused
from ordercast.spark.session import Spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DRIVER_ROWS = 400_000_000  # of the table; the names of some twenty million sites fit the driver
DRIVER_MEMBERSHIPS = 20_000_000  # of meta-groups; a forest of them takes some 200 bytes each
SAMPLES = 8  # pieces of a large table that tell how much meta-groups leave of it
TWIN = "\0"  # a representative's second name: it stands for all others of the meta-group, and sorts right behind it
PLANNERS = (Planner.ELIMINATION, Planner.METAGROUP, Planner.CENTRAL)


GROUPS = "`group` string, order_class string, entry string, members bigint, depth int, extra bigint"
NODES = "order_class string, site string, parent string"
SUMMED = ("groups", "metas", "classes", "memberships", "depth", "extra", "load", "messages")


@dataclass(frozen=True)
class SparkPlan:
    """A plan as tables: one row per group, one per (site, class). On the driver, or DataFrames when they are large."""

    groups: Any
    """group, order_class, entry, members, depth, extra."""
    nodes: Any
    """order_class, site, parent: representatives and their twins."""
    metas: Any
    """meta (the representative's name), n (how many sites), groups (a sorted list)."""
    cost: Cost
    many_groups: int
    many_metas: int
    classes: int
    memberships: int
    kept: "tuple[DataFrame, ...]" = ()
    """What executors keep as long as the plan is used."""

    def close(self) -> None:
        """Let go of what executors keep; the tables can still be asked, and are made again."""
        for frame in self.kept:
            frame.unpersist()


def find_membership(path: str) -> tuple[str, reader.Table]:
    """Find a membership: a folder or file of Parquet anywhere Arrow reads."""
    system, plain = reader.file_system(path)
    kind = system.get_file_info(plain).type
    if kind == pafs.FileType.NotFound:
        raise InputError(f"{path}: no such file")
    if kind == pafs.FileType.File:
        folder, _, name = plain.rpartition("/")
        found = reader.find(_like(path, folder or "."), "", schema.MEMBERSHIP, {}, only=name)
    else:
        found = reader.find(path, "", schema.MEMBERSHIP, {})
    return path, replace(found, columns={"site": schema.MANY, "group": schema.TEXT})


def _like(path: str, folder: str) -> str:
    return path.rsplit("/", 1)[0] if "://" in path else folder


def sets(spark: Spark, path: str, found: reader.Table) -> "DataFrame":
    """Return site, groups: the sorted list of every site's groups."""
    from pyspark.sql import functions as F  # noqa: N812

    schema = "site string, groups array<string>"
    partial = frame_of_pieces(spark, path, found.pieces, found.columns, sets_of_sites, schema)
    return partial.groupBy("site").agg(F.array_sort(F.flatten(F.collect_list("groups"))).alias("groups"))


def metagroups(of_sites: "DataFrame") -> "DataFrame":
    """Return meta (its first site), n, groups of every meta-group: the lists themselves are compared."""
    from pyspark.sql import functions as F  # noqa: N812

    return of_sites.groupBy("groups").agg(F.count("*").alias("n"), F.min("site").alias("meta"))


def plan_tables(spark: Spark, path: str, request: Request) -> SparkPlan:
    """Plan a membership table."""
    if request.planner not in PLANNERS:
        allowed = ", ".join(PLANNERS)
        raise InputError(f"--planner {request.planner} searches in process; on Spark there are {allowed}")
    path, found = find_membership(path)
    if not found.rows:
        raise InputError(f"{path}: no rows")
    if found.rows <= DRIVER_ROWS and _shrinks(spark, path, found):
        metas = merged(path, fold_pieces(spark, path, found.pieces, found.columns, sites_and_sets))
        if _left(metas) <= DRIVER_MEMBERSHIPS:
            return plan_metagroups(path, metas, request)
    return plan_frame(path, metagroups(sets(spark, path, found)), request)


def _shrinks(spark: Spark, path: str, found: reader.Table) -> bool:
    """Whether what meta-groups leave of a table seems to fit the driver: a few pieces of a large one tell.

    Sets come again, so each further piece leaves less that is new: the rest of the table leaves at most as much as the
    second half of these pieces. Where the sites are spread over pieces, a few of them leave too little.
    """
    if found.rows <= DRIVER_MEMBERSHIPS:
        return True
    some = found.pieces[:: -(-len(found.pieces) // SAMPLES)]
    halves = [half for half in (some[::2], some[1::2]) if half]
    parts = [fold_pieces(spark, path, half, found.columns, sites_and_sets) for half in halves]
    before, after = _left(merged(path, parts[0])), _left(merged(path, [part for half in parts for part in half]))
    rows = [sum(piece.rows for piece in half) for half in halves]
    new = (after - before) / rows[1] if len(rows) > 1 else before / rows[0]
    return after + new * (found.rows - sum(rows)) <= DRIVER_MEMBERSHIPS


def _left(metas: Any) -> int:
    """Count the memberships of meta-groups."""
    return int(pc.sum(pc.list_value_length(metas.column("groups")), min_count=0).as_py())


def plan_frame(path: str, metas: "DataFrame", request: Request) -> SparkPlan:
    """Plan meta-groups that executors have: on the driver when they are few, or there by components."""
    from pyspark.sql import functions as F  # noqa: N812

    kept = [metas.select("meta", "n", "groups").persist()]
    try:
        left = F.sum(F.size("groups") * F.least("n", F.lit(2)))
        many = collect(kept[0].agg(F.coalesce(left, F.lit(0)).alias("left"))).column("left")[0].as_py()
        if many <= DRIVER_MEMBERSHIPS:
            made = plan_metagroups(path, collect(kept[0]), request)
        else:
            kept.append(in_shares(kept[0], _of_share(path, replace(request, max_load=None)), SHARE).persist())
            return _in_shares(kept, request)
    except BaseException:
        for frame in kept:
            frame.unpersist()
        raise
    kept[0].unpersist()
    return made


def _in_shares(kept: "list[DataFrame]", request: Request) -> SparkPlan:
    """Add up what executors have planned: `kept` are the meta-groups, and what every share has become."""
    metas, made = kept
    sums = collect(of_kind(made, "sums", ", ".join(f"`{name}` bigint" for name in SUMMED)))
    total = {name: sum(sums.column(name).to_pylist()) for name in sums.column_names}
    groups = total["groups"]
    most = max(sums.column("load").to_pylist())
    cost = Cost(total["depth"] / groups, total["extra"] / groups, most, total["messages"])
    check_load(cost, request)
    return SparkPlan(
        of_kind(made, "groups", GROUPS),
        of_kind(made, "nodes", NODES),
        metas,
        cost,
        groups,
        total["metas"],
        total["classes"],
        total["memberships"],
        (metas, made),
    )


def _of_share(path: str, request: Request) -> Callable[[Any], dict[str, Any]]:
    def work(metas: Any) -> dict[str, Any]:
        made = plan_metagroups(path, metas, request)
        groups = made.groups
        depth, extra = (pc.sum(groups.column(name)).as_py() for name in ("depth", "extra"))
        counts = (made.many_groups, made.many_metas, made.classes, made.memberships)
        sums = (*counts, depth, extra, made.cost.max_load, made.cost.messages)
        row = pa.table([pa.array([value], pa.int64()) for value in sums], names=SUMMED)
        return {"groups": plain(groups), "nodes": plain(made.nodes), "sums": row}

    return work


def plan_metagroups(path: str, metas: Any, request: Request) -> SparkPlan:
    """Plan meta-groups; `path` is how errors call the table."""
    if not len(metas):
        raise InputError(f"{path}: no rows")
    metas = metas.take(pc.sort_indices(metas.column("meta"))).combine_chunks()
    membership, weight = compressed(path, metas)
    many = reader.one(metas.column("groups")).value_lengths().to_numpy() * metas.column("n").to_numpy()
    return _planned(membership, weight, metas, int(many.sum()), request)


class Names(Sequence[str]):
    """Names in an Arrow column: millions of them take their bytes, not an object each."""

    def __init__(self, column: Any) -> None:
        self.column = column

    def __len__(self) -> int:
        return len(self.column)

    @overload
    def __getitem__(self, at: int) -> str: ...

    @overload
    def __getitem__(self, at: slice) -> "Names": ...

    def __getitem__(self, at: int | slice) -> "str | Names":
        return Names(self.column[at]) if isinstance(at, slice) else str(self.column[at].as_py())

    def __iter__(self) -> Iterator[str]:
        for at in range(0, len(self.column), 100_000):
            yield from self.column.slice(at, 100_000).to_pylist()


def compressed(path: str, metas: Any) -> tuple[Membership, Any]:
    """Build the membership of representatives, and of a twin for each that stands for more; with their weights.

    Meta-groups come in the order of their representatives' names; a twin's name is right behind.
    """
    site_names, many = reader.one(metas.column("meta")), metas.column("n").to_numpy()
    lists = reader.one(metas.column("groups"))
    of_list = lists.flatten().dictionary_encode()
    if pc.any(pc.equal(site_names, "")).as_py() or pc.any(pc.equal(of_list.dictionary, "")).as_py():
        raise InputError(f"{path}: a site or a group has an empty name")
    if len(taken := site_names.filter(pc.ends_with(site_names, TWIN))):
        name = taken[0].as_py()
        raise InputError(f"{path}: site {name!r} ends in a null character, which plans on Spark need for themselves")
    twin = many > 1
    own = np.arange(len(many)) + np.cumsum(twin) - twin
    twins = pc.binary_join_element_wise(site_names.filter(pa.array(twin)), TWIN, "")
    names = pa.concat_arrays([site_names, twins]).take(pa.array(np.argsort(np.concatenate([own, own[twin] + 1]))))
    order = pc.sort_indices(of_list.dictionary)
    groups, rank = of_list.dictionary.take(order), np.empty(len(order), np.int64)
    rank[order.to_numpy()] = np.arange(len(order))
    s, g = np.repeat(np.arange(len(own)), lists.value_lengths().to_numpy()), rank[of_list.indices.to_numpy()]
    key = np.concatenate([g, g[twin[s]]]) * len(names) + np.concatenate([own[s], own[s[twin[s]]] + 1])
    key.sort()
    if bool((key[1:] == key[:-1]).any()):
        twice = int(key[1:][key[1:] == key[:-1]][0])
        name, of = names[twice % len(names)].as_py().rstrip(TWIN), groups[twice // len(names)].as_py()
        raise InputError(f"{path}: {name!r} appears twice in group {of!r}")
    ptr = np.zeros(len(groups) + 1, np.int64)
    np.cumsum(np.bincount(key // len(names), minlength=len(groups)), out=ptr[1:])
    weight = np.ones(len(names), np.int64)
    weight[own[twin] + 1] = many[twin] - 1
    return Membership(Names(names), Names(groups), ptr, (key % len(names)).astype(np.int32)), weight


def _planned(membership: Membership, weight: Any, metas: Any, memberships: int, request: Request) -> SparkPlan:
    forest = make_forest(membership, request)
    graph, labels = forest.graph, forest.graph.labels
    cost = weighted_cost(forest, weight)
    check_load(cost, request)
    first = np.full(int(labels.max()) + 1, -1, np.int64)
    first[labels[::-1]] = np.arange(len(labels))[::-1]
    site = forest.node_site
    names, of_group = (_column(own) for own in (membership.sites, membership.groups))
    of_class = of_group.take(pa.array(first))
    sizes = np.bincount(membership.edge_groups, weights=weight[membership.group_sites], minlength=len(labels))
    groups = pa.table(
        {
            "group": of_group,
            "order_class": of_class.take(pa.array(labels)),
            "entry": names.take(pa.array(site[forest.entry])),
            "members": pa.array(sizes.astype(np.int64)),
            "depth": pa.array(forest.depth),
            "extra": pa.array(forest.extra),
        }
    )
    node_class = np.concatenate([graph.node_class, np.zeros(len(forest.hub_site), np.int32)])
    up = pa.array(np.where(forest.parent >= 0, site[forest.parent], -1), mask=forest.parent < 0)
    nodes = pa.table(
        {
            "order_class": of_class.take(pa.array(node_class)),
            "site": names.take(pa.array(site)),
            "parent": names.take(up),
        }
    )
    return SparkPlan(groups, nodes, metas, cost, len(groups), len(metas), int(labels.max()) + 1, memberships)


def check_load(cost: Cost, request: Request) -> None:
    """Refuse a plan that loads a site too much."""
    if request.max_load is not None and cost.max_load > request.max_load:
        raise PlanError(
            f"planner {request.planner} loads its busiest site with {cost.max_load}, above {request.max_load}"
        )


def _column(names: Sequence[str]) -> Any:
    return names.column if isinstance(names, Names) else pa.array(names, pa.string())


def weighted_cost(forest: Forest, weight: Any) -> Cost:
    """Sum up, with every twin counted for all the sites it stands for: they are leaves below the same parent."""
    return Cost(
        mean_depth=float(forest.depth.mean()),
        mean_extra=float(forest.extra.mean()),
        max_load=int(forest.load_of(weight).max()),
        messages=int((forest.passes * weight[forest.node_site]).sum()) + len(forest.entry),
    )


def write_tables(spark: Spark, made: SparkPlan, path: str, out: str) -> None:
    """Write groups/, cost/ and routes/ as Parquet; routes has every site, not only those that stand for others."""
    _, found = find_membership(path)
    routes = routes_of(spark.sql, made, sets(spark, path, found))
    try:
        routes.write.mode("overwrite").parquet(f"{out}/routes")
        groups = in_spark(spark.sql, made.groups)
        (groups.coalesce(1) if groups is not made.groups else groups).write.mode("overwrite").parquet(f"{out}/groups")
        cost = pa.table(
            {name: [getattr(made.cost, name)] for name in ("mean_depth", "mean_extra", "max_load", "messages")}
        )
        spark.sql.createDataFrame(cost).coalesce(1).write.mode("overwrite").parquet(f"{out}/cost")
    except Exception as error:
        raise refused(error) from None


def in_spark(spark: "SparkSession", table: Any) -> "DataFrame":
    """Return a table as a DataFrame, which it may be already."""
    if not isinstance(table, pa.Table):
        frame: DataFrame = table
        return frame
    return spark.createDataFrame(plain(table))


def plain(table: Any) -> Any:
    """Return a table with types that Spark takes."""
    kinds = [pa.string() if pa.types.is_large_string(field.type) else field.type for field in table.schema]
    return table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True))))


def routes_of(spark: "SparkSession", made: SparkPlan, of_sites: "DataFrame") -> "DataFrame":
    """Return order_class, site, parent of every site, not only of those that stand for others."""
    from pyspark.sql import functions as F  # noqa: N812

    metas = in_spark(spark, made.metas).select("meta", "groups")
    named = of_sites.join(metas, "groups").select("site", "meta")
    nodes = in_spark(spark, made.nodes)
    is_twin = F.col("site").endswith(TWIN)
    plain = F.regexp_replace(F.col("site"), f"{TWIN}$", "")
    nodes = nodes.withColumn("meta", plain).withColumn("twin", is_twin).drop("site")
    routes = named.join(nodes, "meta").where(F.col("twin") == (F.col("site") != F.col("meta")))
    return routes.select("order_class", "site", "parent")


def overlaps(spark: Spark, path: str) -> "DataFrame":
    """Return how many sites every two overlapping groups share: counted among meta-groups, times their sizes."""
    from pyspark.sql import functions as F  # noqa: N812

    _, found = find_membership(path)
    own = metagroups(sets(spark, path, found)).select(
        F.col("meta").alias("site"), "n", F.explode("groups").alias("group")
    )
    one, other = own.select("site", F.col("group").alias("one"), "n"), own.select("site", F.col("group").alias("other"))
    pairs = one.join(other, "site").where("one < other")
    return pairs.groupBy("one", "other").agg(F.sum("n").alias("shared"))


def csv_to_parquet(spark: Spark, path: str, folder: Path) -> str:
    """Read CSV with columns site and group, by Spark, into Parquet that the pieces are made of."""
    from pyspark.sql import functions as F  # noqa: N812

    try:
        frame = spark.sql.read.option("header", True).option("mode", "FAILFAST").csv(path)
        missing = [name for name in ("site", "group") if name not in frame.columns]
        if missing:
            raise InputError(f"{path}: column {missing[0]!r} is missing (columns: {', '.join(frame.columns)[:200]})")
        for row in frame.where(F.contains("group", F.lit("+"))).select("group").limit(1).collect():
            check_group(f"{path}: ", row["group"])
        frame.select("site", "group").write.mode("overwrite").parquet(str(folder))
    except InputError:
        raise
    except Exception as error:
        raise refused(error) from None
    return str(folder)
