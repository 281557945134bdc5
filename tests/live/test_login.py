"""Who comes to the client port: small until it has logged in, only what it may, nothing in clear where TLS is on."""

import asyncio
import contextlib
import logging
from pathlib import Path

import pytest

from ordercast.client.client import connect
from ordercast.errors import InputError, LocalError, LostError, UnreachableError
from ordercast.live import port, session
from ordercast.live.config import Security
from ordercast.live.tls import make_certs
from ordercast.wire import clients as wire
from ordercast.wire.frames import FRAME_AT_MOST, frame
from ordercast.wire.tags import Code, Tag
from tests.support.live import ALONE, alone, cluster, run, until
from tests.support.raw import Raw

pytestmark = pytest.mark.slow


def test_memory_before_login_is_small(tmp_path: Path) -> None:
    """Issue 12, security: 40 unfinished frames of 24 MiB took 704 MiB. Their heads are enough to be sent away."""

    async def work() -> None:
        config = cluster(tmp_path, ALONE)
        async with alone(config):
            for _ in range(40):
                async with Raw(config.clients["p"]) as raw:
                    raw.writer.write(frame(Tag.LOGIN, 0, 0, bytes(FRAME_AT_MOST))[0])
                    tag, said = await raw.hear()
                    assert tag == Tag.ERROR and said.code is Code.BAD_BYTES
                    assert "at most 65536 are allowed" in said.reason
                    assert (await raw.hear())[0] == 0

    run(work())


def test_who_does_not_log_in_is_sent_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 12, security: a time-out for the handshake."""
    monkeypatch.setattr(session, "LOGIN_S", 0.05)

    async def work() -> None:
        config = cluster(tmp_path, ALONE)
        async with alone(config), Raw(config.clients["p"]) as raw:
            raw.writer.write(b"\0")
            tag, said = await raw.hear()
            assert tag == Tag.ERROR and said.code is Code.SILENT

    run(work())


def test_who_logs_in_and_says_nothing_is_sent_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 12, security: a time-out for idle clients. One that answers the site's heartbeats is not idle."""
    monkeypatch.setattr(session, "IDLE_S", 1.6)

    async def work() -> None:
        config = cluster(tmp_path, ALONE)
        async with alone(config), Raw(config.clients["p"]) as raw, connect(config.clients["p"]) as client:
            assert (await raw.login()).site == "p"
            tag, said = await raw.hear()
            assert tag == Tag.ERROR and said.code is Code.SILENT
            assert (await client.status())["site"] == "p"

    run(work())


def test_only_so_many_may_be_at_the_door(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(port, "UNKNOWN_AT_MOST", 3)

    async def work() -> None:
        config = cluster(tmp_path, ALONE)
        async with alone(config) as site, contextlib.AsyncExitStack() as stack:
            for number in range(3):
                await stack.enter_async_context(Raw(config.clients["p"]))
                await until(lambda number=number: len(site.port.sessions) == number + 1)
            with pytest.raises(UnreachableError, match="too many clients log in at p"):
                await connect(config.clients["p"]).__aenter__()

    run(work())


def test_wrong_tokens_wait_and_right_ones_do_not(tmp_path: Path) -> None:
    """Issue 12, security: a brake on wrong tokens, which is no brake on others from the same address."""

    async def work() -> None:
        config = cluster(tmp_path, ALONE, security=Security(tokens={"right": "teller"}))
        async with alone(config) as site:
            wrong = [asyncio.create_task(connect(config.clients["p"], f"wrong {n}").__aenter__()) for n in range(5)]
            await until(lambda: sum("login" in one._holds for one in site.port.sessions) >= 3)
            async with connect(config.clients["p"], "right") as client:
                assert (await client.status())["site"] == "p"
            assert not all(task.done() for task in wrong)
            told = await asyncio.gather(*wrong, return_exceptions=True)
            assert {(type(one), str(one)) for one in told} == {(LocalError, "this token is not known here")}

    run(work())


def test_nobody_may_read_no_group(tmp_path: Path) -> None:
    """Issue 12, security: `JOIN groups=[]` passed every rule, and opened a reader that held the site back."""
    security = Security(tokens={"t": "teller"}, send={"teller": ["a"]})

    async def work() -> None:
        config = cluster(tmp_path, ALONE, security=security)
        async with alone(config) as site, Raw(config.clients["p"]) as raw:
            await raw.login("t")
            raw.say(Tag.JOIN, wire.Join(1, [], None))
            assert "no group to read" in (await raw.hear())[1].error
            raw.say(Tag.JOIN, wire.Join(2, None, None))
            assert "client teller may not receive in group a" in (await raw.hear())[1].error
            raw.say(Tag.JOIN, wire.Join(3, ["a"], None, name="\x1b[2J"))
            assert "printable" in (await raw.hear())[1].error
            assert site.node.readers.all == []

    run(work())


def test_the_client_port_speaks_tls_where_sites_do(tmp_path: Path) -> None:
    """The token is not for everybody on the way; the site's name must stand in its certificate."""
    make_certs(tmp_path / "certs", ["p"])
    make_certs(tmp_path / "other", ["p"])
    ca = tmp_path / "certs" / "ca.pem"

    async def work() -> None:
        config = cluster(tmp_path, ALONE, security=Security(certs="certs", tokens={"t": "teller"}))
        async with alone(config):
            async with connect(config.clients["p"], "t", ca=ca) as client:
                await client.join()
                await client.multicast("a", b"x")
                assert (await anext(aiter(client))).body == b"x"
                await client.multicast("a", bytes(3_000_000), ack="safe")
            with pytest.raises(UnreachableError, match="no TLS with"):
                await connect(config.clients["p"], "t", ca=tmp_path / "other" / "ca.pem").__aenter__()
            with pytest.raises((UnreachableError, LostError, InputError)):
                await connect(config.clients["p"], "t", timeout=2.0).__aenter__()
            with pytest.raises(InputError, match=r"nothing\.pem: no certificates"):
                await connect(config.clients["p"], "t", ca="nothing.pem").__aenter__()

    run(work())


def test_what_a_client_says_does_not_fill_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Issue 12, security: log lines are bounded."""
    caplog.set_level(logging.INFO)

    async def work() -> None:
        config = cluster(tmp_path, ALONE)
        async with alone(config):
            for said in (wire.Ask(1, "x" * 60_000), wire.Login(1, "x" * 60_000), wire.Join(1, ["y" * 60_000], None)):  # type: ignore[arg-type]
                for tag in (Tag.ASK, Tag.LOGIN, Tag.JOIN):
                    async with Raw(config.clients["p"]) as raw:
                        await raw.login()
                        raw.say(tag, said)
                        assert (await raw.hear())[0] == Tag.ERROR

    run(work())
    assert len(caplog.records) > 5
    assert max(len(record.getMessage()) for record in caplog.records) < 500
