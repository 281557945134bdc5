"""The live system on the workload everything is compared on (`ordercast bench`), several times, and the record of it.

Run: python -m benchmarks.live [WORKLOAD.toml] [--runs 3]
"""

import argparse
import sys
from pathlib import Path

from benchmarks.results import record, table

from ordercast.bench.live import measure, read_workload

WORKLOAD = Path(__file__).parent / "workloads" / "overlap-8.toml"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workload", type=Path, nargs="?", default=WORKLOAD)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    workload = read_workload(asked.workload)
    rows: list[list[object]] = []
    wrong = 0
    for durable, batch, messages in ((False, None, 1_200_000), (True, None, 1_200_000), (False, 1, 120_000)):
        runs = [measure(workload, durable=durable, messages=messages, batch=batch) for _ in range(asked.runs)]
        wrong += sum(not (run["order_ok"] and run["complete"]) for run in runs)
        runs.sort(key=lambda run: int(run["deliveries_per_s"]))
        middle = runs[len(runs) // 2]
        speeds = f"{middle['deliveries_per_s']:,} ({runs[0]['deliveries_per_s']:,} to {runs[-1]['deliveries_per_s']:,})"
        late = [sorted(float(run[name]) for run in runs)[len(runs) // 2] for name in ("p50_ms", "p99_ms")]
        name = f"{'durable' if durable else 'not durable'}{', batch 1' if batch else ''}"
        rows.append([name, speeds, *late, middle["cpu_s_per_100k"], middle["rss_mib"], "yes" if not wrong else "NO"])
        print(rows[-1], flush=True)
    head = ["", "deliveries/s (range)", "p50 ms", "p99 ms", "CPU s per 100 k", "largest process MiB", "verified"]
    told = (
        f"{asked.workload.name}: 8 site and 4 sender processes, loopback TCP, median of {asked.runs} runs; latency to "
        "the last member at 500 messages/s; order (acyclic) and completeness verified on what the receivers recorded."
    )
    record("Live: the workload on TCP", "python -m benchmarks.live", [*table(head, rows), "", told])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
