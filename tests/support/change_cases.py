"""Small cases of one change each, for the explorer."""

from ordercast.epochs.change import first_setup
from ordercast.epochs.requests import Change, Create, Delete, Join, Leave, RemoveSite
from ordercast.epochs.setup import GroupSetup
from ordercast.names import Delivery, Policy
from ordercast.sim.changing import Case
from ordercast.sim.network import Network

CHANGES: dict[str, tuple[dict[str, str], Change]] = {
    "join": ({"x": "abc", "y": "bc"}, Join("y", "a")),
    "leave": ({"x": "abc", "y": "abc"}, Leave("y", "a")),
    "merge": ({"x": "ab", "y": "bc"}, Join("x", "c")),
    "split": ({"x": "abc", "y": "bc"}, Leave("x", "b")),
    "remove": ({"x": "abc", "y": "bcd"}, RemoveSite("d")),
    "create": ({"x": "abc"}, Create("z", ("a", "b"))),
    "delete": ({"x": "abc", "y": "bc"}, Delete("y")),
}
"""Two classes become one, one becomes two, and so on: groups with two sites in common are ordered together."""
PROTOCOLS = ("propagation", "sequencer", "arrow", "two-phase")


def small(
    change: str, protocol: str, sends: int = 1, policy: Policy = Policy.AVAILABLE, delivery: Delivery = Delivery.AGREED
) -> Case:
    """Return three or four sites, one or two groups, some messages and one change."""
    groups, asked = CHANGES[change]
    sites = sorted({site for members in groups.values() for site in members})
    of_groups = {g: GroupSetup(tuple(m), protocol, policy=policy, delivery=delivery) for g, m in groups.items()}
    traffic = ((0.2, "b", ("x",)), (1.0, "c", (sorted(groups)[-1],)), (3.0, "a", ("x",)))[:sends]
    return Case(
        first_setup(sites, of_groups),
        frozenset({"fifo", "total", "acyclic"}),
        Network(latency=1.0),
        1,
        traffic,
        ((0.5, "a", asked),),
    )
