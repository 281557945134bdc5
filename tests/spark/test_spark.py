"""Spark itself: the session, a cluster of real processes, logs in no order, trials that repeat."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ordercast.audit.local import LocalSource
from ordercast.audit.verdict import audit
from ordercast.errors import InputError
from ordercast.spark.about import about
from ordercast.spark.experiment import Asked, Results, findings, report
from ordercast.spark.session import Spark, find_java
from ordercast.spark.source import SparkSource
from ordercast.spark.trials import PROTOCOLS, Cell, cells, collected, protocol_trial, run_trials, summary, trial
from tests.support.logs import FAULTS, TWINS, make_logs
from tests.support.members import write_members

pytestmark = pytest.mark.slow


def ordercast(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ordercast", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=240, check=False, env={**os.environ, **environment}
    )


def test_logs_in_no_order_are_brought_together(tmp_path: Path, spark: Spark) -> None:
    """Every site's rows are spread over all files: Spark sorts first, and says what the process says."""
    logs = make_logs(30_000, TWINS)
    FAULTS["swap_at_one_site"](logs)
    logs.write(tmp_path)
    folder = tmp_path / "deliveries"
    table = pq.read_table(folder)
    for old in folder.glob("*"):
        old.unlink()
    order = np.random.default_rng(2).permutation(len(table))
    for part in range(4):
        pq.write_table(table.take(order[part::4]), folder / f"{part}.parquet")
    on_spark = audit(SparkSource(spark, str(tmp_path)), "acyclic")

    assert audit(LocalSource(str(tmp_path)), "acyclic").as_json() == on_spark.as_json()
    assert not on_spark.ok


def test_logs_of_any_making_are_brought_together(tmp_path: Path, spark: Spark) -> None:
    """The same with ids that are numbers, unsigned positions, views, and the site in the names of folders."""
    logs = make_logs(3_000, TWINS)
    FAULTS["swap_at_one_site"](logs)
    logs.write(tmp_path)
    number: dict[str, int] = {}
    for path in (tmp_path / "sends").glob("*"):
        table = pq.read_table(path)
        ids = pa.array([number.setdefault(name, len(number)) for name in table.column("msg_id").to_pylist()])
        pq.write_table(table.drop_columns(["msg_id"]).append_column("msg_id", ids), path)
    for path in sorted((tmp_path / "deliveries").glob("*")):
        table = pq.read_table(path)
        site = table.column("site")[0].as_py()
        ids = pa.array([number[name] for name in table.column("msg_id").to_pylist()])
        table = table.drop_columns(["msg_id", "site"]).append_column("msg_id", ids)
        path.unlink()
        kinds = {"position": pa.uint64(), "group": pa.string_view(), "stamp": pa.binary_view()}
        schema = pa.schema([(name, kinds.get(name, table.schema.field(name).type)) for name in table.column_names])
        for part in range(2):
            place = tmp_path / "deliveries" / f"site={site}" / f"{part}.parquet"
            place.parent.mkdir(exist_ok=True)
            pq.write_table(table.take(np.arange(part, len(table), 2)[::-1]).cast(schema), place)
    on_spark = audit(SparkSource(spark, str(tmp_path)), "acyclic")

    assert audit(LocalSource(str(tmp_path)), "acyclic").as_json() == on_spark.as_json()
    assert "total" in on_spark.broken()


def test_what_an_executor_refuses_is_told_in_one_line(tmp_path: Path, spark: Spark) -> None:
    make_logs(60, {"g": ["a", "b"]}).write(tmp_path)
    path = tmp_path / "deliveries" / "a-0.parquet"
    table = pq.read_table(path)
    spoiled = pa.array([b"\xff", *(name.encode() for name in table.column("msg_id").to_pylist()[1:])], pa.binary())
    column = pa.StringArray.from_buffers(len(spoiled), *spoiled.buffers()[1:])
    pq.write_table(table.set_column(table.column_names.index("msg_id"), "msg_id", column), path)

    with pytest.raises(InputError, match=rf"^{path}: row 1: msg_id is not UTF-8 text$"):
        audit(SparkSource(spark, str(tmp_path)), "acyclic")


