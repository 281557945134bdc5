"""A short chaos run on real processes; the long one is `make chaos`."""

import asyncio
from contextlib import suppress
from datetime import date
from pathlib import Path

import pytest

from ordercast.names import Delivery, Policy
from ordercast.protocols.registry import MACHINES
from tests.support.changing_chaos import ChangingChaos
from tests.support.chaos import OPTIONS, Chaos, options_of, troubled

OTHERS = [protocol for protocol in MACHINES if protocol != "propagation"]
TODAY = date.today().toordinal()
"""The test run tries propagation and two other protocols, others every day; `make chaos` tries all."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("protocol", "options"),
    [
        ("propagation", options_of("propagation")[TODAY % 4]),
        (OTHERS[2 * TODAY % len(OTHERS)], OPTIONS[0]),
        (OTHERS[(2 * TODAY + 1) % len(OTHERS)], OPTIONS[1]),
    ],
)
def test_kill_9_and_stop_under_load(tmp_path: Path, protocol: str, options: str) -> None:
    """Nothing promised is lost, nothing comes twice, the order is as declared, and nothing is left held."""
    chaos = troubled(tmp_path, protocol, options, seed=TODAY)
    asyncio.run(chaos.run(3))

    assert {name: found[:3] for name, found in chaos.verdict().items() if found} == {}
    assert chaos.counts["kill"] == 3
    assert chaos.words()["history.checkpoint"] > 0
    assert len(chaos.book.delivered) > 20
    assert any(len(attempt.sent.groups) > 1 for attempt in chaos.book.attempts.values())


@pytest.mark.slow
def test_a_full_disk_is_named_and_nothing_is_acknowledged(tmp_path: Path) -> None:
    """The history cannot grow: the site says so and ends with exit code 1."""
    chaos = Chaos(tmp_path, groups={"g": ["s0", "s1"]})

    async def work() -> None:
        for site in chaos.sites:
            chaos.start(site, through_proxies=False)
        await chaos._all_up()
        await fill(chaos)

    asyncio.run(work())


async def fill(chaos: Chaos) -> None:
    import shlex
    import subprocess
    import sys

    from ordercast.client.client import connect
    from ordercast.errors import OrdercastError

    chaos.processes["s1"].kill()
    chaos.processes["s1"].wait()
    site = [sys.executable, "-m", "ordercast", "site", "s1", "--cluster", str(chaos.path)]
    command = ["bash", "-c", f"ulimit -f 400; exec {shlex.join(site)}"]  # no file of it may pass 400 KiB
    small = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    acknowledged = 0
    try:
        async with asyncio.timeout(120), connect(chaos.cluster.clients["s0"]) as client:
            while small.poll() is None:  # what is not safe after a while may be late, or never be
                with suppress(TimeoutError):
                    async with asyncio.timeout(5):
                        await client.multicast("g", bytes(20_000), ack="safe")
                        acknowledged += 1
    except (OrdercastError, TimeoutError):
        pass
    said = small.communicate(timeout=20)[1].decode()
    chaos.processes["s0"].kill()
    chaos.processes["s0"].wait()
    assert small.returncode == 1
    assert "history.db" in said and "disk" in said, said
    assert 0 < acknowledged < 40


KINDS = [(protocol, policy, delivery) for protocol in MACHINES for policy in Policy for delivery in Delivery]


@pytest.mark.slow
@pytest.mark.parametrize("which", range(4))
def test_groups_change_while_sites_are_killed_and_lose_their_disks(tmp_path: Path, which: int) -> None:
    """Every policy and delivery, other protocols every day; `python -m benchmarks.changing_chaos` tries all.

    Four clusters of about a minute, and what else is here: the five minutes of chaos that every change must pass.
    """
    protocol, policy, delivery = KINDS[(4 * TODAY + 13 * which) % len(KINDS)]
    chaos = ChangingChaos(tmp_path, protocol, policy, delivery, 4 * TODAY + which)
    asyncio.run(chaos.run(5, 4))

    assert chaos.findings() == [], (protocol, policy, delivery)
    assert chaos.counts["kill"] >= 5 and chaos.counts["change"] >= 4
    assert chaos.counts["ack none"] + chaos.counts["ack ordered"] + chaos.counts["ack safe"] > 20
