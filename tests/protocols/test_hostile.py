"""Well-formed messages that no honest site sends: refused by name, and nothing changes (errata 62)."""

import random
from collections.abc import Iterator

import msgspec
import pytest

from ordercast import Membership
from ordercast.core import stamps
from ordercast.core.effects import Refuse
from ordercast.core.events import Envelope, Event, Message, Multicast, Received
from ordercast.core.machines import Machines
from ordercast.core.streams import Carry
from ordercast.errors import LocalError, PeerError
from ordercast.names import ClassId, SiteId
from ordercast.protocols.propagation.messages import Body, Place, Propagate
from ordercast.protocols.registry import MACHINES, Deployment
from ordercast.protocols.sequencing.messages import Accept, Accepted, DoMulticast, Latest, Stable
from ordercast.protocols.swap.counting import Grant, Numbered
from ordercast.protocols.swap.multicast import Ordered
from ordercast.protocols.timestamp import Ask, Silent, Stamped
from ordercast.protocols.two_phase import Decide, Proposal, Propose
from ordercast.sim.scenario import Scenario, deploy
from tests.protocols.test_replay import recorded

FAMILY = Membership.of({"A": "abc", "B": "bcd", "C": "ef"})
HUGE = 2**63
FIRST = stamps.first_of(ClassId(1, 0)) + stamps.level(1)


def deployed(protocol: str) -> Deployment:
    """Sites a to f, and sources x and y in no group; C is a class of its own where there are several."""
    return deploy(Scenario(FAMILY, protocol, senders=12, seed=3))


def state(deployment: Deployment, machines: Machines) -> object:
    for class_id in deployment.groups.classes:  # a machine that has only refused is a new one
        machines.machine(class_id)
    return deployment.encode(machines.snapshot())


CLASS = ClassId(1, 0)


def envelope(groups: str = "A", source: str = "a", number: int = 1, **other: int) -> Envelope:
    class_id = ClassId(other.get("epoch", 1), other.get("index", 0))
    return Envelope(class_id, tuple(groups), source, 1, number, b"")


def wrong_envelopes(source: SiteId) -> Iterator[Envelope]:
    """A destination named twice, none, unknown, out of order, apart; wrong class, epoch, source, number."""
    for groups in ("AA", "", "X", "BA", "AC"):
        yield envelope(groups, source)
    for change in ({"index": 7}, {"index": -1}, {"epoch": 2}, {"epoch": -1}):
        yield envelope("A", source, **change)
    yield envelope("A", "nobody")
    yield envelope("A", source, number=0)
    yield envelope("A", source, number=HUGE)


