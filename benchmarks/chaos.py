"""Chaos (`make chaos`): clusters of six durable sites under load; their processes killed with -9, stopped, cut off.

Every protocol, with each of the promises it keeps, so many kills in all; everything is judged. Two clusters at a time.
With `--protocol` its row of the table is written again.

Run: python -m benchmarks.chaos [--protocol NAME] [--kills 50] [--seed 0]
"""

import argparse
import asyncio
import multiprocessing
import pickle
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from benchmarks.results import RESULTS, record, table
from tests.support.chaos import options_of, troubled

from ordercast.protocols.registry import MACHINES

BROKEN = ("lost", "doubled", "out of order", "damaged", "stuck")
TITLE = "Chaos: kill -9 under load"
HEAD = ["kill", "restart", "stop", "links cut", "readers away", "checkpoints", "messages", "deliveries", "excused"]
Job = tuple[str, str, int, int]


def jobs(protocols: list[str], kills: int, seed: int) -> Iterator[Job]:
    """Share the kills of each protocol among its promises."""
    for protocol in protocols:
        options = options_of(protocol)
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
        (folder / "book.pickle").write_bytes(pickle.dumps(chaos.book))
        print(f"what is left of it: {folder}", flush=True)
    else:
        shutil.rmtree(folder)
    print(f"{what}: {kills} kills, {found['messages']} messages, {found['deliveries']} deliveries", flush=True)
    return protocol, found


def rows_before() -> dict[str, list[str]]:
    """Return the rows of the table as they were written before, by protocol."""
    section = RESULTS.read_text("utf-8").partition(f"## {TITLE}\n")[2].partition("\n## ")[0]
    cells = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("| ")]
    return {row[0]: row[1:] for row in cells if row[0] in MACHINES and len(row) == 1 + len(HEAD) + len(BROKEN)}


def lines_of(rows: dict[str, list[str]]) -> list[str]:
    """Return the table, in the order of the machines."""
    return table(["protocol", *HEAD, *BROKEN], [[name, *rows[name]] for name in MACHINES if name in rows])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--protocol", choices=sorted(MACHINES))
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    protocols = [asked.protocol] if asked.protocol else list(MACHINES)
    total: dict[str, Counter[str]] = {protocol: Counter() for protocol in protocols}
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for protocol, found in pool.imap_unordered(trial, jobs(protocols, asked.kills, asked.seed)):
            total[protocol].update(found)
    rows = {name: [f"{found[column]:,}" for column in (*HEAD, *BROKEN)] for name, found in total.items()}
    if asked.kills >= 50:
        rows = rows_before() | rows
        told = (
            "Six durable sites (one in no group), five overlapping groups, a sender and a reader at each site; 30 % of"
            " the messages go to several groups; a checkpoint every 4 KiB. Each protocol runs with level acyclic and a"
            " declared union, with level total, and with causal order where it keeps it, propagation and"
            " sequencer with bodies that go another way, too, sequencer with groups ordered alone; judged is what it"
            " declares."
            " *Excused*: taken without a receipt by a site that was killed before it wrote them (docs/live.md)."
            " A row is of the last run of its protocol: with `--protocol` it is written again alone."
        )
        record(TITLE, "python -m benchmarks.chaos", [*lines_of(rows), "", told])
    else:
        print("\n".join(lines_of(rows)))
    return 1 if any(found[name] for found in total.values() for name in BROKEN) else 0


if __name__ == "__main__":
    sys.exit(main())
