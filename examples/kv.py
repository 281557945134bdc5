"""A replicated key-value store on overlapping groups: shards share sites, and a transfer touches two shards at once.

Run: python examples/kv.py
"""

import asyncio
import json
import sys
from contextlib import AsyncExitStack

from ordercast import Cluster, Site

SHARDS = {"users": ["a", "b", "c"], "stock": ["b", "c", "d"]}  # b and c keep both
PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 7710


class Store:
    """One site's copy: applies what it is sent, in the order it is sent."""

    def __init__(self, site: Site) -> None:
        self.site, self.data = site, dict[str, int]()
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self.site.inbox(after=-1):
            order = json.loads(message.body)
            if all(self.data.get(key, 0) >= least for key, least in order["if"].items() if key in self.data):
                for key, change in order["add"].items():
                    if key.split("/")[0] in self.site.groups:
                        self.data[key] = self.data.get(key, 0) + change

    async def write(self, add: dict[str, int], *, least: dict[str, int] | None = None) -> None:
        """Change keys, in one step for all shards that hold them; returns when every copy has it."""
        shards = tuple(sorted({key.split("/")[0] for key in add}))
        body = json.dumps({"add": add, "if": least or {}}).encode()
        await self.site.multicast(shards, body, ack="safe")


async def main() -> None:
    """Two writers at different sites race; all copies agree."""
    sites = {name: f"127.0.0.1:{PORT + index}" for index, name in enumerate("abcd")}
    cluster = Cluster(sites=sites, groups=SHARDS, durable=False)
    async with AsyncExitStack() as stack:
        stores = {n: Store(await stack.enter_async_context(Site(cluster, n))) for n in sites}
        await stores["a"].write({"users/ann": 100, "users/bob": 100})
        await stores["d"].write({"stock/tea": 5})
        buys = [{"users/ann": -30, "stock/tea": -1}, {"users/bob": -30, "stock/tea": -1}]
        await asyncio.gather(*(stores[n].write(buys[i % 2]) for i, n in enumerate("abcdab")))
        await asyncio.sleep(0.3)
        for name, store in stores.items():
            print(name, dict(sorted(store.data.items())))
            store.reading.cancel()
        assert stores["b"].data == stores["c"].data
        assert all(stores["b"].data[key] == value for n in "ad" for key, value in stores[n].data.items())


asyncio.run(main())
