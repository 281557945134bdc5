"""A cluster is upgraded site by site: who speaks a newer version speaks the one before with those who do not."""

import asyncio
from pathlib import Path

import pytest

from ordercast import Site
from ordercast.live.config import Cluster
from ordercast.node.peers import Peers
from ordercast.wire.peers import OLDEST, VERSION
from tests.support.live import cluster, run

OLD: set[str] = set()
"""Sites that run the version before: it speaks nothing else, and refuses everything else."""


@pytest.fixture(autouse=True)
def _versions(monkeypatch: pytest.MonkeyPatch) -> None:
    OLD.clear()
    made = Peers.__init__

    def make(self: Peers, me: str, *args: object) -> None:
        made(self, me, *args)  # type: ignore[arg-type]
        if me in OLD:
            self.newest = self.oldest = OLDEST

    monkeypatch.setattr(Peers, "__init__", make)


async def linked(*sites: Site) -> None:
    """Wait until all are linked."""
    async with asyncio.timeout(20):
        while any(len(site.links.up) < len(sites) - 1 for site in sites):
            await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.parametrize("old", ["p", "q"], ids=["the old one calls", "the old one is called"])
def test_two_versions_talk(tmp_path: Path, old: str) -> None:
    async def work() -> None:
        OLD.add(old)
        config = cluster(tmp_path)
        async with Site(config, "p") as p, Site(config, "q") as q:
            await linked(p, q)
            new = q if old == "p" else p
            assert new.node.peers.speaks == {old: OLDEST}
            assert await p.multicast("a", b"from p", ack="safe") and await q.multicast("a", b"from q", ack="safe")

    run(work())


@pytest.mark.slow
def test_sites_are_upgraded_one_after_the_other_under_traffic(tmp_path: Path) -> None:
    async def work() -> None:
        OLD.update("pq")
        config = cluster(tmp_path, durable=True)
        sites = {name: Site(config, name) for name in "pq"}
        for site in sites.values():
            await site.start()
        await linked(*sites.values())
        sent = 0
        for name in "pq":
            sent += 1
            await sites["q" if name == "p" else "p"].multicast("a", b"%d" % sent)
            await sites[name].stop()
            OLD.discard(name)
            sites[name] = Site(config, name)
            await sites[name].start()
            await linked(*sites.values())
            sent += 1
            assert await sites[name].multicast("a", b"%d" % sent, ack="safe")
        assert not any(site.node.peers.speaks for site in sites.values()), "both speak the newest"
        read = []
        for site in sites.values():
            inbox = aiter(site.inbox(after=-1))
            read.append([(await anext(inbox)).body for _ in range(sent)])
            await site.stop()
        assert read[0] == read[1] and sorted(read[0]) == [b"%d" % number for number in range(1, sent + 1)]

    run(work())


@pytest.mark.slow
def test_where_groups_change_the_version_before_is_refused_by_name(tmp_path: Path) -> None:
    async def work() -> None:
        OLD.add("q")
        fixed = cluster(tmp_path)
        fields = {field: getattr(fixed, field) for field in Cluster.__struct_fields__}
        config = Cluster(**{**fields, "policy": "atomic", "durable": True})
        async with Site(config, "p") as p, Site(config, "q") as q:
            async with asyncio.timeout(20):
                while not (p.status()["refused"] and q.status()["refused"]):
                    await asyncio.sleep(0.02)
            assert not p.links.up and not q.links.up
            told = f"speaks version {VERSION}, q speaks {OLDEST}", f"speaks version {OLDEST}, p speaks {VERSION}"
            assert any(part in p.status()["refused"]["q"] for part in told)

    run(work())
