"""The random campaign (`make sim`): seeds x machines x mixes of faults, judges on; a failure prints its replay.

Run: python -m benchmarks.campaign [--seeds 2000] [--kind propagation] [--causal] [--mix faults] [--first 0] [--rotate]
"""

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from benchmarks.results import record, table
from tests.support.campaign import KINDS, MIXES, Kind, scenario

from ordercast.sim.scenario import run


def batch(kind: Kind, mix: str | None, first: int, count: int) -> tuple[int, int, list[str]]:
    """Run some seeds, without a mix each under the next one; return events, deliveries, a line for each that failed."""
    events = deliveries = 0
    failed = []
    turn = mix is None
    for seed in range(first, first + count):
        mix = MIXES[seed % len(MIXES)] if turn else mix
        assert mix is not None
        verdict = run(scenario(kind, mix, seed))
        events += verdict.outcome.events
        deliveries += verdict.outcome.delivered
        if not verdict.ok:
            broken = next(f"{name}: {example}" for name, example in verdict.findings.items() if example)
            causal = " --causal" if kind[1] else ""
            again = f"--kind {kind[0]}{causal} --mix {mix} --first {seed} --seeds 1"
            failed.append(f"python -m benchmarks.campaign {again}  # {broken}")
    return events, deliveries, failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kind")
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--mix", choices=MIXES)
    parser.add_argument("--rotate", action="store_true", help="each seed under one mix in turn, not under all")
    asked = parser.parse_args()
    kinds = [kind for kind in KINDS if asked.kind is None or kind == (asked.kind, asked.causal)]
    rows: list[list[object]] = []
    failures: list[str] = []
    with ProcessPoolExecutor(2) as pool:
        for kind in kinds:
            begun = time.perf_counter()
            step, last = 50, asked.first + asked.seeds
            jobs = [
                pool.submit(batch, kind, mix, first, min(step, last - first))
                for mix in ([None] if asked.rotate else MIXES)
                if asked.rotate or asked.mix in (None, mix)
                for first in range(asked.first, last, step)
            ]
            results = [job.result() for job in jobs]
            failures += [line for _, _, failed in results for line in failed]
            name = kind[0] + (", causal" if kind[1] else "")
            events, deliveries = sum(r[0] for r in results), sum(r[1] for r in results)
            broken = sum(len(r[2]) for r in results)
            seconds = time.perf_counter() - begun
            mixes = 1 if asked.mix or asked.rotate else len(MIXES)
            rows.append([name, asked.seeds * mixes, f"{events:,}", f"{deliveries:,}", broken, f"{seconds:.0f}"])
            print(rows[-1], flush=True)
    for line in failures[:20]:
        print(line)
    if asked.kind is None and asked.mix is None:
        head = ["machine", "runs", "machine events", "deliveries judged", "broken", "s"]
        command = f"python -m benchmarks.campaign --seeds {asked.seeds}{' --rotate' if asked.rotate else ''}"
        how = "in turn under one of" if asked.rotate else "under"
        told = f"Each seed {how} {', '.join(MIXES)}, several-group messages in all; "
        told += "every promise judged, nothing left held."
        record("Campaign: machines under faults", command, [*table(head, rows), "", told])
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
