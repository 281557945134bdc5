"""What a site remembers beside its machine: it is in the checkpoint, so a restart does not change what is told."""

import asyncio
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ordercast.audit.local import LocalSource
from ordercast.audit.verdict import Verdict, audit
from ordercast.errors import OrdercastError
from ordercast.live import export
from ordercast.live.site import Site
from ordercast.node.settings import Limits
from ordercast.runs import writer
from ordercast.runs.writer import Part, RunWriter
from tests.support.live import GROUPS, Running, cluster, quiet, run, until


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


class Stuck(RunWriter):
    """A writer whose disk is full of work: nothing is written before `go`."""

    go = threading.Event()

    def write(self, part: Part) -> None:
        """Wait, then write."""
        self.go.wait()
        super().write(part)


@pytest.mark.slow
def test_a_slow_export_disk_slows_its_site_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bounded number of parts waits, links stay up, and when the disk goes on everything is there."""
    monkeypatch.setattr(export, "RunWriter", Stuck)
    monkeypatch.setattr(writer, "ROWS_AT_MOST", 10)
    waits: list[int] = []

    async def work() -> None:
        async with Running(cluster(tmp_path, durable=True, export="run")) as sites:
            many = asyncio.gather(*(_posts(sites["p"], 20) for _ in range(20)))
            try:
                await until(lambda: any(_held(site) for site in sites.values()))
                site = next(site for site in sites.values() if _held(site))
                before = site.delivered
                await asyncio.sleep(0.3)
                assert site.exporter is not None
                waits.extend([site.exporter._parts, site.delivered - before, *site.status()["peers"].values()])
            finally:
                Stuck.go.set()
            await many
            await quiet(sites)

    Stuck.go.clear()
    run(work())
    verdict = audit(LocalSource(str(tmp_path / "run")), "acyclic")

    assert waits[0] <= export.PARTS_AT_MOST + 2
    assert waits[1] == 0 and all(waits[2:])
    assert verdict.ok and verdict.deliveries == 400 * len(GROUPS["a"])


@pytest.mark.slow
def test_a_site_that_is_not_durable_ends_when_its_run_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has no commit to hold back: it ends, and says why, instead of filling its memory."""
    monkeypatch.setattr(export, "RunWriter", Stuck)
    monkeypatch.setattr(writer, "ROWS_AT_MOST", 1)
    told: list[str] = []

    async def work() -> None:
        async with Running(cluster(tmp_path, export="run")) as sites:
            try:
                await _posts(sites["p"], 100_000)
            except OrdercastError as error:
                told.append(str(error))
            finally:
                Stuck.go.set()

    Stuck.go.clear()
    with suppress(OrdercastError):  # the site that has ended says it again
        run(work())

    assert told and "cannot be written as fast as the site delivers" in told[0]


def _held(site: Site) -> bool:
    return site.exporter is not None and site.exporter._held is not None


async def _posts(site: Site, many: int) -> None:
    for _ in range(many):
        await site.multicast("a", b"x" * 1000, ack="safe")


async def _traffic(sites: Any) -> None:
    for number in range(100_000):
        name, group = "pqr"[number % 3], "abc"[number % 3]
        await sites[name].multicast(group, b"x", ack="ordered")
