"""HTW00's claims, measured in the simulator."""

import pytest

from ordercast.errors import InputError
from ordercast.membership.table import Membership
from ordercast.names import Shape
from ordercast.protocols.registry import MACHINES
from ordercast.sim.network import Network
from ordercast.sim.scenario import Scenario, deploy, run
from tests.support.latency import until_ordered


@pytest.mark.slow
@pytest.mark.parametrize("senders", [1, 4, 16, 64])
def test_swap_is_as_fast_as_counting_when_alone_and_faster_in_a_crowd(senders: int) -> None:
    """§4, §5: a swap quits early; the arrow never takes more hops than the tree is wide (§4)."""
    for swap, counting in (("arrow", "arrow-counting"), ("combining", "combining-counting")):
        mean, _, hops = until_ordered(swap, senders, at_once=True, rounds=5)
        counted, _, _ = until_ordered(counting, senders, at_once=True, rounds=5)

        assert mean < counted if senders > 1 or swap == "combining" else mean == counted
        assert hops <= 11


@pytest.mark.slow
def test_one_after_the_other_the_arrow_and_its_counting_version_are_the_same() -> None:
    """§4."""
    assert until_ordered("arrow-counting", 8, at_once=False, rounds=4) == until_ordered(
        "arrow", 8, at_once=False, rounds=4
    )


@pytest.mark.parametrize("shape", list(Shape))
@pytest.mark.parametrize("protocol", [name for name, kind in MACHINES.items() if kind.tree])
def test_any_tree_will_do(protocol: str, shape: Shape) -> None:
    """HTW00 §4 takes any spanning tree: the shape changes the way of a swap, and nothing that is promised."""
    members = Membership.of({"A": "abcd", "B": "bcde", "C": "efa"})
    verdict = run(Scenario(members, protocol, tree=shape, network=Network(jitter=3.0, loss=0.1), seed=5))

    assert verdict.ok, verdict.findings


@pytest.mark.parametrize("shape", list(Shape))
@pytest.mark.parametrize("levels", [0, 2, 9])
def test_the_hybrid_on_any_upper_part_of_the_tree(levels: int, shape: Shape) -> None:
    """§6.1: with no level all combine, with all of them it is the arrow, and in between both."""
    members = Membership.of({"A": "abcdefgh", "B": "bcde", "C": "efa"})
    options = {"tree": shape, "network": Network(jitter=3.0, loss=0.1), "seed": 5, "messages": 60}
    hybrid = run(Scenario(members, "hybrid", upper=levels, **options))  # type: ignore[arg-type]

    assert hybrid.ok, hybrid.findings
    if levels == 9:
        arrow = run(Scenario(members, "arrow", **options))  # type: ignore[arg-type]
        assert hybrid.record.logs == arrow.record.logs


def test_an_upper_part_is_the_hybrid_s() -> None:
    with pytest.raises(InputError, match="--upper is for hybrid"):
        deploy(Scenario(Membership.of({"A": "ab"}), "arrow", upper=2))


def test_a_shape_without_a_tree_is_refused() -> None:
    with pytest.raises(InputError, match="protocol sequencer has no tree of a swap object"):
        deploy(Scenario(Membership.of({"A": "ab"}), "sequencer", tree=Shape.PATH))


def test_a_star_is_two_hops_deep_and_a_path_is_long() -> None:
    """A lone swap goes to the sink: the root at first, then the last who swapped."""
    hops = {shape: until_ordered("arrow", 1, False, 20, 32, shape)[2] for shape in Shape}

    assert hops[Shape.STAR] == 2 < hops[Shape.BALANCED] <= 10 < hops[Shape.PATH] <= 31
