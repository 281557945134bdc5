"""Chaos on real processes: sites are killed, stopped and started while clients send and read; everything is judged.

Senders wait for receipts; what was acknowledged must be delivered everywhere. Readers go on from the last position they
have, as an application that stores its position with its state would. A message whose receipt was lost with the
connection may be there or not, but not twice, and not at some members only.
"""

import asyncio
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ordercast.errors import OrdercastError
from ordercast.runtime.client import connect
from ordercast.runtime.config import Cluster, deploy, read_cluster
from ordercast.verify.deliveries import JUDGES, Record, Sent

GROUPS = {
    "g0": ["s0", "s1", "s2"],
    "g1": ["s1", "s2", "s3"],
    "g2": ["s3", "s4", "s5"],
    "g3": ["s0", "s5"],
    "g4": ["s2", "s4"],
}
Faults = tuple[str, ...]


@dataclass
class Chaos:
    """One campaign: what was sent, acknowledged and read."""

    folder: Path
    seed: int = 0
    groups: dict[str, list[str]] = field(default_factory=lambda: dict(GROUPS))
    options: str = ""
    """More lines for the configuration."""
    attempted: dict[str, Sent] = field(default_factory=dict)
    acknowledged: set[str] = field(default_factory=set)
    logs: dict[str, list[str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    kills: int = 0
    stops: int = 0
    lost_connections: int = 0

    def __post_init__(self) -> None:
        """Write the configuration and make the plan."""
        self.chance = random.Random(self.seed)
        self.sites = sorted({site for members in self.groups.values() for site in members})
        self.path = self.folder / "cluster.toml"
        ports = _free_ports(2 * len(self.sites))
        lines = [self.options, "[sites]", *(f'{site} = "127.0.0.1:{ports.pop()}"' for site in self.sites)]
        lines += ["[clients]", *(f'{site} = "127.0.0.1:{ports.pop()}"' for site in self.sites)]
        lines += ["[groups]", *(f"{group} = {members}" for group, members in self.groups.items())]
        self.path.write_text("\n".join(lines))
        self.cluster: Cluster = read_cluster(self.path)
        deploy(self.cluster)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.logs = {site: [] for site in self.sites}
        self.sending = True
        self.reading = True

    def start(self, site: str) -> None:
        """Start a site's process."""
        command = [sys.executable, "-m", "ordercast", "site", site, "--cluster", str(self.path)]
        with (self.folder / f"{site}.log").open("ab") as log:
            self.processes[site] = subprocess.Popen(command, stdout=log, stderr=log)

    async def run(self, faults: int, kinds: Faults = ("kill", "stop"), say: Callable[[str], None] = print) -> None:
        """Start everything, let faults happen under load, heal, and wait until nothing is left."""
        for site in self.sites:
            self.start(site)
        clients = [asyncio.create_task(self._send(site)) for site in self.sites]
        readers = [asyncio.create_task(self._read(site)) for site in self.sites]
        try:
            await self._all_up()
            for number in range(faults):
                await asyncio.sleep(self.chance.uniform(0.0, 0.4))
                await self._fault(self.chance.choice(kinds), self.chance.choice(self.sites))
                if number % 20 == 19:
                    say(f"{number + 1} faults, {len(self.acknowledged)} acknowledged")
            self.sending = False
            await asyncio.gather(*clients)
            await self._all_up()
            await self._complete()
        finally:
            self.sending = self.reading = False
            for task in (*clients, *readers):
                task.cancel()
            await asyncio.gather(*clients, *readers, return_exceptions=True)
            for process in self.processes.values():
                process.send_signal(signal.SIGCONT)
                process.terminate()
            for site, process in self.processes.items():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                if process.poll() is None:
                    process.kill()
                    self.problems.append(f"{site} did not stop when it was told to")

    async def _fault(self, kind: str, site: str) -> None:
        process = self.processes[site]
        if kind == "kill":
            self.kills += 1
            process.kill()
            process.wait()
            await asyncio.sleep(self.chance.choice([0.0, 0.1, 0.5]))
            self.start(site)
        else:
            self.stops += 1
            process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(self.chance.uniform(0.1, 1.5))
            process.send_signal(signal.SIGCONT)

    async def _all_up(self) -> None:
        """Wait until every site has a link to every other."""
        until = time.monotonic() + 60
        while True:
            statuses = await asyncio.gather(*(self._status(site) for site in self.sites))
            if all(status is not None and all(status["peers"].values()) for status in statuses):
                return
            if time.monotonic() > until:
                raise OrdercastError(f"not all sites are up and linked after 60 s: {statuses}")
            await asyncio.sleep(0.2)

    async def _status(self, site: str) -> dict[str, Any] | None:
        try:
            async with asyncio.timeout(2.0), connect(self.cluster.clients[site]) as client:
                return await client.status()
        except (OrdercastError, TimeoutError):
            return None

    async def _send(self, site: str) -> None:
        """Send as long as there is trouble; a message is sent once, whatever becomes of it."""
        number = 0
        names = sorted(self.groups)
        while self.sending:
            try:
                async with connect(self.cluster.clients[site]) as client:
                    while self.sending:
                        number += 1
                        group = self.chance.choice(names)
                        name = f"{site}-{number}"
                        self.attempted[name] = Sent((group,), site, number)
                        ack = self.chance.choice(["ordered", "safe"])
                        async with asyncio.timeout(30):
                            await client.multicast(group, name.encode(), ack=ack)  # type: ignore[arg-type]
                        self.acknowledged.add(name)
            except (OrdercastError, TimeoutError):
                self.lost_connections += 1
                await asyncio.sleep(0.05)

    async def _read(self, site: str) -> None:
        """Read from the last position on; a position that comes again, or with a hole, is a problem."""
        log = self.logs[site]
        while self.reading:
            try:
                async with connect(self.cluster.clients[site]) as client:
                    await client.join(after=len(log) - 1)
                    async for message in client:
                        if message.position != len(log):
                            self.problems.append(f"{site}: position {message.position} after {len(log) - 1}")
                        log.append(message.body.decode())
            except OrdercastError:
                await asyncio.sleep(0.05)

    async def _complete(self) -> None:
        """Wait until every acknowledged message is read everywhere, and nothing is held or not safe."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if self.missing() is None:
                statuses = await asyncio.gather(*(self._status(site) for site in self.sites))
                if all(s is not None and not s["held"] and not s["unsafe_envelopes"] for s in statuses):
                    return
            await asyncio.sleep(0.2)

    def missing(self) -> str | None:
        """Return an acknowledged message that some member has not delivered."""
        return JUDGES["completeness"](self._record(self.acknowledged))

    def _record(self, names: set[str]) -> Record:
        return Record(self.groups, {name: self.attempted[name] for name in sorted(names)}, self.logs)

    def verdict(self) -> dict[str, str | None]:
        """Judge what was read: everything acknowledged, or delivered anywhere, is everywhere, once, in one order."""
        delivered = {message for log in self.logs.values() for message in log}
        record = self._record((self.acknowledged | delivered) & self.attempted.keys())
        names = ("creation", "duplicate", "completeness", "fifo", "total", "acyclic")
        found = {name: JUDGES[name](record) for name in names}
        return found | {"positions": self.problems[0] if self.problems else None}


def _free_ports(count: int) -> list[int]:
    held = [socket.socket() for _ in range(count)]
    try:
        for listener in held:
            listener.bind(("127.0.0.1", 0))
        return [int(listener.getsockname()[1]) for listener in held]
    finally:
        for listener in held:
            listener.close()
