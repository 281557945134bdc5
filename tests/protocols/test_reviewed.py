"""What a hostile reading of the machines found: each case as small as it was told."""

import dataclasses
import sys

import pytest
from msgspec.structs import replace

from ordercast import ClassRule, Level, Membership, Plan, Planner, Request, judge, make_plan
from ordercast.core.configuration import Configuration
from ordercast.core.edges import Edges
from ordercast.core.effects import Append, Deliver, Effect, Send
from ordercast.core.events import Envelope, Event, Message, Multicast, Received, Tick
from ordercast.core.streams import Carry, Resend
from ordercast.errors import InputError, PeerError
from ordercast.names import ClassId, SiteId
from ordercast.planning.plan import Cost, Edge, GroupPlan
from ordercast.protocols.propagation.machine import Propagation
from ordercast.protocols.propagation.messages import Propagate, Settled
from ordercast.protocols.registry import MACHINES, Deployment
from ordercast.protocols.sequencing.messages import DoMulticast
from ordercast.protocols.sequencing.sequencer import Sequencer
from ordercast.protocols.swap.counting import Numbered
from ordercast.protocols.swap.multicast import Swap
from ordercast.protocols.timestamp import Ask
from ordercast.sim.explorer import Explorer
from ordercast.sim.retelling import Move, State
from ordercast.sim.scenario import Scenario, deploy
from ordercast.sim.steps import CRASH, TICK
from tests.support.campaign import small_case
from tests.support.planted import planted

CLASS = ClassId(1, 0)


def envelope_of(groups: tuple[str, ...], source: str, number: int) -> Envelope:
    return Envelope(CLASS, groups, source, 1, number, b"")


def with_sources(deployment: Deployment, sources: str) -> Deployment:
    return replace(deployment, groups=replace(deployment.groups, sources=tuple(sources)))


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["arrow-counting", "combining-counting"])
def test_a_counting_site_keeps_what_is_far_ahead(protocol: str) -> None:
    """Number 1 comes by a link that was cut while 100,100 others came by another: nothing is refused, nothing lost."""
    deployment = with_sources(deploy(Scenario(Membership.of({"A": "abz"}), protocol)), "ab")
    machine, many = deployment.machines("z"), 100_100

    def numbered(source: str, number: int, place: int) -> list[Effect]:
        envelope = envelope_of(("A",), source, number)
        return machine.step(Received(source, Carry(1, number, Numbered(place, envelope)), CLASS))

    for number in range(1, many):
        assert not any(isinstance(effect, Deliver) for effect in numbered("b", number, number + 1))
    assert len(machine.held()) == many - 1
    assert many == sum(isinstance(effect, Deliver) for effect in numbered("a", 1, 1))


class Conversation:
    """Machines, and a network that loses what it is told to."""

    def __init__(self, deployment: Deployment) -> None:
        self.machines = {site: deployment.machines(site) for site in deployment.sites}
        self.logs: dict[SiteId, list[str]] = {site: [] for site in self.machines}
        self.lost: list[Message] = []
        self._net: list[tuple[SiteId, SiteId, Message, ClassId]] = []

    def do(self, site: SiteId, event: Event, lose: tuple[type[Message], ...] = ()) -> None:
        """Feed a site, and carry everything that follows; first ACCEPTs of these kinds are lost."""
        self._apply(site, event)
        while self._net:
            sender, to, message, class_id = self._net.pop(0)
            if isinstance(message, lose) and getattr(message, "count", 0) == 1 and to in "px":
                self.lost.append(message)
            else:
                self._apply(to, Received(sender, message, class_id))

    def _apply(self, site: SiteId, event: Event) -> None:
        for effect in self.machines[site].step(event):
            if isinstance(effect, Send):
                self._net.append((site, effect.to, effect.message, effect.class_id))
            elif isinstance(effect, Deliver):
                self.logs[site].append(effect.envelope.msg_id)


