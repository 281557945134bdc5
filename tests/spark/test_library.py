"""`from ordercast.spark import audit, plan`: on a session of the user's, and on DataFrames from anywhere."""

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from ordercast.audit.local import LocalSource
from ordercast.audit.verdict import Verdict
from ordercast.audit.verdict import audit as judge
from ordercast.errors import InputError
from ordercast.membership.table import Membership
from ordercast.names import Planner
from ordercast.planning.make import make_plan
from ordercast.planning.request import Request
from ordercast.spark import as_frame, audit, plan, planning
from ordercast.spark.session import Spark, session
from tests.audit.shapes import make_run
from tests.audit.written import write
from tests.support.logs import FAULTS, TWINS, make_logs

pytestmark = pytest.mark.slow
TABLES = ("deliveries", "sends", "membership")
MANY = 200 if "ORDERCAST_CAMPAIGN" in os.environ else 3
WAYS = ("as written", "in no order", "many partitions", "one partition", "by site")


def answer(folder: Path) -> dict[str, object]:
    """Return what the command says, in process."""
    return judge(LocalSource(str(folder)), "acyclic").as_json()


def on_frames(spark: Spark, folder: Path, way: str = "as written", **options: Any) -> Verdict:
    """Read the tables as Spark reads them, and bring their rows into another order, or into other partitions."""
    frames: dict[str, Any] = {name: spark.sql.read.parquet(str(folder / name)) for name in TABLES}
    if way == "in no order":
        frames["deliveries"] = frames["deliveries"].orderBy("msg_id")
    elif way == "many partitions":
        frames = {name: frame.repartition(17) for name, frame in frames.items()}
    elif way == "one partition":
        frames = {name: frame.coalesce(1) for name, frame in frames.items()}
    elif way == "by site":
        folders = folder / "by-site"
        frames["deliveries"].write.partitionBy("site").parquet(str(folders))
        frames["deliveries"] = spark.sql.read.schema(frames["deliveries"].schema).parquet(str(folders))
    return audit(spark.sql, **frames, **options)


def test_frames_are_judged_as_the_command_judges_the_folder(tmp_path: Path, spark: Spark) -> None:
    """Letter by letter, on runs of every shape, in whatever order and partitions the rows come; 200 in `make sim`."""
    for seed in range(7_000, 7_000 + MANY):
        run, folder = make_run(seed), tmp_path / str(seed)
        write(run, folder, seed)
        way = WAYS[seed % len(WAYS)]
        try:
            expected = judge(LocalSource(str(folder)), run.level, running=run.running).as_json()
        except InputError as error:
            expected = {"refused": str(error).rpartition(": ")[2]}
        try:
            found = on_frames(spark, folder, way, level=run.level, running=run.running).as_json()
        except InputError as error:
            found = {"refused": str(error).rpartition(": ")[2]}

        assert expected == found, (seed, way, run.notes)


@pytest.mark.parametrize("name", ["", "swap_inside_a_metagroup"])
def test_planted_faults_are_found_in_frames(tmp_path: Path, spark: Spark, name: str) -> None:
    logs = make_logs(4_000, TWINS)
    if name:
        FAULTS[name](logs)
    logs.write(tmp_path, parts=2)
    verdict = on_frames(spark, tmp_path, "in no order")

    assert (verdict.ok, verdict.as_json()) == (not name, answer(tmp_path))


def test_columns_are_called_something_else_and_tables_have_names(tmp_path: Path, spark: Spark) -> None:
    logs = make_logs(2_000, TWINS)
    FAULTS["swap_at_one_site"](logs)
    logs.write(tmp_path)
    called = {"site": "host", "msg_id": "the id", "position": "at"}
    before = {row["key"] for row in spark.sql.sql("set").collect()}
    for name in TABLES:
        frame = spark.sql.read.parquet(str(tmp_path / name))
        for ours, theirs in called.items():
            frame = frame.withColumnRenamed(ours, theirs)
        frame.createOrReplaceTempView(f"lake_{name}")
    tables: dict[str, Any] = {name: f"lake_{name}" for name in TABLES}
    verdict = audit(spark.sql, **tables, columns=called)

    assert verdict.as_json() == answer(tmp_path)
    assert not verdict.ok
    shown = {row["property"]: row["verdict"] for row in as_frame(spark.sql, verdict).collect()}
    assert (shown["total"], shown["creation"]) == ("broken", "holds")
    assert {row["key"] for row in spark.sql.sql("set").collect()} == before, "no setting was changed"


