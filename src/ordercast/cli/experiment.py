"""`ordercast experiment`: the graphs of GS88, and ours."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter

from ordercast.errors import InputError
from ordercast.show.terminal import Screen

Which = Literal[
    "graph1", "graph2", "graph3", "graph4", "graph5", "change", "churn", "recovery", "rollback", "all"
]  # fmt: skip


def experiment(
    which: Which,
    /,
    *,
    runs: int = 300,
    best: int = 10,
    protocols: int | None = None,
    dynamics: int = 6,
    seed: int = 0,
    out: Path = Path("out/experiment"),
    master: str | None = None,
    conf: list[str] | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Repeat the experiments of GS88 section 4 on Spark, and measure what changes and failures cost.

    Writes tables, pictures, and one page that says what they show.

    Example: ordercast experiment graph1 --runs 4 --best 2 --out out/graph1

    Parameters
    ----------
    which
        graph1 to graph5; change (a site joins or leaves), churn (many do, all the time), recovery (a site is killed for
        good), rollback (a site fails and comes back); or all.
    runs
        Random families a point.
    best
        How many of them the search of `best` is run on.
    protocols
        How many runs compare the protocols in the simulator; by default 12 with all, otherwise none.
    dynamics
        Trials a point of change, churn and recovery; rollback has three times as many.
    seed
        Another seed, other families.
    out
        Where tables, pictures and report.html go.
    master
        Where Spark runs: local[*] by default, or the address of a cluster.
    conf
        A setting of Spark, NAME=VALUE; may be given several times.
    as_json
        Print the findings as JSON.

    """
    if runs < 2 or best < 0 or best > runs:
        raise InputError("--runs must be at least 2, and --best at most as many")
    if dynamics < 2 or (protocols is not None and protocols < 0):
        raise InputError("--dynamics must be at least 2, and --protocols at least 0")
    from ordercast.spark.dynamics import DYNAMICS
    from ordercast.spark.experiment import Asked, run_experiment
    from ordercast.spark.session import session

    asked = Asked(
        graphs=(1, 2, 3, 4, 5) if which == "all" else (int(which[-1]),) if which.startswith("graph") else (),
        dynamics=DYNAMICS if which == "all" else (which,) if which in DYNAMICS else (),
        runs=runs,
        best=best,
        protocols=protocols if protocols is not None else 12 if which == "all" else 0,
        dynamic_runs=dynamics,
        seed=seed,
    )
    with session("ordercast experiment", master, conf or []) as spark:
        page, found = run_experiment(spark, asked, out, shlex.join(["ordercast", *sys.argv[1:]]))
    if as_json:
        print(msgspec.json.encode({"report": str(page), "findings": found}).decode())
    else:
        console = Screen()
        for finding in found:
            console.print(finding, style="red" if finding.startswith("Fails") else "")
        console.print(f"report: {page}")
    return 0
