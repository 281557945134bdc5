"""`ordercast experiment`: run the trials, write the tables, draw the graphs, and say in words what the numbers say."""

import csv
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ordercast.errors import InputError
from ordercast.show.graphs import TITLES, draw_graph, draw_protocols
from ordercast.show.pages import Page
from ordercast.spark.session import Spark
from ordercast.spark.trials import (
    cells,
    collected,
    protocol_summary,
    run_protocols,
    run_trials,
    summary,
)

Rows = list[dict[str, Any]]


def run_experiment(
    spark: Spark, graphs: tuple[int, ...], out: Path, *, runs: int, best: int, protocols: int, seed: int = 0
) -> tuple[Path, list[str]]:
    """Run everything asked for; returns the report's path and the findings."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{out}: {error.strerror}") from None
    results = run_trials(spark, cells(graphs), runs, best, seed).cache()  # summed up and written: computed once
    rows: Rows = collected(summary(results)).to_pylist()
    pq.write_table(collected(results.orderBy("sites", "groups", "size", "distribution", "trial", "method")), out / "trials.parquet")  # fmt: skip # noqa: E501
    _write(rows, out / "summary")
    protocol_rows: Rows = []
    if protocols:
        protocol_rows = collected(protocol_summary(run_protocols(spark, protocols, seed))).to_pylist()
        _write(protocol_rows, out / "protocols")
    return report(rows, protocol_rows, graphs, out)


def _write(rows: Rows, path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(rows), path.with_suffix(".parquet"))
    with path.with_suffix(".csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def report(rows: Rows, protocol_rows: Rows, graphs: tuple[int, ...], out: Path) -> tuple[Path, list[str]]:
    """Draw, find, and write one page."""
    page = Page("GS88's experiments, repeated")
    found = findings(rows, graphs)
    runs = sorted({row["runs"] for row in rows})
    page.say(f"Random families of groups, {runs[-1]} runs a point ({runs[0]} with the search of best); bands are 95 %.")
    page.head("What the numbers say")
    page.points(found)
    for number in graphs:
        page.head(f"Graph {number}: {TITLES[number][2]}")
        for distribution in ("fixed", "exponential"):
            name = f"graph{number}" if distribution == "fixed" else f"graph{number}-exponential"
            for ending in (".svg", ".png"):
                draw_graph(number, rows, out / f"{name}{ending}", distribution)
            page.picture(out / f"{name}.svg", f"{TITLES[number][2]}, {distribution} sizes")
    if protocol_rows:
        page.head("Protocols in the simulator")
        for ending in (".svg", ".png"):
            draw_protocols(protocol_rows, out / f"protocols{ending}")
        page.picture(out / "protocols.svg", "protocols side by side")
        heads = ("protocol", "runs", "n", "d", "loaded_delay", "bytes", "load")
        page.table(heads, [[row[head] for head in heads] for row in protocol_rows])
    path = out / "report.html"
    page.write(path)
    return path, found


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
