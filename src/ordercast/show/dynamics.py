"""Pictures of the experiments on the dynamics: a curve per protocol, 95 % bands, one legend beside the panels."""

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
PANELS: dict[str, list[list[Panel]]] = {
    "change": [
        [
            Panel(f"longest stop, {level}", "latencies", "sites", "stall", {"level": level}),
            Panel(f"a message is late by, {level}", "latencies", "sites", "late", {"level": level}),
            Panel(f"messages for the change, {level}", "messages", "sites", "messages", {"level": level}),
            Panel(f"groups concerned, {level}", "groups", "sites", "touched", {"level": level}),
        ]
        for level in LEVELS
    ],
    "churn": [
        [
            Panel("way of a message, mean", "latencies", "churn", "delay", {}),
            Panel("slowest 1 % of messages", "latencies", "churn", "slow", {}),
            Panel("members that stand still", "% of the time", "churn", "standing", {}),
            Panel("messages for changes", "per 100 latencies", "churn", "messages", {}),
        ]
    ],
    "recovery": [
        [
            Panel("new groups, after the kill", "latencies", "suspect_after", "recovery", {"sites": 20, **AVAILABLE}),
            Panel("longest way of a message", "latencies", "suspect_after", "outage", {"sites": 20, **AVAILABLE}),
            Panel("new groups, suspected after 6", "latencies", "sites", "recovery", {"suspect_after": 6, **AVAILABLE}),
            Panel(
                "messages that wait for ever",
                "% of its groups'",
                "policy",
                "waiting",
                {"sites": 20, "suspect_after": 6},
            ),
        ]
    ],
    "rollback": [
        [
            Panel(f"roll back, {fault}", "% of the faults", "rate", "happened", {"fault": fault, "delivery": "agreed"}),
            Panel(f"length, {fault}", "deliveries per fault", "rate", "rolled", {"fault": fault, "delivery": "agreed"}),
            Panel(
                f"at other sites, {fault}",
                "deliveries per fault",
                "rate",
                "elsewhere",
                {"fault": fault, "delivery": "agreed"},
            ),
        ]
        for fault in ("crash", "cut off")
    ],
}
PANELS["rollback"][0].append(Panel("length by delivery, cut off", "deliveries per fault", "delivery", "rolled", {"fault": "cut off", "rate": 1}))  # fmt: skip # noqa: E501


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
    handles = {line.get_label(): line for place in panels.flat for line in place.lines}
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
    ink = safe_colours(DRAWN)
    found = _points(rows, panel)
    words = panel.axis in ("delivery", "policy")
    names = [name for name in ("agreed", "copied", "safe", "available", "atomic") if any(r[panel.axis] == name for r in found)]  # fmt: skip # noqa: E501
    scale = 100.0 if panel.unit.startswith("%") else 1.0
    protocols = [name for name in DRAWN if any(row["protocol"] == name for row in found)]
    for index, protocol in enumerate(protocols):
        own = sorted((row for row in found if row["protocol"] == protocol), key=lambda row: str(row[panel.axis]) if words else row[panel.axis])  # fmt: skip # noqa: E501
        y = [scale * row[panel.figure] for row in own]
        half = [scale * (row[f"{panel.figure}_ci"] or 0.0) for row in own]
        if words:  # beside each other: nothing lies between two words
            x = [names.index(row[panel.axis]) + 0.12 * (index - (len(protocols) - 1) / 2) for row in own]
            place.errorbar(x, y, yerr=half, color=ink[protocol], marker=MARKS[protocol], linestyle="", markersize=5)
            continue
        x = [row[panel.axis] for row in own]
        place.plot(x, y, color=ink[protocol], marker=MARKS[protocol], markersize=4, linewidth=1.4, label=protocol)
        low, high = [max(0.0, a - b) for a, b in zip(y, half, strict=True)], [a + b for a, b in zip(y, half, strict=True)]  # fmt: skip # noqa: E501
        place.fill_between(x, low, high, color=ink[protocol], alpha=0.13, linewidth=0)
    if words:
        place.set_xticks(range(len(names)), names)
        place.set_xlim(-0.5, len(names) - 0.5)
    place.set_ylim(bottom=0)
    if place.get_ylim()[1] < 0.1:  # nothing at all: say so, instead of an axis of tiny numbers
        place.set_ylim(0, 1)
        place.text(0.5, 0.5, "none", transform=place.transAxes, ha="center", color=INK, fontsize=10)
    place.set_title(panel.title, fontsize=10, color=INK)
    place.set_xlabel(AXES[panel.axis], fontsize=9)
    place.set_ylabel(panel.unit, fontsize=9)
    place.tick_params(labelsize=8)
    place.grid(color=FAINT, alpha=0.3, linewidth=0.6)
    place.spines[["top", "right"]].set_visible(False)
