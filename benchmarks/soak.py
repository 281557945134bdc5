"""A long run at full speed with a change every ten seconds: memory, descriptors and disk must stay flat (`make soak`).

Five durable sites in processes of their own. Clients at all of them send to two groups as fast as it is taken, and read
everything. Every ten seconds one thing changes, in turn: a site joins a group, a group is created, the site leaves,
the group is deleted. Histories keep 64 MiB each. What grows is found by comparing the middle third of the run with the
last: their medians, which a leak raises and a moment in which much was under way does not.

Run: python -m benchmarks.soak [--minutes 30]
"""

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.results import record, table
from matplotlib.figure import Figure

from ordercast.client.client import Client, connect
from ordercast.errors import OrdercastError
from ordercast.live.ports import free_ports

SITES = [f"s{index}" for index in range(5)]
CHANGES_S, LOOKS_S, BODY = 10.0, 5.0, 200
KEPT = 64 * 2**20
GROWTH = 1.1  # from the middle third to the last, at most
PICTURE = Path(__file__).parent / "soak.svg"
WHAT = {"memory": "MiB", "descriptors": "", "disk": "MiB"}


class Soak:
    """One cluster, its clients, and what is looked at."""

    def __init__(self, folder: Path) -> None:
        self.folder, ports = folder, free_ports(2 * len(SITES))
        self.clients = {site: f"127.0.0.1:{ports.pop()}" for site in SITES}
        lines = ['policy = "available"', 'delivery = "safe"', "suspect_after = 10.0", "[sites]"]
        lines += [f'{site} = "127.0.0.1:{ports.pop()}"' for site in SITES]
        lines += ["[clients]", *(f'{site} = "{at}"' for site, at in self.clients.items())]
        lines += ["[limits]", f"retain_bytes = {KEPT}", "[groups]", f"all = {SITES}", f"most = {SITES[:4]}"]
        self.path = folder / "cluster.toml"
        self.path.write_text("\n".join(lines))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.seen: dict[str, dict[str, list[tuple[float, float]]]] = {what: {s: [] for s in SITES} for what in WHAT}
        self.sent = self.read = self.changes = 0
        self.longest = 0.0
        self.begun = time.monotonic()

    async def run(self, seconds: float) -> None:
        """Run for so long."""
        for site in SITES:
            command = [sys.executable, "-m", "ordercast", "site", site, "--cluster", str(self.path)]
            with (self.folder / f"{site}.log").open("ab") as log:
                self.processes[site] = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            clients = [await self._connected(site) for site in SITES]
            self.begun = time.monotonic()
            work = [self._look(), self._change(clients[0])]
            work += [self._send(client, ("all", "most")[index % 2]) for index, client in enumerate(clients)]
            work += [self._read(site) for site in SITES]
            tasks = [asyncio.create_task(one) for one in work]
            done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for client in clients:
                await client.__aexit__(None, None, None)
        finally:
            for process in self.processes.values():
                process.kill()
                process.wait()

    async def _connected(self, site: str) -> Client:
        while True:
            with suppress(OrdercastError):
                client = await connect(self.clients[site]).__aenter__()
                if (await client.configuration())["number"]:
                    return client
                await client.__aexit__(None, None, None)
            await asyncio.sleep(0.1)

    async def _send(self, client: Client, group: str) -> None:
        body = bytes(BODY)
        while True:
            await client.multicast(group, body)
            self.sent += 1

    async def _read(self, site: str) -> None:
        async with connect(self.clients[site]) as client:
            await client.join()
            async for lot in client.lots():
                self.read += lot.count

    async def _change(self, client: Client) -> None:
        while True:
            for what in ("join", "create", "leave", "delete"):
                await asyncio.sleep(CHANGES_S)
                begun = time.monotonic()
                match what:
                    case "join":
                        await client.join_group("most", SITES[4])
                    case "create":
                        await client.create_group("new", SITES[1:3])
                    case "leave":
                        await client.leave_group("most", SITES[4])
                    case _:
                        await client.delete_group("new")
                self.changes += 1
                self.longest = max(self.longest, time.monotonic() - begun)

    async def _look(self) -> None:
        said = 0.0
        while True:
            now = time.monotonic() - self.begun
            for site, process in self.processes.items():
                proc = Path(f"/proc/{process.pid}")
                pages = int((proc / "statm").read_text().split()[1])
                files = [path.stat().st_size for path in (self.folder / "data" / site).rglob("*") if path.is_file()]
                self.seen["memory"][site].append((now, pages * os.sysconf("SC_PAGE_SIZE") / 2**20))
                self.seen["descriptors"][site].append((now, len(list((proc / "fd").iterdir()))))
                self.seen["disk"][site].append((now, sum(files) / 2**20))
            if now - said >= 60:
                said = now
                most = {what: round(max(rows[-1][1] for rows in self.seen[what].values())) for what in WHAT}
                print(f"{now / 60:.0f} min: {self.read:,} deliveries, {self.changes} changes, {most}", flush=True)
            await asyncio.sleep(LOOKS_S)

    def growth(self, what: str) -> float:
        """Return by how much the median of the last third is above that of the middle third, at any site."""
        found = []
        for rows in self.seen[what].values():
            third = len(rows) // 3
            middle, last = ([value for _, value in part] for part in (rows[third : 2 * third], rows[2 * third :]))
            found.append(median(last) / median(middle))
        return max(found)

    def draw(self) -> None:
        """Draw each of them over time."""
        figure = Figure(figsize=(10, 3.2), facecolor="white", layout="constrained")
        for panel, (what, unit) in zip(figure.subplots(1, 3), WHAT.items(), strict=True):
            for site, rows in self.seen[what].items():
                panel.plot([at / 60 for at, _ in rows], [value for _, value in rows], label=site, linewidth=1)
            panel.set(title=f"{what}{', ' + unit if unit else ''}, each site", xlabel="minutes")
            panel.set_ylim(bottom=0)
        panel.legend(frameon=False, fontsize=8)
        figure.savefig(PICTURE)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=30.0)
    minutes = parser.parse_args().minutes
    with tempfile.TemporaryDirectory(prefix="ordercast-soak-") as folder:
        soak = Soak(Path(folder))
        asyncio.run(soak.run(60 * minutes))
    rows: list[list[Any]] = []
    for what, unit in WHAT.items():
        most = max(value for rows_of in soak.seen[what].values() for _, value in rows_of)
        rows.append([f"{what} of the largest site", f"{most:.0f} {unit}".strip(), f"{soak.growth(what):.2f}"])
    soak.draw()
    seconds = 60 * minutes
    told = (
        f"{minutes:g} minutes, five durable sites, policy available, delivery safe, {BODY} bytes a message, one "
        f"machine: {soak.sent / seconds:,.0f} messages and {soak.read / seconds:,.0f} deliveries a second, "
        f"{soak.changes} changes, the longest answered after {soak.longest:.1f} s. Growth: the median of the last "
        "third of the run by the median of the third before. Over time: [soak.svg](soak.svg)."
    )
    head = ["", "most", "growth"]
    record(
        "Soak: full speed and a change every ten seconds", "python -m benchmarks.soak", [*table(head, rows), "", told]
    )
    grown = [what for what in WHAT if soak.growth(what) > GROWTH]
    print(f"grows: {', '.join(grown)}" if grown else "nothing grows")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
