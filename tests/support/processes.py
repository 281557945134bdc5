"""A cluster of real processes, for whatever is outside of them: they are started, killed, and started again."""

import signal
import subprocess
import sys
import time
from pathlib import Path

from ordercast.client.sync import connect
from ordercast.errors import OrdercastError
from ordercast.live.ports import free_ports

WAIT_S = 100.0  # only guards against a test that hangs


class Processes:
    """Sites of one cluster; use it with `with`."""

    def __init__(self, folder: Path, groups: dict[str, list[str]], *options: str) -> None:
        """`options`: lines of the cluster's file, before its tables."""
        sites = sorted({site for members in groups.values() for site in members})
        found = [f"127.0.0.1:{port}" for port in free_ports(2 * len(sites))]
        self.folder, self.path = folder, folder / "cluster.toml"
        self.clients = dict(zip(sites, found, strict=False))
        text = [*options, "[sites]", *(f'{site} = "{at}"' for site, at in zip(sites, found[len(sites) :], strict=True))]
        text += ["[clients]", *(f'{site} = "{at}"' for site, at in self.clients.items())]
        text += ["[groups]", *(f"{group} = {members}" for group, members in groups.items())]
        self.path.write_text("\n".join(text).replace("'", '"'))
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> "Processes":
        for site in self.clients:
            self.start(site)
        try:
            for site in self.clients:
                self.wait(site)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.running.values():
            process.kill()
        for process in self.running.values():
            process.wait()

    def start(self, site: str) -> None:
        """Start a site."""
        command = [sys.executable, "-m", "ordercast", "site", site, "--cluster", str(self.path)]
        with (self.folder / f"{site}.log").open("ab") as log:
            self.running[site] = subprocess.Popen(command, stdout=log, stderr=log)

    def kill(self, site: str) -> None:
        """Kill a site."""
        self.running[site].send_signal(signal.SIGKILL)
        self.running[site].wait()

    def wait(self, site: str) -> None:
        """Wait until a site answers, and takes messages."""
        until = time.monotonic() + WAIT_S
        while True:
            try:
                with connect(self.clients[site], timeout=2.0, survive=0) as client:
                    status = client.status()
                    if status["phase"] == "running" and status["groups"] and all(status["peers"].values()):
                        return
            except OrdercastError:
                pass
            assert time.monotonic() < until, f"{site} does not answer"
            time.sleep(0.1)
