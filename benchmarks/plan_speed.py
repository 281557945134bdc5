"""Speed of planning in one process: ten million memberships from Parquet to a forest; App. I against near-linear.

Run: python -m benchmarks.plan_speed
"""

import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.results import record, table

from ordercast import ClassRule, Membership, read_membership
from ordercast.planning.classes import class_labels
from ordercast.planning.forest import ClassGraph
from ordercast.planning.propagation_graph import greedy, literal_greedy

FULL = 10_000_000


def write_zipf(path: Path, memberships: int, sites: int, groups: int) -> None:
    """Write groups with Zipf sizes whose members are drawn uniformly, without repetition, in no particular order."""
    chance = np.random.default_rng(1)
    sizes = 1.0 / np.arange(1, groups + 1)
    sizes = np.minimum(np.maximum(sizes * memberships / sizes.sum(), 2), sites * 0.9).astype(int)
    sizes = np.minimum(np.maximum(sizes * (memberships / sizes.sum()), 2), sites * 0.9).astype(int)
    keys = []
    for group_index, size in enumerate(sizes):
        drawn = chance.permutation(sites)[:size] if size > sites // 50 else chance.integers(0, sites, size)
        keys.append(np.unique(drawn).astype(np.int64) * groups + group_index)
    key = np.concatenate(keys)
    chance.shuffle(key)
    site, group = key // groups, key % groups
    names = pa.array([f"site-{i:07}" for i in range(sites)])
    group_names = pa.array([f"group-{i:06}" for i in range(groups)])
    pq.write_table(pa.table({"site": names.take(pa.array(site)), "group": group_names.take(pa.array(group))}), path)


def measure(path: str) -> None:
    """Load, split into classes and plan once; print the seconds of each step. Runs in a process of its own."""
    begun = time.perf_counter()
    spent = {}

    def lap(name: str) -> None:
        nonlocal begun
        now = time.perf_counter()
        spent[name], begun = now - begun, now

    membership = read_membership(path)
    lap("load")
    labels = {}
    for rule in ClassRule:
        labels[rule] = class_labels(membership, rule)
        lap(rule)
    graph = ClassGraph.of(membership, labels[ClassRule.BLOCKS])
    forest = greedy(graph)
    lap("forest")
    assert (forest.entry >= 0).all()
    counts = {"memberships": len(membership), "classes": int(labels[ClassRule.BLOCKS].max()) + 1}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"spent": spent, "cpu": time.process_time(), "peak_gb": peak, **counts}))


def large(folder: Path) -> list[str]:
    rows: list[list[object]] = []
    totals = []
    for share in (0.5, 1.0, 2.0):
        path = folder / f"zipf-{share}.parquet"
        write_zipf(path, int(FULL * share), int(1_000_000 * share), int(100_000 * share))
        runs = []
        for _ in range(3):
            done = subprocess.run(
                ["taskset", "-c", "0", sys.executable, __file__, str(path)],
                capture_output=True, text=True, check=True, env=os.environ | {"NUMBA_NUM_THREADS": "1"},
            )  # fmt: skip
            runs.append(json.loads(done.stdout))
        run = min(runs, key=lambda r: sum(r["spent"].values()))
        spent = run["spent"]
        totals.append(sum(spent[k] for k in ("load", "blocks", "forest")))
        seconds = [f"{spent[k]:.2f}" for k in ("load", "s1", "s2", "blocks", "forest")]
        growth = f"{totals[-1] / totals[-2]:.2f} x" if len(totals) > 1 else ""
        peak = f"{run['peak_gb']:.2f}"
        rows.append([f"{run['memberships']:,}", f"{run['classes']:,}", *seconds, f"**{totals[-1]:.2f}**", growth, peak])
    head = [
        "memberships",
        "block classes",
        "load s",
        "s1 s",
        "s2 s",
        "blocks s",
        "forest s",
        "total s",
        "growth",
        "peak GB",
    ]
    told = "Total is load + blocks + forest, best of three, pinned to one core; growth is against half the input."
    return [*table(head, rows), "", told]


def small() -> list[str]:
    rows: list[list[object]] = []
    for groups, sites in ((320, 1600), (640, 3200), (1280, 6400)):
        chance = random.Random(groups)
        names = [f"s{i}" for i in range(sites)]
        membership = Membership.of({f"g{i}": chance.sample(names, 5) for i in range(groups)})
        graph = ClassGraph.of(membership, class_labels(membership, ClassRule.S1))
        slow, literal = _time(lambda graph=graph: literal_greedy(graph, intersecters_only=False), 1)
        fast, near = _time(lambda graph=graph: greedy(graph), 20)
        same = np.array_equal(literal.parent, near.parent) and np.array_equal(literal.entry, near.entry)
        rows.append([groups, sites, f"{slow * 1e3:.0f}", f"{fast * 1e3:.2f}", f"{slow / fast:.0f} x", same])
    return table(["groups", "sites", "App. I ms", "near-linear ms", "ratio", "same forest"], rows)


def _time(work, repeat: int):  # type: ignore[no-untyped-def]
    best = float("inf")
    for _ in range(repeat):
        begun = time.perf_counter()
        result = work()
        best = min(best, time.perf_counter() - begun)
    return best, result


def main() -> None:
    if len(sys.argv) > 1:
        measure(sys.argv[1])
        return
    command = "python -m benchmarks.plan_speed"
    record("Planning speed: App. I step by step against the near-linear greedy, groups of 5", command, small())
    with tempfile.TemporaryDirectory() as folder:
        record("Planning speed: Zipf group sizes, from Parquet to a forest", command, large(Path(folder)))


if __name__ == "__main__":
    main()
