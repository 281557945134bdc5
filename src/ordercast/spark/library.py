"""What a notebook or another job calls: audit and plan, on the session and the DataFrames that it has.

Nothing of the session is changed: no setting, no view, no cache, and it is not stopped. Executors of a cluster that do
not have this package get it (`ship`).
"""

import atexit
import tempfile
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from ordercast.audit.verdict import Verdict
from ordercast.audit.verdict import audit as judge
from ordercast.errors import InputError
from ordercast.names import ClassRule, Level, Planner
from ordercast.planning.plan import Cost
from ordercast.planning.request import Request
from ordercast.runs import schema
from ordercast.spark.frames import FrameSource, table_of
from ordercast.spark.planning import PLANNERS, in_spark, metagroups, plan_frame, routes_of
from ordercast.spark.session import package_zip

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LEVELS = ("fifo", "total", "acyclic", "causal")
VERDICT = "property string, verdict string, violations bigint, example string"


def audit(
    spark: "SparkSession",
    *,
    deliveries: "DataFrame | str",
    sends: "DataFrame | str | None",
    membership: "DataFrame | str",
    level: str = "acyclic",
    columns: Mapping[str, str] | None = None,
    running: bool = False,
) -> Verdict:
    """Judge delivery logs: DataFrames from anywhere, or names of tables; the answer of `ordercast audit`.

    `columns`: what our columns (docs/formats.md) are called in these tables, where they are called something else:
    `{"site": "host", "msg_id": "id"}`. `running`: the run goes on, what a site has not come to yet is not missing.
    `sends=None`: nobody recorded what was sent. It is taken from deliveries; creation and completeness stay open.
    Raises InputError for a table that cannot be judged.
    """
    if level not in LEVELS:
        raise InputError(f"level is one of {', '.join(LEVELS)}, not {level!r}")
    ship(spark)
    sent = None if sends is None else _frame(spark, sends)
    source = FrameSource(_frame(spark, deliveries), sent, _frame(spark, membership), columns)
    return judge(source, level, running=running)


def as_frame(spark: "SparkSession", verdict: Verdict) -> "DataFrame":
    """Return a verdict as a table: property, verdict, violations, example."""
    rows = [(name, verdict.word(name)[0], found.violations, found.says) for name, found in verdict.properties.items()]
    return spark.createDataFrame(rows, VERDICT)


@dataclass(frozen=True)
class Planned:
    """A plan: small values here, tables as DataFrames."""

    cost: Cost
    classes: int
    memberships: int
    groups: "DataFrame"
    """group, order_class, entry, members, depth, extra."""
    routes: "DataFrame"
    """order_class, site, parent: every site of every class, and whom it hears from."""


def plan(
    spark: "SparkSession",
    membership: "DataFrame | str",
    *,
    level: Level | str = Level.ACYCLIC,
    planner: Planner | str = Planner.ELIMINATION,
    classes: ClassRule | str | None = None,
    columns: Mapping[str, str] | None = None,
) -> Planned:
    """Plan who orders what, from a table of (site, group); the answer of `ordercast plan --master`."""
    request = Request(planner=Planner(planner), level=Level(level), classes=ClassRule(classes) if classes else None)
    if request.planner not in PLANNERS:
        raise InputError(f"planner {request.planner} searches in process; on Spark there are {', '.join(PLANNERS)}")
    ship(spark)
    table, _ = table_of(_frame(spark, membership), "membership", schema.MEMBERSHIP, {}, columns or {})
    of_sites = _sets(table)
    made = plan_frame("membership", metagroups(of_sites), request)
    groups = in_spark(spark, made.groups)
    planned = Planned(made.cost, made.classes, made.memberships, groups, routes_of(spark, made, of_sites))
    if made.kept:
        weakref.finalize(planned, made.close).atexit = False
    return planned


def _sets(table: "DataFrame") -> "DataFrame":
    """Return site, groups: the sorted list of every site's groups."""
    from pyspark.sql import functions as F  # noqa: N812

    wrong = table.where("site is null or `group` is null").limit(1).count()
    if wrong:
        raise InputError("membership: a site or a group is null")
    return table.groupBy("site").agg(F.array_sort(F.collect_list("group")).alias("groups"))


def _frame(spark: "SparkSession", table: "DataFrame | str") -> "DataFrame":
    return spark.table(table) if isinstance(table, str) else table


def ship(spark: "SparkSession") -> None:
    """Give the package to executors on other machines; in local mode they run where it is."""
    if not _is_local(spark):
        spark.addArtifacts(_packed(), pyfile=True)


@cache
def _packed() -> str:
    """Return this package as a file that stays while the process does: executors fetch it with their first task."""
    folder = tempfile.TemporaryDirectory(prefix="ordercast-ship-")
    atexit.register(folder.cleanup)
    return package_zip(Path(folder.name))


def _is_local(spark: "SparkSession") -> bool:
    """Whether executors are where this process is: not behind Spark Connect, whatever its server calls local."""
    if type(spark).__module__.startswith("pyspark.sql.connect"):
        return False
    return (spark.conf.get("spark.master", "") or "").startswith("local")
