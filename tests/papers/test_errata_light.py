"""Errata 27, 35-39, 45, 46: changes that stop nobody, as printed, fail in the stated way; ours pass the same case."""

import itertools

import pytest

from ordercast.epochs.change import first_setup
from ordercast.epochs.requests import Change, Create, Join, Leave, Move
from ordercast.epochs.setup import GroupSetup, Setup
from ordercast.names import Delivery, Planner, Policy
from ordercast.sim.changing import Case, Fault, World, judge
from ordercast.sim.explore_places import Case as Places
from ordercast.sim.explore_places import explore
from ordercast.sim.network import Network
from ordercast.testing.script import Script
from tests.papers.printed_kin import Member, Sequencer
from tests.papers.test_errata_changes import stream

pytestmark = pytest.mark.slow
ROUGH = Network(latency=1.0, jitter=3.0)
"""Links on which later messages overtake earlier ones."""


def sequenced(*, causal: bool = False, more: str = "z", **groups: str) -> Setup:
    sites = {site for members in groups.values() for site in members} | set(more)
    policy = (Policy.ATOMIC, Delivery.AGREED)
    table = {g: GroupSetup(tuple(s), "sequencer", Planner.ELIMINATION, *policy) for g, s in groups.items()}
    return first_setup(sites, table, causal=causal)


def right(
    start: Setup, *changes: tuple[float, str, Change], faults: tuple[Fault, ...] = (), seeds: int = 2
) -> list[World]:
    """Run changes beside two sources that send to every group all the time, with several seeds; all is kept."""
    pace = 3.0 if start.causal else 0.7  # a causal source waits until its message to another group is safe
    sends = [one for group in start.groups for source in "za" for one in stream(source, group, 5, 20, pace)]
    promises = {"fifo", "total", "acyclic", *(["causal"] if start.causal else [])}
    worlds = []
    for seed in range(seeds):
        found, world = judge(Case(start, frozenset(promises), ROUGH, seed, tuple(sends), changes, faults))
        assert found == [], (seed, found[:3])
        answers = [answer.reason for host in world.hosts.values() for answer in host.answers]
        assert answers == [""] * len(changes)
        worlds.append(world)
    return worlds


# MGT.


def test_errata_27_metagroups_keep_no_order_between_the_groups_of_a_source() -> None:
    """<AB> -> <BC>: x sends to B, which enters at <AB>, then to C, which enters at <BC>: the second comes first."""
    begin = "plan metagroup A=a B=a,b C=b \n tree a->b \n deploy propagation {} x"
    story = " \n multicast x B \n multicast x C \n carry x->b x->a a->b \n carry all \n held"

    def log(causal: str) -> tuple[list[str], str]:
        script, said = Script(), list[str]()
        for line in (begin.format(causal) + story).splitlines():
            said += script.run(line.strip())
        return [line.split()[-1] for line in said if line.startswith("b delivers ")], said[-1]

    assert log("")[0] == ["x:2", "x:1"]
    assert log("causal") == (["x:1", "x:2"], "nothing")


# KIN: joins, leaves, transfers.


def test_errata_35_a_member_that_joins_in_mid_stream() -> None:
    """(a) no number, (b) a number applied on arrival, (c) one applied by context: each leaves messages for ever."""
    without = Member(H=0)
    without.accept("G", G=4, H=0)
    assert without.waiting

    applied = Member(H=0)
    applied.joined("G", 1)  # it overtakes the older message of H
    applied.accept("H", H=1, G=0)
    assert applied.waiting

    overtaken = Member(H=1)
    overtaken.accept("H", H=2, G=1)  # sequenced after the join at H:1 G:1, and here before it
    assert overtaken.numbers["H"] == 2  # so the join, which waits for H:1, is never applied

    for world in right(sequenced(G="bcd", H="abcd"), (10.0, "b", Join("G", "a"))):
        log = world.judge.at("b").groups["G"]
        assert world.judge.at("a").groups["G"] == log  # the state it was given, and everything after it


def test_errata_36_numbers_of_groups_that_a_site_is_not_in() -> None:
    """D_p learns G:5 from a context; p joins G at 4, and G:5 is "not the next one" for ever."""
    member = Member(H=0)
    member.accept("H", H=1)
    member.merge(G=5)
    member.numbers["G"] = max(4, member.numbers["G"])  # the join merges, too
    member.accept("G", G=5, H=1)
    assert member.waiting

    right(sequenced(causal=True, G="bcd", H="abcd"), (10.0, "b", Join("G", "a")))