def hostile(protocol: str, deployment: Deployment) -> Iterator[tuple[SiteId, SiteId, Message]]:  # noqa: PLR0915
    """Yield sender, receiver and what is sent: from the wrong site, about the wrong thing, with absurd numbers."""
    outsider = next(site for site in deployment.groups.sources if site not in "abcdef")
    key = (outsider, 1, 1)
    match protocol:
        case "propagation":
            plan = deployment.plan
            assert plan is not None
            entry = plan.groups["A"].entry
            member = next(site for site in "abc" if site != entry)
            for wrong in wrong_envelopes(outsider):
                yield outsider, entry, Carry(0, 1, Propagate(wrong))
            yield outsider, entry, Carry(0, 1, Propagate(envelope("A", "a"), b"", ()))
            yield outsider, member, Carry(1, 1, Propagate(envelope("A", outsider), b"stamp"))
            yield outsider, member, Carry(0, 1, Propagate(envelope("A", outsider)))
            yield outsider, entry, Carry(1, 1, Propagate(envelope("A", outsider)))
            for before in ((), ("X",), ("A", "A"), ("A", "C")):
                yield outsider, entry, Carry(0, 1, Propagate(envelope("A", outsider), b"", (("a", before, 1),)))
            yield outsider, member, Place(1, b"stamp")
            yield entry, member, Carry(1, 1, Propagate(envelope("A", outsider), FIRST, bare=True))
            yield entry, member, Carry(2, 1, Body(envelope("A", outsider)))
        case "sequencer":
            sequencer = deployment.sequencers(CLASS)[0]
            member = next(site for site in "abc" if site != sequencer)
            for wrong in wrong_envelopes(outsider):
                yield outsider, sequencer, DoMulticast(wrong, 1)
            yield outsider, sequencer, DoMulticast(envelope("A", "a"), 1)
            yield outsider, sequencer, DoMulticast(envelope("A", outsider), 0)
            yield outsider, sequencer, DoMulticast(envelope("A", outsider), 1, (("X", 1),))
            yield outsider, member, DoMulticast(envelope("A", outsider), 1)
            yield outsider, member, Accept(envelope("A", outsider), 1, 1, (("A", 1),))
            yield sequencer, member, Accept(envelope("A", outsider), 1, 1, ())
            yield sequencer, member, Accept(envelope("A", outsider), 0, 1, (("A", 1),))
            yield outsider, member, Accepted(0, 1, (("A", 1),))
            yield outsider, member, Latest((("A", 5),))
            yield outsider, sequencer, Stable((("A", 1),))
            yield member, sequencer, Stable((("A", 5),))
        case "arrow" | "combining" | "hybrid":
            member = deployment.tree(CLASS).sites[1]
            for wrong in wrong_envelopes(outsider):
                yield deployment.tree(CLASS).root, member, Carry(1, 1, Ordered(None, wrong))
            yield outsider, member, Carry(1, 1, Ordered(None, envelope("A", outsider)))
            yield deployment.tree(CLASS).root, member, Carry(1, 1, Ordered(key, envelope("C", outsider, index=1)))
        case "arrow-counting" | "combining-counting":
            member = deployment.tree(CLASS).sites[1]
            for wrong in wrong_envelopes(outsider):
                yield deployment.tree(CLASS).root, member, Carry(1, 1, Numbered(1, wrong))
            yield outsider, member, Carry(1, 1, Numbered(1, envelope("A", outsider)))
            yield deployment.tree(CLASS).root, member, Carry(1, 1, Numbered(0, envelope("A", outsider)))
            yield outsider, member, Carry(0, 1, Grant(1))
            yield deployment.tree(CLASS).root, member, Carry(0, 1, Grant(HUGE))
            yield deployment.tree(CLASS).root, member, Carry(9, 1, Grant(1))
        case "two-phase":
            for wrong in wrong_envelopes(outsider):
                yield outsider, "a", Carry(0, 1, Propose(wrong))
            yield outsider, "a", Carry(0, 1, Propose(envelope("A", "b")))
            yield outsider, "a", Carry(0, 1, Propose(envelope("C", outsider)))
            yield outsider, "a", Carry(0, 1, Proposal(1, HUGE))
            yield outsider, "a", Carry(0, 1, Decide(1, 1, HUGE, "a"))
            yield outsider, "a", Carry(0, 1, Decide(1, 1, 1, "nobody"))
        case "timestamp":
            for wrong in wrong_envelopes(outsider):
                yield outsider, "a", Carry(0, 1, Stamped(1, wrong))
            yield outsider, "a", Carry(0, 1, Stamped(HUGE, envelope("A", outsider)))
            yield outsider, "a", Carry(0, 1, Stamped(1, envelope("A", "b")))
            yield outsider, "a", Carry(0, 1, Silent(HUGE))
            yield "b", "a", Carry(0, 1, Ask(HUGE))
            yield "nobody", "a", Carry(0, 1, Ask(1))


@pytest.mark.parametrize("protocol", MACHINES)
def test_what_no_honest_site_sends_is_refused_and_changes_nothing(protocol: str) -> None:
    deployment = deployed(protocol)
    tried = 0
    for sender, receiver, message in hostile(protocol, deployment):
        machine = deployment.machines(receiver)
        before = state(deployment, machine)

        if isinstance(message, Place):
            assert machine.step(Received(sender, message, CLASS)) == []
        else:
            with pytest.raises(PeerError):
                machine.step(Received(sender, message, CLASS))
                pytest.fail(f"{receiver} takes from {sender}: {message}")
        assert state(deployment, machine) == before, message
        tried += 1

    assert tried > 10


