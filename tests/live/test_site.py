"""Sites on real TCP: order, receipts, resume, back-pressure, refusals."""

import asyncio
import logging
from pathlib import Path

import msgspec
import pytest

from ordercast.client.client import connect
from ordercast.errors import HistoryError, InputError, LocalError, UnreachableError
from ordercast.live.config import Cluster, Security, Swap, deploy, read_cluster
from ordercast.live.site import Site
from ordercast.live.tls import make_certs
from ordercast.names import Shape
from ordercast.node.inputs import DiskFailed
from ordercast.node.settings import Limits
from ordercast.protocols.registry import MACHINES
from ordercast.verify.rings import tangled
from ordercast.wire.frames import frame
from ordercast.wire.peers import VERSION, Hello
from ordercast.wire.tags import Tag
from tests.support.live import GROUPS, Running, cluster, ports, quiet, run

NEAR = Swap(tree=Shape.LATENCY, latencies=[("p", "q", 0.1)], upper=2, by_source=True)
LIVE = [(protocol, durable, Swap()) for protocol in MACHINES for durable in (False, True)]
LIVE += [("arrow", True, Swap(by_source=True)), ("combining", False, Swap(tree=Shape.PATH)), ("hybrid", True, NEAR)]


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "durable", "swap"), LIVE)
def test_every_protocol_runs_live(tmp_path: Path, protocol: str, durable: bool, swap: Swap) -> None:
    """Four senders, three groups in a ring: one serial order, nothing missing, nothing twice, stamps aside."""

    async def work() -> None:
        config = cluster(tmp_path, extra="x", protocol=protocol, durable=durable, swap=swap)
        async with Running(config) as sites:
            logs: dict[str, list[str]] = {name: [] for name in sites}
            readers = [asyncio.create_task(read(site, logs[name])) for name, site in sites.items()]
            await asyncio.gather(*(send(name, site) for name, site in sites.items()))
            await quiet(sites)
            for task in readers:
                task.cancel()
            for name, log in logs.items():
                own = [group for group, members in GROUPS.items() if name in members]
                expected = {
                    f"{source}-{n}-{g}" for source in sites for n in range(60) for g in own if "abc"[n % 3] == g
                }
                assert set(log) == expected
                assert len(log) == len(set(log))
            assert not tangled(logs)

    async def read(site: Site, log: list[str]) -> None:
        async for message in site.inbox():
            log.append(message.body.decode())

    async def send(name: str, site: Site) -> None:
        for number in range(60):
            group = "abc"[number % 3]
            await site.multicast(group, f"{name}-{number}-{group}".encode())
            if number % 7 == 0:
                await asyncio.sleep(0.001)

    run(work())


@pytest.mark.slow
@pytest.mark.parametrize("durable", [False, True])
def test_receipts_and_one_message_to_several_groups(tmp_path: Path, durable: bool) -> None:
    async def work() -> None:
        async with Running(cluster(tmp_path, extra="x", durable=durable)) as sites:
            inbox = sites["q"].inbox()
            first = await sites["x"].multicast("a", b"one", ack="ordered")
            second = await sites["x"].multicast(("a", "b"), b"both", ack="safe")
            assert first is not None and second is not None
            assert (first.number, second.number) == (1, 2)
            assert first.stamp is not None and second.stamp is not None and first.stamp < second.stamp
            messages = aiter(inbox)
            got = [await anext(messages), await anext(messages)]
            assert [(m.body, m.group, m.source, m.position) for m in got] == [
                (b"one", "a", "x", 0),
                (b"both", "a+b", "x", 1),
            ]
            await quiet(sites)

    run(work())


@pytest.mark.slow
def test_a_restarted_site_goes_on_and_readers_resume(tmp_path: Path) -> None:
    """Stop a site, send meanwhile, start it: it catches up; a reader gets exactly what it has not seen."""

    async def work() -> None:
        config = cluster(tmp_path, durable=True)
        async with Running(config) as sites:
            for number in range(20):
                await sites["p"].multicast("a", str(number).encode(), ack="safe")
            await sites["q"].stop()
            late = [asyncio.create_task(sites["p"].multicast("a", str(n).encode(), ack="safe")) for n in range(20, 40)]
            await asyncio.sleep(0.2)
            assert not any(task.done() for task in late)  # q is a member: not safe without it
            assert sites["p"].status()["unsafe_envelopes"] > 0
            sites["q"] = Site(config, "q")
            await sites["q"].start()
            await asyncio.gather(*late)
            for after in (-1, 7, 38):
                messages = aiter(sites["q"].inbox(after=after))
                bodies = [int((await anext(messages)).body) for _ in range(39 - after)]
                assert bodies == list(range(after + 1, 40))
            with pytest.raises(LocalError, match="position 77 was never delivered"):
                sites["q"].inbox(after=77)
            await quiet(sites)

    run(work())


