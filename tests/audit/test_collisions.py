"""Names that have one hash are still told apart: the hash is made so bad that nearly all collide.

Eight bits for thousands of messages. Only sums may rest on hashes (what a site delivered of a group, and its whole
sequence); the key is fixed here so that the sums of these few logs differ where the logs do.
"""

from pathlib import Path

import numpy as np
import pytest

from ordercast.audit.kernels import LONG, Key, fresh_key
from ordercast.audit.local import LocalSource
from ordercast.audit.verdict import Verdict, audit
from ordercast.spark.session import Spark
from ordercast.spark.source import SparkSource
from tests.support.logs import FAULTS, TWINS, make_logs

FEW = Key(np.random.default_rng(1).integers(2**64, size=LONG // 4, dtype=np.uint64), np.uint64(255))
ORDER_FAULTS = ("swap_at_one_site", "swap_inside_a_metagroup", "cycle_of_three")


def broken(verdict: Verdict) -> set[str]:
    return {name for name, finding in verdict.properties.items() if finding.ok is False}


@pytest.mark.parametrize("stamped", [True, False])
def test_a_clean_log_passes_although_all_names_collide(stamped: bool, tmp_path: Path) -> None:
    """Without stamps the order is searched for cycles: messages taken for one another would make some."""
    logs = make_logs(6_000, TWINS)
    logs.stamped = stamped
    logs.write(tmp_path)
    verdict = audit(LocalSource(str(tmp_path), FEW), "acyclic")

    assert verdict.ok
    assert broken(verdict) == set()


@pytest.mark.parametrize("fault", ORDER_FAULTS)
def test_a_wrong_order_is_found_although_all_names_collide(fault: str, tmp_path: Path) -> None:
    """The same findings, the same example, letter by letter, as with a good hash."""
    logs = make_logs(6_000, TWINS)
    expected = FAULTS[fault](logs) - {"stamps"}
    logs.stamped = False
    logs.write(tmp_path)
    bad, good = (audit(LocalSource(str(tmp_path), key), "acyclic") for key in (FEW, fresh_key()))

    assert expected == broken(bad)
    assert good.as_json() == bad.as_json()


def test_few_rows_at_two_sites_are_judged_by_name(tmp_path: Path) -> None:
    """All names have one hash. Two messages that the sites deliver in different orders are no repeat of one."""
    logs = make_logs(12, {"g": ["a", "b"], "h": ["b"]}, sources=2)
    logs.stamped = False
    rows = logs.sites["b"]
    order = np.arange(len(rows["group"]))
    first, then = np.flatnonzero(rows["group"] == "g")[:2]
    order[[first, then]] = then, first
    logs.sites["b"] = {name: values[order] for name, values in rows.items()}
    logs.write(tmp_path)

    assert {"total", "acyclic"} <= broken(audit(LocalSource(str(tmp_path), fresh_key(0)), "acyclic"))


@pytest.mark.slow
@pytest.mark.parametrize("fault", [None, *ORDER_FAULTS])
def test_spark_says_the_same_although_all_names_collide(fault: str | None, tmp_path: Path, spark: Spark) -> None:
    """Another key, few bits, rows in other pieces: the verdict is that of the process."""
    logs = make_logs(6_000, TWINS)
    if fault is not None:
        FAULTS[fault](logs)
    logs.stamped = False
    logs.write(tmp_path)
    on_spark = audit(SparkSource(spark, str(tmp_path), FEW), "acyclic")

    assert audit(LocalSource(str(tmp_path)), "acyclic").as_json() == on_spark.as_json()
