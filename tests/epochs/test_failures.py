"""Failures by name: the papers' example, a manager that dies at every step, lost disks, cuts, slow sites."""

import dataclasses
import os
from collections.abc import Iterable

import msgspec
import pytest

from ordercast.core.effects import Append, Effect
from ordercast.core.events import Event, Multicast, Received
from ordercast.epochs import messages as m
from ordercast.epochs.change import first_setup, plan_change
from ordercast.epochs.events import MAY_BE_SENT, Dropped, Made, Plan, Requested, Restored, RolledBack, ViewChanged
from ordercast.epochs.participant import Participant
from ordercast.epochs.requests import AddSite, Change, Create, Delete, Join, Leave, RemoveSite
from ordercast.epochs.setup import GroupSetup, Setup
from ordercast.names import ClassId, Delivery, Policy
from ordercast.sim.changing import Case, Fault, Host, World, findings, judge
from ordercast.sim.network import Network

ALL = frozenset({"fifo", "total", "acyclic"})
QUIET = Network(latency=1.0)
STEP = 1 if "ORDERCAST_CAMPAIGN" in os.environ else 17
"""Of the effects after which a site dies: every tenth in a test run, each single one in `make sim`."""


def setup(
    protocol: str = "propagation",
    policy: Policy = Policy.AVAILABLE,
    delivery: Delivery = Delivery.AGREED,
    **groups: str,
) -> Setup:
    sites = {site for members in groups.values() for site in members}
    return first_setup(
        sites, {g: GroupSetup(tuple(m), protocol, policy=policy, delivery=delivery) for g, m in groups.items()}
    )


def kept(case: Case) -> World:
    found, world = judge(case)
    assert found == [], found[:5]
    return world


def log(world: World, site: str) -> list[str]:
    return [message for message, _, _ in world.judge.at(site).log]


