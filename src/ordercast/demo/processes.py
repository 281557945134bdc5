"""The client processes: tellers send, ledgers read. Run as `python -m ordercast.demo.processes teller|ledger ...`."""

import asyncio
import json
import sys
import time
from pathlib import Path

from ordercast.client.client import connect
from ordercast.demo.ledger import Ledger, orders
from ordercast.errors import OrdercastError


async def teller(address: str, site: str, many: int, rate: float, seed: int) -> None:
    """Send a site's orders at a steady rate, then wait until the last one is safe."""
    async with connect(address) as client:
        begun = time.monotonic()
        made = orders(site, many, seed)
        for number, (group, order) in enumerate(made):
            await asyncio.sleep(max(0.0, begun + number / rate - time.monotonic()))
            await client.multicast(group, order.encode(), ack="safe" if number == len(made) - 1 else "none")


async def ledger(address: str, expected: int, out: Path) -> None:
    """Carry out everything a main computer delivers; goes on where it was when its site was killed."""
    book, position = Ledger(), -1
    while position + 1 < expected:
        try:
            async with connect(address) as client:
                await client.join(after=position)
                async for message in client:
                    book.apply(message.body.decode())
                    position = message.position
                    if position + 1 >= expected:
                        break
        except OrdercastError:
            await asyncio.sleep(0.1)
    out.write_text(json.dumps({"balances": book.balances, "messages": position + 1}))


def main(arguments: list[str]) -> None:
    """Be what was asked for."""
    role, address, *rest = arguments
    if role == "teller":
        asyncio.run(teller(address, rest[0], int(rest[1]), float(rest[2]), int(rest[3])))
    else:
        asyncio.run(ledger(address, int(rest[0]), Path(rest[1])))


if __name__ == "__main__":
    main(sys.argv[1:])
