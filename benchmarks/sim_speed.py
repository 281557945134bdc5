"""Speed of the simulator with judges on, and its memory over a long run: 32 sites, 12 groups of mean size 6.

Run: python -m benchmarks.sim_speed [--events 10000000]
"""

import argparse
import random
import resource
import sys
import time

from benchmarks.results import record, table

from ordercast.membership.table import Membership
from ordercast.protocols.registry import MACHINES
from ordercast.sim.scenario import Scenario, Verdict, deploy, judge
from ordercast.sim.workload import uniform
from ordercast.sim.world import World


def simulate(protocol: str, messages: int) -> tuple[Verdict, float]:
    """Run and judge; return the CPU seconds, without planning."""
    chance = random.Random(1)
    sites = [f"s{index:02}" for index in range(32)]
    members = Membership.of({f"g{i:02}": chance.sample(sites, chance.randint(4, 8)) for i in range(12)})
    deployment = deploy(Scenario(members, protocol, senders=8))
    world = World(deployment, keep=False)
    world.feed(uniform(world.chance, deployment.groups, messages, messages / 4, 0.1))
    begun = time.process_time()
    verdict = judge(world)
    return verdict, time.process_time() - begun


def peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000_000)
    asked = parser.parse_args()
    rows: list[list[object]] = []
    kept = True
    for protocol in MACHINES:
        best = 0.0
        for _ in range(3):
            verdict, seconds = simulate(protocol, 10_000)
            best = max(best, verdict.outcome.events / seconds)
            kept &= verdict.ok
        rows.append([protocol, f"{verdict.outcome.events:,}", f"{verdict.outcome.delivered:,}", f"{best:,.0f}", ""])
        print(rows[-1], flush=True)
    before = peak_mib()
    verdict, seconds = simulate("propagation", int(asked.events / 12.7))
    kept &= verdict.ok
    events, delivered = verdict.outcome.events, verdict.outcome.delivered
    grown = f"{before} MiB before, {peak_mib()} MiB after"
    rows.append(["propagation, long run", f"{events:,}", f"{delivered:,}", f"{events / seconds:,.0f}", grown])
    head = ["machine", "machine events", "deliveries judged", "events/s (best of 3)", "peak memory"]
    told = "One core, CPU seconds of the run with its judges; every promise judged while the run goes on."
    record("Simulator speed", "python -m benchmarks.sim_speed", [*table(head, rows), "", told])
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
