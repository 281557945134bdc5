"""Trials of what changes and failures cost: one point in, figures out. Times are in latencies of a link.

A trial is a function of its key. The groups, the traffic and who fails are drawn from the number of sites, the trial's
number and the seed alone: protocols, levels, policies and deliveries are compared on the same families.
"""

import random
from typing import NamedTuple

from ordercast.epochs.change import first_setup
from ordercast.epochs.requests import Change, Join, Leave
from ordercast.epochs.setup import GroupSetup, Setup
from ordercast.names import Delivery, GroupId, Level, Policy, SiteId
from ordercast.sim.changing import Case, Fault, findings
from ordercast.sim.churn import Changes, Sends, churn
from ordercast.sim.network import Network
from ordercast.sim.watched import Watched

MEMBERS = 5
BEGIN = 12.0
"""When something happens to a world that has run quietly until then."""
LATE = 300.0
"""After the last message: what has not come by then does not come."""
CUT = "cut off"
CRASH = "crash"


class Point(NamedTuple):
    """What is varied; a trial's key is a point, a number and a seed."""

    experiment: str
    protocol: str
    sites: int
    level: str = Level.TOTAL
    policy: str = Policy.AVAILABLE
    delivery: str = Delivery.AGREED
    churn: float = 0.0
    """Joins and leaves per 100 latencies."""
    suspect_after: float = 6.0
    rate: float = 0.5
    """Messages per latency to each group."""
    fault: str = ""


class BrokenTrialError(AssertionError):
    """A trial has broken a promise: its figures mean nothing."""


def run_trial(point: Point, number: int, seed: int) -> dict[str, float | None]:
    """Return the figures of one trial."""
    return TRIALS[point.experiment](point, random.Random(f"{seed} {point.sites} {number}"), number)


