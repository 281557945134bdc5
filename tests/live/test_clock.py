"""Who sets the machine's clock stops nobody."""

import asyncio
import time
from pathlib import Path

import pytest

from ordercast.live import clock
from ordercast.live.clock import WallClock
from tests.support.live import Running, cluster, quiet, run


def test_a_clock_that_is_set_does_not_move_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = WallClock()
    before = now()
    assert abs(before - time.time()) < 3600, "it is about the time of day"
    for hours in (-5, 5):
        monkeypatch.setattr(clock, "time", lambda hours=hours: time.time() + 3600 * hours)
        after = now()
        assert before <= after < before + 3600, "it moved by less than the clock did"
        before = after


@pytest.mark.slow
def test_sites_go_on_when_the_clock_is_set_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Receipts hang on ticks, and ticks on the time."""
    real = time.time

    async def work() -> None:
        async with Running(cluster(tmp_path, durable=True)) as sites:
            assert await sites["p"].multicast("a", b"before", ack="safe")
            for hours in (-5, 7, -1):
                monkeypatch.setattr(time, "time", lambda hours=hours: real() + 3600 * hours)
                async with asyncio.timeout(20):
                    assert await sites["p"].multicast("a", b"after", ack="safe")
            await quiet(sites)

    run(work())
