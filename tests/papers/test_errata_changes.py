"""Errata 10-23, 28, 29, 50 and 56-63: what is printed, or left out, fails in the stated way; ours passes the same case.

The printed rule is a small model where we do it in another way altogether (`printed.py`), and is planted into our own
code where a line of it is what was repaired.
"""

import dataclasses
import importlib
from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from ordercast.core.events import Envelope, Event, Received
from ordercast.epochs import messages as m
from ordercast.epochs import snapshot
from ordercast.epochs.change import first_setup
from ordercast.epochs.participant import Participant
from ordercast.epochs.requests import Change, Create, Delete, Join, Leave, RemoveSite
from ordercast.epochs.setup import GroupSetup, Setup
from ordercast.errors import PeerError
from ordercast.membership.table import Membership
from ordercast.names import ClassId, Delivery, Planner, Policy
from ordercast.sim.changing import Case, Fault, Host, World, findings, judge
from ordercast.sim.happenings import Crash
from ordercast.sim.network import Network
from ordercast.sim.scenario import Scenario, run
from tests.papers.printed import Primary, Source
from tests.support.planted import planted

QUIET = Network(latency=1.0)
PROMISES = frozenset({"fifo", "total", "acyclic"})


def setup(
    protocol: str = "propagation",
    policy: Policy = Policy.ATOMIC,
    delivery: Delivery = Delivery.AGREED,
    planner: Planner = Planner.ELIMINATION,
    more: str = "",
    **groups: str,
) -> Setup:
    sites = {site for members in groups.values() for site in members} | set(more)
    return first_setup(sites, {g: GroupSetup(tuple(s), protocol, planner, policy, delivery) for g, s in groups.items()})


def entry(of: Setup, group: str) -> str:
    plan = of.classes[of.class_of[group]].plan
    assert plan is not None
    return plan.groups[group].entry


def stream(site: str, group: str, first: float, last: float, every: float = 0.4) -> list[tuple[float, str, Any]]:
    """Return a source that sends all the time."""
    return [(first + every * step, site, (group,)) for step in range(int((last - first) / every))]


def changed(
    start: Setup,
    sends: list[tuple[float, str, Any]],
    *changes: tuple[float, str, Change],
    network: Network = QUIET,
    faults: tuple[Fault, ...] = (),
    seed: int = 1,
) -> World:
    """Run ours, and find nothing wrong."""
    found, world = judge(Case(start, PROMISES, network, seed, tuple(sends), changes, faults))
    assert found == [], found[:3]
    assert all(not answer.reason for host in world.hosts.values() for answer in host.answers)
    return world


def broken(rule: tuple[str, str], cases: Iterable[Case | int], *more: tuple[str, str]) -> set[str]:
    """Return what is broken in any of these cases, or seeds of the campaign, with the printed rule in our code."""
    with planted("epochs", rule, *more):
        changing = importlib.import_module("ordercast.sim.changing")
        of_seed = importlib.import_module("tests.support.epoch_campaign").case
        for case in cases:
            found, _ = changing.judge(of_seed(case) if isinstance(case, int) else _again(case, changing))
            if found:
                return {name for name, _ in found}
    return set()


def _again(case: Case, changing: Any) -> Any:
    """Return a case without changes as the modules of the moment have it."""
    kind = importlib.import_module("ordercast.epochs.setup").Setup
    same = msgspec.msgpack.decode(msgspec.msgpack.encode(case.setup), type=kind)
    faults = tuple(changing.Fault(*dataclasses.astuple(fault)) for fault in case.faults)
    return changing.Case(
        same, case.promises, case.network, case.seed, case.sends, (), faults, case.tick, case.suspect_after
    )


def log(world: World, site: str) -> list[str]:
    return [message for message, _, _ in world.judge.at(site).log]


# GS88 §5.1: groups that change.


