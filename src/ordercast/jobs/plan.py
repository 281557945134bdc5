"""Plan on Spark: a membership table of any size, read once for signatures and once for representatives.

Sites with exactly the same groups are one meta-group (MGT): they are found by a set hash, and one of them stands for
all. What is left after that fits the driver, where the near-linear kernels find classes and forest; the other sites
of a meta-group hang below their representative. The result is the in-process planner's, site by site.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from ordercast.audit import plain, tables
from ordercast.errors import InputError, PlanError
from ordercast.jobs import metagroups as loops
from ordercast.jobs.pieces import collect, fold_pieces, frame_of_pieces, refused
from ordercast.jobs.session import Spark
from ordercast.membership import Membership
from ordercast.planning.central import central
from ordercast.planning.classes import class_labels
from ordercast.planning.forest import ClassGraph, Forest
from ordercast.planning.metagroup_tree import metagroup
from ordercast.planning.propagation_graph import greedy
from ordercast.planning.request import Request
from ordercast.topology import Cost
from ordercast.types import Planner

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DRIVER_ROWS = 400_000_000  # of the table; a signature for each of some twenty million sites fits the driver
SIGNED = {"site": tables.MANY, "h1": tables.WHOLE, "h2": tables.WHOLE, "k": tables.WHOLE}
SALT = np.uint64(0x9E3779B97F4A7C15)
TWIN = "\0"  # a representative's second name: it stands for all others of the meta-group, and sorts right behind it
PLANNERS: dict[Planner, Callable[[ClassGraph], Forest]] = {
    Planner.ELIMINATION: greedy,
    Planner.METAGROUP: metagroup,
    Planner.CENTRAL: central,
}


@dataclass(frozen=True)
class SparkPlan:
    """A plan as tables: one row per group, one per (site, class)."""

    groups: Any
    """group, order_class, entry, members, depth, extra."""
    nodes: Any
    """order_class, site, parent: representatives and their twins."""
    metas: Any
    """meta (the representative's name), sites, groups."""
    cost: Cost
    classes: int
    memberships: int


def find_membership(path: str) -> tuple[str, tables.Table]:
    """Find a membership: a folder or file of Parquet anywhere Arrow reads."""
    system, plain = tables.file_system(path)
    kind = system.get_file_info(plain).type
    if kind == pafs.FileType.NotFound:
        raise InputError(f"{path}: no such file")
    if kind == pafs.FileType.File:
        folder, _, name = plain.rpartition("/")
        found = tables.find(_like(path, folder or "."), "", tables.MEMBERSHIP, {}, only=name)
    else:
        found = tables.find(path, "", tables.MEMBERSHIP, {})
    return path, replace(found, columns={"site": tables.MANY, "group": tables.TEXT})


def _like(path: str, folder: str) -> str:
    return path.rsplit("/", 1)[0] if "://" in path else folder


def signatures(spark: Spark, path: str, found: tables.Table) -> "DataFrame":
    """Return site, h1, h2, k: a set hash of each site's groups and their number."""
    from pyspark.sql import functions as F  # noqa: N812

    schema = "site string, h1 bigint, h2 bigint, k bigint"
    partial = frame_of_pieces(spark, path, found.pieces, found.columns, _sign, schema)
    sums = [F.bit_xor("h1").alias("h1"), F.bit_xor("h2").alias("h2"), F.sum("k").alias("k")]
    return partial.groupBy("site").agg(*sums)


def metagroups(signed: "DataFrame") -> "DataFrame":
    """Return meta (its first site), n, and the signature, of every meta-group."""
    from pyspark.sql import functions as F  # noqa: N812

    return signed.groupBy("h1", "h2", "k").agg(F.count("*").alias("n"), F.min("site").alias("meta"))


def _sites(table: Any) -> tuple[Any, Any]:
    """Number the sites of a piece: by runs when rows come site by site, by name otherwise."""
    names = tables.one(table.column("site"))
    if pa.types.is_dictionary(names.type):
        return names.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False), names.dictionary
    same = loops.same_as_before(*tables.laid_out(names))
    if same.mean() > 0.5:
        return (np.cumsum(~same) - 1).astype(np.int32), names.take(pa.array(np.flatnonzero(~same)))
    coded = names.dictionary_encode()
    return coded.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False), coded.dictionary


def _sign(table: Any) -> Any:
    site, names = _sites(table)
    groups = tables.one(table.column("group"))
    group, hashed = groups.indices.to_numpy(zero_copy_only=False), tables.hashes(groups.dictionary)
    h1, h2, k = loops.sign(site, len(names), group, hashed, plain.mix(hashed + SALT))
    columns = [names.cast(pa.string()), pa.array(h1.view(np.int64)), pa.array(h2.view(np.int64)), pa.array(k)]
    seen = k > 0
    made = pa.table(columns, names=["site", "h1", "h2", "k"])
    return made if seen.all() else made.filter(pa.array(seen))


