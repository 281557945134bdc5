"""Chaos for clusters whose groups change: real processes, operators and applications; judged by `verify.changes`.

Sites are killed, stopped for longer than it takes to suspect them, lose their disks or fill them, are cut off both ways
or one way, are removed and added again, while groups are created, deleted, joined and left. Every site has an
application that reads the one stream of its site, keeps what it has read and where, and gives its state to others; and
one that sends, with every kind of receipt. Rovers are clients of no site in particular: they send, read, and survive.
"""

import asyncio
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from ordercast.audit.following import Follower
from ordercast.client.client import Client, connect
from ordercast.client.values import AckLevel, Delivered, Lot, Restored
from ordercast.errors import LocalError, OrdercastError
from ordercast.live.ports import free_ports
from ordercast.names import GroupId, SiteId
from ordercast.protocols.registry import MACHINES
from ordercast.sim.following import Following, name_in
from ordercast.verify.changes import Changes, differ_at
from tests.support.proxies import Proxy

GROUPS = {"g0": ["s0", "s1", "s2"], "g1": ["s1", "s2", "s3"], "g2": ["s3", "s4"], "g3": ["s0", "s4"]}
UNION = ("g0", "g1")
"""A message may go to both."""
SITES = ["s0", "s1", "s2", "s3", "s4"]
SUSPECT_S = 0.6
SETTLE_S = 60.0  # for everything to be done after the last trouble
WORDS = ("site.bug", "site.failed", "Traceback")


class Application(Following):
    """What reads the stream of one site; it keeps its state, and its position with it, like one with a disk."""

    def __init__(self, chaos: "ChangingChaos", site: SiteId) -> None:
        super().__init__(site, {group for group, members in GROUPS.items() if site in members})
        self.chaos = chaos

    def forget(self) -> None:
        """Begin with nothing."""
        self.begin(set())

    async def state(self, group: GroupId) -> bytes:
        """Return what it has of a group."""
        return "\n".join(self.chaos.judge.at(self.site).groups.get(group, [])).encode()

    async def run(self) -> None:
        """Read, through all restarts of the site."""
        chaos = self.chaos
        while chaos.reading:
            life = chaos.disks[self.site]
            try:
                async with connect(chaos.clients[self.site], timeout=2.0) as client:
                    await client.join(after=self.next - 1, snapshot=self.state)
                    async for lot in client.lots():
                        if chaos.disks[self.site] != life:
                            break
                        self.see(lot)
                        if chaos.trouble and chaos.chance.random() < 0.01:
                            await asyncio.sleep(chaos.chance.uniform(0.1, 1.0))
            except OrdercastError:
                await asyncio.sleep(0.05)

    def see(self, lot: Lot) -> None:
        """Apply what was delivered, and let the judge see it."""
        had = len(self.positions)
        self.take(lot, self.chaos.judge, safe=self.chaos.delivery == "safe")
        self.chaos.counts["rolled back"] += max(0, had - len(self.positions))