def test_trials_repeat_and_are_those_of_a_plain_loop(spark: Spark) -> None:
    """The same keys give the same rows, however they are spread; another seed gives other families."""
    wanted = [Cell(20, 10, 5, "fixed"), Cell(50, 10, 5, "exponential")]
    rows = sorted(map(tuple, run_trials(spark, wanted, 6, 0).collect()))
    again = sorted(map(tuple, run_trials(spark, wanted[::-1], 6, 0).collect()))
    other = sorted(map(tuple, run_trials(spark, wanted, 6, 0, seed=1).collect()))
    plain = sorted(row for cell in wanted for number in range(6) for row in trial(cell, number, 0, best=False))

    assert rows == again == plain
    assert rows != other


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_comes_to_rest(protocol: str) -> None:
    """A comparison of protocols that still wait for something would end the whole experiment."""
    assert protocol_trial(protocol, 0, 0)[:2] == (protocol, 0)


def test_two_runs_with_other_seeds_agree(spark: Spark, tmp_path: Path) -> None:
    """Means of independent runs lie within each other's 95 % bands (four standard errors for all points at once)."""
    wanted = [cell for cell in cells((1,)) if cell.sites in (20, 200, 1000) and cell.distribution == "fixed"]
    one, other = (
        {
            (row["sites"], row["groups"], row["method"]): row
            for row in collected(summary(run_trials(spark, wanted, 40, 0, seed))).to_pylist()
        }
        for seed in (0, 1)
    )
    assert len(one) == len(other) == 3 * 4 * 5
    for key, row in one.items():
        for name in ("depth", "extra", "load"):
            apart = abs(row[name] - other[key][name])
            assert apart <= 2 * (row[f"{name}_ci"] + other[key][f"{name}_ci"]) + 1e-9, key
    asked = Asked(graphs=(1, 3, 4))
    page, said = report(Results(graphs=list(one.values())), asked, tmp_path, about("a test", 0))
    text = page.read_text("utf-8")

    assert said == findings(list(one.values()), (1, 3, 4))
    assert any(line.startswith("Fails") and "extra nodes" in line for line in said)
    assert text.count("data:image/svg+xml") == 3


def test_the_command_is_quiet(tmp_path: Path) -> None:
    """Four rows on Spark: one JSON document, nothing else, not even on the error stream."""
    folder = tmp_path / "run"
    logs = make_logs(60, {"g": ["a", "b"]}, sources=2)
    logs.sends = {name: values[:2] for name, values in logs.sends.items()}
    logs.sites = {site: {n: v[:2] for n, v in rows.items()} for site, rows in logs.sites.items()}
    logs.write(folder)
    done = ordercast("audit", str(folder), "--json", "--master", "local[2]")

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["deliveries"] == 4
    assert done.stdout == ordercast("audit", str(folder), "--json", "--local").stdout


