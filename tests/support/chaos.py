"""Chaos on real processes: sites are killed, stopped and started while clients send and read; everything is judged.

Senders send to one group or to several, with or without waiting for receipts. Readers stop reading now and then, or go
away and come back at the position they have, as an application that stores its position with its state would. Sites
keep checkpoints all the time. What is promised, and whether it was kept, is in `promises.py`.
"""

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ordercast.client.client import Client, connect
from ordercast.client.values import AckLevel
from ordercast.errors import LocalError, OrdercastError
from ordercast.live.config import Cluster, deploy, read_cluster
from ordercast.live.ports import free_ports
from ordercast.names import GroupId, SiteId
from ordercast.protocols.registry import MACHINES, Causal
from ordercast.sim.workload import unions
from tests.support.promises import Book, body_of
from tests.support.proxies import Proxy

GROUPS = {
    "g0": ["s0", "s1", "s2"],
    "g1": ["s1", "s2", "s3"],
    "g2": ["s3", "s4"],
    "g3": ["s0", "s4"],
    "g4": ["s2", "s4"],
}
OUTSIDE = ("s5",)
"""A site that is in no group, and sends."""
OPTIONS = ('level = "acyclic"\nunions = [["g2", "g4"]]', 'level = "total"', 'causal = true\nunions = [["g2", "g4"]]')
"""The promises to try: one class and a declared union, several classes, causal order (two-phase does not keep it)."""
DIRECT = 'direct_bytes = 1\nlevel = "acyclic"\nunions = [["g2", "g4"]]'
ALONE = "causal = true\ngroups_alone = true"


def options_of(protocol: str) -> tuple[str, ...]:
    """Return the promises to try with a protocol; with bodies that go another way, and with groups ordered alone."""
    kind = MACHINES[protocol]
    found = OPTIONS[:2] if kind.causal is Causal.NEVER else OPTIONS
    return (*found, *([DIRECT] if kind.direct else []), *([ALONE] if kind.groups_alone else []))


LIMITS = "[limits]\ncheckpoint_bytes = 4096\nretain_messages = 3000\ninbox_bytes = 65536"
SWAPS = (
    "",
    "\n[swap]\nby_source = true\ntree = 'path'",
    "\n[swap]\ntree = 'latency'\nlatencies = [['s1', 's2', 0.1], ['s3', 's4', 0.2]]",
)
"""Trees of swap objects, and who multicasts."""
UNANSWERED_AT_MOST = 10
STUCK_S = 90.0  # nothing has changed for so long, although nothing is in the way
WORDS = ("site.bug", "site.failed", "Traceback", "link.refused", "link.closed", "client.closed")


