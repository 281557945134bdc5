"""Delivery `copied` (KIN §4.1, MGT §5): an application gets what k members have, so k - 1 of them may fail at once."""

import dataclasses
import importlib

import msgspec
import pytest

from ordercast.core.effects import Append
from ordercast.core.events import Envelope, Received
from ordercast.epochs import messages as m
from ordercast.epochs.change import first_setup
from ordercast.epochs.participant import Participant
from ordercast.epochs.setup import GroupSetup, Setup
from ordercast.epochs.track import Track
from ordercast.errors import LocalError
from ordercast.names import Delivery, Policy
from ordercast.sim.changing import Case, Fault, World, findings, judge
from ordercast.sim.network import Network
from tests.support.epoch_campaign import LATER, case
from tests.support.planted import planted

ALL = frozenset({"fifo", "total", "acyclic"})
QUIET = Network(latency=1.0)
ONE_TOO_FEW = ("epochs.track", ("counts[min(copies, len(counts)) - 1]", "counts[min(copies, len(counts)) - 2]"))
CLOSED_TOO_EARLY = ("epochs.track", ("delivery is Delivery.AGREED or", "delivery is not Delivery.SAFE or"))


def setup(delivery: Delivery, copies: int = 2, protocol: str = "propagation", **groups: str) -> Setup:
    like = GroupSetup((), protocol, policy=Policy.AVAILABLE, delivery=delivery, copies=copies)
    made = {name: msgspec.structs.replace(like, members=tuple(members)) for name, members in groups.items()}
    return first_setup({site for members in groups.values() for site in members}, made)


def log(world: World, site: str) -> list[str]:
    return [message for message, _, _ in world.judge.at(site).log]


def cut_off(delivery: Delivery) -> World:
    """Site c orders everything, hears a message, and can tell nobody before it is taken out."""
    groups = setup(delivery, alpha="xycde", beta="cde")
    silent = tuple(Fault("one-way", 20.5, "c", other, lasts=40.0) for other in "xyde")
    world = World(Case(groups, ALL, QUIET, 1, ((20.0, "d", ("beta",)),), faults=silent, suspect_after=4.0))
    world.run(23.0)
    return world


def test_what_one_member_has_alone_is_not_handed_over() -> None:
    """With `agreed` the application of c has it, and must undo it; with `copied` it never had it."""
    agreed, copied = cut_off(Delivery.AGREED), cut_off(Delivery.COPIED)
    seen = [log(agreed, "c"), log(copied, "c")]
    held = [str(one) for one in copied.hosts["c"].participant.held()]
    for world in (agreed, copied):
        world.run(58.0)
        world.calm()
        world.run(200.0)

    assert seen == [["d:1"], []]
    assert any("fewer than 2 members are known to have it" in one for one in held)
    assert [findings(agreed), findings(copied)] == [[], []]
    assert [agreed.judge.rolled_back, copied.judge.rolled_back] == [1, 0]
    assert log(copied, "c") == log(copied, "d") == ["d:1"]


@pytest.mark.parametrize("protocol", ["propagation", "sequencer", "arrow", "two-phase", "timestamp"])
def test_a_member_that_fails_holds_up_nobody_while_enough_are_left(protocol: str) -> None:
    """`safe` waits for a member that has failed until it is taken out; `copied` does not, where others go on ordering.

    Where every member is needed to order (two-phase), both wait.
    """
    got = {}
    for delivery in (Delivery.COPIED, Delivery.SAFE):
        groups = setup(delivery, protocol=protocol, x="abcd")
        crash = (Fault("crash", 5.0, "d", lasts=40.0),)
        world = World(Case(groups, ALL, QUIET, 1, ((8.0, "b", ("x",)),), faults=crash, suspect_after=60.0))
        world.run(40.0)
        got[delivery] = [log(world, site) for site in "abc"]
        world.calm()
        world.run(200.0)
        assert findings(world) == []

    orders = protocol != "two-phase"
    assert got == {Delivery.COPIED: [["b:1"] if orders else []] * 3, Delivery.SAFE: [[]] * 3}


