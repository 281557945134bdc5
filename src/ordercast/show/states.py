"""State diagrams for the documents: a table of states and transitions becomes a picture.

Run: python -m ordercast.show.states FOLDER
"""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from ordercast.show.look import INK, PAPER, save

Place = tuple[float, float]
WIDE, HIGH = 2.3, 0.85
BOX, EDGE, LINE = "#e8f0fb", "#2a5db0", "#616e7c"


class Arrow(NamedTuple):
    """A transition: from a state to another, what causes it, and how far its line is bent."""

    start: str
    end: str
    why: str
    bend: float = 0.0
    at: float = 0.5
    """Where on the line the words stand."""


class Diagram(NamedTuple):
    """Where the states stand, and what leads from one to another."""

    title: str
    states: Mapping[str, Place]
    arrows: tuple[Arrow, ...]


MANAGER = Diagram(
    "A manager",
    {"RESTING": (0, 0), "PREPARING": (5.4, 0), "PLANNING": (10.8, 0), "CLOSING": (13.4, -3.4), "VOTING": (5.4, -3.4)},
    (
        Arrow("RESTING", "PREPARING", "something is wanted"),
        Arrow("PREPARING", "PLANNING", "a majority promises"),
        Arrow("PREPARING", "VOTING", "one of them had accepted\na decision", 0.0),
        Arrow("PLANNING", "CLOSING", "the host has planned"),
        Arrow("CLOSING", "VOTING", "all have reported"),
        Arrow("VOTING", "RESTING", "a majority accepts:\nDecided", 0.0, 0.45),
        Arrow("CLOSING", "PREPARING", "somebody is suspected:\na higher ballot", -0.12),
    ),
)
CLASS = Diagram(
    "A class at one of its members",
    {
        "open": (0, 0), "stopped": (5.6, 2.4), "installing": (11.6, 2.4), "draining": (5.6, -2.4),
        "halted": (8.8, 0), "installed": (15.4, 0), "finished": (20.8, 0),
    },
    (
        Arrow("open", "stopped", "Close of a ballot:\nit reports"),
        Arrow("stopped", "installing", "Decided, with a cut"),
        Arrow("installing", "installed", "all bodies fetched\nand delivered"),
        Arrow("open", "draining", "Decided, without a cut:\nroots send the end down"),
        Arrow("draining", "installed", "the end has come\ndown the tree"),
        Arrow("draining", "halted", "somebody fails:\nClose of a ballot", 0.0, 0.45),
        Arrow("halted", "installing", "Decided, with a cut"),
        Arrow("installed", "finished", "Done: everybody has\neverything"),
    ),
)  # fmt: skip
SOURCE = Diagram(
    "A message at its source",
    {"waits": (0, 0), "sent": (6.2, 0), "unknown": (6.2, -3), "placed": (12, 0), "safe": (17.8, 0)},
    (
        Arrow("waits", "sent", "its class is open here, and\nnothing goes before it"),
        Arrow("sent", "placed", "delivered here, or a\nmember says so"),
        Arrow("placed", "safe", "every member has it,\nor its class is finished"),
        Arrow("sent", "unknown", "its class closes\nalong the tree"),
        Arrow("unknown", "placed", "it was ordered before the end", 0.15),
        Arrow("unknown", "waits", "it was not: sent again\nin the next class", -0.2),
        Arrow("sent", "waits", "it is not in the cut", 0.35),
    ),
)
ALL = {"manager": MANAGER, "class": CLASS, "message": SOURCE}


def draw(diagram: Diagram) -> Figure:
    """Return the figure of a diagram."""
    xs, ys = zip(*diagram.states.values(), strict=True)
    figure = Figure(figsize=((max(xs) - min(xs) + 3.4) * 0.6, (max(ys) - min(ys) + 3.0) * 0.6))
    axes = figure.add_axes((0, 0, 1, 0.92))
    boxes = {}
    for name, (x, y) in diagram.states.items():
        boxes[name] = FancyBboxPatch(
            (x - WIDE / 2, y - HIGH / 2), WIDE, HIGH, boxstyle="round,pad=0.12", facecolor=BOX, edgecolor=EDGE
        )
        axes.add_patch(boxes[name])
        axes.text(x, y, name, ha="center", va="center", fontsize=9.5, weight="bold", color=INK)
    for arrow in diagram.arrows:
        start, end = diagram.states[arrow.start], diagram.states[arrow.end]
        axes.add_patch(
            FancyArrowPatch(
                start, end, patchA=boxes[arrow.start], patchB=boxes[arrow.end], shrinkA=1, shrinkB=2, color=LINE,
                connectionstyle=f"arc3,rad={arrow.bend}", arrowstyle="-|>", mutation_scale=12,
            )
        )  # fmt: skip
        dx, dy = end[0] - start[0], end[1] - start[1]
        x = start[0] + arrow.at * dx + arrow.bend * dy / 2
        y = start[1] + arrow.at * dy - arrow.bend * dx / 2
        around = {"facecolor": PAPER, "edgecolor": "none", "pad": 1.5}
        axes.text(x, y, arrow.why, ha="center", va="center", fontsize=7.5, color=INK, bbox=around)
    axes.set_xlim(min(xs) - 1.7, max(xs) + 1.7)
    axes.set_ylim(min(ys) - 1.2, max(ys) + 1.4)
    axes.axis("off")
    figure.suptitle(diagram.title, fontsize=11, x=0.02, ha="left", color=INK)
    return figure


def write(folder: Path) -> list[Path]:
    """Write all diagrams as SVG; the same tables give the same bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / f"epochs-{name}.svg" for name in ALL]
    for path, diagram in zip(written, ALL.values(), strict=True):
        save(draw(diagram), path)
    return written


if __name__ == "__main__":
    for made in write(Path(sys.argv[1])):
        print(made)
