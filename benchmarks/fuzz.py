"""Mutated frames and damaged histories, many of them (`make chaos`).

Run: python -m benchmarks.fuzz [--frames 1000000] [--files 100000] [--seed 0]
"""

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.results import record, table
from tests.support.damage import fuzz_history
from tests.support.fuzz import fuzz_frames


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    rows: list[list[object]] = []
    with tempfile.TemporaryDirectory(prefix="ordercast-fuzz-") as folder:
        begun = time.perf_counter()
        frames = asyncio.run(fuzz_frames(Path(folder), asked.frames, asked.seed))
        took = time.perf_counter() - begun
        rows.append(["mutated frames", f"{frames['frames']:,}", f"{frames['refused']:,}", f"{took:.0f}"])
        print(rows[-1], flush=True)
        begun = time.perf_counter()
        files = fuzz_history(Path(folder), asked.files, asked.seed)
        took = time.perf_counter() - begun
        rows.append(["damaged histories", f"{files['files']:,}", f"{files['refused']:,}", f"{took:.0f}"])
    head = ["", "tried", "refused by name", "s"]
    told = "What was not refused was taken for exactly what it is; no crash, no hang, no wrong delivery."
    record("Fuzz: frames and histories", "python -m benchmarks.fuzz", [*table(head, rows), "", told])
    return 0


if __name__ == "__main__":
    sys.exit(main())