def _of_these(wanted: Any) -> Callable[[Any], Any]:
    """Keep the rows of these sites, looked up by their hashes: one in 2^64 others may be among them."""
    hashed = np.sort(tables.hashes(wanted))

    def work(table: Any) -> Any:
        site, names = _sites(table)
        own = tables.hashes(names.cast(pa.string()))
        keep = hashed[np.minimum(np.searchsorted(hashed, own), len(hashed) - 1)] == own
        rows = table.filter(pa.array(keep[site]))
        return pa.table([rows.column(name).cast(pa.string()) for name in ("site", "group")], names=["site", "group"])

    return work


def plan_tables(spark: Spark, path: str, request: Request, *, verify: bool = False) -> SparkPlan:
    """Plan a membership table; with `verify` the set hashes are checked against the rows, exactly."""
    if request.planner not in PLANNERS:
        allowed = ", ".join(PLANNERS)
        raise InputError(f"--planner {request.planner} searches in process; on Spark there are {allowed}")
    path, found = find_membership(path)
    if not found.rows:
        raise InputError(f"{path}: no rows")
    if found.rows <= DRIVER_ROWS:
        metas = _metas(fold_pieces(spark, path, found.pieces, found.columns, _sign))
    else:
        metas = collect(metagroups(signatures(spark, path, found)))
    if verify:
        _verify(spark, found, signatures(spark, path, found))
    metas = metas.take(pc.sort_indices(metas.column("meta")))
    wanted = tables.one(metas.column("meta"))
    rows = pa.concat_tables(fold_pieces(spark, path, found.pieces, found.columns, _of_these(wanted)))
    rows = rows.filter(pc.is_in(rows.column("site"), value_set=wanted))
    many = dict(zip(metas.column("meta").to_pylist(), metas.column("n").to_pylist(), strict=True))
    membership, weight = compressed(path, rows, many)
    return _planned(membership, weight, metas, found.rows, request)


def _metas(parts: list[Any]) -> Any:
    """Do what `signatures` and `metagroups` do, on the driver: as long as the sites fit, no shuffle is as cheap."""
    joined = tables.tidy(pa.concat_tables(parts), SIGNED)
    names = tables.one(joined.column("site"))
    strings = tables.laid_out(names)
    site, row = loops.numbered(*strings, tables.hashes(names))
    h1, h2, k = loops.added(site, len(row), *(joined.column(name).to_numpy() for name in ("h1", "h2", "k")))
    first, many = loops.alike(*strings, row, h1, h2, k)
    metas = names.take(pa.array(row[first])).cast(pa.string())
    return pa.table({"meta": metas, "n": many, "h1": h1[first], "h2": h2[first], "k": k[first]})


def _verify(spark: Spark, found: tables.Table, signed: "DataFrame") -> None:
    """Every group of a meta-group must have all its sites: no collision, no row twice."""
    from pyspark.sql import functions as F  # noqa: N812

    paths = sorted({piece.path for piece in found.pieces})
    members = spark.sql.read.parquet(*paths).select("site", "group")
    named = signed.join(metagroups(signed), ["h1", "h2", "k"]).select("site", "meta", "n")
    counted = members.join(named, "site").groupBy("meta", "group").agg(F.count("*").alias("c"), F.first("n").alias("n"))
    try:
        bad = counted.where("c <> n").limit(1).collect()
    except Exception as error:
        raise refused(error) from None
    if bad:
        meta, group, count, many = (bad[0][name] for name in ("meta", "group", "c", "n"))
        raise PlanError(f"meta-group of {meta!r}: {count} rows of {many} sites for group {group!r}: a row twice?")


