"""The judge of logs in which groups change, while they are written: the worlds of `test_histories`, piece by piece."""

import random

import msgspec
import pytest

from ordercast.sim.exports import followed
from ordercast.verify import window_state
from ordercast.verify.findings import Sent
from ordercast.verify.histories import Histories
from ordercast.verify.numbers import Numbers
from ordercast.verify.stays import Change
from ordercast.verify.window import Window
from tests.support.changing_campaign import case
from tests.verify.test_histories import FORGED, SEEDS, exported, message, whole

MORE = (28, 42, 64, 109, 143, 185, 416, 428, 457, 517, 523, 536, 587, 601, 642, 672)
"""Each has shown a fault of this judge."""
PROMISES = frozenset(("total", "acyclic"))


def left(window: Window) -> tuple[int, set[str]]:
    return window.under_way, set(window.waits)


@pytest.mark.slow
@pytest.mark.parametrize("seed", (*SEEDS, *MORE))
def test_worlds_hold_piece_by_piece_and_nothing_is_left(seed: int) -> None:
    """Also with other lives of the judge, and when it waits for nobody who is away."""
    run, promises = exported(seed), PROMISES & case(seed).promises
    for order in range(6):
        waited_for = (100_000, 100_000, 20, 3, 0, 100_000)[order]
        window = followed(run, random.Random(f"{seed} {order}"), promises, waited_for, lives=order % 2 == 1)
        assert window.broken == {}, (seed, order, window.notes())
        if waited_for == 100_000:
            assert left(window) == (0, set()), (seed, order)
            assert not window.undone


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_one_forged_row_is_found(seed: int) -> None:
    """A hole is not: a log waits for it, and that is told. The end of a log is not there yet."""
    run = exported(seed)
    for name, rows in whole(run)[:3]:
        for what, (forge, _) in FORGED.items():
            if what not in ("a position without anything", "the last message is missing"):
                forged = forge(run, name, rows)
                window = followed(forged, random.Random(f"{seed} {name} {what}"), PROMISES)
                assert window.broken, (seed, name, what)


def window_of(*sites: str, waited_for: int = 100_000) -> Window:
    """Return a window of a cluster that begins with these sites in group x."""
    window = Window(PROMISES, waited_for)
    window.founded({"x": sites})
    for site in sites:
        window.began(site)
    return window


def sent(window: Window, *numbers: int, source: str = "s") -> None:
    for number in numbers:
        window.sent(f"{source}:{number}", Sent(("x",), source, number))
        window.written(source, number, number)


def delivered(window: Window, site: str, position: int, *numbers: int, epoch: int = 1) -> None:
    for at, number in enumerate(numbers, start=position):
        window.delivered(message(site, at, number, epoch=epoch))


def says(window: Window) -> list[str]:
    window.judge()
    return [finding.says for finding in window.broken.values()]


def test_what_is_everywhere_is_forgotten() -> None:
    window = window_of("p", "q")
    sent(window, 1, 2, 3)
    delivered(window, "p", 0, 1, 2, 3)
    delivered(window, "q", 0, 1, 2)

    assert says(window) == []
    assert left(window) == (1, {"s:3 has not come to q in x"})
    delivered(window, "q", 2, 3)
    assert says(window) == []
    assert left(window) == (0, set())
    assert (window.rows, window.sends) == ({"p": [], "q": []}, {})


def test_what_is_forgotten_does_not_come_again() -> None:
    for again, expected in (((3,), "q delivers s:3 twice"), ((2,), "stamps")):
        window = window_of("p", "q")
        sent(window, 1, 2, 3)
        delivered(window, "p", 0, 1, 2, 3)
        delivered(window, "q", 0, 1, 2, 3)
        assert says(window) == []
        delivered(window, "q", 3, *again)
        assert says(window)
        assert expected in (*says(window), *window.broken)


def test_a_source_is_heard_in_order_across_what_is_forgotten() -> None:
    window = window_of("p", "q")
    sent(window, 1, 2)
    for site in "pq":
        window.delivered(message(site, 0, 2, place=1))
    assert says(window) == []
    assert left(window) == (0, set())
    sent(window, 1)
    for site in "pq":
        window.delivered(message(site, 1, 1, place=2))

    assert "p delivers s:2 before s:1, sent earlier by s to x" in says(window)


def test_nothing_is_settled_before_all_founders_have_begun() -> None:
    window = Window(PROMISES)
    window.founded({"x": ["p", "q"]})
    window.began("p")
    sent(window, 1)
    delivered(window, "p", 0, 1)

    assert says(window) == []
    assert left(window) == (1, {"q has not begun", "s:1 has not come to q in x"})


