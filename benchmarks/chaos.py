"""Chaos (`make chaos`): clusters of six durable sites under load; their processes killed with -9, stopped, cut off.

Every protocol, with each of the promises it keeps, so many kills in all; everything is judged. Two clusters at a time.

Run: python benchmarks/chaos.py [--protocol NAME] [--kills 50] [--seed 0]
"""

import argparse
import asyncio
import multiprocessing
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from ordercast.protocols.deployment import MACHINES
from ordercast.testing.chaos import OPTIONS, troubled
from results import record, table

BROKEN = ("lost", "doubled", "out of order", "damaged", "stuck")
HEAD = ["kill", "restart", "stop", "links cut", "readers away", "checkpoints", "messages", "deliveries", "excused"]
Job = tuple[str, str, int, int]


def jobs(protocols: list[str], kills: int, seed: int) -> Iterator[Job]:
    """Share the kills of each protocol among its promises."""
    for protocol in protocols:
        options = OPTIONS[:2] if protocol == "two-phase" else OPTIONS
        for index, option in enumerate(options):
            share = len(range(index, kills, len(options)))
            if share:
                yield protocol, option, share, seed + index


def trial(job: Job) -> tuple[str, Counter[str]]:
    """Run one cluster; return what happened, and what was broken."""
    protocol, options, kills, seed = job
    folder = Path(tempfile.mkdtemp(prefix="ordercast-chaos-"))
    chaos = troubled(folder, protocol, options, seed)
    asyncio.run(chaos.run(kills))
    verdict, counts = chaos.verdict(), chaos.counts
    found = Counter({name: len(examples) for name, examples in verdict.items()}) + counts
    found["links cut"] = counts["cut"] + counts["hold"]
    found["readers away"] = counts["pause"] + counts["resume"]
    found["checkpoints"] = chaos.words()["history.checkpoint"]
    found["messages"], found["excused"] = len(chaos.book.attempts), chaos.book.excused
    found["deliveries"] = sum(map(len, chaos.book.logs.values()))
    what = f"{protocol}, {options.splitlines()[0]}, seed {seed}"
    if any(verdict.values()):
        print(f"broken: {what}: { {name: examples[:3] for name, examples in verdict.items() if examples} }")
        print(f"what is left of it: {folder}", flush=True)
    else:
        shutil.rmtree(folder)
    print(f"{what}: {kills} kills, {found['messages']} messages, {found['deliveries']} deliveries", flush=True)
    return protocol, found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--protocol", choices=sorted(MACHINES))
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    begun = time.monotonic()
    protocols = [asked.protocol] if asked.protocol else list(MACHINES)
    total: dict[str, Counter[str]] = {protocol: Counter() for protocol in protocols}
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for protocol, found in pool.imap_unordered(trial, jobs(protocols, asked.kills, asked.seed)):
            total[protocol].update(found)
    rows: list[list[object]] = [
        [name, *(f"{found[column]:,}" for column in (*HEAD, *BROKEN))] for name, found in total.items()
    ]
    lines = table(["protocol", *HEAD, *BROKEN], rows)
    if asked.protocol is None and asked.kills >= 50:
        told = (
            "Six durable sites (one in no group), five overlapping groups, a sender and a reader at each site; 30 % of"
            " the messages go to several groups; a checkpoint every 4 KiB. Each protocol runs with level acyclic and a"
            " declared union, with level total, and with causal order where it keeps it; judged is what it declares."
            " *Excused*: taken without a receipt by a site that was killed before it wrote them (docs/live.md)."
            f" {time.monotonic() - begun:.0f} s in all."
        )
        record("Chaos: kill -9 under load", "python benchmarks/chaos.py", [*lines, "", told])
    else:
        print("\n".join(lines))
    return 1 if any(found[name] for found in total.values() for name in BROKEN) else 0


if __name__ == "__main__":
    sys.exit(main())
