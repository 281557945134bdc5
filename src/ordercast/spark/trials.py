"""GS88's experiments as Monte Carlo trials: one spec row in, result rows out; and the protocols, in the simulator.

A trial is a plain function of its key: sites, groups, size, distribution, number. A rerun gives the same tables, on any
number of machines. GS88 §4.1: groups are drawn uniformly; every curve is a mean over many random families.
"""

import gc
import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from ordercast.core.effects import Send
from ordercast.core.events import Control, Message
from ordercast.membership.table import Membership
from ordercast.names import ClassRule, Level, Planner, SiteId
from ordercast.planning.central import central
from ordercast.planning.classes import class_labels
from ordercast.planning.cost import two_phase_load
from ordercast.planning.forest import ClassGraph, Forest
from ordercast.planning.metagroup_tree import metagroup
from ordercast.planning.planners import plan_forest
from ordercast.planning.propagation_graph import literal_greedy
from ordercast.planning.request import Budget, Request
from ordercast.sim.network import Network
from ordercast.sim.scenario import Scenario, deploy, run
from ordercast.sim.world import World
from ordercast.spark.pieces import refused
from ordercast.spark.session import Spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SITES = (20, 50, 100, 200, 300, 400, 600, 800, 1000)
SIZES = (5, 10, 15, 20, 25, 30, 35, 40)
GROUPS = (10, 20, 30, 40)
DISTRIBUTIONS = ("fixed", "exponential")
BEST_STEPS = 4_000
BATCH_ROWS = 5_000
PROTOCOLS = (
    "propagation, greedy", "propagation, best", "propagation, central", "two-phase", "timestamp", "sequencer",
    "arrow", "combining", "hybrid",
)  # fmt: skip
FIGURES = ("depth", "extra", "load")
RESULT = "sites int, groups int, size int, distribution string, trial int, method string, " + ", ".join(
    f"{name} double" for name in FIGURES
)
PROTOCOL_RESULT = "protocol string, trial int, n double, d double, bytes double, load double, loaded_delay double"


class Cell(NamedTuple):
    """A point on the horizontal axis of a curve."""

    sites: int
    groups: int
    size: int
    distribution: str


def cells(graphs: tuple[int, ...]) -> list[Cell]:
    """Return the points of these graphs: 1, 3, 4 vary the sites at size 5; 2, 5 vary the size at 200 sites."""
    found = set()
    for distribution in DISTRIBUTIONS:
        for groups in GROUPS:
            if {1, 3, 4} & set(graphs):
                found |= {Cell(sites, groups, 5, distribution) for sites in SITES}
            if {2, 5} & set(graphs):
                found |= {Cell(200, groups, size, distribution) for size in SIZES}
    return sorted(found)


def family(cell: Cell, seed: tuple[int, ...]) -> Membership:
    """Draw a random family of groups; exponential sizes have the cell's size as their mean, and at least one member."""
    chance = np.random.default_rng(seed)
    sizes = np.full(cell.groups, cell.size)
    if cell.distribution == "exponential":
        sizes = np.clip(np.rint(chance.exponential(cell.size, cell.groups)), 1, cell.sites).astype(np.int64)
    members = [np.sort(chance.permutation(cell.sites)[:size]) for size in sizes]
    used, flat = np.unique(np.concatenate(members), return_inverse=True)
    ptr = np.concatenate([[0], np.cumsum([len(own) for own in members])]).astype(np.int64)
    names = tuple(f"g{index:02}" for index in range(cell.groups))
    return Membership(tuple(f"s{site:04}" for site in used), names, ptr, flat.astype(np.int32))


