"""The live commands as a user meets them: a cluster of processes, messages, status, explanations."""

import base64
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.live import ports
from tests.test_cli import ordercast


def write_cluster(folder: Path, security: str = "", **options: str) -> Path:
    at = ports(6)
    lines = [f"{name} = {value}" for name, value in options.items()]
    lines += ["[sites]", f'main-1 = "{at[0]}"', f'main-2 = "{at[1]}"', f'dev-1 = "{at[2]}"']
    lines += ["[clients]", f'main-1 = "{at[3]}"', f'main-2 = "{at[4]}"', f'dev-1 = "{at[5]}"']
    lines += ["[groups]", 'transactions = ["main-1", "main-2"]', 'tables = ["main-1", "main-2", "dev-1"]']
    path = folder / "cluster.toml"
    path.write_text("\n".join([*lines, security, ""]))
    return path


def pid_of(site: str, folder: Path) -> int:
    """Return the process of a site that was started in a folder."""
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            words = (proc / "cmdline").read_bytes().split(b"\0")
            if b"site" in words and site.encode() in words and (proc / "cwd").resolve() == folder.resolve():
                return int(proc.name)
        except OSError:
            continue
    raise AssertionError(f"no process of {site}")


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
    pid = pid_of("main-2", running)
    assert ordercast("send", "transactions", "before", "--ack", "safe", cwd=running).returncode == 0
    command = [sys.executable, "-m", "ordercast", "tail", "--at", "main-2", "--after", "-1"]
    reader = subprocess.Popen(command, cwd=running, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert reader.stdout is not None and reader.stderr is not None
    assert "before" in reader.stdout.readline()
    os.kill(pid, signal.SIGSTOP)
    try:
        sent = ordercast("send", "transactions", "x", cwd=running)
        assert (sent.returncode, sent.stdout) == (0, "main-1:2 taken\n")
        until = time.monotonic() + 10
        while (status := json.loads(ordercast("status", "--json", cwd=running).stdout)) and time.monotonic() < until:
            if status["main-1"]["unsafe_envelopes"] == 1:
                break
        assert status["main-1"]["unsafe_envelopes"] == 1
        assert "no answer" in status["main-2"]["failed"]
        told = ordercast("explain", "main-1:2", cwd=running)
        assert "not safe yet" in told.stdout and told.returncode == 0
        late = ordercast("send", "transactions", "y", "--ack", "safe", "--timeout", "0.5", cwd=running)
        assert late.returncode == 1 and "has not acknowledged the message within 0.5 s (ack safe)" in late.stderr
        gone = ordercast("tail", "--at", "main-2", "--timeout", "0.5", cwd=running)
        assert gone.returncode == 1 and "does not answer within 0.5 s" in gone.stderr
        assert reader.wait(60) == 1 and "main-2 has said nothing for 8 s" in reader.stderr.read()
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.slow
def test_bytes_go_in_and_come_out_as_they_are(running: Path) -> None:
    """Lines of any bytes, a whole input with newlines, an argument that is no UTF-8."""
    lines = b"caf\xc3\xa9\n\xff\xfe\x00\n\nlast without newline"
    command = [sys.executable, "-m", "ordercast", "send", "transactions"]
    done = subprocess.run(command, input=lines, cwd=running, capture_output=True, check=True)
    assert done.stdout.decode().split("\n")[:2] == ["main-1:1 taken", "main-1:2 taken"]
    subprocess.run([*command, "--raw"], input=b"one\ntwo\n\x80", cwd=running, capture_output=True, check=True)
    subprocess.run([*command, b"\xe9"], cwd=running, capture_output=True, check=True)
    tail = ordercast("tail", "--after", "-1", "--count", "6", "--json", cwd=running)
    rows = [json.loads(line) for line in tail.stdout.splitlines()]
    got = [row["body"].encode() if "body" in row else base64.b64decode(row["body_base64"]) for row in rows]
    assert got == [*lines.split(b"\n"), b"one\ntwo\n\x80", b"\xe9"]


@pytest.mark.slow
def test_ctrl_c_ends_a_send_that_waits_for_its_input_at_once(running: Path) -> None:
    command = [sys.executable, "-m", "ordercast", "send", "transactions"]
    process = subprocess.Popen(command, cwd=running, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip # noqa: E501
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    process.stdin.write(b"one\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"main-1:1 taken\n"
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    assert b"Traceback" not in process.stderr.read()


@pytest.mark.slow
def test_up_names_a_site_that_ends_and_keeps_the_others(tmp_path: Path) -> None:
    write_cluster(tmp_path)
    command = [sys.executable, "-m", "ordercast", "up", "cluster.toml"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    try:
        for _ in range(3):
            assert " is up at " in process.stdout.readline()
        os.kill(pid_of("dev-1", tmp_path), signal.SIGKILL)
        said = next(line for line in process.stderr if line.startswith("ordercast: "))
        assert said == "ordercast: site dev-1 was ended by SIGKILL; the other 2 go on\n"
        assert ordercast("send", "transactions", "x", "--ack", "safe", cwd=tmp_path).returncode == 0
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(40) == 1


@pytest.mark.slow
def test_tokens_come_from_the_environment_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_cluster(tmp_path, security='[security]\ntokens = { "s3cret" = "teller" }')
    (tmp_path / "token").write_text("s3cret\n")
    command = [sys.executable, "-m", "ordercast", "site", "main-1"]
    process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    try:
        assert "is up at" in process.stdout.readline()
        refused = ordercast("send", "transactions", "x", cwd=tmp_path)
        assert refused.returncode == 1 and "this token is not known here" in refused.stderr
        assert ordercast("send", "transactions", "x", "--token-file", "token", cwd=tmp_path).returncode == 0
        monkeypatch.setenv("ORDERCAST_TOKEN", "s3cret")
        assert ordercast("send", "transactions", "x", cwd=tmp_path).returncode == 0
        assert ordercast("explain", "main-1:1", cwd=tmp_path).returncode == 0
        missing = ordercast("send", "transactions", "x", "--token-file", "nowhere", cwd=tmp_path)
        assert (missing.returncode, missing.stderr) == (2, "ordercast: nowhere: No such file or directory\n")
    finally:
        process.terminate()
        process.wait(20)


@pytest.mark.slow
def test_a_port_that_is_none_or_of_somebody_else_is_one_line(tmp_path: Path) -> None:
    path = write_cluster(tmp_path)
    good = path.read_text()
    for wrong in ("127.0.0.1:0", "127.0.0.1:65536", "127.0.0.1:-1", "127.0.0.1:seven", "7501"):
        path.write_text(good.replace(good.split('main-1 = "')[2].split('"')[0], wrong))
        done = ordercast("send", "transactions", "x", cwd=tmp_path)
        assert done.returncode == 2 and f"[clients] main-1: '{wrong}' is not host:port" in done.stderr
    path.write_text(good)
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        path.write_text(good.replace(good.split('main-1 = "')[2].split('"')[0], address))

        def greet() -> None:
            connection, _ = other.accept()
            connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
            connection.recv(1000)
            connection.close()

        threading.Thread(target=greet, daemon=True).start()
        done = ordercast("send", "transactions", "x", cwd=tmp_path)
        assert done.returncode == 2 and "does not answer as sites answer clients" in done.stderr
        assert len(done.stderr.splitlines()) == 1


COMPLAINTS = [
    (["site", "nobody"], 2, "there is no site 'nobody'"),
    (["site", "main-1", "--cluster", "missing.toml"], 2, "missing.toml: No such file"),
    (["send", "transactions", "x", "--at", "x"], 2, "site 'x' takes no clients"),
    (["send", "transactions", "x"], 1, "nobody answers at"),
    (["tail"], 1, "nobody answers at"),
    (["explain", "17"], 2, "'17' is not SOURCE:NUMBER"),
    (["bench", "cluster.toml"], 2, "cluster.toml: Object contains unknown field"),
    (["status"], 1, ""),
    (["explain", "main-1:1"], 1, ""),
    (["status", "--timeout", "0"], 2, "--timeout 0: give seconds above 0"),
    (["tail", "--count", "0"], 2, "--count 0: must be at least 1"),
    (["send", "transactions", "x", "--raw"], 2, "--raw is for the standard input"),
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
