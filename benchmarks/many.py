"""Two hundred sites on one machine, 40 groups of 5: members come and go under traffic, and who stands still.

Sites are embedded in a few processes and talk over TCP; each is durable. One member of each group sends at a steady
pace, and each member notes when a message was sent and when it came. A few seconds with changes (a site joins a group,
or leaves it) and as many without take turns, so that what else the machine does slows both alike. The stall of a change
is the longest time that a message took to a group whose class was closed and opened; all other groups are to be as
fast as in the seconds without changes.

Run: python -m benchmarks.many [--sites 200] [--rounds 24] [--level total]
"""

import argparse
import asyncio
import gc
import random
import struct
import subprocess
import sys
import tempfile
import time
from array import array
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.results import record, table
from matplotlib.figure import Figure

from ordercast import Site, read_cluster
from ordercast.client.client import Client, connect
from ordercast.errors import OrdercastError
from ordercast.live.loop import run
from ordercast.live.ports import free_ports

GROUPS, SIZE, PROCESSES = 40, 5, 2
PICTURE = Path(__file__).parent / "many.svg"
CHANGES = 2  # in a round: a site joins, and leaves again
SETTLE_S, TOLD_S = 10.0, 3.0  # so long it may take until everybody has heard of a change
Rows = np.ndarray[Any, Any]


# In a process with many sites.


class Crowd:
    """Some of the sites, in one process; it notes the group, the sending and the arrival of every message."""

    def __init__(self, folder: Path, sites: list[str], pace: float) -> None:
        self.folder, self.pace = folder, pace
        self.cluster = read_cluster(folder / "cluster.toml")
        self.mine = sites
        self.noted = {column: array("d") for column in ("group", "sent", "came")}

    async def run(self) -> None:
        """Run until the parent says stop."""
        senders = {members[0]: group for group, members in self.cluster.groups.items()}
        async with AsyncExitStack() as stack:
            sites = [await stack.enter_async_context(Site(self.cluster, name)) for name in self.mine]
            tasks = [asyncio.create_task(self.read(site)) for site in sites]
            while not (self.folder / "go").exists():
                await asyncio.sleep(0.2)
            gc.collect()
            gc.freeze()  # a hundred sites in one process: what they are made of is not looked through again and again,
            gc.set_threshold(700, 10, 1_000_000)  # nor what is old: 20 to 90 ms each time, and a site alone has 1
            tasks += [asyncio.create_task(self.send(site, senders[site.me])) for site in sites if site.me in senders]
            while not (self.folder / "stop").exists():
                await asyncio.sleep(0.2)
            for task in tasks:
                task.cancel()
            links = sum(len(site.links.up) for site in sites)
            columns: dict[str, Any] = {name: np.array(values) for name, values in self.noted.items()}
            np.savez(self.folder / f"{self.mine[0]}.npz", links=[links], garbage=[gc.collect()], **columns)

    async def send(self, site: Site, group: str) -> None:
        """Send the time, at a steady pace."""
        await asyncio.sleep(random.random() * self.pace)
        next_at = time.monotonic()
        while True:
            await site.multicast(group, struct.pack("d", time.monotonic()))
            next_at += self.pace
            await asyncio.sleep(max(0.0, next_at - time.monotonic()))

    async def read(self, site: Site) -> None:
        """Note what comes."""
        async for message in site.inbox():
            now = time.monotonic()
            self.noted["group"].append(int(message.group[1:]))
            self.noted["sent"].append(struct.unpack("d", message.body)[0])
            self.noted["came"].append(now)


# The operator.