class Rover:
    """A client that survives its site: it reads a group and sends to it, wherever it is let in."""

    def __init__(self, chaos: "ChangingChaos", group: GroupId) -> None:
        self.chaos, self.group = chaos, group
        self.names: list[str] = []
        self.site = ""

    def _connect(self) -> Client:
        addresses = list(self.chaos.clients.values())
        self.chaos.chance.shuffle(addresses)
        return connect(addresses, timeout=2.0, survive=30.0)

    async def read(self) -> None:
        """Read the group from its beginning; what ends the client for good is counted, and it begins again."""
        chaos = self.chaos
        while chaos.reading:
            with suppress(OrdercastError):
                async with self._connect() as client:
                    await client.join([self.group], after="beginning")
                    self.names, self.site = [], client.site
                    async for event in client.events():
                        chaos.counts["moved"] += client.site != self.site
                        self.site = client.site
                        if isinstance(event, Delivered):
                            self.names.append(name_in(event.body))
                        elif isinstance(event, Restored) and event.group == self.group:
                            self.names = [line for line in event.state.decode().split("\n") if line]
            chaos.counts["began again"] += 1
            await asyncio.sleep(0.2)

    async def send(self) -> None:
        """Send to the group, sometimes to both, and wait each time until it is safe."""
        chaos, life = self.chaos, 0
        while chaos.trouble:
            life, number = life + 1, 0
            source = f"rover-{self.group}-{life}"  # another client: what the last one does not know may come late
            with suppress(OrdercastError):
                async with self._connect() as client:
                    while chaos.trouble:
                        number += 1
                        name = f"{source}:{number}"
                        groups = UNION if chaos.chance.random() < 0.2 else (self.group,)
                        chaos.judge.sent(name, source, number, groups)
                        chaos.judge.lost.add(name)  # until it is answered it may have been sent, or not
                        await client.multicast(groups, name.encode(), ack="safe")
                        chaos.judge.lost.discard(name)
                        there = {one for g in groups for one in chaos.known["groups"].get(g, {}).get("there", ())}
                        chaos.judge.called_safe(name, there)
                        chaos.counts["roving"] += 1
                        await asyncio.sleep(chaos.chance.uniform(0.0, 0.2))
            await asyncio.sleep(0.1)

    def _wanted(self) -> list[str]:
        there = self.chaos.known["groups"][self.group]["there"]
        return self.chaos.judge.at(there[0]).groups.get(self.group, []) if there else []

    async def catch_up(self) -> None:
        """Wait until everything is read."""
        until = time.monotonic() + SETTLE_S
        while self._kept() != self._wanted() and time.monotonic() < until:
            await asyncio.sleep(0.1)

    def _kept(self) -> list[str]:
        """Return what was read, but for what only a site had that has lost its disk: `agreed` promises no more."""
        if self.chaos.delivery == "safe" or not self.chaos.counts["lose"] + self.chaos.counts["replace"]:
            return self.names
        wanted = set(self._wanted())
        return [name for name in self.names if name in wanted]

    def findings(self, members: dict[GroupId, Any]) -> list[tuple[str, str]]:
        """Return what is wrong: a rover reads what the members have."""
        if not members.get(self.group) or self._kept() == self._wanted():
            return []
        wanted, kept = self._wanted(), self._kept()
        where = differ_at(kept, wanted)
        told = f"{kept[where : where + 2]}, members have {wanted[where : where + 2]}"
        return [("rover", f"who reads {self.group} everywhere has at {where} of {len(wanted)}: {told}")]


