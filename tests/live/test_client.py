"""The client library: reading, leaving, joining again; a refusal is no disconnection; nothing is lost in silence."""

import asyncio
import inspect
import socket
from pathlib import Path

import pytest

from ordercast.cli import talk
from ordercast.client import connection as module
from ordercast.client import sync
from ordercast.client.client import Client, connect
from ordercast.errors import LocalError, LostError, UnreachableError
from ordercast.live.config import Security
from ordercast.live.session import Session
from ordercast.live.site import Site
from ordercast.node.settings import Limits
from tests.support.live import Running, cluster, ports, quiet, run


def sessions(site: Site) -> set[Session]:
    assert site.port is not None
    return site.port.sessions


@pytest.mark.slow
def test_leave_and_join_again_and_again(tmp_path: Path) -> None:
    """Each time the reader gets what came since it joined, and nothing of the time between."""

    async def work() -> None:
        config = cluster(tmp_path)
        async with Running(config) as sites, connect(config.clients["q"]) as client:
            for number in range(3):
                await client.join(["a"])
                messages = aiter(client)
                await sites["p"].multicast("a", f"{number}".encode(), ack="safe")
                assert (await asyncio.wait_for(anext(messages), 5)).body == f"{number}".encode()
                await client.leave()
                with pytest.raises(StopAsyncIteration):
                    await anext(messages)
                await sites["p"].multicast("a", b"between", ack="safe")
            await client.join(["b"])
            await sites["r"].multicast("b", b"another group", ack="safe")
            assert (await asyncio.wait_for(anext(aiter(client)), 5)).body == b"another group"

    run(work())


@pytest.mark.slow
def test_what_was_on_its_way_when_a_client_left_is_not_read_after_it_joined_again(tmp_path: Path) -> None:
    async def work() -> None:
        config = cluster(tmp_path)
        async with Running(config) as sites, connect(config.clients["q"]) as client:
            await client.join()
            for _ in range(200):
                await sites["p"].multicast("a", bytes(50_000))
            await client.leave()
            await client.join()
            await quiet(sites)
            await client.leave()
            await client.join()
            await sites["p"].multicast("a", b"new", ack="safe")
            assert (await asyncio.wait_for(anext(aiter(client)), 5)).body == b"new"

    run(work())


@pytest.mark.slow
def test_a_wait_that_is_cancelled_loses_nothing_and_the_iterator_goes_on(tmp_path: Path) -> None:
    async def work() -> None:
        config = cluster(tmp_path)
        async with Running(config) as sites, connect(config.clients["q"]) as client:
            await client.join()
            for reader in (aiter(client), aiter(sites["q"].inbox())):
                for _ in range(3):
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(anext(reader), 0.01)
            readers = [aiter(client), aiter(sites["q"].inbox())]
            got: list[list[int]] = [[], []]

            async def read(which: int) -> None:
                while len(got[which]) < 300:
                    try:
                        got[which].append(int((await asyncio.wait_for(anext(readers[which]), 0.0005)).body))
                    except TimeoutError:
                        await asyncio.sleep(0)

            reading = [asyncio.create_task(read(which)) for which in (0, 1)]
            for number in range(300):
                await sites["p"].multicast("a", str(number).encode())
                if number % 5 == 0:
                    await asyncio.sleep(0.001)
            await asyncio.gather(*reading)
            assert got == [list(range(300))] * 2

    run(work())


@pytest.mark.slow
def test_a_refusal_is_raised_where_it_was_asked_for_and_the_connection_stays(tmp_path: Path) -> None:
    security = Security(tokens={"t": "teller"}, send={"teller": ["a"]}, receive={"teller": ["a"]})

    async def work() -> None:
        config = cluster(tmp_path, security=security)
        async with Running(config) as sites, connect(config.clients["p"], "t") as client:
            with pytest.raises(LocalError, match="client teller may not receive in group c"):
                await client.join(["c"])
            with pytest.raises(LocalError, match="position 77 was never delivered"):
                await client.join(["a"], after=77)
            await client.join(["a"])
            with pytest.raises(LocalError, match="has joined already"):
                await client.join(["a"])
            with pytest.raises(LocalError, match="client teller may not send in group z"):
                await client.multicast("z", b"x", ack="ordered")
            await sites["q"].multicast("a", b"still here", ack="safe")
            assert (await asyncio.wait_for(anext(aiter(client)), 5)).body == b"still here"
            assert (await client.status())["site"] == "p"

    run(work())


@pytest.mark.slow
def test_async_with_never_ends_in_silence_with_messages_that_were_not_taken(tmp_path: Path) -> None:
    async def work() -> None:
        config = cluster(tmp_path)
        async with Running(config) as sites:
            with pytest.raises(LocalError, match="there is no group 'z'"):
                async with connect(config.clients["p"]) as client:
                    await client.multicast("z", b"x")
            with pytest.raises(LocalError, match="there is no group 'z'") as chained:
                async with connect(config.clients["p"]) as client:
                    await client.multicast("z", b"x")
                    raise KeyError("the body")
            assert isinstance(chained.value.__context__, KeyError)
            with pytest.raises(LostError, match="1 message was not taken"):
                async with connect(config.clients["p"]) as client:
                    await client.multicast("a", b"x")
                    for session in sessions(sites["p"]):
                        session._transport.abort()

    run(work())


