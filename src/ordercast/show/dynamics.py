"""Pictures of the experiments on the dynamics: a curve per protocol, 95 % intervals, one legend."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ordercast.show.look import FAINT, INK, picture_path, safe_colours, save

Rows = Sequence[dict[str, Any]]
DRAWN = ("propagation", "sequencer", "two-phase", "timestamp", "arrow", "combining", "hybrid")
MARKS = dict(zip(DRAWN, "osD^vPX", strict=True))
LEVELS = ("total", "acyclic")
AXES = {
    "sites": "sites, in groups of 5",
    "churn": "joins and leaves per 100 latencies",
    "suspect_after": "suspected after (latencies)",
    "rate": "messages to a group per latency",
    "delivery": "delivery",
    "policy": "policy",
}


class Panel(NamedTuple):
    """What one panel shows: rows that agree with `where`, a figure of them above a key."""

    title: str
    unit: str
    axis: str
    figure: str
    where: dict[str, Any]


TITLES = {
    "change": "Change: a site joins or leaves a group while all groups get messages",
    "churn": "Churn: 20 sites join and leave 4 groups of 5 all the time",
    "recovery": "Recovery: a member is killed for good",
    "rollback": "Rollback: a member fails, and is back later (10 sites, 2 groups of 5)",
}
AVAILABLE = {"policy": "available"}
AGREED = {"delivery": "agreed"}
CUT: dict[str, Any] = {"fault": "cut off", **AGREED}
ONE: dict[str, Any] = {"fault": "cut off", "rate": 1}
AT_20: dict[str, Any] = {"sites": 20, **AVAILABLE}
AFTER_6: dict[str, Any] = {"suspect_after": 6, **AVAILABLE}
AT_20_AFTER_6 = {"sites": 20, "suspect_after": 6}


def _of_change(level: str) -> list[Panel]:
    where = {"level": level}
    return [
        Panel(f"longest stop, {level}", "latencies", "sites", "stall", where),
        Panel(f"a message is late by, {level}", "latencies", "sites", "late", where),
        Panel(f"messages for the change, {level}", "messages", "sites", "messages", where),
        Panel(f"groups concerned, {level}", "groups", "sites", "touched", where),
    ]


def _of_fault(fault: str) -> list[Panel]:
    where = {"fault": fault, **AGREED}
    return [
        Panel(f"how often, {fault}", "% of the faults", "rate", "happened", where),
        Panel(f"length, {fault}", "deliveries undone per fault", "rate", "rolled", where),
    ]


PANELS: dict[str, list[list[Panel]]] = {
    "change": [_of_change("total"), _of_change("acyclic")],
    "churn": [
        [
            Panel("way of a message, mean", "latencies", "churn", "delay", {}),
            Panel("slowest 1 % of deliveries", "latencies or more", "churn", "slow", {}),
            Panel("members that stand still", "% of the time", "churn", "standing", {}),
            Panel("messages for changes", "per 100 latencies", "churn", "messages", {}),
        ]
    ],
    "recovery": [
        [
            Panel("groups without it, 20 sites", "latencies after", "suspect_after", "recovery", AT_20),
            Panel("longest way of a message", "latencies", "suspect_after", "outage", AT_20),
            Panel("groups without it, suspected after 6", "latencies after", "sites", "recovery", AFTER_6),
            Panel("messages that wait for ever", "% of those to its groups", "policy", "waiting", AT_20_AFTER_6),
        ]
    ],
    "rollback": [
        [
            *_of_fault("crash"),
            Panel("length by delivery, cut off", "deliveries undone per fault", "delivery", "rolled", ONE),
        ],
        [
            *_of_fault("cut off"),
            Panel("at other sites, cut off", "deliveries undone per fault", "rate", "elsewhere", CUT),
        ],
    ],
}  # fmt: skip
WORDS = {"delivery": ("agreed", "copied", "safe"), "policy": ("available", "atomic")}
"""Axes on which words stand."""


def draw_dynamics(experiment: str, rows: Rows, path: Path) -> None:
    """Draw one experiment from its summary's rows; panels that nothing was measured for are left out."""
    own = [row for row in rows if row["experiment"] == experiment]
    shown = [[panel for panel in line if _points(own, panel)] for line in PANELS[experiment]]
    shown = [line for line in shown if line]
    across = max(len(line) for line in shown)
    figure = Figure(figsize=(3.1 * across + 1.5, 3.1 * len(shown) + 0.5), layout="constrained")
    panels = figure.subplots(len(shown), across, squeeze=False)
    for line, axes in zip(shown, panels, strict=True):
        for panel, place in zip(line, axes, strict=False):
            _draw(place, panel, own)
        for place in axes[len(line) :]:
            place.set_axis_off()
    handles: dict[str, Any] = {}
    for place in panels.flat:
        handles |= {label: drawn for drawn, label in zip(*place.get_legend_handles_labels(), strict=True)}
    names = [name for name in DRAWN if name in handles]
    figure.legend([handles[name] for name in names], names, loc="outside right upper", fontsize=9, frameon=False)
    figure.suptitle(TITLES[experiment], fontsize=11, color=INK)
    save(figure, picture_path(path))