class Seen(World):
    """A world that keeps what sites tell their applications."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.seen: list[tuple[str, object]] = []

    def tell(self, host: Host, effect: Effect, told: tuple[object, ...]) -> None:
        """Keep it."""
        self.seen.append((host.site, effect))
        super().tell(host, effect, told)


def test_gs88_figures_6_to_9_what_the_failed_site_had_alone_is_rolled_back_and_redelivered() -> None:
    """Site c orders alpha and beta, hears beta2, alpha3 and beta3, and cannot tell anybody before it is taken out.

    The paper's a and b are called x and y here: ties go by name, and c is to be the root.
    """
    groups = setup(alpha="xycde", beta="cde", gamma="xy")
    before = ((0.0, "x", ("alpha",)), (1.0, "d", ("beta",)), (3.0, "x", ("alpha",)), (4.0, "y", ("gamma",)))
    alone = ((20.0, "d", ("beta",)), (20.1, "x", ("alpha",)), (20.2, "d", ("beta",)))
    silent = tuple(Fault("one-way", 20.5, "c", other, lasts=40.0) for other in "xyde")
    world = Seen(Case(groups, ALL, QUIET, 1, (*before, *alone), faults=silent, suspect_after=4.0))
    world.run(23.0)

    entry = groups.classes[groups.class_of["beta"]].plan
    assert entry is not None and entry.groups["beta"].entry == entry.groups["alpha"].entry == "c"
    assert log(world, "c")[-3:] == ["d:2", "x:3", "d:3"], "c has them, in its own order"
    assert "d:2" not in log(world, "d")
    world.run(58.0)
    assert "d:3" in log(world, "d"), "the others have found new places"
    assert log(world, "d") == log(world, "e")
    world.calm()
    world.run(200.0)

    assert findings(world) == []
    assert ("c", RolledBack(3)) in world.seen
    assert log(world, "c") == log(world, "d")


@pytest.mark.parametrize("delivery", list(Delivery))
@pytest.mark.parametrize("protocol", ["propagation", "sequencer", "arrow", "two-phase"])
def test_survivors_go_on_and_the_failed_site_comes_back(protocol: str, delivery: Delivery) -> None:
    groups = setup(protocol, delivery=delivery, x="abc", y="bcd")
    sends = tuple((float(t), "abcd"[t % 4], (("x",), ("y",))[t % 2]) for t in range(0, 80, 2))
    world = kept(Case(groups, ALL, QUIET, 3, sends, faults=(Fault("crash", 20.0, "b", lasts=40.0),)))

    assert log(world, "b")[-1] == log(world, "c")[-1]
    if delivery is Delivery.SAFE:
        assert world.judge.rolled_back == 0


@pytest.mark.parametrize("change", [Leave("x", "c"), Delete("x")], ids=str)
def test_errata_123_a_site_that_is_away_is_let_out_of_its_group(change: Change) -> None:
    """It was no member before the change and is none after it; its application must know all the same."""
    crash = (Fault("crash", 10.0, "c", lasts=60.0),)
    world = Seen(Case(setup(x="abc", y="abc"), ALL, QUIET, 3, (), ((40.0, "a", change),), crash))
    world.run(90.0)
    world.calm()
    world.run(200.0)
    views = [told for site, told in world.seen if site == "c" and isinstance(told, ViewChanged) and told.group == "x"]

    assert findings(world) == []
    assert [("c" in view.left, view.away) for view in views[-2:]] == [(True, ("c",)), (True, ())]


def test_errata_126_who_left_while_away_and_joins_again_is_given_a_state() -> None:
    """Its application has dropped what it had of x when it was told that it had left."""
    sends = tuple((float(t), "ab"[t % 2], ("x",)) for t in range(0, 20, 2))
    changes = ((40.0, "a", Leave("x", "c")), (55.0, "a", Join("x", "c")))
    crash = (Fault("crash", 25.0, "c", lasts=60.0),)
    world = Seen(Case(setup(x="abc", y="abc"), ALL, QUIET, 3, sends, changes, crash))
    world.run(100.0)
    world.calm()
    world.run(250.0)

    assert findings(world) == []
    assert ("c", "x") in [(site, told.group) for site, told in world.seen if isinstance(told, Restored)]


def test_errata_125_what_is_posted_again_is_not_sent_when_a_disk_was_lost_meanwhile() -> None:
    """Who knew that it was delivered may have forgotten it: it would come behind what its client posted later."""
    world = World(Case(setup(x="ab"), ALL, QUIET, 3, ()))
    world.run(5.0)
    site = world.hosts["a"].participant
    site.setup = msgspec.structs.replace(site.setup, disks=3)

    again = site.step(Multicast(("x",), b"old", disks=0))
    new = [*site.step(Multicast(("x",), b"first")), *site.step(Multicast(("x",), b"again", disks=3))]

    assert [(told.body, told.reason) for told in again if isinstance(told, Dropped)] == [(b"old", MAY_BE_SENT)]
    assert not [told for told in new if isinstance(told, Dropped)]
    assert [own.body for own in site.sending.own.values()] == [b"first", b"again"]


@pytest.mark.parametrize("policy", list(Policy))
def test_a_lost_disk_comes_back_as_a_joiner(policy: Policy) -> None:
    """It is given the state of its groups, and neither votes nor leads before it is taken in."""
    groups = setup(policy=policy, delivery=Delivery.SAFE, x="abc", y="ab")
    sends = tuple((float(t), "bc"[t % 2], ("x",)) for t in range(0, 60, 3))
    world = kept(Case(groups, ALL, QUIET, 5, sends, faults=(Fault("lose", 20.0, "a", lasts=5.0),)))

    assert world.hosts["a"].participant.admitted
    assert world.hosts["a"].participant.since > 0
    assert world.judge.at("a").inherited["x"] != []


def test_with_atomic_exactly_the_groups_that_need_the_site_wait() -> None:
    groups = setup(policy=Policy.ATOMIC, x="abc", y="de")
    sends = tuple((30.0 + t, "cd"[t % 2], (("x",), ("y",))[t % 2]) for t in range(10))
    world = World(Case(groups, ALL, QUIET, 7, sends, faults=(Fault("crash", 10.0, "a", lasts=200.0),)))
    world.run(100.0)

    assert len(log(world, "e")) == 5, "y goes on"
    assert world.hosts["b"].participant.setup.number == 1
    held = world.hosts["c"].participant.held()
    assert [str(one) for one in held if "needs a, suspected" in one.reason], "what waits says for whom"


def test_a_minority_changes_nothing() -> None:
    """A and b are cut off from c, d and e: the majority takes them out, they take out nobody."""
    groups = setup(delivery=Delivery.SAFE, x="abcde")
    cuts = tuple(Fault("cut", 10.0, one, other, lasts=60.0) for one in "ab" for other in "cde")
    world = World(Case(groups, ALL, QUIET, 9, ((40.0, "c", ("x",)), (41.0, "a", ("x",))), faults=cuts))
    world.run(60.0)

    assert {site: host.participant.setup.number for site, host in world.hosts.items()} == {
        "a": 1, "b": 1, "c": 2, "d": 2, "e": 2,
    }  # fmt: skip
    assert log(world, "c") == ["c:1"] and log(world, "a") == []
    assert world.hosts["a"].participant.held(), "what stands still says why"
    world.calm()
    world.run(300.0)
    assert findings(world) == []
    assert log(world, "a") == log(world, "c")


def test_a_slow_entry_that_was_taken_out_delivers_nothing_more() -> None:
    """Errata 20: it goes on in its old class, nobody acknowledges, and with `safe` its application sees nothing."""
    groups = setup("propagation", delivery=Delivery.SAFE, x="abc")
    faults = (Fault("suspect", 5.0, "a", lasts=60.0),)
    world = Seen(Case(groups, ALL, QUIET, 11, tuple((6.0 + t, "a", ("x",)) for t in range(5)), faults=faults))
    world.run(60.0)
    world.calm()
    world.run(300.0)

    assert findings(world) == []
    assert not any(isinstance(effect, RolledBack) for _, effect in world.seen)


CHANGES: list[tuple[str, Change]] = [
    ("join", Join("x", "d")),
    ("leave", Leave("y", "c")),
    ("merge", Join("x", "d")),
    ("split", Leave("y", "b")),
    ("remove", RemoveSite("d")),
    ("create", Create("z", ("a", "d"))),
    ("delete", Delete("y")),
    ("add", AddSite("b", "elsewhere")),
]


class CrashAt(World):
    """A world in which a site crashes after so many of its effects since the change was asked for."""

    def __init__(self, case: Case, site: str, effects: int) -> None:
        super().__init__(case)
        self.victim, self.left, self.crashed = site, effects, False

    def carry_out(self, host: Host, effects: Iterable[Effect]) -> None:
        """Do some, and crash."""
        effects = list(effects)
        if host.site != self.victim or self.crashed or self.now < 10.0:
            super().carry_out(host, effects)
            return
        super().carry_out(host, effects[: self.left])
        self.left -= len(effects)
        if self.left < 0 and host.up:
            self.crashed = True
            self.stop(host)
            self.at(self.now + 25.0, self._back, host.site)


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["a", "b"])
@pytest.mark.parametrize("protocol", ["propagation", "sequencer", "arrow", "two-phase"])
def test_a_manager_or_a_participant_that_dies_at_any_step(protocol: str, victim: str) -> None:
    """Errata 21: a is the manager. It dies after each single effect of its part in each change."""
    for index, (_, change) in enumerate(CHANGES):
        groups = setup(protocol, delivery=list(Delivery)[index % 3], x="abc", y="bcd")
        sends = tuple((float(t), "abcd"[t % 4], (("x",), ("y",))[t % 2]) for t in range(0, 40, 3))
        case = Case(groups, ALL, QUIET, 13, sends, changes=((10.0, "c", change),))
        for effects in range(index % STEP, 90, STEP):
            world = CrashAt(case, victim, effects)
            world.run(60.0)
            world.calm()
            world.run(300.0)

            assert findings(world) == [], (change, effects, findings(world)[:3])


@pytest.mark.parametrize(("name", "change"), CHANGES, ids=[name for name, _ in CHANGES])
def test_every_change_under_traffic(name: str, change: Change) -> None:
    """All members see the view change at one place, between the same messages of the group."""
    groups = setup(policy=Policy.ATOMIC, x="abc", y="bcd")
    sends = tuple((float(t), "abcd"[t % 4], (("x",), ("y",))[t % 2]) for t in range(40))
    world = Seen(Case(groups, ALL, QUIET, 17, sends, changes=((10.0, "c", change),)))
    world.run(300.0)

    assert findings(world) == []
    assert [answer.reason for answer in world.hosts["c"].answers] == [""]
    places: dict[str, set[tuple[str, ...]]] = {}
    seen: dict[str, list[str]] = {}
    for site, effect in world.seen:
        if isinstance(effect, ViewChanged) and site in effect.members and site not in effect.joined:
            before = [name for name in seen.get(site, []) if effect.group in world.judge.sends[name].groups]
            places.setdefault(effect.group, set()).add(tuple(before))
        elif hasattr(effect, "envelope"):
            seen.setdefault(site, []).append(effect.envelope.msg_id)
    assert all(len(place) == 1 for place in places.values()), places


def test_what_was_sent_to_a_deleted_group_is_refused_not_dropped_in_silence() -> None:
    """Errata 16."""
    groups = setup(policy=Policy.ATOMIC, x="abc", y="bcd")
    sends = tuple((9.0 + 0.1 * t, "d", ("y",)) for t in range(100))
    world = kept(Case(groups, ALL, QUIET, 19, sends, changes=((10.0, "c", Delete("y")),)))

    assert world.judge.dropped, "some were under way"
    delivered = set(log(world, "b")) | {m for known in world.judge.at("b").inherited.values() for m in known}
    assert set(world.judge.sends) == world.judge.dropped | delivered


def test_an_added_site_learns_everything_and_joins() -> None:
    groups = setup(policy=Policy.ATOMIC, x="abc")
    sends = tuple((float(t), "abc"[t % 3], ("x",)) for t in range(30))
    case = Case(groups, ALL, QUIET, 21, sends, changes=((5.0, "a", AddSite("n", "there")), (12.0, "b", Join("x", "n"))))
    world = World(case)
    world.run(300.0)

    assert findings(world) == []
    assert world.judge.at("n").groups["x"] == world.judge.at("a").groups["x"]


def test_a_replay_tells_the_application_the_same() -> None:
    """A site is restarted after a change, from its log alone; the world compares word by word."""
    groups = setup("arrow", delivery=Delivery.SAFE, x="abc", y="bcd")
    sends = tuple((float(t), "abcd"[t % 4], (("x",), ("y",), ("x", "y"))[t % 3]) for t in range(40))
    faults = tuple(Fault("crash", 15.0 + 7 * index, site, lasts=1.0) for index, site in enumerate("abcd"))
    case = Case(groups, ALL, QUIET, 23, sends, ((12.0, "a", Join("x", "d")), (20.0, "b", Leave("y", "c"))), faults)

    kept(dataclasses.replace(case, suspect_after=100.0))


def test_a_history_does_not_talk_to_itself() -> None:
    """Errata 98: a request in the history opens no ballot while it is stepped through.

    Site a leads a ballot for what c asked for, is asked for something itself, and closes the class. A history that
    talked to itself would open a second ballot at the request, and refuse to close the class in the first.
    """
    first = setup("two-phase", x="abc")
    site = Participant("a", first)
    events: list[Event] = [
        Received("c", m.Wish(1, (("c", 1, Leave("x", "c")),), (), ()), m.CONTROL),
        Requested(Create("y", ("a", "b"))),
        Received("b", m.Promise(2, (1, "a"), None), m.CONTROL),
    ]
    history: list[Event] = []
    while events:
        for effect in site.step(events.pop(0)):
            if isinstance(effect, Append):
                history.append(effect.event)
            elif isinstance(effect, Plan):
                events.append(Made(plan_change(effect.setup, effect.wanted)))
    again = Participant("a", first)
    talking = Participant("a", first)
    for event in history:
        again.replay(event)
        talking.step(event)

    assert [type(e.message).__name__ for e in history if isinstance(e, Received)] == ["Prepare", "Close"]
    assert site.closed == again.closed == {ClassId(1, 0)}
    assert talking.closed == set(), "then the rule is not needed"


def test_errata_130_two_messages_with_one_stamp_are_both_given_to_who_missed_them() -> None:
    """While d is away nobody is in both x and y: the first messages to them are each the first of their entries."""
    groups = setup(r="ab", q="ac", x="bd", y="cd")
    away = (Fault("crash", 1.0, "d", lasts=40.0),)
    sends = ((25.0, "b", ("x",)), (25.0, "c", ("y",)), (26.0, "b", ("x",)), (26.0, "c", ("y",)))
    world = kept(Case(groups, ALL, QUIET, 1, sends, faults=away, suspect_after=4.0))
    stamps = {message: stamp for site in "bc" for message, _, stamp in world.judge.at(site).log}

    assert stamps["b:1"] == stamps["c:1"] and stamps["b:2"] == stamps["c:2"]
    assert sorted(log(world, "d")) == ["b:1", "b:2", "c:1", "c:2"]
