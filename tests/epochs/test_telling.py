"""How a decision gets to everybody: only what is new, those whom it concerns first, and nothing again without need."""

from collections import Counter
from itertools import pairwise

import msgspec
import pytest

from ordercast.core.effects import Send
from ordercast.core.events import Envelope, LinkUp, Received, Tick
from ordercast.epochs.change import first_setup, plan_change
from ordercast.epochs.difference import difference, together
from ordercast.epochs.messages import CONTROL, AskDone, Cut, Id, Line
from ordercast.epochs.recovery import as_reported, cut_of
from ordercast.epochs.repeats import TICKS_AT_MOST, Repeats
from ordercast.epochs.requests import AddSite, Change, Create, Delete, Join, Leave, RemoveSite, Wanted
from ordercast.epochs.setup import GroupSetup, Setup
from ordercast.epochs.track import Entry, Recent
from ordercast.names import ClassId, Level, Policy
from ordercast.node.changing import neighbours
from ordercast.wire.frames import FRAME_AT_MOST
from tests.epochs.test_rules import Cluster, ask, epochs, without

SITES = [f"s{index:02}" for index in range(60)]


def many(level: Level = Level.TOTAL) -> Setup:
    """Return sixty sites in twenty groups of three that share nobody."""
    groups = {f"g{index:02}": GroupSetup(tuple(SITES[3 * index : 3 * index + 3])) for index in range(20)}
    return first_setup(SITES, groups, level=level)


def after(setup: Setup, *changes: Change) -> Setup:
    """Return the next configuration."""
    from ordercast.epochs.change import wanted

    asked = [("s00", number, change) for number, change in enumerate(changes, start=1)]
    found = wanted(setup, asked, frozenset(), set(), {}, {}, set(), finish=False)
    assert isinstance(found, Wanted)
    return plan_change(setup, found).setup


@pytest.mark.parametrize(
    "changes",
    [
        [Join("g00", "s30")],
        [Leave("g00", "s01")],
        [Create("new", ("s00", "s59"))],
        [Delete("g07")],
        [AddSite("another", "there")],
        [RemoveSite("s59")],
        [Delete("g07"), Join("g01", "s00"), Leave("g02", "s08"), AddSite("another", "there"), RemoveSite("s40")],
    ],
    ids=str,
)
def test_what_is_new_and_what_was_make_the_new(changes: list[Change]) -> None:
    old = many()
    new = after(old, *changes)

    news, gone = difference(old, new)
    made = together(old, news, gone)

    assert made == new
    assert made.digest == new.digest, "in the same order, too"
    assert all(made.classes[c] is old.classes[c] for c in made.classes.keys() & old.classes.keys())
    small = msgspec.msgpack.encode(news)
    assert len(small) < len(msgspec.msgpack.encode(new)) / 4


def count_messages(changes: int) -> tuple[Cluster, Counter[str]]:
    """Let a member of one of many groups come and go; return what was said."""
    cluster = Cluster({"x": "abc", "y": "def", "z": "ghi"}, "abcdefghijklmnopqrstuvwxyz")
    said: Counter[str] = Counter()
    do = cluster._do

    def count(name: str, effect: object) -> None:
        if isinstance(effect, Send):
            said[type(effect.message).__name__] += 1
        do(name, effect)

    cluster._do = count  # type: ignore[method-assign]
    for index in range(changes):
        cluster.ask("a", ask(("Join", "Leave")[index % 2], "x", "d"))
        cluster.settle()
    return cluster, said


def test_a_change_is_told_once_to_everybody() -> None:
    cluster, said = count_messages(4)

    assert {site.setup.number for site in cluster.sites.values()} == {5}
    others = len(cluster.sites) - 1
    assert said["Decided"] == 4 * others and said["Done"] == 4 * others
    assert said["At"] <= 4 * others, "each says once that it knows"
    assert said["Installed"] + said["AskInstalled"] + said["AskDone"] <= 4 * 8, "only who has something to install"
    assert sum(said.values()) <= 4 * (3 * others + 50), said