def test_errata_10_redirects_one_by_one_break_the_order_of_a_source() -> None:
    delivered: list[int] = []
    p, q = Primary("p", delivered), Primary("q", delivered)
    source = Source(p)
    for site in (p, q):
        site.close()
    source.send(), source.send()  # both are queued at p, which is no primary site any more
    for site in (q, p):
        site.open(2, q)
    source.hear()
    source.send()
    source.hear()
    assert delivered == [1, 3, 2]

    ours = setup(x="abc", more="z")
    old = entry(ours, "x")
    world = changed(ours, stream("z", "x", 5, 25), (10.0, "b", Leave("x", old)))
    assert entry(world.hosts["b"].participant.setup, "x") != old
    numbers = [int(name.partition(":")[2]) for name in log(world, "b")]
    assert numbers == sorted(numbers) and len(numbers) == 50


def test_errata_11_a_primary_site_that_moves_away_and_back() -> None:
    delivered: list[int] = []
    p, q = Primary("p", delivered), Primary("q", delivered)
    source = Source(p)
    for site in (p, q):
        site.close()
    source.send()
    for site in (q, p):
        site.open(2, q)
        site.close()
    for site in (p, q):
        site.open(3, p)
    source.send()
    source.hear()  # the redirect to q, which redirects to p again
    assert delivered == [2]

    ours = setup(x="abc", more="z")
    old = entry(ours, "x")
    changes = ((10.0, "b", Leave("x", old)), (14.0, "b", Join("x", old)))
    world = changed(ours, stream("z", "x", 5, 30), *changes)
    assert entry(world.hosts["b"].participant.setup, "x") == old
    assert len(world.judge.at(old).groups["x"]) == 62


def test_errata_12_messages_of_another_graph_are_not_queued_until_it_opens() -> None:
    """Printed: "queued until the appropriate graph is opened". A source whose message is of graph 1 waits for ever."""
    queue = [(1, "m1")]  # arrived after Close(1)
    for opened in (2, 3, 4):
        queue = [(graph, name) for graph, name in queue if graph != opened]
    assert queue == [(1, "m1")]

    ours = setup(x="abc", more="z")
    cut = (Fault("cut", 8.0, "z", "a", 8.0), Fault("cut", 8.0, "z", "b", 8.0), Fault("cut", 8.0, "z", "c", 8.0))
    world = changed(ours, stream("z", "x", 5, 25), (9.0, "b", Leave("x", entry(ours, "x"))), faults=cut)
    assert len(world.judge.at("b").groups["x"]) == 50, "it was in configuration 1 when it sent, and learnt of 2"


def test_errata_13_a_departing_primary_site_blocks_nobody() -> None:
    delivered: list[int] = []
    p, q = Primary("p", delivered), Primary("q", delivered)
    source = Source(p)
    for site in (p, q):
        site.close()
    source.send()
    q.open(2, q)  # p is not in graph 2: it gets no Open, and redirects nobody
    assert delivered == [] and not source.redirects and source.primary is p

    ours = setup(x="abc", more="z")
    old = entry(ours, "x")
    other = next(site for site in "abc" if site != old)
    gone = (Fault("crash", 10.6, old, lasts=400.0),)  # switched off for good while it closes
    start = setup(policy=Policy.AVAILABLE, x="abc", more="z")
    world = World(
        Case(start, PROMISES, QUIET, 1, tuple(stream("z", "x", 5, 25)), ((10.0, other, RemoveSite(old)),), gone)
    )
    world.run(120.0)
    assert len(world.judge.at(other).groups["x"]) == 50
    assert old not in world.hosts[other].participant.setup.sites


def test_errata_14_a_joining_site_that_becomes_the_primary_site() -> None:
    delivered: list[int] = []
    p, new = Primary("p", delivered), Primary("new", delivered, graph=None)
    p.close()
    for site in (p, new):
        site.open(2, new)
    assert new.opens == [(2, new)], "it has closed no graph, so its Open waits for ever"
    early = Primary("early", delivered, graph=None)
    early.last_closed = 2
    source = Source(early)
    early.open(3, early)
    source.send()
    assert delivered == [1], "and if it takes the first Open it sees, it delivers before the old members have closed"

    ours = setup(x="bcd", more="az")
    world = changed(ours, stream("z", "x", 5, 25), (10.0, "c", Join("x", "a")))
    assert entry(world.hosts["a"].participant.setup, "x") == "a", "ties go by name"
    assert world.judge.at("a").groups["x"] == world.judge.at("b").groups["x"]
    assert len(world.judge.at("a").groups["x"]) == 50


