"""Chaos (`make chaos`): six durable sites as processes under load, killed with -9, restarted, stopped, cut off; judged.

Run: python benchmarks/chaos.py [--faults 420] [--seed 0] [--kinds kill,cut]
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
import time
from pathlib import Path

from ordercast.testing.chaos import Chaos
from results import record, table


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=420)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kinds", default="kill,kill,kill,kill,restart,stop,cut,hold")
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="ordercast-chaos-"))
    chaos = Chaos(folder, asked.seed)
    begun = time.perf_counter()
    asyncio.run(chaos.run(asked.faults, tuple(asked.kinds.split(","))))
    seconds = time.perf_counter() - begun
    verdict = chaos.verdict()
    broken = {name: example for name, example in verdict.items() if example is not None}
    deliveries = sum(len(log) for log in chaos.logs.values())
    if broken:
        print(f"broken: {broken}\nlogs: {folder}\nagain: python benchmarks/chaos.py --seed {asked.seed}")
    else:
        shutil.rmtree(folder)
    rows: list[list[object]] = [
        ["kill -9 and restart", chaos.kills],
        ["SIGTERM and restart", chaos.restarts],
        ["SIGSTOP and SIGCONT", chaos.stops],
        ["links cut, or held one way, and healed", chaos.cuts],
        ["messages attempted", f"{len(chaos.attempted):,}"],
        ["acknowledged (ordered or safe)", f"{len(chaos.acknowledged):,}"],
        ["deliveries judged", f"{deliveries:,}"],
        ["client connections lost and made again", f"{chaos.lost_connections:,}"],
        ["lost, doubled, out of order", len(broken)],
        ["seconds", f"{seconds:.0f}"],
    ]
    if asked.faults >= 200:
        told = "Six durable sites, five overlapping groups, a sender and a reader at each site; acyclic order judged."
        record("Chaos: kill -9 under load", "python benchmarks/chaos.py", [*table(["", ""], rows), "", told])
    else:
        print(rows)
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
