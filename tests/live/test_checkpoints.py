"""Checkpoints: how often a site keeps its state, and that a site goes on from one as if nothing had happened."""

import asyncio
from collections.abc import Collection
from pathlib import Path

import pytest

from ordercast.client.client import connect
from ordercast.errors import LocalError
from ordercast.history.disk import DiskHistory
from ordercast.history.store import Checkpoint
from ordercast.live.config import Cluster
from ordercast.live.site import Site
from ordercast.node.recovery import decode
from ordercast.node.settings import Limits
from tests.support.live import cluster, run


def checkpoint_at(config: Cluster) -> int:
    history = DiskHistory.open(config.data_folder / "p", config.name, "p", 1)
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

    assert [0, 0, 5, 5, 5] == kept  # three messages, and two restarts


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
    assert checkpoint_at(config) == 15  # twelve messages, and three restarts


@pytest.mark.slow
def test_a_position_that_is_forgotten_is_refused_and_the_client_goes_on(tmp_path: Path) -> None:
    """The join itself is refused: before, it was answered, and then the connection was closed."""
    config = cluster(tmp_path, {"g": ["p"]}, durable=True, limits=Limits(checkpoint_bytes=1, retain_messages=2))

    async def work() -> None:
        async with Site(config, "p") as site, connect(config.clients["p"]) as client:
            for _ in range(9):
                await client.multicast("g", b"x", ack="safe")
            while site.node.history.first_position < 3:  # it forgets a moment after the receipt
                await asyncio.sleep(0.01)
            with pytest.raises(LocalError, match="position 1 is not kept here any more"):
                await client.join(after=0)
            await client.join(after=7)
            assert (await anext(aiter(client))).position == 8

    run(work())


@pytest.mark.slow
def test_a_checkpoint_knows_only_what_is_written(tmp_path: Path) -> None:
    """Messages go on while a checkpoint is written, and the other member is away, so none of them becomes safe.

    What the checkpoint says is under way, its machine has sent. Else a site that is killed then waits for ever for the
    safety of a message that it never sent.
    """
    config = cluster(tmp_path, {"g": ["p", "q"]}, durable=True, limits=Limits(checkpoint_bytes=1))

    async def live() -> None:
        async with Site(config, "p") as site:
            kept = site.node.history.keep
            checked = 0

            def keep(checkpoint: Checkpoint, from_delivered: int, needed: Collection[int] = ()) -> None:
                nonlocal checked
                state = decode(checkpoint.state)
                under_way = [unfinished.number for unfinished in state.unfinished]
                assert max(under_way, default=0) <= site.deployment.decode(state.machines).sent
                checked += bool(under_way)
                kept(checkpoint, from_delivered, needed)

            site.node.history.keep = keep  # type: ignore[method-assign]
            index = 0
            while checked < 3:
                await site.multicast("g", b"%d" % (index := index + 1))
                await asyncio.sleep(0.001)
                assert site.failed is None, site.failed

    run(live())
