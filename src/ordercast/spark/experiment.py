"""`ordercast experiment`: run the trials, write the tables, draw the graphs, and say in words what the numbers say."""

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ordercast.errors import InputError
from ordercast.show.dynamics import TITLES as TITLES_OF_DYNAMICS
from ordercast.show.dynamics import draw_dynamics
from ordercast.show.graphs import TITLES, draw_graph, draw_protocols
from ordercast.show.pages import Page
from ordercast.sim.dynamics import Point
from ordercast.spark.about import About, about
from ordercast.spark.claims import claims
from ordercast.spark.dynamics import DYNAMIC_RUNS, dynamics_summary, points, run_dynamics
from ordercast.spark.session import Spark
from ordercast.spark.trials import (
    cells,
    collected,
    protocol_summary,
    run_protocols,
    run_trials,
    summary,
    table_1,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Asked:
    """What to run: which of GS88's graphs and of our experiments, and how many trials a point."""

    graphs: tuple[int, ...] = ()
    dynamics: tuple[str, ...] = ()
    runs: int = 300
    best: int = 10
    """Of the runs, how many the search of `best` is run on."""
    protocols: int = 0
    """Runs that compare the protocols while nothing changes."""
    dynamic_runs: int = DYNAMIC_RUNS
    seed: int = 0


@dataclass(frozen=True)
class Results:
    """The summaries' rows; empty for what was not run."""

    graphs: Rows = field(default_factory=list)
    protocols: Rows = field(default_factory=list)
    dynamics: Rows = field(default_factory=list)


def run_experiment(spark: Spark, asked: Asked, out: Path, command: str) -> tuple[Path, list[str]]:
    """Run everything asked for; returns the report's path and the findings."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out}: {error.strerror}") from None
    made = about(command, asked.seed)
    made.write(out / "run.json")
    results = Results()
    if asked.graphs:
        trials = run_trials(spark, cells(asked.graphs), asked.runs, asked.best, asked.seed).cache()  # used twice
        results = replace(results, graphs=_kept(summary(trials), out / "summary", made))
        in_order = trials.orderBy("sites", "groups", "size", "distribution", "trial", "method")
        made.write_table(collected(in_order), out / "trials.parquet")
    if asked.protocols:
        ran = run_protocols(spark, asked.protocols, asked.seed)
        results = replace(results, protocols=_kept(protocol_summary(ran), out / "protocols", made))
    if asked.dynamics:
        trials = run_dynamics(spark, points(asked.dynamics), asked.dynamic_runs, asked.seed).cache()  # used twice
        results = replace(results, dynamics=_kept(dynamics_summary(trials), out / "dynamics", made))
        in_order = trials.orderBy(*Point._fields, "trial")
        made.write_table(collected(in_order), out / "dynamics-trials.parquet")
    return report(results, asked, out, made)


def _kept(frame: "DataFrame", path: Path, made: About) -> Rows:
    """Write a summary as Parquet and as CSV, and return its rows."""
    rows: Rows = collected(frame).to_pylist()
    made.write_rows(rows, path.with_suffix(".parquet"))
    with path.with_suffix(".csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    return rows


def report(results: Results, asked: Asked, out: Path, made: About) -> tuple[Path, list[str]]:
    """Draw, find, and write one page."""
    page = Page("GS88's experiments, repeated, and ours on changes and failures")
    page.say(str(made), "dim")
    found = findings(results.graphs, asked.graphs) + claims(results.dynamics)
    page.head("What the numbers say")
    page.points(found)
    _add_graphs(page, results.graphs, asked.graphs, out)
    if results.protocols:
        _add_protocols(page, results.protocols, asked, out)
    if results.dynamics:
        page.head("Changes and failures, in the simulator")
        many = sorted({row["runs"] for row in results.dynamics})
        page.say(
            f"Groups of 5, as many as a fifth of the sites; a link takes one latency, and so does a tick. "
            f"{' to '.join(map(str, many[:: max(1, len(many) - 1)]))} trials a point; bars are 95 %. "
            "Arrow stands for combining and hybrid too; timestamp is run on up to 20 sites."
        )
    for experiment in asked.dynamics if results.dynamics else ():
        page.head(TITLES_OF_DYNAMICS[experiment])
        page.points(claims([row for row in results.dynamics if row["experiment"] == experiment]))
        for ending in (".svg", ".png"):
            draw_dynamics(experiment, results.dynamics, out / f"{experiment}{ending}")
        page.picture(out / f"{experiment}.svg", TITLES_OF_DYNAMICS[experiment])
    path = out / "report.html"
    page.write(path)
    return path, found


def _add_graphs(page: Page, rows: Rows, graphs: tuple[int, ...], out: Path) -> None:
    if rows:
        runs = sorted({row["runs"] for row in rows})
        page.say(
            f"GS88's graphs: random families of groups, {runs[-1]} runs a point ({runs[0]} with the search of best); "
            "bands are 95 %."
        )
    for number in graphs:
        page.head(f"Graph {number}: {TITLES[number][2]}")
        for distribution in sorted({row["distribution"] for row in rows}, reverse=True):
            name = f"graph{number}" if distribution == "fixed" else f"graph{number}-exponential"
            for ending in (".svg", ".png"):
                draw_graph(number, rows, out / f"{name}{ending}", distribution)
            page.picture(out / f"{name}.svg", f"{TITLES[number][2]}, {distribution} sizes")


def _add_protocols(page: Page, rows: Rows, asked: Asked, out: Path) -> None:
    page.head("Protocols in the simulator, while nothing changes")
    for ending in (".svg", ".png"):
        draw_protocols(rows, out / f"protocols{ending}")
    page.picture(out / "protocols.svg", "protocols side by side")
    heads = ("protocol", "runs", "n", "d", "loaded_delay", "bytes", "load")
    page.table(heads, [[row[head] for head in heads] for row in rows])
    page.say(
        "GS88 table 1 beside it: what its formulas say for these groups (n = 5, L = 10, P = 1), and what was counted."
    )
    page.table(
        ("protocol", "messages N, table 1", "counted", "delay D, table 1", "counted"),
        [
            (name, *(value for pair in ((n, own["n"]), (d, own["d"])) for value in pair))
            for name, n, d in table_1(asked.protocols, asked.seed)
            for own in rows
            if own["protocol"] == name
        ],
    )


def findings(rows: Rows, graphs: tuple[int, ...]) -> list[str]:
    """Judge the paper's claims by the numbers."""
    found: list[str] = []
    tests: list[tuple[set[int], Callable[[Rows], list[str]]]] = [
        ({1}, _shape), ({1, 2}, _depth), ({3}, _extra), ({4, 5}, _load), ({1, 2}, _exponential), ({1, 2, 3}, _ours),
        ({1, 2, 3, 4, 5}, _bands),
    ]  # fmt: skip
    for needs, test in tests:
        if needs & set(graphs):
            found += test(rows)
    return found


def _of(rows: Rows, method: str, distribution: str = "fixed", **where: int) -> Rows:
    return [
        row
        for row in rows
        if row["method"] == method
        and row["distribution"] == distribution
        and all(row[name] == value for name, value in where.items())
    ]


def _shape(rows: Rows) -> list[str]:
    peaks: dict[int, int] = {}
    inside: dict[int, bool] = {}
    for groups in (10, 20, 30, 40):
        own = sorted(_of(rows, "greedy", size=5, groups=groups), key=lambda row: row["sites"])
        if own:
            peaks[groups] = max(own, key=lambda row: row["depth"])["sites"]
            inside[groups] = own[0]["sites"] < peaks[groups] < own[-1]["sites"]
    if not peaks:
        return []
    told = ", ".join(f"{sites} sites at {groups} groups" for groups, sites in peaks.items())
    word = "Holds" if all(inside.values()) else "Mostly holds" if sum(inside.values()) > 2 else "Fails"
    only = ", ".join(str(groups) for groups, is_inside in inside.items() if not is_inside)
    falls = f"; with {only} groups it only falls" if only else ""
    return [f"{word}: depth rises and falls with the number of sites: deepest at {told}{falls}."]


def _depth(rows: Rows) -> list[str]:
    small = _of(rows, "greedy", size=5)
    if not small:
        return []
    deep = [row for row in small if row["depth"] - row["depth_ci"] > 2]
    worst = max(small, key=lambda row: row["depth"])
    told = f"at most {worst['depth']:.1f} ({worst['sites']} sites, {worst['groups']} groups)"
    if not deep:
        return [f"Holds: for groups of 5 the depth is less than or close to 2: {told}."]
    least = min(row["groups"] for row in deep)
    return [
        f"Fails: “d less than or close to 2 when the group size is small”: for groups of 5 it is {told}; "
        f"it is above 2 at {len(deep)} of {len(small)} points, from {least} groups on."
    ]


def _extra(rows: Rows) -> list[str]:
    found = []
    high = [row for row in _of(rows, "greedy", size=5) if row["extra"] - row["extra_ci"] > 1]
    if high:
        worst = max(high, key=lambda row: row["extra"])
        least = min(row["groups"] for row in high)
        found.append(
            f"Fails: “the number of extra nodes is low in general”: with {least} and more groups a message to 5 "
            f"members passes more than one non-member; up to {worst['extra']:.1f} at {worst['groups']} groups and "
            f"{worst['sites']} sites."
        )
    else:
        found.append("Holds: the number of extra nodes is low in general.")
    return found


def _load(rows: Rows) -> list[str]:
    between = points = 0
    for row in _of(rows, "greedy"):
        where = {name: row[name] for name in ("sites", "groups", "size")}
        others = {m: _of(rows, m, **where) for m in ("two-phase", "central")}
        if all(others.values()):
            points += 1
            low, high = others["two-phase"][0]["load"], others["central"][0]["load"]
            between += low <= row["load"] + row["load_ci"] and row["load"] - row["load_ci"] <= high
    word = "Holds" if between == points else "Mostly holds" if between > 0.8 * points else "Fails"
    return [
        f"{word}: load of the propagation graph lies between two-phase and central at {between} of {points} points."
    ]


def _exponential(rows: Rows) -> list[str]:
    lower = points = 0
    for row in _of(rows, "greedy"):
        where = {name: row[name] for name in ("sites", "groups", "size")}
        other = _of(rows, "greedy", "exponential", **where)
        if other:
            points += 1
            lower += other[0]["depth"] < row["depth"]
    if not points:
        return []
    word = "Holds" if lower > 0.6 * points else "Fails"
    return [f"{word}: exponential sizes generally give lower depth: at {lower} of {points} points."]


def _ours(rows: Rows) -> list[str]:
    found = []
    for method, words in (("best", "best"), ("greedy, level total", "greedy per class, level total"), ("best, level total", "best, level total")):  # fmt: skip # noqa: E501
        ratios = []
        for row in _of(rows, method):
            where = {name: row[name] for name in ("sites", "groups", "size")}
            other = _of(rows, "greedy", **where)
            if other and other[0]["depth"]:
                ratios.append((row["depth"] / other[0]["depth"], row))
        if ratios:
            mean = sum(ratio for ratio, _ in ratios) / len(ratios)
            ratio, row = min(ratios, key=lambda pair: pair[0])
            where_best = f"{row['sites']} sites, {row['groups']} groups of {row['size']}"
            found.append(
                f"Ours: {words} has {mean:.2f} times the depth of greedy on average, {ratio:.2f} at {where_best}."
            )
    return found


def _bands(rows: Rows) -> list[str]:
    bands: Sequence[tuple[str, Callable[[dict[str, Any]], float], float, str]] = (
        ("depth", lambda row: row["depth_ci"] / row["depth"] if row["depth"] else 0.0, 0.1, "10 % of the mean"),
        ("extra", lambda row: row["extra_ci"], 0.5, "0.5"),
        ("load", lambda row: row["load_ci"] / row["load"] if row["load"] else 0.0, 0.1, "10 % of the mean"),
    )
    own = [row for row in rows if row["method"] in ("greedy", "two-phase", "central")]  # the paper's
    found = []
    for name, width, limit, words in bands:
        wide = [row for row in own if width(row) > limit]
        word = "within" if not wide else f"wider at {len(wide)} of {len(own)} points than"
        found.append(f"Confidence: the 95 % intervals of {name} are {word} the paper's {words}.")
    return found
