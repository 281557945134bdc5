"""A run of ours, told as JSON lines by somebody else and imported, is judged as before."""

import copy
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from ordercast.audit.local import LocalSource
from ordercast.audit.verdict import Verdict, audit
from ordercast.imports import tables
from ordercast.imports.run import import_logs
from tests.support.logs import FAULTS, TWINS, Logs, make_logs

CAMPAIGN = "ORDERCAST_CAMPAIGN" in os.environ
CHOSEN = FAULTS if CAMPAIGN else ["swap_at_one_site", "forged_previous_stamp", "cycle_of_three"]
pytestmark = pytest.mark.slow

MAPPING = """
format = "jsonl"
[message]
msg_id = "id"
group = "groups"
source = "by.name"
source_seq = "by.number"
body_hash = "hash"
[deliveries]
files = "logs/*"
site = { field = "@file", match = 'logs/([^/]+)\\.jsonl$' }
epoch = "epoch"
delivered_at = "time"
order_class = "class"
stamp = "stamp"
prev_stamp = "before"
[sends]
files = "sends.jsonl"
sent_at = "time"
"""


@pytest.fixture(scope="module")
def good() -> Logs:
    return make_logs(60_000 if CAMPAIGN else 6_000, TWINS)


def tell(run: Path, folder: Path, mapping: str = MAPPING) -> Path:
    """Write a run directory as the JSON lines of somebody else, and a mapping for them."""
    (folder / "logs").mkdir(parents=True)
    for table, name in (("deliveries", "logs/{site}.jsonl"), ("sends", "sends.jsonl")):
        files: dict[str, list[dict[str, Any]]] = {}
        for row in pq.read_table(run / table, partitioning=None).to_pylist():
            files.setdefault(name.format(**row), []).append(row)
        for file, rows in files.items():
            rows.sort(key=lambda row: int(row.get("position", 0)))
            (folder / file).write_text("".join(json.dumps(foreign(row)) + "\n" for row in rows))
    groups = "".join(f"{group} = {json.dumps(list(sites))}\n" for group, sites in TWINS.items())
    (folder / "mapping.toml").write_text(f"{mapping}\n[groups]\n{groups}")
    return folder / "mapping.toml"


def foreign(row: dict[str, Any]) -> dict[str, Any]:
    told = {
        "id": row["msg_id"], "groups": row["group"].split("+"), "hash": str(row["body_hash"]),
        "by": json.dumps({"name": row["source"], "number": row["source_seq"]}),
        "time": row.get("sent_at", row.get("delivered_at")),
    }  # fmt: skip
    if "stamp" in row:
        before = row["prev_stamp"] and row["prev_stamp"].hex()
        told |= {"epoch": row["epoch"], "class": row["order_class"], "stamp": row["stamp"].hex(), "before": before}
    return told


def judged(folder: Path) -> Verdict:
    return audit(LocalSource(str(folder)), "acyclic")


@pytest.mark.parametrize("fault", ["", *CHOSEN])
def test_the_verdict_is_the_same(fault: str, good: Logs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Letter by letter, example by example, in parts so small that every site's log is cut."""
    monkeypatch.setattr(tables, "ROWS", 70)
    monkeypatch.setattr(tables, "PART_ROWS", 400)
    logs = copy.deepcopy(good)
    expected = FAULTS[fault](logs) if fault else set()
    logs.write(tmp_path / "ours")
    import_logs(tell(tmp_path / "ours", tmp_path / "theirs"), tmp_path / "imported")
    verdict = judged(tmp_path / "imported")

    assert expected == {name for name, finding in verdict.properties.items() if finding.ok is False}
    assert judged(tmp_path / "ours").as_json() == verdict.as_json()
    assert len(list((tmp_path / "imported" / "deliveries").iterdir())) > 5


DERIVED = 'sends = "from deliveries"\n' + MAPPING.partition("[sends]")[0]


@pytest.mark.parametrize("buckets", [1, 7])
def test_sends_that_nobody_recorded(good: Logs, buckets: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are what was delivered, each message once; creation and completeness are not judged, and said not to be."""
    monkeypatch.setattr(tables, "BUCKET_ROWS", 1 + len(good.sends["msg_id"]) * 6 // buckets)
    good.write(tmp_path / "ours")
    found = import_logs(tell(tmp_path / "ours", tmp_path / "theirs", DERIVED), tmp_path / "imported")
    sends = pq.read_table(tmp_path / "imported" / "sends").to_pylist()
    verdict = judged(tmp_path / "imported")

    assert "audit will not judge creation and completeness" in found.notes[0]
    columns = ("msg_id", "group", "source", "source_seq")
    ours = pq.read_table(tmp_path / "ours" / "sends").to_pylist()
    assert sorted(tuple(row[c] for c in columns) for row in ours) == sorted(tuple(row.values()) for row in sends)
    assert ["creation", "completeness"] == verdict.open()
    assert "was not judged completely" == verdict.outcome and not verdict.ok
    assert all(verdict.properties[name].ok for name in ("duplicate", "body", "fifo", "total", "acyclic", "epochs"))
    assert any("sends/ was made of what sites delivered" in note for note in verdict.notes)


def test_what_one_member_lacks_is_missed_all_the_same(good: Logs, tmp_path: Path) -> None:
    logs = copy.deepcopy(good)
    rows = logs.sites["s04"]
    logs.sites["s04"] = {name: np.delete(values, 100) for name, values in rows.items()}
    logs.write(tmp_path / "ours")
    import_logs(tell(tmp_path / "ours", tmp_path / "theirs", DERIVED), tmp_path / "imported")
    verdict = judged(tmp_path / "imported")

    assert verdict.properties["completeness"].ok is False
    assert verdict.properties["creation"].ok is None
