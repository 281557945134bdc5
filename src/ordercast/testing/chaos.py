"""Chaos on real processes: sites are killed, stopped and started while clients send and read; everything is judged.

Senders wait for receipts; what was acknowledged must be delivered everywhere. Readers go on from the last position they
have, as an application that stores its position with its state would. A message whose receipt was lost with the
connection may be there or not, but not twice, and not at some members only.
"""

import asyncio
import random
import signal
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
from ordercast.runtime.ports import free_ports
from ordercast.verify.deliveries import JUDGES, Record, Sent


class Proxy:
    """A link that can be cut: both ways, or held one way; what is held goes on when it is healed."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self.target = (host, int(port))
        self.address = ""
        self.cut = False
        self._held: dict[bool, asyncio.Event] = {}
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self, port: int) -> None:
        """Listen."""
        self._held = {True: asyncio.Event(), False: asyncio.Event()}
        for event in self._held.values():
            event.set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.cut:
            writer.close()
            return
        try:
            other_reader, other_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, other_writer}
        with suppress(asyncio.CancelledError):  # the run is over
            await asyncio.gather(self._pump(reader, other_writer, True), self._pump(other_reader, writer, False))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, forth: bool) -> None:
        try:
            while data := await reader.read(65_536):
                await self._held[forth].wait()
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def break_all(self) -> None:
        """Cut: every connection ends, and no new one is made."""
        self.cut = True
        for writer in list(self._writers):
            writer.transport.abort()

    def hold(self, forth: bool) -> None:
        """Let nothing pass one way."""
        self._held[forth].clear()

    def heal(self) -> None:
        """Let everything pass again."""
        self.cut = False
        for event in self._held.values():
            event.set()

    def close(self) -> None:
        """Stop."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()


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
    cuts: int = 0
    restarts: int = 0
    lost_connections: int = 0

    def __post_init__(self) -> None:
        """Write the configuration and make the plan."""
        self.chance = random.Random(self.seed)
        self.sites = sorted({site for members in self.groups.values() for site in members})
        self.path = self.folder / "cluster.toml"
        pairs = [(one, other) for one in self.sites for other in self.sites if one < other]
        ports = free_ports(2 * len(self.sites) + len(pairs))
        where = {site: f"127.0.0.1:{ports.pop()}" for site in self.sites}
        clients = {site: f"127.0.0.1:{ports.pop()}" for site in self.sites}
        self.proxies = {pair: Proxy(where[pair[1]]) for pair in pairs}  # the smaller name calls
        self.proxy_ports = {pair: ports.pop() for pair in pairs}

        def lines(sites: dict[str, str]) -> str:
            text = [self.options, "[sites]", *(f'{site} = "{at}"' for site, at in sites.items())]
            text += ["[clients]", *(f'{site} = "{at}"' for site, at in clients.items())]
            return "\n".join([*text, "[groups]", *(f"{group} = {members}" for group, members in self.groups.items())])

        self.path.write_text(lines(where))
        for site in self.sites:
            seen = {p: f"127.0.0.1:{self.proxy_ports[site, p]}" if site < p else at for p, at in where.items()}
            (self.folder / f"{site}.toml").write_text(lines(seen))
        self.cluster: Cluster = read_cluster(self.path)
        deploy(self.cluster)
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.logs = {site: [] for site in self.sites}
        self.sending = True
        self.reading = True

    def start(self, site: str, *, through_proxies: bool = True) -> None:
        """Start a site's process."""
        path = self.folder / f"{site}.toml" if through_proxies else self.path
        command = [sys.executable, "-m", "ordercast", "site", site, "--cluster", str(path)]
        with (self.folder / f"{site}.log").open("ab") as log:
            self.processes[site] = subprocess.Popen(command, stdout=log, stderr=log)

    async def run(
        self,
        faults: int,
        kinds: Faults = ("kill", "kill", "restart", "stop", "cut", "hold"),
        say: Callable[[str], None] = print,
    ) -> None:
        """Start everything, let faults happen under load, heal, and wait until nothing is left."""
        await self.start_proxies()
        for site in self.sites:
            self.start(site)
        clients = [asyncio.create_task(self._send(site)) for site in self.sites]
        readers = [asyncio.create_task(self._read(site)) for site in self.sites]
        try:
            await self._all_up()
            for number in range(faults):
                await asyncio.sleep(self.chance.uniform(0.0, 0.8))
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
            for proxy in self.proxies.values():
                proxy.close()
            for process in self.processes.values():
                process.send_signal(signal.SIGCONT)
                process.terminate()
            for site, process in self.processes.items():
                with suppress(subprocess.TimeoutExpired):
                    process.wait(10)
                if process.poll() is None:
                    process.kill()
                    self.problems.append(f"{site} did not stop when it was told to")

    async def start_proxies(self) -> None:
        """Let the links pass through something that can cut them."""
        for pair, proxy in self.proxies.items():
            await proxy.start(self.proxy_ports[pair])

    async def _fault(self, kind: str, site: str) -> None:
        process = self.processes[site]
        if kind in ("kill", "restart"):
            self.kills += kind == "kill"
            self.restarts += kind == "restart"
            process.send_signal(signal.SIGKILL if kind == "kill" else signal.SIGTERM)
            while process.poll() is None:
                await asyncio.sleep(0.01)
            await asyncio.sleep(self.chance.choice([0.0, 0.1, 0.5]))
            self.start(site)
        elif kind in ("cut", "hold"):
            self.cuts += 1
            proxy = self.proxies[self.chance.choice(sorted(self.proxies))]
            if kind == "cut":
                proxy.break_all()
            else:
                proxy.hold(self.chance.random() < 0.5)
            await asyncio.sleep(self.chance.uniform(0.1, 1.5))
            proxy.heal()
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