def test_a_sequencer_keeps_the_answer_to_what_may_be_asked_again() -> None:
    """X asks for A, the answer is lost, and it goes on with B: not so far that the answer is forgotten."""
    family = Membership.of({"A": "psu", "B": "su", "C": "cp"})
    with planted("protocols.sequencing.sequencer", ("UNDER_WAY_AT_MOST = 1024", "UNDER_WAY_AT_MOST = 8")):
        deployment = deploy(Scenario(family, "sequencer", causal=True, class_rule=ClassRule.BLOCKS))
        talk = Conversation(with_sources(deployment, "x"))
        module = sys.modules["ordercast.protocols.sequencing.messages"]
        first = (module.Accept, module.Accepted)
        talk.do("x", Multicast(("A",), b"1"), lose=first)
        for _ in range(20):
            talk.do("x", Multicast(("B",), b"b"), lose=first)
        talk.do("x", Multicast(("C",), b"after all"))
        for time in range(1, 30):
            for site in talk.machines:
                talk.do(site, Tick(float(time)))

    assert talk.lost
    assert talk.logs["p"] == ["x:1", "x:22"]
    assert all(machine.idle for machine in talk.machines.values())


def test_a_class_that_does_not_hang_together_is_refused() -> None:
    """A={a} and B={b} in one class: a message to A+B would close the circle a, C, c, D, b."""
    members = {"A": ["a"], "B": ["b"], "C": ["a", "c"], "D": ["b", "c"]}
    groups = {
        "A": GroupPlan("r", ["a"], 1, ["r"]),
        "B": GroupPlan("r", ["b"], 1, ["r"]),
        "C": GroupPlan("a", ["a", "c"], 1, []),
        "D": GroupPlan("b", ["b", "c"], 1, []),
    }
    edges = [Edge("a", "c", ["C"]), Edge("b", "c", ["D"]), Edge("r", "a", ["A"]), Edge("r", "b", ["B"])]
    plan = Plan("by hand", Level.ACYCLIC, 1, [["A", "B"], ["C"], ["D"]], groups, edges, Cost(1.0, 0.5, 4, 8))

    assert judge(plan, members).broken == "forest"
    with pytest.raises(InputError, match="forest does not hold"):
        deploy(Scenario(Membership.of(members), plan=plan))


def test_a_plan_given_to_the_simulator_is_judged() -> None:
    family = Membership.of({"A": "abc", "B": "bcd"})
    plan = make_plan(family, Request(Planner.ELIMINATION)).plan

    deploy(Scenario(family, plan=plan))
    with pytest.raises(InputError, match="the plan cannot run: PG2"):
        deploy(Scenario(family, plan=replace(plan, edges=plan.edges[1:])))


@pytest.mark.parametrize("protocol", MACHINES)
def test_a_class_for_each_group_is_kin_s_hybrid_and_nothing_else(protocol: str) -> None:
    with pytest.raises(InputError, match="KIN's hybrid"):
        deploy(Scenario(Membership.of({"A": "ab", "B": "abc"}), protocol, groups_alone=True))


def test_what_is_everywhere_is_not_named_after_a_restart() -> None:
    """`Settled` is in the log: a restarted site's next message names nothing of silent sources."""
    deployment = with_sources(deploy(Scenario(Membership.of({"A": "abc"}), causal=True)), "abcx")
    plan = deployment.plan
    assert plan is not None
    entry = plan.groups["A"].entry
    machine = deployment.machines(entry)
    envelope = envelope_of(("A",), "x", 1)
    log: list[Event] = []
    for event in (
        Received("x", Carry(0, 1, Propagate(envelope)), CLASS),
        Received("x", Settled(1), CLASS),
        Received("x", Settled(1), CLASS),
    ):
        log += [effect.event for effect in machine.step(event) if isinstance(effect, Append)]
    assert len(log) == 2
    machines = deployment.machines(entry)
    for logged in log:
        machines.step(logged)
    restarted = machines.machine(CLASS)
    assert isinstance(restarted, Propagation)

    assert not any(restarted.pasts.known.values())


def test_own_messages_that_were_held_are_called_safe() -> None:
    """A group of one site: its message waits for an earlier one of this site, which comes by another way."""
    deployment = with_sources(deploy(Scenario(Membership.of({"A": "a", "B": "ab"}).with_unions(["AB"]))), "ab")
    deployment = replace(deployment, receipts=True)
    talk = Conversation(deployment)
    for site in "ab":
        for groups in (("B",), ("A", "B"), ("A",), ("A", "B"), ("B",)):
            talk.do(site, Multicast(groups, b"", True))
    for time in range(1, 20):
        for site in talk.machines:
            talk.do(site, Tick(float(time)))

    assert all(machine.idle for machine in talk.machines.values())
    for machines in talk.machines.values():
        machine = machines.machine(CLASS)
        assert isinstance(machine, Propagation)
        assert not machine.own.not_safe


