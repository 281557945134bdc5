"""How far back readers may go: by messages, by bytes, by time."""

import asyncio
from pathlib import Path

import pytest

from ordercast.live.site import Site
from ordercast.node.retention import MARKS_AT_MOST, Retention
from ordercast.node.settings import Limits
from tests.support.live import cluster, run


def marked(kept: Retention, now: float, delivered: int, written: int) -> None:
    """A checkpoint is taken after so many more bytes."""
    kept.bytes += written
    kept.mark(now, delivered)


def test_whatever_is_reached_first() -> None:
    kept = Retention(Limits(retain_messages=100, retain_bytes=1000, retain_seconds=60))
    marked(kept, 0.0, 10, 100)
    marked(kept, 10.0, 20, 100)
    assert kept.oldest(10.0, 20) == 0
    marked(kept, 20.0, 40, 999)
    assert kept.oldest(20.0, 40) == 10
    marked(kept, 30.0, 50, 1)
    assert kept.oldest(30.0, 50) == 20  # 1,000 bytes came after the mark at 20
    assert kept.oldest(79.9, 50) == 20
    assert kept.oldest(80.0, 50) == 40  # 60 seconds
    assert kept.oldest(1000.0, 50) == 50
    assert kept.oldest(1000.0, 170) == 70  # messages


def test_without_a_limit_nothing_is_too_old() -> None:
    kept = Retention(Limits())
    marked(kept, 0.0, 10, 10**12)

    assert not kept.due(10.0**9) and not kept.late(10.0**9, 0, 10) and kept.oldest(10.0**9, 10) == 0


def test_marks_are_bounded_and_survive_a_restart() -> None:
    kept = Retention(Limits(retain_seconds=10**6))
    for index in range(3 * MARKS_AT_MOST):
        marked(kept, float(index), index, 1)
    assert len(kept.marks) <= MARKS_AT_MOST and kept.marks[-1].delivered == 3 * MARKS_AT_MOST - 1
    again = Retention(Limits(retain_bytes=5))
    again.restore(kept.marks)
    marked(again, 10.0**6, 3 * MARKS_AT_MOST, 5)

    assert again.oldest(10.0**6, 3 * MARKS_AT_MOST) == 3 * MARKS_AT_MOST - 1


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fixed", "atomic"])
def test_what_is_too_old_is_forgotten_also_where_nothing_is_sent(tmp_path: Path, policy: str) -> None:
    """Time is what the site is told it is; it is killed in between, and knows how old things are."""
    now = [1000.0]
    limits = Limits(retain_seconds=80)
    config = cluster(tmp_path, {"g": ["p"]}, durable=True, limits=limits, policy=policy)

    async def forgets(site: Site, first: int) -> None:
        """It forgets what is written together, so a little later."""
        while site.node.history.first_position < first:
            await asyncio.sleep(0.01)

    async def noted(site: Site, delivered: int) -> None:
        while site.node.keeper.retention.marks[-1].delivered < delivered:
            await asyncio.sleep(0.01)

    async def live() -> None:
        async with Site(config, "p", clock=lambda: now[0]) as site:
            while site.changes is not None and not site.changes.setup.number:
                await asyncio.sleep(0.01)
            begin = site.delivered
            for _ in range(5):
                await site.multicast("g", b"x", ack="safe")
            now[0] += 11
            await noted(site, begin + 5)
            now[0] += 40
            for _ in range(5):
                await site.multicast("g", b"y", ack="safe")
            now[0] += 11
            await noted(site, begin + 10)
            now[0] += 30  # the first five are 92 seconds old
            await forgets(site, begin + 1)
            assert site.node.history.first_position <= begin + 5
            assert (await anext(aiter(site.inbox(after=begin + 4)))).body == b"y"
        now[0] += 60
        async with Site(config, "p", clock=lambda: now[0]) as site:
            await forgets(site, begin + 6)

    run(live())


@pytest.mark.slow
def test_a_site_keeps_so_many_bytes(tmp_path: Path) -> None:
    config = cluster(
        tmp_path, {"g": ["p"]}, durable=True, limits=Limits(retain_bytes=20_000, checkpoint_bytes=2_000)
    )  # fmt: skip

    async def live() -> None:
        async with Site(config, "p") as site:
            for _ in range(100):
                await site.multicast("g", bytes(1000), ack="safe")
            while site.node.history.first_position < 70:  # it forgets a moment after the receipt
                await asyncio.sleep(0.01)
            assert site.node.history.first_position <= 81

    run(live())
