"""A stopped entry site and a reader that does not read: what waits, and how memory goes (`make chaos`).

Run: python -m benchmarks.endurance [--seconds 30]
"""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.results import record, table
from matplotlib.figure import Figure
from tests.support.chaos import Chaos

from ordercast.client.client import connect

PICTURE = Path(__file__).parent / "endurance.svg"


def rss_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Run:
    """One cluster under load: memory of every site, once a second, and what the sender got through."""

    def __init__(self, chaos: Chaos) -> None:
        self.chaos = chaos
        self.begun = time.monotonic()
        self.memory: dict[str, list[tuple[float, float]]] = {site: [] for site in chaos.sites}
        self.sent = 0
        self.read = dict.fromkeys(chaos.sites, 0)
        self.paused = ""

    async def watch(self) -> None:
        """Note the memory of every site."""
        while True:
            for site, process in self.chaos.processes.items():
                self.memory[site].append((time.monotonic() - self.begun, rss_mib(process.pid)))
            await asyncio.sleep(0.5)

    async def send(self, site: str, group: str, until: asyncio.Event) -> None:
        """Send as fast as it is taken."""
        body = bytes(1000)
        async with connect(self.chaos.cluster.clients[site]) as client:
            while not until.is_set():
                await client.multicast(group, body)
                self.sent += 1
            await client.flush()

    async def consume(self, site: str) -> None:
        """Read, unless told to pause."""
        async with connect(self.chaos.cluster.clients[site]) as client:
            await client.join(after=-1)
            async for _ in client:
                self.read[site] += 1
                while self.paused == site:
                    await asyncio.sleep(0.05)


async def trial(folder: Path, seconds: float, stop: bool) -> tuple[Run, dict[str, object]]:
    chaos = Chaos(folder, groups={"g": ["s0", "s1", "s2"], "h": ["s1", "s2"]})
    for site in chaos.sites:
        chaos.start(site, through_proxies=False)
    await chaos._all_up()
    run = Run(chaos)
    done = asyncio.Event()
    victim = "s2"
    if stop and chaos.cluster.protocol == "propagation":
        from ordercast.live.config import deploy

        plan = deploy(chaos.cluster).plan
        assert plan is not None
        victim = plan.groups["g"].entry
    source = next(site for site in chaos.sites if site != victim)
    tasks = [asyncio.create_task(run.watch()), *(asyncio.create_task(run.consume(site)) for site in chaos.sites)]
    sender = asyncio.create_task(run.send(source, "g", done))
    await asyncio.sleep(5)
    before = run.sent
    if stop:
        chaos.processes[victim].send_signal(signal.SIGSTOP)
    else:
        run.paused = victim
    await asyncio.sleep(seconds)
    during = run.sent - before
    chaos.processes[victim].send_signal(signal.SIGCONT)
    run.paused = ""
    await asyncio.sleep(5)
    done.set()
    await asyncio.wait_for(sender, 60)
    until = time.monotonic() + 60
    while any(run.read[site] < run.sent for site in chaos.sites) and time.monotonic() < until:
        await asyncio.sleep(0.2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for process in chaos.processes.values():
        process.terminate()
        process.wait()
    lost = {site: run.sent - run.read[site] for site in chaos.sites}
    peak = max(value for values in run.memory.values() for _, value in values)
    return run, {"sent": run.sent, "taken meanwhile": during, "lost": sum(lost.values()), "peak MiB": round(peak)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    asked = parser.parse_args()
    rows: list[list[object]] = []
    figure = Figure(figsize=(9, 3.6), facecolor="white", layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    lost = 0
    names = ("the entry site stopped (SIGSTOP)", "a reader that does not read")
    for panel, stop, name in zip(panels, (True, False), names, strict=True):
        with tempfile.TemporaryDirectory(prefix="ordercast-endurance-") as folder:
            run, figures = asyncio.run(trial(Path(folder), asked.seconds, stop))
        rows.append([f"{name}, {asked.seconds:g} s", *figures.values()])
        lost += int(str(figures["lost"]))
        print(rows[-1], flush=True)
        for site, values in run.memory.items():
            panel.plot([time_ for time_, _ in values], [mib for _, mib in values], label=site)
        panel.axvspan(5, 5 + asked.seconds, color="#f2e8d5", zorder=0)
        panel.set(title=name, xlabel="seconds")
    panels[0].set_ylim(0, 1.1 * max(float(str(row[4])) for row in rows))
    panels[0].set_ylabel("memory of each site, MiB")
    panels[0].legend(frameon=False)
    figure.savefig(PICTURE)
    head = ["", "messages sent", "taken meanwhile", "lost", "largest process, MiB"]
    told = "Three durable sites, 1 kB messages as fast as they are taken; over time: [endurance.svg](endurance.svg)."
    record("Endurance: stopped sites and readers", "python -m benchmarks.endurance", [*table(head, rows), "", told])
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
