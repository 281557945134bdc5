"""`ordercast explore`: every interleaving of a small case."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter
from rich.text import Text

from ordercast.cli.simulate import Json, Protocol, latencies_of, sites_of, unions_of
from ordercast.errors import InputError
from ordercast.membership.files import read_membership
from ordercast.names import ClassRule, Delivery, Level, Planner, Policy, Shape
from ordercast.show.terminal import Screen


def explore(
    membership: Path,
    /,
    *,
    protocol: Protocol = "propagation",
    planner: Planner = Planner.ELIMINATION,
    tree: Shape = Shape.BALANCED,
    latencies: Path | None = None,
    by_source: Annotated[bool, Parameter(negative="")] = False,
    upper: int = 1,
    sequencers: str = "",
    direct_bytes: int = 0,
    level: Level = Level.ACYCLIC,
    classes: ClassRule | None = None,
    causal: Annotated[bool, Parameter(negative="")] = False,
    groups_alone: Annotated[bool, Parameter(negative="")] = False,
    union: tuple[str, ...] = (),
    messages: int = 3,
    losses: int = 0,
    duplicates: int = 0,
    crashes: int = 0,
    reorder: Annotated[bool, Parameter(negative="")] = False,
    change: str = "",
    fault: tuple[str, ...] = (),
    policy: Policy = Policy.AVAILABLE,
    delivery: Delivery = Delivery.AGREED,
    states: int = 10_000_000,
    seed: int = 0,
    picture: Path | None = None,
    as_json: Json = False,
) -> int:
    """Try every interleaving of a small case and judge every end; shows the shortest way to a violation.

    Example: ordercast explore groups.toml --protocol arrow --messages 3 --losses 1

    Parameters
    ----------
    membership
        Who is in which group: .toml, .csv or .parquet; keep it small.
    protocol
        propagation, sequencer, arrow, combining, hybrid, two-phase, timestamp, arrow-counting or combining-counting.
    planner
        For propagation: greedy, elimination, metagroup, central or best.
    tree
        For arrow, combining and their counting versions: balanced, star, path or latency; hybrid too.
    latencies
        How long a message takes between two sites: CSV with columns site, other, latency; others take 1.
    by_source
        For arrow, combining and hybrid: who finds the predecessor tells the source, which multicasts (HTW00 §3).
    upper
        For hybrid: how many levels of the tree below its root run the arrow; those below combine.
    sequencers
        For sequencer: the sites that sequence, with commas, also such as are in no group; by default members.
    direct_bytes
        Bodies of so many bytes or more go another way than the order: with sequencer from their senders to the
        members, with propagation past extra nodes (MGT §4.2, repaired). 0: none.
    level
        What the classes are chosen for: total or acyclic.
    classes
        Which groups are ordered together, instead of the finest that keeps the level.
    causal
        Causal order too (not with two-phase); the classes are then s1, or one for all groups.
    groups_alone
        With --protocol sequencer --causal: a total order in each group alone, causal order across groups (KIN §5).
    union
        A+B: declare that messages go to groups A and B at once; may be given several times.
    messages
        How many messages are sent, from two sources, to the groups in turn; the second goes to several groups at once
        where that is allowed.
    losses
        How many messages may be lost, at any point.
    duplicates
        How many messages may be doubled, at any point.
    crashes
        How many sites may crash and restart, at any point.
    reorder
        Links may deliver in any order.
    change
        "join G S" and the like (see simulate): explore the change beside the messages.
    fault
        With --change: crash, between (two effects), lose (its disk), loss, double, overtake, suspect, cut or pause; it
        may happen once, in any moment, at any site or link; may be given several times.
    policy
        With --change: available or atomic.
    delivery
        With --change: agreed or safe.
    states
        Give up after so many states.
    seed
        Chooses the sources.
    picture
        Draw the way to a violation, if there is one, as a space-time diagram: .svg, .png or .pdf.
    as_json
        Print the result as JSON.

    """
    from msgspec.structs import replace

    from ordercast.sim.explorer import Case, Explorer
    from ordercast.sim.network import Network
    from ordercast.sim.scenario import Scenario, deploy
    from ordercast.sim.workload import unions

    if messages < 1 or min(losses, duplicates, crashes) < 0 or states < 1:
        raise InputError("--messages and --states must be at least 1, faults at least 0")
    if groups_alone and classes is not None:
        raise InputError("--groups-alone makes each group a class of its own: without --classes")
    members = read_membership(membership).with_unions(unions_of(union))
    if change:
        fixed = tree is not Shape.BALANCED or upper != 1 or by_source or latencies is not None or classes is not None
        fixed |= groups_alone
        if fixed or picture is not None:
            raise InputError(
                "--classes, --groups-alone, --tree, --upper, --by-source, --latencies and --picture are for groups that"
                " do not change"
            )
        if losses or duplicates or crashes or reorder:
            raise InputError("with --change give faults as --fault")
        from ordercast.cli.changes import explore_change

        like = (protocol, planner, policy, delivery)
        return explore_change(
            members,
            like,
            level,
            change,
            fault,
            messages,
            states,
            (sites_of(sequencers), direct_bytes),
            causal=causal,
            as_json=as_json,
        )
    if fault:
        raise InputError("--fault goes with --change; without it give --losses, --duplicates, --crashes or --reorder")
    scenario = Scenario(
        members, protocol, planner, tree=tree, upper=upper, by_source=by_source,
        network=Network(latencies=latencies_of(latencies, tree)), sequencers=sites_of(sequencers),
        direct_bytes=direct_bytes, level=level,
        class_rule=classes, causal=causal, groups_alone=groups_alone, senders=2, seed=seed,
    )  # fmt: skip
    deployment = deploy(scenario)
    for site in [site for pair in scenario.network.latencies for site in pair]:
        if site not in deployment.sites:
            raise InputError(f"{site!r} is not a site of this case (sites: {', '.join(deployment.sites)[:200]})")
    sources, groups = deployment.groups.sources, [(group,) for group in sorted(deployment.groups.members)]
    several = list(deployment.groups.unions) or unions(deployment.groups)[:1]
    destinations = [*groups[:1], *several, *groups[1:]]
    orders = tuple((sources[i % len(sources)], destinations[i % len(destinations)]) for i in range(messages))
    used = tuple(sorted({source for source, _ in orders}))
    deployment = replace(deployment, groups=replace(deployment.groups, sources=used))
    explored = Explorer(
        Case(deployment, orders, losses, duplicates, crashes=crashes, reorder=reorder, states_at_most=states)
    ).run()
    ok = not explored.findings and explored.complete
    if picture is not None and explored.film is not None:
        from ordercast.show.spacetime import draw_spacetime

        draw_spacetime(explored.film, picture, f"{protocol}: {', '.join(explored.findings)} broken")
    again = "ordercast " + shlex.join(argument for argument in sys.argv[1:] if argument != "--json")
    result = {
        "ok": ok,
        "protocol": protocol,
        "states": explored.states,
        "ends": explored.ends,
        "complete": explored.complete,
        "violations": explored.findings,
        "trace": explored.trace,
        "replay": again,
    }
    if as_json:
        print(msgspec.json.encode(result).decode())
        return 0 if ok else 1
    console = Screen()
    for step, line in enumerate(explored.trace, start=1):
        console.print(Text(f"{step:3} {line}"))
    for name, example in explored.findings.items():
        console.print(Text(f"{name}: {example}", "red"))
    what = "every interleaving" if explored.complete else "not every interleaving: more states than allowed"
    console.print(
        f"{protocol}: {explored.states} states, {explored.ends} ends, {what}; {'kept' if ok else 'NOT PROVEN'}"
    )
    return 0 if ok else 1