def test_nothing_is_settled_while_a_founder_of_another_group_is_not_there() -> None:
    window = Window(PROMISES)
    window.founded({"x": ["p"], "y": ["q"]})
    window.began("p")
    sent(window, 1)
    delivered(window, "p", 0, 1)

    assert says(window) == [] and left(window) == (1, {"q has not begun"})
    window.began("q")
    assert says(window) == [] and left(window) == (0, set())


AWAY = Change(1, "view", "x", 2, ("p",), (), ("q",), ("q",))
BACK = Change(3, "view", "x", 3, ("p", "q"), ("q",))


def gone_and_back(waited_for: int) -> Window:
    """Site q is away while s:2 and s:3 come, and comes back with a state."""
    window = window_of("p", "q", waited_for=waited_for)
    sent(window, 1, 2, 3, 4, 5)
    delivered(window, "p", 0, 1)
    window.changed("p", AWAY)
    delivered(window, "p", 2, 2, epoch=2)
    assert says(window) == []
    window.changed("p", BACK)
    delivered(window, "p", 4, 4, 5, epoch=3)
    delivered(window, "q", 0, 1)
    window.changed("q", Change(1, "state", "x", 3))
    window.changed("q", Change(2, "view", "x", 3, ("p", "q"), ("q",)))
    return window


@pytest.mark.parametrize("waited_for", [0, 100])
def test_who_is_away_is_given_up_and_judged_again_when_it_is_back(waited_for: int) -> None:
    window = gone_and_back(waited_for)
    delivered(window, "q", 3, 4, epoch=3)

    assert says(window) == []
    assert left(window)[1] == {"s:5 has not come to q in x"}
    assert window.not_judged == (waited_for == 0)
    assert bool(window.notes()) == (waited_for == 0)
    delivered(window, "q", 4, 5, epoch=3)
    assert says(window) == []
    assert left(window) == (0, set())


@pytest.mark.parametrize("waited_for", [0, 100])
def test_who_is_back_must_have_everything_since(waited_for: int) -> None:
    window = gone_and_back(waited_for)
    delivered(window, "q", 3, 5, epoch=3)

    assert says(window) == ["q does not deliver s:4"]


def test_it_goes_on_from_its_state() -> None:
    """Whatever was read when it was saved, the next life finds what this one would."""
    window = window_of("p", "q")
    sent(window, 1, 2, 3)
    delivered(window, "p", 0, 1, 2, 3)
    delivered(window, "q", 0, 1, 2)
    assert says(window) == []
    saved = msgspec.msgpack.encode(window_state.snapshot(window))
    again = Window(PROMISES)
    window_state.restore(again, msgspec.msgpack.decode(saved, type=window_state.WindowState))

    assert msgspec.msgpack.encode(window_state.snapshot(again)) == saved
    delivered(again, "q", 2, 3)
    assert says(again) == []
    assert left(again) == (0, set())
    delivered(again, "q", 3, 3)
    assert says(again) == ["q delivers s:3 twice"]


def test_changes_far_behind_are_forgotten() -> None:
    window = window_of("p", "q")
    for epoch in range(2, 3000):
        sent(window, epoch)
        for site in "pq":
            window.changed(site, Change(2 * epoch - 4, "view", "x", epoch, ("p", "q")))
            delivered(window, site, 2 * epoch - 3, epoch, epoch=epoch)
        if epoch % 100 == 0:
            assert says(window) == []

    assert says(window) == []
    assert max(map(len, window.changes.values())) < 1000
    assert left(window) == (0, set())


MANY = 500  # views: more than are kept


def many_views(window: Window, sites: str, at: dict[str, int]) -> None:
    """Let members of another group, w, come and go; everything is read and settled."""
    for epoch in range(10, 10 + MANY):
        message_ = f"w:{epoch}"
        window.sent(message_, Sent(("w",), "w", epoch))
        window.written("w", epoch, epoch)
        for site in sites:
            window.changed(site, Change(at[site], "view", "w", epoch, tuple(sites)))
            row = message(site, at[site] + 1, epoch, groups="w", epoch=epoch)
            window.delivered(row._replace(msg_id=message_, source="w"))
            at[site] += 2
        if epoch % 50 == 0:
            assert says(window) == []


def again(window: Window, members: dict[str, str]) -> Window:
    """Return another life of a judge, which reads again who began in which group."""
    saved = msgspec.msgpack.encode(window_state.snapshot(window))
    other = Window(PROMISES)
    window_state.restore(other, msgspec.msgpack.decode(saved, type=window_state.WindowState))
    other.founded(members)
    return other


def test_who_has_left_long_ago_is_not_back_after_a_restart() -> None:
    members = {"x": "pq", "w": "pq"}
    window, at = Window(PROMISES), {"p": 1, "q": 1}
    window.founded(members)
    for site in "pq":
        window.began(site)
        window.changed(site, Change(0, "view", "x", 2, ("p",), (), ("q",)))
    many_views(window, "pq", at)
    window = again(window, members)
    sent(window, 800, 801)
    delivered(window, "p", at["p"], 800, 801, epoch=900)

    assert says(window) == [] and left(window) == (0, set())


