"""The command line as a user meets it: real processes, exit codes, one clear line, JSON that others can read."""

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from ordercast import Level, Membership
from ordercast.show.spacetime import draw_spacetime
from ordercast.sim.explorer import Case, Explorer
from ordercast.sim.scenario import Scenario, deploy

BANK = Path("bank.toml")


def ordercast(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ordercast", *map(str, arguments)]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / BANK).write_text(
        '[groups]\ntransactions = ["main-1", "main-2"]\ntables = ["main-1", "main-2", "dev"]\n'
        'news = ["dev", "branch"]\n'
    )
    (tmp_path / "far.csv").write_text("site,other,latency\ndev,branch,2.5\ndev,moon,9\n")
    return tmp_path


@pytest.mark.slow
def test_plan_prints_the_documented_json(folder: Path) -> None:
    done = ordercast("plan", BANK, "--json", "--budget", "1000steps", cwd=folder)
    plan = json.loads(done.stdout)

    assert done.returncode == 0, done.stderr
    assert {"planner", "level", "epoch", "classes", "groups", "edges", "cost"} <= plan.keys()
    assert {"entry", "members", "depth", "extra"} == plan["groups"]["news"].keys()
    assert {"from", "to", "groups"} == plan["edges"][0].keys()
    assert {"mean_depth", "mean_extra", "max_load", "messages"} == plan["cost"].keys()
    assert plan["classes"] == [["news"], ["tables", "transactions"]]


@pytest.mark.slow
@pytest.mark.parametrize("planner", ["greedy", "elimination", "metagroup", "central", "best"])
def test_every_planner_is_judged_right_by_the_judge_command(folder: Path, planner: str) -> None:
    made = ordercast("plan", BANK, "--planner", planner, "--json", "--budget", "1000steps", cwd=folder)
    (folder / "plan.json").write_text(made.stdout)
    judged = ordercast("judge", "plan.json", BANK, "--json", cwd=folder)

    assert judged.returncode == 0, judged.stderr
    assert json.loads(judged.stdout)["ok"]


@pytest.mark.slow
def test_a_broken_plan_exits_with_1_and_an_example(folder: Path) -> None:
    made = ordercast("plan", BANK, "--planner", "greedy", "--json", cwd=folder)
    plan = json.loads(made.stdout)
    plan["edges"].pop()
    (folder / "plan.json").write_text(json.dumps(plan))
    judged = ordercast("judge", "plan.json", cwd=folder)

    assert judged.returncode == 1
    assert "has no path from the entry" in " ".join(judged.stdout.split())


@pytest.mark.slow
def test_the_tree_and_the_comparison_are_readable(folder: Path) -> None:
    shown = ordercast("plan", BANK, "--planner", "greedy", cwd=folder)
    compared = ordercast("plan", BANK, "--compare", "--budget", "1000steps", cwd=folder)

    assert "▸ orders tables transactions" in shown.stdout
    assert "judged by its edges" in shown.stdout
    assert all(name in compared.stdout for name in ("greedy", "metagroup", "central", "best", "two-phase", "Fastest"))


@pytest.mark.slow
def test_more_load_than_greedy_shows_the_trade_off(folder: Path) -> None:
    groups = {f"g{i}": [f"s{(i * k) % 11}" for k in (1, 2, 5)] for i in range(1, 11)}
    (folder / "many.toml").write_text("[groups]\n" + "".join(f"{g} = {json.dumps(s)}\n" for g, s in groups.items()))
    done = ordercast("plan", "many.toml", "--max-load", "60", "--budget", "20000steps", "--json", cwd=folder)
    points = json.loads(done.stdout)["trade_off"]

    assert [point["max_load"] for point in points] == sorted(point["max_load"] for point in points)
    assert points[0]["mean_depth"] > points[-1]["mean_depth"]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["svg", "png"])
def test_the_picture_is_drawn(folder: Path, ending: str) -> None:
    done = ordercast("plan", BANK, "--planner", "greedy", "--picture", f"plan.{ending}", cwd=folder)
    picture = (folder / f"plan.{ending}").read_bytes()

    assert done.returncode == 0, done.stderr
    if ending == "svg":
        assert all(name.encode() in picture for name in ("main-1", "branch", "transactions", "a group enters here"))
    else:
        assert picture.startswith(b"\x89PNG") and len(picture) > 10_000


@pytest.mark.slow
def test_names_are_names_in_pictures_and_on_the_terminal(folder: Path) -> None:
    (folder / "odd.toml").write_text('[groups]\n"$x_{" = ["[bold]a[/b]", "b\\u001b"]\n')
    done = ordercast("plan", "odd.toml", "--planner", "greedy", "--picture", "[b]odd.svg", cwd=folder)

    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "[bold]a[/b]" in done.stdout
    assert b"$x_{" in (folder / "[b]odd.svg").read_bytes()
    assert b"\x1b" not in (folder / "[b]odd.svg").read_bytes()