@pytest.mark.parametrize("name", ["", "loss", "swap_at_one_site"])
def test_sends_that_nobody_recorded(tmp_path: Path, spark: Spark, name: str) -> None:
    """What deliveries show is shown; what only sends could show is not called judged."""
    logs = make_logs(20_000, TWINS)
    broken = FAULTS[name](logs) if name else set()
    logs.write(tmp_path)
    frames: dict[str, Any] = {table: spark.sql.read.parquet(str(tmp_path / table)) for table in TABLES}
    called = {"msg_id": "the id", "group": "to"}
    for ours, theirs in called.items():
        frames["deliveries"] = frames["deliveries"].withColumnRenamed(ours, theirs)
    frames["membership"] = frames["membership"].withColumnRenamed("group", "to")
    verdict = audit(spark.sql, **{**frames, "sends": None}, columns=called)

    assert not verdict.ok and verdict.properties["creation"].ok is None
    assert broken == {property_ for property_, found in verdict.properties.items() if found.violations}
    assert any("sends/ was made of what sites delivered" in note for note in verdict.notes)


def test_what_cannot_be_judged_is_refused_by_name(tmp_path: Path, spark: Spark) -> None:
    make_logs(200, TWINS).write(tmp_path)
    frames: dict[str, Any] = {name: spark.sql.read.parquet(str(tmp_path / name)) for name in TABLES}
    empty = frames["deliveries"].limit(0)
    cases = [
        ({"deliveries": frames["deliveries"].drop("msg_id")}, "deliveries: column 'msg_id' is missing"),
        ({"columns": {"site": "host"}}, "deliveries: column 'host' is missing"),
        ({"columns": {"after": "x"}}, "columns: there is no 'after', or no table has 'x'"),
        ({"level": "best"}, "level is one of fifo, total, acyclic, causal, not 'best'"),
        ({"deliveries": frames["deliveries"].selectExpr("* except (stamp)", "site as stamp")},
         "deliveries: column 'stamp' holds string, not a binary"),
        ({"sends": frames["sends"].selectExpr("null :: string as msg_id", "`group`", "source", "source_seq")},
         "sends: msg_id is null in some row"),
        ({"deliveries": empty}, "no rows"),
        ({"sends": frames["sends"].selectExpr("*", "'' as post")}, "sends: groups change in this run"),
        ({"membership": frames["membership"].limit(0)}, "membership: no rows"),
    ]  # fmt: skip
    for changed, why in cases:
        with pytest.raises(InputError) as error:
            audit(spark.sql, **{**frames, **changed})
        assert why in str(error.value), changed
        assert "\n" not in str(error.value)


def test_a_plan_of_a_frame_is_that_of_the_process(spark: Spark) -> None:
    """Site by site: entries, depths and parents."""
    groups = {f"g{index}": [f"s{(index * 5 + step * 3) % 23}" for step in range(4)] for index in range(9)}
    groups = {name: sorted(set(sites)) for name, sites in groups.items()} | {"twins": ["t1", "t2", "t3", "s0"]}
    pairs = [(site, group) for group, sites in groups.items() for site in sites]
    made = plan(spark.sql, spark.sql.createDataFrame(pairs, "host string, team string"),
                columns={"site": "host", "group": "team"})  # fmt: skip
    wanted = make_plan(Membership.of(groups), Request(Planner.ELIMINATION)).plan
    found = {row["group"]: (row["entry"], row["members"], row["depth"], row["extra"]) for row in made.groups.collect()}
    parents = {(row["site"], row["parent"]) for row in made.routes.collect() if row["parent"] is not None}

    assert found == {
        name: (group.entry, len(group.members), group.depth, len(group.extra)) for name, group in wanted.groups.items()
    }
    assert parents == {(edge.child, edge.parent) for edge in wanted.edges}
    assert (made.memberships, made.cost.messages) == (len(pairs), wanted.cost.messages)
    with pytest.raises(InputError, match="'t1' appears twice in group 'twins'"):
        plan(spark.sql, spark.sql.createDataFrame([*pairs, ("t1", "twins")], "site string, group string"))


