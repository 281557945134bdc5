"""What one message costs, protocol by protocol: GS88 Table 1 measured, with the sequencer and the swaps beside it.

Every group is sent one message from a site that is in no group, on random memberships.

Run: python -m benchmarks.protocol_costs
"""

import random
import sys
from pathlib import Path

from benchmarks.results import record, table
from matplotlib.figure import Figure
from msgspec.structs import replace

from ordercast.membership.table import Membership
from ordercast.names import Planner
from ordercast.planning.cost import point_to_point
from ordercast.protocols.registry import Deployment
from ordercast.sim.network import Network
from ordercast.sim.scenario import Scenario, deploy
from ordercast.spark.trials import Weighed

L, P = 10.0, 1.0
BODY = bytes(100)
LARGE = 10_000
SIZES = (2, 4, 8, 16, 32, 64)
PICTURE = Path(__file__).parent.parent / "docs" / "pictures" / "source-load.svg"
SOURCES = ("visitor", "s000", "s001", "s002")


def measure(deployment: Deployment, group: str, network: Network, body: bytes = BODY) -> Weighed:
    """Send one message to a group from outside."""
    outside = replace(deployment, groups=replace(deployment.groups, sources=SOURCES))
    world = Weighed(outside, network=network, tick=1e6)
    world.multicast(0.0, "visitor", (group,), body)
    world.run(until=1e5)
    assert len(world.outcome.deliveries) == len(deployment.groups.members[group])
    return world


def membership(sites: int, groups: int, size: int, seed: int) -> Membership:
    chance = random.Random(seed)
    names = [f"s{index:03}" for index in range(sites)]
    return Membership.of({f"g{index:02}": sorted(chance.sample(names, size)) for index in range(groups)})


def formula(protocol: str, deployment: Deployment, group: str) -> tuple[float, float] | None:
    """Return N and D as Table 1 has them, where it does."""
    members = len(deployment.groups.members[group])
    if protocol == "two-phase":
        terms = point_to_point(members, 0, 0)["two-phase"]
    elif deployment.plan is not None:
        route = deployment.plan.groups[group]
        name = "centralized" if deployment.plan.planner == "central" else "propagation"
        sent = members + len(route.extra) if name == "centralized" else members
        terms = point_to_point(sent, route.depth, 0 if name == "centralized" else len(route.extra))[name]
    else:
        return None
    return terms.messages, terms.delay(L, P)


def source_load() -> None:
    """Measure what a source sends and gets for one message, against the size of the group (GS88 §2, §4)."""
    names = ["propagation", "two-phase", "timestamp", "sequencer", "sequencer, direct", "arrow"]
    found: dict[str, list[int]] = {name: [] for name in names}
    for name, loads in found.items():
        protocol, _, how = name.partition(", ")
        for size in SIZES:
            members = membership(2 * SIZES[-1], 1, size, 1)
            scenario = Scenario(members, protocol, Planner.GREEDY, senders=0, direct_bytes=int(how == "direct"))
            world = measure(deploy(scenario), "g00", Network(latency=L, processing=P))
            loads.append(world.outcome.load["visitor"])
    figure = Figure(figsize=(6, 3.6), facecolor="white", layout="constrained")
    axes = figure.subplots()
    for index, (name, loads) in enumerate(found.items()):
        axes.plot(SIZES, loads, marker="osv^Dx"[index], markersize=10 - index, label=name, alpha=0.8)
    axes.set(xlabel="members", ylabel="messages at the source", xscale="log", yscale="log", title="One multicast")
    axes.set_xticks(SIZES, [str(size) for size in SIZES])
    axes.minorticks_off()
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(PICTURE)
    rows: list[list[object]] = [[name, *loads] for name, loads in found.items()]
    told = (
        "Messages that a source from outside sends and gets for one message to a group of so many members; its"
        " acknowledgements are left out. Picture: docs/pictures/source-load.svg."
    )
    head = ["protocol", *(f"{size} members" for size in SIZES)]
    record("Load at the source (GS88 §2)", "python -m benchmarks.protocol_costs", [*table(head, rows), "", told])


