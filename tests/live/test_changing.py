"""Clusters whose groups change and whose sites fail, on real TCP and real disks."""

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

import ordercast
from ordercast.client import sync
from ordercast.client.values import Delivered, Event, Restored, RolledBack, ViewChanged
from ordercast.errors import InputError, LocalError, LostError
from ordercast.live.config import Cluster, Security
from ordercast.live.site import Site
from ordercast.live.tls import make_certs
from ordercast.names import Delivery, Policy
from ordercast.node.changing import ChangingNode
from tests.support.live import Running, begun, cluster, kill, quiet, run, until
from tests.test_cli import ordercast as ordercast_command

GROUPS = {"a": ["p", "q"], "b": ["q", "r"], "c": ["p", "q", "r"]}
FAST: dict[str, Any] = {"policy": "available", "suspect_after": 0.3, "durable": True}


def changing(folder: Path, **options: Any) -> Cluster:
    return cluster(folder, GROUPS, **{**FAST, **options})


class Application:
    """Reads everything, keeps the bodies of each group, and gives its state to others."""

    def __init__(self) -> None:
        self.groups: dict[str, list[bytes]] = {}
        self.events: list[Event] = []
        self.at: dict[int, Delivered] = {}

    async def read(self, site: Site, after: int | None = None) -> None:
        """Read until the site ends."""
        async for event in site.inbox(after=after, snapshot=self.state).events():
            self.take(event)

    def take(self, event: Event) -> None:
        """Apply one event."""
        self.events.append(event)
        if isinstance(event, Delivered):
            self.at[event.position] = event
            for group in event.group.split("+"):
                self.groups.setdefault(group, []).append(event.body)
        elif isinstance(event, RolledBack):  # a busy machine may suspect anybody
            for position in sorted(event.positions, reverse=True):
                undone = self.at.pop(position)
                assert all(self.groups[group].pop() == undone.body for group in undone.group.split("+"))
        elif isinstance(event, Restored):
            self.groups[event.group] = event.state.split(b"\n") if event.state else []

    async def state(self, group: str) -> bytes:
        """Return what it has of a group."""
        return b"\n".join(self.groups.get(group, []))


async def start(config: Cluster) -> dict[str, Site]:
    """Start all sites of a cluster, and wait until it has begun."""
    sites = {name: Site(config, name) for name in config.sites}
    for site in sites.values():
        await site.start()
    await begun(sites)
    return sites


async def stop(sites: dict[str, Site]) -> None:
    """Stop all sites."""
    for site in sites.values():
        await site.stop()


async def ended(tasks: "list[asyncio.Task[None]]") -> None:
    """End readers; those of a site that was killed wait for ever."""
    for task in tasks:
        task.cancel()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(result, Exception):
            raise result


def test_a_cluster_begins_when_all_its_sites_are_there(tmp_path: Path) -> None:
    """Until then nothing is ordered, and the status says who is missing."""

    async def work() -> None:
        config = changing(tmp_path)
        sites = {name: Site(config, name) for name in "pqr"}
        await sites["p"].start()
        await sites["q"].start()
        await until(lambda: "r" in str(sites["p"].status()["held"]) and "q" not in str(sites["p"].status()["held"]))
        assert sites["p"].changes is not None
        assert sites["p"].changes.setup.number == 0

        await sites["r"].start()
        await begun(sites)
        await sites["p"].multicast("c", b"now", ack="safe")
        await quiet(sites)
        await stop(sites)

    run(work())


