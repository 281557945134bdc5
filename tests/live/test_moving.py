"""Applications go on at another site, or at another address of their own, without a line about it."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

import ordercast
from ordercast.client import sync
from ordercast.client.values import Delivered
from ordercast.live.config import Cluster
from ordercast.live.site import Site
from tests.live.test_changing import changing, ended, start, stop
from tests.support.live import Running, begun, cluster, kill, ports, quiet, run, until

MANY = 40


class Reader:
    """Sends numbers to group c, and reads them back."""

    def __init__(self, client: ordercast.Client) -> None:
        self.client = client
        self.read: list[bytes] = []
        self.tasks: list[asyncio.Task[Any]] = []

    async def begin(self) -> None:
        """Read group c from the beginning, and see a first message of it."""
        await self.client.join(["c"], after="beginning")
        self.tasks = [asyncio.create_task(self._reads())]
        await self.client.multicast("c", b"0", ack="safe")
        await self.until(1)

    async def _reads(self) -> None:
        async for message in self.client:
            self.read.append(message.body)

    def send(self, first: int, end: int) -> "list[asyncio.Task[Any]]":
        """Send numbers, all at once."""
        return [asyncio.create_task(self.client.multicast("c", b"%d" % n, ack="safe")) for n in range(first, end)]

    async def until(self, many: int) -> None:
        """Wait until so many were read; what ends the reading is raised."""
        while len(self.read) < many:
            if self.tasks[0].done():
                self.tasks[0].result()
            await asyncio.sleep(0.01)


async def all_of_c(address: str, many: int) -> list[bytes]:
    """Return what a site has of group c."""
    found: list[bytes] = []
    async with ordercast.connect(address) as witness:
        await witness.join(["c"], after=-1)
        async for message in witness:
            found.append(message.body)
            if len(found) == many:
                return found
    return found


async def dies(sites: dict[str, Site]) -> None:
    """Site r is dead for good."""
    await kill(sites.pop("r"))


async def is_removed(sites: dict[str, Site]) -> None:
    """An operator removes site r, and switches it off later."""
    await sites["p"].change("remove", "", ("r",))


async def leaves_the_group(sites: dict[str, Site]) -> None:
    """Site r goes on, without the group that is read there."""
    await sites["p"].leave_group("c", "r")


@pytest.mark.parametrize("end", [dies, is_removed, leaves_the_group])
def test_a_reader_goes_on_at_another_site(tmp_path: Path, end: Any) -> None:
    """It reads on at another member, each message once, in the one order."""

    async def work() -> None:
        config = changing(tmp_path)
        sites = await start(config)
        async with ordercast.connect(config.clients["r"]) as client:
            reader = Reader(client)
            await reader.begin()
            sending = reader.send(1, MANY // 2)
            await end(sites)
            sending += reader.send(MANY // 2, MANY)
            await asyncio.gather(*sending)
            await reader.until(MANY)
            assert client.site in ("p", "q")
            await ended(reader.tasks)
        assert sorted(reader.read, key=int) == [b"%d" % n for n in range(MANY)]
        assert await all_of_c(config.clients["p"], MANY) == reader.read
        if end is is_removed:
            with pytest.raises(ordercast.UnreachableError, match="r was removed from its cluster"):
                async with ordercast.connect(config.clients["r"]):
                    pass
            await sites.pop("r").stop()
        await quiet(sites)
        await stop(sites)

    run(work())


def test_nothing_overtakes_what_a_site_may_still_send(tmp_path: Path) -> None:
    """Its site has taken a message that may not be safe, and leaves the group that is read: the client stays."""

    async def work() -> None:
        config = changing(tmp_path)
        sites = await start(config)
        async with ordercast.connect(config.clients["r"], survive=5) as client:
            reader = Reader(client)
            await reader.begin()
            await client.multicast_many("c", [b"1"])
            await reader.until(2)
            await sites["p"].leave_group("c", "r")
            with pytest.raises(ordercast.LostError, match="r has taken messages that may not be safe"):
                await reader.until(3)
        await quiet(sites)
        await stop(sites)

    run(work())


def test_a_site_that_keeps_nothing_knows_no_places(tmp_path: Path) -> None:
    async def work() -> None:
        config = cluster(tmp_path, {"g": ["p"]}, durable=False)
        async with Running(config), ordercast.connect(config.clients["p"]) as client:
            with pytest.raises(ordercast.LocalError, match="p is not durable"):
                await client.join(["g"], after="p:1@g@00")

    run(work())


def at_another_address(config: Cluster, site: str) -> Cluster:
    """Return the file of a site that has moved."""
    [sites, clients] = ports(2)
    return msgspec.structs.replace(
        config, sites={**config.sites, site: sites}, clients={**config.clients, site: clients}
    )  # fmt: skip


def test_a_client_finds_its_site_at_another_address(tmp_path: Path) -> None:
    """It counts positions, so it stays with its site; the others say where that is."""

    async def work() -> None:
        config = changing(tmp_path)
        sites = await start(config)
        async with ordercast.connect(config.clients["r"]) as client:
            await client.join(["c"], after=-1)
            await client.multicast("c", b"0", ack="safe")
            first = await anext(aiter(client))
            await client.leave()
            await client.join(["c"], after=first.position)
            moved = at_another_address(config, "r")
            await sites["r"].stop()
            sites["r"] = Site(moved, "r")
            await sites["r"].start()
            await client.multicast("c", b"1", ack="safe")
            second = await anext(aiter(client))
            assert (second.body, client.site, client.address) == (b"1", "r", moved.clients["r"])
            assert second.position > first.position
        await quiet(sites)
        await stop(sites)

    run(work())


def test_the_same_without_await(tmp_path: Path) -> None:
    async def work() -> None:
        config = changing(tmp_path)
        sites = await start(config)
        half = asyncio.Event()
        loop = asyncio.get_running_loop()

        def script() -> list[bytes]:
            with sync.connect(config.clients["r"]) as client:
                client.join(["c"], after="beginning")
                read: list[bytes] = []
                for number in range(MANY):
                    client.multicast("c", b"%d" % number, ack="safe")
                    read.append(next(client.messages(timeout=30)).body)
                    if number == MANY // 2:
                        loop.call_soon_threadsafe(half.set)
                return read

        reading = asyncio.create_task(asyncio.to_thread(script))
        await half.wait()
        await kill(sites.pop("r"))
        assert await reading == [b"%d" % n for n in range(MANY)]
        await quiet(sites)
        await stop(sites)

    run(work())


def test_a_place_is_the_same_at_every_member(tmp_path: Path) -> None:
    async def work() -> None:
        config = changing(tmp_path)
        sites = await start(config)
        await sites["q"].multicast_many("c", [b"0", b"1", b"2"], "safe")
        await sites["q"].multicast("c", b"3", ack="safe")
        places: dict[str, list[str]] = {}
        for name in "pqr":
            async with ordercast.connect(config.clients[name]) as client:
                await client.join(["c"], after=-1)
                messages = aiter(client)
                places[name] = [(await anext(messages)).place for _ in range(4)]
        assert places["p"] == places["q"] == places["r"]
        for number, place in enumerate(places["p"][:3]):
            async with ordercast.connect(config.clients["r"]) as client:
                await client.join(["c"], after=place)
                assert (await anext(aiter(client))).body == b"%d" % (number + 1)
        async with ordercast.connect(config.clients["r"]) as client:
            await client.join(["c"], after=places["p"][3])
            await sites["p"].multicast("c", b"4", ack="safe")
            assert (await anext(aiter(client))).body == b"4"
        await stop(sites)

    run(work())


@pytest.mark.parametrize(
    ("place", "says"),
    [
        ("q:7@c@00", "q:7 is not kept here, or was never delivered here"),
        ("q:1@a@00", "a is not read here: a message to it says not where to go on"),
        ("nonsense", "'nonsense' is not the place of a message"),
        ("q:0@c@00", "Expected `int` >= 1"),
    ],
)
def test_a_place_that_is_none_is_refused(tmp_path: Path, place: str, says: str) -> None:
    async def work() -> None:
        config = changing(tmp_path)
        sites = await start(config)
        await sites["q"].multicast("c", b"0", ack="safe")
        await until(lambda: sites["r"].delivered)
        async with ordercast.connect(config.clients["r"], survive=0) as client:
            with pytest.raises(ordercast.OrdercastError, match=says):
                await client.join(["c"], after=place)
                await anext(aiter(client))
        await stop(sites)

    run(work())


def test_what_may_be_undone_is_read_at_one_site(tmp_path: Path) -> None:
    async def work() -> None:
        config = changing(tmp_path, delivery="agreed")
        sites = await start(config)
        await sites["q"].multicast("c", b"0", ack="safe")
        async with ordercast.connect(config.clients["r"]) as client:
            await client.join(["c"], after=-1)
            first = await anext(aiter(client))
            assert isinstance(first, Delivered)
            await client.leave()
            with pytest.raises(ordercast.LocalError, match="what is delivered to c may be undone"):
                await client.join(["c"], after=first.place)
        await stop(sites)

    run(work())


def test_who_reads_by_position_does_not_move(tmp_path: Path) -> None:
    async def work() -> None:
        config = changing(tmp_path)
        sites = await start(config)
        async with ordercast.connect(config.clients["r"], survive=5) as client:
            await client.join(["c"], after=-1)
            await client.multicast("c", b"0", ack="safe")
            first = await anext(aiter(client))
            await client.leave()
            await client.join(["c"], after=first.position)
            await client.multicast("c", b"1", ack="safe")
            assert (await anext(aiter(client))).body == b"1"
            await kill(sites.pop("r"))
            with pytest.raises(ordercast.LostError, match="positions of r mean nothing at"):
                await anext(aiter(client))
        await begun(sites)
        await stop(sites)

    run(work())
