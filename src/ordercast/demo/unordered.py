"""The same traffic over plain multicast: every sender sends a copy to every member over a connection of its own.

No order but that of each connection. A copy takes up to some milliseconds, as in any network of more than one cable.
"""

import asyncio
import json
import multiprocessing
import random
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from ordercast.demo.bank import GROUPS, MAINS, SENDERS
from ordercast.demo.ledger import Ledger, orders
from ordercast.runs import write_table
from ordercast.runtime.ports import free_ports

DELAY_S = 0.01
USED = ("transactions", "system-tables")


def send_and_receive(folder: Path, many: int, rate: float, seed: int, but: str) -> dict[str, dict[int, int]]:
    """Run main computers and senders (but one) as processes; write a run directory; return the balances."""
    ports = dict(zip(MAINS, free_ports(len(MAINS)), strict=True))
    context = multiprocessing.get_context("spawn")
    senders = [site for site in SENDERS if site != but]
    expected = sum(len(_used(site, many, seed)) for site in senders)
    notes = {main: folder / f"unordered-{main}.json" for main in MAINS}
    mains = [
        context.Process(target=_main, args=(ports[main], expected, str(notes[main])), daemon=True) for main in MAINS
    ]
    tellers = [
        context.Process(target=_sender, args=(site, list(ports.values()), many, rate, seed), daemon=True)
        for site in senders
    ]
    for process in (*mains, *tellers):
        process.start()
    for process in (*mains, *tellers):
        process.join(60)
    heard = {main: json.loads(path.read_text()) for main, path in notes.items()}
    _write(folder / "unordered", heard, senders, many, seed)
    return {main: _balances(rows) for main, rows in heard.items()}


def _balances(rows: list[Any]) -> dict[int, int]:
    book = Ledger()
    for _, _, _, order, _ in rows:
        book.apply(order)
    return book.balances


def _main(port: int, expected: int, out: str) -> None:
    heard: list[Any] = []

    async def serve() -> None:
        done = asyncio.Event()

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while line := await reader.readline():
                heard.append([*json.loads(line), time.time()])
                if len(heard) == expected:
                    done.set()
            writer.close()

        async with await asyncio.start_server(take, "127.0.0.1", port):
            await asyncio.wait_for(done.wait(), 50)

    asyncio.run(serve())
    Path(out).write_text(json.dumps(heard))


def _sender(site: str, ports: list[int], many: int, rate: float, seed: int) -> None:
    asyncio.run(_send_all(site, ports, _used(site, many, seed), rate))


def _used(site: str, many: int, seed: int) -> list[tuple[str, str]]:
    return [order for order in orders(site, many, seed) if order[0] in USED]


async def _send_all(site: str, ports: list[int], made: list[tuple[str, str]], rate: float) -> None:
    async def one(port: int) -> None:
        chance = random.Random(f"{site} {port}")
        for _ in range(200):
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                break
            except OSError:
                await asyncio.sleep(0.05)
        begun = time.monotonic()
        for number, (group, order) in enumerate(made):
            due = begun + number / rate + chance.random() * DELAY_S
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            writer.write(json.dumps([site, number + 1, group, order]).encode() + b"\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(one(port) for port in ports))


def _write(folder: Path, heard: dict[str, list[Any]], senders: list[str], many: int, seed: int) -> None:
    """Write what was sent and heard as a run directory: no stamps, nobody gave any."""
    sends = [
        (f"{site}:{number + 1}", group, site, number + 1)
        for site in senders
        for number, (group, _) in enumerate(_used(site, many, seed))
    ]
    rows = [
        (main, position, f"{site}:{number}", group, site, number, at)
        for main, log in heard.items()
        for position, (site, number, group, _, at) in enumerate(log)
    ]
    pairs = [(site, group) for group in USED for site in GROUPS[group] if site in MAINS]
    tables: dict[str, tuple[list[str], list[Any]]] = {
        "sends": (["msg_id", "group", "source", "source_seq"], sends),
        "deliveries": (["site", "position", "msg_id", "group", "source", "source_seq", "delivered_at"], rows),
        "membership": (["site", "group"], pairs),
    }
    for name, (columns, values) in tables.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        arrays = [pa.array(column) for column in zip(*values, strict=True)]
        write_table(pa.table(arrays, names=columns), folder / name / "part-0.parquet")