@pytest.mark.slow
def test_what_was_exported_is_audited(tmp_path: Path) -> None:
    """A member dies, comes back without its disk; a group is made, joined and left; a row is taken away."""

    async def work() -> None:
        config = changing(tmp_path, export="run", delivery=Delivery.AGREED)
        sites = await start(config)
        for number in range(30):
            await sites["p"].multicast("c", b"first %d" % number, ack="ordered")
        await kill(sites.pop("r"))
        await sites["q"].multicast("c", b"without r", ack="safe")
        shutil.rmtree(config.data_folder / "r")
        sites["r"] = Site(config, "r")
        await sites["r"].start()
        async with ordercast.connect(config.clients["p"]) as client:
            while (await client.configuration())["away"]:
                await asyncio.sleep(0.02)
            await client.create_group("d", ["p", "r"])
            await client.join_group("d", "q")
            await client.multicast("d", b"to three", ack="safe")
            await client.leave_group("d", "p")
            await client.multicast("a", b"to a", ack="safe")
            await sites["r"].multicast("d", b"to two", ack="safe")
            await client.delete_group("d")
        await quiet(sites)
        await stop(sites)

    run(work())
    done = ordercast_command("audit", "run", "--json", cwd=tmp_path)
    verdict = json.loads(done.stdout)
    assert done.returncode == 0 and verdict["ok"], done.stdout + done.stderr
    assert {name for name, found in verdict["properties"].items() if found["ok"] is None} == {"classes", "causal"}
    parts = [*(tmp_path / "run" / "deliveries").glob("q*.parquet")]
    last = max(parts, key=lambda path: int(path.stem.rpartition("-")[2]))
    table = pq.read_table(last)
    pq.write_table(table.slice(0, len(table) - 1), last)
    done = ordercast_command("audit", "run", "--json", cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["properties"]["completeness"]["ok"] is False
    on_spark = ordercast_command("audit", "run", "--master", "local[1]", cwd=tmp_path)
    assert (on_spark.returncode, "judged in process: --local" in on_spark.stderr) == (2, True)


def test_sites_that_were_told_different_things_do_not_begin(tmp_path: Path) -> None:
    async def work() -> None:
        config = cluster(tmp_path, {"a": ["p", "q"]}, **FAST)
        other = Cluster(
            sites=config.sites, clients=config.clients, groups={"a": ["p"]}, folder=str(tmp_path), **FAST
        )  # fmt: skip
        async with Site(config, "p") as p, Site(other, "q") as q:
            await until(lambda: all(p.status()["peers"].values()))
            await asyncio.sleep(0.3)
            assert p.changes is not None and q.changes is not None
            assert (p.changes.setup.number, q.changes.setup.number) == (0, 0)
            assert "no word yet from q" in p.status()["held"][0]["reason"]

    run(work())


def test_an_application_creates_joins_leaves_and_deletes_groups(tmp_path: Path) -> None:
    async def work() -> None:
        async with Running(changing(tmp_path)) as sites:
            await begun(sites)
            config = sites["p"].cluster
            async with ordercast.connect(config.clients["p"]) as client:
                await client.join(after=-1)
                await client.create_group("d", ["p", "r"], delivery="agreed")
                await client.multicast("d", b"one", ack="safe")
                await client.join_group("d", "q")
                await client.multicast("d", b"two", ack="safe")
                await client.leave_group("d", "r")
                known = await client.configuration()
                assert known["groups"]["d"]["members"] == ["p", "q"]
                assert known["groups"]["d"]["delivery"] == "agreed"
                with pytest.raises(LocalError, match="there is a group 'd' already"):
                    await client.create_group("d", ["p"])
                with pytest.raises(LocalError, match="there is no site 'x'"):
                    await client.join_group("d", "x")
                await client.delete_group("d")
                with pytest.raises(LocalError, match="there is no group 'd'"):
                    await client.multicast("d", b"three", ack="safe")
                found = []
                async for event in client.events():
                    found.append(event)
                    if isinstance(event, ViewChanged) and not event.members:
                        break
            views = [event.members for event in found if isinstance(event, ViewChanged)]
            assert views == [("p", "r"), ("p", "q", "r"), ("p", "q"), ()]
            assert [event.body for event in found if isinstance(event, Delivered)] == [b"one", b"two"]
            assert [event.position for event in found] == list(range(len(found)))
            await quiet(sites)

    run(work())


@pytest.mark.slow
def test_a_group_moves_to_a_sequencer_in_no_group_which_dies(tmp_path: Path) -> None:
    async def work() -> None:
        config = cluster(tmp_path, {"a": ["p", "q"], "b": ["q"]}, "pqr", protocol="sequencer", **FAST)
        sites = await start(config)
        async with ordercast.connect(config.clients["p"]) as client:
            assert (await client.configuration())["groups"]["a"]["ordered_by"] == "p"
            await client.multicast("a", b"by p", ack="safe")
            await client.move_group("a", "r")
            assert (await client.configuration())["groups"]["a"]["ordered_by"] == "r"
            await client.multicast("a", b"by r", ack="safe")
            await kill(sites.pop("r"))
            await client.multicast("a", b"by a member", ack="safe")
            known = await client.configuration()
            assert known["groups"]["a"]["ordered_by"] == "p" and known["groups"]["a"]["sequencers"] == ["r"]
            with pytest.raises(LocalError, match="there is no site 'x'"):
                await client.move_group("a", "x")
            found = []
            await client.join(after=-1)
            async for message in client:
                found.append(message.body)
                if len(found) == 3:
                    break
            assert found == [b"by p", b"by r", b"by a member"]
        await quiet(sites)
        await stop(sites)

    run(work())


@pytest.mark.slow
def test_a_sequencer_moves_to_the_site_that_sends_most(tmp_path: Path) -> None:
    async def work() -> None:
        options = {"protocol": "sequencer", "migrate": True, **FAST}
        config = cluster(tmp_path, {"a": ["p", "q"], "b": ["p"]}, "r", **options)
        sites = await start(config)
        changes, sent, node = sites["p"].changes, 0, sites["p"].node
        assert changes is not None and isinstance(node, ChangingNode)
        node.migration.at_least = 5  # a busy machine sends less in a window
        assert changes.described()["groups"]["a"]["ordered_by"] == "p"
        while changes.described()["groups"]["a"]["ordered_by"] != "r":
            await sites["r"].multicast("a", b"again", ack="ordered")
            await sites["p"].multicast("b", b"own", ack="ordered")
            sent += 1
            assert sent < 20_000
        assert changes.described()["groups"]["b"]["ordered_by"] == "p", "its own stays with it"
        await sites["q"].multicast("a", b"last", ack="safe")
        await quiet(sites)
        await stop(sites)

    run(work())


@pytest.mark.parametrize("delivery", list(Delivery))
def test_the_others_go_on_without_a_dead_site_which_comes_back(tmp_path: Path, delivery: Delivery) -> None:
    """Policy available: nothing is lost, and who was away has in the end what the others have."""

    async def work() -> None:
        config = changing(tmp_path, delivery=delivery)
        sites = await start(config)
        applications = {name: Application() for name in "pqr"}
        reading = [asyncio.create_task(applications[name].read(sites[name], -1)) for name in "pqr"]
        for number in range(5):
            await sites["p"].multicast("c", b"before %d" % number, ack="safe")
        await kill(sites["r"])
        for number in range(5):
            await sites["p"].multicast("c", b"without %d" % number, ack="safe")
        assert sites["p"].changes is not None
        assert sites["p"].changes.setup.away == {"r": ("b", "c")}

        sites["r"] = Site(config, "r")
        await sites["r"].start()
        await until(lambda: sites["p"].changes is not None and not sites["p"].changes.setup.away)
        reading.append(asyncio.create_task(applications["r"].read(sites["r"], len(applications["r"].events) - 1)))
        await sites["r"].multicast("c", b"after", ack="safe")
        await begun(sites)
        await until(lambda: all(app.groups["c"][-1] == b"after" for app in applications.values()))
        await quiet(sites)
        await stop(sites)
        await ended(reading)
        expected = [*(b"before %d" % n for n in range(5)), *(b"without %d" % n for n in range(5)), b"after"]
        assert {name: app.groups["c"] for name, app in applications.items()} == dict.fromkeys("pqr", expected)

    run(work())


def test_exactly_the_groups_of_a_dead_site_wait(tmp_path: Path) -> None:
    """Policy atomic: nobody is taken out; a group without the dead site goes on."""

    async def work() -> None:
        groups = {"a": ["p", "q"], "b": ["q", "r"]}
        config = cluster(tmp_path, groups, **{**FAST, "policy": "atomic"})
        sites = await start(config)
        await kill(sites["r"])
        await until(lambda: "r" in sites["q"].asked("configuration")["suspected"])
        await sites["p"].multicast("a", b"goes on", ack="safe")
        waits = asyncio.create_task(sites["q"].multicast("b", b"waits", ack="safe"))
        await until(lambda: any("r" in held["reason"] for held in sites["q"].status()["held"]))
        assert not waits.done()

        sites["r"] = Site(config, "r")
        await sites["r"].start()
        await waits
        await quiet(sites)
        await stop(sites)

    run(work())


def test_a_site_that_lost_its_disk_is_given_the_state(tmp_path: Path) -> None:
    """It comes back with its name and an empty folder, and is never taken for a new one that begins a cluster."""

    async def work() -> None:
        config = changing(tmp_path, states=True)
        sites = await start(config)
        applications = {name: Application() for name in "pqr"}
        reading = [asyncio.create_task(applications[name].read(sites[name], -1)) for name in "pqr"]
        for number in range(3):
            await sites["q"].multicast("c", b"%d" % number, ack="safe")
        await kill(sites["p"])  # the founder
        shutil.rmtree(Path(config.folder) / config.data / "p")
        await sites["q"].multicast("c", b"3", ack="safe")

        sites["p"] = Site(config, "p")
        await sites["p"].start()
        await until(lambda: sites["q"].changes is not None and not sites["q"].changes.setup.away)
        new = applications["p"] = Application()
        reading.append(asyncio.create_task(new.read(sites["p"], -1)))
        await begun(sites)
        await sites["r"].multicast("c", b"4", ack="safe")
        await until(lambda: new.groups.get("c", [])[-1:] == [b"4"])
        await quiet(sites)
        await stop(sites)
        await ended(reading)
        assert new.groups["c"] == [b"0", b"1", b"2", b"3", b"4"]
        assert any(isinstance(event, Restored) and event.group == "c" for event in new.events)

    run(work())


def test_a_client_gives_the_state_of_its_groups(tmp_path: Path) -> None:
    """Over the client port, between two messages; the joiner gets it before anything else of the group."""

    async def work() -> None:
        async with Running(changing(tmp_path, states=True)) as sites:
            await begun(sites)
            config, application = sites["p"].cluster, Application()

            async def serve(name: str) -> None:
                async with ordercast.connect(config.clients[name]) as client:
                    await client.join(after=-1, snapshot=application.state)
                    async for event in client.events():
                        application.take(event)

            serving = asyncio.create_task(serve("p"))
            other = asyncio.create_task(Application().read(sites["q"], -1))
            await sites["p"].multicast("a", b"one", ack="safe")
            await sites["p"].join_group("a", "r")
            joiner = Application()
            reading = asyncio.create_task(joiner.read(sites["r"], -1))
            await sites["p"].multicast("a", b"two", ack="safe")
            await until(lambda: joiner.groups.get("a") == [b"one", b"two"])
            await ended([serving, other, reading])

    run(work())


def test_a_client_that_gives_states_where_none_are_asked_for_is_refused(tmp_path: Path) -> None:
    async def work() -> None:
        async with Running(changing(tmp_path)) as sites:
            await begun(sites)
            async with ordercast.connect(sites["p"].cluster.clients["p"]) as client:
                with pytest.raises(LocalError, match="states = true is not in the cluster's file"):
                    await client.join(snapshot=Application().state)

    run(work())


def test_a_site_is_added_moves_and_is_removed(tmp_path: Path) -> None:
    async def work() -> None:
        config = changing(tmp_path)
        sites = await start(config)
        new = cluster(tmp_path / "new", {"a": ["s"]}, **FAST)
        there = str(tmp_path / "new")
        joining = Cluster(
            sites={**config.sites, **new.sites}, groups=GROUPS, folder=there, clients=new.clients, **FAST
        )  # fmt: skip
        await sites["p"].change("add", "", ("s",), {"address": new.sites["s"]})
        s = Site(joining, "s", joins=True)
        await s.start()
        await until(lambda: s.changes is not None and s.changes.setup.number > 0)
        await sites["p"].join_group("c", "s")
        await begun({**sites, "s": s})
        await s.multicast("c", b"from the new one", ack="safe")

        await s.stop()
        elsewhere = cluster(tmp_path, {"a": ["s"]}, **FAST)
        moved = Cluster(
            sites={**joining.sites, **elsewhere.sites}, groups=GROUPS, folder=there, **FAST
        )  # fmt: skip
        s = Site(moved, "s", joins=True)
        await s.start()
        await until(lambda: sites["p"].asked("configuration")["sites"]["s"]["sites"] == moved.sites["s"])
        await until(lambda: not sites["p"].asked("configuration")["away"])
        await begun({**sites, "s": s})
        await s.multicast("c", b"from elsewhere", ack="safe")

        await sites["q"].change("remove", "", ("s",))
        await until(lambda: all("s" not in site.asked("configuration")["sites"] for site in sites.values()))
        await sites["p"].multicast("c", b"without it", ack="safe")
        await s.stop()
        await quiet(sites)
        await stop(sites)

    run(work())


def test_what_is_posted_again_is_answered_when_it_has_its_place(tmp_path: Path) -> None:
    """Not before: until then it may be dropped, because a disk was lost meanwhile (errata 125)."""

    async def work() -> None:
        sites = await start(changing(tmp_path))
        node = sites["p"].node
        assert isinstance(node, ChangingNode)
        lost = node.participant.setup.disks + 1
        node.participant.setup = msgspec.structs.replace(node.participant.setup, disks=lost)
        origin = (bytes(16), 1)
        with pytest.raises(LostError, match="whether it was sent is not known"):
            await sites["p"].multicast_many("a", [b"old"], "none", origin, disks=lost - 1)
        await sites["p"].multicast_many("a", [b"new"], "none", origin, disks=lost)
        await stop(sites)

    run(work())


def test_a_program_that_posts_the_same_again_doubles_nothing(tmp_path: Path) -> None:
    """In a session of that name, at another site too; a new session is another sender."""

    async def work() -> None:
        config = changing(tmp_path)
        sites = await start(config)
        for site, session in (("p", b"s" * 16), ("q", b"s" * 16), ("q", b"t" * 16)):
            async with ordercast.connect(config.clients[site], session=session) as client:
                for body in (b"1", b"2"):
                    await client.multicast_many("a", [body, body], ack="safe")
        async with ordercast.connect(config.clients["p"]) as client:
            await client.join(["a"], after="beginning")
            bodies = [(await anext(aiter(client))).body for _ in range(8)]
        assert bodies == [b"1", b"1", b"2", b"2"] * 2
        with pytest.raises(InputError, match="a session has 16 bytes, not 2"):
            ordercast.connect(config.clients["p"], session=b"no")
        await stop(sites)

    run(work())


def test_a_minority_changes_nothing_and_says_so(tmp_path: Path) -> None:
    async def work() -> None:
        config = changing(tmp_path)
        sites = await start(config)
        await kill(sites["q"])
        await kill(sites["r"])
        asked = asyncio.create_task(sites["p"].create_group("d", ["p"]))
        await until(lambda: "preparing: no answer yet from q, r" in str(sites["p"].status()["held"]))
        assert not asked.done()
        await sites["p"].stop()
        with pytest.raises(ordercast.LostError, match="may be done, or not"):
            await asked

    run(work())


def test_who_may_change_and_who_may_look(tmp_path: Path) -> None:
    async def work() -> None:
        rights = {
            "tokens": {"t1": "boss", "t2": "writer", "t3": "nobody"}, "send": {"writer": ["a"]}, "admin": ["boss"],
        }  # fmt: skip
        async with Running(changing(tmp_path, security=rights)) as sites:
            await begun(sites)
            address = sites["p"].cluster.clients["p"]
            async with ordercast.connect(address, "t1") as boss, ordercast.connect(address, "t2") as writer:
                await boss.create_group("d", ["p"])
                with pytest.raises(LocalError, match="client writer may not change groups and sites"):
                    await writer.delete_group("d")
                assert (await writer.status())["site"] == "p"
                with pytest.raises(LocalError, match="client boss may not send in group a"):
                    await boss.multicast("a", b"no", ack="safe")
            async with ordercast.connect(address, "t3") as nobody:
                with pytest.raises(LocalError, match="client nobody has no right here"):
                    await nobody.status()

    run(work())


def test_groups_that_are_fixed_say_so(tmp_path: Path) -> None:
    async def work() -> None:
        config = cluster(tmp_path, {"a": ["p"]})
        async with Running(config), ordercast.connect(config.clients["p"]) as client:
            with pytest.raises(LocalError, match="groups are fixed here"):
                await client.create_group("d", ["p"])
            with pytest.raises(LocalError, match="groups are fixed here"):
                await client.configuration()
            with pytest.raises(LocalError, match="p: a session needs groups that change"):
                await ordercast.connect(config.clients["p"], session=bytes(16)).__aenter__()

    run(work())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"policy": "available", "durable": False}, "policy available takes durable = true"),
        ({"policy": "atomic", "durable": True, "max_load": 3}, "takes no max_load"),
        ({"policy": "available", "durable": True, "suspect_after": 0.0}, "is not between 0.2 and 3600 seconds"),
        ({"delivery": "safe"}, "delivery is for groups that change"),
        ({"states": True}, "states is for groups that change"),
        ({"options": {"a": {"policy": "atomic"}}}, "options are for groups that change"),
        ({**FAST, "options": {"x": {"policy": "atomic"}}}, "there is no group 'x'"),
        ({**FAST, "causal": True, "delivery": "agreed"}, "causal order with policy available takes delivery safe"),
    ],
)
def test_what_does_not_go_together_is_refused(tmp_path: Path, options: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        cluster(tmp_path, GROUPS, **options)


def test_what_a_file_asks_for_is_what_a_cluster_begins_with(tmp_path: Path) -> None:
    """Delivery is safe by default where groups go on without a dead member, because nothing is rolled back then."""
    from ordercast.live.changing import setup_of

    config = changing(tmp_path, options={"b": {"policy": "atomic"}}, protocol="sequencer")
    setup = setup_of(config)

    assert (setup.groups["a"].policy, setup.groups["a"].delivery) == (Policy.AVAILABLE, Delivery.SAFE)
    assert (setup.groups["b"].policy, setup.groups["b"].delivery) == (Policy.ATOMIC, Delivery.AGREED)
    assert setup.groups["b"].protocol == "sequencer"
    assert setup.sites["p"] == f"{config.sites['p']}/{config.clients['p']}"


def test_a_history_of_fixed_groups_is_not_taken_for_one_that_changes(tmp_path: Path) -> None:
    async def work() -> None:
        config = cluster(tmp_path, {"a": ["p"]}, durable=True)
        async with Site(config, "p") as site:
            await site.multicast("a", b"one", ack="safe")
        with pytest.raises(ordercast.HistoryError, match="policy was fixed, now it is available"):
            async with Site(Cluster(sites=config.sites, groups={"a": ["p"]}, folder=str(tmp_path), **FAST), "p"):
                pass

    run(work())


def test_the_same_without_await(tmp_path: Path) -> None:
    async def work() -> None:
        async with Running(changing(tmp_path)) as sites:
            await begun(sites)

            def script(address: str) -> list[Event]:
                with sync.connect(address) as client:
                    client.join(after=-1)
                    client.create_group("d", ["p", "q"])
                    client.multicast_many("d", [b"one", b"two"], ack="safe")
                    client.leave_group("d", "q")
                    client.change("delete", "d")
                    assert "d" not in client.configuration()["groups"]
                    found: list[Event] = []
                    for event in client.events(timeout=5):
                        found.append(event)
                        if isinstance(event, ViewChanged) and not event.members:
                            return found
                return []

            found = await asyncio.to_thread(script, sites["p"].cluster.clients["p"])
            assert [type(event).__name__ for event in found] == [
                "ViewChanged", "Delivered", "Delivered", "ViewChanged", "ViewChanged",
            ]  # fmt: skip

    run(work())


def test_a_client_survives_kill_9_of_its_site(tmp_path: Path) -> None:
    """It reads on where it was, and what it sends is delivered once, without a line in the application."""

    async def work() -> None:
        config = changing(tmp_path)
        sites = await start(config)
        async with ordercast.connect(config.clients["r"]) as client, ordercast.connect(config.clients["p"]) as witness:
            await witness.join(after=-1)
            await client.join(after=-1)
            read: list[bytes] = []
            done = asyncio.Event()

            async def reads() -> None:
                async for event in client.events():
                    if isinstance(event, Delivered):
                        read.append(event.body)
                    if len(read) == 60:
                        done.set()

            reading = asyncio.create_task(reads())
            sending = [asyncio.create_task(client.multicast("c", b"%d" % n, ack="safe")) for n in range(30)]
            await asyncio.sleep(0.01)
            await kill(sites["r"])
            sending += [asyncio.create_task(client.multicast("c", b"%d" % n, ack="safe")) for n in range(30, 60)]
            await asyncio.sleep(0.5)
            sites["r"] = Site(config, "r")
            await sites["r"].start()
            await asyncio.gather(*sending)
            await done.wait()
            await ended([reading])
            assert client._connection.reconnects == 1
            seen = []
            async for event in witness.events():
                if isinstance(event, Delivered):
                    seen.append(event.body)
                if len(seen) == 60:
                    break
        assert sorted(read, key=int) == [b"%d" % n for n in range(60)]
        assert seen == read
        await quiet(sites)
        await stop(sites)

    run(work())


def test_a_sender_goes_on_at_another_site(tmp_path: Path) -> None:
    """Its site is dead for good; what it had posted there and is posted again elsewhere is delivered once."""

    async def work() -> None:
        config = changing(tmp_path)
        sites = await start(config)
        application = Application()
        reading = asyncio.create_task(application.read(sites["p"], -1))
        async with ordercast.connect([config.clients["r"], config.clients["q"]]) as client:
            await client.multicast("c", b"0", ack="safe")
            waits = asyncio.create_task(client.multicast("c", b"1", ack="safe"))
            await asyncio.sleep(0)
            await kill(sites["r"])
            await waits
            await client.multicast("c", b"2", ack="safe")
            assert client.site in ("p", "q")
        sites["r"] = Site(config, "r")
        await sites["r"].start()  # it may have message 1 on its disk, and sends it: that is nothing new
        await until(lambda: sites["p"].changes is not None and not sites["p"].changes.setup.away)
        await begun(sites)
        await sites["r"].multicast("c", b"3", ack="safe")
        await until(lambda: application.groups.get("c", [])[-1:] == [b"3"])
        await quiet(sites)
        await ended([reading])
        await stop(sites)
        assert application.groups["c"] == [b"0", b"1", b"2", b"3"]

    run(work())


def test_positions_of_a_lost_disk_mean_nothing(tmp_path: Path) -> None:
    """A client that reads does not go on with another life of its site: it is told."""

    async def work() -> None:
        config = changing(tmp_path)
        sites = await start(config)
        async with ordercast.connect(config.clients["r"]) as client:
            await client.join(after=-1)
            await client.multicast("c", b"one", ack="safe")
            first = await anext(aiter(client))
            await client.leave()
            await client.join(after=first.position)
            await kill(sites["r"])
            shutil.rmtree(Path(config.folder) / config.data / "r")
            sites["r"] = Site(config, "r")
            await sites["r"].start()
            with pytest.raises(ordercast.LostError, match="mean nothing"):
                async for _ in client.events():
                    pass
        await stop(sites)

    run(work())


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("create", "a+b", ("p",), {}), "is no name for a group"),
        (("create", "x", ("p",), {"policy": "none"}), "create: Invalid enum value"),
        (("create", "x", ("p",), {"colour": "red"}), "create takes no colour"),
        (("add", "", ("x",), {"address": "here"}), "'here' is not host:port"),
        (("add", "", ("x",), {"address": "10.0.0.1:7000"}), "is open to other machines"),
        (("add", "", ("add",), {"address": "127.0.0.1:7000"}), "is a command"),
        (("add", "", ("../x",), {"address": "127.0.0.1:7000"}), "is no name for a site"),
        (("join", "a", (), {}), "join takes one site"),
        (("remove", "", ("nobody",), {}), "there is no site 'nobody'"),
        (("level", "", (), {"level": "none"}), "level: Invalid enum value"),
    ],
)
def test_a_change_that_cannot_be_is_refused_and_changes_nothing(
    tmp_path: Path, change: tuple[Any, str, tuple[str, ...], dict[str, str]], says: str
) -> None:
    async def work() -> None:
        config = cluster(tmp_path, {"a": ["p"]}, **FAST)
        async with Running(config) as sites, ordercast.connect(config.clients["p"]) as client:
            await begun(sites)
            with pytest.raises(LocalError, match=says):
                await client.change(*change)
            assert (await client.configuration())["number"] == 1

    run(work())


