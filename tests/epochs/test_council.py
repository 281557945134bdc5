"""Ballots: one decision for a number, whoever asks (errata 20, 21)."""

import itertools

from ordercast.epochs.change import first_setup
from ordercast.epochs.council import Council
from ordercast.epochs.messages import Accept, Accepted, Ballot, Decision, Outvoted, Prepare, Promise
from ordercast.epochs.setup import GroupSetup

SETUP = first_setup("abc", {"x": GroupSetup(("a", "b"))})


def decision(ballot: Ballot) -> Decision:
    return Decision(SETUP, ballot, {})


def test_a_promise_refuses_lower_ballots() -> None:
    member = Council()

    assert member.prepare(Prepare(1, (2, "b"))) == (Promise(1, (2, "b"), None), True)
    assert member.prepare(Prepare(1, (1, "c"))) == (Outvoted(1, (2, "b")), False)
    assert member.accept(Accept(decision((1, "c")))) == (Outvoted(1, (2, "b")), False)


def test_what_was_accepted_is_told_to_the_next_ballot() -> None:
    member = Council()
    first = decision((1, "a"))

    assert member.accept(Accept(first)) == (Accepted(1, (1, "a")), True)
    assert member.prepare(Prepare(1, (2, "b"))) == (Promise(1, (2, "b"), first), True)


def test_saying_it_again_needs_no_disk() -> None:
    member = Council()
    member.prepare(Prepare(1, (1, "a")))
    member.accept(Accept(decision((1, "a"))))

    assert member.prepare(Prepare(1, (1, "a")))[1] is False
    assert member.accept(Accept(decision((1, "a"))))[1] is False


def test_two_managers_never_decide_on_two_values() -> None:
    """Every interleaving of two ballots over three members, each message once or never."""
    for order in itertools.permutations(range(4)):
        for heard in itertools.product([0, 1], repeat=12):
            members = [Council() for _ in range(3)]
            promises: dict[int, list[Decision | None]] = {0: [], 1: []}
            votes: dict[int, int] = {0: 0, 1: 0}
            values: dict[int, str] = {}
            for step in order:
                manager, voting = step % 2, step >= 2
                ballot = (manager + 1, "ab"[manager])
                if not voting:
                    for index, member in enumerate(members):
                        if heard[3 * manager + index]:
                            answer, _ = member.prepare(Prepare(1, ballot))
                            if isinstance(answer, Promise):
                                promises[manager].append(answer.accepted)
                elif len(promises[manager]) >= 2:
                    known = [value for value in promises[manager] if value is not None]
                    values[manager] = max(known, key=lambda d: d.ballot).refused[0][2] if known else "ab"[manager]
                    asked = Decision(SETUP, ballot, {}, refused=(("x", 1, values[manager]),))
                    for index, member in enumerate(members):
                        if heard[6 + 3 * manager + index]:
                            answer, _ = member.accept(Accept(asked))
                            votes[manager] += isinstance(answer, Accepted)
            decided = {values[manager] for manager in (0, 1) if votes[manager] >= 2}

            assert len(decided) <= 1, (order, heard)
