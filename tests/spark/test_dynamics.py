"""Experiments on the dynamics, on Spark: pooled as by hand, told in words, and named so that they can be run again."""

import json
import statistics
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ordercast.names import Delivery, Policy
from ordercast.sim.dynamics import CRASH, CUT, Point, run_trial
from ordercast.spark.about import KEY, about
from ordercast.spark.claims import claims
from ordercast.spark.dynamics import DEAR, DYNAMICS, FIGURES, MORE, dynamics_summary, points, run_dynamics
from ordercast.spark.experiment import Asked, Results, report
from ordercast.spark.session import Spark
from ordercast.spark.trials import collected

pytestmark = pytest.mark.slow
Rows = list[dict[str, Any]]
T_TWO, T_EIGHT = 4.303, 2.306
"""Student's t for 95 %, two and eight degrees of freedom."""
TINY = [
    Point("change", "propagation", 10),
    Point("churn", "propagation", 10),
    Point("churn", "propagation", 10, churn=10.0),
    Point("recovery", "propagation", 20),
    Point("recovery", "propagation", 20, policy=Policy.ATOMIC),
    Point("rollback", "propagation", 10, rate=1.0, fault=CRASH),
    Point("rollback", "propagation", 10, rate=1.0, fault=CUT),
    Point("rollback", "propagation", 10, rate=1.0, fault=CUT, delivery=Delivery.SAFE),
]


@pytest.fixture(scope="module")
def rows(spark: Spark) -> Rows:
    """The summary of a tiny grid, three trials a point, nine of rollback."""
    found: Rows = collected(dynamics_summary(run_dynamics(spark, TINY, 3, seed=5))).to_pylist()
    return found


def test_the_numbers_are_those_of_the_simulator(rows: Rows) -> None:
    """Mean and 95 % interval of every figure, pooled by Spark and by hand."""
    assert len(rows) == len(TINY)
    for row in rows:
        point = Point(*(row[name] for name in Point._fields))
        many = 3 * MORE.get(point.experiment, 1)
        trials = [run_trial(point, number, 5) for number in range(many)]
        assert row["runs"] == many
        for name in FIGURES:
            values = [value for trial in trials if (value := trial.get(name)) is not None]
            if len(values) < many:
                continue
            half = {3: T_TWO, 9: T_EIGHT}[many] * statistics.stdev(values) / many**0.5
            assert row[name] == pytest.approx(statistics.fmean(values)), (point, name)
            assert row[f"{name}_ci"] == pytest.approx(half, rel=0.01), (point, name)
        assert [name for name in FIGURES if row[name] is not None] == [
            name for name in FIGURES if any(trial.get(name) is not None for trial in trials)
        ]


def test_the_report_says_what_was_found_and_what_run_it_is(rows: Rows, tmp_path: Path) -> None:
    made = about("ordercast experiment all --seed 5", 5)
    asked = Asked(dynamics=DYNAMICS, seed=5)
    page, said = report(Results(dynamics=rows), asked, tmp_path, made)
    text = page.read_text("utf-8")

    for words in ("done quickly and easily", "joins and leaves asked for", "are without it suspect_after", "roll back"):
        assert [line for line in said if words in line], (words, said)
    assert said == claims(rows)
    assert text.count("data:image/svg+xml") == len(DYNAMICS)
    for told in ("ordercast experiment all --seed 5", "seed 5", "Python 3.", "pyspark 4.", "numpy ", made.date):
        assert told in text
    for experiment in DYNAMICS:
        assert (tmp_path / f"{experiment}.png").stat().st_size > 10_000


def test_tables_say_what_run_they_are_of(tmp_path: Path) -> None:
    made = about("ordercast experiment churn", 3)
    made.write(tmp_path / "run.json")
    made.write_rows([{"a": 1}], tmp_path / "a.parquet")
    told = json.loads((tmp_path / "run.json").read_bytes())

    assert told == json.loads(pq.read_schema(tmp_path / "a.parquet").metadata[KEY])
    assert (told["command"], told["seed"]) == ("ordercast experiment churn", 3)
    assert set(told["versions"]) == {"Python", "ordercast", "pyspark", "numpy"}


def test_a_claim_that_does_not_hold_is_said_to_fail(rows: Rows) -> None:
    """The verdicts follow the figures: other figures, other words."""
    worse = [dict(row) for row in rows]
    for row in worse:
        if row["experiment"] == "change":
            row |= {"stall": 50.0, "share": 0.1}
        if row["experiment"] == "rollback":
            row |= {"happened": 1.0, "rolled": 4.0, "elsewhere": 1.0}
        if row["experiment"] == "recovery":
            row |= {"waiting": 0.5}
    said = claims(worse)

    assert [line.split(":")[0].split(",")[0] for line in said if not line.startswith("Ours")] == ["Fails"] * 8, said


def test_the_grid_covers_what_it_varies() -> None:
    grid = points(DYNAMICS)

    assert {point.experiment for point in grid} == set(DYNAMICS)
    assert [point for point in grid if point.sites > DEAR.get(point.protocol, point.sites)] == []
    assert {point.delivery for point in grid if point.experiment == "rollback"} == set(Delivery)
    assert {point.policy for point in grid if point.experiment == "recovery"} == set(Policy)
    assert points(("churn",)) == [point for point in grid if point.experiment == "churn"]
    assert len(set(grid)) == len(grid)