def test_a_client_may_be_entered_again(tmp_path: Path) -> None:
    async def work() -> None:
        config = cluster(tmp_path, {"a": ["p"]}, **FAST)
        async with Running(config) as sites:
            await begun(sites)
            client = ordercast.connect(config.clients["p"])
            for _ in range(2):
                async with client:
                    await client.multicast("a", b"x", ack="safe")

    run(work())


def test_a_state_that_is_too_large_is_told_to_who_gives_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with Running(changing(tmp_path, states=True)) as sites:
            await begun(sites)

            async def large(_: str) -> bytes:
                return bytes(17 * 2**20)

            inbox = sites["p"].inbox(after=-1, snapshot=large)
            joining = asyncio.create_task(sites["p"].join_group("a", "r"))
            with pytest.raises(LocalError, match="the state of a has 17825792 bytes; at most 16777216"):
                while True:
                    await inbox.take()
            reading = asyncio.create_task(Application().read(sites["p"], -1))  # another one gives it
            await joining
            await until(lambda: not sites["r"].status()["held"])
            await ended([reading])

    run(work())


def test_requests_that_wait_are_bounded(tmp_path: Path) -> None:
    async def work() -> None:
        config = changing(tmp_path)
        sites = await start(config)
        await kill(sites["q"])
        await kill(sites["r"])
        asked = [asyncio.create_task(sites["p"].create_group(f"x{number}", ["p"])) for number in range(256)]
        await until(lambda: len(sites["p"].node.machines.asked_for) == 256)  # type: ignore[attr-defined]
        with pytest.raises(LocalError, match="256 requests wait at p already"):
            await sites["p"].create_group("one-more", ["p"])
        await sites["p"].stop()
        assert all(
            isinstance(error, ordercast.LostError) for error in await asyncio.gather(*asked, return_exceptions=True)
        )

    run(work())


