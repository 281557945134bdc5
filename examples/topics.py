"""Order across topics: two consumers of the same two topics see one interleaving, which no partitioned log promises.

Run: python examples/topics.py
"""

import asyncio
import sys
from contextlib import AsyncExitStack

from ordercast import Cluster, Site

TOPICS = {"prices": ["risk", "billing", "screen"], "trades": ["risk", "billing"], "alerts": ["risk", "screen"]}
PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 7740
MANY = 50


async def consume(site: Site, expected: int) -> list[str]:
    """Read all topics of a consumer as one stream."""
    seen = []
    async for message in site.inbox(after=-1):
        seen.append(f"{message.group} {message.body.decode()}")
        if len(seen) == expected:
            break
    return seen


async def main() -> None:
    """Three producers that consume nothing (open groups), three consumers."""
    producers = {"exchange": "prices", "desk": "trades", "watch": "alerts"}
    names = [*producers, "risk", "billing", "screen"]
    sites = {name: f"127.0.0.1:{PORT + index}" for index, name in enumerate(names)}
    cluster = Cluster(sites=sites, groups=TOPICS, durable=False)
    async with AsyncExitStack() as stack:
        running = {name: await stack.enter_async_context(Site(cluster, name)) for name in names}
        expected = {name: MANY * sum(name in members for members in TOPICS.values()) for name in names}
        consumers = {n: asyncio.create_task(consume(running[n], expected[n])) for n in ("risk", "billing", "screen")}

        async def produce(name: str, topic: str) -> None:
            for number in range(MANY):
                await running[name].multicast(topic, str(number).encode(), ack="ordered")

        await asyncio.gather(*(produce(name, topic) for name, topic in producers.items()))
        seen = {name: await task for name, task in consumers.items()}
        for one, other in (("risk", "billing"), ("risk", "screen"), ("billing", "screen")):
            common = set(seen[one]) & set(seen[other])
            order = [[line for line in seen[name] if line in common] for name in (one, other)]
            print(
                f"{one} and {other} share {len(common)} messages, in {'one order' if order[0] == order[1] else 'two'}"
            )
            assert order[0] == order[1]
        print("risk begins with", ", ".join(seen["risk"][:5]))


asyncio.run(main())
