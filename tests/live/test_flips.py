"""Bits that flip on their way between two sites."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from ordercast.live.site import Site
from tests.support.live import cluster, ports, run
from tests.support.proxies import Proxy


@pytest.mark.slow
def test_flipped_bits_alter_no_delivery(tmp_path: Path) -> None:
    """Issue 12 (i): on plain TCP 18 flipped bits became 20 altered deliveries. A link that carries one is made anew."""

    async def work() -> None:
        config = cluster(tmp_path, {"a": ["p", "q"]})
        proxy = Proxy(config.sites["q"])
        (address,) = ports(1)
        await proxy.start(int(address.rpartition(":")[2]))
        seen_by_p = msgspec.structs.replace(config, sites={**config.sites, "q": address})
        async with Site(config, "q") as q, Site(seen_by_p, "p") as p:
            while not (p.links.up and q.links.up):
                await asyncio.sleep(0.01)
            inboxes = [aiter(site.inbox()) for site in (p, q)]
            sent = [b"%d pounds for account %d" % (number, 7 * number) for number in range(400)]
            for number, body in enumerate(sent):
                if number % 20 == 10:
                    proxy.flips = 1
                await (p, q)[number % 2].multicast("a", body, ack="safe")
            for inbox in inboxes:
                assert sorted(sent) == sorted([(await anext(inbox)).body for _ in sent])
            assert proxy.flips == 0
            assert p.node.peers.reconnects + q.node.peers.reconnects > 10
        proxy.close()

    run(work())
