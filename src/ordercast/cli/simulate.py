"""`ordercast simulate` and `ordercast explore`: run a protocol in the deterministic world and judge it."""

import re
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from ordercast.errors import InputError
from ordercast.membership.files import read_latencies, read_membership
from ordercast.names import ClassRule, Delivery, Level, Planner, Policy, Shape
from ordercast.show.terminal import Screen

Protocol = Literal[
    "propagation", "sequencer", "arrow", "combining", "hybrid", "two-phase", "timestamp",
    "arrow-counting", "combining-counting",
]  # fmt: skip
Json = Annotated[bool, Parameter(name="--json", negative="")]


def sites_of(text: str) -> tuple[str, ...]:
    """Return the names in a list with commas."""
    return tuple(sorted({site for site in text.split(",") if site}))


def latencies_of(path: Path | None, tree: Shape) -> dict[tuple[str, str], float]:
    """Return the latencies of a file; a tree by latency needs one."""
    if path is None and tree is Shape.LATENCY:
        raise InputError("--tree latency: give --latencies FILE")
    return {} if path is None else read_latencies(path)


def simulate(
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
    messages: int = 100,
    senders: int = 4,
    workload: Literal["uniform", "zipf", "bursts", "requests"] = "uniform",
    several: float = 0.2,
    union: tuple[str, ...] = (),
    seed: int = 0,
    loss: float = 0.0,
    duplicate: float = 0.0,
    jitter: float = 0.0,
    crash: tuple[str, ...] = (),
    cut: tuple[str, ...] = (),
    churn: float = 0.0,
    change: tuple[str, ...] = (),
    suspect: tuple[str, ...] = (),
    policy: Policy | None = None,
    delivery: Delivery | None = None,
    out: Path | None = None,
    picture: Path | None = None,
    trace: Annotated[bool, Parameter(negative="")] = False,
    as_json: Json = False,
) -> int:
    """Run a protocol in virtual time, with faults, and judge every delivery.

    Example: ordercast simulate groups.toml --protocol two-phase --loss 0.1 --jitter 2 --crash main-1@10:30

    Parameters
    ----------
    membership
        Who is in which group: .toml, .csv or .parquet.
    protocol
        propagation, sequencer, arrow, combining, hybrid, two-phase or timestamp; arrow-counting and combining-counting
        are what the swaps are compared with.
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
    messages
        How many messages are sent.
    senders
        How many sites send; half of them are in no group.
    workload
        uniform, zipf, bursts or requests (which are answered).
    several
        Share of the messages that go to several groups at once, where the classes allow it.
    union
        A+B: declare that messages go to groups A and B at once; may be given several times.
    seed
        The one seed of the run.
    loss
        Share of messages that links lose.
    duplicate
        Share of messages that links double.
    jitter
        Links delay by 1, and up to this much more.
    crash
        SITE@T or SITE@T:T2: stop a site at T, restart it at T2 from its log.
    cut
        A,B@T:T2: nothing passes between A and B from T to T2.
    churn
        So many joins and leaves per unit of time, at random.
    change
        "join G S@T": ask for a change at T: join G S, leave G S, create G S,S, delete G, add S, remove S, set G OPTION,
        level L or move G S,S (who sequences it); may be given several times.
    suspect
        SITE@T:T2: everybody suspects a site that is well.
    policy
        What becomes of groups whose member fails: available (they go on without it) or atomic (they wait).
    delivery
        agreed (what is ordered is delivered; a site that was cut off may have to roll back) or safe. Any of --churn,
        --change, --suspect, --policy and --delivery runs sites that change configurations; crashed sites come back in
        the end.
    out
        Write the run as Parquet to this folder.
    picture
        Draw the beginning of the run as a space-time diagram: .svg, .png or .pdf.
    trace
        Print every event.
    as_json
        Print the result as JSON.

    """
    from ordercast.sim.film import Film
    from ordercast.sim.network import Network
    from ordercast.sim.scenario import Scenario, deploy, run

    for name, share in (("--loss", loss), ("--duplicate", duplicate), ("--several", several)):
        if not 0 <= share < 1:
            raise InputError(f"{name} {share}: must be at least 0 and below 1")
    if messages < 1 or senders < 1 or jitter < 0:
        raise InputError("--messages and --senders must be at least 1, --jitter at least 0")
    if groups_alone and classes is not None:
        raise InputError("--groups-alone makes each group a class of its own: without --classes")
    members = read_membership(membership).with_unions(unions_of(union))
    if churn or change or suspect or policy is not None or delivery is not None:
        fixed = tree is not Shape.BALANCED or upper != 1 or by_source or latencies is not None or classes is not None
        fixed |= groups_alone
        if fixed or out is not None or picture is not None or workload != "uniform":
            raise InputError(
                "--classes, --groups-alone, --tree, --upper, --by-source, --latencies, --out, --picture and --workload"
                " are for groups that do not change"
            )
        from ordercast.cli.changes import simulate_changes

        like = (protocol, planner, policy or Policy.AVAILABLE, delivery or Delivery.AGREED)
        traffic = (messages, senders, several, seed)
        weather = (loss, duplicate, jitter, crash, cut, suspect)
        return simulate_changes(
            members,
            like,
            level,
            traffic,
            weather,
            churn,
            change,
            (sites_of(sequencers), direct_bytes),
            causal=causal,
            trace=trace,
            as_json=as_json,
        )
    cuts = tuple(_cut(text) for text in cut)
    network = Network(jitter=jitter, loss=loss, duplicate=duplicate, cuts=cuts, latencies=latencies_of(latencies, tree))
    crashes = tuple(_crash(text) for text in crash)
    scenario = Scenario(
        members, protocol, planner, tree=tree, upper=upper, by_source=by_source,
        sequencers=sites_of(sequencers), direct_bytes=direct_bytes, level=level,
        class_rule=classes, causal=causal, groups_alone=groups_alone, messages=messages, senders=senders,
        span=max(messages / 2, 1.0), workload=workload, several=several, network=network, crashes=crashes, seed=seed,
    )  # fmt: skip
    known = deploy(scenario).sites
    pairs = [*network.latencies, *((c.a, c.b) for c in cuts)]
    for site in [c.site for c in crashes] + [site for pair in pairs for site in pair]:
        if site not in known:
            raise InputError(f"{site!r} is not a site of this run (sites: {', '.join(known)[:200]})")
    film = Film(known) if picture is not None else None
    verdict = run(scenario, print if trace else None, film=film)
    if film is not None and picture is not None:
        from ordercast.show.spacetime import draw_spacetime

        draw_spacetime(film, picture, f"{protocol}, seed {seed}")
    if out is not None:
        _write(out, verdict)
    replay = "ordercast " + shlex.join(argument for argument in sys.argv[1:] if argument != "--json")
    result = _result(verdict, protocol, seed, replay)
    _print(result, as_json)
    return 0 if verdict.ok else 1


