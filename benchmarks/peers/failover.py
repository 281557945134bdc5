"""What a crash of the ordering node costs: ordercast, NATS JetStream with three replicas, Corosync (`make peers`).

Three nodes each, in processes of their own, with the failure detectors that they come with. A client at one node sends
to a group, each message when the one before is acknowledged; another one reads at a second node. The third node, which
orders what is sent, is killed with -9. Measured is the time from the kill to the next message that was sent after it
and is read, and how many acknowledged messages are never read. What is acknowledged: ordercast, every member that is
there has it on its disk; NATS, a majority has it (it does not wait for the disk); Corosync, it came back to its sender
in the order (it keeps nothing). Corosync takes a network for each node: namespaces of this machine, which take root.

Run: python -m benchmarks.peers.failover [--kills 5]
"""

import argparse
import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from benchmarks.results import record, table

from ordercast.client.client import connect
from ordercast.errors import OrdercastError
from ordercast.live.changing import setup_of
from ordercast.live.config import read_cluster
from ordercast.live.ports import free_ports

BEFORE_S, PATIENCE_S, COMPLETE_S = 2.0, 60.0, 20.0


class System(Protocol):
    """Three nodes; `victim` orders what is sent."""

    name: str
    acknowledged_means: str

    async def start(self) -> None:
        """Start all nodes, and wait until they work."""

    async def victim(self) -> int:
        """Return the process that orders."""

    async def send(self, number: int) -> None:
        """Send a message and wait until it is acknowledged, however often it must be tried."""

    def read(self) -> AsyncIterator[int]:
        """Yield the numbers that come, at another node."""

    async def mend(self) -> None:
        """Start the victim again, and wait until it is back."""

    async def stop(self) -> None:
        """End everything."""


async def measure(system: System, kills: int) -> tuple[list[float], int, int]:
    """Start a system, crash it, and end it."""
    try:
        await system.start()
        return await crash(system, kills)
    finally:
        await system.stop()


async def crash(system: System, kills: int) -> tuple[list[float], int, int]:
    """Return how long each crash took, and how many messages were acknowledged and lost."""
    sent: dict[int, float] = {}
    acknowledged: set[int] = set()
    came: dict[int, float] = {}
    stopped = asyncio.Event()

    async def sender() -> None:
        number = 0
        while not stopped.is_set():
            number += 1
            sent[number] = time.monotonic()
            await system.send(number)
            acknowledged.add(number)

    async def reader() -> None:
        async for number in system.read():
            came.setdefault(number, time.monotonic())

    reads = asyncio.create_task(reader())
    sends = asyncio.create_task(sender())
    took: list[float] = []
    for index in range(kills):
        await asyncio.sleep(BEFORE_S)
        pid = await system.victim()
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        while not (later := [at for number, at in came.items() if sent[number] > killed]):
            for task in (reads, sends):
                if task.done():
                    task.result()
            if time.monotonic() > killed + PATIENCE_S:
                raise TimeoutError(f"{system.name}: nothing came for {PATIENCE_S:g} s")
            await asyncio.sleep(0.005)
        took.append(min(later) - killed)
        print(f"{system.name}: crash {index + 1} of {kills}: {took[-1]:.2f} s", flush=True)
        await system.mend()
    stopped.set()
    await asyncio.wait([sends], timeout=PATIENCE_S)
    until = time.monotonic() + COMPLETE_S
    while not acknowledged <= came.keys() and time.monotonic() < until:
        await asyncio.sleep(0.1)
    reads.cancel()
    await asyncio.gather(reads, return_exceptions=True)
    return took, len(acknowledged), len(acknowledged - came.keys())


