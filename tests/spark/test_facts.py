"""Folds that stay on executors: the verdict of the process, letter by letter, and bounds beyond which nothing holds."""

import os
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ordercast.audit import order
from ordercast.audit.local import LocalSource
from ordercast.audit.verdict import audit
from ordercast.errors import InputError
from ordercast.runs import reader
from ordercast.spark import facts
from ordercast.spark.frames import FrameSource
from ordercast.spark.session import Spark
from ordercast.spark.source import SparkSource
from tests.audit.shapes import make_run
from tests.audit.written import write
from tests.support.logs import FAULTS, TWINS, make_logs

pytestmark = pytest.mark.slow
TABLES = ("deliveries", "sends", "membership")
CAMPAIGN = "ORDERCAST_CAMPAIGN" in os.environ
TODAY = date.today().toordinal()
NAMES = ["", *FAULTS] if CAMPAIGN else [["", *FAULTS][TODAY % (1 + len(FAULTS))]]
SHAPES = range(9_000, 9_060) if CAMPAIGN else range(9_000 + TODAY % 60, 9_001 + TODAY % 60)
LONG = pytest.mark.skipif(not CAMPAIGN, reason="a minute: in `make sim`")


@pytest.fixture(autouse=True)
def nothing_fits_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "FOLDS_AT_MOST", 0)
    monkeypatch.setattr(facts, "MEMBERS_AT_MOST", 0)


def sources(spark: Spark, folder: Path) -> list[Callable[[], Any]]:
    def frames() -> FrameSource:
        deliveries, sends, members = (spark.sql.read.parquet(str(folder / name)) for name in TABLES)
        return FrameSource(deliveries, sends, members)

    return [lambda: SparkSource(spark, str(folder)), frames]


def said(make: Callable[[], Any], level: str = "acyclic", *, running: bool = False) -> dict[str, object]:
    try:
        return audit(make(), level, running=running).as_json()
    except InputError as error:
        return {"refused": str(error).rpartition(": ")[2]}


def local(folder: Path, level: str = "acyclic", *, running: bool = False) -> dict[str, object]:
    return said(lambda: LocalSource(str(folder)), level, running=running)


@pytest.mark.parametrize("name", NAMES)
def test_planted_faults_are_found_by_executors(name: str, tmp_path: Path, spark: Spark) -> None:
    """Files in pieces for the one source, and frames for the other."""
    logs = make_logs(60_000, TWINS)
    if name:
        FAULTS[name](logs)
    logs.write(tmp_path, parts=2)
    expected = local(tmp_path)

    assert expected["ok"] is (not name)
    for make in sources(spark, tmp_path) if CAMPAIGN else sources(spark, tmp_path)[TODAY % 2 :][:1]:
        assert said(make) == expected


def test_runs_of_every_shape_are_judged_alike(tmp_path: Path, spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in SHAPES:
        run, folder = make_run(seed), tmp_path / str(seed)
        write(run, folder, seed)
        monkeypatch.setattr(reader, "PIECE_ROWS", 1 if seed % 2 else 100_000)
        make = sources(spark, folder)[seed % 3 == 0]

        assert said(make, run.level, running=run.running) == local(folder, run.level, running=run.running), seed


@LONG
def test_logs_in_no_order_and_without_stamps_are_searched(tmp_path: Path, spark: Spark) -> None:
    """Rows are spread over all files: they are brought together first; the cycle is found by hashes, shown by names."""
    logs = make_logs(3_000, TWINS)
    FAULTS["swap_at_one_site"](logs)
    logs.stamped = False
    logs.write(tmp_path)
    folder = tmp_path / "deliveries"
    table = pq.read_table(folder)
    for old in folder.glob("*"):
        old.unlink()
    mixed = np.random.default_rng(2).permutation(len(table))
    for part in range(3):
        pq.write_table(table.take(mixed[part::3]), folder / f"{part}.parquet")
    expected = local(tmp_path)

    assert expected["ok"] is False
    assert said(sources(spark, tmp_path)[0]) == expected


@LONG
def test_what_is_too_many_is_not_judged(tmp_path: Path, spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    """No property is said to hold when its sites, its groups or its deliveries were not all looked at."""
    logs = make_logs(3_000, TWINS)
    FAULTS["swap_at_one_site"](logs)
    logs.stamped = False
    logs.write(tmp_path)
    monkeypatch.setattr(facts, "SEARCH_AT_MOST", 100)
    verdict = audit(SparkSource(spark, str(tmp_path)), "acyclic")

    assert (verdict.ok, verdict.outcome) == (False, "was not judged completely")
    assert verdict.properties["total"].ok is verdict.properties["acyclic"].ok is None
    assert "order: there are too many deliveries to search them for cycles" in verdict.notes
    monkeypatch.setattr(facts, "SEARCH_AT_MOST", 10**9)
    monkeypatch.setattr(order, "KNOTS_AT_MOST", 1)
    verdict = audit(SparkSource(spark, str(tmp_path)), "acyclic")

    assert verdict.properties["total"].ok is verdict.properties["acyclic"].ok is None
    assert not verdict.ok


def test_suspects_that_are_too_many_are_counted(tmp_path: Path, spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every site lacks a message; two sites are named, the others are counted, and nothing is said to hold."""
    logs = make_logs(600, {"g": ["a", "b", "c", "d", "e"]}, sources=2)
    logs.sites = {site: {n: v[:-1] for n, v in rows.items()} for site, rows in logs.sites.items()}
    logs.write(tmp_path)
    monkeypatch.setattr(facts, "SUSPECTS_AT_MOST", 2)
    verdict = audit(SparkSource(spark, str(tmp_path)), "acyclic")

    assert verdict.properties["completeness"].violations == 2
    assert verdict.properties["fifo"].ok is None
    assert "looked at 2 of 5 suspicious sites: there may be more violations" in verdict.notes
    assert "of the others 3 deliver other messages than were sent to them" in verdict.notes


@LONG
def test_ids_that_are_too_many_are_not_judged(tmp_path: Path, spark: Spark, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = make_logs(600, {"g": ["a", "b"]}, sources=2)
    logs.write(tmp_path)
    path = tmp_path / "sends" / "part-0.parquet"
    sends = pq.read_table(path)
    pq.write_table(pa.concat_tables([sends, sends.slice(0, 5)]), path)
    monkeypatch.setattr(facts, "ALIKE_AT_MOST", 3)
    for make in sources(spark, tmp_path):
        verdict = audit(make(), "acyclic")

        assert "ids: 3 that may not be unique were looked at, and there are more" in verdict.notes
        assert verdict.properties["creation"].ok is not True
        assert not verdict.ok
