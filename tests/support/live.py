"""A whole cluster in this process, on real TCP."""

import asyncio
import contextlib
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import uvloop

from ordercast.live.config import Cluster
from ordercast.live.ports import free_ports
from ordercast.live.session import Session
from ordercast.live.site import Site

GROUPS = {"a": ["p", "q"], "b": ["q", "r"], "c": ["p", "r"]}


def run(work: Coroutine[Any, Any, None]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(100):
            await work

    uvloop.run(limited())


def ports(count: int) -> list[str]:
    """Return addresses that nobody listens at, and no outgoing connection takes."""
    return [f"127.0.0.1:{port}" for port in free_ports(count)]


def cluster(folder: Path, groups: dict[str, list[str]] = GROUPS, extra: str = "", **options: Any) -> Cluster:
    names = sorted({site for sites in groups.values() for site in sites} | set(extra))
    addresses = ports(2 * len(names))
    sites, clients = dict(zip(names, addresses, strict=False)), dict(zip(names, addresses[len(names) :], strict=True))
    options.setdefault("durable", False)
    return Cluster(sites=sites, clients=clients, groups=groups, folder=str(folder), **options)


class Running:
    """A whole cluster in this process."""

    def __init__(self, config: Cluster) -> None:
        self.config = config
        self.sites: dict[str, Site] = {}

    async def __aenter__(self) -> dict[str, Site]:
        for name in self.config.sites:
            self.sites[name] = Site(self.config, name)
            await self.sites[name].start()
        await linked(self.sites)
        return self.sites

    async def __aexit__(self, *_: object) -> None:
        for site in self.sites.values():
            await site.stop()


async def linked(sites: dict[str, Site]) -> None:
    """Wait until all sites are in one epoch and have the links they need."""
    while (
        len({site.node.peers.epoch for site in sites.values()}) > 1
        or not all(all(site.status()["peers"].values()) for site in sites.values())
    ):  # fmt: skip
        await asyncio.sleep(0.01)


async def quiet(sites: dict[str, Site]) -> None:
    """Wait until nothing is under way; nothing may be left held."""
    for _ in range(3):
        while any(site.node.outbox.unsafe or not site.node.machines.idle for site in sites.values()):
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.02)
    assert [held for site in sites.values() for held in site.status()["held"]] == []


ALONE = {"a": ["p"]}
WITH_THE_DEAD = {"a": ["p"], "b": ["p", "q"]}


def only(site: Site) -> Session:
    """Return the one session there is."""
    assert site.port is not None
    (found,) = site.port.sessions
    return found


async def until(fact: Any) -> None:
    while not fact():
        await asyncio.sleep(0.005)


@contextlib.asynccontextmanager
async def alone(config: Cluster) -> Any:
    """Run p only; others of the cluster are dead."""
    async with Site(config, "p") as site:
        yield site


async def kill(site: Site) -> None:
    """End a site without a word, as kill -9 does: nothing is sent, written or said any more."""
    site.feed = site.turn = lambda *_: None  # type: ignore[method-assign, assignment]
    site.carrier.cancel()
    await site.dialer.stop()
    for listener in site._listeners:
        listener.close()
    if site.port is not None:
        site.port.close()
    site.links.abort()
    site.links.close()
    if site._disk is not None:
        site._disk.close()
    site.started = False


async def begun(sites: dict[str, Site]) -> None:
    """Wait until a cluster whose groups change has begun, and everybody is in the same configuration."""
    while True:
        numbers = {site.changes.setup.number for site in sites.values() if site.changes is not None}
        if len(numbers) == 1 and numbers.pop():
            return
        await asyncio.sleep(0.01)
