"""The random campaign (`make sim`): seeds x machines x mixes of faults, judges on; a failure prints its replay.

Run: python -m benchmarks.campaign [--seeds 2000] [--kind propagation] [--causal] [--mix faults] [--first 0] [--rotate]

With `--changes` groups change and sites fail (docs/protocols/epochs.md): all protocols, policies, deliveries in turn.
With `--nodes` whole sites run, with disks, clients and connections: each seed under a protocol and a mix in turn, or
under those asked for. With both, whole sites run while their groups change.
"""

import argparse
import sys
import time
from concurrent.futures import ProcessPoolExecutor

from benchmarks.results import record, table
from tests.support import changing_campaign, epoch_campaign, node_campaign
from tests.support.campaign import KINDS, MIXES, Kind, scenario

from ordercast.sim import changing, changing_nodes, faults
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


def batch_of_nodes(kind: Kind | None, mix: str | None, first: int, count: int) -> list[tuple[str, int, int, str]]:
    """Run some seeds of the campaign of nodes; return the protocol, events, deliveries and what failed, of each."""
    rows = []
    for seed in range(first, first + count):
        its_kind, its_mix = node_campaign.turn(seed)
        its_kind, its_mix = kind or its_kind, mix or its_mix
        verdict = faults.run(node_campaign.case(its_kind, its_mix, seed))
        broken = "" if verdict.ok else f"{node_campaign.replay(its_kind, its_mix, seed)}  # {verdict.findings[0]}"
        rows.append((_name(its_kind), verdict.events, verdict.delivered, broken))
    return rows


def _name(kind: Kind) -> str:
    return kind[0] + (", causal" if kind[1] else "")


def run_nodes(kind: Kind | None, mix: str | None, first: int, seeds: int) -> int:
    """Run the campaign of nodes."""
    begun, step = time.perf_counter(), 10
    with ProcessPoolExecutor(2) as pool:
        starts = range(first, first + seeds, step)
        jobs = [pool.submit(batch_of_nodes, kind, mix, start, min(step, first + seeds - start)) for start in starts]
        runs = [row for job in jobs for row in job.result()]
    rows: list[list[object]] = []
    for name in dict.fromkeys(row[0] for row in runs):
        own = [row for row in runs if row[0] == name]
        events, deliveries = sum(row[1] for row in own), sum(row[2] for row in own)
        rows.append([name, len(own), f"{events:,}", f"{deliveries:,}", sum(bool(row[3]) for row in own)])
        print(rows[-1])
    failures = [row[3] for row in runs if row[3]]
    print(*failures[:20], sep="\n")
    if kind is None and mix is None:
        head = ["protocol", "worlds", "events", "messages judged", "broken"]
        mixes = ", ".join(node_campaign.ALL_MIXES)
        told = f"Each seed in turn under one of {mixes}; {time.perf_counter() - begun:.0f} s."
        command = f"python -m benchmarks.campaign --nodes --seeds {seeds}"
        record("Campaign: nodes under faults", command, [*table(head, rows), "", told])
    return 1 if failures else 0


def batch_of_changing_nodes(first: int, count: int) -> list[tuple[str, int, int, str]]:
    """Run some seeds of the campaign of changing nodes; return what ran, events, messages, and what failed, of each."""
    rows = []
    for seed in range(first, first + count):
        kind = epoch_campaign.kind_of(seed)
        found, ran = changing_nodes.run(changing_campaign.case(seed))
        command = f"python -m benchmarks.campaign --changes --nodes --first {seed} --seeds 1"
        name = f"{kind.protocol}, {kind.policy}, {kind.delivery}{', causal' if kind.causal else ''}"
        failed = f"{command}  # {found[0]}" if found else ""
        rows.append((name, ran.world.events, len(ran.world.ledger.attempts), failed))
    return rows


def batch_of_changes(first: int, count: int) -> list[tuple[str, int, int, str]]:
    """Run some seeds of the campaign of changes; return what ran, events, messages, and what failed, of each."""
    rows = []
    for seed in range(first, first + count):
        kind = epoch_campaign.kind_of(seed)
        found, world = changing.judge(epoch_campaign.case(seed))
        again = f"python -m benchmarks.campaign --changes --first {seed} --seeds 1  # {found[0]}" if found else ""
        name = f"{kind.protocol}, {kind.policy}, {kind.delivery}{', causal' if kind.causal else ''}"
        rows.append((name, world.events, len(world.judge.sends), again))
    return rows


def run_changes(first: int, seeds: int, *, nodes: bool) -> int:
    """Run the campaign of changes, of participants or of whole nodes."""
    batch = batch_of_changing_nodes if nodes else batch_of_changes
    begun, step = time.perf_counter(), 50
    later = seeds // 5 if first == 0 else 0  # of the kinds that came later
    parts = [(first, first + seeds - later), (epoch_campaign.LATER, epoch_campaign.LATER + later)]
    with ProcessPoolExecutor(2) as pool:
        starts = [(start, min(step, last - start)) for begin, last in parts for start in range(begin, last, step)]
        jobs = [pool.submit(batch, *start) for start in starts]
        runs = [row for job in jobs for row in job.result()]
    rows: list[list[object]] = []
    for name in sorted({row[0].partition(",")[0] for row in runs}):
        own = [row for row in runs if row[0].partition(",")[0] == name]
        events, sent = sum(row[1] for row in own), sum(row[2] for row in own)
        rows.append([name, len(own), f"{events:,}", f"{sent:,}", sum(bool(row[3]) for row in own)])
        print(rows[-1])
    failures = [row[3] for row in runs if row[3]]
    print(*failures[:20], sep="\n")
    if seeds >= 1000:
        head = ["protocol", "worlds", "events", "messages sent", "broken"]
        told = f"All policies, deliveries and causal options in turn; {time.perf_counter() - begun:.0f} s."
        command = f"python -m benchmarks.campaign --changes{' --nodes' if nodes else ''} --seeds {seeds}"
        title = "Campaign: nodes whose groups change" if nodes else "Campaign: groups that change, sites that fail"
        record(title, command, [*table(head, rows), "", told])
    return 1 if failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=2000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--kind")
    parser.add_argument("--causal", action="store_true")
    parser.add_argument("--mix", choices=sorted({*MIXES, *node_campaign.ALL_MIXES}))
    parser.add_argument("--nodes", action="store_true", help="worlds of nodes, not of machines")
    parser.add_argument("--changes", action="store_true", help="groups that change and sites that fail")
    parser.add_argument("--rotate", action="store_true", help="each seed under one mix in turn, not under all")
    asked = parser.parse_args()
    if asked.changes:
        return run_changes(asked.first, asked.seeds, nodes=asked.nodes)
    if asked.nodes:
        kind = None if asked.kind is None else (asked.kind, asked.causal)
        return run_nodes(kind, asked.mix, asked.first, asked.seeds)
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
            name = _name(kind)
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