WRONG = [
    (["plan", "nowhere.toml"], 2, "nowhere.toml: no such file"),
    (["plan", "bank.toml", "--planner", "magic"], 2, "magic"),
    (["plan", "bank.toml", "--budget", "soon"], 2, "--budget soon: give seconds (20) or steps"),
    (["plan", "bank.toml", "--max-load", "2.5"], 2, "'2.5' is not a whole number"),
    (["plan", "bank.toml", "--compare", "--picture", "p.svg"], 2, "--compare shows all planners as they are"),
    (["demo", "--out", "bank.toml"], 2, "bank.toml: "),
    (["plan", "bank.toml", "--max-load", "0"], 2, "--max-load 0: must be at least 1"),
    (["plan", "bank.toml", "--max-load", "2", "--planner", "greedy"], 1, "loads its busiest site"),
    (["plan", "bank.toml", "--picture", "plan.gif"], 2, "plan.gif: a picture ends in .svg, .png or .pdf"),
    (["plan", "bank.toml", "--weights", "nowhere.csv"], 2, "nowhere.csv: no such file"),
    (["plan", "bank.toml", "--nonsense"], 2, "--nonsense"),
    (["plan"], 2, "MEMBERSHIP"),
    (["judge", "bank.toml"], 2, "bank.toml: not a plan"),
    (["fly"], 2, "fly"),
    (["simulate", "bank.toml", "--crash", "nobody@3"], 2, "'nobody' is not a site of this run"),
    (["simulate", "bank.toml", "--crash", "main-1@9:3"], 2, "--crash main-1@9:3: give SITE@T or SITE@T:T2"),
    (["simulate", "bank.toml", "--cut", "main-1"], 2, "--cut main-1: give A,B@T:T2"),
    (["simulate", "bank.toml", "--change", "join transactions branch"], 2, "give a change and its time"),
    (["simulate", "bank.toml", "--change", "jump transactions@3"], 2, "change 'jump transactions': give join G S"),
    (["simulate", "bank.toml", "--suspect", "nobody@3:4"], 2, "'nobody' is not a site of this run"),
    (["simulate", "bank.toml", "--churn", "0.1", "--out", "run"], 2, "are for groups that do not change"),
    (["simulate", "bank.toml", "--causal", "--policy", "available"], 2, "takes delivery safe"),
    (["explore", "bank.toml", "--fault", "crash"], 2, "--fault goes with --change"),
    (["explore", "bank.toml", "--change", "leave tables dev-1", "--fault", "flood"], 2, "--fault flood: give one of"),
    (["simulate", "bank.toml", "--protocol", "arrow", "--tree", "latency"], 2, "--tree latency: give --latencies FILE"),
    (["simulate", "bank.toml", "--by-source"], 2, "protocol propagation has no swap object"),
    (["simulate", "bank.toml", "--by-source", "--churn", "0.1"], 2, "are for groups that do not change"),
    (["explore", "bank.toml", "--latencies", "far.csv"], 2, "'moon' is not a site of this case"),
    (["simulate", "bank.toml", "--latencies", "far.csv"], 2, "'moon' is not a site of this run"),
    (["simulate", "bank.toml", "--protocol", "arrow", "--direct-bytes", "1"], 2, "is for propagation, sequencer, and"),
    (["simulate", "bank.toml", "--groups-alone"], 2, "a class for each group is KIN's hybrid: sequencer, causal"),
    (["simulate", "bank.toml", "--groups-alone", "--classes", "s1"], 2, "without --classes"),
    (["explore", "bank.toml", "--groups-alone", "--change", "join"], 2, "are for groups that do not change"),
    (["simulate", "bank.toml", "--loss", "1.5"], 2, "--loss 1.5: must be at least 0 and below 1"),
    (["experiment", "churn", "--dynamics", "1"], 2, "--dynamics must be at least 2"),
    (["experiment", "graph9"], 2, "graph9"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "code", "message"), WRONG, ids=[" ".join(a) for a, _, _ in WRONG])
def test_what_is_wrong_is_said_in_one_line(folder: Path, arguments: list[str], code: int, message: str) -> None:
    before = sorted(folder.iterdir())
    done = ordercast(*arguments, cwd=folder)

    assert done.returncode == code
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert before == sorted(folder.iterdir())