def past_extra_nodes() -> None:
    """Measure what large bodies save that go past extra nodes (MGT §4.2, repaired)."""
    rows: list[list[object]] = []
    for planner in (Planner.GREEDY, Planner.ELIMINATION, Planner.METAGROUP, Planner.BEST):
        counted = {direct: [0, 0, 0.0] for direct in (0, 1)}
        heaviest = dict.fromkeys((0, 1), 0.0)
        count = 0
        for seed in range(5):
            for direct, sums in counted.items():
                deployment = deploy(
                    Scenario(membership(200, 40, 5, seed), "propagation", planner, senders=0, direct_bytes=direct)
                )
                bodies = dict.fromkeys((*deployment.sites, *SOURCES), 0)
                for group in deployment.groups.members:
                    world = measure(deployment, group, Network(latency=L), bytes(LARGE))
                    sums[0] += world.outcome.messages
                    sums[1] += world.weight
                    sums[2] += max(d.time for d in world.outcome.deliveries) / L
                    for site, own in passed(deployment, group, direct=bool(direct)).items():
                        bodies[site] += own
                    count += direct
                heaviest[direct] = max(heaviest[direct], *bodies.values())
        for direct, (messages, weight, hops) in counted.items():
            name = f"{planner}{', direct' if direct else ''}"
            row = [f"{messages / count:.2f}", f"{weight / count / 1000:.1f}", f"{hops / count:.2f}"]
            rows.append([name, *row, f"{heaviest[direct]:.0f}"])
            print(rows[-1], flush=True)
    head = ["planner", "messages", "kB", "hops to the last member", "bodies at the busiest site"]
    told = (
        f"200 sites, 40 groups of 5, 5 memberships, acyclic classes, one message of {LARGE:,} bytes per group from"
        " outside. Direct: bodies go past extra nodes that pass them on to one site only, places go down the tree, so"
        " the order is the tree's. Bodies are counted sent and received."
    )
    command = "python -m benchmarks.protocol_costs"
    record("Bodies past extra nodes (MGT §4.2, repaired)", command, [*table(head, rows), "", told])


def passed(deployment: Deployment, group: str, *, direct: bool) -> dict[str, int]:
    """Count the bodies of one message that each site gets and sends."""
    routes, groups = deployment.routes(deployment.groups.destination((group,))), (group,)
    found: dict[str, int] = {routes.entry(groups): 1}
    line = [routes.entry(groups)]
    while line:
        site = line.pop()
        for child in routes.children(site, groups):
            end = routes.shortcut(child, groups) if direct else None
            for one in (site, end or child):
                found[one] = found.get(one, 0) + 1
            line.append(end or child)
    return found


def main() -> int:
    source_load()
    past_extra_nodes()
    rows: list[list[object]] = []
    wrong = 0
    kinds = [("propagation", planner) for planner in (Planner.GREEDY, Planner.METAGROUP, Planner.CENTRAL, Planner.BEST)]
    others = ["two-phase", "timestamp", "sequencer", "arrow", "combining", "hybrid"]
    for protocol, planner in [*kinds, *((name, Planner.GREEDY) for name in others)]:
        totals = dict.fromkeys(("n", "d", "hops", "bytes", "n_paper", "d_paper"), 0.0)
        count = load = 0
        paper = True
        for seed in range(10):
            deployment = deploy(Scenario(membership(40, 12, 5, seed), protocol, planner, senders=0))
            loads = dict.fromkeys((*deployment.sites, *SOURCES), 0)
            for group in deployment.groups.members:
                world = measure(deployment, group, Network(latency=L, processing=P))
                outcome = world.outcome
                count += 1
                last = max(d.time for d in outcome.deliveries)
                totals["n"] += outcome.messages
                totals["d"] += last
                totals["bytes"] += world.weight
                alone = measure(deployment, group, Network(latency=1.0))
                totals["hops"] += max(d.time for d in alone.outcome.deliveries)
                for site, messages in outcome.load.items():
                    loads[site] += messages if site != "visitor" else 0
                terms = formula(protocol, deployment, group)
                paper = terms is not None
                if terms is not None:
                    totals["n_paper"] += terms[0]
                    totals["d_paper"] += terms[1]
                    equal = protocol == "two-phase" or planner is Planner.CENTRAL
                    wrong += outcome.messages != terms[0] or (last != terms[1] if equal else last > terms[1] + 1e-9)
            load = max(load, *loads.values())
        mean = {name: total / count for name, total in totals.items()}
        name = f"{protocol}, {planner}" if protocol == "propagation" else protocol
        stated = [f"{mean['n_paper']:.2f}", f"{mean['d_paper']:.1f}"] if paper else ["", ""]
        measured = [f"{mean['n']:.2f}", stated[0], f"{mean['d']:.1f}", stated[1], f"{mean['hops']:.2f}"]
        rows.append([name, *measured, f"{mean['bytes']:,.0f}", load])
        print(rows[-1], flush=True)
    head = [
        "protocol",
        "N",
        "N of Table 1",
        "D",
        "D of Table 1 (bound)",
        "hops to the last member",
        "bytes",
        "busiest site",
    ]
    told = (
        f"40 sites, 12 groups of 5, 10 memberships, one 100-byte message per group from outside; L = {L:g}, P = {P:g}, "
        "acyclic classes, four sources (which matters to timestamps only). Acknowledgements at ticks are not counted, "
        "as in the paper. N equals Table 1 for every message; D equals it for central and two-phase and never exceeds "
        "it for propagation (a central site that is no member counts as one destination more)."
    )
    record("What a message costs (GS88 §4)", "python -m benchmarks.protocol_costs", [*table(head, rows), "", told])
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
