"""The space-time pictures of docs/protocols: for each protocol a typical run and a nasty one.

Run: python -m benchmarks.pictures [--to docs/pictures] [--kind svg]
"""

import argparse
import sys
from pathlib import Path

from msgspec.structs import replace

from ordercast.membership.table import Membership
from ordercast.protocols.registry import Deployment
from ordercast.show.spacetime import draw_spacetime
from ordercast.sim.film import Film
from ordercast.sim.happenings import Crash
from ordercast.sim.network import Network
from ordercast.sim.scenario import Scenario, deploy
from ordercast.sim.world import World

GROUPS = Membership.of({"A": "abc", "B": "bcd"})
FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
Orders = tuple[tuple[float, str, str], ...]
QUIET: Orders = ((0.0, "a", "A"), (0.4, "d", "B"), (3.5, "c", "A"))
CASES: dict[str, tuple[str, str, Orders, Network, tuple[Crash, ...], int]] = {
    "propagation": ("propagation", "two sources, one tree", QUIET, Network(), (), 0),
    "propagation-nasty": (
        "propagation", "the entry dies with a message, and comes back from its log",
        ((0.0, "a", "A"), (0.8, "d", "B")), Network(), (Crash("b", 1.5, 5.0),), 0,
    ),
    "sequencer": ("sequencer", "requests, and what the sequencer makes of them", QUIET, Network(), (), 0),
    "sequencer-nasty": (
        "sequencer", "ACCEPTs are lost: members see it from the contexts, and fetch",
        ((0.0, "a", "A"), (0.4, "d", "B"), (1.0, "a", "A")), Network(loss=0.3), (), 6,
    ),
    "arrow": ("arrow", "swaps follow the arrows to the last message", QUIET, Network(), (), 0),
    "arrow-nasty": (
        "arrow", "three swaps at once: each finds another message as its predecessor",
        ((0.0, "a", "A"), (0.0, "d", "B"), (0.0, "c", "A")), Network(jitter=1.5), (), 3,
    ),
    "two-phase": ("two-phase", "priorities are asked for, and the highest is final", QUIET, Network(), (), 0),
    "two-phase-nasty": (
        "two-phase", "two messages cross: the one decided first waits for the other",
        ((0.0, "a", "A"), (0.1, "d", "B")), Network(jitter=2.0), (), 4,
    ),
    "timestamp": ("timestamp", "who is silent is asked, and says its time", ((0.0, "a", "A"), (0.4, "d", "B")),
                  Network(), (), 0),
    "timestamp-nasty": (
        "timestamp", "one source is away: everybody waits for a word of it",
        ((0.0, "a", "A"), (0.4, "d", "B")), Network(), (Crash("c", 0.2, 6.0),), 0,
    ),
}  # fmt: skip


def draw(name: str, path: Path) -> None:
    """Run one case, and draw it; whatever happens in it, all is delivered in the end."""
    protocol, title, orders, network, crashes, seed = CASES[name]
    deployment = deploy(Scenario(GROUPS, protocol, senders=3, seed=seed))
    groups = replace(deployment.groups, sources=("a", "b", "c", "d"))
    deployment = Deployment(protocol, groups, deployment.plan, deployment.level)
    film = Film(deployment.sites)
    world = World(deployment, seed, network, film=film, durable=bool(crashes))
    for time, source, group in orders:
        world.multicast(time, source, (group,), b"")
    for crash in crashes:
        world.crash(crash)
    world.run(until=200.0)
    assert len(world.outcome.deliveries) == 3 * len(orders), name
    last = max(delivery.time for delivery in world.outcome.deliveries)
    film.flights = [flight for flight in film.flights if flight.departs < last]  # then acknowledgements come to rest
    draw_spacetime(film, path, f"{protocol}: {title}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--to", type=Path, default=FOLDER)
    parser.add_argument("--kind", default="svg")
    asked = parser.parse_args()
    for name in CASES:
        draw(name, asked.to / f"{name}.{asked.kind}")
        print(name, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
