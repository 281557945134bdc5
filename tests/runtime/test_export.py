"""What a site remembers beside its machine: it is in the checkpoint, so a restart does not change what is told."""

from pathlib import Path

import pytest

from ordercast.audit.local import LocalSource
from ordercast.audit.verdict import audit
from ordercast.runtime import site
from tests.runtime.test_site import Running, cluster, quiet, run


@pytest.mark.slow
def test_a_clean_run_is_not_accused_after_checkpoints_and_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkpoint after every commit: the first delivery of a class after the restart knows the stamp before it."""
    monkeypatch.setattr(site, "CHECKPOINT_BYTES", 1)

    async def work() -> None:
        config = cluster(tmp_path, durable=True, export="run")
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
