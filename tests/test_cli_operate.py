"""Commands that change a cluster that runs, as an operator meets them: real processes, and refusals in one line."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.live import ports
from tests.test_cli import ordercast
from tests.test_cli_live import pid_of, write_cluster


def known(folder: Path) -> dict[str, dict[str, Any]]:
    done = ordercast("group", "list", "--json", cwd=folder)
    return {row["group"]: row for row in json.loads(done.stdout)} if done.returncode == 0 else {}


def until(fact: Callable[[], bool]) -> None:
    for _ in range(200):
        if fact():
            return
        time.sleep(0.2)
    raise AssertionError("it did not come true")


@pytest.fixture
def changing(tmp_path: Path) -> Iterator[Path]:
    write_cluster(tmp_path, policy='"available"', suspect_after="1.0")
    command = [sys.executable, "-m", "ordercast", "up", "cluster.toml", "--log-format", "json"]
    with (tmp_path / "up.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=log)
    try:
        until(lambda: bool(known(tmp_path)))
        yield tmp_path
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


@pytest.mark.slow
def test_an_operator_s_day(changing: Path) -> None:
    """Groups come and go, a site dies for good, a new one joins, and the file is applied; each in one line."""
    well = ordercast("doctor", cwd=changing)
    assert well.returncode == 0 and "configuration 1, manager dev-1" in " ".join(well.stdout.split()), well.stdout
    made = ordercast("group", "create", "news", "main-1,dev-1", "--delivery", "agreed", cwd=changing)
    assert (made.returncode, made.stdout) == (0, "create news main-1,dev-1 delivery=agreed: done\n"), made.stderr
    assert known(changing)["news"]["members"] == ["dev-1", "main-1"]
    again = ordercast("group", "create", "news", "main-1", cwd=changing)
    assert (again.returncode, again.stderr) == (1, "ordercast: there is a group 'news' already\n")
    assert ordercast("send", "news", "hello", "--ack", "safe", cwd=changing).returncode == 0

    signal_at = pid_of("dev-1", changing)
    subprocess.run(["kill", "-9", str(signal_at)], check=True)
    sent = ordercast("send", "tables", "x", "--ack", "safe", cwd=changing)
    assert (sent.returncode, sent.stderr) == (0, "")
    until(lambda: known(changing)["tables"]["away"] == ["dev-1"])
    status = ordercast("status", cwd=changing)
    assert "taken out of" in " ".join(status.stdout.split())
    seen = ordercast("doctor", "--json", cwd=changing)
    sick = {one["what"]: one for one in json.loads(seen.stdout) if one["state"] != "ok"}
    assert seen.returncode == 1
    assert sick["site dev-1"]["state"] in ("bad", "look") and any("dev-1 at" in what for what in sick)
    gone = ordercast("site", "remove", "dev-1", cwd=changing)
    assert (gone.returncode, gone.stdout) == (0, "remove dev-1: done\n"), gone.stderr

    config = (changing / "cluster.toml").read_text()
    join = next(line.split('"')[1] for line in config.splitlines()[::-1] if line.startswith("main-2 ="))
    at, clients = ports(2)
    command = [sys.executable, "-m", "ordercast", "site", "new-1", "--join", join, "--address", at]
    quiet: dict[str, Any] = {"stderr": subprocess.DEVNULL, "stdout": subprocess.DEVNULL}
    new = subprocess.Popen([*command, "--clients", clients, "--data", "new"], cwd=changing, **quiet)
    try:
        until(lambda: ordercast("group", "join", "tables", "new-1", cwd=changing).returncode == 0)
        assert known(changing)["tables"]["there"] == ["main-1", "main-2", "new-1"]

        wanted = config.replace('tables = ["main-1", "main-2", "dev-1"]', 'tables = ["main-1", "main-2"]')
        wanted = "\n".join(line for line in wanted.splitlines() if not line.startswith("dev-1"))
        (changing / "wanted.toml").write_text(wanted)
        shown = ordercast("apply", "wanted.toml", "--dry-run", cwd=changing)
        assert (shown.returncode, shown.stdout) == (1, "  delete news\n  remove new-1\n"), shown.stderr
        done = ordercast("apply", "wanted.toml", "--yes", cwd=changing)
        assert done.returncode == 0, done.stderr
        assert "which is what wanted.toml says" in ordercast("apply", "wanted.toml", cwd=changing).stdout
    finally:
        new.terminate()
        new.wait(30)
    tail = ordercast("tail", "--at", "main-1", "--after", "-1", "--count", "4", cwd=changing)
    kinds = [line.split()[2] for line in tail.stdout.splitlines()]
    assert kinds[:2] == ["view", "main-1:1"] and set(kinds[2:]) <= {"view", "main-1:2"}
    events = [json.loads(line) for line in (changing / "up.log").read_text().splitlines() if line.startswith("{")]
    assert {"site.suspected", "view.changed", "site.started"} <= {event.get("event") for event in events}


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["group", "create", "x", "main-1"], "groups are fixed; policy = atomic or available lets them change"),
        (["site", "remove", "main-1"], "groups are fixed"),
        (["site", "add", "x"], "groups are fixed"),
        (["apply", "cluster.toml"], "groups are fixed"),
        (["site", "remove"], "site remove: which site?"),
        (["site", "main-1", "main-2"], "site add|remove|replace NAME, or site NAME"),
        (["site", "main-1", "--address", "127.0.0.1:1"], "--address goes with --join, add or replace"),
        (["site", "x", "--join", "127.0.0.1:1"], "--join takes --address HOST:PORT"),
        (["site", "nobody"], "there is no site 'nobody'"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(tmp_path: Path, command: list[str], says: str) -> None:
    write_cluster(tmp_path)
    done = ordercast(*command, cwd=tmp_path)

    assert done.returncode == 2
    assert says in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (["group", "create"], "group create: which group?"),
        (["group", "create", "x"], "group create x: which sites?"),
        (["group", "join", "x"], "group join x: which site?"),
        (["group", "delete", "x", "--policy", "atomic"], "group delete takes no --policy"),
        (["group", "list", "x"], "group list takes no name"),
        (["site", "add", "x"], "site add x: where is it? --address HOST:PORT"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, command: list[str], says: str) -> None:
    write_cluster(tmp_path, policy='"atomic"')
    done = ordercast(*command, cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_nobody_there_is_told_in_one_line(tmp_path: Path) -> None:
    write_cluster(tmp_path, policy='"atomic"')
    done = ordercast("group", "create", "x", "main-1", "--timeout", "2", cwd=tmp_path)

    assert done.returncode == 1
    assert "nobody answers at" in done.stderr and done.stderr.count("\n") == 1
