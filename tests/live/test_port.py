"""The client port under clients that do not behave: each bound holds, and nobody else notices."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ordercast.client.client import connect
from ordercast.client.values import Gap
from ordercast.errors import DroppedError, LocalError, LostError
from ordercast.live import answers, port, session
from ordercast.node.settings import Limits
from ordercast.wire import clients as wire
from ordercast.wire.frames import frame
from ordercast.wire.tags import Code, Tag
from tests.support.live import ALONE, WITH_THE_DEAD, Running, alone, cluster, only, run, until
from tests.support.raw import Raw

pytestmark = pytest.mark.slow


def test_a_connection_that_is_not_made_yet_is_not_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A site that stands still between accepting a client and seeing it, or a TLS handshake that takes long."""
    monkeypatch.setattr(session, "LOGIN_S", 0.01)
    said: list[Any] = []

    async def work() -> None:
        async with Running(cluster(tmp_path, {"a": ["p", "q"]})) as sites:
            asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(context))
            assert sites["p"].port is not None
            session.Session(sites["p"].port)
            await asyncio.sleep(0.05)

    run(work())
    assert said == []


def test_a_post_of_twelve_million_empty_messages(tmp_path: Path) -> None:
    """Issue 12 (a): its envelope was too long for any frame, and its class was blocked for ever, across restarts."""
    post = b"".join([b"\x94\x01\x91\xa1a\xa4none\xdd", (12_000_000).to_bytes(4, "big"), b"\xc4\x00" * 12_000_000])
    fits = b"".join([b"\x94\x02\x91\xa1a\xa4none\xdd", (65_536).to_bytes(4, "big"), b"\xc4\x00" * 65_536])

    async def work() -> None:
        config = cluster(tmp_path, {"a": ["p", "q"]}, durable=True)
        async with Running(config) as sites:
            async with Raw(config.clients["p"]) as raw:
                await raw.login()
                raw.writer.writelines(frame(Tag.POST, 0, 0, post))
                tag, said = await raw.hear()
                assert tag == Tag.ERROR and "not a Post" in said.reason and "65536" in said.reason
            with pytest.raises(LocalError, match="70000 messages at once; at most 65536"):
                await sites["p"].multicast_many("a", [b""] * 70_000)
            async with Raw(config.clients["p"]) as raw:
                await raw.login()
                raw.writer.writelines(frame(Tag.POST, 0, 0, fits))
                assert (await raw.hear())[1].error is None
            receipt = await sites["p"].multicast("a", b"still here", ack="safe")
            assert receipt is not None and receipt.number == 65_537
        async with Running(config) as sites:
            receipt = await sites["p"].multicast("a", b"after a restart too", ack="safe")
            assert receipt is not None and receipt.number == 65_538

    run(work())


def test_posts_that_wait_for_room_are_not_read_without_end(tmp_path: Path) -> None:
    """Issue 12, security: posts while the window is full took hundreds of MiB. Now they stay with who sends them."""

    async def work() -> None:
        config = cluster(tmp_path, WITH_THE_DEAD, limits=Limits(window_bytes=100_000))
        async with alone(config) as site, Raw(config.clients["p"]) as raw:
            share = (await raw.login()).window_bytes
            payload = wire.encode(wire.Post(1, ("b",), "none", [bytes(60_000)]))
            for _ in range(1000):  # 60 MB
                raw.writer.writelines(frame(Tag.POST, 0, 0, payload))
            await until(lambda: "posts" in only(site)._holds)
            await asyncio.sleep(0.1)
            assert only(site)._post_bytes <= 2 * share + 70_000
            assert sum(map(len, only(site)._arrived)) < 2**20
            async with connect(config.clients["p"]) as other:  # and nobody else notices
                assert (await other.status())["site"] == "p"

    run(work())


