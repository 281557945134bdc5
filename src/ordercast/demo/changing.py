"""The bank again, with groups that change: a main computer dies for good, and a branch is added, under traffic."""

import asyncio
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ordercast.audit.changing import audit_changing
from ordercast.audit.local import LocalSource
from ordercast.client.client import Client, connect
from ordercast.client.values import Delivered, Restored
from ordercast.errors import OrdercastError
from ordercast.live.ports import free_ports

SITES = ("main-1", "main-2", "main-3", "branch-a")
NEW = "branch-b"
SUSPECT_S = 1.0
LIMIT_S = 60.0


class ChangingBank:
    """A cluster in a folder, its processes, and one application at each site that is asked for."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / "cluster.toml"
        ports = free_ports(2 * len(SITES) + 2)
        self.sites = {site: f"127.0.0.1:{ports.pop()}" for site in (*SITES, NEW)}
        self.clients = {site: f"127.0.0.1:{ports.pop()}" for site in (*SITES, NEW)}
        lines = ['name = "bank"', 'policy = "available"', f"suspect_after = {SUSPECT_S}", "states = true"]
        lines += ['export = "run"', "[sites]"]
        lines += [f'{site} = "{self.sites[site]}"' for site in SITES]
        lines += ["[clients]", *(f'{site} = "{self.clients[site]}"' for site in SITES)]
        lines += ["[groups]", f"transactions = {list(SITES)}"]
        self.path.write_text("\n".join(lines) + "\n", "utf-8")
        self._log = (folder / "sites.log").open("ab")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.books: dict[str, list[bytes]] = {}

    def start(self, site: str) -> None:
        """Start a site's process; the new one knows nobody but main-2."""
        command = [sys.executable, "-m", "ordercast", "site", site]
        if site == NEW:
            command += ["--join", self.clients["main-2"], "--address", self.sites[NEW], "--clients", self.clients[NEW]]
            command += ["--data", str(self.path.parent / NEW), "--export", str(self.path.parent / "run")]
        else:
            command += ["--cluster", str(self.path)]
        self.processes[site] = subprocess.Popen(command, stdout=self._log, stderr=self._log)

    def kill(self, site: str) -> None:
        """Kill a site with -9, for good."""
        self.processes.pop(site).send_signal(signal.SIGKILL)

    def stop(self) -> None:
        """Stop everything."""
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait(30)
        self._log.close()

    async def follow(self, site: str) -> None:
        """Keep the book of a site: what is delivered there, or is given to it as a state."""
        book = self.books.setdefault(site, [])

        async def state(_: str) -> bytes:
            return b"\n".join(book)

        while True:
            with suppress(OrdercastError):
                async with connect(self.clients[site]) as client:
                    await client.join(after=-1, snapshot=state)
                    async for event in client.events():
                        if isinstance(event, Delivered):
                            book.append(event.body)
                        elif isinstance(event, Restored) and event.state:
                            book[:] = event.state.split(b"\n")
            await asyncio.sleep(0.1)


async def _send(client: Client, done: list[float], stop: asyncio.Event) -> None:
    while not stop.is_set():
        await client.multicast("transactions", b"deposit %d" % len(done), ack="safe")
        done.append(time.monotonic())
        await asyncio.sleep(0.01)


async def show(folder: Path, say: Callable[[str, str], None]) -> bool:
    """Run it; `say` is told a line and its colour. Returns whether all have the same book, and the audit agrees."""
    bank = ChangingBank(folder)
    tasks: list[asyncio.Task[None]] = []
    same = False
    try:
        async with asyncio.timeout(LIMIT_S):
            same = await _show(bank, say, tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        bank.stop()
    verdict = audit_changing(LocalSource(str(folder / "run")), "acyclic")
    say(f"audit of {verdict.deliveries} deliveries: level acyclic {verdict.outcome}", "green" if verdict.ok else "red")
    return same and verdict.ok


async def _show(bank: ChangingBank, say: Callable[[str, str], None], tasks: "list[asyncio.Task[None]]") -> bool:
    for site in SITES:
        bank.start(site)
    client = await _begun(bank)
    try:
        tasks += [asyncio.create_task(bank.follow(site)) for site in ("main-2", "main-3", "branch-a")]
        done, stop = list[float](), asyncio.Event()
        sending = asyncio.create_task(_send(client, done, stop))
        tasks.append(sending)
        await asyncio.sleep(1.0)
        gone = time.monotonic()
        bank.kill("main-1")
        while done[-1] < gone + 0.2:
            await asyncio.sleep(0.01)
        later = next(at for at in done if at > gone + 0.2) - gone
        say(f"kill -9 main-1, for good: the others go on after {later:.1f} s (suspect_after {SUSPECT_S:g} s)", "green")
        bank.start(NEW)
        tasks.append(asyncio.create_task(bank.follow(NEW)))
        while NEW not in (await client.configuration())["sites"]:
            await asyncio.sleep(0.05)
        before = len(done)
        await client.join_group("transactions", NEW)
        say(f"{NEW} joins while orders flow ({before} so far); it is given the book of another site", "green")
        await asyncio.sleep(1.0)
        stop.set()
        await sending
        expected = [b"deposit %d" % number for number in range(len(done))]
        while not all(book == expected for book in bank.books.values()):
            await asyncio.sleep(0.05)
        names = ", ".join(sorted(bank.books))
        say(f"{len(done)} orders, each once, the same book at {names}", "green")
        return True
    except TimeoutError:
        say("the books differ: " + ", ".join(f"{s} has {len(b)}" for s, b in bank.books.items()), "red")
        return False
    finally:
        await client.__aexit__(asyncio.CancelledError, asyncio.CancelledError(), None)


async def _begun(bank: ChangingBank) -> Client:
    """Return a client of main-2 when the cluster has begun."""
    while True:
        with suppress(OrdercastError):
            client = await connect(bank.clients["main-2"]).__aenter__()
            if (await client.configuration())["number"]:
                return client
            await client.__aexit__(None, None, None)
        await asyncio.sleep(0.1)
