"""Every kind of fault, planted in a log of a million deliveries, is found, named, and its example is real.

`make sim` takes the million; the test run a quarter of it.
"""

import copy
import os
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ordercast.audit.local import LocalSource
from ordercast.audit.rows import Source
from ordercast.audit.verdict import Verdict, audit
from ordercast.spark.session import Spark
from ordercast.spark.source import SparkSource
from ordercast.verify.deliveries import JUDGES
from ordercast.verify.findings import Sent
from ordercast.verify.record import Record
from tests.support.logs import FAULTS, TWINS, Logs, make_logs

TODAY = date.today().toordinal()
MILLION = 1_000_000 if "ORDERCAST_CAMPAIGN" in os.environ else 250_000
ON_SPARK = ("swap_inside_a_metagroup", "duplicate_hiding_a_loss", "cycle_of_three")  # `make sim` has all of them there
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def million() -> Logs:
    return make_logs(MILLION, TWINS)


def broken(verdict: Verdict) -> set[str]:
    return {name for name, finding in verdict.properties.items() if finding.ok is False}


def is_real(folder: Path, name: str, example: dict[str, Any]) -> bool:
    """Whether the naive judge finds the same property broken among the messages of the example alone."""
    shown = {row["msg_id"] for row in example["deliveries"]}
    sites = {row["site"] for row in example["deliveries"]}
    assert 1 <= len(shown) <= 10
    members: dict[str, list[str]] = {}
    for row in pq.read_table(folder / "membership").to_pylist():
        members.setdefault(row["group"], []).append(row["site"])
    wanted = [("msg_id", "in", shown)]
    sends = {
        row["msg_id"]: Sent(tuple(row["group"].split("+")), row["source"], row["source_seq"])
        for row in pq.read_table(folder / "sends", filters=wanted).to_pylist()
    }
    rows = pq.read_table(folder / "deliveries", filters=[*wanted, ("site", "in", sites)]).to_pylist()
    rows.sort(key=lambda row: row["position"])
    logs = {site: [row["msg_id"] for row in rows if row["site"] == site] for site in sites}
    stamps = {
        site: [(row.get("order_class"), row.get("stamp")) for row in rows if row["site"] == site] for site in sites
    }
    if name == "body":
        sent = {row["msg_id"]: row["body_hash"] for row in pq.read_table(folder / "sends", filters=wanted).to_pylist()}
        return all(row["body_hash"] != sent[row["msg_id"]] for row in rows)
    if name == "epochs":
        return any(a["epoch"] > b["epoch"] for a in rows for b in rows if a["position"] < b["position"])
    return JUDGES[name](Record(members, sends, logs, stamps)) is not None


@pytest.mark.parametrize("fault", FAULTS if "ORDERCAST_CAMPAIGN" in os.environ else list(FAULTS)[TODAY % 2 :: 2])
def test_a_planted_fault_is_found_and_named(fault: str, million: Logs, tmp_path: Path, spark: Spark) -> None:
    """In process and on Spark alike; nothing else is said to be broken; the examples stand alone."""
    logs = copy.deepcopy(million)
    expected = FAULTS[fault](logs)
    logs.write(tmp_path)
    sources: list[Source] = [LocalSource(str(tmp_path))]
    if fault in ON_SPARK or "ORDERCAST_CAMPAIGN" in os.environ:
        sources.append(SparkSource(spark, str(tmp_path)))
    verdicts = [audit(source, "acyclic") for source in sources]

    assert expected == broken(verdicts[0])
    assert verdicts[0].as_json() == verdicts[-1].as_json()
    for name in expected - {"classes"}:
        example = verdicts[0].properties[name].example
        assert example is not None
        if not (name == "stamps" and fault.startswith("forged")):  # a neighbour's stamp: no judge of few can say
            assert is_real(tmp_path, name, example.as_json()), example


OTHERS = sorted(set(FAULTS) - set(ON_SPARK))


@pytest.mark.parametrize("fault", OTHERS if "ORDERCAST_CAMPAIGN" in os.environ else OTHERS[TODAY % 3 :: 3])
def test_spark_says_the_same(fault: str, tmp_path: Path, spark: Spark) -> None:
    """The other faults, a third of them a day, in smaller logs: Spark's verdict is the process's, letter by letter."""
    logs = make_logs(60_000, TWINS)
    expected = FAULTS[fault](logs)
    logs.write(tmp_path)
    verdict = audit(SparkSource(spark, str(tmp_path)), "acyclic")

    assert expected == broken(verdict)
    assert audit(LocalSource(str(tmp_path)), "acyclic").as_json() == verdict.as_json()
