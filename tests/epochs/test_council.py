"""Ballots: one decision for a number, whoever asks (errata 20, 21)."""

import importlib
import itertools
from typing import Any

from msgspec.structs import replace

from ordercast.epochs.change import first_setup
from ordercast.epochs.council import Council
from ordercast.epochs.messages import Accept, Accepted, Ballot, Decision, Outvoted, Prepare, Promise
from ordercast.epochs.setup import GroupSetup
from ordercast.names import Policy
from ordercast.sim.network import Network

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


def conflict() -> str | None:
    """Try every interleaving of two ballots over three members, each message once or never; return what goes wrong.

    It asks for the modules by name, so that it can judge planted bugs too (`test_mutants.py`).
    """
    council = importlib.import_module("ordercast.epochs.council").Council
    m = importlib.import_module("ordercast.epochs.messages")
    for order in itertools.permutations(range(4)):
        for heard in itertools.product([0, 1], repeat=12):
            members = [council() for _ in range(3)]
            promises: dict[int, list[Any]] = {0: [], 1: []}
            votes, values = {0: 0, 1: 0}, dict[int, str]()
            for step in order:
                manager, voting = step % 2, step >= 2
                ballot = (manager + 1, "ab"[manager])
                if not voting:
                    for index, member in enumerate(members):
                        if heard[3 * manager + index]:
                            answer, _ = member.prepare(m.Prepare(1, ballot))
                            promises[manager] += [answer.accepted] if isinstance(answer, m.Promise) else []
                elif len(promises[manager]) >= 2:
                    known = [value for value in promises[manager] if value is not None]
                    values[manager] = max(known, key=lambda d: d.ballot).refused[0][2] if known else "ab"[manager]
                    asked = m.Decision(SETUP, ballot, {}, refused=(("x", 1, values[manager]),))
                    for index, member in enumerate(members):
                        if heard[6 + 3 * manager + index]:
                            votes[manager] += isinstance(member.accept(m.Accept(asked))[0], m.Accepted)
            if len({values[manager] for manager in (0, 1) if votes[manager] >= 2}) > 1:
                return f"two values are decided: {order} {heard}"
    return None


def not_durable() -> str | None:
    """Return what a member answers before it is durable, or obeys though it has promised a higher ballot."""
    m = importlib.import_module("ordercast.epochs.messages")
    effects = importlib.import_module("ordercast.core.effects")
    events = importlib.import_module("ordercast.core.events")
    site = importlib.import_module("ordercast.epochs.participant").Participant("b", SETUP)
    (class_id,) = SETUP.classes

    def hear(message: Any) -> list[Any]:
        ballot = message.decision.ballot if isinstance(message, m.Accept) else message.ballot
        found: list[Any] = site.step(events.Received(ballot[1], message, m.CONTROL))
        return found

    vote = m.Accept(m.Decision(replace(SETUP, number=2), (3, "a"), {}))
    for message in (m.Prepare(2, (1, "a")), m.Close(2, (2, "a"), (class_id,)), vote):
        if type(hear(message)[0]) is not effects.Append:
            return f"{type(message).__name__} is answered before it is durable"
    for message in (m.Prepare(2, (1, "c")), m.Close(2, (2, "c"), (class_id,))):
        (answer,) = hear(message)
        if not isinstance(answer.message, m.Outvoted):
            return f"{type(message).__name__} of a lower ballot is obeyed"
    return None


def ignored() -> str | None:
    """Return what is wrong with a manager that hears of an accepted decision: it must propose that one (errata 21)."""
    m = importlib.import_module("ordercast.epochs.messages")
    events = importlib.import_module("ordercast.core.events")
    changes = importlib.import_module("ordercast.epochs.requests")
    hosts = importlib.import_module("ordercast.epochs.events")
    site = importlib.import_module("ordercast.epochs.participant").Participant("a", SETUP)
    site.step(hosts.Requested(changes.AddSite("q", "there")))
    earlier = m.Decision(replace(SETUP, number=2), (1, "b"), {}, refused=(("x", 1, "earlier"),))
    told = m.Promise(2, site.manager.state.ballot, earlier)
    effects = site.step(events.Received("b", told, m.CONTROL))
    asked = [e.message.decision for e in effects if isinstance(getattr(e, "message", None), m.Accept)]
    return None if asked and all(d.refused == earlier.refused for d in asked) else "an accepted decision is ignored"


def world(
    faults: list[tuple[str, float, str, str, float]], sends: list[tuple[float, str, tuple[str, ...]]], **groups: str
) -> Any:
    """Build a world of changes from the modules of the moment."""
    changing = importlib.import_module("ordercast.sim.changing")
    setups = importlib.import_module("ordercast.epochs.setup")
    change = importlib.import_module("ordercast.epochs.change")
    made = {g: setups.GroupSetup(tuple(m), policy=Policy.AVAILABLE) for g, m in groups.items()}
    setup = change.first_setup({site for m in groups.values() for site in m}, made)
    case = changing.Case(
        setup, frozenset({"fifo", "total"}), Network(latency=1.0), 1, tuple(sends),
        faults=tuple(changing.Fault(*fault) for fault in faults), suspect_after=4.0,
    )  # fmt: skip
    return changing.World(case)


def minority() -> str | None:
    """Two of five sites are cut off: they must decide on nothing (errata 20)."""
    cuts = [("cut", 10.0, one, other, 60.0) for one in "ab" for other in "cde"]
    run = world(cuts, [], x="abcde")
    run.run(50.0)
    numbers = {site: host.participant.setup.number for site, host in run.hosts.items()}
    return None if numbers == {"a": 1, "b": 1, "c": 2, "d": 2, "e": 2} else f"a minority decides: {numbers}"


def not_again() -> str | None:
    """Site c rolls back x, which d and e never got; y, which it delivered later, it must deliver again."""
    silent = [("one-way", 10.5, "c", other, 40.0) for other in "de"]
    run = world(silent, [(10.0, "d", ("x",)), (12.0, "z", ("y",))], x="cde", y="cz")
    run.run(14.0)
    before = [message for message, *_ in run.judge.at("c").log]
    run.run(48.0)
    after = [message for message, *_ in run.judge.at("c").log]
    if before != ["d:1", "z:1"] or run.judge.rolled_back != 2:
        return f"nothing was rolled back: {before}, {after}"
    return None if after == ["z:1"] else f"what stays was not delivered again: {after}"


def test_a_minority_decides_on_nothing() -> None:
    assert minority() is None


def test_what_stays_is_delivered_again_after_a_rollback() -> None:
    assert not_again() is None


def test_an_accepted_decision_is_proposed_again() -> None:
    assert ignored() is None


def test_two_managers_never_decide_on_two_values() -> None:
    assert conflict() is None


def test_promises_votes_and_closings_are_durable_before_they_are_answered() -> None:
    """Errata 61."""
    assert not_durable() is None
