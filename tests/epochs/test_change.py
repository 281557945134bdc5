"""Configurations as values: requests, who is taken out, which classes close."""

import msgspec
import pytest

from ordercast.epochs.change import first_setup, plan_change, waiting, wanted
from ordercast.epochs.requests import (
    AddSite,
    Change,
    Create,
    Delete,
    Join,
    Leave,
    Move,
    Planned,
    RemoveSite,
    Set,
    SetLevel,
    read_change,
)
from ordercast.epochs.setup import GroupSetup, Setup, council_of
from ordercast.errors import LocalError
from ordercast.names import ClassId, Delivery, Level, Policy

AVAILABLE = Policy.AVAILABLE


def setup(level: Level = Level.ACYCLIC, policy: Policy = Policy.ATOMIC, causal: bool = False, **groups: str) -> Setup:
    sites = {site for members in groups.values() for site in members}
    made = {g: GroupSetup(tuple(m), policy=policy, delivery=Delivery.SAFE) for g, m in groups.items()}
    return first_setup(sites, made, level, causal=causal)


def ask(old: Setup, *changes: Change, suspected: str = "") -> Planned:
    asked = [("a", number, change) for number, change in enumerate(changes, start=max(old.answered.get("a", (0,))) + 1)]
    found = wanted(old, asked, frozenset(suspected))
    assert found is not None
    return plan_change(old, found)


def members(new: Setup) -> dict[str, str]:
    return {group: "".join(new.members(group)) for group in new.groups}


def test_requests_change_groups_and_only_touched_classes_close() -> None:
    old = setup(x="abc", y="de", z="fg")

    planned = ask(old, Join("x", "d"), Leave("y", "e"), Create("w", ("f",)))

    assert members(planned.setup) == {"w": "f", "x": "abcd", "y": "d", "z": "fg"}
    assert planned.setup.number == 2
    assert ClassId(1, 2) in planned.setup.classes, "z has nothing to do with it"
    assert ClassId(1, 2) not in planned.closed


def test_what_cannot_be_done_is_refused_and_the_rest_is_done() -> None:
    old = setup(x="abc", y="de")
    no: list[Change] = [
        Join("x", "q"), Join("q", "a"), Join("x", "a"), Leave("y", "a"), Delete("q"), Create("x", ("a",)),
        Create("n", ()), RemoveSite("q"), Set("q"), Set("x", protocol="q"),
    ]  # fmt: skip

    planned = ask(old, *no, Delete("y"))

    assert [number for _, number, _ in planned.refused] == list(range(1, len(no) + 1))
    assert list(planned.setup.groups) == ["x"]
    assert planned.setup.answered == {"a": (len(no) + 1,)}


@pytest.mark.parametrize(
    ("change", "closed"),
    [
        (Join("x", "d"), 2),  # x and y share c and d then: two classes become one
        (AddSite("q", "127.0.0.1:1"), 0),
        (RemoveSite("a"), 1),
        (Set("x", protocol="sequencer"), 1),
        (Set("x", policy=Policy.AVAILABLE), 1),
        (SetLevel(Level.TOTAL), 2),
    ],
    ids=str,
)
def test_which_classes_close(change: Change, closed: int) -> None:
    assert len(ask(setup(x="abc", y="cd"), change).closed) == closed


def test_a_site_that_leaves_the_bridge_splits_a_class() -> None:
    old = setup(x="abc", y="bcd")
    assert len(old.classes) == 1

    assert len(ask(old, Leave("y", "b")).setup.classes) == 2


def test_a_class_that_stays_open_closes_when_it_could_close_a_circle() -> None:
    """Errata 80: E={s,t} stays, g={s,u} loses s and gets t; a message of E under way meanwhile closes a circle."""
    old = setup(e="st", g="su")

    first = ask(old, Leave("g", "s"))
    second = ask(first.setup, Join("g", "t"))

    assert first.closed == (ClassId(1, 1),), "nothing can go wrong yet"
    assert second.closed == (ClassId(1, 0), ClassId(2, 1)), "the class of e is older than the first change"
    third = ask(second.setup, Leave("g", "t"))
    assert third.closed == (ClassId(3, 1),), "and is new now"


def test_level_total_needs_no_such_thing() -> None:
    first = ask(setup(Level.TOTAL, e="st", g="su"), Leave("g", "s"))

    assert ask(first.setup, Join("g", "t")).closed == (ClassId(2, 1),)


def test_suspected_members_are_taken_out_and_come_back() -> None:
    old = setup(policy=AVAILABLE, x="abc", y="cd")

    out = ask(old, suspected="a")
    assert members(out.setup) == {"x": "bc", "y": "cd"}
    assert out.setup.away == {"a": ("x",)}
    assert out.closed == (ClassId(1, 0),)

    back = wanted(out.setup, [], frozenset())
    assert back is not None and members(plan_change(out.setup, back).setup) == {"x": "abc", "y": "cd"}


