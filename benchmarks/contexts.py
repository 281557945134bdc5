"""The size of contexts (KIN §5) over a long run: entries of the past that an ACCEPT carries, sent at a steady rate.

Causal order, 40 sites, groups of 4: one sequencer for all groups that hang together, or one for each (KIN's hybrid). A
sequencer leaves entries out that every member of its own groups has; beside it the same run where nothing is left out.
KIN §7 says that there is scope for improving this.

Run: python -m benchmarks.contexts
"""

import itertools
import random
import sys
from pathlib import Path
from typing import Any

from benchmarks.results import record, table
from matplotlib.figure import Figure

from ordercast.core.effects import Effect, Send
from ordercast.membership.table import Membership
from ordercast.names import SiteId
from ordercast.protocols.sequencing.messages import Accept
from ordercast.protocols.sequencing.sequencer import Sequencer
from ordercast.sim.network import Network
from ordercast.sim.scenario import Scenario, deploy
from ordercast.sim.world import World

PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "contexts.svg"
GROUPS = (5, 10, 20, 40)
MESSAGES = 4000
SLICES = 20


class Measured(World):
    """Notes how many entries each ACCEPT carries."""

    def begin(self) -> None:
        """Begin."""
        self.entries: list[tuple[float, int]] = []

    def _apply(self, site: SiteId, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Accept):
                self.entries.append((self.now, len(effect.message.past)))
        super()._apply(site, effects)


def means(count: int, *, alone: bool, literal: bool) -> list[float]:
    """Return the mean number of entries in each slice of a run."""
    chance = random.Random(5)
    sites = [f"s{index:02}" for index in range(40)]
    members = Membership.of({f"g{index:02}": sorted(chance.sample(sites, 4)) for index in range(count)})
    kept: Any = Sequencer._is_stable
    if literal:
        Sequencer._is_stable = lambda *_: False  # type: ignore[method-assign]
    try:
        case = Scenario(members, "sequencer", causal=True, groups_alone=alone, senders=12, seed=5)
        world = Measured(deploy(case), 5, Network(jitter=0.5), tick=2.0)
        world.begin()
        for number in range(MESSAGES):
            source = world.deployment.groups.sources[number % 12]
            world.multicast(0.25 * number, source, (chance.choice(members.groups),), b"x")
        world.run()
    finally:
        Sequencer._is_stable = kept  # type: ignore[method-assign]
    span = 0.25 * MESSAGES / SLICES
    slices: list[list[int]] = [[] for _ in range(SLICES)]
    for at, entries in world.entries:
        slices[min(int(at / span), SLICES - 1)].append(entries)
    return [sum(found) / len(found) for found in slices]


def main() -> int:
    rows: list[list[object]] = []
    figure = Figure(figsize=(9, 3.6), facecolor="white", layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    wrong = 0
    at = [MESSAGES / SLICES * number for number in range(1, SLICES + 1)]
    for count, alone in itertools.product(GROUPS, (False, True)):
        found, literal = means(count, alone=alone, literal=False), means(count, alone=alone, literal=True)
        what = "one for each" if alone else "one for all"
        axes = panels[int(alone)]
        (line,) = axes.plot(at, found, label=f"{count} groups")
        axes.plot(at, literal, "--", color=line.get_color())
        last, before = sum(found[-5:]) / 5, sum(found[5:10]) / 5
        wrong += last > 1.2 * before + 0.5 or last > count
        rows.append([count, what, f"{before:.1f}", f"{last:.1f}", f"{sum(literal[-5:]) / 5:.1f}"])
        print(rows[-1], flush=True)
    for axes, title in zip(panels, ("one sequencer for all groups", "one for each group"), strict=True):
        axes.set(xlabel="messages", title=title)
    panels[0].set_ylabel("entries of the past in an ACCEPT, mean")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", frameon=False, fontsize=8)
    figure.suptitle("Contexts stay bounded; dashed: nothing is left out", fontsize=10)
    figure.savefig(PICTURE)
    head = ["groups", "sequencers", "second quarter", "last quarter", "last quarter, nothing left out"]
    told = (
        f"Mean entries of the past in an ACCEPT; {MESSAGES:,} messages of 12 senders, groups of 4 of 40 sites."
        " A sequencer knows what is stable in its own groups only. Picture: docs/pictures/contexts.svg."
    )
    record("Contexts of causal order", "python -m benchmarks.contexts", [*table(head, rows), "", told])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