@pytest.mark.slow
def test_a_reader_that_stops_blocks_its_sources_and_memory_stays_bounded(tmp_path: Path) -> None:
    """The policy is to block: the sender waits, nothing is dropped, and everything comes when the reader reads."""
    limits = Limits(window_bytes=300_000, inbox_bytes=200_000, envelope_bytes=20_000)

    async def work() -> None:
        async with Running(cluster(tmp_path, limits=limits)) as sites:
            inbox = sites["q"].inbox()
            body = bytes(1000)

            async def send() -> None:
                for _ in range(5000):
                    await sites["p"].multicast("a", body)

            sender = asyncio.create_task(send())
            await asyncio.sleep(1.0)
            assert not sender.done()
            status = sites["q"].status()
            assert status["parked"] > 0
            await asyncio.sleep(1.5)
            assert sites["q"].status()["parked"] == status["parked"]  # nobody asks again for what waits outside
            assert status["reader_bytes"][0] < 300_000
            assert sites["p"].status()["unsafe_bytes"] < 400_000
            assert "wait outside" in str(sites["q"].explain("p:1"))
            await sites["r"].multicast("c", b"another class or not, this link is free", ack="ordered")
            messages = aiter(inbox)
            for _ in range(5000):
                await anext(messages)
            await sender
            await quiet(sites)

    run(work())


@pytest.mark.slow
def test_bodies_of_one_megabyte_work_and_of_24_are_refused(tmp_path: Path) -> None:
    async def work() -> None:
        config = cluster(tmp_path)
        async with Running(config) as sites, connect(config.clients["p"]) as client:
            messages = aiter(sites["q"].inbox())
            large = bytes(range(256)) * 4096
            await client.multicast("a", large, ack="safe")
            await sites["p"].multicast("a", large, ack="safe")
            assert (await anext(messages)).body == large == (await anext(messages)).body
            for sender in (client, sites["p"]):
                with pytest.raises(LocalError, match="at most 16777216 are allowed"):
                    await sender.multicast("a", bytes(24 * 2**20))
            await client.multicast("a", b"still here", ack="safe")
            assert (await anext(messages)).body == b"still here"

    run(work())


@pytest.mark.slow
def test_clients_tokens_and_rights(tmp_path: Path) -> None:
    security = Security(
        tokens={"t1": "teller", "t2": "auditor"},
        send={"teller": ["a"]},
        receive={"auditor": ["a"], "teller": ["a"]},
    )

    async def work() -> None:
        config = cluster(tmp_path, security=security)
        async with Running(config):
            with pytest.raises(LocalError, match="this token is not known"):
                async with connect(config.clients["p"], "guess"):
                    pass
            async with connect(config.clients["p"], "t1") as teller, connect(config.clients["q"], "t2") as auditor:
                with pytest.raises(LocalError, match="client auditor may not send in group a"):
                    await auditor.multicast("a", b"x", ack="ordered")
                with pytest.raises(LocalError, match="client teller may not send in group z"):
                    await teller.multicast("z", b"x", ack="ordered")
                await auditor.join(["a"])
                await teller.multicast("a", b"credit", ack="safe")
                assert (await anext(aiter(auditor))).body == b"credit"
            async with connect(config.clients["p"], "t1") as teller:
                with pytest.raises(LocalError, match="client teller may not receive in group c"):
                    await teller.join(["c"])
        with pytest.raises(UnreachableError, match="nobody answers"):
            async with connect(config.clients["p"], "t1"):
                pass

    run(work())


@pytest.mark.slow
def test_sites_that_differ_refuse_each_other(tmp_path: Path) -> None:
    """Another plan, another cluster, another version of the groups: a clear reason, and no link."""

    async def work() -> None:
        config = cluster(tmp_path)
        other = Cluster(**{**{f: getattr(config, f) for f in Cluster.__struct_fields__}, "protocol": "two-phase"})
        async with Site(config, "p") as one, Site(other, "q") as two:
            await asyncio.sleep(0.3)
            assert not one.links.up and not two.links.up
            refusal = two.node.peers.why_not(one.node.peers.hello("q", 0), None, two.clock())
            assert refusal is not None and "protocol, plan or groups differ" in refusal.reason
            assert "protocol, plan or groups differ" in one.status()["refused"]["q"]

    run(work())