def test_atomic_takes_nobody_out() -> None:
    old = setup(x="abc", y="cd")

    assert wanted(old, [], frozenset("a")) is None
    assert waiting(old, frozenset("a")) == {ClassId(1, 0)}


def test_the_strictest_policy_of_a_class_counts() -> None:
    groups = {"x": GroupSetup(tuple("abc"), policy=AVAILABLE), "y": GroupSetup(tuple("bcd"), policy=Policy.ATOMIC)}

    assert wanted(first_setup("abcd", groups), [], frozenset("a")) is None


def test_the_last_who_has_a_group_s_state_is_not_taken_out() -> None:
    """Nobody else knows what was delivered: its class waits, and others do not."""
    old = setup(policy=AVAILABLE, x="ab", y="ac", z="de")

    assert wanted(old, [], frozenset("ab")) is not None, "c is in y, and d and e in z"
    assert waiting(old, frozenset("ab")) == {ClassId(1, 0)}
    assert members(ask(old, suspected="abd").setup) == {"x": "ab", "y": "c", "z": "e"}


def test_a_request_waits_while_its_class_does() -> None:
    """And another one does not."""
    old = setup(x="abc", y="de")

    planned = ask(old, Leave("x", "b"), Leave("y", "d"), suspected="a")

    assert members(planned.setup) == {"x": "abc", "y": "e"}


def test_classes_count_those_who_are_away() -> None:
    """Errata 82: a and c see x and y in one order, also what c is given when it is back."""
    old = setup(Level.TOTAL, AVAILABLE, x="abc", y="acd")

    out = ask(old, suspected="c").setup

    assert len(out.classes) == 1, "without c they would share a only"


def test_who_is_partly_away_is_given_states() -> None:
    groups = {"x": GroupSetup(tuple("ab"), policy=AVAILABLE), "y": GroupSetup(tuple("bc"), policy=Policy.ATOMIC)}

    out = ask(first_setup("abc", groups), suspected="b").setup

    assert (out.away, out.partly) == ({"b": ("x",)}, ("b",))


def test_causal_order_with_rollback_is_refused() -> None:
    """Errata 22 iv: what is rolled back may have caused messages that stay."""
    with pytest.raises(LocalError, match="causal order with policy available takes delivery safe"):
        first_setup("ab", {"x": GroupSetup(("a", "b"), policy=AVAILABLE, delivery=Delivery.AGREED)}, causal=True)


def test_causal_order_takes_a_protocol_that_keeps_it() -> None:
    """One that keeps it inside one order only has all groups in one; one that keeps none is refused by name."""
    groups = {
        name: GroupSetup(tuple(sites), "combining", delivery=Delivery.SAFE)
        for name, sites in (("x", "ab"), ("y", "cd"))
    }
    one = first_setup("abcd", groups, causal=True)
    several = ask(one, Set("x", protocol="sequencer")).setup
    refused = ask(one, Set("x", protocol="two-phase"), AddSite("e")).refused

    assert [of_class.parts for of_class in one.classes.values()] == [(("x", "y"),)]
    assert [of_class.parts for of_class in several.classes.values()] == [(("x",), ("y",))]
    assert refused[0][2].startswith("protocol two-phase keeps no causal order")


def test_the_council_is_five_sites_those_who_are_there_first() -> None:
    sites = dict.fromkeys("abcdefg", "")

    assert council_of(sites, {}) == tuple("abcde")
    assert council_of(sites, {"b": ("x",)}) == tuple("acdef")
    assert council_of(dict.fromkeys("abc", ""), {"a": ("x",)}) == tuple("abc")


def test_the_last_who_is_there_does_not_leave() -> None:
    out = ask(setup(policy=AVAILABLE, x="ab"), suspected="a").setup

    assert "last who is there" in ask(out, Leave("x", "b"), AddSite("b", "new"), suspected="a").refused[0][2]


def sequenced(policy: Policy = AVAILABLE, sequencers: tuple[str, ...] = (), **groups: str) -> Setup:
    options = {"policy": policy, "delivery": Delivery.SAFE, "sequencers": sequencers}
    made = {g: GroupSetup(tuple(m), "sequencer", **options) for g, m in groups.items()}  # type: ignore[arg-type]
    return first_setup("abcdefpq", made)


def by(setup: Setup) -> dict[str, str | None]:
    return {group: setup.classes[class_id].ordered_by(group) for group, class_id in setup.class_of.items()}


def test_a_group_moves_to_another_sequencer_with_all_that_is_ordered_with_it() -> None:
    old = sequenced(x="abc", y="bc", z="de")
    assert by(old) == {"x": "b", "y": "b", "z": "d"}

    planned = ask(old, Move("y", ("p",)), Move("x", ("none",)), Move("n", ("p",)))

    assert by(planned.setup) == {"x": "p", "y": "p", "z": "d"}
    assert planned.closed == (old.class_of["x"],), "z stays open"
    assert [reason for _, _, reason in planned.refused] == [
        "group 'x': there is no site 'none'",
        "there is no group 'n'",
    ]
    assert by(ask(planned.setup, Move("x", ())).setup)["x"] == "b", "a member again"


