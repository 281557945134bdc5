"""The counting network: numbers without a gap whatever overtakes what, and the step property at rest."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.errors import InputError
from ordercast.protocols.swap.bitonic import Balancer, Bitonic, Counter


@pytest.mark.parametrize(("width", "depth"), [(1, 0), (2, 1), (4, 3), (8, 6), (16, 10), (32, 15)])
def test_its_depth(width: int, depth: int) -> None:
    """Log w (log w + 1) / 2, and half as many balancers in each layer as it is wide."""
    network = Bitonic(width)

    assert (depth, width + depth * width // 2) == (network.depth, network.nodes)


@given(st.sampled_from([1, 2, 4, 8, 16]), st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99)), max_size=80))
def test_it_counts_without_a_gap(width: int, requests: list[tuple[int, int]]) -> None:
    """Requests enter at any wire, and any one of them moves next."""
    network = Bitonic(width)
    under_way: list[Balancer | Counter] = []
    given_out = []
    for wire, who in requests:
        under_way.append(network.inputs[wire % width])
        node = under_way.pop(who % len(under_way))
        if isinstance(node, Counter):
            given_out.append(node.count())
        else:
            under_way.append(node.step())
    while under_way:
        node = under_way.pop(0)
        if isinstance(node, Counter):
            given_out.append(node.count())
        else:
            under_way.append(node.step())

    assert list(range(len(requests))) == sorted(given_out)


def test_a_network_that_is_no_bitonic_one_leaves_gaps() -> None:
    """Two balancers side by side do not count: what comes to one of them gets its numbers only."""
    halves = [Bitonic(2), Bitonic(2)]
    numbers = []
    for _ in range(4):
        node: Balancer | Counter = halves[0].inputs[0]
        while isinstance(node, Balancer):
            node = node.step()
        numbers.append(2 * node.count())

    assert [0, 2, 4, 6] == numbers


@pytest.mark.parametrize("width", [0, 3, 12, -4])
def test_other_widths_are_refused(width: int) -> None:
    with pytest.raises(InputError, match="not"):
        Bitonic(width)
