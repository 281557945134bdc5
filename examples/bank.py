"""The bank of GS88 section 1: deposits and interest do not commute, yet both main computers get the same balance.

Run: python examples/bank.py
"""

import asyncio
import sys
from contextlib import AsyncExitStack

from ordercast import Cluster, Site

GROUPS = {
    "transactions": ["main-1", "main-2"],
    "tables": ["main-1", "main-2", "dev"],
    "branches": ["main-1", "branch-a", "branch-b"],
}
PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 7720


async def book(site: Site, expected: int) -> tuple[float, list[str]]:
    """Carry out what comes, in the order it comes: return the balance and the orders."""
    balance, rate, orders = 1000, 2, []
    async for message in site.inbox(after=-1):
        order = message.body.decode()
        orders.append(order)
        match order.split():
            case ["deposit", amount]:
                balance += int(amount)
            case ["interest"]:
                balance += balance * rate // 100
            case ["rate", percent]:
                rate = int(percent)
        if len(orders) == expected:
            break
    return balance, orders


async def main() -> None:
    """Two branches and a developer send at once."""
    names = sorted({site for members in GROUPS.values() for site in members})
    sites = {name: f"127.0.0.1:{PORT + index}" for index, name in enumerate(names)}
    async with AsyncExitStack() as stack:
        running = {
            name: await stack.enter_async_context(Site(Cluster(sites=sites, groups=GROUPS, durable=False), name))
            for name in names
        }
        books = [asyncio.create_task(book(running[main], 90)) for main in ("main-1", "main-2")]

        async def send(site: str, group: str, orders: list[str]) -> None:
            for order in orders:
                await running[site].multicast(group, order.encode(), ack="ordered")

        await asyncio.gather(
            send("branch-a", "transactions", ["deposit 100"] * 30),
            send("branch-b", "transactions", ["interest"] * 30),
            send("dev", "tables", [f"rate {percent % 5}" for percent in range(30)]),
        )
        (one, order), (other, same) = await asyncio.gather(*books)
        print(f"main-1 has {one}, main-2 has {other}; the first orders: {', '.join(order[:4])}")
        assert (one, order) == (other, same)


asyncio.run(main())
