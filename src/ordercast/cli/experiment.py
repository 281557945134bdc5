"""`ordercast experiment`: the graphs of GS88, and ours."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from cyclopts import Parameter

from ordercast.errors import InputError
from ordercast.show.terminal import Screen

Which = Literal["graph1", "graph2", "graph3", "graph4", "graph5", "all"]


def experiment(
    which: Which,
    /,
    *,
    runs: int = 300,
    best: int = 10,
    protocols: int | None = None,
    seed: int = 0,
    out: Path = Path("out/experiment"),
    master: str | None = None,
    conf: list[str] | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Repeat the experiments of GS88 section 4 on Spark: tables, pictures, and one page that says what they show.

    Example: ordercast experiment graph1 --runs 4 --best 2 --out out/graph1

    Parameters
    ----------
    which
        graph1 to graph5, or all.
    runs
        Random families a point.
    best
        How many of them the search of `best` is run on.
    protocols
        How many runs compare the protocols in the simulator; by default 12 with all, otherwise none.
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
    from ordercast.spark.experiment import run_experiment
    from ordercast.spark.session import session

    graphs = (1, 2, 3, 4, 5) if which == "all" else (int(which[-1]),)
    many = protocols if protocols is not None else 12 if which == "all" else 0
    with session("ordercast experiment", master, conf or []) as spark:
        page, found = run_experiment(spark, graphs, out, runs=runs, best=best, protocols=many, seed=seed)
    if as_json:
        print(msgspec.json.encode({"report": str(page), "findings": found}).decode())
    else:
        console = Screen()
        for finding in found:
            console.print(finding, style="red" if finding.startswith("Fails") else "")
        console.print(f"report: {page}")
    return 0
