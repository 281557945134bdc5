"""The judge of logs in which groups change: worlds of nodes, and the same with one thing forged."""

from collections.abc import Callable
from typing import Any

import pytest

from ordercast.sim import changing_nodes
from ordercast.verify.findings import Delivery, Sent
from ordercast.verify.histories import Change, Histories, Log, site_of
from tests.support.changing_campaign import case

SEEDS = (3, 103, 104, 116, 124, 155, 194, 448, 755, 787, 1474)
"""With rollbacks, states, lost disks, groups that are deleted, sites that are removed; 104 and 124: errata 120."""


def exported(seed: int) -> Histories:
    found, ran = changing_nodes.run(case(seed))
    assert found == []
    return ran.world.exports.histories()


def broken(run: Histories) -> set[str]:
    return {finding.property for finding in run.judge()}


def forged(run: Histories, name: str, rows: list[Delivery], changes: list[Change] | None = None) -> Histories:
    log = run.logs[name]
    new = Log(rows, log.changes if changes is None else changes, log.begins)
    return Histories({**run.logs, name: new}, run.sends, run.posts, run.dropped)


def whole(run: Histories) -> list[tuple[str, list[Delivery]]]:
    """Return logs with the rows of a group whose line they have to the end, and two others have, too."""
    found = []
    for name, follower in run.followers.items():
        for group, stay in follower.open.items():
            others = [s for s in run._stays() if s.group == group and s.log != name and run._goes_on(s) and s.rows]
            if run._goes_on(stay) and len(stay.rows) > 3 and others and run._newest[site_of(name)] == name:
                found.append((name, stay.rows))
    return found


