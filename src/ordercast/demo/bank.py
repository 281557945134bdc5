"""The bank's cluster: its configuration, its site processes, its client processes, a kill -9 in between."""

import json
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from ordercast.demo.ledger import orders
from ordercast.errors import LocalError
from ordercast.live.ports import free_ports

GROUPS = {
    "transactions": ["main-1", "main-2"],
    "system-tables": ["main-1", "main-2", "dev-1"],
    "releases": ["main-1", "main-2", "dev-1", "dev-2", "branch-a", "branch-b", "branch-c"],
    "rates": ["main-1", "branch-a", "branch-b", "branch-c"],
    "audit": ["main-2", "dev-2"],
}
SENDERS = ("branch-a", "branch-b", "branch-c", "dev-1", "dev-2")
MAINS = ("main-1", "main-2")


@dataclass
class Bank:
    """A cluster in a folder."""

    folder: Path
    sites: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    clients: list[subprocess.Popen[bytes]] = field(default_factory=list)
    _log: IO[bytes] | None = None

    def __post_init__(self) -> None:
        """Write the configuration."""
        names = sorted({site for members in GROUPS.values() for site in members})
        ports = free_ports(2 * len(names))
        self.addresses = {name: f"127.0.0.1:{ports.pop()}" for name in names}
        where = {name: f"127.0.0.1:{ports.pop()}" for name in names}
        lines = ['name = "bank"', 'export = "run"', "[sites]", *(f'{n} = "{at}"' for n, at in where.items())]
        lines += ["[clients]", *(f'{n} = "{at}"' for n, at in self.addresses.items())]
        lines += ["[groups]", *(f"{group} = {json.dumps(members)}" for group, members in GROUPS.items())]
        self.folder.mkdir(parents=True, exist_ok=True)
        self.path = self.folder / "cluster.toml"
        self.path.write_text("\n".join(lines) + "\n", "utf-8")
        self._log = (self.folder / "sites.log").open("ab")

    def start(self, site: str) -> None:
        """Start a site's process."""
        command = [sys.executable, "-m", "ordercast", "site", site, "--cluster", str(self.path)]
        self.sites[site] = subprocess.Popen(command, stdout=self._log, stderr=self._log)

    def kill(self, site: str) -> None:
        """Kill a site with -9."""
        self.sites[site].send_signal(signal.SIGKILL)
        self.sites[site].wait()

    def wait_until_up(self, seconds: float = 30.0) -> None:
        """Wait until every site takes clients."""
        until = time.monotonic() + seconds
        for name, address in self.addresses.items():
            host, _, port = address.rpartition(":")
            while True:
                try:
                    socket.create_connection((host, int(port)), 1).close()
                    break
                except OSError:
                    if time.monotonic() > until or self.sites[name].poll() is not None:
                        raise LocalError(f"site {name} did not start: see {self.folder / 'sites.log'}") from None
                    time.sleep(0.05)

    def open_for_business(self, many: int, rate: float, seed: int, but: str) -> None:
        """Start ledgers at both main computers and a teller at every sender but one, which is about to be killed."""
        senders = [site for site in SENDERS if site != but]
        counts = {main: self._expected(main, senders, many, seed) for main in MAINS}
        for main in MAINS:
            self._client("ledger", self.addresses[main], str(counts[main]), str(self.folder / f"{main}.json"))
        for site in senders:
            self._client("teller", self.addresses[site], site, str(many), str(rate), str(seed))

    def _client(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "ordercast.demo.processes", *arguments]
        self.clients.append(subprocess.Popen(command, stdout=self._log, stderr=self._log))

    @staticmethod
    def _expected(main: str, senders: list[str], many: int, seed: int) -> int:
        return sum(main in GROUPS[group] for site in senders for group, _ in orders(site, many, seed))

    def wait_until_done(self, seconds: float = 120.0) -> None:
        """Wait until every teller and ledger has ended."""
        until = time.monotonic() + seconds
        for client in self.clients:
            try:
                code = client.wait(max(0.1, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise LocalError("not everything was delivered in time: see sites.log") from None
            if code:
                raise LocalError(f"a client ended with exit code {code}: see {self.folder / 'sites.log'}")

    def balances(self) -> dict[str, dict[str, Any]]:
        """Return what the ledgers wrote."""
        return {main: json.loads((self.folder / f"{main}.json").read_text()) for main in MAINS}

    def stop(self) -> None:
        """Stop everything, gracefully where possible."""
        for process in (*self.clients, *self.sites.values()):
            if process.poll() is None:
                process.terminate()
        for process in (*self.clients, *self.sites.values()):
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._log is not None:
            self._log.close()