def test_an_old_copy_of_a_disk_is_refused_by_name(tmp_path: Path) -> None:
    """A site comes back with a folder that was saved before it was started again: it has forgotten what others rely on.

    The others go on without it; with an empty disk it would be taken in.
    """

    async def work() -> None:
        config = changing(tmp_path)
        sites = await start(config)
        await sites["p"].multicast("c", b"1", ack="safe")
        await quiet(sites)
        await sites["r"].stop()
        data = Path(config.folder) / config.data / "r"
        shutil.copytree(data, tmp_path / "copy")
        sites["r"] = Site(config, "r")
        await sites["r"].start()
        await sites["r"].multicast("c", b"2", ack="safe")
        await quiet(sites)
        await sites["r"].stop()
        shutil.rmtree(data)
        shutil.move(tmp_path / "copy", data)
        sites["r"] = Site(config, "r")
        await sites["r"].start()
        await until(lambda: "r has lost part of its history" in str(sites["r"].status()["lost"]))
        await sites["p"].multicast("c", b"3", ack="safe")

        await sites["r"].stop()
        shutil.rmtree(data)
        sites["r"] = Site(config, "r")
        await sites["r"].start()
        await until(lambda: not sites["p"].asked("configuration")["away"] and "r" in sites["p"].links.up)
        await begun(sites)
        await sites["r"].multicast("c", b"4", ack="safe")
        await quiet(sites)
        await stop(sites)

    run(work())


