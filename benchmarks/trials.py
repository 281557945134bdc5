"""The experiment's trials on Spark beside a plain process pool: what Spark costs on top.

Run: python -m benchmarks.trials [--trials 200000]
"""

import argparse
import multiprocessing
import sys
import time

from benchmarks.results import record, table
from benchmarks.spark_tables import timed, tree_cpu

from ordercast.spark.session import session
from ordercast.spark.trials import Cell, run_trials, trial

CELLS = [
    Cell(20, 10, 5, "fixed"),
    Cell(50, 10, 5, "fixed"),
    Cell(20, 10, 5, "exponential"),
    Cell(50, 10, 5, "exponential"),
]


def chunk(asked: tuple[Cell, int, int]) -> list[float]:
    """Run some trials of a cell; every figure is looked at."""
    cell, first, many = asked
    return [sum(row[6:9]) for number in range(first, first + many) for row in trial(cell, number, 0, best=False)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200_000)
    each = parser.parse_args().trials // len(CELLS)
    chunks = [(cell, first, min(25, each - first)) for cell in CELLS for first in range(0, each, 25)]

    def pool() -> float:
        with multiprocessing.get_context("spawn").Pool(2) as workers:
            return sum(sum(part) for part in workers.imap_unordered(chunk, chunks, chunksize=20))

    total, pool_cpu, pool_wall = timed(pool)
    cpu, wall = tree_cpu(), time.perf_counter()
    with session("benchmark") as running:
        frame = run_trials(running, CELLS, each, 0)
        same = float(frame.selectExpr("sum(depth + extra + load) as total").collect()[0]["total"])
        spark_cpu, spark_wall = tree_cpu() - cpu, time.perf_counter() - wall  # while its processes are there
    assert abs(total - same) < 1e-6 * total, (total, same)
    rows: list[list[object]] = [
        ["process pool", f"{pool_cpu:.0f}", f"{pool_wall:.0f}", ""],
        ["Spark, its start included", f"{spark_cpu:.0f}", f"{spark_wall:.0f}", f"{spark_cpu / pool_cpu - 1:+.1%}"],
    ]
    told = f"{each * len(CELLS):,} trials of five methods each (20 and 50 sites, 10 groups), 2 cores."
    head = ["", "CPU s", "wall s", "more CPU"]
    record("Spark: trials beside a process pool", "python -m benchmarks.trials", [*table(head, rows), "", told])
    return 0


if __name__ == "__main__":
    sys.exit(main())