@pytest.mark.slow
def test_bad_bytes_close_that_link_only(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """What a peer says wrong is told in a line that is no longer for a longer lie."""
    caplog.set_level(logging.INFO)
    hello = Hello(VERSION, "x" * 9000, "y" * 9000, "z" * 9000, 1, 1, "w" * 9000)

    async def work() -> None:
        config = cluster(tmp_path)
        async with Running(config) as sites:
            host, port = config.address("q")
            for junk in (
                b"GET / HTTP/1.1\r\n\r\n",
                b"\xff" * 1000,
                bytes(64),
                b"\0\0\0\1\x64\0\0\0\0\0\0\0\0\0\0\0\0\xc1",
                b"".join(frame(Tag.HELLO, 0, 0, msgspec.msgpack.encode(hello))),
            ):
                reader, writer = await asyncio.open_connection(host, port)
                writer.write(junk)
                await reader.read(1000)
                writer.close()
            receipt = await sites["p"].multicast("a", b"unhurt", ack="safe")
            assert receipt is not None and all(sites["q"].status()["peers"].values())

    run(work())
    assert any("yyy" in record.getMessage() for record in caplog.records)
    assert max(len(record.getMessage()) for record in caplog.records) < 500


@pytest.mark.slow
def test_mutual_tls_binds_names_to_certificates(tmp_path: Path) -> None:
    make_certs(tmp_path / "certs", ["p", "q", "r"])
    with pytest.raises(InputError, match="there is a CA already"):
        make_certs(tmp_path / "certs", ["p"])

    async def work() -> None:
        config = cluster(tmp_path, security=Security(certs="certs"))
        async with Running(config) as sites:
            assert await sites["p"].multicast("a", b"secret", ack="safe")
            await sites["r"].stop()
            for kind in ("pem", "key"):  # q's certificate does not make a site r
                (tmp_path / "certs" / f"r.{kind}").write_bytes((tmp_path / "certs" / f"q.{kind}").read_bytes())
            impostor = Site(config, "r")
            await impostor.start()
            await asyncio.sleep(0.5)
            assert not impostor.links.up
            await impostor.stop()

    run(work())


def test_a_bad_configuration_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    good = '[sites]\na = "h:1"\n[groups]\ng = ["a"]\n'
    for text, why in (
        ("[sites]\n", "missing required field `groups`"),
        (good.replace("h:1", "nowhere"), "'nowhere' is not host:port"),
        (good + 'h = ["b"]\n', "group h: 'b' is not in [sites]"),
        ('protocol = "paxos"\n' + good, "not 'paxos'"),
        ("durabel = true\n" + good, "unknown field `durabel`"),
        ("[", "not TOML"),
    ):
        path.write_text(text)
        with pytest.raises(InputError) as error:
            read_cluster(path)
        assert str(path) in str(error.value) and why in str(error.value)


@pytest.mark.slow
def test_a_history_of_other_groups_is_not_touched(tmp_path: Path) -> None:
    async def work() -> None:
        config = cluster(tmp_path, durable=True)
        async with Running(config) as sites:
            await sites["p"].multicast("a", b"x", ack="safe")
        other = cluster(tmp_path, {**GROUPS, "d": ["p", "q"]}, durable=True)
        with pytest.raises(HistoryError, match=r"of another plan .group d is new"):
            await Site(other, "p").start()

    run(work())


@pytest.mark.slow
def test_ten_thousand_groups_on_one_site(tmp_path: Path) -> None:
    """At most 20 KB per idle group, and they work."""
    import tracemalloc

    groups = {f"g{number}": ["p", "q"] if number % 2 else ["p"] for number in range(10_000)}
    config = cluster(tmp_path, groups, planner="central")
    deploy(config)

    async def work() -> None:
        async with Running(config) as sites:
            for number in range(0, 10_000, 500):
                await sites["q"].multicast(f"g{number}", b"x", ack="safe")
            assert tracemalloc.get_traced_memory()[0] / 20_000 < 20_000

    tracemalloc.start()
    try:
        run(work())
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_metrics_health_and_readiness(tmp_path: Path) -> None:
    async def fetch(address: str, path: str) -> str:
        host, port = address.rsplit(":", 1)
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        answer = (await reader.read()).decode()
        writer.close()
        return answer

    async def work() -> None:
        (at,) = ports(1)
        config = cluster(tmp_path, metrics={"p": at})
        async with Site(config, "p"):
            ready = await fetch(at, "/readyz")  # the site is: that its peers are away is told, and is no fault of it
            assert "200 OK" in ready and "no link to q" in ready
        async with Running(config) as sites:
            await sites["p"].multicast("a", b"x", ack="safe")
            assert "200 OK" in await fetch(at, "/readyz")
            assert "200 OK" in await fetch(at, "/healthz")
            figures = await fetch(at, "/metrics")
            assert "ordercast_sent_total 1.0" in figures
            assert f"ordercast_links {float(len(sites['p'].links.up))}" in figures
            assert "404" in await fetch(at, "/other")
            sites["p"].feed(DiskFailed(HistoryError("the disk is full")))
            assert "503" in await fetch(at, "/readyz") and "the disk is full" in await fetch(at, "/readyz")

    run(work())


@pytest.mark.slow
def test_the_run_directory_of_a_live_cluster(tmp_path: Path) -> None:
    """Parts appear while the sites run, and after a restart nothing is missing and nothing is there twice."""
    import pyarrow.parquet as pq

    async def work() -> None:
        config = cluster(tmp_path, durable=True, export="run")
        for begin in (0, 50):
            async with Running(config) as sites:
                for number in range(begin, begin + 50):
                    await sites["p"].multicast("a" if number % 2 else "c", str(number).encode(), ack="ordered")
                await quiet(sites)
        deliveries = pq.read_table(tmp_path / "run" / "deliveries").to_pylist()
        sends = pq.read_table(tmp_path / "run" / "sends").to_pylist()
        assert sorted(row["source_seq"] for row in sends) == list(range(1, 101))
        at_q = sorted((row for row in deliveries if row["site"] == "q"), key=lambda row: row["position"])
        assert [row["position"] for row in at_q] == list(range(50))
        assert {row["msg_id"] for row in at_q} == {f"p:{number + 1}" for number in range(100) if number % 2}
        assert [row["prev_stamp"] for row in at_q[1:]] == [row["stamp"] for row in at_q[:-1]]
        assert all(row["stamp"] > row["prev_stamp"] for row in at_q[1:])
        membership = pq.read_table(tmp_path / "run" / "membership").to_pylist()
        assert len(membership) == 6

    run(work())


@pytest.mark.slow
def test_the_synchronous_client(tmp_path: Path) -> None:
    from ordercast.client import sync

    async def work() -> None:
        config = cluster(tmp_path)

        def script() -> list[bytes]:
            with sync.connect(config.clients["p"]) as p, sync.connect(config.clients["q"]) as q:
                q.join(["a"])
                for number in range(3):
                    p.multicast("a", str(number).encode(), ack="safe")
                messages = q.messages(timeout=5)
                read = [next(messages).body for _ in range(3)]
                p.multicast_many("a", [b"4", b"5"], ack="safe")
                assert next(q.lots(timeout=5)).count == 2
                assert (p.site, p.address) == ("p", config.clients["p"])
                return read

        async with Running(config):
            assert await asyncio.to_thread(script) == [b"0", b"1", b"2"]

    run(work())


@pytest.mark.slow
def test_what_an_application_does_wrong_is_said_and_changes_nothing(tmp_path: Path) -> None:
    async def work() -> None:
        config = cluster(tmp_path)
        async with Running(config) as sites, connect(config.clients["p"]) as client:
            for sender in (sites["p"], client):
                with pytest.raises(LocalError, match="a message is bytes, not str"):
                    await sender.multicast("a", "text")  # type: ignore[arg-type]
            with pytest.raises(LocalError, match="there is no group 'z'"):
                await sites["p"].multicast("z", b"x")
            with pytest.raises(LocalError, match="not in group 'b'"):
                sites["p"].inbox(["b"])
            await client.multicast("z", b"x")
            with pytest.raises(LocalError, match="there is no group 'z'"):
                await client.flush()
            messages = aiter(sites["q"].inbox())
            await sites["p"].multicast("a", b"1")
            await sites["p"].multicast(("a",), b"2")
            await sites["p"].multicast(("b", "a", "b"), b"3", ack="safe")
            got = [await anext(messages) for _ in range(3)]
            assert sorted((m.body, m.group) for m in got) == [(b"1", "a"), (b"2", "a"), (b"3", "a+b")]

    run(work())


@pytest.mark.slow
@pytest.mark.parametrize("protocol", sorted(set(MACHINES) - {"propagation"}))
def test_what_a_source_has_under_way_is_bounded_without_receipts_too(
    tmp_path: Path, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One member is away: every source stops at the bound; it is back: everything is delivered, nothing is left."""
    monkeypatch.setattr("ordercast.protocols.sequencing.sequencer.HISTORY_AT_MOST", 100)

    async def work() -> None:
        config = cluster(
            tmp_path, protocol=protocol, durable=True, limits=Limits(envelope_messages=1, window_envelopes=50)
        )
        async with Running(config) as sites:
            got: list[bytes] = []
            reading = asyncio.create_task(read(sites["q"], got))
            await sites.pop("r").stop()
            sending = [asyncio.create_task(send(site)) for site in sites.values()]
            await asyncio.sleep(2.0)
            assert not all(task.done() for task in sending)
            for site in sites.values():
                assert site.node.outbox.messages <= 400
            async with Site(config, "r") as r:
                await asyncio.gather(*sending)
                await quiet({**sites, "r": r})
            reading.cancel()
            assert len(got) == len(set(got)) == 1000

    async def read(site: Site, got: list[bytes]) -> None:
        async for message in site.inbox():
            got.append(message.body)

    async def send(site: Site) -> None:
        for number in range(500):
            await site.multicast("b", f"{site.me}-{number}".encode())
            await asyncio.sleep(0)

    run(work())