def test_errata_37_two_joins_at_once() -> None:
    """Both sequencers ask, nobody is there yet, both record: two groups with two sites in common, two orders."""
    one, other = Sequencer("G", "p"), Sequencer("H", "p")
    serve_both = [one.shares(other.members | {"q"}), other.shares(one.members | {"q"})]
    one.members.add("q")
    other.members.add("q")
    assert serve_both == [False, False] and one.shares(other.members)

    start = sequenced(G="ab", H="cd", J="b", more="z")
    assert start.class_of["G"] != start.class_of["H"]
    for world in right(start, (10.0, "b", Join("G", "c")), (10.0, "d", Join("H", "b"))):
        now = world.hosts["a"].participant.setup
        assert now.class_of["G"] == now.class_of["H"]  # b and c are in both


def test_errata_38_a_leave_that_splits_a_pair() -> None:
    """ACCEPT G:1 with H:0 is under way when H moves to a sequencer that knows nothing of G: H:1 comes first."""
    member = Member(G=0, H=0)
    member.accept("H", H=1)
    member.accept("G", G=1, H=0)
    assert member.waiting

    start = sequenced(G="abc", H="abd")
    assert start.class_of["G"] == start.class_of["H"]
    for world in right(start, (10.0, "b", Leave("H", "b"))):
        now = world.hosts["a"].participant.setup
        assert now.class_of["G"] != now.class_of["H"]


def test_errata_39_a_group_that_moves_to_another_sequencer() -> None:
    """m1 is forwarded by the old sequencer, m2 goes to the new one at once, and is sequenced before m1."""
    forwarded, direct = ["m1"], ["m2"]
    assert [*direct, *forwarded] != ["m1", "m2"]

    start = sequenced(G="abc", more="yz")
    old = start.classes[start.class_of["G"]].sequencers
    assert old == ("a",)
    for world in right(start, (10.0, "b", Move("G", ("y",))), faults=(Fault("crash", 14.0, "a", lasts=20.0),)):
        now = world.hosts["b"].participant.setup
        assert now.classes[now.class_of["G"]].sequencers == ("y",)
    for at in (10.5, 11.5, 12.5, 13.5):  # the old one dies in the middle, and comes back
        right(start, (10.0, "b", Move("G", ("y",))), faults=(Fault("crash", at, "a", lasts=20.0),), seeds=1)


# HTW00.


def test_errata_45_the_sink_leaves() -> None:
    """Printed: link(u)=v and link(v)=u, a circle through the node that left: a swap never finds the sink."""
    link = {"u": "v", "v": "u", "w": "v"}
    found = list(itertools.islice(_follow(link, "w"), 100))
    assert len(found) == 100

    for kind in ("arrow", "combining"):
        sink_leaves = Places(kind, {"u": None, "v": "u", "w": "v"}, {"u": ("leave",), "w": ("swap",), "v": ("swap",)})
        explored = explore(sink_leaves)
        assert explored.ends and not explored.found


def _follow(link: dict[str, str], node: str):  # type: ignore[no-untyped-def]
    while link.get(node, node) != node:
        node = link[node]
        yield node


@pytest.mark.parametrize("protocol", ["arrow", "combining", "hybrid"])
def test_errata_46_a_late_joiner_of_a_swap(protocol: str) -> None:
    """Printed: it waits for a predecessor that it never gets. Ours gets a state, a position, and all that follows."""
    chain, joiner = {"m2": "m1", "m3": "m2"}, set[str]()
    assert not [message for message, before in chain.items() if before in joiner]

    sites = {"G": GroupSetup(("b", "c", "d"), protocol), "H": GroupSetup(("a", "b", "c"), protocol)}
    for world in right(first_setup("abcdz", sites), (10.0, "b", Join("G", "a"))):
        assert world.judge.at("a").groups["G"] == world.judge.at("b").groups["G"]


def test_a_group_is_created_while_others_are_served() -> None:
    """KIN Table 1, createGroup: it merges two classes under way."""
    right(sequenced(G="ab", H="cd"), (10.0, "b", Create("J", ("a", "b", "c", "d"))), seeds=1)