def test_who_was_away_long_ago_is_known_to_have_been() -> None:
    """Message r:2 is in the log of r alone; the others have long told that r was away then."""
    window, at = Window(PROMISES), {"p": 1, "q": 1}
    window.founded({"x": "pqr", "w": "pq"})
    for site in "pqr":
        window.began(site)
    for site in "pq":
        window.changed(site, Change(0, "view", "x", 2, ("p", "q"), (), ("r",), ("r",)))
    many_views(window, "pq", at)
    window.sent("r:2", Sent(("x",), "r", 2))
    window.written("r", 1, 2)
    for site in "pq":
        window.changed(site, Change(at[site], "view", "x", 950, ("p", "q", "r"), ("r",)))
        delivered(window, site, at[site] + 1, 1000, epoch=950)
    sent(window, 1000)
    window.delivered(message("r", 0, 2)._replace(msg_id="r:2", source="r"))

    assert says(window) == []
    window.changed("r", Change(1, "undone", undone_from=0))
    window.changed("r", Change(2, "view", "x", 2, ("p", "q"), (), ("r",), ("r",)))
    window.changed("r", Change(3, "view", "x", 950, ("p", "q", "r"), ("r",)))
    delivered(window, "r", 4, 1000, epoch=950)
    assert says(window) == [] and left(window) == (0, set())


def test_who_came_in_long_ago_need_not_have_what_was_before() -> None:
    window, at = Window(PROMISES), {"p": 1, "q": 2}
    window.founded({"y": "pr", "w": "pq"})
    for site in "pqr":
        window.began(site)
    joins = ("view", "y", 3, ("p", "q", "r"), ("q",))
    window.changed("p", Change(0, *joins))
    window.changed("q", Change(0, "state", "y", 3))
    window.changed("q", Change(1, *joins))
    many_views(window, "pq", at)
    window.sent("s:1", Sent(("y",), "s", 1))
    window.written("s", 1, 1)
    window.delivered(message("r", 0, 1, groups="y"))
    window.changed("r", Change(1, *joins))

    assert max(len(window.changes[site]) for site in "pq") < MANY
    assert says(window) == []
    assert left(window) == (1, {"s:1 has not come to p in y"})


def test_an_undo_of_what_was_settled_ends_the_judgement() -> None:
    window = window_of("p", "q")
    sent(window, 1, 2)
    for site in "pq":
        delivered(window, site, 0, 1, 2)
    assert says(window) == []
    window.changed("p", Change(2, "undone", undone_from=1))
    delivered(window, "p", 3, 2)

    assert says(window) == []
    assert any("p has undone what was settled" in note for note in window.notes())


def test_two_sends_of_one_id_are_found() -> None:
    window = window_of("p", "q")
    sent(window, 1)
    window.sent("s:1", Sent(("x",), "s", 1, 0, 7))

    assert says(window) == ["s:1 is the id of two messages: sent to x as number 1 of s, and to x as number 1 of s"]


def test_a_cycle_between_groups_is_found() -> None:
    window = Window(PROMISES)
    window.founded({"x": "pq", "y": "pq"})
    for number, group in ((1, "x"), (2, "y")):
        window.sent(f"s:{number}", Sent((group,), "s", number))
    window.written("s", 1, 2)
    for site, numbers in (("p", (1, 2)), ("q", (2, 1))):
        for position, number in enumerate(numbers):
            window.delivered(message(site, position, number, groups="xy"[number - 1]))

    assert [finding.property for finding in window.broken.values()] == []
    says(window)
    assert {"total", "acyclic"} <= window.broken.keys()


def test_a_group_of_which_nobody_is_known_holds() -> None:
    window = window_of("p", "q")
    window.sent("s:1", Sent(("x", "z"), "s", 1))
    window.written("s", 1, 1)
    for site in "pq":
        window.delivered(message(site, 0, 1, groups="xz"))

    assert says(window) == []
    assert left(window) == (1, {"nobody is known who is in z"})


def test_numbers_are_a_set() -> None:
    for seed in range(50):
        chance, numbers, expected = random.Random(seed), Numbers(), set[int]()
        for _ in range(30):
            first = chance.randrange(40)
            last = first + chance.randrange(4)
            numbers.add(first, last)
            expected |= {*range(first, last + 1)}
            assert {number for number in range(-1, 50) if number in numbers} == expected
            assert all(a[1] + 1 < b[0] for a, b in zip(numbers.parts, numbers.parts[1:], strict=False))


def test_a_run_that_waits_for_nobody_is_right_too() -> None:
    """The bound at its smallest: whoever is away is given up at once."""
    run: Histories = exported(SEEDS[0])

    window = followed(run, random.Random(1), PROMISES, waited_for=0)
    assert window.broken == {}
