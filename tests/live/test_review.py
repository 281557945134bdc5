"""What a hostile review found, each as a test that failed before."""

import asyncio
from pathlib import Path

import pytest

from ordercast.client.client import connect
from ordercast.core.events import Envelope
from ordercast.core.streams import Carry
from ordercast.errors import HistoryError, LocalError, OrdercastError, PeerError
from ordercast.history.store import Position
from ordercast.live.site import Site
from ordercast.node.settings import Limits
from ordercast.protocols.propagation.messages import Propagate
from tests.support.live import Running, cluster, linked, quiet, run


@pytest.mark.slow
def test_a_failed_commit_is_the_last_thing_a_site_does(tmp_path: Path) -> None:
    """One append fails: nothing is written or sent after it, and after a restart nothing is lost or doubled."""

    async def work() -> None:
        config = cluster(tmp_path, durable=True)
        async with Running(config) as sites:
            await sites["p"].multicast("a", b"A", ack="safe")
            history = sites["p"].node.history
            append = history.append

            def full(records: list[bytes], positions: list[Position]) -> None:
                history.append = append  # type: ignore[method-assign]
                raise HistoryError("history.db: database or disk is full")

            history.append = full  # type: ignore[method-assign]
            with pytest.raises(HistoryError, match="disk is full"):
                await sites["p"].multicast("a", b"B", ack="safe")
            with pytest.raises(HistoryError, match="disk is full"):
                await sites["p"].multicast("a", b"C")
            await asyncio.sleep(0.3)
            assert not sites["p"].links.up and sites["p"].status()["failed"]
            await sites["p"].stop()
            sites["p"] = Site(config, "p")
            await sites["p"].start()
            await sites["p"].multicast("a", b"D", ack="safe")
            messages = aiter(sites["q"].inbox(after=-1))
            assert [(await anext(messages)).body for _ in range(2)] == [b"A", b"D"]

    run(work())


@pytest.mark.slow
def test_many_large_messages_at_once_are_no_monster(tmp_path: Path) -> None:
    """26 messages of 1 MiB, all waiting for receipts: several envelopes, none above the limit of a frame."""

    async def work() -> None:
        async with Running(cluster(tmp_path)) as sites:
            body = bytes(2**20)
            receipts = await asyncio.gather(*(sites["p"].multicast("a", body, ack="safe") for _ in range(26)))
            assert sorted(receipt.number for receipt in receipts if receipt is not None) == list(range(1, 27))
            with pytest.raises(LocalError, match="20 messages of 20971520 bytes at once; at most 16777216 are allowed"):
                await sites["p"].multicast_many("a", [body] * 20)

    run(work())


@pytest.mark.slow
def test_an_envelope_without_messages_is_refused_before_it_is_written(tmp_path: Path) -> None:
    async def work() -> None:
        async with Running(cluster(tmp_path, durable=True)) as sites:
            q = sites["q"]
            entry = q.deployment.entry(("a",))
            assert entry is not None
            site, peer = sites[entry], "r" if entry != "r" else "p"
            class_id = q.deployment.groups.destination(("a",))
            for body in (b"", b"\0" * 8 + b"\xff\xff\xff\xff\x91\xc4\x01x", b"\0" * 12 + b"\x90"):
                envelope = Envelope(class_id, ("a",), peer, 1, 1, body)
                with pytest.raises(PeerError):
                    site.node.intake.checker.check(peer, class_id, Carry(0, 1, Propagate(envelope)))
            before = site.node.history.count
            await sites[peer].multicast("a", b"honest", ack="safe")
            assert site.node.history.count > before

    run(work())


@pytest.mark.slow
def test_a_site_that_is_not_durable_comes_back_with_nothing(tmp_path: Path) -> None:
    """The survivors begin anew with it, whatever part it had in the tree; what waited for it is said to be lost."""

    async def work() -> None:
        config = cluster(tmp_path)
        async with Running(config) as sites:
            for victim in ("p", "q", "r"):
                for group in "abc":
                    for _ in range(3):
                        await sites["p"].multicast(group, b"before", ack="safe")
                await sites[victim].stop()
                source = "q" if victim != "q" else "r"
                waiting = asyncio.create_task(
                    sites[source].multicast("abc"["pqr".index(victim)], b"meanwhile", ack="safe")
                )
                await asyncio.sleep(0.1)
                sites[victim] = Site(config, victim)
                await sites[victim].start()
                await linked(sites)
                await asyncio.wait([waiting], timeout=5)
                assert waiting.done()
                waiting.exception()
                for group in "abc":
                    for sender in "pqr":
                        async with asyncio.timeout(5):
                            await sites[sender].multicast(group, b"after", ack="safe")
            await quiet(sites)

    run(work())


