"""How long a group stands still when a member is killed for good: eight sites, policy available, real processes.

A client sends to a group of all eight, each message when the one before is safe. Another site is killed with -9; the
figure is the time from the kill to the next message that is safe. Then the site is started again and taken in. A third
of the kills hit the manager.

Run: python -m benchmarks.failover [--kills 30] [--suspect 3.0]
"""

import argparse
import asyncio
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks.results import record, table

from ordercast.client.client import Client, connect
from ordercast.errors import OrdercastError
from ordercast.live.ports import free_ports

SITES = [f"s{index}" for index in range(8)]


class Cluster:
    """Eight processes."""

    def __init__(self, folder: Path, suspect: float, protocol: str) -> None:
        ports = free_ports(2 * len(SITES))
        self.clients = {site: f"127.0.0.1:{ports.pop()}" for site in SITES}
        lines = [f'protocol = "{protocol}"', 'policy = "available"', f"suspect_after = {suspect}", "[sites]"]
        lines += [f'{site} = "127.0.0.1:{ports.pop()}"' for site in SITES]
        lines += ["[clients]", *(f'{site} = "{at}"' for site, at in self.clients.items())]
        lines += ["[groups]", f"all = {SITES}"]
        self.path, self.folder = folder / "cluster.toml", folder
        self.path.write_text("\n".join(lines))
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, site: str) -> None:
        command = [sys.executable, "-m", "ordercast", "site", site, "--cluster", str(self.path)]
        with (self.folder / f"{site}.log").open("ab") as log:
            self.processes[site] = subprocess.Popen(command, stdout=log, stderr=log)

    async def settled(self, client: Client) -> dict[str, Any]:
        """Wait until everybody is there, and return the configuration."""
        while True:
            known = await client.configuration()
            if known["number"] and not known["away"] and not known["suspected"]:
                return known
            await asyncio.sleep(0.05)


async def measure(kills: int, suspect: float, protocol: str) -> list[tuple[bool, float]]:
    """Return for every kill whether it hit the manager, and how long nothing became safe."""
    cluster = Cluster(Path(tempfile.mkdtemp(prefix="ordercast-failover-")), suspect, protocol)
    found: list[tuple[bool, float]] = []
    for site in SITES:
        cluster.start(site)
    try:
        client = await _connected(cluster.clients["s7"])
        for index in range(kills):
            known = await cluster.settled(client)
            manager = known["manager"]
            others = [site for site in SITES if site not in (manager, "s7")]
            victim = manager if index % 3 == 0 else others[index % len(others)]
            for _ in range(20):
                await client.multicast("all", b"before", ack="safe")
            killed = time.monotonic()
            cluster.processes[victim].send_signal(signal.SIGKILL)
            cluster.processes[victim].wait()
            while True:
                await client.multicast("all", b"after", ack="safe")
                if (await client.configuration())["away"]:
                    break
            found.append((victim == manager, time.monotonic() - killed))
            print(f"{protocol}: {victim}{' (manager)' if victim == manager else ''} {found[-1][1]:.2f} s", flush=True)
            cluster.start(victim)
            await asyncio.sleep(0.5)
        await client.__aexit__(None, None, None)
    finally:
        for process in cluster.processes.values():
            process.kill()
            process.wait()
    return found


async def _connected(address: str) -> Client:
    while True:
        with suppress(OrdercastError):
            client = await connect(address).__aenter__()
            if (await client.configuration())["number"]:
                return client
            await client.__aexit__(None, None, None)
        await asyncio.sleep(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--suspect", type=float, default=3.0)
    asked = parser.parse_args()
    rows: list[list[object]] = []
    late = 0
    for protocol in ("propagation", "sequencer"):
        found = sorted(seconds for _, seconds in asyncio.run(measure(asked.kills, asked.suspect, protocol)))
        p99 = found[min(len(found) - 1, round(0.99 * len(found)))]
        late += p99 > asked.suspect + 0.5
        rows.append(
            [protocol, len(found), *(f"{s:.2f}" for s in (found[0], found[len(found) // 2], p99)), asked.suspect]
        )
    head = ["protocol", "kills", "least s", "median s", "p99 s", "suspect_after s"]
    told = (
        "Eight durable sites, one group of all; from kill -9 to the next safe message."
        " A third of the kills hit the manager."
    )
    record("Failover: a member is killed for good", "python -m benchmarks.failover", [*table(head, rows), "", told])
    return 1 if late else 0


if __name__ == "__main__":
    sys.exit(main())
