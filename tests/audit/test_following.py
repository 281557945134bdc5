"""`ordercast audit DIR --follow`: a run is judged as it is written."""

import json
import signal
import subprocess
import sys
import time
import urllib.request
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ordercast.audit.following import Follower
from ordercast.cli.follow import follow
from ordercast.errors import InputError
from ordercast.live.ports import free_ports
from ordercast.runs.writer import write_table
from tests.support.logs import FAULTS, TWINS, Logs, make_logs
from tests.support.processes import WAIT_S, Processes

ELSEWHERE = {"class_too_fine", "missing_tail"}
"""What is judged when the run is over: classes, and what a site has not come to yet."""


def parts_of(logs: Logs, folder: Path, many: int) -> list[list[tuple[Path, Any]]]:
    """Return a run as live sites write it, in so many steps: (path, table) of every part."""
    logs.write(folder / "whole")
    steps: list[list[tuple[Path, Any]]] = [[] for _ in range(many)]
    sends = pq.read_table(folder / "whole" / "sends" / "part-0.parquet")
    whole = [("sends", "source_seq", name, sends.filter(pa.compute.equal(sends["source"], name)))
             for name in sorted(set(sends["source"].to_pylist()))]  # fmt: skip
    for path in sorted((folder / "whole" / "deliveries").glob("*.parquet")):
        whole.append(("deliveries", "position", path.stem.rpartition("-")[0], pq.read_table(path)))
    for table, by, site, rows in whole:
        cuts = np.linspace(0, len(rows), many + 1).astype(int).tolist()
        for step, (begin, end) in enumerate(pairwise(cuts)):
            part = rows.slice(begin, end - begin)
            if len(part):
                name = f"{site}-{part[by][0]}-{part[by][-1]}.parquet"
                steps[step].append((folder / "run" / table / name, part))
    members = pq.read_table(folder / "whole" / "membership" / "part-0.parquet")
    steps[0].append((folder / "run" / "membership" / "part-0.parquet", members))
    return steps


def write(parts: list[tuple[Path, Any]]) -> None:
    for path, table in parts:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_table(table, path)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["", *sorted(FAULTS.keys() - ELSEWHERE)])
def test_what_is_broken_is_found_as_it_is_written(tmp_path: Path, name: str) -> None:
    """In steps, with a new life of the audit at each: the same properties are broken as in the whole run."""
    logs = make_logs(60_000, TWINS, seed=3)
    expected = FAULTS[name](logs) if name else set()
    state, found = tmp_path / "state", set[str]()
    for step in parts_of(logs, tmp_path, 4):
        write(step)
        follower = Follower(tmp_path / "run", state=state)
        follower.search_s = 0.0
        found |= {finding.property for finding in follower.look()} | follower.broken.keys()
        follower.save()

    assert follower.deliveries >= 59_000
    assert bool(found) == bool(expected), (name, found, expected)
    assert found & expected or not expected, (name, found, expected)
    if not name:
        assert (follower.under_way, follower.held()) == (0, [])


def test_parts_come_in_any_order_and_what_waits_is_said(tmp_path: Path) -> None:
    logs = make_logs(3_000, TWINS, seed=4)
    steps = parts_of(logs, tmp_path, 3)
    write([part for part in steps[0] if part[0].parent.name != "sends"])
    follower = Follower(tmp_path / "run")
    assert (follower.look(), follower.deliveries) == ([], 0)
    assert any("waits for what c" in held.reason for held in follower.held())
    write([part for part in steps[0] if part[0].parent.name == "sends"])
    write(steps[2])
    follower.look()
    assert any("/ of s00 from" in held.reason for held in follower.held())
    write(steps[1])

    assert follower.look() == []
    assert (follower.held(), follower.under_way) == ([], 0)
    assert follower.deliveries == sum(len(rows["message"]) for rows in logs.sites.values())


def test_what_cannot_be_followed_is_refused_by_name(tmp_path: Path) -> None:
    logs = make_logs(300, TWINS)
    write(parts_of(logs, tmp_path, 1)[0])
    run = tmp_path / "run"
    (tmp_path / "state").write_bytes(b"what?")
    with pytest.raises(InputError, match="causal order is judged whole"):
        Follower(run, "causal")
    with pytest.raises(InputError, match="not what --follow keeps"):
        Follower(run, state=tmp_path / "state").look()
    with pytest.raises(InputError, match="not a part that a live site writes"):
        Follower(tmp_path / "whole").look()
    follower = Follower(run, state=tmp_path / "good")
    follower.look()
    follower.save()
    (run / "lives").mkdir()
    pq.write_table(pa.table({"site": ["s"]}), run / "lives" / "s.parquet")
    with pytest.raises(InputError, match="is of another run"):
        Follower(run, state=tmp_path / "good").look()


def test_an_empty_folder_proves_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = follow(str(tmp_path), "acyclic", state=None, metrics=None, seconds=0.1, as_json=False)
    said = capsys.readouterr().out

    assert code == 1
    assert "nothing is there to be judged" in said and "was not judged completely" in said


