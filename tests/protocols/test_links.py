"""Links that break: what was lost is sent again, and a site that has lost its history is refused by name."""

import pytest
from msgspec.structs import replace

from ordercast import Membership
from ordercast.core.effects import Append, Deliver, Refuse, Safe, Send
from ordercast.core.events import Event, LinkDown, LinkUp, Multicast, PeerReset, Received, Tick
from ordercast.core.machines import Machines
from ordercast.errors import PeerError
from ordercast.names import ClassId, Level, SiteId
from ordercast.protocols.registry import MACHINES, Deployment
from ordercast.sim.explorer import Explorer
from ordercast.sim.happenings import Crash
from ordercast.sim.network import Cut, Network
from ordercast.sim.scenario import Scenario, deploy, judge
from ordercast.sim.world import World
from tests.support.campaign import several_case
from tests.support.planted import planted

PAIR = Membership.of({"A": ["main-1", "main-2"]})


def deployed(protocol: str, members: Membership = PAIR, **options: bool) -> Deployment:
    deployment = deploy(Scenario(members, protocol, senders=0))
    groups = replace(deployment.groups, sources=tuple(members.sites))
    return replace(deployment, groups=groups, **options)


class Cluster:
    """Machines and links between them; a site that is away gets nothing."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.machines: dict[SiteId, Machines] = {site: deployment.machines(site) for site in deployment.sites}
        self.away: set[SiteId] = set()
        self.safe: dict[SiteId, list[int]] = {site: [] for site in self.machines}
        self.delivered: dict[SiteId, list[str]] = {site: [] for site in self.machines}
        self.refused: list[Refuse] = []
        self.logged = dict.fromkeys(self.machines, 0)
        self.now = 0.0

    def do(self, site: SiteId, event: Event) -> None:
        """Feed a site, and carry everything that follows."""
        todo: list[tuple[SiteId, Event]] = [(site, event)]
        while todo:
            at, what = todo.pop(0)
            for effect in self.machines[at].step(what):
                match effect:
                    case Send(to, message, class_id) if not {at, to} & self.away:
                        todo.append((to, Received(at, message, class_id)))
                    case Deliver(envelope, _):
                        self.delivered[at].append(envelope.msg_id)
                    case Append():
                        self.logged[at] += 1
                    case Safe(number):
                        self.safe[at].append(number)
                    case Refuse():
                        self.refused.append(effect)

    def tick(self, times: int = 6) -> None:
        """Let time pass where somebody is."""
        for _ in range(times):
            self.now += 1.0
            for site in self.machines.keys() - self.away:
                self.do(site, Tick(self.now))

    def link(self, one: SiteId, other: SiteId) -> None:
        """Break the link between two sites and mend it; each hears of it before anything of the other arrives."""
        for event in (LinkDown, LinkUp):
            said = {a: self.machines[a].step(event(b)) for a, b in ((one, other), (other, one))}
        for at, effects in said.items():
            for effect in effects:
                assert isinstance(effect, Send)
                self.do(effect.to, Received(at, effect.message, effect.class_id))


def saved(cluster: Cluster, site: SiteId) -> bytes:
    return cluster.deployment.encode(cluster.machines[site].snapshot())


def restored(cluster: Cluster, site: SiteId, state: bytes) -> None:
    """Start a site again from an old backup of its data folder."""
    machines = cluster.machines[site] = cluster.deployment.machines(site)
    machines.restore(cluster.deployment.decode(state))


@pytest.mark.parametrize("lost", ["main-1", "main-2"])
@pytest.mark.parametrize("protocol", MACHINES)
def test_issue_12_g_a_restored_backup_is_refused_by_name(protocol: str, lost: SiteId) -> None:
    """Issue 12 (g) and "a lost disk goes unnoticed": both ends find out, and both name the site that lost history."""
    cluster = Cluster(deployed(protocol))
    sites = list(cluster.machines)
    for turn in range(20):
        cluster.do(sites[turn % 2], Multicast(("A",), b""))
        cluster.tick(3)
    old = saved(cluster, lost)
    for turn in range(20):
        cluster.do(sites[turn % 2], Multicast(("A",), b""))
        cluster.tick(3)
    cluster.link(*sites)
    assert not cluster.refused

    restored(cluster, lost, old)
    cluster.link(*sites)

    assert cluster.refused
    assert {refused.peer for refused in cluster.refused} == set(sites)
    assert all(refused.reason.startswith(f"{lost} has lost part of its history: it ") for refused in cluster.refused)


def test_who_lost_what_is_said_in_numbers() -> None:
    """The site that lost half of what it sent is told how much it sent, and how much its history knows."""
    cluster = Cluster(deployed("propagation"))
    entry = cluster.deployment.entry(("A",))
    source = next(site for site in cluster.machines if site != entry)
    for _ in range(20):
        cluster.do(source, Multicast(("A",), b""))
    old = saved(cluster, source)
    for _ in range(20):
        cluster.do(source, Multicast(("A",), b""))
    restored(cluster, source, old)
    cluster.link("main-1", "main-2")

    reason = f"{source} has lost part of its history: it sent 40 messages to {entry}, its history knows 20"
    assert reason in {refused.reason for refused in cluster.refused}


@pytest.mark.parametrize("protocol", MACHINES)
def test_a_peer_that_begins_anew_is_refused_once_messages_were_exchanged(protocol: str) -> None:
    cluster = Cluster(deployed(protocol))
    cluster.do("main-1", PeerReset("main-2", 2))
    assert not cluster.refused
    for site in cluster.machines:
        cluster.do(site, Multicast(("A",), b""))
    cluster.tick()
    cluster.do("main-1", PeerReset("main-2", 3))

    (refused,) = cluster.refused
    assert refused.peer == "main-2"
    assert refused.reason.startswith("main-2 has lost its history: main-1 has exchanged messages with it before")


@pytest.mark.parametrize("protocol", MACHINES)
def test_what_was_under_way_on_a_broken_link_arrives_without_waiting_for_nulls(protocol: str) -> None:
    """A cut, a restart, another cut: everything arrives, nobody refuses anybody."""
    deployment = deployed(protocol, Membership.of({"A": "abc", "B": "bcd", "C": "ae"}))
    world = World(deployment, 1, Network(cuts=(Cut("a", "b", 5, 20), Cut("c", "b", 21, 30))), durable=True)
    for index in range(60):
        world.multicast(index / 2, "abcde"[index % 5], (("A",), ("B",), ("C",), ("A", "B"))[index % 4])
    world.crash(Crash("b", 10, 15))
    world.crash(Crash("c", 22, 26, between=True))
    verdict = judge(world, 2000)

    assert verdict.ok, verdict.findings


def test_issue_12_d_safe_is_told_although_a_member_of_another_group_is_away() -> None:
    """Issue 12 (d): x and y are one class, a member of y is dead, and all of x has the message: it is safe."""
    deployment = deployed("propagation", Membership.of({"x": "abc", "y": "abd"}), receipts=True)
    assert len(deployment.groups.classes) == 1
    cluster = Cluster(deployment)
    cluster.away.add("d")
    for source in "abc":
        cluster.do(source, Multicast(("y",), b"", True))
        for _ in range(5):
            cluster.do(source, Multicast(("x",), b"", True))
    cluster.tick()
    assert [sorted(cluster.safe[source]) for source in "abc"] == [[2, 3, 4, 5, 6]] * 3

    cluster.away.clear()
    cluster.tick()
    assert [sorted(cluster.safe[source]) for source in "abc"] == [[1, 2, 3, 4, 5, 6]] * 3


def test_more_gaps_than_one_acknowledgement_holds_are_told_one_after_the_other() -> None:
    """Every other message waits for a member that is away: 700 ranges, 256 in an acknowledgement."""
    deployment = deployed("propagation", Membership.of({"x": "abc", "y": "abd"}), receipts=True)
    cluster = Cluster(deployment)
    entry = deployment.entry(("x",))
    source = next(site for site in "abc" if site != entry)
    cluster.away.add("d")
    for _ in range(700):
        cluster.do(source, Multicast(("y",), b"", True))
        cluster.do(source, Multicast(("x",), b"", True))
    cluster.tick(12)

    assert sorted(cluster.safe[source]) == list(range(2, 1401, 2))


@pytest.mark.parametrize("protocol", ["two-phase", "arrow", "combining", "sequencer", "propagation"])
def test_a_dead_leaf_does_not_stop_groups_it_is_not_in(protocol: str) -> None:
    """Issue 12: two-phase put all groups into one order, and a dead leaf stopped groups it is not in."""
    deployment = deployed(protocol, Membership.of({"A": "abc", "B": "cd"}))
    assert len(deployment.groups.classes) == 2
    world = World(deployment, 1, durable=True)
    world.crash(Crash("d", 1.0))
    for index in range(20):
        world.multicast(2.0 + index, "c", ("B",))
        world.multicast(2.5 + index, "a", ("A",))
    outcome = world.run(200)

    assert {site: sum(d.site == site for d in outcome.deliveries if d.envelope.source == "a") for site in "abc"} == {
        "a": 20,
        "b": 20,
        "c": 20,
    }


def test_issue_12_k_requests_that_come_again_are_not_logged() -> None:
    """Issue 12 (k): a member is down and a history full; what its sender repeats at every tick leaves no record."""
    with planted("protocols.sequencing", ("HISTORY_AT_MOST = 1024", "HISTORY_AT_MOST = 6")):
        deployment = deployed("sequencer", Membership.of({"A": "abc", "B": "abd"}))
        (class_id,) = deployment.groups.classes
        assert deployment.sequencers(class_id) == ("a",)
        cluster = Cluster(deployment)
        cluster.away.add("c")
        for group in "AAAAAAAABBBB":  # two to A find the history full, and those to B wait for them
            cluster.do("d", Multicast((group,), b""))
        cluster.tick()
        before = dict(cluster.logged)
        assert cluster.machines["d"].under_way(class_id) == 6
        cluster.tick(50)
        assert cluster.logged == before

        cluster.away.clear()
        cluster.tick(20)
        assert cluster.delivered["d"] == ["d:9", "d:10", "d:11", "d:12"]
        assert not any(machines.held() for machines in cluster.machines.values())


@pytest.mark.slow
@pytest.mark.parametrize("protocol", MACHINES)
def test_a_reconnect_after_a_crash_in_every_interleaving(protocol: str) -> None:
    """2 messages, a crash and a broken link: nobody refuses an honest peer, and everything arrives."""
    case = several_case(protocol, {"A": "ab"}, ["aA", "bA"], {"crashes": 1, "reconnects": 1}, level=Level.TOTAL)
    explored = Explorer(case).run()

    assert explored.findings == {}
    assert explored.complete


def test_what_no_class_knows_is_refused() -> None:
    cluster = Cluster(deployed("propagation"))
    with pytest.raises(PeerError, match=r"speaks of class 1\.7, which main-1 does not know"):
        cluster.do("main-1", Received("main-2", Tick(0.0), ClassId(1, 7)))  # type: ignore[arg-type]
