"""A replicated key-value store on overlapping groups: shards share sites, and a purchase touches two shards at once.

A copy of one shard cannot judge a condition on another, and copies that judge by what each of them happens to have
would differ. So a write with conditions goes to a desk, a site that keeps both shards: it alone judges, counts what it
has granted and not yet delivered, and then sends a plain write that every copy carries out.

Run: python examples/kv.py
"""

import asyncio
import json
import sys
from collections import Counter
from contextlib import AsyncExitStack

from ordercast import Cluster, Site

SHARDS = {"users": ["a", "b", "c"], "stock": ["b", "c", "d"]}  # b and c keep both
DESK = {"desk": ["b"]}
PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 7710


def shards(keys: dict[str, int]) -> tuple[str, ...]:
    """Return the groups that keep these keys."""
    return tuple(sorted({key.split("/")[0] for key in keys}))


class Store:
    """One site's copy: carries out what it is sent, in the order it is sent."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.data, self.granted = Counter[str](), Counter[str]()
        self.written = self.judged = self.sold = 0
        self.inbox = site.inbox()
        self.reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        async for message in self.inbox:
            order = json.loads(message.body)
            if message.group == "desk":
                await self._judge(order["add"], order["least"])
                continue
            own = {key: change for key, change in order["add"].items() if key.split("/")[0] in self.site.groups}
            self.data.update(own)
            self.written += 1
            if order.get("granted") and message.source == self.site.me:
                self.granted.subtract(own)

    async def _judge(self, add: dict[str, int], least: dict[str, int]) -> None:
        self.judged += 1
        if all(self.data[key] + self.granted[key] >= amount for key, amount in least.items()):
            self.sold += 1
            self.granted.update(add)
            await self.site.multicast(shards(add), json.dumps({"add": add, "granted": True}).encode())

    async def write(self, add: dict[str, int], least: dict[str, int] | None = None) -> None:
        """Change keys, in one step for all shards that hold them; with `least`, only if there is enough."""
        where = "desk" if least else shards(add)
        await self.site.multicast(where, json.dumps({"add": add, "least": least}).encode(), ack="safe")


async def main() -> None:
    """Six buyers at different sites race for five boxes of tea; all copies agree, and none is sold twice."""
    sites = {name: f"127.0.0.1:{PORT + index}" for index, name in enumerate("abcd")}
    cluster = Cluster(sites=sites, groups=SHARDS | DESK, durable=False)
    async with AsyncExitStack() as stack:
        stores = {n: Store(await stack.enter_async_context(Site(cluster, n))) for n in sites}
        await stores["a"].write({"users/ann": 100, "users/bob": 100})
        await stores["d"].write({"stock/tea": 5})
        buyers = [(name, f"users/{'ann' if index % 2 else 'bob'}") for index, name in enumerate("abcdab")]
        need = [{user: 30, "stock/tea": 1} for _, user in buyers]
        await asyncio.gather(
            *(stores[n].write({u: -30, "stock/tea": -1}, least) for (n, u), least in zip(buyers, need, strict=True))
        )
        desk = stores["b"]
        while desk.judged < len(buyers) or any(
            store.written < desk.sold + len(store.site.groups - {"desk"}) for store in stores.values()
        ):
            await asyncio.sleep(0.01)
        for name, store in stores.items():
            print(name, dict(sorted(store.data.items())))
            store.reading.cancel()
        assert desk.sold == 5 and desk.data["stock/tea"] == 0 and min(desk.data.values()) >= 0
        assert stores["b"].data == stores["c"].data
        assert all(desk.data[key] == value for n in "ad" for key, value in stores[n].data.items())


asyncio.run(main())