@pytest.mark.slow
def test_groups_change_sites_join_and_clients_survive_behind_tls(tmp_path: Path) -> None:
    make_certs(tmp_path / "certs", ["p", "q", "r", "s"])
    certs = str(tmp_path / "certs")
    secure = {**FAST, "security": Security(certs=certs, tokens={"t": "teller"})}

    async def work() -> None:
        config = cluster(tmp_path, GROUPS, **secure)
        sites = await start(config)
        new = cluster(tmp_path / "new", {"a": ["s"]}, **secure)
        there = {"sites": {**config.sites, **new.sites}, "clients": new.clients, "folder": str(tmp_path / "new")}
        async with ordercast.connect(config.clients["p"], "t", ca=Path(certs) / "ca.pem") as client:
            await client.create_group("d", ["p", "q"])
            await client.multicast("d", b"one", ack="safe")
            await client.change("add", "", ["s"], {"address": new.sites["s"]})
            s = Site(Cluster(**{**secure, **there, "groups": GROUPS}), "s", joins=True)
            await s.start()
            await client.join_group("d", "s")
            await begun({**sites, "s": s})
            await s.multicast("d", b"two", ack="safe")
            await kill(sites.pop("p"))
            async with asyncio.timeout(30):
                await client.multicast("d", b"three", ack="safe")
            assert client.site != "p", "it went elsewhere, and was let in"
        await quiet({**sites, "s": s})
        await s.stop()
        await stop(sites)

    run(work())


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["atomic", "available"])
def test_what_is_sent_before_a_cluster_has_begun_waits_for_its_beginning(tmp_path: Path, policy: str) -> None:
    """One site is up, two are missing: a message waits and says so; a group that is not there is refused then."""

    async def work() -> None:
        config = changing(tmp_path, policy=policy)
        sites = {name: Site(config, name) for name in config.sites}
        await sites["q"].start()
        application = Application()
        reading = asyncio.create_task(application.read(sites["q"], after=-1))
        first = asyncio.create_task(sites["q"].multicast("a", b"first", ack="safe"))
        wrong = asyncio.create_task(sites["q"].multicast("nowhere", b"wrong", ack="safe"))
        behind = asyncio.create_task(sites["q"].multicast_many("a", [b"second", b"third"], ack="safe"))
        await until(lambda: sites["q"].status()["posts_waiting"] == 3)
        assert any("begins when all its sites are there" in held["reason"] for held in sites["q"].status()["held"])
        for name in "pr":
            await sites[name].start()
        await first
        await behind
        with pytest.raises(LocalError, match="there is no group 'nowhere'"):
            await wrong
        await until(lambda: application.groups.get("a") == [b"first", b"second", b"third"])
        await quiet(sites)
        await ended([reading])
        await stop(sites)

    run(work())