def test_a_group_is_deleted_while_what_is_ordered_with_it_moves() -> None:
    """Both are one change; the campaign has found a manager that stumbled over it."""
    planned = ask(sequenced(x="abc", y="bc"), Delete("y"), Move("x", ("p",)))

    assert (by(planned.setup), planned.refused) == ({"x": "p"}, ())


def test_new_classes_are_shared_out_beside_what_others_have() -> None:
    old = sequenced(sequencers=("p", "q"), x="abc", y="de")
    assert by(old) == {"x": "p", "y": "q"}

    assert by(ask(old, Create("z", ("f",))).setup) == {"x": "p", "y": "q", "z": "q"}
    assert by(ask(old, RemoveSite("p")).setup) == {"x": "q", "y": "q"}
    assert by(ask(old, suspected="q").setup) == {"x": "p", "y": "p"}, "its class goes on without it"
    assert by(ask(old, suspected="pq").setup) == {"x": "a", "y": "d"}, "nobody who is named is there: members do"


def test_who_has_no_sequencers_takes_none() -> None:
    reasons = [reason for _, _, reason in ask(setup(x="abc"), Move("x", ("a",)), Create("y", ("a",))).refused]
    assert reasons == ["group 'x': protocol propagation has no sequencers"]
    other = ask(sequenced(sequencers=("p",), x="abc"), Set("x", protocol="arrow")).setup
    assert other.groups["x"].sequencers == ()
    with pytest.raises(LocalError, match="protocol arrow has no sequencers"):
        first_setup("ab", {"x": GroupSetup(("a",), "arrow", sequencers=("b",))})


def test_who_may_sequence_is_no_part_of_a_class() -> None:
    """A spare sequencer is removed: no class closes for it, so nothing waits because a class cannot close."""
    old = sequenced(Policy.ATOMIC, ("p", "q"), x="abc", y="de")

    planned = ask(old, RemoveSite("q"), Join("y", "f"), suspected="b")

    assert old.class_of["x"] in planned.setup.classes, "b is away, and x waits for it; y does not"
    assert planned.setup.groups["x"].sequencers == ("p",)


def test_a_class_of_an_earlier_version_says_nothing_of_its_sequencer() -> None:
    old = sequenced(x="abc", y="de")
    classes = {class_id: msgspec.structs.replace(c, sequencers=()) for class_id, c in old.classes.items()}
    earlier = msgspec.structs.replace(old, classes=classes)

    assert ask(earlier, Join("y", "f")).closed == (old.class_of["y"],), "x stays open"


def test_a_transfer_is_done_or_refused() -> None:
    old = sequenced(sequencers=("p",), x="abc")
    without = ask(old, suspected="p").setup
    assert by(without) == {"x": "a"}

    assert by(ask(without, Move("x", ("p",))).setup) == {"x": "p"}, "it is named already, and was away"
    refused = ask(old, Move("x", ("q",)), Join("x", "d"), suspected="q")
    assert [reason for _, _, reason in refused.refused] == ["q cannot sequence group 'x': not there now"]
    assert by(refused.setup) == {"x": "p"}


def test_nothing_is_sequenced_where_a_disk_is_empty() -> None:
    """Site q lost its disk, and cannot be taken in: x, which is atomic, needs it, and waits for b."""
    groups = {"x": "abc", "y": "de"}
    made = {g: GroupSetup(tuple(m), "sequencer", policy=AVAILABLE, sequencers=("q",)) for g, m in groups.items()}
    made["x"] = msgspec.structs.replace(made["x"], policy=Policy.ATOMIC)
    old = first_setup("abcdepq", made)

    found = wanted(old, (), frozenset("b"), lives={"q": 7})

    assert found is not None
    assert by(plan_change(old, found).setup) == {"x": "q", "y": "d"}


def test_groups_that_were_moved_apart_do_not_say_where_a_new_one_goes() -> None:
    together, apart = sequenced(sequencers=("p",), x="abc", y="de"), sequenced(x="abc", y="de")
    assert by(ask(together, Create("z", ("f",))).setup)["z"] == "p"
    moved = ask(apart, Move("x", ("p",))).setup
    assert by(ask(moved, Create("z", ("f",))).setup)["z"] == "f"


def test_a_sequencer_that_is_no_site_is_refused() -> None:
    with pytest.raises(LocalError, match="group 'x': there is no site 'n'"):
        first_setup("ab", {"x": GroupSetup(("a",), "sequencer", sequencers=("n",))})


def test_apply_says_in_words_that_a_sequencer_is_to_migrate() -> None:
    change = read_change("set", "x", (), {"protocol": "sequencer", "migrate": "true"})
    assert ask(setup(x="abc"), change).setup.groups["x"].migrate
    assert not ask(sequenced(x="abc"), Set("x", migrate=True), Set("x", protocol="arrow")).setup.groups["x"].migrate