@pytest.mark.parametrize("last", [("b", 1, 0), ("b", 1, -7), ("nobody", 1, 1)])
@pytest.mark.parametrize("protocol", ["arrow", "combining", "hybrid"])
def test_a_swap_that_leaves_nonsense_behind_is_refused(protocol: str, last: tuple[str, int, int]) -> None:
    deployment = with_sources(deploy(Scenario(Membership.of({"A": "abc"}), protocol)), "abc")
    machine = deployment.machines(deployment.tree(CLASS).root)
    envelope = envelope_of(("A",), "b", 1)

    with pytest.raises(PeerError):
        machine.step(Received("b", Carry(0, 1, Swap(envelope, last)), CLASS))
    machine.step(Multicast(("A",), b"honest"))
    assert machine.sent == 1


def test_pasts_that_cannot_be_are_refused() -> None:
    """Another source's message without `causal`, the message itself or a later one, a source that does not exist."""
    deployment = with_sources(deploy(Scenario(Membership.of({"A": "abc", "B": "abc"}))), "xy")
    plan = deployment.plan
    assert plan is not None
    machine = deployment.machines(plan.groups["A"].entry)
    envelope = envelope_of(("A",), "x", 5)
    for past in ((("y", ("B",), 1),), (("x", ("B",), 5),), (("x", ("B",), 9),), (("nobody", ("B",), 1),)):
        with pytest.raises(PeerError):
            machine.step(Received("x", Carry(0, 1, Propagate(envelope, b"", past)), CLASS))
    with pytest.raises(PeerError):
        machine.step(Received("x", Carry(0, 1, Propagate(envelope, b"", (), False, 5)), CLASS))


def test_a_request_to_send_everything_again_is_answered_in_parts() -> None:
    edges = Edges("a", ClassId(1, 0), streams=1)
    for number in range(1000):
        edges.send("b", 0, Ask(number))

    assert len(edges.control("b", Resend(0, -(2**62), 1000))) == 256


def test_the_explorer_crashes_after_ticks_and_in_the_middle_of_them() -> None:
    tried: set[tuple[bool, bool]] = set()

    class Noting(Explorer):
        def _do(self, state: State, move: Move) -> State:
            tried.add((move[0] == TICK and move[3] > 0, move[0] == CRASH and state[-1] > 0))
            return super()._do(state, move)

    assert not Noting(small_case("combining", {"crashes": 1})).run().findings
    assert {(False, False), (True, False), (False, True)} == tried


@pytest.mark.parametrize(
    "rule",
    [
        ("self.edges.owe((HERE, stream), number, [(entry, stream)])", "self.edges.owe((HERE, stream), number, [])"),
        ("place = Place(envelope.number, stamp)", "place = Place(envelope.number, stamp + b'!')"),
    ],
)
def test_the_explorer_judges_receipts(rule: tuple[str, str]) -> None:
    with planted("protocols.propagation.machine", rule):
        case = small_case("propagation", {"losses": 1})
        case = dataclasses.replace(case, deployment=replace(case.deployment, receipts=True))
        assert "receipts" in Explorer(case).run().findings


def test_contexts_go_without_what_every_member_has_and_only_that() -> None:
    """KIN §5: x sends to G, then to G2; while a member of G lacks the first one, the second one says so."""
    groups = Configuration.of({"G": "prs", "G2": "pqs"}, [["G", "G2"]], ["x"], causal=True).order_class(ClassId(1, 0))
    sequencer = Sequencer(groups, 0, causal=True)
    envelopes = [Envelope(groups.id, (group,), "x", 1, number, b"x") for number, group in enumerate(("G", "G2"), 1)]
    sequencer.take(DoMulticast(envelopes[0], 1))
    for site in "ps":
        sequencer.report("G", site, 1)
    (told,) = sequencer.take(DoMulticast(envelopes[1], 2))
    assert told.past == (("G", 1),)

    sequencer.report("G", "r", 1)
    (told,) = sequencer.take(DoMulticast(Envelope(groups.id, ("G2",), "x", 1, 3, b"x"), 3))
    assert told.past == (("G2", 1),)