def test_errata_15_a_resend_is_not_delivered_in_both_graphs() -> None:
    delivered: list[int] = []
    p, q = Primary("p", delivered), Primary("q", delivered)
    source = Source(p)
    source.send()  # delivered, and the acknowledgement is lost
    for site in (p, q):
        site.close()
    for site in (q, p):
        site.open(2, q)
    q.arrives(source, 1)  # sent again
    assert delivered == [1, 1]

    ours = setup(x="abc", more="z")
    lossy = Network(latency=1.0, loss=0.3, duplicate=0.2)
    for seed in range(5):
        world = changed(
            ours, stream("z", "x", 5, 25), (10.0, "b", Leave("x", entry(ours, "x"))), network=lossy, seed=seed
        )
        assert len(set(world.judge.at("b").groups["x"])) == len(world.judge.at("b").groups["x"]) == 50


def test_errata_16_three_changes_back_to_back_and_a_group_deleted_under_load() -> None:
    ours = setup(x="abc", y="bcd", more="z")
    changes = (
        (10.0, "a", Leave("x", "a")), (10.1, "b", Join("x", "d")),
        (10.2, "c", Leave("y", "b")), (10.3, "d", Delete("y")),
    )  # fmt: skip
    world = changed(ours, stream("z", "x", 5, 20) + stream("z", "y", 5, 20), *changes)
    to_y = {name for name, sent in world.judge.sends.items() if sent.groups == ("y",)}
    known = {name for site in "bcd" for name in log(world, site)}
    assert world.judge.dropped == to_y - known != set(), "each one was delivered, or refused by name"


def test_errata_17_order_between_configurations() -> None:
    """Forests that merge and split, entries that move, sources that race with the change: many runs, no failures."""
    crossed = 0
    for seed in range(12):
        ours = setup(x="abc", y="cde", w="ef", more="yz")
        changes = (
            (9.0 + seed % 3, "a", Join("x", "d")), (12.0, "b", Leave("y", "c")), (14.0, "e", Join("w", "a")),
            (15.0, "f", Create("v", ("a", "f"))),
        )  # fmt: skip
        sends = [
            s
            for source, group in (("y", "x"), ("z", "y"), ("z", "w"), ("a", "x"))
            for s in stream(source, group, 5, 20)
        ]
        world = changed(ours, sends, *changes, network=Network(latency=1.0, jitter=1.5), seed=seed)
        crossed += sum(len(cut.lines) for cut in _cuts(world))
    assert crossed > 12, "messages were under way in many of the changes"


def _cuts(world: World) -> list[m.Cut]:
    return [cut for decision in world.hosts["a"].participant.decisions.values() for cut in decision.cuts.values()]


# GS88 §5.2: sites that fail.


def test_errata_18_the_last_message_of_a_live_source() -> None:
    """It is with the entry when that dies, and its source sends nothing more: nobody would ever ask for it."""
    ours = setup(policy=Policy.AVAILABLE, x="abc", more="z")
    first = entry(ours, "x")
    case = Case(ours, PROMISES, QUIET, 1, ((10.0, "z", ("x",)),), (), (Fault("crash", 11.2, first, lasts=200.0),))
    silent = Case(ours, PROMISES, QUIET, 1, case.sends, (), (*(Fault("one-way", 9.0, first, s, 60.0) for s in "bcz"),))
    rule = ("                site.sending.send_again(number)", "                pass")

    assert broken(rule, [case, silent]) & {"completeness", "held", "safe"}
    for one in (case, silent):
        found, world = judge(one)
        assert found == [] and log(world, "b") == ["z:1"]


