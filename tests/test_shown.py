"""Every command that a page or a `--help` shows is run, word for word, in a folder that has the files it names."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import pyarrow as pa
import pytest

from ordercast.cli.main import app
from ordercast.live.ports import free_ports
from ordercast.membership.files import read_membership
from ordercast.runs.writer import write_table

ROOT = Path(__file__).parent.parent
SPARK = ("ordercast audit out/run --master", "ordercast plan members/", "ordercast experiment")
LIVE = ("up", "site", "send", "tail", "status", "explain", "group", "doctor")
OPERATES = "tests/test_cli_operate.py has a cluster whose groups change"
UNTIL_STOPPED = ("up", "site", "tail", "status")
ELSEWHERE = {
    "ordercast experiment all": "seven minutes; one of its graphs is run here",
    "ordercast experiment all --out out/experiment": "seven minutes; one of its graphs is run here",
    "ordercast experiment recovery --dynamics 12 --out out/recovery": "tests/spark/test_dynamics.py runs such trials",
    "ordercast audit s3://lake/run --master spark://host:7077 --json": "tests/spark/test_spark.py has a cluster",
    "ordercast audit run --follow": "tests/audit/test_following.py follows a live cluster",
    "ordercast audit run --follow --state audit.state --metrics 9465": "the same",
    "ordercast demo --short --out out/demo": "tests/test_demo.py",
    "ordercast group create news main-1,dev-1": OPERATES,
    "ordercast group create orders main-1,main-2": OPERATES,
    "ordercast group move news main-2": "tests/live/test_changing.py moves a group",
    "ordercast site branch-9 --join HOST:PORT --address HOST:PORT": OPERATES,
    "ordercast site remove branch-7": OPERATES,
    "ordercast apply cluster.toml --dry-run": OPERATES,
    "ordercast backup main-1 main-1.backup": "with a site by itself, below",
    "ordercast restore main-1 main-1.backup": "with a site by itself, below",
}


def shown() -> list[str]:
    """Return every command on a page, and every example of a command's help."""
    found = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]:
        fenced = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text("utf-8"), re.DOTALL | re.MULTILINE)
        for line in "".join(body for language, body in fenced if not language).splitlines():
            if line.startswith(("$ ordercast ", "ordercast ")):
                found.append(re.split(r"  +|  #", line.removeprefix("$ "))[0])
    for source in sorted((ROOT / "src" / "ordercast" / "cli").glob("*.py")):
        found += re.findall(r"^ +Example: (ordercast .+)$", source.read_text("utf-8"), re.MULTILINE)
    return sorted(set(found))


def test_every_command_has_an_example() -> None:
    names = {line.split()[1] for line in shown()}

    assert {name for name in app if not name.startswith("-")} <= names


def start(line: str, folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", *shlex.split(line)]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(line: str, folder: Path) -> str:
    process = start(line, folder)
    said, complaint = process.communicate(timeout=180)
    assert process.returncode == 0, (line, said, complaint)
    return said


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that examples name: groups, a cluster on free ports, a run, a plan, members, a workload."""
    here = tmp_path_factory.mktemp("shown")
    groups = '[groups]\ntransactions = ["main-1", "main-2"]\ntables = ["main-1", "main-2", "dev-1"]\n'
    (here / "groups.toml").write_text(groups + 'news = ["dev-1", "branch"]\n')
    (here / "workload.toml").write_text("payload_bytes = 100\nsenders = 1\n" + groups)
    page = (ROOT / "docs" / "live.md").read_text("utf-8")
    configuration = re.findall(r"^```toml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[0]
    old = sorted(set(re.findall(r"127\.0\.0\.1:\d+", configuration)))
    for address, port in zip(old, free_ports(len(old)), strict=True):
        configuration = configuration.replace(address, f"127.0.0.1:{port}")
    (here / "cluster.toml").write_text(configuration)
    for named in ("examples", "benchmarks/workloads"):  # a reader of the README stands in a checkout
        shutil.copytree(ROOT / named, here / named)
    run("ordercast simulate groups.toml --out out/run", here)
    (here / "plan.json").write_text(run("ordercast plan groups.toml --json --budget 1000steps", here))
    members = read_membership(here / "groups.toml").as_dict()
    rows = [(site, group) for group, sites in members.items() for site in sites]
    (here / "members").mkdir()
    columns = [list(column) for column in zip(*rows, strict=True)]
    write_table(pa.table(columns, names=["site", "group"]), here / "members" / "part-0.parquet")
    return here


def ends(*, on_spark: bool) -> list[str]:
    return [
        line
        for line in shown()
        if line not in ELSEWHERE
        and line.split()[1] not in LIVE
        and (line.startswith(SPARK) and "--local" not in line) == on_spark
    ]


@pytest.mark.slow
@pytest.mark.parametrize("line", ends(on_spark=False))
def test_it_does_what_it_says(line: str, folder: Path) -> None:
    run(line, folder)


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    ends(on_spark=True)
    if "ORDERCAST_CAMPAIGN" in os.environ
    else ends(on_spark=True)[date.today().toordinal() % 3 :: 3],
)
def test_it_does_what_it_says_on_spark(line: str, folder: Path) -> None:
    said = run(line, folder)

    if "experiment" in line:
        assert "holds: depth rises and falls" in said
        names = {path.name for path in (folder / "out" / "graph1").iterdir()}
        assert {"report.html", "trials.parquet", "summary.parquet", "summary.csv", "graph1.svg", "graph1.png"} <= names


def _linked(status: str) -> bool:
    """Whether two sites answer, and have all the links they need."""
    links = re.findall(r"\b(\d+)/(\d+)\b", status)
    return len(links) >= 2 and all(up == needed != "0" for up, needed in links)


@pytest.fixture
def cluster(folder: Path) -> Iterator[Path]:
    """The cluster of docs/live.md, up, with seventeen messages."""
    up = start("ordercast up cluster.toml", folder)
    try:
        until = time.monotonic() + 60
        while not _linked(start("ordercast status", folder).communicate(timeout=60)[0]):
            assert time.monotonic() < until, "no links"
        for number in range(17):
            run(f"ordercast send transactions 'credit {number}' --ack safe", folder)
        yield folder
    finally:
        up.send_signal(signal.SIGINT)
        up.communicate(timeout=30)


@pytest.mark.slow
def test_the_live_ones(cluster: Path) -> None:
    """Those that end say something; those that go on, until they are stopped."""
    lines = [line for line in shown() if line not in ELSEWHERE and line.split()[1] in LIVE]
    for line in [line for line in lines if line.split()[1] not in ("up", "site")]:
        process = start(line, cluster)
        if line.split()[1] in UNTIL_STOPPED:
            assert process.stdout is not None
            said = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
        else:
            said, complaint = process.communicate(timeout=60)
            assert process.returncode == 0, (line, said, complaint)
        assert said.strip(), line


@pytest.mark.slow
def test_a_site_by_itself(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "cluster.toml").write_text((folder / "cluster.toml").read_text())
    (line,) = [line for line in shown() if line.split()[1] == "site" and line not in ELSEWHERE]
    process = start(line, tmp_path)
    assert process.stdout is not None
    said = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)

    assert "main-1 is up" in said
    assert "records of site main-1" in run("ordercast backup main-1 main-1.backup", tmp_path)
    shutil.rmtree(tmp_path / "data" / "main-1")
    assert "are back" in run("ordercast restore main-1 main-1.backup", tmp_path)