def _points(rows: Rows, panel: Panel) -> list[dict[str, Any]]:
    return [
        row
        for row in rows
        if row[panel.figure] is not None and all(row[name] == value for name, value in panel.where.items())
    ]


def _draw(place: Axes, panel: Panel, rows: Rows) -> None:
    found = _points(rows, panel)
    protocols = [name for name in DRAWN if any(row["protocol"] == name for row in found)]
    for index, protocol in enumerate(protocols):
        _draw_protocol(place, panel, [row for row in found if row["protocol"] == protocol], index - len(protocols) / 2)
    if panel.axis in WORDS:
        place.set_xticks(range(len(WORDS[panel.axis])), WORDS[panel.axis])
        place.set_xlim(-0.5, len(WORDS[panel.axis]) - 0.5)
    if any(row[panel.figure] for row in found):
        place.set_ylim(bottom=0)
    else:  # say so, instead of an axis of tiny numbers
        place.set_ylim(0, 1)
        place.set_yticks([0])
        place.text(0.5, 0.5, "none", transform=place.transAxes, ha="center", color=INK, fontsize=10)
    place.set_title(panel.title, fontsize=10, color=INK)
    place.set_xlabel(AXES[panel.axis], fontsize=9)
    place.set_ylabel(panel.unit, fontsize=9)
    place.tick_params(labelsize=8)
    place.grid(color=FAINT, alpha=0.3, linewidth=0.6)
    place.spines[["top", "right"]].set_visible(False)


def _draw_protocol(place: Axes, panel: Panel, own: Rows, beside: float) -> None:
    """Draw one curve, or single marks above words; a little to the side, so that equal ones can be seen."""
    protocol = own[0]["protocol"]
    percent = panel.unit.startswith("%")
    words = WORDS.get(panel.axis)
    own = sorted(own, key=lambda row: words.index(row[panel.axis]) if words else row[panel.axis])
    scale = 100.0 if percent else 1.0
    y = [scale * row[panel.figure] for row in own]
    half = [scale * (row[f"{panel.figure}_ci"] or 0.0) for row in own]
    below = [min(a, b) for a, b in zip(half, y, strict=True)]  # no figure is below nothing, or above all
    above = [min(a, 100.0 - b) if percent else a for a, b in zip(half, y, strict=True)]
    width = 10.0 if words else float(own[-1][panel.axis] - own[0][panel.axis])
    x = [(words.index(row[panel.axis]) if words else row[panel.axis]) + 0.012 * width * beside for row in own]
    place.errorbar(
        x, y, yerr=[below, above], color=safe_colours(DRAWN)[protocol], marker=MARKS[protocol], label=protocol,
        linestyle="" if words else "-", markersize=4, linewidth=1.4, elinewidth=0.8, capsize=2,
    )  # fmt: skip
