"""Redis and NATS on the same workload, with the same verification, beside ordercast: `make peers`.

Servers come from Debian packages (redis-server, nats-server). Brokers leave batching to the user, so senders pack
messages of a group into one entry and receivers unpack them; ordercast is sent one message at a time. A delivery means:
the receiving program has a bytes object per message and its header decoded.

Run: python -m benchmarks.peers.compare [WORKLOAD.toml] [--dump DIR [--messages N]]

With --dump nothing is measured: every system runs the workload once, and what was sent and what each receiver got is
written to DIR as JSON lines, with a mapping for `ordercast import` (docs/import.md).
"""

import argparse
import asyncio
import multiprocessing
import pickle
import resource
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import hiredis
from benchmarks.peers import dump
from benchmarks.results import record, table

from ordercast.bench.live import Workload, latencies, measure, read_workload, verify
from ordercast.wire import batch as batches

RATE, PACED_S = 500.0, 4.0
WORKLOAD = Path(__file__).parent.parent / "workloads" / "overlap-8.toml"


class Redis:
    """A connection that speaks RESP through hiredis and nothing else."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.reader = hiredis.Reader()

    def write(self, *commands: tuple[Any, ...]) -> None:
        self.socket.sendall(b"".join(hiredis.pack_command(command) for command in commands))

    def replies(self) -> Iterator[Any]:
        while True:
            while (reply := self.reader.gets()) is not False:
                yield reply
            data = self.socket.recv(262_144)
            if not data:
                return
            self.reader.feed(data)


def _packed(source: int, first: int, bodies: list[bytes]) -> bytes:
    return bytes([source]) + batches.pack(first, bodies)


class Notes:
    """What a receiver saw, message by message."""

    def __init__(self, names: list[str]) -> None:
        self.names = names
        self.sources, self.groups, self.numbers = array("B"), array("B"), array("L")
        self.late: list[tuple[int, int, float]] = []

    def take(self, group: int, data: bytes, paced: bool) -> int:
        source, body = data[0], data[1:]
        first, many = batches.read_head(body)
        now = time.monotonic_ns()
        for number, message in enumerate(batches.unpack(body), start=first):
            self.sources.append(source)
            self.groups.append(group)
            self.numbers.append(number)
            if paced:
                self.late.append((source, number, (now - int.from_bytes(message[:8], "big")) / 1e9))
        return many


def redis_pubsub_send(port: int) -> Callable[[list[tuple[str, bytes]]], None]:
    redis = Redis(port)
    replies = redis.replies()

    def send(entries: list[tuple[str, bytes]]) -> None:
        redis.write(*(("PUBLISH", group, data) for group, data in entries))
        for _ in entries:
            next(replies)

    return send


def redis_sharded_send(port: int) -> Callable[[list[tuple[str, bytes]]], None]:
    """Publish to one of two servers, which take turns in the channels: as in a cluster of Redis."""
    senders = [redis_pubsub_send(port), redis_pubsub_send(port + 1)]

    def send(entries: list[tuple[str, bytes]]) -> None:
        for group, data in entries:
            senders[_shard(group)]([(group, data)])

    return send


def _shard(group: str) -> int:
    return ord(group[-1]) % 2


def redis_stream_send(port: int) -> Callable[[list[tuple[str, bytes]]], None]:
    redis = Redis(port)
    replies = redis.replies()

    def send(entries: list[tuple[str, bytes]]) -> None:
        redis.write(*(("XADD", group, "*", "b", data) for group, data in entries))
        for _ in entries:
            next(replies)

    return send


def redis_pubsub_read(port: int, groups: list[str]) -> Iterator[tuple[str, bytes]]:
    redis = Redis(port)
    redis.write(("SUBSCRIBE", *groups))
    for reply in redis.replies():
        if reply[0] == b"message":
            yield reply[1].decode(), reply[2]
        else:
            yield "", b""  # subscribed


def redis_sharded_read(port: int, groups: list[str]) -> Iterator[tuple[str, bytes]]:
    """Read from both servers, whichever has something."""
    sides = {}
    for index in (0, 1):
        own = [group for group in groups if _shard(group) == index]
        if own:
            redis = Redis(port + index)
            redis.write(("SUBSCRIBE", *own))
            sides[redis.socket] = redis.reader
    while True:
        for ready in select.select(list(sides), [], [])[0]:
            sides[ready].feed(ready.recv(262_144))
            while (reply := sides[ready].gets()) is not False:
                yield (reply[1].decode(), reply[2]) if reply[0] == b"message" else ("", b"")


def redis_stream_read(port: int, groups: list[str]) -> Iterator[tuple[str, bytes]]:
    redis = Redis(port)
    last = dict.fromkeys(groups, b"0")
    replies = redis.replies()
    yield "", b""
    while True:
        redis.write(("XREAD", "COUNT", "64", "BLOCK", "0", "STREAMS", *last, *last.values()))
        for name, entries in next(replies):
            group = name.decode()
            for entry, fields in entries:
                last[group] = entry
                yield group, fields[1]


SEND = {
    "redis pub/sub": redis_pubsub_send,
    "redis pub/sub, two servers": redis_sharded_send,
    "redis streams": redis_stream_send,
}
READ = {
    "redis pub/sub": redis_pubsub_read,
    "redis pub/sub, two servers": redis_sharded_read,
    "redis streams": redis_stream_read,
}


def _sender(task: dict[str, Any], pipe: Any) -> None:
    if task["kind"].startswith("nats"):
        asyncio.run(_nats_sender(task, pipe))
        return
    send = SEND[task["kind"]](task["port"])
    pipe.send(("ready", None))
    _wait(pipe, "go")
    entries: list[tuple[str, bytes]] = []
    for group, data in dump.sent(task, _entries(task)):
        entries.append((group, data))
        if len(entries) == 16:
            send(entries)
            entries = []
    send(entries) if entries else None
    pipe.send(("done", time.monotonic()))
    _wait(pipe, "pace")
    for due, group, number in _schedule(task):
        time.sleep(max(0.0, due - time.monotonic()))
        send([(group, _packed(task["index"], number, [_stamped(task)]))])
    pipe.send(("done", time.monotonic()))
    _finish(pipe)


def _entries(task: dict[str, Any]) -> Iterator[tuple[str, bytes]]:
    """Yield packed entries: so many messages of a group each, groups in turn."""
    body, number = bytes(task["payload"]), 1
    left = task["rounds"]
    while left:
        many = min(task["batch"], left)
        for group in task["names"]:
            yield group, _packed(task["index"], number, [body] * many)
            number += many
        left -= many


def _schedule(task: dict[str, Any]) -> Iterator[tuple[float, str, int]]:
    begun = time.monotonic() + 0.2 + task["index"] / RATE
    first = task["rounds"] * len(task["names"]) + 1
    for index in range(task["paced"]):
        yield begun + index * task["senders"] / RATE, task["names"][index % len(task["names"])], first + index


def _stamped(task: dict[str, Any]) -> bytes:
    return time.monotonic_ns().to_bytes(8, "big") + bytes(task["payload"] - 8)


async def _nats_sender(task: dict[str, Any], pipe: Any) -> None:
    import nats

    connection = await nats.connect(f"nats://127.0.0.1:{task['port']}", pending_size=64 * 2**20)
    stream = connection.jetstream(publish_async_max_pending=256)
    pipe.send(("ready", None))
    await asyncio.to_thread(_wait, pipe, "go")
    waiting = []
    for group, data in dump.sent(task, _entries(task)):
        waiting.append(await stream.publish_async(f"w.{group}", data))
        if len(waiting) >= 128:
            await asyncio.gather(*waiting)
            waiting = []
    await asyncio.gather(*waiting)
    pipe.send(("done", time.monotonic()))
    await asyncio.to_thread(_wait, pipe, "pace")
    for due, group, number in _schedule(task):
        await asyncio.sleep(max(0.0, due - time.monotonic()))
        await stream.publish_async(f"w.{group}", _packed(task["index"], number, [_stamped(task)]))
    await asyncio.sleep(0.3)
    pipe.send(("done", time.monotonic()))
    await asyncio.to_thread(_finish, pipe)


def _receiver(task: dict[str, Any], pipe: Any) -> None:
    notes = Notes(task["names"])
    if task["kind"].startswith("nats"):
        asyncio.run(_nats_receiver(task, pipe, notes))
        return
    entries = READ[task["kind"]](task["port"], task["own"])
    for _ in [0] if task["kind"] == "redis streams" else task["own"]:
        next(entries)
    pipe.send(("ready", None))
    _wait(pipe, "go")
    index = {name: place for place, name in enumerate(task["names"])}
    for word, expected in (("", task["expected"]), ("pace", task["expected_paced"])):
        left = expected
        if word:
            _wait(pipe, word)
        while left > 0:
            group, data = next(entries)
            left -= notes.take(index[group], data, bool(word))
        pipe.send(("done", time.monotonic()))
    _keep(task, notes)
    _finish(pipe)


async def _nats_receiver(task: dict[str, Any], pipe: Any, notes: Notes) -> None:
    import nats

    connection = await nats.connect(f"nats://127.0.0.1:{task['port']}")
    stream = connection.jetstream()
    index = {name: place for place, name in enumerate(task["names"])}
    queue: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue()
    for group in task["own"]:

        async def take(message: Any, place: int = index[group]) -> None:
            queue.put_nowait((place, message.data))

        await stream.subscribe(f"w.{group}", cb=take, ordered_consumer=True)
    pipe.send(("ready", None))
    await asyncio.to_thread(_wait, pipe, "go")
    for word, expected in (("", task["expected"]), ("pace", task["expected_paced"])):
        left = expected
        if word:
            await asyncio.to_thread(_wait, pipe, word)
        while left > 0:
            place, data = await queue.get()
            left -= notes.take(place, data, bool(word))
        pipe.send(("done", time.monotonic()))
    _keep(task, notes)
    await asyncio.to_thread(_finish, pipe)


def _keep(task: dict[str, Any], notes: Notes) -> None:
    Path(task["notes"]).write_bytes(pickle.dumps((notes.sources, notes.groups, notes.numbers, notes.late)))
    dump.received(task, zip(notes.sources, notes.groups, notes.numbers, strict=True))


def _wait(pipe: Any, word: str) -> None:
    assert pipe.recv() == word


def _finish(pipe: Any) -> None:
    _wait(pipe, "stop")
    used = resource.getrusage(resource.RUSAGE_SELF)
    pipe.send(("cpu", (used.ru_utime + used.ru_stime, used.ru_maxrss)))


def run_peer(kind: str, workload: Workload, messages: int, batch: int, to: Path | None = None) -> dict[str, Any]:
    """Run one system once; with a folder, write there what was sent and received, and leave the paced part out."""
    folder = Path(tempfile.mkdtemp(prefix="peers-"))
    port = _two_free_ports()
    if kind.startswith("redis"):
        limits = ["--client-output-buffer-limit", "pubsub 0 0 0", "--save", "", "--appendonly", "no"]
        command = ["redis-server", "--port", str(port), "--dir", str(folder), *limits]
        other = ["redis-server", "--port", str(port + 1), "--dir", str(folder), *limits]
    else:
        config = folder / "nats.conf"
        config.write_text(
            f'port: {port}\nmax_payload: 8MB\njetstream {{\n store_dir: "{folder}"\n max_mem: 4GB\n max_file: 8GB\n}}\n'
        )
        command = ["nats-server", "-c", str(config)]
    servers = [_started(command)]
    try:
        _until_up(port)
        if "two servers" in kind:
            servers.append(_started(other))
            _until_up(port + 1)
        if kind.startswith("nats"):
            asyncio.run(_make_stream(port, memory="memory" in kind))
        return _measure(kind, workload, messages, batch, port, folder, servers[0].pid, to)
    finally:
        for server in servers:
            server.kill()
            server.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _started(command: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _two_free_ports() -> int:
    """Return the first of two free ports in a row."""
    while True:
        with socket.socket() as probe, socket.socket() as other:
            probe.bind(("127.0.0.1", 0))
            port = int(probe.getsockname()[1])
            with suppress(OSError, OverflowError):
                other.bind(("127.0.0.1", port + 1))
                return port


def _until_up(port: int) -> None:
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise SystemExit(f"the server did not come up at port {port}")


async def _make_stream(port: int, *, memory: bool) -> None:
    import nats
    from nats.js.api import StorageType, StreamConfig

    connection = await nats.connect(f"nats://127.0.0.1:{port}")
    storage = StorageType.MEMORY if memory else StorageType.FILE
    await connection.jetstream().add_stream(StreamConfig(name="w", subjects=["w.*"], storage=storage))
    await connection.close()


def _measure(
    kind: str, workload: Workload, messages: int, batch: int, port: int, folder: Path, server: int, to: Path | None
) -> dict[str, Any]:
    names = list(workload.groups)
    sites = sorted({site for members in workload.groups.values() for site in members})
    rounds = max(1, messages // (workload.senders * len(names)))
    paced = 0 if to else int(RATE * PACED_S / workload.senders)
    in_pace = {
        name: workload.senders * sum(1 for n in range(paced) if n % len(names) == i) for i, name in enumerate(names)
    }
    context = multiprocessing.get_context("spawn")
    base = {"kind": kind, "port": port, "names": names, "rounds": rounds, "batch": batch, "paced": paced}
    base |= {"payload": workload.payload_bytes, "senders": workload.senders, "dump": to and str(to)}
    pipes, processes = {}, []
    for site in sites:
        own = [group for group in names if site in workload.groups[group]]
        expected = {"expected": rounds * workload.senders * len(own), "expected_paced": sum(in_pace[g] for g in own)}
        task = base | expected | {"site": site, "own": own, "notes": str(folder / f"{site}.notes")}
        pipes[site], theirs = context.Pipe()
        processes.append(context.Process(target=_receiver, args=(task, theirs), daemon=True))
    for index in range(workload.senders):
        pipes[f"sender-{index}"], theirs = context.Pipe()
        processes.append(context.Process(target=_sender, args=(base | {"index": index}, theirs), daemon=True))
    try:
        for process in processes:
            process.start()
        _all(pipes, "ready")
        cpu = _cpu(server) + sum(_cpu(process.pid) for process in processes)
        begun = time.monotonic()
        _tell(pipes, "go")
        ends = _all(pipes, "done")
        took = max(ends[site] for site in sites) - begun
        cpu = _cpu(server) + sum(_cpu(process.pid) for process in processes) - cpu
        _tell(pipes, "pace")
        _all(pipes, "done")
        _tell(pipes, "stop")
        _all(pipes, "cpu")
        logs = {site: pickle.loads((folder / f"{site}.notes").read_bytes()) for site in sites}
    finally:
        for process in processes:
            process.kill()
    expected = {group: rounds * workload.senders + in_pace[group] for group in names}
    order_ok, complete = verify(workload, logs, expected)
    deliveries = rounds * workload.senders * sum(len(members) for members in workload.groups.values())
    if to:
        return {"deliveries": deliveries, "order_ok": order_ok, "complete": complete}
    late = latencies(logs)
    return {
        "deliveries_per_s": round(deliveries / took),
        "p50_ms": round(1e3 * late[len(late) // 2], 3),
        "p99_ms": round(1e3 * late[int(len(late) * 0.99)], 3),
        "cpu_s_per_100k": round(cpu * 1e5 / deliveries, 3),
        "order_ok": order_ok,
        "complete": complete,
    }


def _cpu(pid: int | None) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / 100.0


def _tell(pipes: dict[str, Any], word: str) -> None:
    for pipe in pipes.values():
        pipe.send(word)


def _all(pipes: dict[str, Any], word: str) -> dict[str, Any]:
    said = {}
    for name, pipe in pipes.items():
        if not pipe.poll(120):
            raise SystemExit(f"{name} did not say {word!r}")
        heard, said[name] = pipe.recv()
        assert heard == word, (name, heard)
    return said


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload", nargs="?", type=Path, default=WORKLOAD)
    parser.add_argument(
        "--dump", type=Path, help="write what was sent and received to this folder, and measure nothing"
    )
    parser.add_argument("--messages", type=int, default=2_400, help="how many, with --dump")
    options = parser.parse_args()
    path, workload = options.workload, read_workload(options.workload)
    if options.dump:
        for kind in dump.KINDS:
            folder = dump.begin(options.dump, kind, workload)
            print(kind, run_peer(kind, workload, options.messages, 1, folder), folder)
        return 0
    rows: list[list[object]] = []

    def add(name: str, kept: str, figures: dict[str, Any]) -> None:
        order = "yes" if figures["order_ok"] else "no"
        cells = [figures["p50_ms"], figures["p99_ms"], figures["cpu_s_per_100k"]]
        rows.append(
            [name, kept, f"{figures['deliveries_per_s']:,}", *cells, order, "yes" if figures["complete"] else "no"]
        )
        print(rows[-1], flush=True)

    add("ordercast", "nothing", measure(workload, durable=False, messages=1_200_000))
    add("Redis pub/sub, 20 per publish", "nothing", run_peer("redis pub/sub", workload, 600_000, 20))
    add("Redis Streams, 50 per entry", "memory", run_peer("redis streams", workload, 600_000, 50))
    add("NATS JetStream, 20 per message", "memory", run_peer("nats memory", workload, 300_000, 20))
    add("ordercast, durable", "disk, fsynced", measure(workload, durable=True, messages=1_200_000))
    add("NATS JetStream, 20 per message", "file, not fsynced", run_peer("nats file", workload, 300_000, 20))
    head = ["system", "kept", "deliveries/s", "p50 ms", "p99 ms", "CPU s per 100 k", "one order", "complete"]
    told = (
        f"{path.name}, one run after the other on one machine; 8 receivers and 4 senders, all Python processes; "
        "latency to the last member at 500 messages/s. ordercast is sent one message at a time and batches by itself."
    )
    record("Live: beside Redis and NATS", "make peers", [*table(head, rows), "", told])
    return 0


if __name__ == "__main__":
    sys.exit(main())