@pytest.mark.slow
def test_a_refusal_is_raised_once(tmp_path: Path) -> None:
    async def work() -> None:
        config = cluster(tmp_path)
        async with Running(config), connect(config.clients["p"]) as client:
            await client.multicast("z", b"x")
            with pytest.raises(LocalError, match="there is no group 'z'"):
                await client.flush()
            await client.multicast("a", b"x")
            await client.flush()

    run(work())


@pytest.mark.slow
def test_a_site_that_says_nothing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever listens there takes the connection and never answers: connecting has a limit, and so has silence."""
    monkeypatch.setattr(module, "BEATS_MISSED", 2)

    async def work() -> None:
        with socket.create_server(("127.0.0.1", 0)) as mute:
            address = f"127.0.0.1:{mute.getsockname()[1]}"
            with pytest.raises(UnreachableError, match=f"{address} does not answer"):
                await Client(address, timeout=0.2).__aenter__()

    run(work())


@pytest.mark.slow
def test_a_reader_of_a_site_that_stops_answering_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BEATS_MISSED", 2)

    async def work() -> None:
        config = cluster(tmp_path)
        async with Running(config) as sites, connect(config.clients["p"]) as client:
            await client.join()
            with pytest.raises(TimeoutError):  # silence of the groups is not silence of the site
                await asyncio.wait_for(anext(aiter(client)), 3.5)
            for session in sessions(sites["p"]):
                session.beat = lambda now: None  # type: ignore[method-assign]
            with pytest.raises(LostError, match="has said nothing for"):
                await anext(aiter(client))

    run(work())


def test_there_is_one_default_of_ack() -> None:
    """It works with every protocol: the site has taken the message, or something is raised."""
    calls = (Client.multicast, Site.multicast, sync.SyncClient.multicast, talk.send)

    assert {inspect.signature(call).parameters["ack"].default for call in calls} == {"none"}


@pytest.mark.slow
def test_messages_to_overlapping_destinations_do_not_overtake_each_other(tmp_path: Path) -> None:
    """A source's messages to a, to a and b, and to a again leave in this order, however they are batched."""

    async def work() -> None:
        config = cluster(tmp_path, {"a": ["p", "q"], "b": ["p", "q"]}, limits=Limits(envelope_messages=1000))
        async with Running(config) as sites, connect(config.clients["p"]) as client:
            messages = aiter(sites["q"].inbox())
            destinations: list[str | tuple[str, ...]] = ["a", ("a", "b"), "a", "b", ("a", "b"), "b", "b", "a"]
            for sender in (sites["p"], client):
                for number, destination in enumerate(destinations):
                    await sender.multicast(destination, str(number).encode())
                got = [int((await anext(messages)).body) for _ in destinations]
                for group in "ab":
                    to_group = [number for number in got if group in destinations[number]]
                    assert to_group == sorted(to_group)

    run(work())


@pytest.mark.slow
def test_the_synchronous_client_says_what_was_not_taken(tmp_path: Path) -> None:
    async def work() -> None:
        config = cluster(tmp_path)

        def script() -> None:
            with (
                pytest.raises(LocalError, match="there is no group 'z'"),
                sync.connect(config.clients["p"]) as p,
            ):
                p.multicast("z", b"x")
            with sync.connect(config.clients["p"]) as p:
                p.join(["a"])
                p.leave()
                p.join(["a"])
                p.multicast("a", b"1")
                p.flush()
                messages = p.messages(timeout=5)
                assert next(messages).body == b"1"
                for _ in range(2):
                    with pytest.raises(TimeoutError):
                        next(p.messages(timeout=0.05))
                p.multicast("a", b"2")
                assert next(p.messages(timeout=5)).body == b"2"

        async with Running(config):
            await asyncio.to_thread(script)

    run(work())


@pytest.mark.parametrize("address", ["nowhere", "127.0.0.1:", "127.0.0.1:0", "127.0.0.1:70000", ":80"])
def test_an_address_that_is_none_is_one_clear_line(address: str) -> None:
    async def work() -> None:
        with pytest.raises(LocalError, match="is not host:port"):
            await Client(address).__aenter__()

    run(work())


def test_nobody_there_is_one_clear_line() -> None:
    async def work() -> None:
        (address,) = ports(1)
        with pytest.raises(UnreachableError, match="nobody answers at"):
            await Client(address).__aenter__()

    run(work())


@pytest.mark.slow
def test_each_flush_raises_what_it_waited_for(tmp_path: Path) -> None:
    """Two tasks share a client and both their messages are refused: neither may take it for sent."""

    async def work() -> None:
        config = cluster(tmp_path, {"g": ["p"]})
        async with Running(config), connect(config.clients["p"]) as client:

            async def send() -> None:
                await client.multicast("nobody", b"?")
                await client.flush()

            told = await asyncio.gather(*(send() for _ in range(3)), return_exceptions=True)
            assert [LocalError] * 3 == [type(one) for one in told]
            await client.multicast("g", b"!")
            await client.flush()

    run(work())
