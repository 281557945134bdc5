"""GS88's graphs 1-5, and ours beside them, in one look: a panel per method, a curve per number of groups."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ordercast.show.look import FAINT, INK, SAFE, picture_path, safe_colours, save

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


APART = "metagroup"
"""So deep on dense families that the others would lie flat: it has a scale of its own."""
GROUPS = (10, 20, 30, 40)
MARKS = dict(zip(GROUPS, "osD^", strict=True))
UNITS = {"depth": "hops", "extra": "non-members a message passes", "load": "messages at the busiest site"}


def draw_graph(number: int, rows: Sequence[dict[str, Any]], path: Path, distribution: str = "fixed") -> None:
    """Draw one graph from the summary's rows, with 95 % confidence bands; a method without points has no panel."""
    figure_name, axis, title = TITLES[number]
    drawn = [row for row in rows if _is_of(row, number, distribution)]
    methods = [method for method in PANELS[figure_name] if any(row["method"] == method for row in drawn)]
    figure = Figure(figsize=(2.9 * len(methods) + 1.3, 3.6), layout="constrained")
    panels = figure.subplots(1, len(methods), squeeze=False)[0]
    others = [row for row in drawn if row["method"] in methods and row["method"] != APART]
    tops = {APART: 1.08 * max((row[figure_name] for row in drawn if row["method"] == APART), default=1.0)}
    common = 1.08 * max((row[figure_name] for row in others), default=1.0)
    for panel, method in zip(panels, methods, strict=True):
        _draw_method(panel, [row for row in drawn if row["method"] == method], figure_name, axis)
        top = common if figure_name == "load" else tops.get(method, common)
        panel.set_title(f"{method} (own scale)" if top > common else method, fontsize=10, color=INK)
        if figure_name == "load":  # from a few messages to thousands
            panel.set_yscale("log")
            panel.set_ylim(min(row["load"] for row in drawn) / 1.3, 1.2 * max(row["load"] for row in drawn))
            panel.yaxis.set_major_formatter("{x:,.0f}")
        else:
            panel.set_ylim(0, max(top, common))
    panels[0].set_ylabel(UNITS[figure_name], fontsize=9)
    handles = {line.get_label(): line for panel in panels for line in panel.lines}
    figure.legend(list(handles.values()), list(handles), loc="outside right upper", fontsize=9, frameon=False)
    of_sizes = "" if distribution == "fixed" else ", sizes drawn exponentially"
    figure.suptitle(f"Graph {number}: {title}{of_sizes}", fontsize=11, color=INK)
    save(figure, picture_path(path))


def _draw_method(panel: Axes, rows: Sequence[dict[str, Any]], figure_name: str, axis: str) -> None:
    ink = safe_colours([str(groups) for groups in GROUPS])
    for groups in GROUPS:
        own = sorted((row for row in rows if row["groups"] == groups), key=lambda row: row[axis])
        if not own:
            continue
        x, y = [row[axis] for row in own], [row[figure_name] for row in own]
        half = [row[f"{figure_name}_ci"] or 0.0 for row in own]
        colour, mark = ink[str(groups)], MARKS[groups]
        panel.plot(x, y, color=colour, marker=mark, markersize=3.5, linewidth=1.4, label=f"{groups} groups")
        low, high = [a - b for a, b in zip(y, half, strict=True)], [a + b for a, b in zip(y, half, strict=True)]
        panel.fill_between(x, low, high, color=colour, alpha=0.2, linewidth=0)
    panel.set_xlabel("sites in the system" if axis == "sites" else "members of a group", fontsize=9)
    panel.tick_params(labelsize=8)
    panel.grid(color=FAINT, alpha=0.3, linewidth=0.6)
    panel.spines[["top", "right"]].set_visible(False)


def _is_of(row: dict[str, Any], number: int, distribution: str) -> bool:
    on_axis = row["size"] == 5 if TITLES[number][1] == "sites" else row["sites"] == 200
    return bool(on_axis and row["groups"] in GROUPS and row["distribution"] == distribution)


def draw_protocols(rows: Sequence[dict[str, Any]], path: Path) -> None:
    """Draw the protocols side by side: N, D, bytes, load and delay under load, each bar with its number."""
    heads = {
        "n": "messages",
        "d": "delay, alone",
        "loaded_delay": "delay, under load",
        "bytes": "bytes",
        "load": "messages at the busiest site",
    }
    figure = Figure(figsize=(14, 4), layout="constrained")
    panels = figure.subplots(1, len(heads), sharey=True)
    names = [row["protocol"] for row in rows][::-1]
    for panel, (name, head) in zip(panels, heads.items(), strict=True):
        values = [row[name] for row in rows][::-1]
        half = [row[f"{name}_ci"] or 0.0 for row in rows][::-1]
        panel.barh(names, values, xerr=half, color=SAFE[0], height=0.62, error_kw={"ecolor": INK, "elinewidth": 1})
        widest = max(a + b for a, b in zip(values, half, strict=True))
        for place, (value, width) in enumerate(zip(values, half, strict=True)):
            shown = f"{value:.1f}" if value < 100 else f"{value:,.0f}"
            panel.text(value + width + 0.02 * widest, place, shown, va="center", fontsize=8, color=INK)
        panel.set_xlim(0, 1.22 * widest)
        panel.set_title(head, fontsize=10, color=INK)
        panel.grid(axis="x", color=FAINT, alpha=0.3, linewidth=0.6)
        panel.spines[["top", "right"]].set_visible(False)
        panel.tick_params(labelsize=9)
    title = "Protocols: one message to a group of 5 (latency L = 10, processing P = 1), and 200 close together"
    figure.suptitle(title, fontsize=11, color=INK)
    save(figure, picture_path(path))
