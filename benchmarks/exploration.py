"""Every interleaving of small cases, for each machine: how many states, and how fast.

Run: python -m benchmarks.exploration

With `--markers`: a site goes to another meta-group (MGT §5) beside three messages.
With `--races`: every interleaving of changes at several sequencers that are asked for at once.
With `--changes`: every interleaving of each change, with every single fault in every moment.
With `--beside`: every interleaving of each change with a message.
"""

import argparse
import sys
import time
from concurrent.futures import Future, ProcessPoolExecutor

from benchmarks.results import record, table
from tests.support import change_cases
from tests.support.campaign import DENSE, EXPLORED, RING, small_case

from ordercast.names import Delivery, Planner, Policy
from ordercast.protocols.registry import MACHINES
from ordercast.sim import explore_changes
from ordercast.sim.explorer import Explorer

MOMENTS_AT_MOST = 6_000_000
RACES_AT_MOST = 6_000_000


def explore_change(change: str, protocol: str, turn: int, *, alone: bool) -> tuple[list[object], list[str]]:
    """Explore one change; return its row, and a line for everything that is wrong."""
    policy, delivery = list(Policy)[turn % 2], list(Delivery)[turn // 2 % 3]
    begun = time.process_time()
    case = change_cases.small(change, protocol, 3 if alone else 1, policy, delivery)
    explorer = explore_changes.Explorer(case, MOMENTS_AT_MOST, later=alone)
    explored = explorer.run(explore_changes.FAULTS if alone else ())
    wrong = [f"{change} {protocol} {policy} {delivery}: {what}: {says} | {path}" for what, says, path in explored.found]
    moments = f"{explored.moments:,}{'' if explored.whole else ' (limit)'}"
    faults = f"{sum(explored.faults.values()):,}" if alone else ""
    told = [change, protocol, f"{policy}, {delivery}"]
    return [*told, moments, explored.ends, faults, len(wrong), f"{time.process_time() - begun:.0f}"], wrong


def explore_race(name: str, sends: int, turn: int) -> tuple[list[object], list[str]]:
    """Explore changes at several sequencers that are asked for at once."""
    policy, delivery = list(Policy)[turn % 2], list(Delivery)[turn // 2 % 3]
    begun = time.process_time()
    explored = explore_changes.Explorer(change_cases.race(name, sends, policy, delivery), RACES_AT_MOST).run()
    wrong = [f"{name} {policy} {delivery}: {what}: {says} | {path}" for what, says, path in explored.found]
    moments = f"{explored.moments:,}{'' if explored.whole else ' (limit)'}"
    told = [name, f"{policy}, {delivery}", "alone" if not sends else "beside a message"]
    return [*told, moments, explored.ends, len(wrong), f"{time.process_time() - begun:.0f}"], wrong


def explore_marker(how: str, planner: Planner, turn: int) -> tuple[list[object], list[str]]:
    """Explore a site that goes to another meta-group, beside three messages."""
    policy, delivery = list(Policy)[turn % 2], list(Delivery)[turn % 3]
    begun = time.process_time()
    case = change_cases.marker(how, 3, planner, policy, delivery)
    explored = explore_changes.Explorer(case, MOMENTS_AT_MOST).run()
    wrong = [f"{how} {planner} {policy} {delivery}: {what}: {says} | {path}" for what, says, path in explored.found]
    moments = f"{explored.moments:,}{'' if explored.whole else ' (limit)'}"
    told = [f"a site {how}", planner, f"{policy}, {delivery}"]
    return [*told, moments, explored.ends, len(wrong), f"{time.process_time() - begun:.0f}"], wrong


def run_markers() -> int:
    """Explore all moves between meta-groups."""
    with ProcessPoolExecutor(2) as pool:
        planners = (Planner.ELIMINATION, Planner.METAGROUP)
        pairs = [(how, planner) for how in change_cases.MARKERS for planner in planners]
        jobs = [pool.submit(explore_marker, how, planner, turn) for turn, (how, planner) in enumerate(pairs)]
        rows, wrong = _results(jobs)
    head = ["change", "planner", "policy, delivery", "moments", "ends", "broken", "CPU s"]
    told = "Three sites in two groups, two meta-groups at most, three messages beside the change; protocol propagation."
    record("Explorer: markers", "python -m benchmarks.exploration --markers", [*table(head, rows), "", told])
    return 1 if wrong else 0


def _results(jobs: "list[Future[tuple[list[object], list[str]]]]") -> tuple[list[list[object]], list[str]]:
    """Wait for all, show each row when it is there, and the first of what is wrong."""
    rows, wrong = list[list[object]](), list[str]()
    for job in jobs:
        row, lines = job.result()
        rows.append(row)
        wrong += lines
        print(row, flush=True)
    print(*wrong[:10], sep="\n")
    return rows, wrong


def run_races() -> int:
    """Explore all races."""
    with ProcessPoolExecutor(2) as pool:
        names = enumerate(change_cases.RACES)
        jobs = [pool.submit(explore_race, name, sends, turn) for turn, name in names for sends in (0, 1)]
        rows, wrong = _results(jobs)
    head = ["race", "policy, delivery", "explored", "moments", "ends", "broken", "CPU s"]
    told = f"Three groups at two or three sequencers, three or four sites; at most {RACES_AT_MOST:,} moments each."
    record("Explorer: races of sequencers", "python -m benchmarks.exploration --races", [*table(head, rows), "", told])
    return 1 if wrong else 0


def run_changes(changes: list[str], *, alone: bool) -> int:
    """Explore these changes, each with each protocol."""
    with ProcessPoolExecutor(2) as pool:
        pairs = [(change, protocol) for change in changes for protocol in change_cases.PROTOCOLS]
        jobs = [
            pool.submit(explore_change, change, protocol, index // 4 + index, alone=alone)
            for index, (change, protocol) in enumerate(pairs)
        ]
        rows, wrong = _results(jobs)
    some = "" if changes == list(change_cases.CHANGES) else " ".join(("", *changes))
    if alone:
        told = (
            "Every interleaving of the change; in every moment each of "
            f"{', '.join(explore_changes.FAULTS)}, once, at each site or link it can happen to; three messages are sent"
            " in what follows, which runs on one schedule."
        )
        title, flag = f"Explorer: changes{some}", f"--changes{some}"
    else:
        told, title, flag = (
            "Every interleaving of both, no fault.",
            f"Explorer: changes beside a message{some}",
            "--beside",
        )
    head = ["change", "protocol", "policy, delivery", "moments", "ends", "faults", "broken", "CPU s"]
    record(title, f"python -m benchmarks.exploration {flag}", [*table(head, rows), "", told])
    return 1 if wrong else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    kinds = list(change_cases.CHANGES)
    parser.add_argument("--changes", nargs="*", choices=kinds, metavar="KIND", help=f"groups that change: {kinds}")
    parser.add_argument("--beside", nargs="*", choices=kinds, metavar="KIND", help="the same beside a message")
    parser.add_argument("--markers", action="store_true", help="a site goes to another meta-group")
    parser.add_argument("--races", action="store_true", help="changes at several sequencers, asked for at once")
    asked = parser.parse_args()
    if asked.markers:
        return run_markers()
    if asked.races:
        return run_races()
    if asked.changes is not None:
        return run_changes(asked.changes or kinds, alone=True)
    if asked.beside is not None:
        return run_changes(asked.beside or kinds, alone=False)
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