@dataclass
class Chaos:
    """One cluster in trouble. `options` are more lines at the top of its configuration."""

    folder: Path
    seed: int = 0
    groups: dict[GroupId, list[SiteId]] = field(default_factory=lambda: dict(GROUPS))
    outside: tuple[SiteId, ...] = ()
    options: str = ""
    limits: str = ""
    counts: Counter[str] = field(default_factory=Counter)
    """How often what happened: kill, restart, stop, cut, hold, pause, resume, lost connection."""
    stuck: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Write the configuration and make the plan."""
        self.chance = random.Random(self.seed)
        self.sites = sorted({site for members in self.groups.values() for site in members} | set(self.outside))
        self.path = self.folder / "cluster.toml"
        pairs = [(one, other) for one in self.sites for other in self.sites if one < other]
        ports = free_ports(2 * len(self.sites) + len(pairs))
        where = {site: f"127.0.0.1:{ports.pop()}" for site in self.sites}
        clients = {site: f"127.0.0.1:{ports.pop()}" for site in self.sites}
        self.proxies = {pair: Proxy(where[pair[1]]) for pair in pairs}  # the smaller name calls
        self.proxy_ports = {pair: ports.pop() for pair in pairs}

        def lines(sites: dict[str, str]) -> str:
            text = [self.options, "[sites]", *(f'{site} = "{at}"' for site, at in sites.items())]
            text += ["[clients]", *(f'{site} = "{at}"' for site, at in clients.items()), self.limits]
            return "\n".join([*text, "[groups]", *(f"{group} = {members}" for group, members in self.groups.items())])

        self.path.write_text(lines(where))
        for site in self.sites:
            seen = {p: f"127.0.0.1:{self.proxy_ports[site, p]}" if site < p else at for p, at in where.items()}
            (self.folder / f"{site}.toml").write_text(lines(seen))
        self.cluster: Cluster = read_cluster(self.path)
        deployment = deploy(self.cluster)
        self.receipts = deployment.receipts
        self.one = [(group,) for group in sorted(self.groups)]
        self.several = unions(deployment.groups)
        self.book = Book(deployment.groups, deployment.promises)
        self.lives = dict.fromkeys(self.sites, 0)
        self.up: set[SiteId] = set()
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.sending = self.reading = True

    # Processes.

    def start(self, site: str, *, through_proxies: bool = True) -> None:
        """Start a site's process."""
        path = self.folder / f"{site}.toml" if through_proxies else self.path
        command = [sys.executable, "-m", "ordercast", "site", site, "--cluster", str(path)]
        with (self.folder / f"{site}.log").open("ab") as log:
            self.processes[site] = subprocess.Popen(command, stdout=log, stderr=log)

    async def _end(self, site: str, how: signal.Signals) -> None:
        """End a site's process; it must not have ended by itself, and must end when it is told to."""
        process = self.processes[site]
        if process.poll() is not None:
            self.stuck.append(f"{site} ended by itself with exit code {process.returncode}")
        if how is signal.SIGKILL:
            self.book.killed.add((site, self.lives[site]))
        self.lives[site] += 1
        self.up.discard(site)
        process.send_signal(how)
        until = time.monotonic() + STUCK_S
        while process.poll() is None:
            await asyncio.sleep(0.01)
            if time.monotonic() > until:
                self.stuck.append(f"{site} did not stop when it was told to")
                process.kill()

    def words(self) -> Counter[str]:
        """Count the lines of all logs that tell of trouble, and checkpoints."""
        found: Counter[str] = Counter()
        for site in self.sites:
            text = (self.folder / f"{site}.log").read_text(errors="replace")
            found.update({word: text.count(word) for word in (*WORDS, "history.checkpoint")})
        return found

    # A run.

    async def run(self, kills: int, say: Callable[[str], None] = lambda _: None) -> None:
        """Start everything, let so many kills and other faults happen under load, heal, wait until nothing is left."""
        for pair, proxy in self.proxies.items():
            await proxy.start(self.proxy_ports[pair])
        for site in self.sites:
            self.start(site)
        members = sorted({site for sites in self.groups.values() for site in sites})
        tasks: list[asyncio.Task[None]] = []
        try:
            await self._all_up()
            senders = [asyncio.create_task(self._send(site)) for site in self.sites]
            links = asyncio.create_task(self._trouble_links())
            tasks += [*senders, links, *(asyncio.create_task(self._read(site)) for site in members)]
            await self._trouble_sites(kills, say)
            links.cancel()
            for proxy in self.proxies.values():
                proxy.heal()
            self.sending = False
            await asyncio.gather(*senders)
            await self._all_up()
            await self._complete()
            await self._read_again(members)
        except OrdercastError as error:
            self.stuck.append(str(error))
        finally:
            self.sending = self.reading = False
            await self._close(tasks)

    async def _close(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            if isinstance(result, Exception):
                raise result
        for proxy in self.proxies.values():
            proxy.close()
        for site in self.processes:
            self.processes[site].send_signal(signal.SIGCONT)
            await self._end(site, signal.SIGTERM)

    async def _trouble_sites(self, kills: int, say: Callable[[str], None]) -> None:
        while self.counts["kill"] < kills:
            await asyncio.sleep(self.chance.uniform(0.0, 0.8))
            if len(self.up) < len(self.sites) - 2 and self.chance.random() < 0.8:
                continue  # mostly there are sites that do something when they are killed
            site = self.chance.choice(self.sites)
            kind = self.chance.choice(["kill", "kill", "kill", "restart", "stop"])
            self.counts[kind] += 1
            if kind == "stop":
                self.processes[site].send_signal(signal.SIGSTOP)
                await asyncio.sleep(self.chance.uniform(0.1, 1.5))
                self.processes[site].send_signal(signal.SIGCONT)
                continue
            await self._end(site, signal.SIGKILL if kind == "kill" else signal.SIGTERM)
            await asyncio.sleep(self.chance.choice([0.0, 0.1, 0.5]))
            self.start(site)
            say(f"{self.counts['kill']} kills, {len(self.book.attempts)} messages")

    async def _trouble_links(self) -> None:
        while True:
            await asyncio.sleep(self.chance.uniform(0.0, 2.0))
            proxy = self.proxies[self.chance.choice(sorted(self.proxies))]
            kind = self.chance.choice(["cut", "hold"])
            self.counts[kind] += 1
            if kind == "cut":
                proxy.break_all()
            else:
                proxy.hold(self.chance.random() < 0.5)
            await asyncio.sleep(self.chance.uniform(0.1, 1.5))
            proxy.heal()

    async def _all_up(self) -> None:
        """Wait until every site has a link to every other."""
        until = time.monotonic() + STUCK_S
        while True:
            statuses = await asyncio.gather(*(self._status(site) for site in self.sites))
            if all(status is not None and all(status["peers"].values()) for status in statuses):
                return
            if time.monotonic() > until:
                raise OrdercastError(f"not all sites are up and linked after {STUCK_S:g} s: {statuses}")
            await asyncio.sleep(0.2)

    async def _status(self, site: str) -> dict[str, Any] | None:
        try:
            async with asyncio.timeout(5.0), connect(self.cluster.clients[site]) as client:
                return await client.status()
        except (OrdercastError, TimeoutError):
            return None

    # Clients.

    async def _send(self, site: str) -> None:
        """Send as long as there is trouble; a message is sent once, whatever becomes of it."""
        while self.sending:
            life = self.lives[site]
            try:
                async with connect(self.cluster.clients[site]) as client:
                    await self._send_all(client, site, life)
            except TimeoutError:
                self.stuck.append(f"a sender at {site} has waited for {STUCK_S:g} s")
            except OrdercastError as error:
                self.counts["lost connection"] += 1
                if isinstance(error, LocalError) and not str(error).endswith(
                    ("the site was stopped", "the site is draining")
                ):
                    self.stuck.append(f"{site} refuses a message: {error}")
                await asyncio.sleep(0.05)

    async def _send_all(self, client: Client, site: str, life: int) -> None:
        """Send without waiting for the receipts of what was sent before, up to a limit."""
        waiting: set[asyncio.Task[None]] = set()
        if self.lives[site] == life:
            self.up.add(site)
        try:
            while self.sending and self.lives[site] == life:
                waiting.add(asyncio.create_task(self._post(client, site, life)))
                await asyncio.sleep(self.chance.uniform(0.0, 0.1))
                if len(waiting) > UNANSWERED_AT_MOST:
                    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in waiting if task.done()]:
                    waiting.remove(task)
                    task.result()
            await asyncio.gather(*waiting)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)

    async def _post(self, client: Client, site: str, life: int) -> None:
        async with asyncio.timeout(STUCK_S):
            await self._post_some(client, site, life)

    async def _post_some(self, client: Client, site: str, life: int) -> None:
        """Send one message or a few: in one batch, or one by one without waiting, and then for all."""
        book, many = self.book, self.chance.choice([1, 1, 2, 5])
        acks: list[AckLevel] = ["none", "ordered", "safe"] if self.receipts else ["none"]
        if self.chance.random() < 0.5:
            groups = self._destination()
            names = [book.attempt(site, groups, (site, life)) for _ in range(many)]
            ack = self.chance.choice(acks)
            first, stamps = await client.multicast_many(groups, [body_of(name) for name in names], ack)
            book.taken(names, first)
            for name, stamp in zip(names, stamps, strict=False):
                book.acknowledged(name, stamp)
            return
        names = []
        for _ in range(many):
            groups = self._destination()
            names.append(book.attempt(site, groups, (site, life)))
            await client.multicast(groups, body_of(names[-1]))
        await client.flush()
        book.taken(names)

    def _destination(self) -> tuple[GroupId, ...]:
        together = self.several if self.several and self.chance.random() < 0.3 else self.one
        return self.chance.choice(together)

    async def _read(self, site: str) -> None:
        """Read from the last position on; stop reading now and then, or go away in the middle of a batch."""
        log = self.book.logs.setdefault(site, [])
        while self.reading:
            try:
                async with connect(self.cluster.clients[site]) as client:
                    await client.join(after=len(log) - 1)
                    async for lot in client.lots():
                        away = self.chance.random() < 0.005
                        self.book.read(site, lot, self.chance.randrange(3) if away else None)
                        if away:
                            self.counts["resume"] += 1
                            break
                        if self.sending and self.chance.random() < 0.005:
                            self.counts["pause"] += 1
                            await asyncio.sleep(self.chance.uniform(0.2, 2.0))
            except LocalError as error:
                self.stuck.append(f"{site} refuses a reader after {len(log) - 1}: {error}")
                return
            except OrdercastError:
                await asyncio.sleep(0.05)

    # The end.

    async def _complete(self) -> None:
        """Wait until everything promised is read everywhere and no site has anything left to do."""
        last: list[Any] = []
        until = time.monotonic() + STUCK_S
        while time.monotonic() < until:
            statuses = {site: await self._status(site) for site in self.sites}
            self.book.sent = {site: status["sent"] for site, status in statuses.items() if status is not None}
            left = [f"{site}: {told}" for site, status in statuses.items() if (told := _left(status))]
            missing = self.book.missing()
            if not left and not missing:
                return
            if last != (last := [*left, len(missing), sum(map(len, self.book.logs.values()))]):
                until = time.monotonic() + STUCK_S
            await asyncio.sleep(0.2)
        self.stuck += left or [f"{len(missing)} deliveries are missing, and nothing happens any more"]

    async def _read_again(self, members: list[SiteId]) -> None:
        """Read the last thousands again, from a position in between: the same must come."""
        for site in members:
            log = self.book.logs[site]
            begin = self.chance.randrange(max(0, len(log) - 2500), len(log)) if log else 0
            again: list[str] = []
            with suppress(TimeoutError):
                async with asyncio.timeout(STUCK_S), connect(self.cluster.clients[site]) as client:
                    await client.join(after=begin - 1)
                    async for message in client:
                        again.append(message.body.partition(b" ")[0].decode())
                        if message.position == len(log) - 1:
                            break
            if again != log[begin:]:
                told = f"{site} reads {again[:5]}... again after {begin - 1}, first it was {log[begin:][:5]}..."
                self.book.problems.append(("positions", told))

    def verdict(self) -> dict[str, list[str]]:
        """Say what was not kept: lost, doubled, out of order, damaged, stuck; all empty when all is well."""
        book = self.book
        damaged = [example for kind, example in book.problems if kind == "bodies"]
        bugs = [f"{many} x {word} in the logs" for word, many in self.words().items() if word in WORDS[:3] and many]
        return {
            "lost": book.missing(),
            "doubled": book.doubled(),
            "out of order": book.disordered(),
            "damaged": damaged,
            "stuck": self.stuck + bugs,
        }


def troubled(folder: Path, protocol: str, options: str, seed: int) -> Chaos:
    """Return a cluster of six sites to run: small checkpoints, a site outside, a protocol and what it promises."""
    swap = SWAPS[seed % len(SWAPS)] if MACHINES[protocol].by_source else ""
    return Chaos(folder, seed, outside=OUTSIDE, options=f'protocol = "{protocol}"\n{options}', limits=LIMITS + swap)


def _left(status: dict[str, Any] | None) -> str:
    """Return what a site has left to do, in words."""
    if status is None:
        return "does not answer"
    names = ("failed", "held", "under_way", "unsafe_envelopes", "parked")
    return ", ".join(f"{name} {str(status[name])[:300]}" for name in names if status[name])