def test_what_was_held_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that posts far more than its window gets every answer, in order, when the site can take it."""
    monkeypatch.setattr(session, "POSTS", 4)

    async def work() -> None:
        config = cluster(tmp_path, ALONE, durable=True)
        async with alone(config) as site, Raw(config.clients["p"]) as raw:
            await raw.login()
            for number in range(500):
                raw.say(Tag.POST, wire.Post(number, ("a",), "none", [b"%d" % number] * 3))
            assert [(await raw.hear())[1].id for _ in range(500)] == list(range(500))
            assert only(site)._posts == 0 and only(site)._post_bytes == 0
            messages = aiter(site.inbox(after=-1))
            assert [int((await anext(messages)).body) for _ in range(1500)] == [n for n in range(500) for _ in "xyz"]

    run(work())


def test_answers_that_nobody_reads_are_not_made(tmp_path: Path) -> None:
    """Issue 12, security: `ASK` without reading. The site stops reading questions, and goes on when it is read from."""

    async def work() -> None:
        config = cluster(tmp_path, ALONE)
        async with alone(config) as site, Raw(config.clients["p"]) as raw:
            await raw.login()
            raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for number in range(30_000):
                raw.say(Tag.ASK, wire.Ask(number, "status"))
            await until(lambda: "answers" in only(site)._holds and only(site).writing_paused)
            assert only(site)._transport.get_write_buffer_size() < answers.WRITE_AHEAD + 50_000
            raw.writer.transport.resume_reading()  # type: ignore[attr-defined]
            assert [(await raw.hear())[1].id for _ in range(30_000)] == list(range(30_000))
            await until(lambda: not only(site)._holds)

    run(work())


def test_nobody_takes_what_it_was_not_sent(tmp_path: Path) -> None:
    """Issue 12, security: `TAKEN` without reading raised the credit without end."""

    async def work() -> None:
        config = cluster(tmp_path, ALONE)
        async with alone(config), Raw(config.clients["p"]) as raw:
            await raw.login()
            raw.say(Tag.JOIN, wire.Join(1, None, None))
            assert (await raw.hear())[1].error is None
            raw.say(Tag.TAKEN, wire.Taken(1))
            tag, said = await raw.hear()
            assert tag == Tag.ERROR and "1 bytes were taken, 0 were sent" in said.reason

    run(work())


def test_lots_that_nobody_reads_are_not_sent(tmp_path: Path) -> None:
    """Issue 12, security: who says it has taken everything and reads nothing from its socket is not believed."""

    async def work() -> None:
        config = cluster(tmp_path, ALONE, limits=Limits(inbox_bytes=2**30))
        async with alone(config) as site, Raw(config.clients["p"]) as raw:
            await raw.login()
            raw.say(Tag.JOIN, wire.Join(1, None, None))
            await raw.hear()
            raw.writer.transport.pause_reading()  # type: ignore[attr-defined]
            for _ in range(600):  # 36 MB
                await site.multicast("a", bytes(60_000), ack="safe")
                if only(site)._reading._unread:
                    raw.say(Tag.TAKEN, wire.Taken(only(site)._reading._unread))
            assert only(site).writing_paused
            assert only(site)._transport.get_write_buffer_size() < answers.WRITE_AHEAD + 200_000

    run(work())


def test_a_large_frame_waits_until_there_is_room_for_all_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 12, security: unfinished frames of all clients together have a bound."""
    monkeypatch.setattr(port, "LARGE_BYTES", 12 * 2**20)
    head, payload = frame(Tag.POST, 0, 0, wire.encode(wire.Post(7, ("a",), "none", [bytes(8 * 2**20)])))

    async def work() -> None:
        config = cluster(tmp_path, ALONE)
        address = config.clients["p"]
        async with alone(config) as site, Raw(address) as slow, Raw(address) as gone, Raw(address) as second:
            third = await Raw(address).__aenter__()
            for raw in (slow, gone, second, third):
                await raw.login()
                raw.writer.write(head + payload[:100_000])
                await until(lambda: len([s for s in site.port.sessions if s._large_since]) > 0)
            await until(lambda: sum("large" in one._holds for one in site.port.sessions) == 3)
            assert site.port.large.used == len(payload)
            gone.writer.transport.abort()
            await until(lambda: len(site.port.sessions) == 3)
            slow.writer.transport.abort()  # whoever stops half way gives its room to the next
            for raw in (second, third):
                raw.writer.write(payload[100_000:])
            for raw in (second, third):
                assert (await raw.hear())[1].id == 7
            await until(lambda: site.port.large.used == 0)
            await third.__aexit__()

    run(work())


def test_who_announces_a_large_frame_and_does_not_send_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "LARGE_S", 0.1)

    async def work() -> None:
        config = cluster(tmp_path, ALONE)
        async with alone(config) as site, Raw(config.clients["p"]) as raw:
            await raw.login()
            raw.writer.write(frame(Tag.POST, 0, 0, bytes(8 * 2**20))[0])
            tag, said = await raw.hear()
            assert tag == Tag.ERROR and said.code is Code.BUSY
            await until(lambda: site.port.large.used == 0)

    run(work())


def test_a_reader_that_asked_to_be_dropped_is_told_where_to_go_on(tmp_path: Path) -> None:
    """Issue 12.7: a stated policy per reader. The connection stays, and nothing is missed."""

    async def work() -> None:
        config = cluster(tmp_path, ALONE, durable=True, limits=Limits(inbox_bytes=1_000_000))
        async with alone(config) as site, connect(config.clients["p"]) as client:
            await client.join(["a"], policy="drop", name="dashboard")
            for number in range(200):
                await site.multicast("a", b"%d" % number + bytes(60_000), ack="safe")
            got: list[int] = []
            with pytest.raises(DroppedError, match="reader anyone/dashboard was too far behind") as dropped:
                async for message in client:
                    got.append(message.position)
            assert dropped.value.after == got[-1] < 199
            await client.join(["a"], after=dropped.value.after)
            async for message in client:
                got.append(message.position)
                if len(got) == 200:
                    break
            assert got == list(range(200))

    run(work())