def trial(cell: Cell, number: int, seed: int, best: bool) -> Iterator[tuple[Any, ...]]:
    """Run one trial: every method on the same family."""
    with suppress(ImportError):
        import numba  # noqa: F401 - a worker runs thousands of trials: its loops are compiled
    key = (seed, *cell[:3], DISTRIBUTIONS.index(cell.distribution), number)
    membership = family(cell, key)
    graph = ClassGraph.of(membership, class_labels(membership, ClassRule.S1))
    forests: dict[str, Forest] = {
        "greedy": literal_greedy(graph),
        "metagroup": metagroup(graph),
        "central": central(graph),
        "greedy, level total": literal_greedy(ClassGraph.of(membership, class_labels(membership, ClassRule.S2))),
    }
    if best:
        for name, level in (("best", Level.ACYCLIC), ("best, level total", Level.TOTAL)):
            forests[name] = plan_forest(membership, Request(level=level, budget=Budget(steps=BEST_STEPS))).forest
    for method, forest in forests.items():
        yield (*cell, number, method, float(forest.depth.mean()), float(forest.extra.mean()), float(forest.load.max()))
    yield (*cell, number, "two-phase", 1.0, 0.0, float(two_phase_load(membership).max()))


def _run(batches: Iterator[Any]) -> Iterator[Any]:
    names = [part.split(" ")[0] for part in RESULT.split(", ")]
    kinds = [pa.int32()] * 3 + [pa.string(), pa.int32(), pa.string()] + [pa.float64()] * len(FIGURES)
    gc.freeze()  # what Spark's worker has loaded is no garbage: not looking at it again saves a tenth of a trial
    rows: list[tuple[Any, ...]] = []
    for batch in batches:
        for row in batch.to_pylist():
            cell = Cell(row["sites"], row["groups"], row["size"], row["distribution"])
            for number in range(row["first"], row["first"] + row["many"]):
                rows += trial(cell, number, row["seed"], number < row["best"])
            if len(rows) >= BATCH_ROWS:
                yield _as_batch(rows, names, kinds)
                rows = []
    if rows:
        yield _as_batch(rows, names, kinds)


def _as_batch(rows: list[tuple[Any, ...]], names: list[str], kinds: list[Any]) -> Any:
    arrays = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def run_trials(spark: Spark, wanted: list[Cell], runs: int, best: int, seed: int = 0) -> "DataFrame":
    """Return the results of so many trials of every cell; `best` of them run the search too (fixed sizes only)."""
    specs = []
    for cell in wanted:
        searched = best if cell.distribution == "fixed" else 0
        size = max(1, min(25, runs))
        for first in range(0, runs, size):
            specs.append((*cell, first, min(size, runs - first), searched, seed))
    random.Random(0).shuffle(specs)  # cells cost very differently: every task gets some of each
    schema = "sites int, groups int, size int, distribution string, first int, many int, best int, seed int"
    tasks = min(len(specs), 16 * spark.context.defaultParallelism)  # enough for a smooth bar
    frame = spark.sql.createDataFrame(spark.context.parallelize(specs, tasks), schema)
    return frame.mapInArrow(_run, RESULT)


def summary(results: "DataFrame") -> "DataFrame":
    """Return mean and half a 95 % confidence interval of every figure, per cell and method."""
    from pyspark.sql import functions as F  # noqa: N812

    figures = []
    for name in FIGURES:
        figures += [F.avg(name).alias(name), (1.96 * F.stddev_samp(name) / F.sqrt(F.count("*"))).alias(f"{name}_ci")]
    keys = ("sites", "groups", "size", "distribution", "method")
    return results.groupBy(*keys).agg(F.count("*").alias("runs"), *figures).orderBy(*keys)


# Protocols, in the simulator.


class Weighed(World):
    """Counts the bytes that the papers' messages take as msgpack."""

    weight = 0

    def _send(self, sender: SiteId, send: Send, on_network: dict[Message, float]) -> None:
        if not isinstance(send.message, Control):
            self.weight += len(msgspec.msgpack.encode(send.message))
        super()._send(sender, send, on_network)


