"""A site's machines behind one door: numbers over all classes, ticks appended once, machines that sleep."""

import pytest

from ordercast import Level, Membership
from ordercast.core.configuration import Configuration
from ordercast.core.effects import Append, Deliver, Send
from ordercast.core.events import Multicast, Received, Tick
from ordercast.errors import LocalError, PeerError
from ordercast.names import ClassId
from ordercast.protocols.registry import MACHINES, Deployment
from ordercast.sim.scenario import Scenario, deploy

TWO = Membership.of({"A": "abz", "B": "abz", "C": "dez", "D": "dez"})
"""Two classes that meet in z."""


def deployed(protocol: str) -> Deployment:
    deployment = deploy(Scenario(TWO, protocol, level=Level.ACYCLIC, senders=20))
    assert list(deployment.groups.classes) == [ClassId(1, 0), ClassId(1, 1)]
    return deployment


@pytest.mark.parametrize("protocol", MACHINES)
def test_a_source_numbers_its_envelopes_over_all_classes(protocol: str) -> None:
    machines = deployed(protocol).machines("e", incarnation=7)
    for groups in (("A",), ("C",), ("D",), ("B",)):
        machines.step(Multicast(groups, b""))
    assert machines.sent == 4
    for refused in (("A", "C"), ("X",), ()):
        with pytest.raises(LocalError):
            machines.step(Multicast(refused, b""))
    assert machines.sent == 4
    assert machines.snapshot().incarnation == 7


def test_a_tick_that_changes_several_classes_is_appended_once_and_first() -> None:
    machines = deployed("combining").machines("z")
    for groups in (("A",), ("C",), ("B",), ("D",)):
        machines.step(Multicast(groups, b""))
    tick = Tick(1.0)
    effects = machines.step(tick)

    assert [effect for effect in effects if isinstance(effect, Append)] == [Append(tick)]
    assert effects[0] == Append(tick)
    assert {effect.class_id for effect in effects if isinstance(effect, Send)} == {ClassId(1, 0), ClassId(1, 1)}


@pytest.mark.parametrize("protocol", MACHINES)
def test_what_a_class_does_says_its_class(protocol: str) -> None:
    machines = deployed(protocol).machines("z")
    for groups, class_id in ((("A",), ClassId(1, 0)), (("C",), ClassId(1, 1))):
        for effect in machines.step(Multicast(groups, b"")):
            if isinstance(effect, Send):
                assert effect.class_id == class_id
            if isinstance(effect, Deliver):
                assert effect.envelope.class_id == class_id
                assert effect.stamp.startswith((1).to_bytes(8, "big"))


def test_a_class_that_does_nothing_sleeps() -> None:
    machines = deployed("arrow").machines("z")
    assert machines.idle
    machines.step(Multicast(("A",), b""))
    assert not machines.idle
    assert machines.under_way(ClassId(1, 0)) > 0
    assert machines.under_way(ClassId(1, 1)) == 0


def test_frames_of_unknown_classes_are_refused() -> None:
    machines = deployed("arrow").machines("z")
    for class_id in (ClassId(1, 2), ClassId(2, 0), ClassId(0, 0)):
        with pytest.raises(PeerError, match=f"class {class_id}, which z does not know"):
            machines.step(Received("a", Multicast((), b""), class_id))  # type: ignore[arg-type]


def test_a_site_without_a_part_has_no_machines() -> None:
    with pytest.raises(LocalError, match="'nobody' has no part in this"):
        deployed("arrow").machines("nobody")


def test_the_value_of_a_class_knows_what_the_union_rule_needs_and_no_more() -> None:
    """A+B meets C in s and t; E shares one site with it, and does not matter."""
    members = {"A": "sxy", "B": "txy", "C": "st", "E": "xq", "F": "q"}
    whole = Configuration.of(members, [["A", "B"], ["C"], ["E", "F"]], "xy")
    one = whole.order_class(ClassId(1, 0))

    assert set(one.members) == {"A", "B"}
    assert [(other.groups, other.sites) for other in one.neighbours] == [(("C",), ("s", "t"))]
    with pytest.raises(LocalError, match="s and t could see"):
        one.destination(("A", "B"))
    for groups in (("A", "B"), ("A", "C"), ("X",), ("B", "A")):
        with pytest.raises(LocalError):
            whole.destination(groups)
    assert whole.destination(("E", "F")) == ClassId(1, 2)
    assert whole.in_epoch(9).destination(("C",)) == ClassId(9, 1)


def test_with_causal_there_is_one_class_and_its_orders_are_parts() -> None:
    whole = Configuration.of({"A": "ab", "B": "cd", "C": "d"}, [["A"], ["B", "C"]], "abcd", causal=True)

    assert list(whole.classes) == [ClassId(1, 0)]
    assert whole.orders == (("A",), ("B", "C"))
    assert whole.order_of(("C",)) == 1
    assert [whole.order_class(ClassId(1, 0)).destination((group,)) for group in "ABC"] == [0, 1, 1]
    with pytest.raises(LocalError, match="ordered apart"):
        whole.destination(("A", "B"))