def write_cluster(folder: Path, sites: int, level: str, suspect: float) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Write the file of a cluster of random groups; return the groups, and where clients reach sites."""
    chance = random.Random(7)
    names = [f"s{index:03}" for index in range(sites)]
    ports = free_ports(sites + PROCESSES)
    senders = chance.sample(names[5:], GROUPS)
    groups = {
        f"g{index}": [sender, *chance.sample([name for name in names if name != sender], SIZE - 1)]
        for index, sender in enumerate(senders)
    }
    clients = {name: f"127.0.0.1:{ports.pop()}" for name in names[:PROCESSES]}
    lines = ['policy = "available"', f'level = "{level}"', f"suspect_after = {suspect}", "[sites]"]
    lines += [f'{name} = "127.0.0.1:{ports.pop()}"' for name in names]
    lines += ["[clients]", *(f'{name} = "{at}"' for name, at in clients.items())]
    lines += ["[groups]", *(f"{group} = {members}" for group, members in groups.items())]
    (folder / "cluster.toml").write_text("\n".join(lines))
    return groups, clients


class Operator:
    """Asks for changes, one after the other, and notes when, and which groups each of them stopped."""

    def __init__(self, groups: dict[str, list[str]], client: Client) -> None:
        self.groups, self.client, self.chance = groups, client, random.Random(8)
        self.done: list[tuple[str, float, float, frozenset[int]]] = []
        self.rounds: list[tuple[float, float, float]] = []  # when each began, was still again, ended

    async def classes(self) -> dict[str, str]:
        """Return the class of every group."""
        known = await self.client.configuration()
        return {name: of_group["class"] for name, of_group in known["groups"].items()}

    async def change(self, sites: list[str], rounds: int) -> None:
        """In each round, let a site join a group and leave it again, and then do nothing for as long as that took."""
        for _ in range(rounds):
            begun = time.monotonic()
            group = self.chance.choice(sorted(self.groups))
            site = self.chance.choice([site for site in sites if site not in self.groups[group]])
            for name, ask in (("join", self.client.join_group), ("leave", self.client.leave_group)):
                before = await self.classes()
                asked = time.monotonic()
                await ask(group, site)
                ready = time.monotonic()
                after = await self.classes()
                stopped = frozenset(int(name[1:]) for name in after if after[name] != before.get(name))
                self.done.append((name, asked, ready, stopped))
                print(f"{name} {site} {group}: {ready - asked:.2f} s, {len(stopped)} groups", flush=True)
                await asyncio.sleep(TOLD_S)
            changed = time.monotonic()
            await asyncio.sleep(changed - begun)
            self.rounds.append((begun, changed, time.monotonic()))


async def operate(folder: Path, asked: argparse.Namespace) -> tuple[Operator, float]:
    """Start everything, change, stop; return what was done, and how long it took until all were there."""
    groups, clients = write_cluster(folder, asked.sites, asked.level, asked.suspect)
    names = [f"s{index:03}" for index in range(asked.sites)]
    begun = time.monotonic()
    processes = [
        subprocess.Popen([sys.executable, "-m", "benchmarks.many", "--crowd", str(folder), f"{part}", "--sites",
                          f"{asked.sites}", "--pace", f"{asked.pace}"])
        for part in range(PROCESSES)
    ]  # fmt: skip
    try:
        while True:
            try:
                async with connect(clients[names[0]]) as client:
                    while not (known := await client.configuration())["number"] or known["away"] or known["suspected"]:
                        await asyncio.sleep(0.2)
                    started = time.monotonic() - begun
                    (folder / "go").touch()
                    await asyncio.sleep(SETTLE_S)
                    operator = Operator(groups, client)
                    await operator.change(names, asked.rounds)
                    break
            except OrdercastError as error:
                if time.monotonic() - begun > 120:
                    raise
                print(f"not yet: {error}", flush=True)
                await asyncio.sleep(1)
        (folder / "stop").touch()
        for process in processes:
            process.wait(60)
    finally:
        for process in processes:
            process.kill()
    return operator, started


def judge(folder: Path, operator: Operator) -> tuple[list[list[float]], dict[str, Rows], list[float], list[int]]:
    """Return the stall of each change, the latencies with and without changes, their ratios, links, and old garbage.

    A ratio is that of the p99 in the seconds of a round with changes, of groups that no change touched, and without.
    """
    parts = [np.load(path) for path in sorted(folder.glob("*.npz"))]
    group, sent, came = (np.concatenate([part[name] for part in parts]) for name in ("group", "sent", "came"))
    took = 1000 * (came - sent)
    stalls, other = [], np.full(len(sent), True)
    for _, asked, ready, stopped in operator.done:
        now = (sent > asked - 0.5) & (sent < ready + 0.3)
        touched = np.isin(group, sorted(stopped))
        found = took[now & touched]
        stalls.append([float(found.max()) if len(found) else 0.0, 1000 * (ready - asked), len(stopped)])
        other &= ~(now & touched)
    with_changes = [took[other & (sent >= begun) & (sent < still)] for begun, still, _ in operator.rounds]
    without = [took[(sent >= still) & (sent < end)] for _, still, end in operator.rounds]
    ratios = [float(np.percentile(a, 99) / np.percentile(b, 99)) for a, b in zip(with_changes, without, strict=True)]
    latencies = {"with": np.concatenate(with_changes), "without": np.concatenate(without)}
    return stalls, latencies, ratios, [sum(int(part[name][0]) for part in parts) for name in ("links", "garbage")]


def draw(stalls: list[list[float]], latencies: dict[str, Rows], title: str) -> None:
    """Draw the stall of each change, and beside it the latencies of all other groups."""
    figure = Figure(figsize=(9, 3.6), facecolor="white", layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    numbers = range(1, len(stalls) + 1)
    left.bar(numbers, [stall for stall, *_ in stalls], color="#4878a8", label="longest wait of a message")
    left.plot(numbers, [ready for _, ready, _ in stalls], "k.", markersize=4, label="asked to answered")
    left.set(xlabel="change", ylabel="ms", title="groups whose class changes")
    left.legend(frameon=False)
    for name, values in latencies.items():
        right.plot(np.sort(values), np.linspace(0, 1, len(values)), label=f"{name} changes")
    right.set(
        xlabel="ms from sending to delivery", ylabel="share of deliveries", xscale="log", title="all other groups"
    )
    right.legend(frameon=False)
    figure.suptitle(title, fontsize=10)
    figure.savefig(PICTURE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=24)
    parser.add_argument("--level", default="total")
    parser.add_argument("--suspect", type=float, default=10.0)
    parser.add_argument("--pace", type=float, default=1.0, help="seconds between two messages to a group")
    parser.add_argument("--crowd", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.crowd:
        names = [f"s{index:03}" for index in range(asked.sites)]
        run(Crowd(Path(asked.crowd[0]), names[int(asked.crowd[1]) :: PROCESSES], asked.pace).run())
        return 0
    with tempfile.TemporaryDirectory(prefix="ordercast-many-") as folder:
        operator, started = asyncio.run(operate(Path(folder), asked))
        stalls, latencies, ratios, (links, garbage) = judge(Path(folder), operator)
    worst = sorted(stall for stall, *_ in stalls)
    p99 = {name: float(np.percentile(values, 99)) for name, values in latencies.items()}
    p50 = {name: float(np.percentile(values, 50)) for name, values in latencies.items()}
    rows: list[list[object]] = [
        ["sites, links", f"{asked.sites}, {links // 2}"],
        ["all there after, s", f"{started:.1f}"],
        ["changes", len(stalls)],
        ["groups stopped by a change: median, most", f"{np.median([s[2] for s in stalls]):.0f}, "
         f"{max(s[2] for s in stalls):.0f}"],
        ["stall, ms: median, longest", f"{np.median(worst):.0f}, {worst[-1]:.0f}"],
        ["all other groups, seconds with changes: p50, p99 ms", f"{p50['with']:.1f}, {p99['with']:.1f}"],
        ["all groups, seconds without: p50, p99 ms", f"{p50['without']:.1f}, {p99['without']:.1f}"],
        ["p99 with changes : without", f"{p99['with'] / p99['without']:.2f}"],
        ["the same in each round: median, quarters", f"{np.median(ratios):.2f}, {np.percentile(ratios, 25):.2f} to "
         f"{np.percentile(ratios, 75):.2f}"],
        ["objects that only a collection of old ones would have freed", garbage],
    ]  # fmt: skip
    draw(stalls, latencies, f"{asked.sites} sites, {GROUPS} groups of {SIZE}, level {asked.level}")
    told = (
        f"Embedded in {PROCESSES} processes, durable, policy available, {1 / asked.pace:g} messages a second to each"
        f" group; {asked.rounds} rounds of {CHANGES * TOLD_S:g} s with {CHANGES} changes and as many without;"
        " over time: [many.svg](many.svg). Old objects are not looked through for garbage: with a hundred sites in a"
        " process each such look takes 20 to 90 ms, and is no part of a change."
    )
    command = f"python -m benchmarks.many --sites {asked.sites} --level {asked.level}"
    record(f"Many sites: changes under traffic, level {asked.level}", command, [*table(["", ""], rows), "", told])
    return 1 if p99["with"] > 1.2 * p99["without"] else 0


if __name__ == "__main__":
    sys.exit(main())