@pytest.mark.slow
def test_who_stops_reading_in_between_goes_on_with_the_next_message(tmp_path: Path) -> None:
    async def work() -> None:
        config = cluster(tmp_path)
        async with Running(config) as sites, connect(config.clients["q"]) as client:
            inbox = sites["q"].inbox()
            await client.join()
            await sites["p"].multicast_many("a", [str(n).encode() for n in range(10)], "safe")
            for reader in (inbox, client):
                got = []
                for _ in range(5):
                    async for message in reader:
                        got.append(int(message.body))
                        if len(got) % 2 == 0:
                            break
                assert got == list(range(10))
            assert inbox.bytes == 0

    run(work())


@pytest.mark.slow
def test_causal_order_survives_batching(tmp_path: Path) -> None:
    async def work() -> None:
        config = cluster(tmp_path, {"a": ["p", "q"], "b": ["p", "q"]}, causal=True)
        async with Running(config) as sites, connect(config.clients["p"]) as client:
            messages = aiter(sites["q"].inbox())
            for sender in (sites["p"], client):
                for number, group in enumerate("aabab"):
                    await sender.multicast(group, str(number).encode())
                assert [int((await anext(messages)).body) for _ in range(5)] == [0, 1, 2, 3, 4]

    run(work())


@pytest.mark.slow
def test_a_flush_after_the_connection_was_lost_does_not_lie(tmp_path: Path) -> None:
    async def work() -> None:
        config = cluster(tmp_path)
        async with Running(config) as sites:
            client = connect(config.clients["p"])
            await client.__aenter__()
            await client.multicast("a", b"x")
            await sites["p"].stop()
            await asyncio.sleep(0.1)
            with pytest.raises(OrdercastError):
                await client.flush()

    run(work())


@pytest.mark.slow
def test_a_peer_that_never_greets_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ordercast.live.links.SILENCE_S", 0.5)

    async def work() -> None:
        config = cluster(tmp_path)
        async with Site(config, "p") as site:
            host, port = config.address("p")
            reader, writer = await asyncio.open_connection(host, port)
            assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()
            await asyncio.sleep(0.1)
            assert not site.links._all

    run(work())


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint_bytes", [1, 2**26])
def test_a_restarted_source_still_knows_what_is_not_safe(tmp_path: Path, checkpoint_bytes: int) -> None:
    """A member is away, the source is restarted, from its log and from a checkpoint: it does not call it safe."""

    async def work() -> None:
        config = cluster(tmp_path, durable=True, limits=Limits(checkpoint_bytes=checkpoint_bytes))
        async with Running(config) as sites:
            await sites["p"].multicast("a", b"before", ack="safe")
            await sites["q"].stop()
            for number in (2, 3):
                await sites["p"].multicast("a", b"x")
                await asyncio.sleep(0.2)
                await sites["p"].stop()
                sites["p"] = Site(config, "p")
                await sites["p"].start()
                told = str(sites["p"].explain(f"p:{number}"))
                assert "not known to be safe since the restart" in told
                assert sites["p"].status()["unsafe_bytes"] == 0  # the window is free for other groups
            sites["q"] = Site(config, "q")
            await sites["q"].start()
            await quiet(sites)
            assert "sent, and safe" in str(sites["p"].explain("p:3"))

    run(work())


@pytest.mark.slow
def test_a_position_that_is_not_kept_is_refused_and_the_connection_stays(tmp_path: Path) -> None:
    async def work() -> None:
        config = cluster(tmp_path)
        async with Running(config) as sites, connect(config.clients["q"]) as client:
            await sites["p"].multicast("a", b"x", ack="safe")
            with pytest.raises(LocalError, match="position 0 is not kept here any more"):
                await client.join(after=-1)
            await client.join()
            await sites["p"].multicast("a", b"y", ack="safe")
            assert (await asyncio.wait_for(anext(aiter(client)), 5)).body == b"y"

    run(work())
