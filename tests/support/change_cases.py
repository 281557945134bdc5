"""Small cases of one change each, for the explorer."""

import msgspec

from ordercast.epochs.change import first_setup
from ordercast.epochs.requests import Change, Create, Delete, Join, Leave, Move, RemoveSite
from ordercast.epochs.setup import GroupSetup
from ordercast.names import Delivery, Planner, Policy
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
RACES: dict[str, tuple[dict[str, str], tuple[tuple[str, Change], ...]]] = {
    "transfer": ({"x": "ab", "y": "bc", "z": "c"}, (("a", Move("x", ("c",))),)),
    "two transfers": ({"x": "ab", "y": "bc", "z": "c"}, (("a", Move("x", ("c",))), ("b", Move("x", ("b",))))),
    "transfer and join": ({"x": "ab", "y": "bc", "z": "c"}, (("a", Move("y", ("a",))), ("c", Join("y", "a")))),
    "transfer and leave": ({"x": "abc", "y": "bc", "z": "c"}, (("a", Move("x", ("c",))), ("b", Leave("x", "b")))),
    "two resolves": ({"x": "ab", "y": "bc", "z": "c"}, (("a", Join("x", "c")), ("c", Join("z", "b")))),
    "resolve and split": ({"x": "abc", "y": "bc", "z": "c"}, (("a", Leave("x", "b")), ("c", Join("z", "b")))),
    "away from all": ({"x": "ab", "y": "bc", "z": "c"}, (("a", Move("x", ("d",))), ("c", Join("x", "c")))),
}
"""Three groups at two sequencers, with protocol sequencer; what is asked for is asked for at once, at two sites."""
MARKERS: dict[str, tuple[dict[str, str], Change]] = {
    "joins": ({"x": "abc", "y": "bc"}, Join("y", "a")),
    "leaves": ({"x": "abc", "y": "abc"}, Leave("y", "a")),
    "moves": ({"x": "abc", "y": "bc"}, Leave("y", "c")),
}
"""A site goes to another meta-group (MGT §5): one vanishes behind it, one appears, or both stay."""
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


def marker(how: str, sends: int, planner: Planner, policy: Policy, delivery: Delivery) -> Case:
    """Return three sites in two meta-groups, one of which is left or entered by a site, and messages beside it."""
    groups, asked = MARKERS[how]
    like = GroupSetup((), "propagation", planner, policy=policy, delivery=delivery)
    of_groups = {group: msgspec.structs.replace(like, members=tuple(m)) for group, m in groups.items()}
    traffic = ((0.2, "b", ("x",)), (1.0, "c", ("y",)), (3.0, "a", ("x",)))[:sends]
    promises = frozenset({"fifo", "total", "acyclic"})
    return Case(first_setup("abc", of_groups), promises, Network(latency=1.0), 1, traffic, ((0.5, "a", asked),))


def race(name: str, sends: int = 0, policy: Policy = Policy.AVAILABLE, delivery: Delivery = Delivery.AGREED) -> Case:
    """Return three sites, or four, three groups at two sequencers, messages sent directly, and changes that race."""
    groups, asked = RACES[name]
    sites = sorted(
        {site for members in groups.values() for site in members} | set("d" if name == "away from all" else "")
    )
    like = GroupSetup((), "sequencer", policy=policy, delivery=delivery, direct_bytes=int(sends > 0))
    of_groups = {group: msgspec.structs.replace(like, members=tuple(m)) for group, m in groups.items()}
    traffic = ((0.2, "b", ("x",)), (1.0, "c", ("y",)), (3.0, "a", ("x",)))[:sends]
    asking = tuple((0.5, site, change) for site, change in asked)
    promises = frozenset({"fifo", "total", "acyclic"})
    return Case(first_setup(sites, of_groups), promises, Network(latency=1.0), 1, traffic, asking)