class Ordercast:
    """Three durable sites that change and heal."""

    name, acknowledged_means = "ordercast, available, safe", "on every disk"

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="failover-ordercast-"))
        sites = [f"s{index}" for index in range(3)]
        ports = free_ports(6)
        self.clients = {site: f"127.0.0.1:{ports.pop()}" for site in sites}
        lines = ['policy = "available"', 'delivery = "safe"', "[sites]"]
        lines += [f'{site} = "127.0.0.1:{ports.pop()}"' for site in sites]
        lines += ["[clients]", *(f'{site} = "{at}"' for site, at in self.clients.items()), "[groups]", f"all = {sites}"]
        self.path = self.folder / "cluster.toml"
        self.path.write_text("\n".join(lines))
        plans = [of_class.plan for of_class in setup_of(read_cluster(self.path)).classes.values()]
        self.orders = next(plan.groups["all"].entry for plan in plans if plan is not None)
        self.here, self.there = [site for site in sites if site != self.orders]
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def _start(self, site: str) -> None:
        command = [sys.executable, "-m", "ordercast", "site", site, "--cluster", str(self.path)]
        with (self.folder / f"{site}.log").open("ab") as log:
            self.processes[site] = subprocess.Popen(command, stdout=log, stderr=log)

    async def start(self) -> None:
        for site in self.clients:
            self._start(site)
        while True:
            with suppress(OrdercastError):
                self.client = await connect(self.clients[self.here]).__aenter__()
                break
            await asyncio.sleep(0.1)
        await self._settled()

    async def _settled(self) -> None:
        while True:
            known = await self.client.configuration()
            if known["number"] and not known["away"] and not known["suspected"]:
                return
            await asyncio.sleep(0.05)

    async def victim(self) -> int:
        return self.processes[self.orders].pid

    async def send(self, number: int) -> None:
        await self.client.multicast("all", str(number).encode(), ack="safe")

    async def read(self) -> AsyncIterator[int]:
        async with connect(self.clients[self.there]) as client:
            await client.join()
            async for message in client:
                yield int(message.body)

    async def mend(self) -> None:
        self.processes[self.orders].wait()
        self._start(self.orders)
        await asyncio.sleep(1.0)
        await self._settled()

    async def stop(self) -> None:
        with suppress(OrdercastError, AttributeError):
            await self.client.__aexit__(None, None, None)
        for process in self.processes.values():
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Nats:
    """Three servers, one stream with three replicas on files."""

    name, acknowledged_means = "NATS JetStream, R3", "at a majority"

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="failover-nats-"))
        ports = free_ports(6)
        self.ports, routes = ports[:3], ports[3:]
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        for index in range(3):
            others = ", ".join(f"nats://127.0.0.1:{port}" for port in routes)
            (self.folder / f"{index}.conf").write_text(
                f"port: {self.ports[index]}\nserver_name: n{index}\n"
                f'jetstream {{ store_dir: "{self.folder}/{index}" }}\n'
                f"cluster {{ name: c, listen: 127.0.0.1:{routes[index]}, routes: [{others}] }}\n"
            )

    def _start(self, index: int) -> None:
        command = ["nats-server", "-c", str(self.folder / f"{index}.conf")]
        self.processes[index] = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    async def start(self) -> None:
        import nats
        from nats.js.api import StorageType, StreamConfig

        for index in range(3):
            self._start(index)
        servers = [f"nats://127.0.0.1:{port}" for port in self.ports]

        async def quiet(_: Exception) -> None:
            """It tells of every lost connection."""

        config = StreamConfig(name="w", subjects=["w.*"], storage=StorageType.FILE, num_replicas=3)
        while True:
            with suppress(Exception):  # it says in many ways that it is not up yet
                self.connection = await nats.connect(
                    servers, max_reconnect_attempts=-1, reconnect_time_wait=0.1, error_cb=quiet
                )
                self.stream = self.connection.jetstream(timeout=2)
                await self.stream.add_stream(config)
                break
            await asyncio.sleep(0.5)
        await self._settled()

    async def _settled(self) -> None:
        while True:
            with suppress(Exception):
                cluster = (await self.stream.stream_info("w")).cluster
                replicas = cluster.replicas or [] if cluster is not None else []
                if cluster is not None and cluster.leader and sum(bool(one.current) for one in replicas) == 2:
                    self.leader = int(cluster.leader[1:])
                    return
            await asyncio.sleep(0.1)

    async def victim(self) -> int:
        await self._settled()
        return self.processes[self.leader].pid

    async def send(self, number: int) -> None:
        while True:
            with suppress(Exception):
                once = {"Nats-Msg-Id": str(number)}
                await self.stream.publish("w.all", str(number).encode(), timeout=0.5, headers=once)
                return
            await asyncio.sleep(0.01)

    async def read(self) -> AsyncIterator[int]:
        from nats.js.api import AckPolicy, ConsumerConfig

        config = ConsumerConfig(durable_name="r", num_replicas=3, ack_policy=AckPolicy.EXPLICIT)
        reader = await self.stream.pull_subscribe("w.all", durable="r", config=config)
        while True:
            with suppress(Exception):
                for message in await reader.fetch(64, timeout=0.25):
                    yield int(message.data)
                    await message.ack()

    async def mend(self) -> None:
        self.processes[self.leader].wait()
        self._start(self.leader)
        await asyncio.sleep(1.0)
        await self._settled()

    async def stop(self) -> None:
        with suppress(Exception):
            await self.connection.close()
        for process in self.processes.values():
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


