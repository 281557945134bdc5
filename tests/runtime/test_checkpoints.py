"""Checkpoints: how often a site keeps its state, and that a site goes on from one as if nothing had happened."""

from pathlib import Path

import pytest

from ordercast.history.disk import DiskHistory
from ordercast.runtime.config import Cluster, Limits
from ordercast.runtime.site import Site
from tests.runtime.test_site import cluster, run


def checkpoint_at(config: Cluster) -> int:
    history = DiskHistory(config.data_folder / "p")
    try:
        checkpoint = history.checkpoint()
        assert checkpoint is not None
        return checkpoint.records
    finally:
        history.close()


@pytest.mark.slow
def test_short_lives_come_to_a_checkpoint_too(tmp_path: Path) -> None:
    """What a restart has stepped through counts: a site that is restarted often must not step through ever more."""
    config = cluster(tmp_path, {"g": ["p"]}, durable=True, limits=Limits(checkpoint_bytes=1000))

    async def live() -> None:
        async with Site(config, "p") as site:
            await site.multicast("g", bytes(400), ack="safe")

    kept = []
    for _ in range(5):
        run(live())
        kept.append(checkpoint_at(config))

    assert [0, 0, 3, 3, 3] == kept


@pytest.mark.slow
def test_a_site_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    """Positions, numbers and what a reader resumes from are the same with a checkpoint behind every message."""
    config = cluster(tmp_path, {"g": ["p"]}, durable=True, limits=Limits(checkpoint_bytes=1, retain_messages=8))

    async def live(life: int) -> None:
        async with Site(config, "p") as site:
            for index in range(3):
                await site.multicast("g", b"%d" % (3 * life + index), ack="safe")
            begin = max(-1, 3 * life - 3)
            messages = aiter(site.inbox(after=begin))
            for position in range(begin + 1, 3 * life + 3):
                message = await anext(messages)
                assert (position, position + 1, b"%d" % position) == (message.position, message.number, message.body)

    for life in range(4):
        run(live(life))
    assert checkpoint_at(config) == 12
