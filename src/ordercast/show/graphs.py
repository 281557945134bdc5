"""GS88's graphs 1-5, and ours beside them, in one look: a panel per method, a curve per number of groups."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ordercast.show.look import FAINT, INK, colours, picture_path, save

TITLES = {
    1: ("depth", "sites", "mean depth, groups of 5"),
    2: ("depth", "size", "mean depth, 200 sites"),
    3: ("extra", "sites", "extra nodes per group, groups of 5"),
    4: ("load", "sites", "load of the busiest site, groups of 5"),
    5: ("load", "size", "load of the busiest site, 200 sites"),
}
PANELS = {
    "depth": ("greedy", "metagroup", "greedy, level total", "best", "best, level total"),
    "extra": ("greedy", "metagroup", "greedy, level total", "best", "best, level total"),
    "load": ("greedy", "two-phase", "central", "metagroup", "best"),
}


def draw_graph(number: int, rows: Sequence[dict[str, Any]], path: Path, distribution: str = "fixed") -> None:
    """Draw one graph from the summary's rows, with 95 % confidence bands."""
    figure_name, axis, title = TITLES[number]
    methods = [m for m in PANELS[figure_name] if any(row["method"] == m for row in rows)]
    figure = Figure(figsize=(3.1 * len(methods), 3.6), layout="constrained")
    panels = figure.subplots(1, len(methods), sharey=True, squeeze=False)[0]
    ink = colours(["10", "20", "30", "40"])
    for panel, method in zip(panels, methods, strict=True):
        for groups in (10, 20, 30, 40):
            own = sorted(
                (row for row in rows if _is_of(row, number, method, groups, distribution)), key=lambda row: row[axis]
            )
            if not own:
                continue
            x, y = [row[axis] for row in own], [row[figure_name] for row in own]
            half = [row[f"{figure_name}_ci"] or 0.0 for row in own]
            colour = ink[str(groups)]
            panel.plot(x, y, color=colour, marker="o", markersize=3, linewidth=1.4, label=f"{groups} groups")
            low, high = [a - b for a, b in zip(y, half, strict=True)], [a + b for a, b in zip(y, half, strict=True)]
            panel.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
        panel.set_title(method, fontsize=10, color=INK)
        panel.set_xlabel("sites in the system" if axis == "sites" else "members of a group", fontsize=9)
        panel.grid(color=FAINT, alpha=0.3, linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
    own = [r for r in rows for g in (10, 20, 30, 40) for m in methods if _is_of(r, number, m, g, distribution)]
    top = 1.08 * max((row[figure_name] for row in own if row["method"] != "metagroup"), default=1.0)
    for panel, method in zip(panels, methods, strict=True):
        panel.set_ylim(0, top)
        if any(row["method"] == method and row[figure_name] > top for row in own):
            panel.set_title(f"{method} (beyond the frame)", fontsize=10, color=INK)
    panels[0].set_ylabel(title.split(",")[0], fontsize=9)
    if panels[0].lines:
        panels[0].legend(fontsize=8, frameon=False)
    of_sizes = "" if distribution == "fixed" else ", sizes drawn exponentially"
    figure.suptitle(f"Graph {number}: {title}{of_sizes}", fontsize=11, color=INK)
    save(figure, picture_path(path))


def _is_of(row: dict[str, Any], number: int, method: str, groups: int, distribution: str) -> bool:
    on_axis = row["size"] == 5 if TITLES[number][1] == "sites" else row["sites"] == 200
    return bool(on_axis and row["method"] == method and row["groups"] == groups and row["distribution"] == distribution)


def draw_protocols(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the protocols side by side: N, D, bytes, load and delay under load."""
    heads = {
        "n": "messages",
        "d": "delay, alone",
        "loaded_delay": "delay, under load",
        "bytes": "bytes",
        "load": "load",
    }
    figure = Figure(figsize=(13, 3.8), layout="constrained")
    panels = figure.subplots(1, len(heads), sharey=True)
    names = [row["protocol"] for row in rows][::-1]
    for panel, (name, head) in zip(panels, heads.items(), strict=True):
        values = [row[name] for row in rows][::-1]
        half = [row[f"{name}_ci"] or 0.0 for row in rows][::-1]
        panel.barh(names, values, xerr=half, color="#4c78a8", height=0.62, error_kw={"ecolor": INK, "elinewidth": 1})
        panel.set_title(head, fontsize=10, color=INK)
        panel.grid(axis="x", color=FAINT, alpha=0.3, linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=9)
    figure.suptitle("Protocols: one message to a group of 5 (L = 10, P = 1), and 200 close together", fontsize=11)
    save(figure, picture_path(path))
