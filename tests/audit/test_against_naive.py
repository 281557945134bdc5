"""The audit against a judge that is slow and obvious, on runs of every shape: no miss, no false alarm."""

import os
from pathlib import Path
from typing import Any

import pytest

from ordercast.audit import local
from ordercast.audit.local import LocalSource
from ordercast.audit.verdict import NEEDED, Verdict, audit
from ordercast.runs import reader
from ordercast.spark.session import Spark
from ordercast.spark.source import SparkSource
from tests.audit.naive import Naive, Run
from tests.audit.shapes import make_run
from tests.audit.written import write

MANY = 2_000 if "ORDERCAST_CAMPAIGN" in os.environ else 100
EXACT_COUNTS = ("creation", "duplicate", "completeness")
NEED_NOT = ("total", "acyclic", "classes")  # not judged where the level does not need them


def differences(run: Run, said: Verdict) -> list[str]:
    """Compare property by property, and check every example."""
    naive = Naive(run)
    truth = naive.verdict()
    found = []
    for name, finding in said.properties.items():
        left_out = finding.ok is None and name in NEED_NOT and name not in NEEDED[run.level]
        if finding.ok is not truth[name] and not left_out:
            found.append(f"{name}: {finding.ok}, but it is {truth[name]}: {finding.example}")
        if finding.ok is False and truth[name] is False:
            assert finding.example is not None
            if not naive.is_real(name, finding.example.as_json()):
                found.append(f"{name}: not real: {finding.example}")
    for name in EXACT_COUNTS:
        if said.properties[name].violations != getattr(naive, name)():
            found.append(f"{name}: counted {said.properties[name].violations}, not {getattr(naive, name)()}")
    holds = all(
        truth[n] or (truth[n] is None and n in ("classes", "stamps", "body", "epochs")) for n in NEEDED[run.level]
    )
    if said.ok != holds:
        found.append(f"ok: {said.ok}, but it is {holds}")
    return found


def judged(source: Any, run: Run) -> Verdict:
    return audit(source, run.level, running=run.running)


def _fold_by(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fold every row group by itself and merge, or whole files."""
    monkeypatch.setattr(local, "SHARE_ROWS", rows)
    monkeypatch.setattr(reader, "PIECE_ROWS", rows)


@pytest.mark.slow
@pytest.mark.parametrize("share", range(4))
def test_the_audit_says_what_a_naive_judge_says(share: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(share, MANY, 4):
        run = make_run(seed)
        write(run, tmp_path / str(seed), seed)
        _fold_by(1 if seed % 3 else 100_000, monkeypatch)
        wrong = differences(run, judged(LocalSource(str(tmp_path / str(seed))), run))

        assert wrong == [], (seed, run.level, run.notes)


@pytest.mark.slow
def test_spark_says_what_a_naive_judge_says(tmp_path: Path, spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(5_000, 5_000 + MANY // 10):
        run = make_run(seed)
        write(run, tmp_path / str(seed), seed)
        _fold_by(1 if seed % 2 else 100_000, monkeypatch)
        said = judged(SparkSource(spark, str(tmp_path / str(seed))), run)

        assert differences(run, said) == [], (seed, run.level, run.notes)
        assert said.as_json() == judged(LocalSource(str(tmp_path / str(seed))), run).as_json(), seed


def test_the_runs_show_every_verdict() -> None:
    """The comparison is worth something: each property holds for some runs, fails for others; every fault occurs."""
    runs = [make_run(seed) for seed in range(200)]
    verdicts = [Naive(run).verdict() for run in runs]

    for name in verdicts[0]:
        assert {True, False} <= {verdict[name] for verdict in verdicts}, name
    assert set(NEEDED) == {run.level for run in runs}
    assert (
        {run.running for run in runs} == {run.stamped for run in runs} == {run.bodies for run in runs} == {True, False}
    )
