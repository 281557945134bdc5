"""Experiments on the dynamics, on Spark: one point and number in, the figures of one simulator trial out."""

import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ordercast.names import Delivery, Level, Policy
from ordercast.sim.dynamics import CRASH, CUT, Point, run_trial
from ordercast.spark.session import Spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DYNAMICS = ("change", "churn", "recovery", "rollback")
PROTOCOLS = ("propagation", "sequencer", "two-phase", "timestamp", "arrow")
"""Arrow stands for the swaps: combining and hybrid change and fail as it does."""
DEAR = {"timestamp": 20}
"""Up to so many sites: each of its sites speaks to all others at every tick, and 80 sites take half a minute."""
SITES = (10, 20, 40, 60)
CHURN = (0.0, 2.0, 5.0, 10.0)
SUSPECT_AFTER = (2.0, 6.0, 12.0)
RATES = (0.25, 1.0, 2.0)
DYNAMIC_RUNS = 6
MORE = {"rollback": 3}
"""Hardly any crash makes a site roll back: so many times as many trials."""
FIGURES = (
    "stall", "late", "messages", "touched", "share", "delay", "slow", "done", "standing", "recovery", "outage",
    "waiting", "rolled", "happened", "elsewhere",
)  # fmt: skip
KEY = (
    "experiment string, protocol string, sites int, level string, policy string, delivery string, churn double, "
    "suspect_after double, rate double, fault string"
)
SPEC = f"{KEY}, trial int, seed long"
RESULT = f"{KEY}, trial int, " + ", ".join(f"{name} double" for name in FIGURES)
KINDS = {"string": pa.string(), "int": pa.int32(), "long": pa.int64(), "double": pa.float64()}


def points(wanted: tuple[str, ...]) -> list[Point]:
    """Return the points of these experiments."""
    found = set[Point]()
    for protocol in PROTOCOLS:
        found |= {Point("change", protocol, sites, level) for sites in SITES for level in Level}
        found |= {Point("churn", protocol, 20, churn=churn) for churn in CHURN}
        found |= {Point("recovery", protocol, 20, suspect_after=after) for after in SUSPECT_AFTER}
        found |= {Point("recovery", protocol, sites) for sites in SITES[:3]}
        found.add(Point("recovery", protocol, 20, policy=Policy.ATOMIC))
        found |= {Point("rollback", protocol, 10, rate=rate, fault=fault) for rate in RATES for fault in (CRASH, CUT)}
        found |= {Point("rollback", protocol, 10, delivery=how, rate=1.0, fault=CUT) for how in Delivery}
    return sorted(p for p in found if p.experiment in wanted and p.sites <= DEAR.get(p.protocol, p.sites))


def run_dynamics(spark: Spark, wanted: list[Point], runs: int, seed: int = 0) -> "DataFrame":
    """Return the figures of so many trials of every point, trial by trial."""
    plain = [(p, [str(value) if isinstance(value, str) else value for value in p]) for p in wanted]  # no enums for Java
    specs = [(*key, number, seed) for p, key in plain for number in range(runs * MORE.get(p.experiment, 1))]
    random.Random(0).shuffle(specs)  # trials cost very differently: every task gets some of each
    tasks = min(len(specs), 16 * spark.context.defaultParallelism)  # enough for a smooth bar
    frame = spark.sql.createDataFrame(spark.context.parallelize(specs, tasks), SPEC)
    return frame.mapInArrow(_run, RESULT)


def _run(batches: Iterator[Any]) -> Iterator[Any]:
    schema = pa.schema([(name, KINDS[kind]) for name, kind in (part.split(" ") for part in RESULT.split(", "))])
    for batch in batches:
        yield pa.RecordBatch.from_pylist([result(row) for row in batch.to_pylist()], schema=schema)


def result(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the result row of a spec row; figures that the experiment does not have are null."""
    point = Point(*(spec[name] for name in Point._fields))
    return {**point._asdict(), "trial": spec["trial"], **run_trial(point, spec["trial"], spec["seed"])}


def dynamics_summary(results: "DataFrame") -> "DataFrame":
    """Return mean and half a 95 % confidence interval of every figure, per point; of trials that have the figure."""
    from pyspark.sql import functions as F  # noqa: N812

    figures = []
    for name in FIGURES:
        many = F.when(F.count(name) > 1, F.count(name))  # of one trial, or none, there is no interval: null
        half = _student(many - 1) * F.stddev_samp(name) / F.sqrt(many)
        figures += [F.avg(name).alias(name), half.alias(f"{name}_ci")]
    return results.groupBy(*Point._fields).agg(F.count("*").alias("runs"), *figures).orderBy(*Point._fields)


def _student(freedom: Any) -> Any:
    """Return Student's t for 95 %, to the second digit: these points have few trials."""
    from pyspark.sql import functions as F  # noqa: N812

    few = {1: 12.71, 2: 4.30, 3: 3.18, 4: 2.78}
    t = 1.96 + 2.37 / freedom + 2.82 / freedom**2 + 2.55 / freedom**3  # the expansion in 1 / freedom
    for at, exact in few.items():
        t = F.when(freedom == at, F.lit(exact)).otherwise(t)
    return t