def test_whom_it_concerns_hears_first() -> None:
    cluster = Cluster({"x": "klm", "y": "def"}, "abcdefghijklmnopqrstuvwxyz")
    cluster.ask("a", ask("Join", "x", "z"))
    cluster.run()

    know = {name for name, site in cluster.sites.items() if site.setup.number == 2}
    assert know == {*"abcde", *"klmz"}, "the council, the members and who joins"
    cluster.tick()
    assert sum(site.setup.number == 2 for site in cluster.sites.values()) > len(know), "then some more"
    cluster.settle()
    assert {site.setup.number for site in cluster.sites.values()} == {2}


def test_who_follows_a_manager_tells_those_who_were_not_told() -> None:
    """The manager dies when it has told whom it concerns; under `atomic` nothing else is decided without it.

    All who were to be told suspect it, and tell the next one so, and which configuration they are in.
    """

    def scenario() -> set[int]:
        cluster = Cluster({"x": "bcd"}, "abcdefghijklmnopqrstuvwxyz", policy=Policy.ATOMIC)
        cluster.ask("a", ask("Leave", "x", "b"))
        cluster.run()
        cluster.crash("a")
        cluster.suspect("a", "bcdefghijklmnopqrstuvwxyz")
        cluster.tick(40)
        return {site.setup.number for name, site in cluster.sites.items() if name != "a"}

    assert scenario() == {2}
    rule = ("                self.behind.at(sender, message.number)\n", "")
    assert without(scenario, rule) == {1, 2}


def test_who_was_not_told_when_the_next_was_decided_is_told_both() -> None:
    cluster = Cluster({"x": "klm", "y": "def"}, "abcdefghijklmnopqrstuvwxyz")
    for site in "zyxwv":
        cluster.ask("a", ask("Join", "x", site))
        cluster.run()
    assert cluster.sites["t"].setup.number < cluster.sites["a"].setup.number
    cluster.settle()
    assert {site.setup.number for site in cluster.sites.values()} == {cluster.sites["a"].setup.number}


def test_what_is_not_answered_is_said_again_less_and_less_often() -> None:
    repeats = Repeats()
    said = []
    for tick in range(40):
        if repeats.due("something"):
            said.append(tick)
        repeats.tick()

    gaps = [b - a for a, b in pairwise(said)]
    assert gaps[:4] == [1, 2, 4, 8] and set(gaps[4:]) == {TICKS_AT_MOST}
    repeats.again()
    assert repeats.due("something"), "a link is there again"


def test_what_nobody_asks_for_any_more_is_forgotten() -> None:
    repeats = Repeats()
    repeats.due("something")
    for _ in range(3 * TICKS_AT_MOST):
        repeats.tick()
    assert not repeats._said


def test_a_link_that_comes_up_makes_a_site_say_again_what_it_waits_for() -> None:
    cluster = Cluster({"x": "abc"}, "abcd")
    cluster.lose("Done *->d")
    cluster.ask("a", ask("Leave", "x", "c"))
    cluster.run()
    cluster.tick(12)
    there = cluster.sites["d"]
    assert there.undone, "it has not heard that all have installed it"

    there.step(LinkUp("a"))
    effects = there.step(Tick(99.0))

    assert any(isinstance(effect, Send) and isinstance(effect.message, AskDone) for effect in effects)


def test_links_grow_with_the_plans_and_not_with_the_square_of_the_sites() -> None:
    for level in Level:
        setup = many(level)
        linked = {site: neighbours(setup, site) for site in setup.sites}
        assert all(site in linked[other] for site in linked for other in linked[site]), "both sides know"
        assert all(set(setup.council) - {site} <= linked[site] for site in linked)
        pairs = sum(map(len, linked.values())) // 2
        edges = sum(len(c.plan.edges) for c in setup.classes.values() if c.plan is not None)
        assert pairs <= len(setup.council) * len(SITES) + edges


