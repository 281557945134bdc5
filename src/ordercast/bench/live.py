"""`ordercast bench`: a workload on real processes and TCP, measured, and verified on what the receivers recorded.

A process per site and per sender, each with a site embedded. Senders call `multicast` once per message, receivers read
message by message and note source and number of each: order and completeness are judged on those notes.
"""

import asyncio
import gc
import multiprocessing
import resource
import shutil
import socket
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import msgspec

from ordercast.errors import InputError, LocalError
from ordercast.live.config import Cluster, deploy
from ordercast.live.site import Site
from ordercast.membership.toml import groups_in, read_toml
from ordercast.node.settings import Limits

READY_S, RUN_S = 60.0, 300.0


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What everything is compared on."""

    groups: dict[str, list[str]]
    payload_bytes: int = 100
    senders: int = 4


class Task(msgspec.Struct, frozen=True):
    """What one process does."""

    cluster: Cluster
    me: str
    rounds: int
    payload: int
    paced: int
    """Messages of each sender in the latency phase."""
    interval: float
    offset: float


def read_workload(path: Path) -> Workload:
    """Read a workload; says what is wrong."""
    given = read_toml(path)
    groups_in(path, given)
    try:
        return msgspec.convert(given, Workload)
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: {error}") from None


def measure(
    workload: Workload,
    *,
    durable: bool,
    messages: int,
    batch: int | None = None,
    rate: float = 500.0,
    seconds: float = 4.0,
    say: Callable[[str], None] = lambda line: None,
) -> dict[str, Any]:
    """Run a workload once and return its figures."""
    senders = [f"sender-{index}" for index in range(workload.senders)]
    sites = sorted({site for members in workload.groups.values() for site in members})
    rounds = max(1, messages // (len(senders) * len(workload.groups)))
    folder = tempfile.mkdtemp(prefix="ordercast-bench-")
    addresses = {name: f"127.0.0.1:{port}" for name, port in zip([*sites, *senders], _free_ports(), strict=False)}
    limits = Limits() if batch is None else Limits(envelope_messages=batch)
    load = 2 * sum(len(members) for members in workload.groups.values())  # no bound: one machine has it all anyway
    options: dict[str, Any] = {"durable": durable, "folder": folder, "limits": limits, "max_load": load}
    cluster = Cluster(sites=addresses, groups=workload.groups, **options)
    deploy(cluster)  # once, for all
    paced = max(1, int(rate * seconds / len(senders)))
    context = multiprocessing.get_context("spawn")
    workers: dict[str, tuple[Any, Connection]] = {}
    try:
        for name in [*sites, *senders]:
            ours, theirs = context.Pipe()
            turn = senders.index(name) / rate if name in senders else 0.0
            task = Task(cluster, name, rounds, workload.payload_bytes, paced, len(senders) / rate, turn)
            process = context.Process(target=_work, args=(task, senders, theirs), daemon=True)
            process.start()
            workers[name] = (process, ours)
        say("waiting for all links")
        _all(workers, "ready", READY_S)
        say("as fast as it goes")
        cpu = sum(_ask(workers, "cpu").values())
        begun = time.monotonic()
        _tell(workers, "go")
        ends = _all(workers, "done", RUN_S)
        took = max(ends[site] for site in sites) - begun
        cpu = sum(_ask(workers, "cpu").values()) - cpu
        say(f"at {rate:g} messages a second")
        _tell(workers, "pace")
        _all(workers, "done", RUN_S)
        rss = _ask(workers, "rss")
        notes = _ask(workers, "notes")
        logs = {site: _notes_of(Path(notes[site])) for site in sites}
        _tell(workers, "stop")
        for process, _ in workers.values():
            process.join(10)
    finally:
        for process, _ in workers.values():
            with suppress(Exception):
                process.kill()
        shutil.rmtree(folder, ignore_errors=True)
    say("verifying order and completeness")
    expected = {
        group: len(senders) * (rounds + sum(1 for number in range(paced) if number % len(workload.groups) == index))
        for index, group in enumerate(workload.groups)
    }
    order_ok, complete = verify(workload, logs, expected)
    per_round = sum(len(members) for members in workload.groups.values())
    deliveries = rounds * len(senders) * per_round
    latency = latencies(logs)
    return {
        "durable": durable,
        "batch": batch,
        "deliveries": deliveries,
        "deliveries_per_s": round(deliveries / took),
        "p50_ms": round(1e3 * latency[len(latency) // 2], 3),
        "p99_ms": round(1e3 * latency[int(len(latency) * 0.99)], 3),
        "cpu_s_per_100k": round(cpu * 1e5 / deliveries, 3),
        "rss_mib": round(max(rss.values()) / 1024, 1),
        "order_ok": order_ok,
        "complete": complete,
    }


def _free_ports() -> Iterator[int]:
    held = []
    while True:
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        held.append(listener)
        yield int(listener.getsockname()[1])


def _tell(workers: dict[str, tuple[Any, Connection]], what: str) -> None:
    for _, pipe in workers.values():
        pipe.send(what)


def _ask(workers: dict[str, tuple[Any, Connection]], what: str) -> dict[str, Any]:
    _tell(workers, what)
    return _all(workers, what, READY_S)


def _all(workers: dict[str, tuple[Any, Connection]], what: str, seconds: float) -> dict[str, Any]:
    """Wait until every process has said this; one that dies or is silent ends the run."""
    said = {}
    until = time.monotonic() + seconds
    for name, (_, pipe) in workers.items():
        try:
            if not pipe.poll(max(0.0, until - time.monotonic())):
                raise LocalError(f"{name} did not say {what!r} within {seconds:g} s")
            word, value = pipe.recv()
        except (EOFError, OSError):
            raise LocalError(f"{name} died before it said {what!r}") from None
        if word != what:
            raise LocalError(f"{name}: {value}")
        said[name] = value
    return said


def verify(workload: Workload, logs: dict[str, Any], expected: dict[str, int]) -> tuple[bool, bool]:
    """Judge what was recorded: one serial order exists, and every member has every message of its groups once."""
    from ordercast.verify.rings import tangled

    names = list(workload.groups)
    ids: dict[str, list[int]] = {}
    of_group: dict[str, list[set[int]]] = {group: [] for group in names}
    complete = True
    for site, (sources, groups, numbers, _) in logs.items():
        log = [source << 40 | number for source, number in zip(sources, numbers, strict=True)]
        ids[site] = log
        complete &= len(log) == len(set(log))
        for index, group in enumerate(names):
            if site in workload.groups[group]:
                of_group[group].append({message for message, to in zip(log, groups, strict=True) if to == index})
    for group, seen in of_group.items():
        complete &= all(messages == seen[0] for messages in seen) and len(seen[0]) == expected[group]
    return not tangled(ids), complete


def latencies(logs: dict[str, Any]) -> list[float]:
    """Return for each paced message how long it took to its last member, sorted."""
    slowest: dict[tuple[int, int], float] = {}
    for *_, late in logs.values():
        for source, number, seconds in late:
            slowest[source, number] = max(slowest.get((source, number), 0.0), seconds)
    return sorted(slowest.values())


def _work(task: Task, senders: list[str], pipe: Connection) -> None:
    from ordercast.live.loop import run

    try:
        run(_site(task, senders, pipe))
    except Exception as error:
        with suppress(OSError):
            pipe.send(("error", f"{type(error).__name__}: {error}"))


async def _site(task: Task, senders: list[str], pipe: Connection) -> None:
    loop = asyncio.get_running_loop()
    words: asyncio.Queue[str] = asyncio.Queue()
    loop.add_reader(pipe.fileno(), lambda: words.put_nowait(pipe.recv()))
    names = list(task.cluster.groups)
    async with Site(task.cluster, task.me) as site:
        reader = _Reader(site, senders, task) if task.me not in senders else None
        while not all(site.status()["peers"].values()):
            await asyncio.sleep(0.01)
        gc.collect()
        gc.freeze()  # what is there by now stays: the collector need not look at it again
        pipe.send(("ready", None))
        while (word := await words.get()) != "stop":
            if word == "cpu":
                used = resource.getrusage(resource.RUSAGE_SELF)
                pipe.send((word, used.ru_utime + used.ru_stime))
            elif word == "rss":
                pipe.send((word, _peak_kib()))
            elif word == "notes":
                path = Path(task.cluster.folder) / f"{task.me}.notes"
                if reader is not None:
                    path.write_bytes(msgspec.msgpack.encode(reader.notes()))
                pipe.send((word, str(path)))
            elif word == "go":
                if reader is None:
                    await _send_all(site, names, task)
                else:
                    await reader.until(task.rounds)
                pipe.send(("done", time.monotonic()))
            else:
                if reader is None:
                    await _send_paced(site, names, task)
                else:
                    await reader.until_paced()
                pipe.send(("done", time.monotonic()))


def _peak_kib() -> int:
    """Return the most memory this process ever had (`ru_maxrss` would count the parent's, before exec)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))


async def _send_all(site: Site, names: list[str], task: Task) -> None:
    body = bytes(task.payload)
    multicast = site.multicast
    for _ in range(task.rounds):
        for group in names:
            await multicast(group, body)


async def _send_paced(site: Site, names: list[str], task: Task) -> None:
    filler = bytes(max(0, task.payload - 8))
    begun = time.monotonic() + 0.2 + task.offset  # senders take turns
    for index in range(task.paced):
        due = begun + index * task.interval
        if (wait := due - time.monotonic()) > 0:
            await asyncio.sleep(wait)
        await site.multicast(names[index % len(names)], time.monotonic_ns().to_bytes(8, "big") + filler)
    await asyncio.sleep(0.5)


class _Reader:
    """Reads the inbox message by message and notes what came."""

    def __init__(self, site: Site, senders: list[str], task: Task) -> None:
        self.inbox = site.inbox()
        self.index = {name: index for index, name in enumerate(senders)}
        names = list(task.cluster.groups)
        own = [index for index, group in enumerate(names) if task.me in task.cluster.groups[group]]
        self.per_round = len(senders) * len(own)
        self.paced = len(senders) * sum(1 for number in range(task.paced) if number % len(names) in own)
        self.group = {name: index for index, name in enumerate(names)}
        self.sources, self.groups, self.numbers = array("B"), array("B"), array("L")
        self.late: list[tuple[int, int, float]] = []
        self.messages = aiter(self.inbox)

    async def until(self, rounds: int) -> None:
        """Read so many rounds."""
        left = rounds * self.per_round
        sources, groups, numbers = self.sources.append, self.groups.append, self.numbers.append
        index, group = self.index, self.group
        if not left:
            return
        async for message in self.messages:
            sources(index[message.source])
            groups(group[message.group])
            numbers(message.number)
            left -= 1
            if not left:
                return

    async def until_paced(self) -> None:
        """Read the paced messages and note how long each took."""
        left = self.paced
        while left:
            message = await anext(self.messages)
            took = (time.monotonic_ns() - int.from_bytes(message.body[:8], "big")) / 1e9
            source = self.index[message.source]
            self.sources.append(source)
            self.groups.append(self.group[message.group])
            self.numbers.append(message.number)
            self.late.append((source, message.number, took))
            left -= 1

    def notes(self) -> tuple[bytes, bytes, bytes, list[tuple[int, int, float]]]:
        """Return everything."""
        return self.sources.tobytes(), self.groups.tobytes(), self.numbers.tobytes(), self.late


def _notes_of(path: Path) -> tuple[bytes, bytes, "array[int]", list[tuple[int, int, float]]]:
    """Read what a reader noted: of each message its source, its group and its number, and of some how long it took."""
    sources, groups, numbers, late = msgspec.msgpack.decode(path.read_bytes())
    return sources, groups, array("L", numbers), late
