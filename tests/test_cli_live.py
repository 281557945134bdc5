"""The live commands as a user meets them: a cluster of processes, messages, status, explanations."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.test_site import ports
from tests.test_cli import ordercast


def write_cluster(folder: Path, **options: str) -> Path:
    at = ports(6)
    lines = [f"{name} = {value}" for name, value in options.items()]
    lines += ["[sites]", f'main-1 = "{at[0]}"', f'main-2 = "{at[1]}"', f'dev-1 = "{at[2]}"']
    lines += ["[clients]", f'main-1 = "{at[3]}"', f'main-2 = "{at[4]}"', f'dev-1 = "{at[5]}"']
    lines += ["[groups]", 'transactions = ["main-1", "main-2"]', 'tables = ["main-1", "main-2", "dev-1"]']
    path = folder / "cluster.toml"
    path.write_text("\n".join(lines))
    return path


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    write_cluster(tmp_path)
    command = [sys.executable, "-m", "ordercast", "up", "cluster.toml"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            done = ordercast("status", "--json", cwd=tmp_path)
            if done.returncode == 0 and all(all(s["peers"].values()) for s in json.loads(done.stdout).values()):
                break
            time.sleep(0.3)
        yield tmp_path
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0


@pytest.mark.slow
def test_send_tail_status_explain(running: Path) -> None:
    sent = ordercast("send", "transactions", "credit 17", "--ack", "safe", cwd=running)
    assert (sent.returncode, sent.stdout) == (0, "main-1:1 safe\n"), sent.stderr
    many = subprocess.run(
        [sys.executable, "-m", "ordercast", "send", "tables", "--at", "dev-1", "--json"],
        input="a\nb\n", cwd=running, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert [json.loads(line)["message"] for line in many.stdout.splitlines()] == ["dev-1:1", "dev-1:2"]
    logs = []
    for site in ("main-1", "main-2"):
        done = ordercast("tail", "--at", site, "--after", "-1", "--count", "3", "--json", cwd=running)
        logs.append([json.loads(line)["body"] for line in done.stdout.splitlines()])
    assert logs[0] == logs[1] and sorted(logs[0]) == ["a", "b", "credit 17"]
    status = ordercast("status", cwd=running)
    assert status.returncode == 0 and "main-2" in status.stdout and "2/2" in status.stdout
    told = ordercast("explain", "main-1:1", cwd=running)
    assert "main-1: sent, and safe: every member has it" in told.stdout
    listed = json.loads(ordercast("group", "list", "--json", cwd=running).stdout)
    assert {row["group"]: row["members"] for row in listed}["transactions"] == ["main-1", "main-2"]


@pytest.mark.slow
def test_what_waits_for_a_dead_site_is_explained(running: Path) -> None:
    """Kill one member: its messages are ordered but not safe, and everybody can say why; others go on."""
    pids = subprocess.run(["pgrep", "-f", f"site main-2 --cluster {'cluster.toml'}"], capture_output=True, text=True, check=False)  # fmt: skip # noqa: E501
    for pid in pids.stdout.split():
        if Path(f"/proc/{pid}/cwd").resolve() == running.resolve():
            subprocess.run(["kill", "-STOP", pid], check=True)
    try:
        subprocess.run(
            [sys.executable, "-m", "ordercast", "send", "transactions", "x", "--ack", "none"], cwd=running, check=True
        )
        time.sleep(0.5)
        status = json.loads(ordercast("status", "--json", cwd=running).stdout)
        assert status["main-1"]["unsafe_envelopes"] == 1
        assert "no answer" in status["main-2"]["failed"]
        told = ordercast("explain", "main-1:1", cwd=running)
        assert "not safe yet" in told.stdout
    finally:
        for pid in pids.stdout.split():
            subprocess.run(["kill", "-CONT", pid], check=False)


COMPLAINTS = [
    (["site", "nobody"], 2, "there is no site 'nobody'"),
    (["site", "main-1", "--cluster", "missing.toml"], 2, "missing.toml: No such file"),
    (["send", "transactions", "x", "--at", "x"], 2, "site 'x' takes no clients"),
    (["send", "transactions", "x"], 1, "nobody answers at"),
    (["tail"], 1, "nobody answers at"),
    (["explain", "17"], 2, "'17' is not SOURCE:NUMBER"),
    (["bench", "cluster.toml"], 2, "cluster.toml: Object contains unknown field"),
    (["status"], 1, ""),
]


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "code", "why"), COMPLAINTS, ids=lambda value: str(value)[:40])
def test_what_goes_wrong_is_one_clear_line(tmp_path: Path, arguments: list[str], code: int, why: str) -> None:
    write_cluster(tmp_path)
    done = ordercast(*arguments, cwd=tmp_path)

    assert done.returncode == code, done.stderr
    assert why in done.stderr and len(done.stderr.splitlines()) <= 1
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_certificates_for_a_cluster(tmp_path: Path) -> None:
    write_cluster(tmp_path)
    done = ordercast("certs", "certs", cwd=tmp_path)

    assert done.returncode == 0 and (tmp_path / "certs" / "main-1.pem").exists()
    assert (tmp_path / "certs" / "main-1.key").stat().st_mode & 0o077 == 0
    assert ordercast("certs", "certs", cwd=tmp_path).returncode == 2


@pytest.mark.slow
def test_bench_prints_the_documented_json(tmp_path: Path) -> None:
    workload = 'payload_bytes = 100\nsenders = 2\n[groups]\ng0 = ["s0", "s1"]\ng1 = ["s1", "s2"]\n'
    (tmp_path / "small.toml").write_text(workload)
    done = ordercast("bench", "small.toml", "--messages", "4000", "--json", cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["workload"] == "small"
    keys = {"durable", "deliveries_per_s", "p50_ms", "p99_ms", "cpu_s_per_100k", "rss_mib", "order_ok", "complete"}
    assert [run["durable"] for run in report["runs"]] == [False, True]
    assert all(keys <= run.keys() and run["order_ok"] and run["complete"] for run in report["runs"])
