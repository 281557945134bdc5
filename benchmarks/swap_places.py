"""HTW00 §6.2: entering and leaving a swap tree costs messages in proportion to the degree, whatever the tree's size.

Trees of 8 to 1,024 nodes, of three shapes; in each, sixteen nodes that are drawn leave and sixteen others enter, while
every node swaps once. What is counted is what is said for entering and leaving, not the swaps. All swaps must be one
chain at the end, and the nodes one tree.

Run: python -m benchmarks.swap_places
"""

import random
import sys
from pathlib import Path

from benchmarks.results import record, table
from matplotlib.figure import Figure

from ordercast.protocols.swap.multicast import Swap
from ordercast.protocols.swap.places import Enter, Entered, Found, Kind
from ordercast.sim.explore_places import Case, World, verdict

SIZES = (8, 16, 32, 64, 128, 256, 512, 1024)
MOVERS = 16
PICTURE = Path(__file__).parent / "swap_places.svg"


class Counting(World):
    """Counts what is said for entering and for leaving."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.entering = self.leaving = 0

    def _send(self, sender: str, sends: list[tuple[str, object]]) -> None:  # type: ignore[override]
        for _, message in sends:
            self.entering += isinstance(message, Enter | Entered)
            self.leaving += not isinstance(message, Enter | Entered | Swap | Found)
        super()._send(sender, sends)  # type: ignore[arg-type]


def parents_of(shape: str, names: list[str], chance: random.Random) -> dict[str, str | None]:
    """Return a tree: balanced, a path, or drawn."""

    def above(index: int) -> int:
        return {"balanced": (index - 1) // 2, "path": index - 1}.get(shape, chance.randrange(index))

    return {name: names[above(index)] if index else None for index, name in enumerate(names)}


def run(kind: Kind, shape: str, size: int, seed: int) -> tuple[list[float], list[str]]:
    """Return messages per entrance, messages per departure and the degree of who left; and what is broken."""
    chance = random.Random(seed)
    names = [f"n{index:04}" for index in range(size)]
    parents = parents_of(shape, names, chance)
    movers = chance.sample(names, min(MOVERS, size // 2))
    degrees = [sum(1 for one in names if parents[one] == name) + (parents[name] is not None) for name in movers]
    todo: dict[str, tuple[str, ...]] = {name: ("swap", *(["leave"] if name in movers else [])) for name in names}
    todo |= {f"x{index:02}": (f"enter {chance.choice(names)}", "swap") for index in range(MOVERS)}
    world = Counting(Case(kind, parents, todo, ticks=10**6))
    while moves := world.moves():
        world.do(chance.choice(moves))
    figures = [world.entering / MOVERS, world.leaving / len(movers), sum(degrees) / len(degrees)]
    return figures, list(verdict(world))


def main() -> int:
    rows: list[list[object]] = []
    broken: list[str] = []
    figure = Figure(figsize=(9, 3.4), facecolor="white", layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    kinds: list[Kind] = ["arrow", "combining"]
    for panel, kind in zip(panels, kinds, strict=True):
        for shape in ("balanced", "path", "drawn"):
            enters, leaves = [], []
            for size in SIZES:
                found = [run(kind, shape, size, seed) for seed in range(3 if size <= 256 else 1)]
                broken += [line for _, wrong in found for line in wrong]
                enter, leave, degree = (sum(figures[i] for figures, _ in found) / len(found) for i in range(3))
                enters.append(enter)
                leaves.append(leave)
                rows.append([kind, shape, size, f"{enter:.1f}", f"{leave:.1f}", f"{degree:.1f}"])
                print(rows[-1], flush=True)
            panel.plot(SIZES, leaves, "o-", markersize=3, label=f"leave, {shape}")
        panel.plot(SIZES, enters, "k--", label="enter")
        panel.set(xscale="log", xlabel="nodes", title=kind)
        panel.set_ylim(bottom=0)
    panels[0].set_ylabel("messages for one node")
    panels[1].legend(frameon=False, fontsize=8)
    figure.savefig(PICTURE)
    shown = [row for row in rows if row[2] in (8, 64, 1024)]
    head = ["object", "tree", "nodes", "messages to enter", "to leave", "degree of who leaves"]
    told = (
        f"{MOVERS} nodes leave and {MOVERS} enter while every node swaps; what happens next is drawn. Locks that had to"
        " be given back because a neighbour left first are counted. All swaps are one chain in every run."
        " Over all sizes: [swap_places.svg](swap_places.svg)."
    )
    record("Entering and leaving a swap tree", "python -m benchmarks.swap_places", [*table(head, shown), "", told])
    print("\n".join(broken))
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
