"""Several sequencers (KIN §4.2): the load of the busiest, from 1 to 8 of them, and what the classes permit.

Every group gets the same number of messages from a site in no group, in virtual time; the sequencers are sites of their
own, so all they send and receive is sequencing. A class has one sequencer. So the busiest has at least the load of the
heaviest class, and at least an equal share of everything.

Run: python -m benchmarks.sequencers
"""

import random
import sys
from pathlib import Path

from benchmarks.results import record, table
from matplotlib.figure import Figure
from msgspec.structs import replace

from ordercast.membership.table import Membership
from ordercast.names import ClassRule, Level
from ordercast.sim.scenario import Scenario, deploy
from ordercast.sim.world import World

EACH = 5  # messages to each group
MANY = (1, 2, 3, 4, 6, 8)
PICTURE = Path(__file__).parents[1] / "docs" / "pictures" / "sequencers.svg"


def groups(sites: int, count: int, size: int) -> Membership:
    """Return random groups."""
    chance = random.Random(3)
    names = [f"s{index:03}" for index in range(sites)]
    return Membership.of({f"g{index:02}": sorted(chance.sample(names, size)) for index in range(count)})


CASES = {
    "40 groups of 5 of 100 sites, level total": (groups(100, 40, 5), Level.TOTAL, None),
    "40 groups of 5 of 200 sites, level total": (groups(200, 40, 5), Level.TOTAL, None),
    "40 groups of 5 of 200 sites, level acyclic": (groups(200, 40, 5), Level.ACYCLIC, None),
    "40 groups of 5 of 200 sites, classes s1": (groups(200, 40, 5), Level.ACYCLIC, ClassRule.S1),
}


def loads(members: Membership, level: Level, rule: ClassRule | None, many: int) -> tuple[dict[str, int], list[int]]:
    """Return what each sequencer sends and receives, and the same for each class."""
    names = tuple(f"q{index}" for index in range(many))
    scenario = Scenario(members, "sequencer", level=level, class_rule=rule, sequencers=names, senders=0)
    deployment = deploy(scenario)
    outside = replace(deployment, groups=replace(deployment.groups, sources=("visitor",)))
    world = World(outside, tick=1e6)
    for turn in range(EACH):
        for index, group in enumerate(sorted(members.groups)):
            world.multicast(100.0 * turn + index, "visitor", (group,), b"")
    world.run(until=1e5)
    assert len(world.outcome.deliveries) == EACH * sum(map(len, members.as_dict().values()))
    weights = [
        EACH * sum(len(deployment.groups.members[group]) + 2 for group in order) for order in deployment.groups.orders
    ]
    return {name: world.outcome.load.get(name, 0) for name in names}, weights


def main() -> int:
    rows: list[list[object]] = []
    figure = Figure(figsize=(7, 4), facecolor="white", layout="constrained")
    axes = figure.subplots()
    wrong = 0
    for name, (members, level, rule) in CASES.items():
        measured, permitted = [], []
        for many in MANY:
            found, weights = loads(members, level, rule, many)
            total = sum(weights)
            assert sum(found.values()) == total, "a sequencer does nothing but sequence"
            measured.append(total / max(found.values()))
            permitted.append(total / max(*weights, -(-total // many)))
            wrong += measured[-1] < 0.9 * permitted[-1]
        cells = [f"{got:.2f} ({could:.2f})" for got, could in zip(measured, permitted, strict=True)]
        rows.append([name, len(weights), f"{max(weights) / sum(weights):.0%}", *cells])
        (line,) = axes.plot(MANY, measured, "o-", label=f"{name}: {len(weights)} classes")
        axes.plot(MANY, permitted, "--", color=line.get_color(), linewidth=0.8)
    axes.set(xlabel="sequencers", ylabel="load of one : load of the busiest", xticks=MANY)
    axes.set_title("Speed-up by several sequencers; dashed: what the classes permit", fontsize=10)
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(PICTURE)
    told = (
        "Speed-up: the load of a single sequencer divided by that of the busiest of several; in brackets what the "
        "classes permit: no class is divided, and nobody has less than an equal share. "
        "Picture: docs/pictures/sequencers.svg."
    )
    head = ["case", "classes", "heaviest class", *(f"{many}" for many in MANY)]
    record("Several sequencers", "python -m benchmarks.sequencers", [*table(head, rows), "", told])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