@pytest.mark.slow
def test_simulate_prints_the_documented_json_and_writes_the_run(folder: Path) -> None:
    import pyarrow.parquet as pq

    faults = [
        "--loss",
        "0.1",
        "--duplicate",
        "0.1",
        "--jitter",
        "2",
        "--crash",
        "main-1@5:20",
        "--cut",
        "main-1,dev@2:9",
    ]
    done = ordercast("simulate", BANK, "--protocol", "arrow", *faults, "--out", "run", "--json", cwd=folder)
    result = json.loads(done.stdout)

    assert done.returncode == 0, done.stderr
    wanted = {"ok", "protocol", "seed", "messages", "deliveries", "network_messages", "properties", "replay"}
    assert wanted <= result.keys()
    assert all(found["ok"] for found in result["properties"].values())
    deliveries = pq.read_table(folder / "run" / "deliveries")
    assert result["deliveries"] == deliveries.num_rows
    columns = "site position msg_id group source source_seq epoch delivered_at order_class stamp prev_stamp body_hash"
    assert columns.split() == deliveries.column_names
    assert ["msg_id", "group", "source", "source_seq", "sent_at", "after", "body_hash"] == pq.read_table(
        folder / "run" / "sends"
    ).column_names
    assert ["site", "group"] == pq.read_table(folder / "run" / "membership").column_names


@pytest.mark.slow
def test_the_same_seed_gives_the_same_trace_whatever_the_hash_seed(folder: Path) -> None:
    traces = []
    for hash_seed in ("1", "2"):
        command = [
            sys.executable,
            "-m",
            "ordercast",
            "simulate",
            str(BANK),
            "--loss",
            "0.1",
            "--jitter",
            "2",
            "--trace",
        ]
        env = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True, env=env)
        traces.append(done.stdout)

    assert traces[0] == traces[1]
    assert len(traces[0].splitlines()) > 300


@pytest.mark.slow
def test_a_crash_for_good_is_told_and_exits_with_1(folder: Path) -> None:
    done = ordercast("simulate", BANK, "--crash", "main-1@1", "--json", cwd=folder)

    assert done.returncode == 1
    assert not json.loads(done.stdout)["properties"]["completeness"]["ok"]


@pytest.mark.slow
def test_explore_tries_everything(folder: Path) -> None:
    done = ordercast("explore", BANK, "--messages", "2", "--losses", "1", "--json", cwd=folder)
    result = json.loads(done.stdout)

    assert done.returncode == 0, done.stderr
    assert result["complete"]
    assert result["states"] > 50


@pytest.mark.slow
def test_simulate_draws_a_space_time_diagram(folder: Path) -> None:
    done = ordercast("simulate", BANK, "--messages", "4", "--crash", "main-1@1:9", "--picture", "run.svg", cwd=folder)

    assert done.returncode == 0, done.stderr
    drawn = (folder / "run.svg").read_text("utf-8")
    assert "main-1" in drawn and "Propagate" in drawn and "crash" not in done.stderr


def test_a_violation_is_filmed(tmp_path: Path) -> None:
    """KIN's S2 on a ring of three groups breaks the serial order: the shortest way there, as a picture."""
    ring = Membership.of({"G": "pq", "H": "qr", "I": "pr"})
    deployment = replace(deploy(Scenario(ring, "sequencer", level=Level.TOTAL, senders=0)), level=Level.ACYCLIC)
    deployment = replace(deployment, groups=replace(deployment.groups, sources=("x", "y", "z")))
    explored = Explorer(Case(deployment, (("x", ("G",)), ("y", ("H",)), ("z", ("I",))))).run()

    assert explored.film is not None
    assert len(explored.trace) == len(explored.film.flights) + 4  # three multicasts and a tick; all else is a message
    draw_spacetime(explored.film, tmp_path / "broken.png", "acyclic broken")
    assert (tmp_path / "broken.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_a_small_audit_starts_no_spark(folder: Path) -> None:
    assert ordercast("simulate", BANK, "--out", "run", cwd=folder).returncode == 0
    code = "import sys; sys.modules['pyspark'] = None; from ordercast.cli.main import run; sys.exit(run(sys.argv[1:]))"
    command = [sys.executable, "-c", code, "audit", "run", "--json"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and json.loads(done.stdout)["ok"], done.stderr
    asked = subprocess.run([*command, "--master", "local[1]"], cwd=folder, capture_output=True, text=True, check=False)
    assert asked.returncode != 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("groups", "sites", "planner"), [(50, 20, "best"), (6000, 24_000, "elimination"), (5000, 1000, "central")]
)
def test_the_planner_is_chosen_by_size(groups: int, sites: int, planner: str) -> None:
    """Few memberships: search. Many small classes: near-linear. One large class, which makes deep trees: a hub."""
    from ordercast.names import Level
    from ordercast.planning.planners import default_planner

    chance = random.Random(1)
    near = [range(4 * n, 4 * n + 4) if planner == "elimination" else range(sites) for n in range(groups)]
    made = Membership.of({f"g{n}": [f"s{s}" for s in chance.sample(near[n], 4)] for n in range(groups)})

    assert default_planner(made, Level.ACYCLIC, None) == planner