class ChangingChaos:
    """One cluster in trouble."""

    def __init__(
        self, folder: Path, protocol: str, policy: str, delivery: str, seed: int, level: str = "acyclic",
        *, causal: bool = False,
    ) -> None:  # fmt: skip
        self.folder, self.delivery, self.policy = folder, delivery, policy
        self.moves = ["move"] if MACHINES[protocol].sequencers else []
        self.chance = random.Random(seed)
        ports = free_ports(3 * len(SITES))
        self.addresses = {site: f"127.0.0.1:{ports.pop()}" for site in SITES}
        self.listens = {site: f"127.0.0.1:{ports.pop()}" for site in SITES}
        self.proxies = {site: Proxy(self.listens[site]) for site in SITES}  # smaller names call larger ones
        self.calm = asyncio.Event()  # links are left alone
        self.clients = {site: f"127.0.0.1:{ports.pop()}" for site in SITES}
        self.path = folder / "cluster.toml"
        text = [
            f'protocol = "{protocol}"', f'policy = "{policy}"', f'delivery = "{delivery}"', f'level = "{level}"',
            f"causal = {str(causal).lower()}", f"suspect_after = {SUSPECT_S}", "states = true",
            *(["migrate = true"] if self.moves and seed % 2 else []),
            *([f"direct_bytes = {seed // 2 % 2}"] if MACHINES[protocol].direct else []),
            'export = "run"', f"unions = [{list(UNION)}]", "[sites]",
            *(f'{site} = "{at}"' for site, at in self.addresses.items()), "[clients]",
            *(f'{site} = "{at}"' for site, at in self.clients.items()), "[limits]", "checkpoint_bytes = 4096",
            "inbox_bytes = 65536", "[groups]", *(f"{group} = {members}" for group, members in GROUPS.items()),
        ]  # fmt: skip
        self.path.write_text("\n".join(text))
        self.level = level
        kept = {"fifo", "total", *(["acyclic"] if level == "acyclic" else []), *(["causal"] if causal else [])}
        self.judge = Changes(frozenset(kept))
        self.counts: Counter[str] = Counter()
        self.kinds = ["kill", "kill", "kill", "kill", "kill", "stop", "lose", "restart", "full", "replace"]
        self.numbers = dict.fromkeys(SITES, 0)
        self.disks = dict.fromkeys(SITES, 0)
        self.strays: dict[str, set[SiteId]] = {}  # messages of clients that have moved, and where they may have been
        self.processes: dict[SiteId, subprocess.Popen[bytes]] = {}
        self.stuck: list[str] = []
        may_undo = policy == "available" and delivery != "safe"
        self.rovers = [Rover(self, group) for group in UNION] if not may_undo else []
        self.deleted: set[GroupId] = set()
        self.known: dict[str, Any] = {}  # the newest configuration that was heard of
        self.trouble = self.reading = True
        self.begun = False

    # Processes.

    def start(self, site: SiteId, full_at: int | None = None) -> None:
        """Start a site's process; `full_at`: no file of it may pass so many KiB."""
        listen = self.listens[site]
        command = [sys.executable, "-m", "ordercast", "site", site, "--cluster", str(self.path), "--listen", listen]
        if full_at is not None:
            command = ["bash", "-c", f"ulimit -f {full_at}; exec {shlex.join(command)}"]
        with (self.folder / f"{site}{'-full' if full_at else ''}.log").open("ab") as log:
            self.processes[site] = subprocess.Popen(command, stdout=log, stderr=log)

    async def _end(self, site: SiteId, how: signal.Signals) -> None:
        process = self.processes[site]
        if process.poll() is not None:
            self.stuck.append(f"{site} ended by itself with exit code {process.returncode}")
        process.send_signal(how)
        until = time.monotonic() + SETTLE_S
        while process.poll() is None:
            await asyncio.sleep(0.01)
            if time.monotonic() > until:
                self.stuck.append(f"{site} did not stop when it was told to")
                process.kill()

    # A run.

    async def run(self, kills: int, changes: int, say: Callable[[str], None] = lambda _: None) -> None:
        """Let so many kills and changes happen under load; then heal, and wait until nothing is left."""
        for site in SITES:
            await self.proxies[site].start(int(self.addresses[site].rpartition(":")[2]))
            self.start(site)
        tasks: list[asyncio.Task[None]] = []
        try:
            self.applications = {site: Application(self, site) for site in SITES}
            tasks += [asyncio.create_task(application.run()) for application in self.applications.values()]
            await self._settled()  # who was suspected at the start is given a state by an application
            self.begun = True
            senders = [asyncio.create_task(self._send(site)) for site in SITES]
            senders += [asyncio.create_task(rover.send()) for rover in self.rovers]
            tasks += [*senders, *(asyncio.create_task(rover.read()) for rover in self.rovers)]
            tasks.append(asyncio.create_task(self._trouble_links()))
            operator = asyncio.create_task(self._operate(changes))
            tasks += [operator, asyncio.create_task(self._follow())]
            while self.counts["kill"] < kills or not operator.done():
                await self._hurt(self.chance.choice(self.kinds))
                say(f"{self.counts['kill']} kills, {self.counts['change']} changes, {len(self.judge.sends)} messages")
            self.trouble = False
            await self._settled()
            await asyncio.gather(*senders)
            await self._settled()
            await self._read_all()
            for rover in self.rovers:
                await rover.catch_up()
        except TimeoutError as error:
            self.stuck.append(str(error))
        finally:
            self.trouble = self.reading = False
            for task in tasks:
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, Exception):
                    self.stuck.append(f"a part of the test has ended: {result!r}")
            for site, process in self.processes.items():
                if process.poll() is None:
                    process.send_signal(signal.SIGCONT)
                    await self._end(site, signal.SIGTERM)
            for proxy in self.proxies.values():
                proxy.close()

    async def _hurt(self, kind: str) -> None:
        chance, site = self.chance, self.chance.choice(SITES)
        await asyncio.sleep(chance.uniform(0.0, 0.6))
        if kind in ("lose", "replace"):  # one lost disk at a time is survived, two at once may not be
            await self._settled(states=kind == "lose")  # a removal waits until nobody needs the site (errata 114)
        self.counts[kind] += 1
        if kind == "replace":
            await self._replace(site)
            return
        if kind == "full":
            await self._fill(site)
            return
        if kind == "stop":
            self.processes[site].send_signal(signal.SIGSTOP)
            await asyncio.sleep(chance.choice([0.2, 2.5 * SUSPECT_S]))
            self.processes[site].send_signal(signal.SIGCONT)
            return
        await self._end(site, signal.SIGTERM if kind == "restart" else signal.SIGKILL)
        if kind == "lose":
            self._lose_disk(site)
        await asyncio.sleep(chance.choice([0.0, 0.0, 0.3, 0.3, 2.5 * SUSPECT_S, 4.0]))  # rovers wait for 3 s
        self.start(site)
        if kind == "lose":
            await self._settled()
            self.judge.taken_in(site)

    def _lose_disk(self, site: SiteId) -> None:
        there = {group: tuple(told["there"]) for group, told in self.known["groups"].items()}
        shutil.rmtree(self.folder / "data" / site)
        self.disks[site] += 1
        self.applications[site].forget()
        self.judge.forgot(site, there)
        self.judge.lost |= {name for name, at in self.strays.items() if site in at and name not in self.judge.safe}

    async def _follow(self) -> None:
        """Audit the run as it is written; each audit goes on from what the last one has kept."""
        while True:
            follower = Follower(self.folder / "run", self.level, self.folder / "audit.state")
            for _ in range(5):
                await asyncio.to_thread(follower.look)
                await asyncio.sleep(1.0)
            await asyncio.to_thread(follower.save)

    async def _fill(self, site: SiteId) -> None:
        """The disk is full: the site says so and ends; somebody makes room, and starts it again."""
        await self._end(site, signal.SIGKILL)
        size = (self.folder / "data" / site / "history.db").stat().st_size
        self.start(site, full_at=size // 1024 + self.chance.choice([8, 64]))
        until = time.monotonic() + 3.0
        while self.processes[site].poll() is None and time.monotonic() < until:
            await asyncio.sleep(0.05)
        if self.processes[site].poll() is None:
            await self._end(site, signal.SIGKILL)
        self.start(site)

    async def _replace(self, site: SiteId) -> None:
        """An operator removes a site, gives its name to an empty machine, and lets it into its groups again."""
        groups = [group for group, told in self.known["groups"].items() if site in told["members"]]
        if not await self._asks("remove", "", (site,)):
            return  # refused: a group needs it
        await self._end(site, signal.SIGKILL)
        self._lose_disk(site)
        address = f"{self.addresses[site]}/{self.clients[site]}"
        while not await self._asks("add", "", (site,), {"address": address}):
            await asyncio.sleep(0.1)
        self.start(site)
        await self._settled()
        self.judge.taken_in(site)
        for group in groups:
            await self._asks("join", group, (site,))

    async def _asks(
        self, what: str, group: GroupId, sites: tuple[SiteId, ...], options: dict[str, str] | None = None
    ) -> bool:
        """Ask another site for a change until it is answered; return whether it is in force."""
        while True:
            other = self.chance.choice([name for name in SITES if name not in sites])
            with suppress(OrdercastError, TimeoutError):
                async with asyncio.timeout(10), connect(self.clients[other], timeout=2.0, survive=0) as client:
                    try:
                        await client.change(what, group, sites, options)
                        self.counts["change"] += 1
                    except LocalError as error:
                        done = "there is no site" if what == "remove" else "is a member" if what == "join" else "never"
                        return done in str(error)  # asked before, and not answered
                    else:
                        return True
            await asyncio.sleep(0.1)

    async def _trouble_links(self) -> None:
        """Cut sites off, both ways or one way, for shorter or longer than it takes to suspect them; slow them down."""
        chance = self.chance
        while self.trouble:
            await asyncio.sleep(chance.uniform(0.2, 3.0))
            proxy = self.proxies[chance.choice(SITES)]
            if self.calm.is_set() or not self.trouble:
                continue
            kind = chance.choice(["cut", "one way", "slow"])
            self.counts[kind] += 1
            if kind == "cut":
                proxy.break_all()
            elif kind == "slow":
                proxy.delay = chance.choice([0.02, 0.2])
            else:
                proxy.hold(chance.random() < 0.5)
            with suppress(TimeoutError):
                await asyncio.wait_for(self.calm.wait(), chance.choice([0.2, 2.5 * SUSPECT_S]))
            proxy.heal()

    async def _operate(self, changes: int) -> None:
        """Ask for changes, anywhere; those that cannot be done are refused, and count too."""
        chance, made = self.chance, 0
        while self.counts["change"] < changes:
            await asyncio.sleep(chance.uniform(0.0, 0.8))
            groups = sorted(self.known["groups"])
            group, site, what = (
                chance.choice(groups),
                chance.choice(SITES),
                chance.choice(["create", "delete", "join", "leave", *self.moves]),
            )
            members: tuple[SiteId, ...] = (site,)
            if what == "create" or len(groups) < 3:
                made += 1
                what, group, members = "create", f"n{made}", tuple(chance.sample(SITES, chance.choice([1, 2, 3])))
            if what == "delete" and group not in UNION:  # such a one is refused
                self.deleted.add(group)
            try:
                async with asyncio.timeout(10), connect(self.clients[chance.choice(SITES)], timeout=2.0) as client:
                    await client.change(what, group, members if what != "delete" else ())
                    self.counts[what] += 1
            except LocalError:
                self.counts["refused"] += 1
            except (OrdercastError, TimeoutError):
                self.counts["unanswered"] += 1
            self.counts["change"] += 1
            await self._look()

    async def _look(self) -> list[dict[str, Any]]:
        """Ask every site for its configuration and its status; a number must name one configuration."""
        found = []
        for site in SITES:
            with suppress(OrdercastError, TimeoutError):
                async with asyncio.timeout(3), connect(self.clients[site], timeout=2.0) as client:
                    known, status = await client.configuration(), await client.status()
                    found.append({"site": site, "known": known, "status": status})
                    own = ("manager", "suspected", "joining")
                    same = {key: value for key, value in known.items() if key not in own}
                    if known["number"]:
                        self.judge.decided(site, known["number"], same)
                    if known["number"] >= self.known.get("number", 0):
                        self.known = known
        return found

    async def _settled(self, *, states: bool = False) -> None:
        """Wait until all sites are in one configuration, nobody is away, and nothing is held; or waits for a state."""
        self.calm.set()
        try:
            await self._wait_settled(states)
        finally:
            self.calm.clear()

    async def _wait_settled(self, states: bool) -> None:
        until, left = time.monotonic() + SETTLE_S, ""
        while time.monotonic() < until:
            found = await self._look()
            numbers = {one["known"]["number"] for one in found}
            left = f"{len(found)} of {len(SITES)} sites answer, in configurations {numbers}"
            leads = [one["known"]["suspected"] for one in found if one["site"] == one["known"]["manager"]]
            if any(leads) or (states and any(one["known"]["joining"] for one in found)):
                await asyncio.sleep(0.1)  # what only a dead site has is lost when it is removed
                continue
            if len(found) == len(SITES) and len(numbers) == 1 and numbers != {0} and not self.known["away"]:
                if not self.trouble or not self.begun:
                    held = {one["site"]: one["status"]["held"][:2] for one in found if one["status"]["held"]}
                    unsafe = {
                        o["site"]: o["status"]["unsafe_envelopes"] for o in found if o["status"]["unsafe_envelopes"]
                    }
                    left = f"held {held}, not safe {unsafe}"
                    if not held and not unsafe:
                        return
                else:
                    return
            await asyncio.sleep(0.1)
        (self.folder / "stuck.json").write_bytes(msgspec.json.encode(found))
        raise TimeoutError(f"not settled after {SETTLE_S:g} s: {left}; away {self.known.get('away')}")

    async def _read_all(self) -> None:
        """Wait until every application has read everything."""
        until = time.monotonic() + SETTLE_S
        while time.monotonic() < until:
            delivered = {one["site"]: one["status"]["delivered"] for one in await self._look()}
            behind = {site: app.next for site, app in self.applications.items() if app.next != delivered.get(site)}
            if not behind:
                return
            await asyncio.sleep(0.1)
        raise TimeoutError(f"not everything is read: {behind} of {delivered}")

    # Sending.

    async def _send(self, site: SiteId) -> None:
        """Send at a site; when a client has moved, or was not told of posts, the next one is another source.

        What the first one does not know may come late, and the next one may move meanwhile and overtake it.
        """
        moved, source = 0, site
        while self.trouble:
            lost = self.counts["posts lost"]
            try:
                async with connect(self.clients[site], timeout=2.0) as client:
                    waiting: set[asyncio.Task[None]] = set()
                    try:
                        while self.trouble:
                            waiting.add(asyncio.create_task(self._post(client, site, source)))
                            await asyncio.sleep(self.chance.uniform(0.0, 0.15))
                            if len(waiting) > 10:
                                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                            for task in [task for task in waiting if task.done()]:
                                waiting.discard(task)
                                task.result()
                    except asyncio.CancelledError:
                        for task in waiting:
                            task.cancel()
                        raise
                    finally:
                        await asyncio.gather(*waiting, return_exceptions=True)
                        moved += client.site not in ("", site) or self.counts["posts lost"] > lost
                        source = f"{site}#{moved}" if moved else site
            except OrdercastError:
                await asyncio.sleep(0.1)

    async def _post(self, client: Client, site: SiteId, source: str) -> None:
        groups: tuple[GroupId, ...] = (self.chance.choice(sorted(self.known["groups"])),)
        if self.chance.random() < 0.2:
            groups = UNION
        self.numbers[site] += 1
        number, life = self.numbers[site], self.disks[site]
        name = f"{source}:{number}" if not life else f"{source}/{life + 1}:{number}"
        acks: list[AckLevel] = ["none", "ordered", "safe"]
        ack = self.chance.choice(acks)
        self.judge.sent(name, source, number, groups)
        at, disks = {client.site or site}, dict(self.disks)
        try:
            await client.multicast_many(groups, [name.encode() + b" " + bytes(self.chance.choice([0, 50, 500]))], ack)
        except LocalError:
            self.judge.dropped.add(name)
        except OrdercastError:
            self.judge.lost.add(name)  # it may have been sent, or not
            self.counts["posts lost"] += 1
            raise
        else:
            self.counts[f"ack {ack}"] += 1
            at.add(client.site or site)
            if at != {site} or source != site:  # what was read at its first site says nothing at another
                self.strays[name] = at
                self.judge.sends[name] = self.judge.sends[name]._replace(after=0)
            if life != self.disks[site] or (name in self.strays and disks != self.disks):
                self.judge.lost.add(name)
            elif ack == "safe":
                there = {site for group in groups for site in self.known["groups"].get(group, {}).get("there", ())}
                self.judge.called_safe(name, there)

    # The end.

    def findings(self) -> list[tuple[str, str]]:
        """Return everything that was not kept."""
        for group in sorted(self.deleted):
            self.judge.unknown(group)
        members = {group: told["there"] for group, told in self.known["groups"].items() if group not in self.deleted}
        found = [("stuck", line) for line in self.stuck]
        for rover in self.rovers:
            found += rover.findings(members)
        for site in SITES:
            text = (self.folder / f"{site}.log").read_text(errors="replace")
            found += [("bug", f"{text.count(word)} x {word} in the log of {site}") for word in WORDS if word in text]
            full = self.folder / f"{site}-full.log"
            if full.exists() and "site.bug" in full.read_text(errors="replace"):
                found.append(("bug", f"a full disk is a bug to {site}"))
        return found + self.judge.findings(members, frozenset(self.known["sites"])) + self._audited()

    def _audited(self) -> list[tuple[str, str]]:
        """Return what the audit of the run directories finds, which knows nothing of what was done to the cluster."""
        from ordercast.audit.changing import audit_changing
        from ordercast.audit.local import LocalSource

        verdict = audit_changing(LocalSource(str(self.folder / "run")), self.level)
        found = [(f"audit: {name}", answer.says) for name, answer in verdict.broken().items()]
        follower = Follower(self.folder / "run", self.level, self.folder / "audit.state")
        follower.search_s = 0.0
        follower.look()
        self.counts["followed"], self.counts["not settled"] = follower.deliveries, follower.under_way
        return found + [(f"follow: {name}", finding.says) for name, finding in follower.broken.items()]