def family(point: Point, chance: random.Random) -> Setup:
    """Return as many groups of five as a fifth of the sites: each site is in one group on average."""
    names = [f"s{index:03}" for index in range(point.sites)]
    drawn = [tuple(sorted(chance.sample(names, MEMBERS))) for _ in range(max(2, point.sites // MEMBERS))]
    policy, delivery = Policy(point.policy), Delivery(point.delivery)
    groups = {
        f"g{index:02}": GroupSetup(members, point.protocol, policy=policy, delivery=delivery)
        for index, members in enumerate(drawn)
    }
    return first_setup(names, groups, Level(point.level))


def traffic(setup: Setup, rate: float, span: float, chance: random.Random) -> Sends:
    """Return messages at a steady rate to every group, each from some member."""
    found = []
    for group, of_group in setup.groups.items():
        time = chance.uniform(0, 1 / rate)
        while time < span:
            found.append((time, chance.choice(of_group.members), (group,)))
            time += 1 / rate
    return tuple(sorted(found))


def case_of(
    point: Point, setup: Setup, seed: int, sends: Sends, faults: tuple[Fault, ...] = (), changes: Changes = ()
) -> Case:
    """Return the run: one latency a message and one a tick."""
    promises = {"fifo", "total"} | ({"acyclic"} if point.level == Level.ACYCLIC else set())
    return Case(
        setup,
        frozenset(promises),
        Network(latency=1.0),
        seed,
        sends,
        changes,
        faults,
        suspect_after=point.suspect_after,
    )


def judged(world: Watched, point: Point, number: int) -> None:
    """Refuse a run that broke a promise."""
    if wrong := findings(world):
        raise BrokenTrialError(f"{point}, trial {number}: {wrong[0]}")


def survivors_judged(world: Watched, point: Point, number: int) -> None:
    """Refuse a run in which those who are left broke a promise of order; what still waits is a figure of the trial."""
    there = frozenset(site for site, host in world.hosts.items() if host.up)
    last = max((world.hosts[site].participant.setup for site in there), key=lambda setup: setup.number)
    found = world.judge.findings({group: last.members(group) for group in last.groups}, there)
    if wrong := [finding for finding in found if finding[0] in world.case.promises]:
        raise BrokenTrialError(f"{point}, trial {number}: {wrong[0]}")


def rest(world: Watched, until: float) -> None:
    """Run until nobody has anything to do, but not for ever."""
    while world.now < until and not all(host.participant.idle for host in world.hosts.values() if host.up):
        world.run(world.now + 5.0)


def took(world: Watched, group: GroupId, since: float, before: float, but: SiteId = "") -> list[float | None]:
    """Return how long messages to a group took to its last member; None for those that did not arrive."""
    found: list[float | None] = []
    for name, sent in world.sent_at.items():
        if world.judge.sends[name].groups == (group,) and since <= sent < before and name.split(":")[0] != but:
            there = world.arrived.get(name, {})
            waited = set(world.case.setup.members(group)) - {but} - there.keys()
            found.append(None if waited else max((at - sent for site, at in there.items() if site != but), default=0.0))
    return found


def change_trial(point: Point, chance: random.Random, number: int) -> dict[str, float | None]:
    """A site joins a group, or leaves it, while every group gets messages."""
    setup = family(point, chance)
    group = chance.choice(sorted(setup.groups))
    outside = [site for site in setup.sites if site not in setup.members(group)]
    asks = chance.choice(setup.members(group))
    change: Change = Join(group, chance.choice(outside)) if number % 2 == 0 else Leave(group, asks)
    sends = traffic(setup, point.rate, BEGIN + 25.0, chance)
    world = Watched(case_of(point, setup, number, sends, changes=((BEGIN + chance.random(), asks, change),)))
    world.run(BEGIN)
    before = world.for_changes()
    world.run(BEGIN + 30.0)
    rest(world, BEGIN + 200.0)
    judged(world, point, number)
    stalls = [world.resumed[group] - at for group, at in world.stopped.items()]
    decision = next(d for h in world.hosts.values() for d in h.participant.decisions.values() if d.closed)
    touched = [group for class_id in decision.closed for group in decision.closed[class_id].groups]
    late = 0.0
    for group in touched:
        usual = max(filter(None, took(world, group, 0.0, BEGIN - 6.0)), default=0.0)
        late = max(
            late, *(way - usual for way in took(world, group, BEGIN - 6.0, BEGIN + 25.0) if way is not None), 0.0
        )
    return {
        "stall": max(stalls, default=0.0), "late": late, "messages": float(world.for_changes() - before),
        "touched": float(len(touched)), "share": len(touched) / len(setup.groups),
    }  # fmt: skip


def recovery_trial(point: Point, chance: random.Random, number: int) -> dict[str, float | None]:
    """A member of a group is killed and never comes back."""
    setup = family(point, chance)
    group = chance.choice(sorted(setup.groups))
    victim = chance.choice(setup.members(group))
    end = BEGIN + point.suspect_after + 20.0
    sends = traffic(setup, point.rate, end, chance)
    kill = Fault("crash", BEGIN + chance.random(), victim, lasts=1e9)
    world = Watched(case_of(point, setup, number, sends, (kill,)))
    world.run(BEGIN)
    before = world.for_changes()
    world.run(end + 25.0)
    died = world.died[victim]
    own = [group for group, of_group in setup.groups.items() if victim in of_group.members]
    ways = [way for group in own for way in took(world, group, died - 4.0, end, victim)]
    while point.policy == Policy.AVAILABLE and None in ways and world.now < end + LATE:
        world.run(world.now + 25.0)
        ways = [way for group in own for way in took(world, group, died - 4.0, end, victim)]
    if point.policy == Policy.AVAILABLE:
        survivors_judged(world, point, number)
    out = [view for view in world.views if view.group in own and victim not in view.members and view.time > died]
    return {
        "recovery": out[-1].time - died if out else None,
        "outage": max((way for way in ways if way is not None), default=None) if None not in ways else None,
        "waiting": sum(way is None for way in ways) / len(ways),
        "messages": float(out[-1].messages - before) if out else None, "touched": float(len(world.stopped)),
    }  # fmt: skip


def rollback_trial(point: Point, chance: random.Random, number: int) -> dict[str, float | None]:
    """A member of a group fails, by a crash or because nobody reaches it, and is back later."""
    setup = family(point, chance)
    group = chance.choice(sorted(setup.groups))
    victim = chance.choice(setup.members(group))
    lasts = point.suspect_after + 14.0
    sends = traffic(setup, point.rate, BEGIN + lasts + 10.0, chance)
    at = BEGIN + chance.random()
    others = [site for site in setup.sites if site != victim]
    faults: tuple[Fault, ...] = (Fault("crash", at, victim, lasts=lasts),)
    if point.fault == CUT:
        faults = tuple(Fault("cut", at, victim, other, lasts=lasts) for other in others)
    world = Watched(case_of(point, setup, number, sends, faults))
    world.run(BEGIN + lasts + 15.0)
    rest(world, BEGIN + lasts + 400.0)
    judged(world, point, number)
    at_victim = sum(many for _, site, many in world.rolled if site == victim)
    elsewhere = sum(many for _, site, many in world.rolled if site != victim)
    return {"rolled": float(at_victim), "happened": float(at_victim > 0), "elsewhere": float(elsewhere)}


def churn_trial(point: Point, chance: random.Random, number: int) -> dict[str, float | None]:
    """Sites join and leave groups all the time."""
    setup = family(point, chance)
    span = 80.0
    sends = traffic(setup, point.rate, span, chance)
    changes = churn(setup, point.churn / 100, span, chance)
    world = Watched(case_of(point, setup, number, sends, changes=changes))
    world.run(span)
    stood = world.standing()
    rest(world, span + 400.0)
    judged(world, point, number)
    done = sum(not answer.reason for host in world.hosts.values() for answer in host.answers)
    ways = sorted(at - world.sent_at[name] for name, there in world.arrived.items() for at in there.values())
    return {
        "delay": sum(ways) / len(ways), "slow": ways[len(ways) * 99 // 100], "done": 100 * done / span,
        "messages": 100 * world.for_changes() / span, "standing": stood / (span * MEMBERS * len(setup.groups)),
    }  # fmt: skip


TRIALS = {"change": change_trial, "churn": churn_trial, "recovery": recovery_trial, "rollback": rollback_trial}