def test_errata_19_counts_are_not_enough() -> None:
    """One site has a1, b1, a2, the other a1. From counts alone the missing may be filled in as a1, a2, b1."""
    class_id, recovery = ClassId(1, 0), importlib.import_module("ordercast.epochs.recovery")

    def line(stamp: int, source: str, number: int, group: str) -> m.Line:
        return m.Line(0, bytes([stamp]), m.Id(source, 1, number), (group,), number)

    a1, b1, a2 = line(1, "s", 1, "a"), line(2, "t", 1, "b"), line(3, "s", 2, "a")
    ends = ((m.Id("s", 1, 2), ("a",)), (m.Id("t", 1, 1), ("b",)))
    for known in range(4):
        whole = m.ClassReport((), (a1, b1, a2), ends)
        part = m.ClassReport((), (a1, b1, a2)[:known], ends[:0])
        cut = _cut(recovery, class_id, whole, part)
        assert [one.id for one in cut.lines] == [a1.id, b1.id, a2.id]
    by_group = sorted([a1, b1, a2], key=lambda one: (one.groups, one.index))
    assert [one.id for one in by_group] == [a1.id, a2.id, b1.id], "what counts alone give"


def _cut(recovery: Any, class_id: ClassId, whole: m.ClassReport, part: m.ClassReport) -> m.Cut:
    cut: m.Cut = recovery.cuts_of({"d": {class_id: whole}, "e": {class_id: part}}, [class_id])[class_id]
    return cut


def test_errata_20_who_is_suspected_though_it_is_well_delivers_nothing_that_others_do_not() -> None:
    """The printed site delivers what it accepts. Under `safe` ours waits for acknowledgements, which never come."""
    ours = setup(policy=Policy.AVAILABLE, delivery=Delivery.SAFE, x="abc")
    slow = entry(ours, "x")
    sends = tuple(stream(slow, "x", 6, 12))
    case = Case(ours, PROMISES, QUIET, 1, sends, (), (Fault("suspect", 5.0, slow, lasts=40.0),))
    handed = (
        "                if not (delivery is Delivery.AGREED or self.is_copied(entry) or self.is_stable(entry)):\n"
        "                    break",
        "                pass",
    )

    assert "safe" in broken(handed, [case])
    found, world = judge(case)
    assert found == [] and world.judge.rolled_back == 0


def test_errata_21_a_manager_that_dies_is_followed_by_one_that_decides_the_same() -> None:
    council = importlib.import_module("tests.epochs.test_council")
    highest = ("        if accepted:\n            highest", "        if False:\n            highest")
    with planted("epochs", highest):
        assert council.ignored() is not None, "another graph with the same number"
    assert council.ignored() is None


def test_errata_22_everything_that_nobody_else_has_is_rolled_back() -> None:
    """Site c has delivered two messages that nobody else has. What it keeps is what others have, in their order.

    The application sees more: everything from the first of them on is undone, and what stays comes again (errata 118).
    """
    silent = tuple(Fault("one-way", 10.5, "c", other, lasts=40.0) for other in "de")
    ours = setup(policy=Policy.AVAILABLE, x="cde", y="cde")
    sends = ((10.0, "d", ("x",)), (10.2, "c", ("y",)), (30.0, "e", ("y",)))
    case = Case(ours, PROMISES, QUIET, 1, sends, (), silent, suspect_after=4.0)
    rule = (
        "    return [entry for entry in unknown if entry.index > stable.get(entry.envelope.groups, 0)]",
        "    return [entry for entry in unknown if entry.index > stable.get(entry.envelope.groups, 0)][:1]",
    )

    assert broken(rule, [case, 300, 322])
    found, world = judge(case)
    assert found == [] and log(world, "c") == log(world, "d")


def test_errata_22_v_a_source_that_lost_its_disk_is_another_source() -> None:
    ours = setup(policy=Policy.AVAILABLE, x="abc")
    sends = [*stream("c", "x", 2, 10), *stream("c", "x", 40, 44)]
    found, world = judge(Case(ours, PROMISES, QUIET, 1, tuple(sends), (), (Fault("lose", 20.0, "c", lasts=4.0),)))

    assert found == []
    anew = next(name for name in log(world, "a") if name.startswith("c/2:"))
    assert anew == "c/2:1", "its numbers begin anew"


