"""Every interleaving of small cases, for each machine: how many states, and how fast.

Run: python -m benchmarks.exploration
"""

import sys
import time

from benchmarks.results import record, table
from tests.support.campaign import DENSE, EXPLORED, RING, small_case

from ordercast.protocols.registry import MACHINES
from ordercast.sim.explorer import Explorer


def main() -> int:
    rows: list[list[object]] = []
    broken = 0
    cases = [("ring", RING, {}), ("dense", DENSE, {}), *(("pair", RING, faults) for faults in EXPLORED[1:])]
    for protocol in MACHINES:
        for name, groups, faults in cases:
            begun = time.process_time()
            explored = Explorer(small_case(protocol, faults, groups)).run()
            seconds = time.process_time() - begun
            kept = explored.complete and not explored.findings
            broken += not kept
            fault = next(iter(faults), "none")
            speed = f"{explored.states / seconds:,.0f}"
            rows.append(
                [protocol, name, fault, f"{explored.states:,}", explored.ends, speed, "kept" if kept else "BROKEN"]
            )
            print(rows[-1], flush=True)
    head = ["machine", "case", "faults", "states", "ends", "states/s", "declared level"]
    told = (
        f"ring: {RING}, dense: {DENSE}, both with 4 sites and 4 messages (a to A, a to A+B, d to C, d to A); "
        "pair: A=ab, B=abc, 3 messages (a to A, b to A+B, b to A), one fault at any point, "
        "crashes between any two effects. CPU seconds, one core."
    )
    record("Explorer: every interleaving", "python -m benchmarks.exploration", [*table(head, rows), "", told])
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
