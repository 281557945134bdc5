"""`simulate` and `explore` for groups that change and sites that fail."""

import random
import re
import shlex
import sys
from typing import Any

import msgspec
from rich.text import Text

from ordercast.cli.simulate import promises_table
from ordercast.errors import InputError, LocalError
from ordercast.membership.table import Membership
from ordercast.names import Level
from ordercast.show.terminal import Screen
from ordercast.sim.changing import Case, Fault, World, judge
from ordercast.sim.churn import Options, case_of, churn, destinations, read_change, setup_of, traffic
from ordercast.sim.network import Network

AFTERWARDS = 60.0  # who crashes for good comes back so long after the last message


def _sequencing(given: tuple[tuple[str, ...], int]) -> dict[str, Any]:
    """Return who sequences, and from which size on bodies are sent directly, as options of a first configuration."""
    return {"sequencers": given[0], "direct_bytes": given[1]}


def simulate_changes(
    members: Membership,
    like: Options,
    level: Level,
    load: tuple[int, int, float, int],
    weather: tuple[float, float, float, tuple[str, ...], tuple[str, ...], tuple[str, ...]],
    rate: float,
    changes: tuple[str, ...],
    sequencing: tuple[tuple[str, ...], int] = ((), 0),
    *,
    causal: bool,
    trace: bool,
    as_json: bool,
) -> int:
    """Run, judge, and print."""
    messages, senders, several, seed = load
    loss, duplicate, jitter, crashes, cuts, suspects = weather
    if rate < 0:
        raise InputError("--churn must be at least 0")
    setup = _refused(
        lambda: setup_of(members, like, level, senders=senders // 2, causal=causal, **_sequencing(sequencing))
    )
    chance, span = random.Random(seed), max(messages / 2, 1.0)
    sends = traffic(setup, messages, span, several, chance)
    asked = [_asked(text, chance.choice(sorted(setup.sites))) for text in changes]
    faults = [
        *(_fault("crash", text, span) for text in crashes),
        *(_fault("cut", text, span) for text in cuts),
        *(_fault("suspect", text, span) for text in suspects),
    ]
    network = Network(jitter=jitter, loss=loss, duplicate=duplicate)
    case = case_of(setup, network, seed, sends, (*asked, *churn(setup, rate, span, chance)), faults)
    found, world = judge(case, print if trace else None)
    result = _result(case, world, found, like[0])
    if as_json:
        print(msgspec.json.encode(result).decode())
    else:
        _print(result, found)
    return 1 if found else 0


def _refused(make: Any) -> Any:
    try:
        return make()
    except LocalError as error:
        raise InputError(str(error)) from None


def _asked(text: str, by: str) -> tuple[float, str, Any]:
    what, at, time = text.rpartition("@")
    if not at or not re.fullmatch(r"[\d.]+", time):
        raise InputError(f"--change {text!r}: give a change and its time, as in 'join G S@10'")
    return float(time), by, read_change(what)


def _fault(kind: str, text: str, span: float) -> Fault:
    who = r"([^,@]+),([^,@]+)" if kind == "cut" else r"([^@]+)()"
    match = re.fullmatch(who + r"@([\d.]+)(?::([\d.]+))?", text)
    until = float(match[4]) if match and match[4] else span + AFTERWARDS
    if match is None or until <= float(match[3]) or (kind != "crash" and not match[4]):
        form = {"crash": "SITE@T or SITE@T:T2", "cut": "A,B@T:T2", "suspect": "SITE@T:T2"}[kind]
        raise InputError(f"--{kind} {text}: give {form} with T2 after T")
    return Fault(kind, float(match[3]), match[1], match[2], until - float(match[3]))


def _result(case: Case, world: World, found: list[tuple[str, str]], protocol: str) -> dict[str, Any]:
    names = sorted({*case.promises, "agreement", "completeness", "duplicate", "safe", "held", *(n for n, _ in found)})
    first = {name: next((says for what, says in found if what == name), None) for name in names}
    answers = [answer for host in world.hosts.values() for answer in host.answers]
    return {
        "ok": not found,
        "protocol": protocol,
        "seed": case.seed,
        "messages": len(world.judge.sends),
        "deliveries": sum(len(application.log) for application in world.judge.applications.values()),
        "configurations": max(host.participant.setup.number for host in world.hosts.values()),
        "changes": {"done": sum(not a.reason for a in answers), "refused": sum(bool(a.reason) for a in answers)},
        "rolled_back": world.judge.rolled_back,
        "network_messages": sum(world.messages.values()),
        "properties": {
            name: {"ok": says is None, "violations": sum(what == name for what, _ in found), "example": says}
            for name, says in first.items()
        },
        "replay": "ordercast " + shlex.join(argument for argument in sys.argv[1:] if argument != "--json"),
    }


def _print(result: dict[str, Any], found: list[tuple[str, str]]) -> None:
    console = Screen()
    console.print(promises_table(f"{result['protocol']}, groups that change", result))
    changes = result["changes"]
    console.print(
        f"{result['messages']} messages, {result['deliveries']} deliveries, {result['rolled_back']} rolled back, "
        f"{result['configurations']} configurations, {changes['done']} changes done, {changes['refused']} refused"
    )
    if found:
        console.print(Text(f"again: {result['replay']}"))


def explore_change(
    members: Membership,
    like: Options,
    level: Level,
    change: str,
    faults: tuple[str, ...],
    messages: int,
    states: int,
    sequencing: tuple[tuple[str, ...], int] = ((), 0),
    *,
    causal: bool,
    as_json: bool,
) -> int:
    """Explore, and print."""
    from ordercast.sim.explore_changes import FAULTS, Explored, Explorer

    unknown = next((kind for kind in faults if kind not in FAULTS), None)
    if unknown is not None:
        raise InputError(f"--fault {unknown}: give one of {', '.join(FAULTS)}")
    setup = _refused(lambda: setup_of(members, like, level, causal=causal, **_sequencing(sequencing)))
    sites = sorted(setup.sites)
    sends = []
    for index in range(messages):
        site = sites[index % len(sites)]
        where = destinations(setup, site)
        sends.append((0.2 + index, site, where[index % len(where)]))
    case = case_of(setup, Network(latency=1.0), 1, tuple(sends), ((0.5, sites[0], read_change(change)),))
    with Screen(stderr=True).status("exploring") as status:

        def say(so_far: Explored) -> None:
            tried = f", {sum(so_far.faults.values())} faults" if faults else ""
            status.update(f"{so_far.moments} moments{tried}, {len(so_far.found)} violations")

        explored = Explorer(case, states, later=bool(faults), say=say).run(faults)
    ok = explored.whole and not explored.found
    first = explored.found[0] if explored.found else None
    result = {
        "ok": ok,
        "protocol": like[0],
        "states": explored.moments,
        "ends": explored.ends,
        "complete": explored.whole,
        "faults": explored.faults,
        "violations": {} if first is None else {first[0]: first[1]},
        "trace": [] if first is None else first[2].split("; "),
        "replay": "ordercast " + shlex.join(argument for argument in sys.argv[1:] if argument != "--json"),
    }
    if as_json:
        print(msgspec.json.encode(result).decode())
        return 0 if ok else 1
    console = Screen()
    for step, line in enumerate(first[2].split("; ") if first else (), start=1):
        console.print(Text(f"{step:3} {line[:200]}"))
    if first is not None:
        console.print(Text(f"{first[0]}: {first[1]}", "red"))
    what = "every interleaving" if explored.whole else "not every interleaving: more moments than allowed"
    tried = f", {sum(explored.faults.values())} faults" if faults else ""
    told = f"{like[0]}, {change}: {explored.moments} moments, {explored.ends} ends{tried}, {what}"
    console.print(f"{told}; {'kept' if ok else 'NOT PROVEN'}")
    return 0 if ok else 1