def unions_of(given: tuple[str, ...]) -> list[list[str]]:
    """Read `--union A+B`, given any number of times."""
    return [text.split("+") for text in given]


def _write(out: Path, verdict: Any) -> None:
    """Write a run directory; a class goes by the name of its first group."""
    from ordercast.runs.writer import DeliveredRow, SentRow, write_run

    groups, outcome = verdict.deployment.groups, verdict.outcome
    sends = [SentRow(e.msg_id, e.groups, e.source, e.number, time, after, e.body) for e, time, after in outcome.sent]
    rows = []
    for d in outcome.deliveries:
        e = d.envelope
        name = groups.orders[groups.order_of(e.groups)][0]
        of_message = (e.msg_id, e.groups, e.source, e.number, e.class_id.epoch)
        rows.append(DeliveredRow(d.site, *of_message, d.time, name, d.stamp, e.body))
    write_run(out, groups.members, sends, rows)


def _result(verdict: Any, protocol: str, seed: int, replay: str) -> dict[str, Any]:
    findings = verdict.findings.items()
    return {
        "ok": verdict.ok,
        "protocol": protocol,
        "seed": seed,
        "messages": verdict.outcome.sends,
        "deliveries": verdict.outcome.delivered,
        "network_messages": verdict.outcome.messages,
        "control_messages": verdict.outcome.control,
        "properties": {n: {"ok": e is None, "violations": int(e is not None), "example": e} for n, e in findings},
        "replay": replay,
    }


def promises_table(title: str, result: dict[str, Any]) -> Table:
    """Return what was promised, and whether it was kept."""
    table = Table(title=f"{title}: {'kept' if result['ok'] else 'BROKEN'}")
    table.add_column("property")
    table.add_column("")
    table.add_column("example", overflow="fold")
    for name, found in result["properties"].items():
        table.add_row(name, Text("yes", "green") if found["ok"] else Text("no", "red"), Text(found["example"] or ""))
    return table


def _print(result: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(msgspec.json.encode(result).decode())
        return
    console = Screen()
    console.print(promises_table(result["protocol"], result))
    figures = [f"{result[name]} {name.replace('_', ' ')}" for name in ("messages", "deliveries", "network_messages")]
    console.print(", ".join(figures))
    if not result["ok"]:
        console.print(Text(f"again: {result['replay']}"))


def _crash(text: str) -> Any:
    from ordercast.sim.happenings import Crash

    match = re.fullmatch(r"(.+)@([\d.]+)(?::([\d.]+))?", text)
    if not match or (match[3] and float(match[3]) <= float(match[2])):
        raise InputError(f"--crash {text}: give SITE@T or SITE@T:T2 with T2 after T")
    return Crash(match[1], float(match[2]), float(match[3]) if match[3] else None)


def _cut(text: str) -> Any:
    from ordercast.sim.network import Cut

    match = re.fullmatch(r"(.+),(.+)@([\d.]+):([\d.]+)", text)
    if not match or float(match[4]) <= float(match[3]):
        raise InputError(f"--cut {text}: give A,B@T:T2 with T2 after T")
    return Cut(match[1], match[2], float(match[3]), float(match[4]))