def test_errata_23_a_failed_extra_node_blocks_no_group_for_good() -> None:
    """Printed: "block on messages for groups that include the failed site". It passes on for groups it is not in."""
    ours = setup(policy=Policy.AVAILABLE, x="abc", y="bcd", w="ad")
    for site in "abcd":
        sends = [s for source in "abcd" if source != site for s in stream(source, "w", 30, 34)]
        world = World(Case(ours, PROMISES, QUIET, 1, tuple(sends), (), (Fault("crash", 10.0, site, lasts=300.0),)))
        world.run(100.0)
        alive = next(other for other in "ad" if other != site)
        assert len(world.judge.at(alive).groups["w"]) == len(sends)


# MGT, HTW00.


def test_errata_28_a_process_that_moves_between_metagroups() -> None:
    """Printed: it leaves the stream of <A> and takes up that of <A,B>, which is at another position."""
    stream_a, stream_ab = ["a1", "a2", "a3", "a4"], ["a1", "a2"]
    behind = stream_a[:4] + stream_ab[1:2]  # it reads on in <A,B> where that one is
    ahead = stream_ab[:2] + stream_a[3:]
    assert len(set(behind)) < len(behind) and set(ahead) != set(stream_a)

    ours = setup(planner=Planner.METAGROUP, x="abcd", y="cd", more="z")
    world = changed(ours, stream("z", "x", 5, 25) + stream("z", "y", 5, 25), (10.0, "c", Join("y", "b")))
    assert len(world.judge.at("b").groups["x"]) == 50
    assert world.judge.at("b").groups["y"] == world.judge.at("c").groups["y"]


def test_errata_29_the_primary_site_of_a_metagroup_dies() -> None:
    """Printed: nothing. A child has n, the new primary site never saw it, and gives n to another message."""
    child, new = {1: "m1", 2: "m2"}, {1: "m1"}
    new[2] = "m3"
    assert child[2] != new[2]

    ours = setup(planner=Planner.METAGROUP, policy=Policy.AVAILABLE, x="abcd", y="cd", more="z")
    first = entry(ours, "x")
    for at in (10.2, 10.7, 11.3):
        sends = stream("z", "x", 5, 30) + stream("z", "y", 5, 30)
        changed(ours, sends, faults=(Fault("crash", at, first, lasts=60.0),))


@pytest.mark.parametrize("protocol", ["arrow", "combining", "hybrid", "arrow-counting", "combining-counting"])
def test_errata_50_the_root_of_a_swap_dies(protocol: str) -> None:
    """Printed: nothing. Without epochs everybody waits for ever for a predecessor that nobody has."""
    groups = {"A": "abc"}
    scenario = Scenario(
        Membership.of(groups), protocol, messages=40, senders=2, several=0.0, crashes=(Crash("a", 10.0, None),)
    )
    assert not run(scenario).ok

    ours = setup(protocol, policy=Policy.AVAILABLE, A="abc")
    world = changed(
        ours, stream("b", "A", 5, 40) + stream("c", "A", 5, 40), faults=(Fault("crash", 10.0, "a", lasts=90.0),)
    )
    assert len(world.judge.at("b").groups["A"]) == 174


# What a running system needs.


def test_errata_56_exactly_once() -> None:
    rule = ("inside = number <= last.get(own.groups, 0)", "inside = number < last.get(own.groups, 0)")

    assert broken(rule, range(40))


def test_errata_57_who_is_behind_is_told() -> None:
    rule = (
        "                    site.say(sender, self.told(number, known=theirs == number - 1))",
        "                    pass",
    )

    assert broken(rule, range(40))


def test_errata_58_stable_is_what_every_member_has() -> None:
    rule = (
        "return min([self.counts.get(groups, 0), *(heard.get(other, 0) for other in others)])",
        "return self.counts.get(groups, 0)",
    )

    assert broken(rule, range(80))


