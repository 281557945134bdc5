"""Audit and plan of large tables on Spark, beside DuckDB doing the same work in one run; CPU seconds of all processes.

Run: python -m benchmarks.spark_tables [--rows 100000000] [--small 10000000] [--what audit,plan]
Every column is consumed; nothing is counted that an optimiser could drop. One core each: two hyperthreads of one core
would count every second twice.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from benchmarks.results import record, table
from tests.support.members import write_members

from ordercast.audit.verdict import audit
from ordercast.names import Planner
from ordercast.planning.request import Request
from ordercast.runs.writer import write_table
from ordercast.spark.planning import plan_tables
from ordercast.spark.session import Spark, session
from ordercast.spark.source import SparkSource

TICKS = os.sysconf("SC_CLK_TCK")


def tree_cpu() -> float:
    """Return the CPU seconds of this process and all below it, those that ended included."""
    parents, used = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            used[int(entry.name)] = sum(int(fields[at]) for at in (11, 12, 13, 14))
    own, frontier = set[int](), {os.getpid()}
    while frontier:
        own |= frontier
        frontier = {pid for pid, parent in parents.items() if parent in frontier} - own
    return sum(used[pid] for pid in own if pid in used) / TICKS


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    cpu, wall = tree_cpu(), time.perf_counter()
    made = work()
    return made, tree_cpu() - cpu, time.perf_counter() - wall


def write_log(
    folder: Path,
    rows: int,
    sites: int = 50,
    groups: int = 40,
    size: int = 10,
    *,
    sources: int = 100,
    parts: int = 1,
    stamped: bool = True,
) -> None:
    """Write a clean log: every site's deliveries in so many files of its own."""
    random = np.random.default_rng(0)
    members = [np.sort(random.permutation(sites)[:size]) for _ in range(groups)]
    messages = rows // size
    group = random.integers(groups, size=messages).astype(np.int32)
    source = random.integers(sources, size=messages).astype(np.int32)
    by_source = np.argsort(source, kind="stable")
    begin = np.cumsum(np.bincount(source, minlength=sources)) - np.bincount(source, minlength=sources)
    number = np.empty(messages, np.int64)
    number[by_source] = np.arange(messages) - begin[source[by_source]] + 1
    client = pa.array([f"client-{one:02d}" for one in range(sources)])
    clients = pa.DictionaryArray.from_arrays(pa.array(source), client)
    names = pa.array([f"group-{one:02d}" for one in range(groups)])
    sender = clients.cast(pa.string())
    msg_id = pc.binary_join_element_wise(sender, pa.array(number).cast(pa.string()), ":")
    stamp = np.stack([np.ones(messages, np.int64), np.arange(messages)], axis=1).astype(">u8")
    for name in ("sends", "deliveries", "membership"):
        (folder / name).mkdir(parents=True)
    of = pa.DictionaryArray.from_arrays(pa.array(group), names)
    sends = {"msg_id": msg_id, "group": of.cast(pa.string()), "source": sender, "source_seq": pa.array(number)}
    write_table(pa.table(sends), folder / "sends" / "part-0.parquet", row_group_size=1_000_000)
    pairs = [(f"site-{s:02d}", f"group-{g:02d}") for g, own in enumerate(members) for s in own]
    belongs = pa.table([list(column) for column in zip(*pairs, strict=True)], names=["site", "group"])
    write_table(belongs, folder / "membership" / "part-0.parquet")
    for site in range(sites):
        own = np.flatnonzero(np.isin(group, [g for g, inside in enumerate(members) if site in inside]))
        rows_here, at = len(own), pa.array(own)
        given = pa.FixedSizeBinaryArray.from_buffers(
            pa.binary(16), rows_here, [None, pa.py_buffer(stamp[own].tobytes())]
        ).cast(pa.binary())
        previous = pa.concat_arrays([pa.array([None], pa.binary()), given[:-1]]) if rows_here else given
        columns = {
            "site": pa.array([f"site-{site:02d}"]).take(pa.array(np.zeros(rows_here, np.int32))),
            "position": pa.array(np.arange(rows_here)),
            "msg_id": msg_id.take(at),
            "group": of.take(at).cast(pa.string()),
            "source": sender.take(at),
            "source_seq": pa.array(number[own]),
            "epoch": pa.array(np.ones(rows_here, np.int64)),
            "delivered_at": pa.array(own * 1e-6),
            "order_class": pa.array(["group-00"]).take(pa.array(np.zeros(rows_here, np.int32))),
            "stamp": given,
            "prev_stamp": previous,
        }
        own_log = pa.table(columns)
        if not stamped:
            own_log = own_log.drop_columns(["order_class", "stamp", "prev_stamp"])
        for part in range(parts):
            path = folder / "deliveries" / f"site-{site:02d}-{part:06d}.parquet"
            cut = -(-rows_here // parts)
            write_table(own_log.slice(part * cut, cut), path, row_group_size=500_000)


FOLD = """
create or replace table folded as
select site, "group", source, count(*) n, bit_xor(hash(msg_id, "group", source, source_seq)) x1,
       bit_xor(hash(msg_id, "group", source, source_seq, 1)) x2, bit_xor(hash(msg_id, stamp)) xs,
       bit_xor(hash(position, msg_id)) sequence, min(position) p0, max(position) p1, min(source_seq) s0,
       max(source_seq) s1, min(epoch) e0, max(epoch) e1, count_if(prev_stamp >= stamp) bad,
       bit_xor(hash(order_class, stamp)) here, bit_xor(hash(order_class, prev_stamp)) prev
from '{0}/deliveries/*.parquet' group by all;
create or replace table sent as
select "group", source, count(*) n, bit_xor(hash(msg_id, "group", source, source_seq)) x1,
       bit_xor(hash(msg_id, "group", source, source_seq, 1)) x2 from '{0}/sends/*.parquet' group by all;
select sum(f.n), count_if(f.x1 <> s.x1 or f.x2 <> s.x2 or f.n <> s.n), sum(bad), bit_xor(xs), bit_xor(sequence),
       sum(p0 + p1 + s0 + s1 + e0 + e1), bit_xor(here), bit_xor(prev)
from folded f join sent s using ("group", source);
"""
ORDER = """
select sum(cast(wrong as int)), sum(cast(lie as int)), sum(cast(fifo as int)) from (
  select stamp <= lag(stamp) over log wrong, prev_stamp is distinct from lag(stamp) over log lie,
         source_seq < lag(source_seq) over sender fifo
  from '{0}/deliveries/*.parquet'
  window log as (partition by site, order_class order by position),
         sender as (partition by site, "group", source order by position));
"""
SIGN = """
create or replace table signed as select site, bit_xor(hash("group")) h1, bit_xor(hash("group", 1)) h2, count(*) k
from '{0}/*.parquet' group by site;
create or replace table metas as select h1, h2, k, count(*) n, min(site) meta from signed group by h1, h2, k;
create or replace table reps as select m.site, m."group", n from '{0}/*.parquet' m join metas on m.site = metas.meta;
select count(*), sum(n), min(site), max("group") from reps;
"""


def duck(sql: str, folder: Path) -> Any:
    with duckdb.connect() as engine:
        engine.execute("set threads = 1")
        return engine.execute(sql.format(folder)).fetchone()


def audits(spark: Spark, folder: Path, rows: int) -> tuple[list[object], float]:
    write_log(folder, rows)
    verdict, cpu, wall = timed(lambda: audit(SparkSource(spark, str(folder)), "acyclic"))
    assert verdict.ok, verdict.as_json()
    many = verdict.deliveries
    fold, fold_cpu, _ = timed(lambda: duck(FOLD, folder))
    assert fold[0] == many and fold[1] == fold[2] == 0, fold
    _, order_cpu, _ = timed(lambda: duck(ORDER, folder)) if rows <= 20_000_000 else (None, float("nan"), 0.0)
    shutil.rmtree(folder)
    row = [f"audit, {many:,} deliveries", f"{cpu:.1f}", f"{many / cpu / 1e6:.2f}", f"{wall:.1f}", f"{fold_cpu:.1f}"]
    exact = fold_cpu + order_cpu
    both = ["", ""] if exact != exact else [f"{exact:.1f}", f"{cpu / exact:.2f}"]  # noqa: PLR0124 - not measured
    return [*row, f"{cpu / fold_cpu:.2f}", *both], cpu


def plans(spark: Spark, folder: Path, rows: int) -> tuple[list[object], float]:
    import ordercast.spark.planning as job

    write_members(folder, rows)
    forest: dict[str, float] = {}
    original = job._planned

    def planned(*arguments: Any) -> Any:
        made, forest["cpu"], _ = timed(lambda: original(*arguments))
        return made

    job._planned = planned  # type: ignore[assignment]
    made, cpu, wall = timed(lambda: plan_tables(spark, str(folder), Request(planner=Planner.ELIMINATION)))
    job._planned = original
    cpu -= forest["cpu"]
    many = made.memberships
    _, duck_cpu, _ = timed(lambda: duck(SIGN, folder))
    shutil.rmtree(folder)
    name = f"plan, {many:,} memberships, {len(made.metas):,} meta-groups (forest {forest['cpu']:.1f} apart)"
    row = [name, f"{cpu:.1f}", f"{many / cpu / 1e6:.2f}", f"{wall:.1f}", f"{duck_cpu:.1f}", f"{cpu / duck_cpu:.2f}"]
    return [*row, "", ""], cpu


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000_000)
    parser.add_argument("--small", type=int, default=10_000_000)
    parser.add_argument("--what", default="audit,plan")
    asked = parser.parse_args()
    rows: list[list[object]] = []
    growth = []
    root = Path(tempfile.mkdtemp(prefix="ordercast-tables-"))
    try:
        with session("benchmark", "local[1]") as spark:
            for what in asked.what.split(","):
                work = {"audit": audits, "plan": plans}[what]
                work(spark, root / "warm", 4_000_000)
                small, cpu_small = work(spark, root / "small", asked.small)
                print(small, flush=True)
                large, cpu_large = work(spark, root / "large", asked.rows)
                print(large, flush=True)
                rows += [small, large]
                growth.append(f"{what} {cpu_large / cpu_small:.1f} x for {asked.rows / asked.small:.0f} x the rows")
    finally:
        shutil.rmtree(root, ignore_errors=True)
    head = ["", "Spark CPU s", "M rows/s/core", "wall s", "DuckDB CPU s", "ratio", "with exact order", "ratio"]
    told = f"In one warm session, JVM and workers counted; growth: {', '.join(growth)}. Driver heap 2 GB."
    told += " DuckDB's fold trusts prev_stamp; ours compares every stamp with the one before it (last columns:"
    told += " DuckDB with windows for that, too)."
    record("Spark: audit and plan of large tables", "python -m benchmarks.spark_tables", [*table(head, rows), "", told])
    return 0


if __name__ == "__main__":
    sys.exit(main())
