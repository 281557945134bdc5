"""Bodies in an audit: compared where both tables have them, between sites where sends have none, and said otherwise."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ordercast.audit import columns, kernels, plain
from ordercast.audit.local import LocalSource
from ordercast.audit.verdict import Verdict, audit
from ordercast.errors import InputError
from ordercast.runs import schema
from tests.support.logs import FAULTS, TWINS, Logs, make_logs


@pytest.fixture
def logs() -> Logs:
    return make_logs(30_000, TWINS)


def judged(folder: Path, logs: Logs) -> Verdict:
    logs.write(folder)
    return audit(LocalSource(str(folder)), "acyclic")


def without(folder: Path, table: str) -> None:
    for path in (folder / table).glob("*"):
        pq.write_table(pq.read_table(path).drop_columns(["body_hash"]), path)


def test_a_run_without_bodies_is_judged_and_says_so(logs: Logs, tmp_path: Path) -> None:
    """A directory of an earlier version, or of another system."""
    logs.bodies = False
    verdict = judged(tmp_path, logs)

    assert verdict.ok
    assert verdict.word("body") == ("not judged", "dim")
    assert verdict.notes == ["bodies were not compared: deliveries/ has no column body_hash"]
    assert verdict.as_json()["properties"]["body"] == {"ok": None, "violations": 0, "example": None}


@pytest.mark.parametrize("plainly", [True, False])
@pytest.mark.parametrize("sends", [True, False])
def test_another_body_at_one_site_is_found(
    sends: bool, plainly: bool, logs: Logs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With what was sent the culprit is named, without it a site that differs; by arrays and compiled loops alike."""
    monkeypatch.setattr(columns, "plainly", lambda rows: plainly)
    monkeypatch.setattr("ordercast.audit.fold._loops", lambda rows: plain if plainly else kernels)
    FAULTS["other_body"](logs)
    logs.write(tmp_path)
    if not sends:
        without(tmp_path, "sends")
    verdict = audit(LocalSource(str(tmp_path)), "acyclic")

    assert set(verdict.broken()) == {"body"}
    assert verdict.properties["body"].violations == 1
    assert verdict.properties["body"].says.startswith("s08 delivers " if sends else "s")
    assert verdict.properties["body"].says.endswith("with another body than was sent") is sends
    assert bool(verdict.notes) is not sends


def test_another_body_at_all_sites_is_found(logs: Logs, tmp_path: Path) -> None:
    """Everybody agrees, and nobody has what was sent."""
    changed = logs.sends["msg_id"][100]
    for rows in logs.sites.values():
        rows["body_hash"] = np.where(rows["msg_id"] == changed, 5, rows["body_hash"])
    many = sum(int((rows["msg_id"] == changed).sum()) for rows in logs.sites.values())
    verdict = judged(tmp_path, logs)

    assert set(verdict.broken()) == {"body"}
    assert verdict.properties["body"].violations == many > 1


def test_bodies_that_change_places_are_found(logs: Logs, tmp_path: Path) -> None:
    rows = logs.sites["s05"]
    hashes = rows["body_hash"].copy()
    hashes[[7, 8]] = hashes[[8, 7]]
    rows["body_hash"] = hashes

    assert judged(tmp_path, logs).properties["body"].violations == 2


def test_one_part_of_an_earlier_version_leaves_bodies_open(logs: Logs, tmp_path: Path) -> None:
    """A site went on after an upgrade: its old parts have no hashes, so no part is compared."""
    logs.write(tmp_path, parts=2)
    path = tmp_path / "deliveries" / "s03-0.parquet"
    pq.write_table(pq.read_table(path).drop_columns(["body_hash"]), path)
    verdict = audit(LocalSource(str(tmp_path)), "acyclic")

    assert verdict.ok
    assert verdict.properties["body"].ok is None
    assert "bodies were not compared" in verdict.notes[0]


def test_a_later_version_is_refused(logs: Logs, tmp_path: Path) -> None:
    logs.write(tmp_path)
    path = tmp_path / "sends" / "part-0.parquet"
    assert pq.read_schema(path).metadata[schema.VERSION_KEY] == schema.VERSION.encode()
    pq.write_table(pq.read_table(path).replace_schema_metadata({schema.VERSION_KEY: b"3"}), path)

    with pytest.raises(InputError, match=r"part-0\.parquet: a run directory of version 3; this program reads 1 and 2"):
        LocalSource(str(tmp_path))


def test_a_hash_that_is_not_a_number_is_refused(logs: Logs, tmp_path: Path) -> None:
    logs.write(tmp_path)
    path = tmp_path / "sends" / "part-0.parquet"
    table: Any = pq.read_table(path)
    text = table.column("body_hash").cast(pa.string())
    pq.write_table(table.set_column(table.column_names.index("body_hash"), "body_hash", text), path)

    with pytest.raises(InputError, match="column 'body_hash' holds string, not a whole number"):
        LocalSource(str(tmp_path))
