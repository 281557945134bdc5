"""HTW00's claims, measured in the simulator."""

import pytest

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
