"""Spark's stream of what sites deliver: rows a second, and kills of Spark and of the site in mid-batch.

Run: python -m benchmarks.streams [--rows 2000000] [--kills 100]
Every row is written to files by Spark's own sink, and compared with what the site has: nothing lost, nothing twice.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from benchmarks.results import record, table
from tests.support.processes import Processes

from ordercast.client.client import connect
from ordercast.client.sync import connect as connect_sync

GROUPS = {"x": ["a", "b", "c"], "y": ["a", "b", "c"]}
LINES = ('policy = "available"', "limits.retain_messages = 100000000")
POSTS = 64  # under way


async def send(address: str, many: int, every: float = 0.0) -> None:
    """Send so many messages of 100 bytes, 500 in a post; `every`: seconds between two posts."""
    async with connect(address) as client:
        waiting: set[asyncio.Task[Any]] = set()
        for first in range(0, many, 500):
            group = "y" if first // 500 % 4 == 3 else "x"
            bodies = [b"%099d" % number for number in range(first, min(many, first + 500))]
            waiting.add(asyncio.create_task(client.multicast_many(group, bodies, ack="safe")))
            await asyncio.sleep(every)
            if len(waiting) >= POSTS:
                _, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*waiting)


def session() -> Any:
    """Return a quiet session of two cores."""
    from pyspark.sql import SparkSession

    from ordercast.spark import register
    from ordercast.spark.session import find_java

    os.environ["JAVA_HOME"] = find_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    made = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").config("spark.log.level", "OFF")
    made = made.config("spark.sql.shuffle.partitions", "2").config("spark.ui.showConsoleProgress", "false")
    spark = made.config("spark.sql.execution.arrow.maxRecordsPerBatch", "100000").getOrCreate()
    register(spark)
    return spark


def query(spark: Any, addresses: str, rows: int, folder: Path) -> Any:
    """Return a stream of a site into Parquet files, as it is not yet started."""
    source = spark.readStream.format("ordercast").options(addresses=addresses, maxRowsPerBatch=rows).load()
    kept = source.select("site", "position", "msg_id", "group", "source_seq", "stamp", "body")
    sink = kept.writeStream.format("parquet").option("path", str(folder / "rows"))
    return sink.option("checkpointLocation", str(folder / "offsets"))


def rate(folder: Path, rows: int) -> dict[str, float]:
    """Read so many rows of one site; the first batch warms up."""
    with Processes(folder, GROUPS, *LINES) as cluster:
        asyncio.run(send(cluster.clients["a"], rows))
        spark = session()
        running = query(spark, cluster.clients["a"], 400_000, folder).trigger(availableNow=True).start()
        running.awaitTermination()
        told = [one for one in running.recentProgress if one["numInputRows"]]
    warm = told[1:]
    spent = sum(one["durationMs"]["triggerExecution"] for one in warm) / 1000
    return {
        "rows": sum(one["numInputRows"] for one in told),
        "rows_per_s": sum(one["numInputRows"] for one in warm) / spent,
        "first_s": told[0]["durationMs"]["triggerExecution"] / 1000,
        "batch_s": spent / len(warm),
    }


def read_on(addresses: str, folder: Path) -> None:
    """Be a program that reads the stream until it is killed."""
    query(session(), addresses, 20_000, folder).trigger(processingTime="200 milliseconds").start().awaitTermination()


def kills(folder: Path, many: int, seed: int = 0) -> dict[str, int]:
    """Kill Spark, or the site that is read, again and again while messages come; then compare."""
    chance = random.Random(seed)
    with Processes(folder, GROUPS, *LINES, "suspect_after = 1.0") as cluster:
        addresses = f"{cluster.clients['a']},{cluster.clients['b']}"
        command = [sys.executable, "-m", "benchmarks.streams", "--read-on", addresses, "--folder", str(folder)]
        sender = subprocess.Popen([sys.executable, "-m", "benchmarks.streams", "--send-on", cluster.clients["c"]])
        reader = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        count: Counter[str] = Counter()
        for number in range(many):
            before = batches(folder)
            while batches(folder) < before + 1 + chance.randrange(3) and reader.poll() is None:
                time.sleep(0.05)
            time.sleep(chance.uniform(0.0, 0.5))
            if number % 3 == 0 or reader.poll() is not None:
                count["Spark"] += reader.poll() is None
                count["Spark had ended"] += reader.poll() is not None
                reader.kill()
                reader.wait()
                reader = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            else:
                site = "ab"[number % 2]
                cluster.kill(site)
                count["site"] += 1
                time.sleep(chance.choice([0.0, 0.5, 4.0]))
                cluster.start(site)
                cluster.wait(site)
            print(f"{number + 1} kills, {batches(folder)} batches", flush=True)
        sender.send_signal(signal.SIGTERM)
        sender.wait()
        wanted = names(cluster.clients["c"])  # it was never killed
        until = time.monotonic() + 300
        while time.monotonic() < until and sum(found(folder).values()) < len(wanted):
            time.sleep(2.0)
        reader.kill()
        reader.wait()
        have = found(folder)
    lost, twice = len(wanted - have.keys()), sum(many > 1 for many in have.values())
    return {**count, "batches": batches(folder), "rows": len(wanted), "lost": lost, "twice": twice,
            "strange": len(have.keys() - wanted)}  # fmt: skip


def batches(folder: Path) -> int:
    """Return how many batches are done; Spark keeps the last hundred by their numbers."""
    return 1 + max((int(path.name) for path in (folder / "offsets" / "commits").glob("[0-9]*")), default=-1)


def found(folder: Path) -> Counter[str]:
    """Return the messages that the sink has, by its own list of files."""
    files: set[str] = set()
    for log in (folder / "rows" / "_spark_metadata").glob("[0-9]*"):
        for line in log.read_text().splitlines()[1:]:
            files.add(json.loads(line)["path"].removeprefix("file://"))
    return Counter(name for path in files for name in pq.read_table(path, columns=["msg_id"])["msg_id"].to_pylist())


def names(address: str) -> set[str]:
    """Return the messages that a site has delivered."""
    with connect_sync(address) as client:
        many, before = client.status()["delivered"], -1
        while many != before:  # what was posted last is still on its way
            time.sleep(2.0)
            many, before = client.status()["delivered"], many
        client.join(after=-1)
        read: set[str] = set()
        for lot in client.lots():
            read.update(f"{one.source}:{one.number}" for one in lot.messages()) if lot.source else None
            if lot.last + 1 >= many:
                return read
    return read


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--read-on")
    parser.add_argument("--send-on")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    if asked.read_on:
        read_on(asked.read_on, asked.folder)
        return
    if asked.send_on:
        asyncio.run(send(asked.send_on, 10**9, every=0.25))
        return
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        if asked.rows:
            told = rate(Path(one), asked.rows)
            rows.append(["rows read from one site", f"{told['rows']:,}"])
            rows.append(["rows a second, Spark's own work and files included", f"{told['rows_per_s']:,.0f}"])
            rows.append(
                ["the first batch, a batch of 400,000 later, s", f"{told['first_s']:.1f}, {told['batch_s']:.1f}"]
            )
        if asked.kills:
            for name, value in kills(Path(other), asked.kills).items():
                rows.append([f"kills: {name}", f"{value:,}"])
    told_below = (
        "Three sites as processes, durable, policy available, 100-byte messages, 500 in a post; Spark local[2] on the"
        " same two cores, into Parquet. Kills: kill -9 of Spark (it starts again from its checkpoint), or of a site"
        " that is read, in mid-batch, while messages come; then every row is compared with the log of a third site."
    )
    record("Spark: the stream of a site", "python -m benchmarks.streams", [*table(["", ""], rows), "", told_below])


if __name__ == "__main__":
    main()
