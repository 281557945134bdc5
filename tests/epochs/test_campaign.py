"""Groups that change and sites that fail, by seed: every promise is judged, and everything comes to rest."""

import pytest

from ordercast.sim.changing import judge
from tests.support.epoch_campaign import FOUND, KINDS, LATER, case

SEEDS, SHARE = 140, 20


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, SEEDS, SHARE))
def test_changes_and_failures(first: int) -> None:
    """All protocols, policies and deliveries in turn; 5,000 seeds run in `make sim`."""
    for seed in range(first, first + SHARE):
        found, _ = judge(case(seed))

        assert found == [], (seed, found[:3])


@pytest.mark.parametrize("seed", (*FOUND, LATER + 282))
def test_what_was_broken_once(seed: int) -> None:
    assert judge(case(seed))[0] == []


def test_every_kind_of_fault_is_in_many_seeds() -> None:
    """Churn, several-group messages, loss and duplication too."""
    cases = [case(seed) for seed in range(400)]
    share = {kind: sum(any(f.kind == kind for f in c.faults) for c in cases) / len(cases) for kind in (*KINDS, "slow")}
    share["churn"] = sum(bool(c.changes) for c in cases) / len(cases)
    share["several groups"] = sum(any(len(groups) > 1 for _, _, groups in c.sends) for c in cases) / len(cases)
    share["loss"] = sum(bool(c.network.loss) for c in cases) / len(cases)
    share["duplication"] = sum(bool(c.network.duplicate) for c in cases) / len(cases)

    assert {kind: value for kind, value in share.items() if value < 0.2} == {}