def test_bodies_and_places_come_only_where_there_is_a_shortcut() -> None:
    """In the ring messages to C go from a past b to c; all else is refused, and changes nothing."""
    ring = deploy(Scenario(Membership.of({"A": "ab", "B": "bc", "C": "ca"}), "propagation", senders=4, direct_bytes=1))
    body = msgspec.structs.replace(envelope("C", "c"), body=b"x")
    place = Propagate(envelope("C", "c"), FIRST, bare=True)
    assert ring.machines("c").step(Received("a", Carry(2, 1, Body(body)), CLASS))
    assert ring.machines("c").step(Received("b", Carry(1, 1, place), CLASS))
    wrong: list[tuple[SiteId, SiteId, Message]] = [
        ("b", "c", Carry(2, 1, Body(body))),  # not who gives it
        ("a", "c", Carry(1, 1, Body(body))),  # not on this stream
        ("a", "b", Carry(2, 1, Body(body))),  # to whom passes it on
        ("a", "c", Carry(2, 1, Body(envelope("A")))),  # of a group that does not pass here
        ("a", "b", Carry(1, 1, Propagate(envelope("A"), FIRST, bare=True))),  # a place, and b delivers
        ("b", "c", Carry(1, 1, Propagate(body, FIRST, bare=True))),  # a place with its body
        ("c", "a", Carry(0, 1, Propagate(envelope("C", "c"), bare=True))),  # a place that nobody gave
    ]
    for sender, receiver, message in wrong:
        machine = ring.machines(receiver)
        before = state(ring, machine)
        with pytest.raises(PeerError):
            machine.step(Received(sender, message, CLASS))
        assert state(ring, machine) == before


@pytest.mark.parametrize("protocol", MACHINES)
def test_what_an_application_may_not_send_changes_nothing(protocol: str) -> None:
    """An unknown group, a group named twice, none: the counter stays where it was."""
    deployment = deployed(protocol)
    machine = deployment.machines("a")
    before = state(deployment, machine)
    for groups in (("X",), ("A", "X"), ("A", "A"), (), ("B", "A")):
        with pytest.raises(LocalError):
            machine.step(Multicast(groups, b""))

        assert state(deployment, machine) == before
        assert machine.sent == 0


def mutated(chance: random.Random, message: Message, sites: list[SiteId]) -> Message:
    """Change one field of a message to something of its own kind."""
    if isinstance(message, Carry):
        if chance.random() < 0.2:
            return msgspec.structs.replace(message, number=chance.choice([1, 2, 3, 10**6]))
        return msgspec.structs.replace(message, message=mutated(chance, message.message, sites))
    name = chance.choice(message.__struct_fields__)
    value = getattr(message, name)
    other: object = value
    match value:
        case bool():
            other = not value
        case int():
            other = chance.choice([0, 1, value + 1, max(0, value - 1), 2**61])
        case str():
            other = chance.choice(sites)
        case bytes():
            other = value + b"\x01"
        case Envelope():
            field = chance.choice(["source", "number", "groups", "incarnation", "class_id"])
            given = {
                "source": chance.choice(sites),
                "number": value.number + chance.choice([-1, 1, 1000]),
                "groups": chance.choice([("g0",), ("g1", "g2"), ("g0", "g0"), ()]),
                "incarnation": 2,
                "class_id": ClassId(1, value.class_id.index + 1),
            }
            other = msgspec.structs.replace(value, **{field: given[field]})
        case tuple() if value and isinstance(value[0], tuple):
            other = value[1:]
    return msgspec.structs.replace(message, **{name: other})


@pytest.mark.slow
@pytest.mark.parametrize("protocol", MACHINES)
def test_mutated_conversations_end_in_a_refusal_or_not_at_all(protocol: str) -> None:
    """Real conversations with one message changed: PeerError before anything changes, Refuse, or it made no difference.

    Nothing else is raised, by the changed message or by the honest ones after it.
    """
    refused = 0
    for seed in range(8):
        deployment, events = recorded((protocol, False), seed)
        chance = random.Random(seed)
        sites = deployment.sites
        for site in sorted(events):
            arrivals = [index for index, event in enumerate(events[site]) if isinstance(event, Received)]
            for index in chance.sample(arrivals, min(10, len(arrivals))):
                refused += converse(deployment, site, events[site], index, chance, sites)

    assert refused > 50


def converse(
    deployment: Deployment, site: SiteId, events: list[Event], at: int, chance: random.Random, sites: list[SiteId]
) -> int:
    machine = deployment.machines(site)
    for event in events[:at]:
        machine.step(event)
    honest = events[at]
    assert isinstance(honest, Received)
    changed = mutated(chance, honest.message, sites)
    before = state(deployment, machine)
    sender = chance.choice([honest.sender, chance.choice(sites)])
    try:
        effects = machine.step(Received(sender, changed, honest.class_id))
        refused = any(isinstance(effect, Refuse) for effect in effects)
    except PeerError:
        assert state(deployment, machine) == before, changed
        refused = True
    for event in events[at:]:
        try:
            machine.step(event)
        except PeerError:  # an honest message that no longer fits what the liar said
            refused = True
    machine.held()
    return refused