class Corosync:
    """Three nodes of one ring, each in a network of its own; the one with the lowest number is killed."""

    name, acknowledged_means = "Corosync, CPG agreed", "back at its sender"

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="failover-corosync-"))
        self.spaces = {index: f"oc{os.getpid()}n{index}" for index in (1, 2, 3)}
        self.bridge = f"oc{os.getpid()}"[:15]
        self.nodes: dict[int, subprocess.Popen[bytes]] = {}
        parts: dict[str, list[str]] = {
            "totem": ["version: 2", "cluster_name: c", "transport: udpu", "crypto_cipher: none", "crypto_hash: none"],
            "nodelist": [
                f"node {{\nnodeid: {index}\nname: n{index}\nring0_addr: 10.201.77.{index}\n}}" for index in self.spaces
            ],
            "quorum": ["provider: corosync_votequorum"],
            "logging": ["to_stderr: no", "to_syslog: no", "to_logfile: yes", f"logfile: {self.folder}/log"],
        }
        text = "".join("\n".join([f"{name} {{", *lines, "}", ""]) for name, lines in parts.items())
        (self.folder / "corosync.conf").write_text(text)

    def _ip(self, *words: str) -> None:
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def _networks(self) -> None:
        self._ip("link", "add", self.bridge, "type", "bridge")
        self._ip("link", "set", self.bridge, "up")
        for index, space in self.spaces.items():
            inner, outer = f"{self.bridge}i{index}"[-15:], f"{self.bridge}o{index}"[-15:]
            self._ip("netns", "add", space)
            self._ip("link", "add", outer, "type", "veth", "peer", "name", inner)
            self._ip("link", "set", outer, "master", self.bridge, "up")
            self._ip("link", "set", inner, "netns", space)
            self._ip("-n", space, "addr", "add", f"10.201.77.{index}/24", "dev", inner)
            self._ip("-n", space, "link", "set", inner, "up")
            self._ip("-n", space, "link", "set", "lo", "up")

    def _start(self, index: int) -> None:
        own = " && ".join(f"mount -t tmpfs tmpfs {folder}" for folder in ("/run", "/var/lib/corosync"))
        run = f"{own} && exec corosync -f -c {self.folder}/corosync.conf"
        command = ["ip", "netns", "exec", self.spaces[index], "sh", "-c", run]
        with (self.folder / f"{index}.err").open("ab") as log:
            self.nodes[index] = subprocess.Popen(command, stdout=log, stderr=log)

    async def _client(self, index: int) -> asyncio.subprocess.Process:
        command = ["ip", "netns", "exec", self.spaces[index], sys.executable, "-m", "benchmarks.peers.cpg"]
        return await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )

    async def start(self) -> None:
        self._networks()
        for index in self.spaces:
            self._start(index)
        await asyncio.sleep(6)  # the ring forms
        self.sends, self.reads = await self._client(2), await self._client(3)
        for client in (self.sends, self.reads):
            assert client.stdout is not None
            line = await asyncio.wait_for(client.stdout.readline(), 20)
            if line.strip() != b"joined":
                raise SystemExit(f"Corosync: its client says {line!r}; see {self.folder}")

    async def victim(self) -> int:
        return self.nodes[1].pid

    async def send(self, number: int) -> None:
        assert self.sends.stdin is not None and self.sends.stdout is not None
        self.sends.stdin.write(b"%d\n" % number)
        await self.sends.stdin.drain()
        while int((await self.sends.stdout.readline()) or -1) != number:  # it came back in the order
            pass

    async def read(self) -> AsyncIterator[int]:
        assert self.reads.stdout is not None
        while line := await self.reads.stdout.readline():
            yield int(line)

    async def mend(self) -> None:
        self.nodes[1].wait()
        self._start(1)
        await asyncio.sleep(6)

    async def stop(self) -> None:
        for client in (getattr(self, "sends", None), getattr(self, "reads", None)):
            if client is not None:
                with suppress(ProcessLookupError):
                    client.kill()
                await client.wait()
        for process in self.nodes.values():
            process.kill()
            process.wait()
        for space in self.spaces.values():
            subprocess.run(["ip", "netns", "del", space], check=False, capture_output=True)
        subprocess.run(["ip", "link", "del", self.bridge], check=False, capture_output=True)
        shutil.rmtree(self.folder, ignore_errors=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=5)
    kills = parser.parse_args().kills
    rows: list[list[object]] = []
    kinds: list[Callable[[], Any]] = [Ordercast, Nats]
    if os.geteuid() == 0 and shutil.which("corosync"):
        kinds.append(Corosync)
    else:
        print("Corosync is left out: it takes root, and Debian's packages corosync and libcpg4")
    for kind in kinds:
        system = kind()
        took, acknowledged, lost = asyncio.run(measure(system, kills))
        took.sort()
        times = [f"{seconds:.2f}" for seconds in (took[0], took[len(took) // 2], took[-1])]
        rows.append([system.name, system.acknowledged_means, kills, *times, f"{acknowledged:,}", lost])
        print(rows[-1], flush=True)
    head = [
        "system",
        "acknowledged",
        "kills",
        "least s",
        "median s",
        "most s",
        "messages acknowledged",
        "of these lost",
    ]
    told = (
        "Three nodes on one machine, failure detectors as they come (ordercast suspect_after 3 s, Corosync token 3 s, "
        "NATS election after 4 to 9 s). Seconds from kill -9 of the node that orders to the next message sent after it "
        "and read."
    )
    record("Live: a crash of the ordering node, beside NATS and Corosync", "make peers", [*table(head, rows), "", told])
    return 0


if __name__ == "__main__":
    sys.exit(main())
