"""A class closes along its tree (GS88 §5.1): nobody stops before the decision, nobody reports, nobody waits long."""

import random

import pytest

from ordercast.core import stamps
from ordercast.core.effects import Deliver, Finished, Send
from ordercast.core.events import Envelope, Finish, Multicast, Received
from ordercast.core.source import Source
from ordercast.core.streams import Carry
from ordercast.epochs import messages as m
from ordercast.epochs.change import first_setup
from ordercast.epochs.requests import Change, Create, Delete, Join, Leave, Set
from ordercast.epochs.setup import GroupSetup, Setup
from ordercast.errors import PeerError
from ordercast.names import ClassId, Delivery, Planner, Policy
from ordercast.protocols.propagation.machine import Propagation, Tree
from ordercast.protocols.propagation.messages import Close, Propagate
from ordercast.sim.changing import Case, Fault, World, findings, judge
from ordercast.sim.network import Network

CHAIN = {"x": "abc", "y": "bcd", "z": "cde"}


def setup(groups: dict[str, str], sites: str = "", planner: Planner = Planner.ELIMINATION, **options: object) -> Setup:
    made = {g: GroupSetup(tuple(members), planner=planner, **options) for g, members in groups.items()}  # type: ignore[arg-type]
    return first_setup(sites, made)


def sends(of: Setup, many: int, span: float, seed: int = 1) -> tuple[tuple[float, str, tuple[str, ...]], ...]:
    chance = random.Random(seed)
    groups = sorted(of.groups)
    return tuple(sorted((chance.uniform(0, span), chance.choice(sorted(of.sites)), (chance.choice(groups),))
                        for _ in range(many)))  # fmt: skip


def run(of: Setup, *changes: tuple[float, str, Change], faults: tuple[Fault, ...] = (), many: int = 60) -> World:
    network = Network(latency=1.0)
    case = Case(of, frozenset({"fifo", "total", "acyclic"}), network, 1, sends(of, many, 30.0), changes, faults)
    found, world = judge(case)
    assert found == []
    return world


def along(world: World) -> list[ClassId]:
    decisions = max((h.participant.decisions for h in world.hosts.values()), key=len)
    return [class_id for decision in decisions.values() for class_id in decision.along_trees]


