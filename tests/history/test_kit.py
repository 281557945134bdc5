"""Every history behaves as the interface says."""

from functools import partial
from pathlib import Path

import pytest

from ordercast.history.disk import DiskHistory
from ordercast.history.memory import MemoryHistory, Place
from ordercast.testing.check_history import CHECKS, Opener, check_history


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", ["disk", "memory"])
def test_histories_behave_the_same(kind: str, check, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    check(partial(DiskHistory.open, tmp_path / "p") if kind == "disk" else partial(MemoryHistory.open, Place()))


def test_the_kit_runs_every_check_at_a_place_of_its_own() -> None:
    places: list[Opener] = []

    def place() -> Opener:
        places.append(partial(MemoryHistory.open, Place()))
        return places[-1]

    check_history(place)

    assert len(places) == len(CHECKS)