@pytest.mark.parametrize("lost", ["a", "b", "c"])
def test_errata_59_what_was_called_safe_survives_all_but_one_member(lost: str) -> None:
    """Safe means: every member of the configuration has it on its disk; so any one of them is enough."""
    ours = setup(policy=Policy.AVAILABLE, delivery=Delivery.SAFE, x="abc")
    faults = (Fault("lose", 20.0, lost, lasts=5.0),)
    found, world = judge(Case(ours, PROMISES, QUIET, 1, tuple(stream("b", "x", 5, 12)), (), faults))

    assert found == [] and world.judge.safe


class Early(World):
    """A world that notes how much ever waited for a class that was not open yet."""

    most = 0

    def feed(self, host: Host, event: Event) -> None:
        """Take an event, and look."""
        super().feed(host, event)
        self.most = max(self.most, len(host.participant.early))


@pytest.mark.parametrize("bound", [3, 10_000])
def test_errata_60_what_comes_early_is_bounded(monkeypatch: pytest.MonkeyPatch, bound: int) -> None:
    """Messages of classes that are not open yet wait in a queue with a bound; their senders send them again."""
    monkeypatch.setattr("ordercast.epochs.classes.EARLY_AT_MOST", bound)
    ours = setup(x="abc", more="z")
    sends, slow = tuple(stream("z", "x", 5, 25, 0.1)), Network(latency=1.0, jitter=3.0)
    world = Early(Case(ours, PROMISES, slow, 33, sends, ((10.0, "b", Leave("x", "a")),)))
    world.run(300.0)

    assert findings(world) == []
    assert world.most == 3 if bound == 3 else world.most > 3


def test_errata_61_what_was_promised_is_durable_before_it_is_answered() -> None:
    council = importlib.import_module("tests.epochs.test_council")
    rule = (
        "            if news:\n                self.durable()\n            self.say(sender, answer)",
        "            self.say(sender, answer)",
    )
    with planted("epochs", rule):
        assert council.not_durable() is not None
    assert council.not_durable() is None


def test_errata_62_nobody_says_what_is_another_s_to_say() -> None:
    """Each is refused before anything changes; without the check each of them is obeyed or stops the site."""
    ours = setup(x="abc", y="bcd", more="ez")
    (class_id,) = ours.classes
    participant = Participant("b", ours)
    envelope = Envelope(class_id, ("x",), "a", 1, 1, b"")
    decision = m.Decision(msgspec.structs.replace(ours, number=2), (1, "a"), {})
    outsider = next(site for site in ours.sites if site not in ours.council)
    first = ours.classes[class_id].destinations(("x",))[0]
    other = next(site for site in "acd" if site != first)
    forged: list[tuple[str, Any, ClassId]] = [
        (outsider, m.Prepare(2, (9, outsider)), m.CONTROL),
        ("a", m.Prepare(2, (9, "c")), m.CONTROL),
        ("a", m.Prepare(2, (2**60, "a")), m.CONTROL),
        (outsider, m.Close(2, (9, outsider), (class_id,)), m.CONTROL),
        (outsider, m.Accept(msgspec.structs.replace(decision, ballot=(9, outsider))), m.CONTROL),
        ("c", m.Accept(decision), m.CONTROL),
        ("a", m.Body(class_id, m.Id("a", 1, 2), envelope), m.CONTROL),
        ("a", m.State(1, "x", -1, b"", ()), m.CONTROL),
        (other, m.Stable(((("x",), 5),)), class_id),
        (first, m.Stable(((("nowhere",), 5),)), class_id),
        (other, m.Whereabouts(("x",), 5, ()), class_id),
    ]
    before = snapshot.encode(participant)
    for sender, message, of_class in forged:
        with pytest.raises(PeerError, match=f"{sender} sent b {type(message).__name__}"):
            participant.step(Received(sender, message, of_class))
        assert snapshot.encode(participant) == before


def test_errata_63_what_stands_still_says_why() -> None:
    ours = setup(policy=Policy.ATOMIC, x="abc", y="de")
    world = World(Case(ours, PROMISES, QUIET, 1, ((20.0, "b", ("x",)),), (), (Fault("crash", 10.0, "a", lasts=500.0),)))
    world.run(60.0)

    assert [held.reason for held in world.hosts["b"].participant.held()] == [
        "class 1.0 needs a, suspected to have failed"
    ]
