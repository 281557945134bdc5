"""What a site remembers beside its machine: it is in the checkpoint, so a restart does not change what is told."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ordercast.audit.local import LocalSource
from ordercast.audit.verdict import Verdict, audit
from ordercast.live import export
from ordercast.node.settings import Limits
from tests.support.live import Running, cluster, quiet, run


@pytest.mark.slow
def test_a_clean_run_is_not_accused_after_checkpoints_and_a_restart(tmp_path: Path) -> None:
    """A checkpoint after every commit: the first delivery of a class after the restart knows the stamp before it."""

    async def work() -> None:
        config = cluster(tmp_path, durable=True, export="run", limits=Limits(checkpoint_bytes=1))
        for begin in (0, 10):
            async with Running(config) as sites:
                if begin:
                    assert "q has delivered messages of p up to 10" in sites["q"].explain("p:10")["facts"]
                for number in range(begin, begin + 10):
                    await sites["p"].multicast("a" if number % 2 else "c", str(number).encode(), ack="ordered")
                await quiet(sites)

    run(work())
    verdict = audit(LocalSource(str(tmp_path / "run")), "acyclic")

    assert verdict.properties["stamps"].example is None
    assert verdict.ok


@pytest.mark.slow
def test_a_run_under_traffic_is_not_accused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sites write their parts at different times: at every moment what is there is judged, and nothing is broken."""
    monkeypatch.setattr(export, "SECONDS", 1000.0)
    verdicts: list[Verdict] = []

    async def work() -> None:
        config = cluster(tmp_path, durable=True, export="run")
        async with Running(config) as sites:
            sending = asyncio.create_task(_traffic(sites))
            for name in "pqrqpprq":
                before = sites[name].delivered
                while sites[name].delivered < before + 20:
                    await asyncio.sleep(0.01)
                exporter = sites[name].exporter
                assert exporter is not None
                await exporter.write()
                source = LocalSource(str(tmp_path / "run"))
                verdicts.append(await asyncio.to_thread(audit, source, "acyclic", running=True))
            sending.cancel()

    run(work())

    assert [verdict.broken() for verdict in verdicts if not verdict.ok] == []
    assert len({verdict.deliveries for verdict in verdicts}) == len(verdicts)


async def _traffic(sites: Any) -> None:
    for number in range(100_000):
        name, group = "pqr"[number % 3], "abc"[number % 3]
        await sites[name].multicast(group, b"x", ack="ordered")