@pytest.mark.slow
def test_a_live_cluster_is_followed_and_a_planted_fault_is_named(tmp_path: Path) -> None:
    """The command beside real sites: it keeps up, says how it is, and names a message whose body was changed."""
    from ordercast.client.sync import connect

    run, port = tmp_path / "run", free_ports(1)[0]
    with Processes(tmp_path, {"x": ["a", "b"], "y": ["b"]}, 'export = "run"') as cluster:
        command = [sys.executable, "-m", "ordercast", "audit", str(run), "--follow", "--json", "--metrics", str(port)]
        run.mkdir(exist_ok=True)
        following = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert following.stdout is not None
        with connect(cluster.clients["a"]) as client:
            for number in range(40):
                client.multicast_many("x", [b"%d" % number] * 5, ack="safe")
        lines = (json.loads(line) for line in following.stdout)
        assert next(line for line in lines if line["deliveries"] == 400 and not line["under_way"])["broken"] == []
        shown = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20).read().decode()
        assert "ordercast_audit_deliveries 400.0" in shown and 'ordercast_audit_broken{property="body"} 0.0' in shown
    last = max((run / "deliveries").glob("b-*.parquet"), key=lambda path: int(path.stem.split("-")[2]))
    rows = pq.read_table(last).slice(0, 1).to_pylist()[0]
    rows |= {"position": 200, "source_seq": 201, "msg_id": "a:201", "body_hash": 7, "prev_stamp": None}
    sent = {"msg_id": "a:201", "group": "x", "source": "a", "source_seq": 201, "body_hash": 8, "sent_at": 0.0}
    for table, values in (("sends", sent), ("deliveries", rows)):
        name = "a-201-201" if table == "sends" else "b-200-200"
        new = run / table / f".{name}.tmp"
        kinds = pq.read_schema(next(path for path in (run / table).glob("a-*.parquet")))
        write_table(pa.Table.from_pylist([values], schema=kinds), new)
        new.replace(run / table / f"{name}.parquet")
    said = next(line for line in lines if "says" in line)
    following.send_signal(signal.SIGINT)

    assert said["broken"] in ("body", "stamps") and "a:201" in said["says"]
    assert following.wait(100) == 1


def settled(follower: Follower, deliveries: int) -> bool:
    """Whether everything is judged, and nothing waits."""
    assert follower.look() == []
    return follower.deliveries >= deliveries and not follower.under_way and not follower.held()


@pytest.mark.slow
def test_a_cluster_that_changes_is_followed(tmp_path: Path) -> None:
    """Groups come, sites leave and are killed, and the audit has several lives; then a message is told twice."""
    from ordercast.client.sync import connect

    run, state = tmp_path / "run", tmp_path / "state"
    run.mkdir()
    options = ('policy = "available"', "suspect_after = 1.0", 'export = "run"')
    with Processes(tmp_path, {"x": ["a", "b", "c"]}, *options) as cluster:
        follower = Follower(run, state=state)
        with connect(cluster.clients["a"]) as client:
            client.multicast_many("x", [b"first"] * 50, ack="safe")
            client.create_group("y", ["a", "b"])
            client.multicast_many("y", [b"second"] * 20, ack="safe")
            client.multicast(("x", "y"), b"both", ack="safe")
            client.leave_group("x", "b")
            client.multicast_many("x", [b"third"] * 30, ack="safe")
            cluster.kill("c")
            client.multicast_many("x", [b"fourth"] * 40, ack="safe")
            follower.look()
            follower.save()
            cluster.start("c")
            cluster.wait("c")
            client.join_group("x", "b")
            client.multicast_many("x", [b"fifth"] * 10, ack="safe")
        follower = Follower(run, state=state)
        follower.search_s = 0.0
        expected = 3 * 50 + 2 * 20 + 3 + 2 * 30 + 40 + 3 * 10
        until = time.monotonic() + WAIT_S
        while not settled(follower, expected):
            assert time.monotonic() < until, (follower.deliveries, follower.under_way, follower.held())
            time.sleep(0.2)
    follower.save()
    parts = sorted((run / "deliveries").glob("a@*.parquet"), key=lambda path: int(path.stem.split("-")[-1]))
    ends = [
        int(p.stem.split("-")[-1]) for table in ("deliveries", "changes") for p in (run / table).glob("a@*.parquet")
    ]
    row = pq.read_table(parts[-1]).to_pylist()[-1] | {"position": max(ends) + 1}
    name = parts[-1].name.split("-")[0]
    part = pa.Table.from_pylist([row], schema=pq.read_schema(parts[-1]))
    write_table(part, run / "deliveries" / f"{name}-{max(ends) + 1}-{max(ends) + 1}.parquet")
    again = Follower(run, state=state)
    again.search_s = 0.0

    assert [finding.property for finding in again.look()] == ["duplicate"]
