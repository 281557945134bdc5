"""The campaign of nodes: 100 seeds here, 2,000 in `make sim`."""

import re

import pytest

from ordercast.sim.faults import run
from tests.support.node_campaign import case, replay, turn


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 100, 10))
def test_nothing_is_broken_and_nothing_is_left(first: int) -> None:
    """Issue 12, must show: crashes at every boundary, lost messages, full disks, slow readers; every protocol."""
    broken = []
    for seed in range(first, first + 10):
        kind, mix = turn(seed)
        verdict = run(case(kind, mix, seed))
        broken += [] if verdict.ok else [f"{replay(kind, mix, seed)}  # {verdict.findings[0]}"]

    assert [] == broken


def test_an_old_copy_that_has_caught_up_in_numbers_is_found() -> None:
    """Errata 99: a restored source sends more than its peer has, before it meets it; nothing of it is called safe."""
    assert run(case(("propagation", False), "restored", 198)).findings == []


def test_a_world_is_a_function_of_its_seed() -> None:
    lines: list[list[str]] = [[], []]
    for told in lines:
        run(case(("propagation", False), "everything", 1), told.append)

    first, second = ([re.sub(" at 0x[0-9a-f]+", "", line) for line in told] for told in lines)
    assert len(first) > 100
    assert first == second