def test_a_plan_that_executors_make_is_the_same_and_leaves_nothing_behind(
    spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What executors keep of it is let go with it; its tables stay right."""
    pairs = [(f"s{n}", f"g{n // 7}-{n % 3}") for n in range(70)] + [(f"s{n}", f"all-{n // 7}") for n in range(70)]
    frame = spark.sql.createDataFrame(pairs, "site string, group string")
    on_driver = plan(spark.sql, frame)
    monkeypatch.setattr(planning, "DRIVER_MEMBERSHIPS", 0)
    before = spark.sql._jsc.getPersistentRDDs().size()
    made = plan(spark.sql, frame)
    groups, routes = made.groups, made.routes

    assert spark.sql._jsc.getPersistentRDDs().size() > before
    assert (on_driver.cost, on_driver.classes, on_driver.memberships) == (made.cost, made.classes, made.memberships)
    del made
    gc.collect()

    assert before == spark.sql._jsc.getPersistentRDDs().size()
    assert sorted(on_driver.groups.collect()) == sorted(groups.collect())
    assert sorted(map(str, on_driver.routes.collect())) == sorted(map(str, routes.collect()))
    with pytest.raises(InputError, match="appears twice in group 'all-0'"):
        plan(spark.sql, spark.sql.createDataFrame([*pairs, ("s1", "all-0")], "site string, group string"))
    del on_driver
    gc.collect()

    assert before == spark.sql._jsc.getPersistentRDDs().size(), "what was refused keeps nothing either"


def test_a_program_under_spark_submit_uses_what_it_was_given(tmp_path: Path) -> None:
    """Master, name and settings are the submitter's, for the library and for the command."""
    make_logs(500, TWINS).write(tmp_path / "run")
    program = tmp_path / "job.py"
    program.write_text(
        "import sys\n"
        "from pyspark.sql import SparkSession\n"
        "from ordercast.spark import audit\n"
        "from ordercast.cli.audit import audit as command\n"
        "spark = SparkSession.builder.getOrCreate()\n"
        "read = lambda name: spark.read.parquet(f'{sys.argv[1]}/{name}')\n"
        "found = audit(spark, deliveries=read('deliveries'), sends=read('sends'), membership=read('membership'))\n"
        "assert command(sys.argv[1], master='local[2]') == 0\n"
        "conf = spark.sparkContext.getConf()\n"
        "print(found.ok, conf.get('spark.master'), conf.get('spark.app.name'), conf.get('spark.mine'))\n"
        "print(spark.range(3).count())\n"
    )
    submit = Path(sys.executable).parent / "spark-submit"
    command: list[str | Path] = [
        submit,
        "--master",
        "local[2]",
        "--name",
        "theirs",
        "--conf",
        "spark.mine=kept",
        program,
        tmp_path / "run",
    ]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)

    assert done.returncode == 0, done.stderr[-2000:]
    assert "True local[2] theirs kept\n3" in done.stdout, "and the session is still there"


def test_the_command_under_spark_submit_runs_where_it_was_submitted(tmp_path: Path) -> None:
    make_logs(500, TWINS).write(tmp_path / "run")
    program = tmp_path / "job.py"
    program.write_text(
        "import sys\nfrom ordercast.spark.session import session\n"
        "with session('ours') as spark:\n"
        "    conf = spark.context.getConf()\n"
        "    print(conf.get('spark.master'), conf.get('spark.app.name'), conf.get('spark.mine'))\n"
    )
    submit = Path(sys.executable).parent / "spark-submit"
    command: list[str | Path] = [
        submit,
        "--master",
        "local[1]",
        "--name",
        "theirs",
        "--conf",
        "spark.mine=kept",
        program,
    ]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, env=environment)

    assert done.returncode == 0, done.stderr[-2000:]
    assert "local[1] theirs kept" in done.stdout


def test_a_session_that_is_there_is_used_and_stays(spark: Spark) -> None:
    with session("ours") as same:
        assert same.context is spark.sql.sparkContext
    assert spark.sql.range(3).count() == 3
    with (
        pytest.raises(InputError, match="a session runs in this process already, at local"),
        session("x", "spark://h:1"),
    ):
        pass
    with pytest.raises(InputError, match=r"--conf spark\.mine: a session runs"), session("x", conf=["spark.mine=1"]):
        pass


def test_the_readers_of_parquet_see_one_run(tmp_path: Path, spark: Spark) -> None:
    """A log without stamps, with groups as lists, partitioned by site: the order is searched, and the answer is one."""
    logs = make_logs(1_500, TWINS)
    FAULTS["swap_at_one_site"](logs)
    logs.stamped = False
    logs.write(tmp_path)
    table = pq.read_table(tmp_path / "deliveries")
    frame = spark.sql.createDataFrame(table).selectExpr("* except (`group`)", "split(`group`, '[+]') as `group`")
    frame.write.partitionBy("site").parquet(str(tmp_path / "by-site"))
    others: dict[str, Any] = {name: spark.sql.read.parquet(str(tmp_path / name)) for name in ("sends", "membership")}
    verdict = audit(spark.sql, deliveries=spark.sql.read.parquet(str(tmp_path / "by-site")), **others)

    assert verdict.as_json() == answer(tmp_path)
    assert verdict.properties["total"].ok is False
