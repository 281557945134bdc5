"""Sizes at which the driver was the limit: audit and plan on Spark with a heap of 2 GB, and what memory they take.

Run: python -m benchmarks.spark_sizes [--what sites,sources,files,unstructured,islands,many] [--scale 1.0]
Every case runs in a process of its own, at a tenth of its size and at its size. On local[2] executors share the heap
of the driver's JVM; their Python workers have memory of their own, which is shown too.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from benchmarks.results import record, table
from benchmarks.spark_tables import tree_cpu, write_log
from numpy.typing import NDArray

from ordercast.audit.verdict import audit
from ordercast.names import Planner
from ordercast.planning.request import Request
from ordercast.runs.writer import write_table
from ordercast.spark.planning import plan_tables
from ordercast.spark.session import Spark, session
from ordercast.spark.source import SparkSource

FILE_ROWS = 2_000_000
SIZES = {
    "sites": (5_000_000, "audit, {0[sites]:,} sites, {0[groups]:,} groups, {0[rows]:,} deliveries"),
    "sources": (10_000_000, "audit, {0[sources]:,} sources, {0[rows]:,} deliveries"),
    "unstamped": (10_000_000, "audit without stamps, {0[rows]:,} deliveries"),
    "files": (10_000, "audit, {0[files]:,} files, {0[rows]:,} deliveries"),
    "unstructured": (5_000_000, "plan, {0[sites]:,} sites in random groups ({0[groups]:,}), {0[rows]:,} memberships"),
    "islands": (
        40_000_000,
        "plan, {0[sites]:,} sites, {0[groups]:,} groups, islands, {0[rows]:,} memberships",
    ),
    "many": (5_000_000, "plan, {0[sites]:,} sites, {0[groups]:,} groups, {0[rows]:,} memberships"),
}
"""How large each case is, and how its row of the table is called."""
Numbers = NDArray[np.int64]


def named(letter: str, numbers: Numbers) -> Any:
    """Return numbers as names of one length."""
    digits = np.char.zfill(numbers.astype("U8"), 8)
    return pa.array(np.char.add(letter, digits))


def names(letter: str, many: int) -> Any:
    return pa.concat_arrays([named(letter, np.arange(at, min(at + 500_000, many))) for at in range(0, many, 500_000)])


def many_groups(groups: int, hub: bool) -> tuple[Numbers, Numbers, int]:
    """Return pairs of site and group: two sites in each group; `hub`: a site in 2 % of all, a group of half of them."""
    random = np.random.default_rng(0)
    sites = max(groups * 2 // 5, 4)
    one = random.integers(sites, size=groups)
    other = (one + 1 + random.integers(sites - 1, size=groups)) % sites
    group = np.arange(groups)
    if not hub:
        return np.concatenate([one, other]), np.concatenate([group, group]), sites
    beside = np.flatnonzero((one != 0) & (other != 0))[: groups // 50]
    large = np.arange(sites // 2) * 2 + 1
    site = np.concatenate([one, other, np.zeros(len(beside), np.int64), large])
    return site, np.concatenate([group, group, beside, np.full(len(large), groups)]), sites


def write_rows(folder: Path, name: str, rows: int, part: Callable[[Any], dict[str, Any]]) -> None:
    (folder / name).mkdir(parents=True)
    for at in range(0, rows, FILE_ROWS):
        where = np.arange(at, min(at + FILE_ROWS, rows))
        write_table(pa.table(part(where)), folder / name / f"{at:012}.parquet", row_group_size=500_000)


def write_sites(folder: Path, groups: int) -> dict[str, int]:
    """Write a stamped log of two messages to each group, with a hub of a site and a hub of a group."""
    site, group, sites = many_groups(groups, hub=True)
    every = groups + 1
    site_name, group_name, source_name = names("s", sites), names("g", every), names("c", every)
    write_rows(folder, "membership", len(site), lambda at: {"site": site_name.take(pa.array(site[at])), "group": group_name.take(pa.array(group[at]))})  # fmt: skip # noqa: E501
    key = np.concatenate([site * 2 * every + group, site * 2 * every + group + every])  # by site, then by message
    key.sort()
    site, message = key // (2 * every), key % (2 * every)
    begin = np.zeros(sites + 1, np.int64)
    np.cumsum(np.bincount(site, minlength=sites), out=begin[1:])

    def sent(message: Numbers) -> dict[str, Any]:
        group, number = message % every, message // every + 1
        source = source_name.take(pa.array(group))
        ids = pa.compute.binary_join_element_wise(source, pa.array(number).cast(pa.string()), ":")
        return {"msg_id": ids, "group": group_name.take(pa.array(group)), "source": source, "source_seq": number}

    def delivered(at: Numbers) -> dict[str, Any]:
        own = message[at]
        stamps = np.stack([np.ones(len(at), np.int64), own], axis=1).astype(">u8").tobytes()
        stamp = pa.FixedSizeBinaryArray.from_buffers(pa.binary(16), len(at), [None, pa.py_buffer(stamps)])
        one = pa.array(["all"]).take(pa.array(np.zeros(len(at), np.int32)))
        where = {"site": site_name.take(pa.array(site[at])), "position": at - begin[site[at]]}
        return where | sent(own) | {"order_class": one, "stamp": stamp.cast(pa.binary())}

    write_rows(folder, "sends", 2 * every, sent)
    write_rows(folder, "deliveries", len(key), delivered)
    return {"sites": sites, "groups": every, "rows": len(key)}


def write_unstructured(folder: Path, rows: int, island: int = 0) -> dict[str, int]:
    """Write a membership in which hardly any two sites have the same groups; `island`: how many hang together."""
    random = np.random.default_rng(0)
    sites, groups = max(rows // 5, 10), max(rows // 50, 5)
    site = np.repeat(np.arange(sites), 5)
    group = random.integers(island or groups, size=5 * sites)
    if island:
        group += site * groups // sites // island * island
    key = np.unique(site * groups + np.minimum(group, groups - 1))
    return write_members(folder, key // groups, key % groups)


def write_many(folder: Path, groups: int) -> dict[str, int]:
    """Write a membership of many small groups."""
    site, group, _ = many_groups(groups, hub=False)
    order = np.lexsort((group, site))
    return write_members(folder, site[order], group[order])


def write_members(folder: Path, site: Numbers, group: Numbers) -> dict[str, int]:
    site_name, group_name = names("s", int(site.max()) + 1), names("g", int(group.max()) + 1)
    write_rows(folder, ".", len(site), lambda at: {"site": site_name.take(pa.array(site[at])), "group": group_name.take(pa.array(group[at]))})  # fmt: skip # noqa: E501
    return {"sites": len(np.unique(site)), "groups": len(np.unique(group)), "rows": len(site)}


def prepared(what: str, folder: Path, size: int) -> dict[str, int]:
    """Write the tables of a case; returns what they count."""
    match what:
        case "sites":
            return write_sites(folder, size)
        case "sources":
            write_log(folder, size, sources=max(size // 100, 1))
            return {"sources": max(size // 100, 1), "rows": size}
        case "unstamped":
            write_log(folder, size, stamped=False)
            return {"rows": size}
        case "files":
            write_log(folder, 20 * size, parts=max(size // 50, 1))
            return {"files": len(list((folder / "deliveries").iterdir())), "rows": 20 * size}
        case "unstructured" | "islands":
            return write_unstructured(folder, size, 2_000 if what == "islands" else 0)
    return write_many(folder, size)


def run_case(what: str, folder: Path) -> dict[str, float]:
    """Run a case in this process; returns what it took."""
    before, begun = tree_cpu(), time.perf_counter()
    watched: dict[int, int] = {}
    done = threading.Event()
    watcher = threading.Thread(target=watch, args=(watched, done), daemon=True)
    watcher.start()
    with session("sizes", "local[2]", ["spark.driver.memory=2g"]) as spark:
        done_with(what, spark, folder)
        cpu, wall = tree_cpu() - before, time.perf_counter() - begun
        done.set()
        watcher.join()
        java = max(watched.items(), key=lambda one: one[1] if is_java(one[0]) else 0)[0]
        workers = [memory for pid, memory in watched.items() if pid not in (java, os.getpid())]
    own = watched[os.getpid()]
    return {"cpu": cpu, "wall": wall, "jvm": watched[java] / 1024, "driver": own / 1024, "worker": max(workers) / 1024}


def done_with(what: str, spark: Spark, folder: Path) -> None:
    if what in ("unstructured", "islands", "many"):
        made = plan_tables(spark, str(folder), Request(planner=Planner.ELIMINATION))
        assert made.memberships > 0
        return
    verdict = audit(SparkSource(spark, str(folder)), "acyclic")
    assert verdict.ok, verdict.as_json()


def is_java(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "java"
    except OSError:
        return False


def watch(watched: dict[int, int], done: threading.Event) -> None:
    """Note the peak of resident memory, in KiB, of this process and all below it."""
    while not done.wait(0.5):
        parents, peaks = {}, {}
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                told = dict(line.split(":", 1) for line in status.read_text().splitlines())
            except OSError:
                continue
            pid = int(status.parent.name)
            parents[pid] = int(told["PPid"])
            peaks[pid] = int(told.get("VmHWM", "0 kB").split()[0])
        own = {os.getpid()}
        while more := {pid for pid, parent in parents.items() if parent in own} - own:
            own |= more
        for pid in own & peaks.keys():
            watched[pid] = max(peaks[pid], watched.get(pid, 0))


def measured(what: str, size: int) -> tuple[dict[str, int], dict[str, float]]:
    """Write the tables of a case and run it in a process of its own."""
    root = Path(tempfile.mkdtemp(prefix="ordercast-sizes-"))
    try:
        told = prepared(what, root / "run", size)
        command = [sys.executable, "-m", "benchmarks.spark_sizes", "--case", what, "--folder", str(root / "run")]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{what} {size}: {done.stderr[-3000:]}")
        return told, json.loads(done.stdout.splitlines()[-1])
    finally:
        shutil.rmtree(root, ignore_errors=True)


def tell(rows: list[list[object]], arguments: str) -> None:
    """Rewrite the table; its rows say how large they are."""
    head = ["", "CPU s", "x", "wall s", "JVM MiB", "Python driver MiB", "largest worker MiB"]
    below = "local[2], JVM heap 2 GB in all (spark.driver.memory=2g); the start of Spark is included, some 10 CPU s."
    below += " Memory: peaks of what was resident. x: CPU s beside those of a tenth of the size."
    record("Spark: sizes", f"python -m benchmarks.spark_sizes {arguments}", [*table(head, rows), "", below])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--what", default=",".join(SIZES))
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--case")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    if asked.case:
        print(json.dumps(run_case(asked.case, asked.folder)))
        return 0
    rows: list[list[object]] = []
    for what in asked.what.split(","):
        size, name = SIZES[what]
        begun = 0.0
        for part in (0.1, 1.0):
            told, took = measured(what, int(size * part * asked.scale))
            growth = f"{took['cpu'] / begun:.1f}" if begun else ""
            begun = took["cpu"]
            memory = [f"{took[one]:,.0f}" for one in ("jvm", "driver", "worker")]
            rows.append([name.format(told), f"{took['cpu']:.0f}", growth, f"{took['wall']:.0f}", *memory])
            print(rows[-1], flush=True)
    tell(rows, f"--what {asked.what} --scale {asked.scale:g}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
