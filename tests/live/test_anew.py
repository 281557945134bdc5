"""A cluster that is not durable: it runs with an export, and begins anew as a whole when a site has lost everything."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ordercast.client.values import Lot
from ordercast.errors import LostError
from ordercast.live.site import Site
from ordercast.protocols.registry import MACHINES
from ordercast.verify.rings import tangled
from tests.support.live import Running, cluster, linked, quiet, run

GROUPS = {"a": ["p", "q"], "b": ["q", "r"], "c": ["p", "r"], "d": ["p", "q", "r"]}


@pytest.mark.slow
@pytest.mark.parametrize("protocol", MACHINES)
def test_an_export_needs_no_durable_site(tmp_path: Path, protocol: str) -> None:
    import pyarrow.parquet as pq

    async def work() -> None:
        async with Running(cluster(tmp_path, protocol=protocol, export="run")) as sites:
            ack: Any = "safe" if sites["p"].deployment.receipts else "none"
            for number in range(10):
                await sites["p"].multicast("a", str(number).encode(), ack=ack)
            await quiet(sites)
        deliveries = pq.read_table(tmp_path / "run" / "deliveries").to_pylist()
        assert sorted(row["site"] for row in deliveries) == ["p"] * 10 + ["q"] * 10
        assert len(pq.read_table(tmp_path / "run" / "sends")) == 10

    run(work())


@pytest.mark.slow
def test_an_effect_that_no_site_knows_is_an_error(tmp_path: Path) -> None:
    async def work() -> None:
        async with Running(cluster(tmp_path)) as sites:
            with pytest.raises(KeyError):
                sites["p"].node.pipeline.put([7])
            with pytest.raises(KeyError):
                sites["p"].carrier.carry([7])  # type: ignore[list-item]

    run(work())


class Reader:
    """Everything a site delivers, over its restarts."""

    def __init__(self) -> None:
        self.lots: list[Lot] = []
        self.log: list[str] = []

    async def read(self, site: Site) -> None:
        """Read until it ends."""
        async for lot in site.inbox().lots():
            self.lots.append(lot)
            self.log += [message.body.decode() for message in lot.messages()]

    def stamps_grow(self, site: Site) -> bool:
        """Whether stamps grow within each class."""
        last: dict[int, bytes] = {}
        for lot in self.lots:
            order_class = site.deployment.groups.destination(lot.groups).index
            if lot.stamp <= last.get(order_class, b""):
                return False
            last[order_class] = lot.stamp
        return True


def busiest(site: Site) -> str:
    """Return who orders most: the root of the tree, the sequencer."""
    if site.deployment.plan is not None:
        entries = [told.entry for told in site.deployment.plan.groups.values()]
        return max(sorted(set(entries)), key=entries.count)
    return site.deployment.sequencers(next(iter(site.deployment.groups.classes)))[0]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", MACHINES)
def test_every_protocol_goes_on_after_a_restart(tmp_path: Path, protocol: str) -> None:
    """Restart who orders, then another, under traffic: what is sent afterwards is delivered at all members."""

    async def work() -> None:
        config = cluster(tmp_path, GROUPS, protocol=protocol)
        async with Running(config) as sites:
            readers = {name: Reader() for name in sites}
            tasks = [asyncio.create_task(readers[name].read(site)) for name, site in sites.items()]
            first = busiest(sites["p"])
            for life, victim in enumerate((first, first, min(set("pqr") - {first}))):
                await traffic(sites, f"before-{life}")
                await sites[victim].stop()
                await asyncio.gather(*(burst(site, f"lost-{life}") for name, site in sites.items() if name != victim))
                sites[victim] = Site(config, victim)
                readers[victim] = Reader()
                await sites[victim].start()
                tasks.append(asyncio.create_task(readers[victim].read(sites[victim])))
                await linked(sites)
                await traffic(sites, f"after-{life}")
                await quiet(sites)
                for name, reader in readers.items():
                    expected = {
                        f"after-{life}-{source}-{n}-{group}"
                        for source in sites for n in range(20) for group in [sorted(GROUPS)[n % 4]]
                        if name in GROUPS[group]
                    }  # fmt: skip
                    assert expected <= set(reader.log)
            for name, reader in readers.items():
                assert reader.stamps_grow(sites[name])
                assert len(reader.log) == len(set(reader.log))
                assert [lot.position for lot in reader.lots] == sorted(lot.position for lot in reader.lots)
            assert not tangled({name: reader.log for name, reader in readers.items()})
            assert all(site.failed is None for site in sites.values())
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def traffic(sites: dict[str, Site], word: str) -> None:
        await asyncio.gather(*(burst(site, word) for site in sites.values()))
        await quiet(sites)

    async def burst(site: Site, word: str) -> None:
        for number in range(20):
            group = sorted(GROUPS)[number % 4]
            await site.multicast(group, f"{word}-{site.me}-{number}-{group}".encode())
            if number % 6 == 0:
                await asyncio.sleep(0.001)

    run(work())


@pytest.mark.slow
def test_receipts_of_what_was_lost_say_so(tmp_path: Path) -> None:
    async def work() -> None:
        config = cluster(tmp_path)
        async with Running(config) as sites:
            await sites["p"].multicast("a", b"before", ack="safe")
            await sites["q"].stop()
            waiting = asyncio.create_task(sites["p"].multicast("a", b"meanwhile", ack="safe"))
            await asyncio.sleep(0.1)
            sites["q"] = Site(config, "q")
            await sites["q"].start()
            with pytest.raises(LostError, match="lost: q was restarted and the cluster is not durable"):
                await waiting
            await linked(sites)
            assert sites["p"].status()["unsafe_bytes"] == 0
            assert await sites["p"].multicast("a", b"after", ack="safe")

    run(work())


@pytest.mark.slow
def test_numbers_in_a_run_directory_go_on_after_a_restart(tmp_path: Path) -> None:
    """No message is exported under the name of another, and positions go on."""
    import pyarrow.parquet as pq

    async def work() -> None:
        config = cluster(tmp_path, export="run")
        async with Running(config) as sites:
            for number in range(20):
                await sites["p"].multicast("a", str(number).encode(), ack="safe")
            await sites["p"].stop()
            sites["p"] = Site(config, "p")
            await sites["p"].start()
            await linked(sites)
            for number in range(20, 30):
                await sites["p"].multicast("a", str(number).encode(), ack="safe")
        rows = pq.read_table(tmp_path / "run" / "deliveries").to_pylist()
        for site in "pq":
            own = sorted((row for row in rows if row["site"] == site), key=lambda row: row["position"])
            assert [row["position"] for row in own] == list(range(30))
            assert len({row["msg_id"] for row in own}) == 30
            assert all(row["prev_stamp"] is None or row["stamp"] > row["prev_stamp"] for row in own)

    run(work())
