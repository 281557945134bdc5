"""Chaos for groups that change (`make chaos`): all protocols, policies and deliveries, on real processes.

Sites are killed with -9, stopped for longer than it takes to suspect them, restarted, cut off, replaced, fill or lose
their disks; groups are created, deleted, joined and left meanwhile. Everything is judged. Three clusters at a time.

Run: python -m benchmarks.changing_chaos [--kills 19] [--changes 10] [--protocol NAME] [--seed 0]
"""

import argparse
import asyncio
import multiprocessing
import shutil
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.results import record, table
from tests.support.changing_chaos import ChangingChaos

from ordercast.names import Delivery, Policy
from ordercast.protocols.registry import MACHINES

TITLE = "Chaos: groups that change"
HEAD = [
    "kill", "restart", "stop", "lose", "full", "replace", "cut", "one way", "slow", "change", "refused", "unanswered",
    "messages", "deliveries", "rolled back", "roving", "moved", "began again",
]  # fmt: skip
AT_ONCE = 3  # clusters; much of the time they wait
Job = tuple[str, Policy, Delivery, int, int, int]


def trial(job: Job) -> tuple[str, Counter[str]]:
    """Run one cluster; return what happened, and how much was broken."""
    protocol, policy, delivery, kills, changes, seed = job
    folder = Path(tempfile.mkdtemp(prefix="ordercast-chaos-"))
    level = ("acyclic", "total")[seed % 2]
    causal = seed % 3 == 0 and delivery is Delivery.SAFE and protocol in ("propagation", "sequencer", "timestamp")
    chaos = ChangingChaos(folder, protocol, policy, delivery, seed, level, causal=causal)
    asyncio.run(chaos.run(kills, changes))
    found, broken = Counter(chaos.counts), chaos.findings()
    found["messages"] = len(chaos.judge.sends)
    found["deliveries"] = sum(len(application.log) for application in chaos.judge.applications.values())
    found["broken"] = len(broken)
    what = f"{protocol} {policy} {delivery} {level}{' causal' if causal else ''}, seed {seed}"
    print(f"{what}: {found['kill']} kills, {found['change']} changes, {found['deliveries']} deliveries", flush=True)
    if broken:
        (folder / "broken.txt").write_text("\n".join(f"{name}: {says}" for name, says in broken))
        print(f"broken: {what}: {broken[:3]}; what is left of it: {folder}", flush=True)
    else:
        shutil.rmtree(folder)
    return f"{policy}, {delivery}", found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--protocol", choices=sorted(MACHINES))
    parser.add_argument("--kills", type=int, default=19)
    parser.add_argument("--changes", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    protocols = [asked.protocol] if asked.protocol else list(MACHINES)
    kinds = [(name, policy, delivery) for name in protocols for policy in Policy for delivery in Delivery]
    jobs = [(*kind, asked.kills, asked.changes, asked.seed + index) for index, kind in enumerate(kinds)]
    total: dict[str, Counter[str]] = {}
    with multiprocessing.get_context("spawn").Pool(AT_ONCE) as pool:
        for name, found in pool.imap_unordered(trial, jobs):
            total.setdefault(name, Counter()).update(found)
    total["all"] = sum(total.values(), Counter[str]())
    rows: list[list[object]] = [
        [name, *(f"{found[column]:,}" for column in (*HEAD, "broken"))] for name, found in total.items()
    ]
    told = (
        f"Five sites, four groups and those that are created, {len(protocols)} protocols, levels acyclic and total,"
        " causal order where it is kept; a sender and an application with a state at each site,"
        " a fifth of the messages to two groups, a checkpoint every 4 KiB, suspect_after 0.6 s."
        " *Unanswered*: asked of a site that died. *Full*: a disk with room for little more, until the site ends."
        " *Replace*: removed, and added again with an empty disk. *Roving*: messages of clients of no site in"
        " particular, each waited for until it is safe; they read everything too, *moved* so often to another site, and"
        " *began again* at the beginning when no site could go on where they were; under `available` only with `safe`."
    )
    if asked.protocol is None and asked.kills >= 4:
        record(
            TITLE,
            "python -m benchmarks.changing_chaos",
            [*table(["policy, delivery", *HEAD, "broken"], rows), "", told],
        )
    else:
        print("\n".join(table(["policy, delivery", *HEAD, "broken"], rows)))
    return 1 if total["all"]["broken"] else 0


if __name__ == "__main__":
    sys.exit(main())