def test_how_many_members_have_a_message() -> None:
    track = Track(counts={("x",): 5}, heard={("x",): {"b": 7, "c": 2}})

    assert [track.copied_to(("x",), ("b", "c", "d"), copies) for copies in (2, 3, 4, 9)] == [5, 2, 0, 0]


def test_the_strictest_delivery_of_a_class_counts() -> None:
    options = {"a": (Delivery.AGREED, 2), "b": (Delivery.COPIED, 3), "c": (Delivery.COPIED, 2)}
    groups = {
        name: GroupSetup(("p", "q"), delivery=delivery, copies=copies) for name, (delivery, copies) in options.items()
    }
    found = next(iter(first_setup("pq", groups).classes.values()))

    assert (found.delivery, found.copies) == (Delivery.COPIED, 3)
    with pytest.raises(LocalError, match="copies is at least 2, not 1"):
        first_setup("pq", {"a": GroupSetup(("p", "q"), copies=1)})
    with pytest.raises(LocalError, match="causal order with policy available takes delivery safe"):
        first_setup("pq", {"a": GroupSetup(("p", "q"), policy=Policy.AVAILABLE, delivery=Delivery.COPIED)}, causal=True)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(LATER, LATER + 20, 20))
def test_changes_and_failures(first: int) -> None:
    """A share of the campaign: nothing is undone unless so many members have failed at once."""
    for seed in range(first, first + 20):
        found, _ = judge(case(seed))

        assert found == [], (seed, found[:3])


def islands(seed: int) -> Case:
    """Return a case in which one site after the other is cut off, one way, while messages flow."""
    groups = setup(Delivery.COPIED, protocol=("propagation", "sequencer", "arrow")[seed % 3], x="abcd", y="bcd")
    sends = tuple((0.7 * t, "abcd"[(t + seed) % 4], (("x",), ("y",))[t % 2]) for t in range(150))
    faults = tuple(
        Fault("one-way", 10.0 + 25 * turn + seed % 5, site, other, lasts=15.0)
        for turn, site in enumerate("abcd")
        for other in "abcd"
        if other != site
    )
    return Case(groups, ALL, dataclasses.replace(QUIET, jitter=0.5), seed, sends, faults=faults, suspect_after=3.0)


def test_sites_that_are_cut_off_undo_nothing() -> None:
    for seed in range(6):
        found, world = judge(islands(seed))

        assert (found, world.judge.rolled_back) == ([], 0), seed


@pytest.mark.slow
@pytest.mark.parametrize("bug", [ONE_TOO_FEW, CLOSED_TOO_EARLY], ids=["one copy too few", "as soon as it is ordered"])
def test_planted_bugs_are_caught(bug: tuple[str, tuple[str, str]]) -> None:
    """The judge of rollbacks sees what is undone though enough copies were left."""
    here = importlib.import_module("tests.epochs.test_copies")
    with planted(bug[0], bug[1]):
        found = [importlib.import_module("ordercast.sim.changing").judge(here.islands(seed))[0] for seed in range(6)]

    assert any(name == "copies" for one in found for name, _ in one)


def test_what_is_handed_over_when_is_the_same_after_a_restart() -> None:
    """A member knows of copies of messages that it has not delivered yet: that is durable, though nothing is done now.

    Otherwise it hands them over as soon as it delivers them, and after a crash later, at other positions of its log.
    """
    groups = setup(Delivery.COPIED, x="abc")
    class_id, site = groups.class_of["x"], Participant("b", groups)
    site.tracks[class_id] = Track()
    told = Received("a", m.Stable((), ((("x",), 3),)), class_id)

    assert site.step(told) == [Append(told)]
    assert site.step(told) == [], "it is no news"
    site.delivered(class_id, 1, b"1", Envelope(class_id, ("x",), "a", 1, 1, b"body"))
    assert [entry.handed for entry in site.tracks[class_id].entries] == [True]