def compressed(path: str, rows: Any, many: dict[str, int]) -> tuple[Membership, Any]:
    """Build the membership of representatives, and of a twin for each that stands for more; with their weights."""
    site = tables.one(rows.column("site")).dictionary_encode()
    group = tables.one(rows.column("group")).dictionary_encode()
    site_names, group_names = site.dictionary.to_pylist(), group.dictionary.to_pylist()
    if "" in site_names or "" in group_names:
        raise InputError(f"{path}: a site or a group has an empty name")
    twins = [name + TWIN for name in site_names if many[name] > 1]
    names = sorted(site_names + twins)
    number = {name: index for index, name in enumerate(names)}
    groups = sorted(group_names)
    at_group = _rank(group_names, groups)
    own = np.array([number[name] for name in site_names], np.int64)
    twin = np.array([number.get(name + TWIN, -1) for name in site_names], np.int64)
    s, g = site.indices.to_numpy(), at_group[group.indices.to_numpy()]
    both_site = np.concatenate([own[s], twin[s][twin[s] >= 0]])
    both_group = np.concatenate([g, g[twin[s] >= 0]])
    key = both_group * len(names) + both_site
    key.sort()
    if bool((key[1:] == key[:-1]).any()):
        twice = int(key[1:][key[1:] == key[:-1]][0])
        name, of = names[twice % len(names)].rstrip(TWIN), groups[twice // len(names)]
        raise InputError(f"{path}: {name!r} appears twice in group {of!r}")
    ptr = np.zeros(len(groups) + 1, np.int64)
    np.cumsum(np.bincount(key // len(names), minlength=len(groups)), out=ptr[1:])
    weight = np.array([many[n.rstrip(TWIN)] - 1 if n.endswith(TWIN) else 1 for n in names], np.int64)
    return Membership(tuple(names), tuple(groups), ptr, (key % len(names)).astype(np.int32)), weight


def _rank(names: list[str], in_order: list[str]) -> Any:
    number = {name: index for index, name in enumerate(in_order)}
    return np.array([number[name] for name in names], np.int64)


def _planned(membership: Membership, weight: Any, metas: Any, memberships: int, request: Request) -> SparkPlan:
    labels = class_labels(membership, request.class_rule)
    graph = ClassGraph.of(membership, labels)
    forest = PLANNERS[request.planner](graph)
    cost = weighted_cost(forest, weight)
    if request.max_load is not None and cost.max_load > request.max_load:
        raise PlanError(
            f"planner {request.planner} loads its busiest site with {cost.max_load}, above {request.max_load}"
        )
    first = np.full(int(labels.max()) + 1, -1, np.int64)
    first[labels[::-1]] = np.arange(len(labels))[::-1]
    class_names = [membership.groups[g] for g in first.tolist()]
    site = forest.node_site
    names = pa.array(membership.sites, pa.string())
    of_class = pa.array(class_names, pa.string())
    sizes = np.bincount(membership.edge_groups, weights=weight[membership.group_sites], minlength=len(labels))
    groups = pa.table(
        {
            "group": pa.array(membership.groups, pa.string()),
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
    return SparkPlan(groups, nodes, metas, cost, int(labels.max()) + 1, memberships)


def weighted_cost(forest: Forest, weight: Any) -> Cost:
    """Sum up, with every twin counted for all the sites it stands for: they are leaves below the same parent."""
    site, lower = forest.node_site, forest.routes[1]
    sites = len(forest.graph.membership.sites)
    down = weight[site[lower]]
    received = np.bincount(site[lower], minlength=sites) + np.bincount(site[forest.entry], minlength=sites)
    load = received + np.bincount(site[forest.parent[lower]], weights=down, minlength=sites).astype(np.int64)
    return Cost(
        mean_depth=float(forest.depth.mean()),
        mean_extra=float(forest.extra.mean()),
        max_load=int(load.max()),
        messages=int(down.sum()) + len(forest.entry),
    )


def write_tables(spark: Spark, made: SparkPlan, path: str, out: str) -> None:
    """Write groups/, cost/ and routes/ as Parquet; routes has every site, not only those that stand for others."""
    from pyspark.sql import functions as F  # noqa: N812

    _, found = find_membership(path)
    signed = signatures(spark, path, found)
    named = signed.join(metagroups(signed), ["h1", "h2", "k"]).select("site", "meta")
    nodes = spark.sql.createDataFrame(made.nodes)
    is_twin = F.col("site").endswith(TWIN)
    plain = F.regexp_replace(F.col("site"), f"{TWIN}$", "")
    nodes = nodes.withColumn("meta", plain).withColumn("twin", is_twin).drop("site")
    routes = named.join(nodes, "meta").where(F.col("twin") == (F.col("site") != F.col("meta")))
    try:
        routes.select("order_class", "site", "parent").write.mode("overwrite").parquet(f"{out}/routes")
        spark.sql.createDataFrame(made.groups).coalesce(1).write.mode("overwrite").parquet(f"{out}/groups")
        cost = pa.table(
            {name: [getattr(made.cost, name)] for name in ("mean_depth", "mean_extra", "max_load", "messages")}
        )
        spark.sql.createDataFrame(cost).coalesce(1).write.mode("overwrite").parquet(f"{out}/cost")
    except Exception as error:
        raise refused(error) from None


def overlaps(spark: Spark, path: str) -> "DataFrame":
    """Return how many sites every two overlapping groups share: counted among meta-groups, times their sizes."""
    from pyspark.sql import functions as F  # noqa: N812

    _, found = find_membership(path)
    metas = metagroups(signatures(spark, path, found))
    wanted = collect(metas.select("meta")).column("meta").combine_chunks()
    rows = frame_of_pieces(spark, path, found.pieces, found.columns, _of_these(wanted), "site string, group string")
    own = rows.join(metas.select(F.col("meta").alias("site"), "n"), "site")
    one, other = own.select("site", F.col("group").alias("one"), "n"), own.select("site", F.col("group").alias("other"))
    pairs = one.join(other, "site").where("one < other")
    return pairs.groupBy("one", "other").agg(F.sum("n").alias("shared"))


def csv_to_parquet(spark: Spark, path: str, folder: Path) -> str:
    """Read CSV with columns site and group, by Spark, into Parquet that the pieces are made of."""
    try:
        frame = spark.sql.read.option("header", True).option("mode", "FAILFAST").csv(path)
        missing = [name for name in ("site", "group") if name not in frame.columns]
        if missing:
            raise InputError(f"{path}: column {missing[0]!r} is missing (columns: {', '.join(frame.columns)[:200]})")
        frame.select("site", "group").write.mode("overwrite").parquet(str(folder))
    except InputError:
        raise
    except Exception as error:
        raise refused(error) from None
    return str(folder)
