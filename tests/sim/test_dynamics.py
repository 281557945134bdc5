"""Trials of what changes and failures cost: functions of their keys, with figures that can be checked by hand."""

import random

import pytest

from ordercast.names import Delivery, Policy
from ordercast.sim.dynamics import (
    CRASH,
    CUT,
    BrokenTrialError,
    Point,
    case_of,
    family,
    judged,
    run_trial,
    survivors_judged,
    traffic,
)
from ordercast.sim.watched import Watched

POINTS = (
    Point("change", "propagation", 10),
    Point("churn", "sequencer", 10, churn=10.0),
    Point("recovery", "propagation", 10),
    Point("rollback", "propagation", 10, fault=CUT, rate=0.25),
)


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.experiment)
def test_a_trial_is_a_function_of_its_key(point: Point) -> None:
    """The same key gives the same figures; another number and another seed give others."""
    one = run_trial(point, 3, 0)

    assert one == run_trial(point, 3, 0)
    assert any(one != run_trial(point, number, seed) for number, seed in ((4, 0), (3, 1)))


@pytest.mark.slow
def test_a_change_concerns_its_class_and_stops_it_for_no_longer_than_a_report_takes() -> None:
    """Errata 70, and the bound of docs/protocols/epochs.md: a class that reports stands for 8 latencies, and a tick."""
    rows = [run_trial(Point("change", "two-phase", 10), number, 0) for number in range(4)]

    assert all(1 <= row["touched"] <= 2 for row in rows if row["touched"] is not None)
    assert all(0 < row["stall"] <= 10 for row in rows if row["stall"] is not None)


@pytest.mark.slow
def test_recovery_begins_when_the_site_is_suspected() -> None:
    """Ten latencies more of patience are ten more until the groups are without the dead site."""
    short, long = (
        run_trial(Point("recovery", "propagation", 10, suspect_after=after), 0, 0)["recovery"] for after in (2.0, 12.0)
    )

    assert short is not None
    assert long is not None
    assert abs(long - short - 10) <= 3  # what is lost is said again after some ticks
    assert short > 2


@pytest.mark.slow
def test_with_atomic_delivery_nobody_is_taken_out() -> None:
    """GS88 §5.2.2: two-phase needs the dead site's answer, so what is sent to its groups waits."""
    row = run_trial(Point("recovery", "two-phase", 10, policy=Policy.ATOMIC), 0, 0)

    assert row["recovery"] is None
    assert row["waiting"] is not None
    assert row["waiting"] > 0.5


@pytest.mark.slow
def test_only_the_site_that_was_cut_off_rolls_back_and_only_with_delivery_agreed() -> None:
    """GS88 §5.2.1; the cases are those of one seed, in which the site that was cut off went on ordering alone."""
    agreed = [run_trial(Point("rollback", "propagation", 10, fault=CUT, rate=0.25), number, 0) for number in range(4)]
    safe = [
        run_trial(Point("rollback", "propagation", 10, fault=CUT, rate=0.25, delivery=Delivery.SAFE), number, 0)
        for number, row in enumerate(agreed)
        if row["rolled"]
    ]

    crashed = [
        run_trial(Point("rollback", "propagation", 10, fault=CRASH, rate=0.25), number, 0) for number in range(4)
    ]

    assert sum(row["rolled"] or 0 for row in agreed) > sum(row["rolled"] or 0 for row in crashed)
    assert {row["elsewhere"] for row in agreed} == {0.0}
    assert [row["rolled"] for row in safe] == [0.0] * len(safe) != []


def test_a_trial_that_broke_a_promise_has_no_figures() -> None:
    point = Point("rollback", "propagation", 10, fault=CRASH)
    setup = family(point, random.Random(0))
    world = Watched(case_of(point, setup, 0, traffic(setup, 0.5, 3.0, random.Random(0))))
    world.run(30.0)
    judged(world, point, 0)
    world.judge.problem("fifo", "said for this test")

    with pytest.raises(BrokenTrialError, match=r"rollback.*trial 0: \('fifo', 'said for this test'\)"):
        judged(world, point, 0)
    with pytest.raises(BrokenTrialError, match="said for this test"):
        survivors_judged(world, point, 0)


def test_a_message_that_comes_late_does_not_wait_for_ever() -> None:
    """With protocol timestamp one of them comes when all others are there, and 25 latencies have passed."""
    point = Point("recovery", "timestamp", 20, policy=Policy.AVAILABLE, suspect_after=12.0)

    assert run_trial(point, 1, 0)["waiting"] == 0.0