def _left_out(run: Histories, name: str, rows: list[Delivery]) -> Histories:
    """The position is taken by something else, so that only the message is missing."""
    gone = rows[len(rows) // 2]
    kept = [row for row in run.logs[name].rows if row.position != gone.position]
    filler = Change(gone.position, "view", "no such group")
    return forged(run, name, kept, [*run.logs[name].changes, filler])


def _last_left_out(run: Histories, name: str, rows: list[Delivery]) -> Histories:
    kept = [row for row in run.logs[name].rows if row.position != rows[-1].position]
    return forged(run, name, kept, [*run.logs[name].changes, Change(rows[-1].position, "view", "no such group")])


def _twice(run: Histories, name: str, rows: list[Delivery]) -> Histories:
    log = run.logs[name]
    end = 1 + max([row.position for row in log.rows] + [change.position for change in log.changes])
    return forged(run, name, [*run.logs[name].rows, rows[1]._replace(position=end)])


def _exchanged(run: Histories, name: str, rows: list[Delivery]) -> Histories:
    one, other = rows[-2], rows[-1]
    places = {one.position: other.position, other.position: one.position}
    swapped = [row._replace(position=places.get(row.position, row.position)) for row in run.logs[name].rows]
    return forged(run, name, swapped)


def _other_body(run: Histories, name: str, rows: list[Delivery]) -> Histories:
    at = rows[1].position
    return forged(run, name, [r._replace(body=b"forged") if r.position == at else r for r in run.logs[name].rows])


def _another(run: Histories, name: str, rows: list[Delivery]) -> Histories:
    at = rows[1].position
    return forged(run, name, [r._replace(msg_id="nobody:1") if r.position == at else r for r in run.logs[name].rows])


def _hole(run: Histories, name: str, rows: list[Delivery]) -> Histories:
    return forged(run, name, [row for row in run.logs[name].rows if row.position != rows[0].position])


FORGED: dict[str, tuple[Callable[[Histories, str, list[Delivery]], Histories], str]] = {
    "a message is missing": (_left_out, "completeness"),
    "the last message is missing": (_last_left_out, "completeness"),
    "a message comes twice": (_twice, "duplicate"),
    "two messages are exchanged": (_exchanged, "stamps"),
    "another body": (_other_body, "body"),
    "a message that nobody sent": (_another, "creation"),
    "a position without anything": (_hole, "completeness"),
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_one_forged_row_is_found(seed: int) -> None:
    run = exported(seed)
    assert broken(run) == set()
    chosen = whole(run)[:3]
    for name, rows in chosen:
        for what, (forge, property_) in FORGED.items():
            assert property_ in broken(forge(run, name, rows)), (seed, name, what)


def test_worlds_have_something_to_forge() -> None:
    run = exported(SEEDS[0])

    assert whole(run)


def message(site: str, position: int, number: int, groups: str = "x", epoch: int = 1, place: int = 0) -> Delivery:
    stamp = epoch.to_bytes(8, "big") + (place or number).to_bytes(8, "big")
    return Delivery(site, position, f"s:{number}", tuple(groups), "s", number, epoch, "x", stamp)


def judged(logs: dict[str, Log], **more: Any) -> list[str]:
    sends = {row.msg_id: (row.groups, row.source, row.number) for log in logs.values() for row in log.rows}
    told = {message: Sent(*sent) for message, sent in sends.items()}
    return [finding.says for finding in Histories(logs, told, **more).judge()]


X, Y = frozenset("x"), frozenset("y")


def test_what_was_undone_does_not_count_and_what_came_again_does() -> None:
    """Site p delivers s:2 alone; it is undone, placed again in the next class, and comes after a message of t."""
    of_t = [message("p", 3, 7, epoch=2, place=1), message("q", 1, 7, epoch=2, place=1)]
    of_t = [row._replace(msg_id="t:7", source="t") for row in of_t]
    back = [message("p", 0, 1), message("p", 1, 2), of_t[0], message("p", 4, 2, epoch=2, place=2)]
    other = Log([message("q", 0, 1), of_t[1], message("q", 2, 2, epoch=2, place=2)], [], X)

    assert [] == judged({"p": Log(back, [Change(2, "undone", undone_from=1)], X), "q": other})
    assert "p delivers s:2 twice" in judged({"p": Log(back, [Change(2, "view", "no such group")], X), "q": other})


def test_who_comes_in_with_a_state_has_everything_since() -> None:
    old = [message("p", 0, 1), message("p", 2, 2, epoch=3), message("p", 3, 3, epoch=3)]
    joins = [Change(0, "state", "x", 3), Change(1, "view", "x", 3, ("p", "q"), ("q",))]
    view = Change(1, "view", "x", 3, ("p", "q"), ("q",))

    assert [] == judged(
        {"p": Log(old, [view], X), "q": Log([message("q", 2, 2, epoch=3), message("q", 3, 3, epoch=3)], joins)}
    )
    late = Log([message("q", 2, 3, epoch=3)], joins)
    assert ["q does not deliver s:2"] == judged({"p": Log(old, [view], X), "q": late})
    early = Log([message("q", 2, 1), message("q", 3, 2, epoch=3), message("q", 4, 3, epoch=3)], joins)
    assert "q delivers s:1 of epoch 1, but came into its group with epoch 3" in judged(
        {"p": Log(old, [view], X), "q": early}
    )


def test_who_waits_for_a_state_gets_what_comes_to_another_group_too() -> None:
    """Q comes with an empty disk; s:2 goes to y, where it is alone, and to x, whose state it is still to be given."""
    views = [Change(1, "view", "x", 2, ("p", "q")), Change(4, "view", "x", 4, ("p", "q"))]
    comes = [Change(0, "view", "x", 2, ("p", "q")), Change(1, "view", "y", 2, ("q",)), Change(3, "state", "x", 4)]
    for to, wrong in (("xy", []), ("x", ["q does not deliver s:1"])):
        old = [message("p", 0, 0), message("p", 2, 1, epoch=2), message("p", 3, 2, to, 3), message("p", 5, 3, epoch=4)]
        new = [message("q", 2, 2, to, 3), message("q", 4, 3, epoch=4)]

        assert wrong == judged({"p": Log(old, views, X), "q": Log(new, comes)})


def test_who_joins_and_is_gone_before_it_was_given_a_state_has_nothing_of_the_group_alone() -> None:
    """Q comes into x and y, waits for x's state, gets s:2 through y, and leaves x; s:1 came to x alone."""
    joins = Change(1, "view", "x", 2, ("p", "q"), ("q",))
    goes = Change(4, "view", "x", 3, ("p",), (), ("q",))
    old = [message("p", 0, 0), message("p", 2, 1, epoch=2), message("p", 3, 2, "xy", 2)]
    for begins, wrong in ((joins, []), (joins._replace(joined=("p", "q")), ["q does not deliver s:1"])):
        own = [begins._replace(position=0), goes._replace(position=2)]
        new = Log([message("q", 1, 2, "xy", 2)], own, frozenset("y"))

        assert wrong == judged({"p": Log(old, [begins, goes], X), "q": new})


def test_who_waits_for_a_state_that_is_lost_with_a_disk_begins_anew() -> None:
    """Q joins x, r leaves it, and p, the only one with its state, loses its disk: x goes on with what comes to q."""
    joins = Change(1, "view", "x", 2, ("p", "q", "r"), ("q",))
    leaves = Change(3, "view", "x", 3, ("p", "q"), (), ("r",))
    had = [message("p", 0, 0), message("p", 2, 1, epoch=2)]
    r = Log([row._replace(site="r") for row in had], [joins, leaves], frozenset("xy"))
    views = [joins._replace(position=0), leaves._replace(position=1)]
    q = Log([message("q", 2, 2, epoch=4)], views)
    anew = Log([message("p@9", 1, 2, epoch=4)], [Change(0, "state", "x", 4)])
    logs = {"p": Log(had, [joins, leaves], X), "q": q, "r": r}

    assert [] == judged({**logs, "p@9": anew})
    kept = Log([*had, message("p", 4, 2, epoch=4)], [joins, leaves], X)
    assert ["q does not deliver s:1"] == judged({**logs, "p": kept})


def test_what_only_a_removed_site_had_is_told_and_not_judged() -> None:
    """Site p delivers s:2, is removed, and comes back with an empty disk; s:2 is sent again, in another class."""
    view = Change(2, "view", "x", 2, ("q",), (), ("p",))
    one = Log([message("p", 0, 1), message("p", 1, 2)], [view], X)
    other = [message("q", 0, 1), message("q", 2, 2, epoch=2), message("q", 4, 3, epoch=3)]
    views = [view._replace(position=1), Change(3, "view", "x", 3, ("p", "q"), ("p",))]
    back = Log([message("p@9", 2, 3, epoch=3)], [Change(0, "state", "x", 3), views[1]._replace(position=1)])
    logs = {"p": one, "q": Log(other, views, X)}

    assert [] == judged({**logs, "p@9": back})
    left = {**logs, "p": Log(one.rows, [view], frozenset("xy"))}  # it has left x, and is there in y
    assert "q does not deliver s:2" in judged(left)


def test_who_has_left_gets_no_more() -> None:
    stays = [message("p", 0, 1), message("p", 2, 2, epoch=2)]
    left = Change(1, "view", "x", 2, ("p",), (), ("q",))

    assert [] == judged({"p": Log(stays, [left], X), "q": Log([message("q", 0, 1)], [left], X)})
    after = Log([message("q", 0, 1), message("q", 2, 2, epoch=2)], [left], X)
    assert ["q delivers s:2 to x, but is not a member"] == judged({"p": Log(stays, [left], X), "q": after})


def test_what_a_lost_disk_had_is_told_and_not_judged() -> None:
    """Site q loses its disk, and with it a message that only it had delivered; its next life begins with a state."""
    p = [message("p", 0, 1), message("p", 3, 2, epoch=3)]
    views = [Change(1, "view", "x", 2, ("p",), (), ("q",), ("q",)), Change(2, "view", "x", 3, ("p", "q"), ("q",))]
    first = Log([message("q", 0, 1), message("q", 1, 7)], [], X)
    again = Log([message("q@9", 2, 2, epoch=3)], [Change(0, "state", "x", 3), views[1]._replace(position=1)])
    run = Histories({"p": Log(p, views, X), "q": first, "q@9": again}, {})

    assert {"creation"} == broken(run), "sends are not given here"
    assert "1 deliveries of logs that have ended (q) are not judged: nobody else has them" in run.notes


def test_a_message_that_comes_to_nobody_is_missed_unless_it_was_dropped_or_posted_elsewhere() -> None:
    logs = {"p": Log([message("p", 0, 1)], [], X)}
    sends = {"s:1": Sent(("x",), "s", 1), "s:2": Sent(("x",), "s", 2)}

    assert ["no member of x delivers s:2"] == [f.says for f in Histories(logs, sends).judge()]
    assert [] == list(Histories(logs, sends, dropped=frozenset({"s:2"})).judge())
    assert [] == list(Histories(logs, sends, posts={"s:1": "c.1", "s:2": "c.1"}).judge())
    assert [] == list(Histories(logs, sends, running=True).judge())


# What a hostile reader of the judge has built.


def view(position: int, epoch: int, members: str, joined: str = "", left: str = "", away: str = "") -> Change:
    return Change(position, "view", "x", epoch, tuple(members), tuple(joined), tuple(left), tuple(away))


def both(*numbers: int) -> dict[str, Log]:
    return {site: Log([message(site, at, number) for at, number in enumerate(numbers)], [], X) for site in "pq"}


def test_one_post_that_is_delivered_twice_is_found() -> None:
    assert judged(both(1, 2), posts={"s:1": "c.1", "s:2": "c.1"}) == [
        f"{site} delivers s:1 and s:2, which are one post of a client" for site in "pq"
    ]


def test_what_comes_to_one_of_two_groups_does_not_excuse_the_other() -> None:
    sends = {"s:1": Sent(("x", "y"), "s", 1)}
    logs = {"p": Log([message("p", 0, 1, "xy")], [], X), "q": Log([], [], frozenset("y"))}

    assert ["no member of y delivers s:1"] == [f.says for f in Histories(logs, sends, posts={"s:1": "c.1"}).judge()]


def test_two_majorities_are_found() -> None:
    logs = {
        "p": Log([message("p", 0, 1), message("p", 2, 2, epoch=2)], [view(1, 2, "p", left="q", away="q")], X),
        "q": Log([message("q", 0, 1), message("q", 2, 3, epoch=2)], [view(1, 2, "q", left="p", away="p")], X),
    }

    assert "the members of x are p in 2 by p, and q in 2 by q" in judged(logs)


def test_sites_that_stop_one_by_one_may_suspect_each_other() -> None:
    """Whose log ends before a configuration was not told of it; who has anything of it must have been."""
    told = view(1, 2, "pqr", "r")
    logs = {
        "p": Log([message("p", 0, 1)], [told, view(2, 3, "pq", left="r", away="r")], X),
        "q": Log([message("q", 0, 1)], [told], X),
    }
    run = Histories(logs, {"s:1": Sent(("x",), "s", 1)})

    assert [] == list(run.judge())
    assert "q ended before it was told who is in x in 3" in run.notes

    logs["q"] = Log([message("q", 0, 1), message("q", 2, 2, epoch=3)], [told], X)

    assert "the members of x are p, q in 3 by p, and p, q, r in 2 by q" in judged(logs)


def test_one_log_does_not_switch_the_judge_off() -> None:
    logs = both(1, 2)
    logs["q"] = Log([message("q", 0, 1)], [Change(1, "view", "x", 99, ("nobody",))], X)

    assert "nobody is in x, and has no log of it" in judged(logs)


def test_a_view_has_one_place_in_the_order() -> None:
    logs = {
        "p": Log([message("p", 0, 1), message("p", 2, 2)], [view(1, 2, "pq")], X),
        "q": Log([message("q", 0, 1), message("q", 1, 2)], [view(2, 2, "pq")], X),
    }

    assert ["p delivers s:2 of epoch 1 after the view of epoch 2"] == judged(logs)


def test_a_member_without_a_log_is_missed() -> None:
    logs = {"p": Log([message("p", 0, 1), message("p", 2, 2, epoch=2)], [view(1, 2, "pq", "q")], X)}

    assert ["q is in x, and has no log of it"] == judged(logs)


def test_what_only_a_dead_member_has_is_missed_while_its_source_lives() -> None:
    alone = view(1, 2, "ps", left="q", away="q")
    logs = {
        "p": Log([message("p", 0, 1)], [alone], X),
        "s": Log([message("s", 0, 1)], [alone], X),
        "q": Log([message("q", 0, 1), message("q", 1, 2)], [], X),
    }

    assert ["no member of x delivers s:2"] == judged(logs)


def test_two_things_at_one_position_are_a_hole() -> None:
    logs = both(1, 2)
    logs["p"] = Log([message("p", 0, 1), message("p", 0, 2)], [], X)

    assert "the log of p has nothing at position 1" in judged(logs)


def test_a_site_that_was_killed_for_good_may_not_have_written_what_it_sent() -> None:
    """Site s was in x, sends s:2, and is removed before it writes that down. A number that it has passed is forged."""
    gone = view(2, 2, "pq", left="s")
    logs = {site: Log([message(site, 0, 1), message(site, 1, 2)], [gone], X) for site in "pq"}
    logs["s"] = Log([message("s", 0, 1)], [], X)
    sends = {"s:1": Sent(("x",), "s", 1)}

    run = Histories(logs, sends)
    assert [] == list(run.judge())
    assert run.notes == ["2 deliveries are of sites that have ended before they had written down what they sent"]
    known = {"s:1": Sent(("x",), "s", 1), "s:3": Sent(("x",), "s", 3)}
    assert "p delivers s:2, which nobody sent" in [finding.says for finding in Histories(logs, known).judge()]


def test_a_client_posts_again_what_its_site_had_sent_and_not_written_down() -> None:
    """Site s sends s:2, is killed, and loses its disk; the client posts it again at p, and all members know it."""
    rows = {site: [message(site, 0, 1), message(site, 1, 2)._replace(body="b")] for site in "pq"}
    logs = {site: Log(rows[site], [view(2, 2, "pq", left="s")], X) for site in "pq"}
    logs["s"] = Log([message("s", 0, 1)], [], X)
    sends = {"s:1": Sent(("x",), "s", 1), "p:1": Sent(("x",), "p", 1, 0, "b")}

    assert [] == list(Histories(logs, sends, posts={"p:1": "c.1"}).judge())
    missed = ["no member of x delivers p:1"]
    assert missed == [f.says for f in Histories(logs, sends).judge()], "nobody has posted it: it is another message"
    sends["p:1"] = sends["p:1"]._replace(body="other")
    assert missed == [f.says for f in Histories(logs, sends, posts={"p:1": "c.1"}).judge()]
    sends |= {"p:1": sends["p:1"]._replace(body="b"), "p:2": Sent(("x",), "p", 2, 0, "b")}
    twice = [f.says for f in Histories(logs, sends, posts={"p:1": "c.1", "p:2": "c.2"}).judge()]
    assert twice == ["no member of x delivers p:2"], "one that was not written down excuses one"
    assert [] == list(Histories(logs, sends, posts={"p:1": "c.1", "p:2": "c.1"}).judge()), "and it may be posted twice"


def test_what_comes_to_some_of_its_groups_is_no_message_that_was_posted_again() -> None:
    """Unwritten s:2 went to x and y; posts of the same body that come to y only are missed in x, each of them."""

    def row(site: str, position: int, name: str, number: int) -> Delivery:
        stamp = (1).to_bytes(8, "big") + position.to_bytes(8, "big")
        return Delivery(site, position, f"{name}:{number}", ("x", "y"), name, number, 1, "x", stamp, None, "b")

    logs = {"p": Log([row("p", 0, "s", 1), row("p", 1, "s", 2)], [Change(2, "view", "x", 2, ("p",), (), ("s",))], X)}
    logs["q"] = Log([row("q", 0, "s", 1), row("q", 1, "s", 2), row("q", 2, "p", 1), row("q", 3, "p", 2)], [], Y)
    logs["s"] = Log([row("s", 0, "s", 1)], [], X)
    sends = {f"{n}:{k}": Sent(("x", "y"), n, k, 0, "b") for n, k in (("s", 1), ("p", 1), ("p", 2))}
    says = [f.says for f in Histories(logs, sends, posts={"p:1": "c.1", "p:2": "c.2"}).judge()]

    assert {"no member of x delivers p:1", "no member of x delivers p:2"} <= set(says)


def test_who_is_given_a_state_has_what_came_while_only_a_dead_site_was_there() -> None:
    """Site o leaves in 2, p alone delivers s:2 in 2, q comes with a state in 3, and p is away at the end."""
    logs = {
        "o": Log([message("o", 0, 1)], [view(1, 2, "p", left="o")], X),
        "p": Log(
            [message("p", 0, 1), message("p", 2, 2, epoch=2)], [view(1, 2, "p", left="o"), view(3, 3, "pq", "q")], X
        ),
        "q": Log(
            [], [Change(0, "state", "x", 3), view(1, 3, "pq", "q"), view(2, 4, "q", left="p", away="p")], frozenset()
        ),
    }
    assert judged(logs) == []
    late = Log([*logs["p"].rows, message("p", 4, 3, epoch=3)], logs["p"].changes, X)
    assert judged({**logs, "p": late}) == ["no member of x delivers s:3"], "q was there, and has it not"


def test_a_log_that_is_still_written_ends_at_its_first_hole() -> None:
    logs = both(1, 2)
    logs["p"] = Log([message("p", 0, 1), message("p", 2, 3)], [], X)

    assert [] == judged(logs, running=True)
    assert "the log of p has nothing at position 1" in judged(logs)


def test_a_group_that_was_deleted_while_its_only_disk_was_lost_has_nobody() -> None:
    """Nobody is told of the end of such a group; where its site has it again, that is told, and it is judged."""
    before = Log([message("p", 0, 1)], [], X)
    of_y = [Change(0, "state", "y", 3), Change(1, "view", "y", 3, ("p",), ("p",))]
    of_x = Change(2, "view", "x", 3, ("p",), ("p",))

    assert [] == judged({"p": before, "p@5": Log([], of_y)})
    again = Log([message("p@5", 3, 7, epoch=3)], [*of_y, of_x])
    assert [] == judged({"p": before, "p@5": again})
    assert ["p@5 delivers s:7 to x, but is not a member"] == judged(
        {"p": before, "p@5": Log([again.rows[0]._replace(position=2)], of_y)}
    )