def protocol_trial(protocol: str, number: int, seed: int) -> tuple[Any, ...]:
    """Send one message to each of twelve groups, alone, then two hundred close together."""
    name, _, planner = protocol.partition(", ")
    members = family(Cell(40, 12, 5, "fixed"), (seed, number))
    network = Network(latency=10.0, processing=1.0)
    scenario = Scenario(members, name, Planner(planner or "greedy"), senders=4, seed=number, network=network)
    deployment = deploy(scenario)
    sent = delay = size = 0.0
    load: dict[str, int] = {}
    for group in members.groups:
        world = Weighed(deployment, number, network, tick=1e6)
        world.multicast(0.0, deployment.groups.sources[0], (group,), bytes(100))
        world.run(until=1e5)
        outcome = world.outcome
        sent += outcome.messages
        size += world.weight
        delay += max(d.time for d in outcome.deliveries)
        for site, messages in outcome.load.items():
            load[site] = load.get(site, 0) + messages
    patience = 200_000.0  # swaps acknowledge what they hand on, tick by tick, long after the last delivery
    busy = run(replace(scenario, plan=deployment.plan, messages=200, span=2000.0, tick=100.0, patience=patience))
    assert busy.ok, (protocol, number)
    begun = {envelope.msg_id: at for envelope, at, _ in busy.outcome.sent}
    took = [d.time - begun[d.envelope.msg_id] for d in busy.outcome.deliveries]
    many = len(members.groups)
    return (protocol, number, sent / many, delay / many, size / many, float(max(load.values())), float(np.mean(took)))


def table_1(runs: int, seed: int) -> list[tuple[str, float, float]]:
    """Return (protocol, N, D) by GS88 table 1; depth and extra nodes are those of these trials' plans."""
    size, latency, processing = 5, 10.0, 1.0
    found = [
        ("two-phase", 3.0 * size, 3 * latency + (2 * size + 1) * processing),
        ("propagation, central", float(size), 2 * latency + size * processing),
    ]
    for planner in (Planner.GREEDY, Planner.BEST):
        costs = [
            deploy(
                Scenario(family(Cell(40, 12, size, "fixed"), (seed, number)), planner=planner, senders=4, seed=number)
            )
            for number in range(runs)
        ]
        plans = [cost.plan.cost for cost in costs if cost.plan is not None]
        depth, extra = (float(np.mean([getattr(p, name) for p in plans])) for name in ("mean_depth", "mean_extra"))
        found.append((f"propagation, {planner}", size + extra, (depth + 1) * latency + (size + extra) * processing))
    return found


def _run_protocols(batches: Iterator[Any]) -> Iterator[Any]:
    names = [part.split(" ")[0] for part in PROTOCOL_RESULT.split(", ")]
    kinds = [pa.string(), pa.int32()] + [pa.float64()] * 5
    for batch in batches:
        yield _as_batch(
            [protocol_trial(row["protocol"], row["trial"], row["seed"]) for row in batch.to_pylist()], names, kinds
        )


def run_protocols(spark: Spark, runs: int, seed: int = 0) -> "DataFrame":
    """Return N, D, bytes, load and delay under load of every protocol, trial by trial."""
    rows = [(protocol, number, seed) for number in range(runs) for protocol in PROTOCOLS]
    schema = "protocol string, trial int, seed int"
    frame = spark.sql.createDataFrame(spark.context.parallelize(rows, min(len(rows), 32)), schema)
    return frame.mapInArrow(_run_protocols, PROTOCOL_RESULT)


def protocol_summary(results: "DataFrame") -> "DataFrame":
    """Return mean and half a 95 % confidence interval of every figure, per protocol."""
    from pyspark.sql import functions as F  # noqa: N812

    figures = []
    for name in ("n", "d", "bytes", "load", "loaded_delay"):
        figures += [F.avg(name).alias(name), (1.96 * F.stddev_samp(name) / F.sqrt(F.count("*"))).alias(f"{name}_ci")]
    return results.groupBy("protocol").agg(F.count("*").alias("runs"), *figures).orderBy("protocol")


def collected(frame: "DataFrame") -> Any:
    """Bring a summary to the driver."""
    try:
        return frame.toArrow()
    except Exception as error:
        raise refused(error) from None