def test_a_missing_java_is_told_in_one_line(tmp_path: Path) -> None:
    make_logs(60, {"g": ["a", "b"]}).write(tmp_path)
    code = "import ordercast.spark.session as s, ordercast.cli.main as m, sys; s.WHERE_JAVA_IS = ()"
    code += f"; sys.exit(m.run(['audit', {str(tmp_path)!r}, '--master', 'local[2]']))"
    environment = {**os.environ, "PATH": str(tmp_path), "JAVA_HOME": ""}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    installed = (Path(sys.prefix).parent / ".bootstrap" / "java").exists()

    assert installed or done.returncode == 2
    assert installed or re.fullmatch(r"ordercast: Spark needs Java 17 or newer \(found none\).*\n", done.stderr)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A standalone master and two workers, from the pip package."""
    import pyspark

    folder = tmp_path_factory.mktemp("cluster")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    start = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
    environment = {
        **os.environ,
        "JAVA_HOME": find_java(),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(folder),
    }
    environment |= {"SPARK_DAEMON_MEMORY": "400m", "SPARK_LOG_DIR": str(folder)}
    master = f"spark://127.0.0.1:{port}"
    package = "org.apache.spark.deploy"
    commands = [
        [start, f"{package}.master.Master", "--host", "127.0.0.1", "--port", str(port), "--webui-port", "0"],
        *[[start, f"{package}.worker.Worker", "--cores", "1", "--memory", "1g", "--webui-port", "0", master]] * 2,
    ]
    log = (folder / "log").open("w")
    running = [subprocess.Popen(command, stdout=log, stderr=log, env=environment) for command in commands]
    try:
        until = time.monotonic() + 90
        while (folder / "log").read_text().count("Successfully registered with master") < 2:
            assert time.monotonic() < until, (folder / "log").read_text()[-2000:]
            time.sleep(0.2)
        yield master
    finally:
        for process in running:
            process.terminate()
        for process in running:
            process.wait(20)


ON_SOME_DAYS = pytest.mark.skipif(
    "ORDERCAST_CAMPAIGN" not in os.environ and date.today().toordinal() % 3 != 1,
    reason="three minutes: every third day, and always in `make sim`",
)


@ON_SOME_DAYS
def test_a_cluster_runs_the_same_jobs(cluster: str, tmp_path: Path) -> None:
    """Audit and plan on two workers, the package shipped to them: the same results, unchanged."""
    logs = make_logs(200_000, TWINS)
    FAULTS["cycle_of_three"](logs)
    logs.write(tmp_path / "run", parts=2)
    write_members(tmp_path / "members", 50_000)
    conf = ("--conf", "spark.executor.memory=512m", "--conf", "spark.driver.host=127.0.0.1")
    there = ordercast("audit", str(tmp_path / "run"), "--json", "--master", cluster, *conf)
    here = ordercast("audit", str(tmp_path / "run"), "--json", "--local")

    assert (there.returncode, there.stderr) == (1, "")
    assert there.stdout == here.stdout
    planned = ordercast("plan", str(tmp_path / "members"), "--json", "--master", cluster, *conf)
    assert planned.returncode == 0, planned.stderr
    on_spark = json.loads(planned.stdout)
    alone = json.loads(ordercast("plan", str(tmp_path / "members"), "--json", "--planner", "elimination").stdout)
    assert on_spark["cost"] == alone["cost"]
    assert on_spark["classes"] == len(alone["classes"])


def bare_python(folder: Path) -> Path:
    """Return a Python without this package, for workers."""
    (folder / "sitecustomize.py").write_text(
        "import sys\n"
        "sys.path[:] = [path for path in sys.path if not path.endswith('/src')]\n"
        "sys.meta_path[:] = [finder for finder in sys.meta_path if 'editable' not in str(finder)]\n"
    )
    bare = folder / "bare"
    bare.write_text(f'#!/bin/sh\nPYTHONPATH="{folder}:$PYTHONPATH" exec "{sys.executable}" "$@"\n')
    bare.chmod(0o755)
    missing = subprocess.run([bare, "-c", "import ordercast"], capture_output=True, text=True, check=False)
    assert "No module named 'ordercast'" in missing.stderr
    return bare


@ON_SOME_DAYS
def test_the_library_gives_workers_what_they_lack(cluster: str, tmp_path: Path) -> None:
    """Twice in one session, on workers whose Python does not have this package."""
    logs = make_logs(20_000, TWINS)
    FAULTS["cycle_of_three"](logs)
    logs.write(tmp_path / "run", parts=2)
    program = tmp_path / "job.py"
    program.write_text(
        "import sys\n"
        "from pyspark.sql import SparkSession\n"
        "from ordercast.spark import audit, plan\n"
        "spark = SparkSession.builder.master(sys.argv[2]).config('spark.executor.memory', '512m')\n"
        "spark = spark.config('spark.driver.host', '127.0.0.1').config('spark.ui.enabled', 'false').getOrCreate()\n"
        "read = lambda name: spark.read.parquet(f'{sys.argv[1]}/{name}')\n"
        "for _ in range(2):\n"
        "    found = audit(spark, deliveries=read('deliveries'), sends=read('sends'), membership=read('membership'))\n"
        "    print(found.ok, [name for name in found.properties if found.word(name)[0] == 'broken'])\n"
        "print(plan(spark, read('membership')).routes.count() > 0)\n"
    )
    environment = {**os.environ, "JAVA_HOME": find_java(), "SPARK_LOCAL_IP": "127.0.0.1"}
    environment |= {"PYSPARK_PYTHON": str(bare_python(tmp_path)), "PYSPARK_DRIVER_PYTHON": sys.executable}
    command: list[str | Path] = [sys.executable, program, tmp_path / "run", cluster]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)

    assert done.returncode == 0, done.stderr[-3000:]
    here = audit(LocalSource(str(tmp_path / "run")), "acyclic")
    broken = [name for name in here.properties if here.word(name)[0] == "broken"]
    assert "acyclic" in broken
    assert done.stdout.splitlines() == [f"False {broken}"] * 2 + ["True"], done.stdout