def test_a_client_that_prefers_gaps_is_told_what_it_misses(tmp_path: Path) -> None:
    """HTW00 6.3, on a real connection: a client does not read, its site goes on; each position comes or is named."""

    async def work() -> None:
        config = cluster(tmp_path, ALONE, durable=True, limits=Limits(inbox_bytes=1_000_000))
        async with alone(config) as site, connect(config.clients["p"]) as client:
            await client.join(["a"], policy="gap")
            for number in range(200):
                await site.multicast("a", b"%d" % number + bytes(60_000), ack="safe")
            seen: list[int] = []
            missed = 0
            async for event in client.events():
                if isinstance(event, Gap):
                    seen += range(event.first, event.last + 1)
                    missed += event.last - event.first + 1
                else:
                    seen.append(event.position)
                if len(seen) == 200:
                    break
            assert seen == list(range(200)) and missed > 50

            await client.leave()
            await client.join(["a"], policy="gap")
            for _ in range(200):
                await site.multicast("a", bytes(60_000), ack="safe")
            with pytest.raises(LocalError, match="is a Gap: read events"):
                async for _ in client:
                    pass

            await client.leave()

            async def state(_: str) -> bytes:
                return b""

            with pytest.raises(LocalError, match="policy gap takes no snapshot"):
                await client.join(["a"], policy="gap", snapshot=state)

    run(work())


def test_credit_is_not_lost_by_leaving_and_joining(tmp_path: Path) -> None:
    """What was sent and not read is given back when the client leaves: it reads on at full speed."""

    async def work() -> None:
        config = cluster(tmp_path, ALONE, durable=True)
        async with alone(config) as site, connect(config.clients["p"]) as client:
            for _ in range(100):
                await site.multicast("a", bytes(60_000), ack="safe")
            for _ in range(4):
                await client.join(after=-1)
                await until(lambda: only(site)._reading._unread > 2**20)
                await client.leave()
                await client.status()
                assert only(site)._reading._unread == 0
            await client.join(after=-1)
            messages = aiter(client)
            assert [(await anext(messages)).position for _ in range(100)] == list(range(100))

    run(work())


def test_a_client_that_sends_and_reads_on_one_connection_never_waits_for_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its posts fill its window and the site's, its reader holds the site back: what it takes is read all the same."""
    for name, value in (("SHARE_AT_MOST", 200_000), ("SHARE_AT_LEAST", 200_000)):
        monkeypatch.setattr(port, name, value)

    async def work() -> None:
        limits = Limits(inbox_bytes=100_000, window_bytes=100_000)
        config = cluster(tmp_path, {"a": ["p", "q"]}, limits=limits)
        async with Running(config), connect(config.clients["p"]) as client, connect(config.clients["q"]) as other:
            for one in (client, other):
                await one.join()

            async def send() -> None:
                for number in range(500):
                    await client.multicast("a", b"%d" % number + bytes(20_000))

            async def read(one: Any) -> list[int]:
                messages = aiter(one)
                return [int((await anext(messages)).body.rstrip(b"\0")) for _ in range(500)]

            _, *got = await asyncio.gather(send(), read(client), read(other))
            assert got == [list(range(500))] * 2

    run(work())


def test_eleven_hundred_at_once_are_all_acknowledged(tmp_path: Path) -> None:
    """Issue 12 (l): they all raised "state is unchanged", and were delivered."""

    async def work() -> None:
        config = cluster(tmp_path, {"a": ["p", "q"]}, durable=True)
        async with Running(config) as sites, connect(config.clients["p"]) as client:
            told = await asyncio.gather(*(client.multicast("a", b"%d" % n, ack="safe") for n in range(1100)))
            assert sorted(one.number for one in told if one is not None) == list(range(1, 1101))
            messages = aiter(sites["q"].inbox(after=-1))
            assert {int((await anext(messages)).body) for _ in range(1100)} == set(range(1100))

    run(work())


def test_flush_returns_after_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 12 (l): `flush()` returned before what it waited for was on any disk."""

    async def work() -> None:
        config = cluster(tmp_path, ALONE, durable=True)
        async with alone(config) as site, connect(config.clients["p"]) as client:
            await client.multicast("a", b"first")
            await client.flush()
            append, on_disk = site.node.history.append, asyncio.Event()
            loop = asyncio.get_running_loop()

            def slowly(*what: Any) -> None:
                asyncio.run_coroutine_threadsafe(on_disk.wait(), loop).result()
                append(*what)

            monkeypatch.setattr(site.node.history, "append", slowly)
            count = site.node.history.count
            await client.multicast("a", b"second")
            flushing = asyncio.create_task(client.flush())
            posting = asyncio.create_task(client.multicast_many("a", [b"third"]))
            await until(lambda: site.node.outbox.messages == 3)
            await client.status()  # an answer that was asked for later is here
            assert not flushing.done() and not posting.done()
            on_disk.set()
            await flushing
            assert (await posting)[0] == 3
            assert site.node.history.count > count

    run(work())


def test_flush_raises_when_the_disk_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work() -> None:
        config = cluster(tmp_path, ALONE, durable=True)
        async with alone(config) as site:
            client = await connect(config.clients["p"]).__aenter__()

            def full(*_: Any) -> None:
                from ordercast.errors import HistoryError

                raise HistoryError("no space left")

            monkeypatch.setattr(site.node.history, "append", full)
            await client.multicast("a", b"x")
            with pytest.raises(LostError, match="no space left"):
                await client.flush()

    run(work())