@pytest.mark.parametrize(
    "change",
    [Join("z", "a"), Leave("x", "a"), Create("w", ("a", "e")), Delete("y"), Set("x", planner=Planner.GREEDY),
     Set("x", protocol="sequencer")],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("planner", [Planner.ELIMINATION, Planner.CENTRAL, Planner.METAGROUP])
def test_a_change_under_load_closes_along_the_tree(change: Change, planner: Planner) -> None:
    """Sources from outside, several groups, entries that are members or not; a group is deleted under load, too."""
    world = run(setup(CHAIN, "abcdepq", planner), (10.0, "q", change))

    assert along(world) == [ClassId(1, 0)]
    assert "Fetch" not in world.messages, "nobody lacks anything"


@pytest.mark.parametrize("change", [Join("z", "a"), Leave("x", "a"), Create("w", ("a", "e")), Delete("y")], ids=str)
@pytest.mark.parametrize("protocol", ["sequencer", "arrow", "combining", "hybrid"])
def test_other_machines_order_their_end(change: Change, protocol: str) -> None:
    """A sequencer tells its last numbers, a swap object has a last message: nobody stops, nobody reports."""
    world = run(setup(CHAIN, "abcdepq", protocol=protocol), (10.0, "q", change))

    assert along(world) == [ClassId(1, 0)]
    assert "Fetch" not in world.messages, "nobody lacks anything"


def test_nobody_stops_before_it_is_decided() -> None:
    of = setup(CHAIN)
    case = Case(of, frozenset(), Network(latency=1.0), 1, sends(of, 60, 30.0), ((10.0, "a", Join("z", "a")),))
    world = World(case)
    stopped = []

    while world.queue and world.now < 40.0:
        world.run(world.queue[0][0])
        stopped += [host.site for host in world.hosts.values() if host.participant.closed]

    assert stopped == []
    assert along(world) == [ClassId(1, 0)]


def test_several_changes_at_once_and_entries_that_move_away_and_back() -> None:
    """Errata 10, 11, 16: back-to-back changes; what meets an unfinished one is closed by report."""
    asked: list[Change] = [
        Leave("y", "c"), Join("y", "c"), Leave("z", "c"), Join("z", "c"), Create("w", ("a", "e")), Delete("w"),
    ]  # fmt: skip
    changes = [(10.0 + 2.5 * step, "abcde"[step % 5], change) for step, change in enumerate(asked)]
    world = run(setup(CHAIN, "abcdepq"), *changes, many=120)

    assert along(world)
    assert any(decision.cuts for h in world.hosts.values() for decision in h.participant.decisions.values())


def test_a_new_site_becomes_the_root() -> None:
    """Errata 14: the entry of the new class has never been in the group."""
    of = setup({"x": "bc"}, "abc", Planner.CENTRAL)
    world = run(of, (5.0, "b", Join("x", "a")), (15.0, "b", Leave("x", "b")))

    assert along(world)


@pytest.mark.parametrize("site", "abcde")
@pytest.mark.parametrize("policy", list(Policy))
def test_somebody_dies_while_a_class_closes(site: str, policy: Policy) -> None:
    """At several moments of the change: the class is closed by report, or waits for who comes back."""
    of = setup(CHAIN, "abcdeq", policy=policy, delivery=Delivery.SAFE)
    for at in (10.5, 12.5, 13.5, 14.5, 15.5, 16.5):
        run(of, (10.0, "q", Leave("y", "c")), faults=(Fault("crash", at, site, lasts=25.0),), many=40)


def test_a_source_waits_for_the_end_before_it_goes_on() -> None:
    """Errata 10: it sends again, in order, what was not ordered, and nothing later before it."""
    world = run(setup({"x": "ab", "y": "ab"}, "abpq"), (10.0, "p", Leave("y", "b")), many=200)

    assert world.messages["AskSafe"] > 0
    assert along(world) == [ClassId(1, 0)]


def test_a_closed_entry_orders_nothing_and_says_so() -> None:
    of = setup({"x": "ab"})
    of_class = of.classes[of.class_of["x"]]
    root, other = (of_class.machine(Source(site)) for site in ("a", "b"))
    if root.routes.parent(0, "a") is not None:  # type: ignore[attr-defined]
        root, other = other, root
    effects = root.step(Finish())

    closes = [effect for effect in effects if isinstance(effect, Send) and isinstance(effect.message.message, Close)]  # type: ignore[attr-defined]
    assert [effect.to for effect in closes] == [other.me]
    assert any(isinstance(effect, Finished) for effect in effects)
    (late,) = [e for e in other.step(Multicast(("x",), b"late")) if isinstance(e, Send)]
    assert root.step(Received(other.me, late.message, of_class.id)) == []
    done = other.step(Received(root.me, closes[0].message, of_class.id))
    assert any(isinstance(effect, Finished) for effect in done)
    assert [effect for effect in other.step(Finish()) if isinstance(effect, Finished)], "also when it came before"


def test_who_tells_the_end_is_a_member() -> None:
    """Errata 62: nobody else makes a source send again."""
    of = setup({"x": "ab"}, "abpq")
    world = World(Case(of, frozenset(), Network(latency=1.0)))
    participant = world.hosts["p"].participant
    participant.sending.unknown[ClassId(1, 0)] = [("x",)]

    with pytest.raises(PeerError, match="no member"):
        participant.step(Received("q", m.Whereabouts(("x",), 0, (), 3), ClassId(1, 0)))


def test_nothing_is_left_of_a_closed_class() -> None:
    world = run(setup(CHAIN, "abcdepq"), (10.0, "q", Join("z", "a")))

    assert findings(world) == []
    for host in world.hosts.values():
        site = host.participant
        assert not (site.draining or site.halted or site.earlier or site.askers or site.sending.unknown)
        assert ClassId(1, 0) not in site.machines


def test_the_end_waits_behind_what_is_held_back() -> None:
    """Errata 90: a message waits at a member for an earlier one of its source; `Close` comes behind it."""
    of_class = setup({"x": "ab", "y": "ab"}, "abp").classes[ClassId(1, 0)]
    one, two = (of_class.machine(Source(site, 1)) for site in "ab")
    assert isinstance(one, Propagation)
    root, other = (one, two) if one.routes.parent(0, "a") is None else (two, one)
    envelope = Envelope(of_class.id, ("x",), "p", 1, 7, b"later")
    held = Propagate(envelope, Tree(0, stamps.first_of(of_class.id)).next_stamp(), past=(("p", ("y",), 3),))

    effects = other.step(Received(root.me, Carry(1, 1, held), of_class.id))
    effects += other.step(Received(root.me, Carry(1, 2, Close()), of_class.id))

    assert not any(isinstance(effect, Deliver | Finished) for effect in effects)
    assert [str(held.what) for held in other.held()] == [str(envelope), "Close"]


def test_a_closed_entry_orders_nothing_of_its_own() -> None:
    """Errata 90: the end is here, the decision is not; what its own site sends is sent again in the next class."""
    of_class = setup({"x": "ab"}).classes[ClassId(1, 0)]
    entry = of_class.machine(Source(of_class.plan.groups["x"].entry, 1))  # type: ignore[union-attr]
    entry.step(Finish())

    assert not any(isinstance(effect, Deliver | Send) for effect in entry.step(Multicast(("x",), b"late")))
