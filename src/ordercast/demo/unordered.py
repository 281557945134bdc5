"""The same traffic over plain multicast: every sender sends a copy to every member over a connection of its own.

The same orders of the same senders to the same groups, at the same rate. No order but that of each connection. A copy
takes up to some milliseconds, as in any network of more than one cable.
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
from ordercast.live.ports import free_ports
from ordercast.runs.writer import write_table

DELAY_S = 0.01
SITES = sorted({site for members in GROUPS.values() for site in members})


def send_and_receive(folder: Path, many: int, rate: float, seed: int, but: str) -> dict[str, dict[int, int]]:
    """Run members and senders (but one) as processes; write a run directory; return the main computers' balances."""
    ports = dict(zip(SITES, free_ports(len(SITES)), strict=True))
    context = multiprocessing.get_context("spawn")
    senders = [site for site in SENDERS if site != but]
    sent = [order for site in senders for order in orders(site, many, seed)]
    expected = {site: sum(site in GROUPS[group] for group, _ in sent) for site in SITES}
    notes = {site: folder / f"unordered-{site}.json" for site in SITES}
    limit = many / rate + 60
    members = [
        context.Process(target=_member, args=(ports[site], expected[site], str(notes[site]), limit), daemon=True)
        for site in SITES
    ]
    tellers = [context.Process(target=_sender, args=(site, ports, many, rate, seed), daemon=True) for site in senders]
    for process in (*members, *tellers):
        process.start()
    for process in (*members, *tellers):
        process.join(limit + 10)
    heard = {site: json.loads(path.read_text()) for site, path in notes.items()}
    _write(folder / "unordered", heard, senders, many, seed)
    return {main: _balances(heard[main]) for main in MAINS}


def _balances(rows: list[Any]) -> dict[int, int]:
    book = Ledger()
    for _, _, _, order, _ in rows:
        book.apply(order)
    return book.balances


def _member(port: int, expected: int, out: str, seconds: float) -> None:
    heard: list[Any] = []

    async def serve() -> None:
        done, takers = asyncio.Event(), set[asyncio.Task[None] | None]()
        if not expected:
            return

        async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            takers.add(asyncio.current_task())
            while line := await reader.readline():
                heard.append([*json.loads(line), time.time()])
                if len(heard) == expected:
                    done.set()
            writer.close()

        async with await asyncio.start_server(take, "127.0.0.1", port):
            await asyncio.wait_for(done.wait(), seconds)
            await asyncio.wait([task for task in takers if task is not None], timeout=5)  # they see the end

    asyncio.run(serve())
    Path(out).write_text(json.dumps(heard))


def _sender(site: str, ports: dict[str, int], many: int, rate: float, seed: int) -> None:
    asyncio.run(_send_all(site, ports, orders(site, many, seed), rate))


async def _send_all(site: str, ports: dict[str, int], made: list[tuple[str, str]], rate: float) -> None:
    begun = time.monotonic() + 1.0  # by then all connections are there

    async def one(member: str) -> None:
        chance = random.Random(f"{site} {member}")
        for _ in range(200):
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", ports[member])
                break
            except OSError:
                await asyncio.sleep(0.05)
        for number, (group, order) in enumerate(made):
            if member not in GROUPS[group]:
                continue
            due = begun + number / rate + chance.random() * DELAY_S
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            writer.write(json.dumps([site, number + 1, group, order]).encode() + b"\n")
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(one(member) for member in ports if any(member in GROUPS[group] for group, _ in made)))


def _write(folder: Path, heard: dict[str, list[Any]], senders: list[str], many: int, seed: int) -> None:
    """Write what was sent and heard as a run directory: no stamps, nobody gave any."""
    sends = [
        (f"{site}:{number + 1}", group, site, number + 1)
        for site in senders
        for number, (group, _) in enumerate(orders(site, many, seed))
    ]
    rows = [
        (member, position, f"{site}:{number}", group, site, number, at)
        for member, log in heard.items()
        for position, (site, number, group, _, at) in enumerate(log)
    ]
    pairs = [(site, group) for group, members in GROUPS.items() for site in members]
    tables: dict[str, tuple[list[str], list[Any]]] = {
        "sends": (["msg_id", "group", "source", "source_seq"], sends),
        "deliveries": (["site", "position", "msg_id", "group", "source", "source_seq", "delivered_at"], rows),
        "membership": (["site", "group"], pairs),
    }
    for name, (columns, values) in tables.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        arrays = [pa.array(column) for column in zip(*values, strict=True)]
        write_table(pa.table(arrays, names=columns), folder / name / "part-0.parquet")
