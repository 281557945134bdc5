"""Every history behaves as the interface says."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from ordercast.errors import LocalError
from ordercast.history.disk import DiskHistory
from ordercast.history.memory import MemoryHistory, NoHistory, Place
from ordercast.history.store import Checkpoint, Identity, Position
from ordercast.sim.disk import Disk
from ordercast.testing.check_history import CHECKS, Opener, check_history


def place(kind: str, folder: Path) -> Opener:
    match kind:
        case "disk":
            return partial(DiskHistory.open, folder / "p")
        case "memory":
            return partial(MemoryHistory.open, Place())
        case _:
            return Disk().open


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("kind", ["disk", "memory", "simulated"])
def test_histories_behave_the_same(kind: str, check: Callable[[Opener], None], tmp_path: Path) -> None:
    check(place(kind, tmp_path))


def test_the_kit_runs_every_check_at_a_place_of_its_own() -> None:
    places: list[Opener] = []

    def another() -> Opener:
        places.append(partial(MemoryHistory.open, Place()))
        return places[-1]

    check_history(another)

    assert len(places) == len(CHECKS)


def test_a_site_that_is_not_durable_counts_and_keeps_nothing() -> None:
    history = NoHistory(Identity("c", "p", 1))
    history.append([b"a", b"b"], [Position(0, 3, 1, b"s")])
    history.keep(Checkpoint(2, 3, b"state"), 0)

    assert (history.count, history.first_position, history.next_position) == (2, 3, 3)
    assert history.checkpoint() is None
    assert list(history.records(0)) == []
    assert history.past(3, 1) == []
    with pytest.raises(LocalError, match="not durable"):
        history.past(2, 1)