def test_errata_111_what_is_stable_is_in_the_history_of_who_is_absent() -> None:
    x = ("x",)
    stable = Cut(((x, 2),), (), ((Id("d", 1, 3), x),))
    assert as_reported(stable, "d").last == stable.last
    assert cut_of({"b": as_reported(stable, "b"), "d": as_reported(stable, "d")}) == stable

    line = Line(0, b"1", Id("d", 1, 7), x, 3, ("d",))
    more = Cut(((x, 2),), (line,), ((Id("d", 1, 7), x),))
    assert cut_of({"d": as_reported(more, "d")}).last == ((Id("d", 1, 7), x),)
    assert cut_of({"b": as_reported(more, "b")}).last == ((Id("d", 1, 6), x),), "what came before the line is stable"


def test_errata_112_what_a_checkpoint_knows_is_looked_at_again() -> None:
    """Site a has heard that all have a message, and died before it concluded that the message is stable."""

    def scenario() -> bool:
        cluster = Cluster({"x": "ab"}, "abc")
        cluster.send("b", "x")
        cluster.run()
        site = cluster.sites["a"]
        track = next(iter(site.tracks.values()))
        assert track.unstable == [("x",)]
        track.heard[("x",)] = {"b": 1}
        for _ in range(8):
            cluster.feed("a", Tick(1.0))
        return bool(site.stability.idle)

    assert scenario()
    assert not without(scenario, ("        if not lack:\n", "        if False:\n"))


def test_errata_113_who_has_lost_its_disk_does_not_know_what_is_done() -> None:
    def scenario() -> list[str]:
        cluster = Cluster({"x": "cde"}, "abcde", policy=Policy.ATOMIC)
        cluster.lose("* *->e", "* e->*")  # it is paused, and the class that it leaves is not done without it
        cluster.ask("b", ask("Leave", "x", "e"))
        cluster.tick(4)
        cluster.come_empty("a")
        cluster.run()
        there = cluster.sites["a"]
        assert there.setup.number and not there.admitted
        question = epochs("messages").AskDone(there.setup.number)
        said = there.step(Received("b", question, CONTROL))
        return [str(effect.message) for effect in said if isinstance(effect, Send)]

    assert scenario() == []
    rule = (" and self.remembers(which):\n", ":\n")
    assert without(scenario, rule) != []


def test_errata_113_who_has_lost_its_disk_leads_last() -> None:
    def scenario() -> set[str]:
        cluster = Cluster({"x": "cde"}, "abcde")
        cluster.settle()
        assert {site.leader for site in cluster.sites.values()} == {"a"}
        cluster.come_empty("a")
        cluster.settle()
        assert cluster.sites["a"].admitted
        return {site.leader for site in cluster.sites.values()}

    assert scenario() == {"b"}
    assert without(scenario, ("(lives.get(name, (0, 0))[1], name)", "name")) == {"a"}


def test_what_is_kept_for_who_comes_back_fits_into_one_message() -> None:
    def entry(number: int, size: int) -> Entry:
        return Entry(ClassId(1, 0), 0, b"", Envelope(ClassId(1, 0), ("x",), "a", 1, number, bytes(size)), number)

    recent = Recent((number, entry(number, 1)) for number in range(Recent.most + 5))
    assert len(recent) == Recent.most and next(iter(recent))[0] == 5

    large = Recent((number, entry(number, 2**20)) for number in range(40))
    assert large.bytes == Recent.most_bytes and [count for count, _ in large] == list(range(24, 40))
    assert len(Recent([(1, entry(1, Recent.most_bytes + 1))])) == 0, "nothing that cannot be sent"
    of_each = 64 + len(msgspec.msgpack.encode(entry(2**40, 0)))
    assert Recent.most_bytes + of_each * Recent.most < FRAME_AT_MOST
