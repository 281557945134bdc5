"""A lost disk, live: real sites, a deleted folder, and what everybody says (issue 12, a lost disk; the key of (j))."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from ordercast.errors import HistoryError
from ordercast.live.config import Security
from ordercast.live.site import Site
from ordercast.live.tls import make_certs
from tests.support.live import Running, cluster, linked, ports, run
from tests.test_cli import ordercast


async def fetch(address: str, path: str) -> str:
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    answer = (await reader.read()).decode()
    writer.close()
    return answer


@pytest.mark.slow
def test_a_site_whose_folder_was_deleted_is_refused_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Two sites, safe sends, both stopped, one folder deleted, both started: nothing gets an old number."""

    async def work() -> None:
        (at,) = ports(1)
        config = cluster(tmp_path, {"x": ["p", "q"]}, durable=True, metrics={"q": at})
        async with Running(config) as sites:
            for name in "pq":
                await sites[name].multicast("x", name.encode(), ack="safe")
        shutil.rmtree(config.data_folder / "q")
        async with Site(config, "p") as p, Site(config, "q") as q:
            while q.status()["lost"] is None:
                await asyncio.sleep(0.01)
            assert q.status()["lost"].startswith("q has lost its history")
            assert "q has lost its history" in p.status()["refused"]["q"]
            assert "503" in await fetch(at, "/readyz")
            with pytest.raises(HistoryError, match="q has lost its history"):
                await q.multicast("x", b"again", ack="safe")
            assert p.status()["delivered"] == 2

    caplog.set_level("INFO")
    run(work())
    assert any("history.lost" in record.getMessage() for record in caplog.records)


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["fixed", "atomic"])
def test_a_site_goes_on_from_its_backup_until_the_backup_is_old(tmp_path: Path, policy: str) -> None:
    """Stopped, backed up, its disk gone, restored: it goes on. The same backup a day later is refused by name."""
    config = cluster(tmp_path, {"x": ["p", "q", "r"]}, durable=True, policy=policy)
    file, folder = tmp_path / "q.backup", config.data_folder / "q"

    def lose_and_restore() -> None:
        shutil.rmtree(folder)
        done = ordercast("restore", "q", "q.backup", cwd=tmp_path)
        assert done.returncode == 0, done.stderr

    async def send(*bodies: bytes) -> None:
        async with Running(config) as sites:
            for body in bodies:
                await sites["q"].multicast("x", body, ack="safe")

    async def refused() -> None:
        async with Site(config, "p") as p, Site(config, "q") as q, Site(config, "r") as r:
            while q.status()["lost"] is None:
                await asyncio.sleep(0.01)
            assert "q has lost" in q.status()["lost"] or "history" in q.status()["lost"]
            assert "q" in {**p.status()["refused"], **r.status()["refused"]}  # whoever met it first

    names: dict[str, dict[str, Any]] = {"sites": dict(config.sites), "groups": dict(config.groups)}
    text = [f'name = "{config.name}"', f'policy = "{policy}"', f'data = "{config.data}"']
    for table, rows in names.items():
        text += [f"[{table}]", *(f"{name} = {json.dumps(value)}" for name, value in rows.items())]
    (tmp_path / "cluster.toml").write_text("\n".join(text))
    run(send(b"one", b"two"))
    done = ordercast("backup", "q", "q.backup", cwd=tmp_path)
    assert done.returncode == 0 and file.exists(), done.stderr
    lose_and_restore()
    run(send(b"three", b"four"))
    lose_and_restore()
    run(refused())


@pytest.mark.slow
def test_a_key_that_is_unreadable_for_a_while_does_not_end_the_calls(tmp_path: Path) -> None:
    """Issue 12 (j): the site goes on calling, and has its links when the key is back."""

    async def work() -> None:
        config = cluster(tmp_path, {"x": ["p", "q"]}, security=Security(certs="certs"))
        make_certs(tmp_path / "certs", list(config.sites))
        key = tmp_path / "certs" / "p.key"
        async with Site(config, "p") as p:
            kept = key.read_bytes()
            key.write_bytes(b"nothing")
            async with Site(config, "q") as q:
                await asyncio.sleep(0.3)
                assert not p.status()["peers"].get("q")
                key.write_bytes(kept)
                await linked({"p": p, "q": q})
                await p.multicast("x", b"hello", ack="safe")

    run(work())
