"""Runs in which groups change and sites fail, from a membership table and a few words.

A change is written as `join GROUP SITE`, `leave GROUP SITE`, `create GROUP SITE,SITE`, `delete GROUP`, `add SITE`,
`remove SITE`, `set GROUP OPTION` (a protocol, a planner, a policy, a delivery or `direct=BYTES`), `level LEVEL` or
`move GROUP SITE,SITE` (who may sequence it).
"""

import random
from collections.abc import Iterable

from ordercast.core.configuration import Destination
from ordercast.epochs.change import first_setup
from ordercast.epochs.requests import AddSite, Change, Create, Delete, Join, Leave, Move, RemoveSite, Set, SetLevel
from ordercast.epochs.setup import GroupSetup, Setup
from ordercast.errors import InputError, LocalError
from ordercast.membership.table import Membership
from ordercast.names import Delivery, Level, Planner, Policy, SiteId
from ordercast.protocols.registry import MACHINES
from ordercast.sim.changing import Case, Fault
from ordercast.sim.network import Network

Sends = tuple[tuple[float, SiteId, Destination], ...]
Changes = tuple[tuple[float, SiteId, Change], ...]
Options = tuple[str, Planner, Policy, Delivery]
HOW = "join G S, leave G S, create G S,S, delete G, add S, remove S, set G OPTION, level L or move G S,S"


def read_change(text: str) -> Change:
    """Read a change; raises InputError."""
    match text.split():
        case ["join", group, site]:
            return Join(group, site)
        case ["leave", group, site]:
            return Leave(group, site)
        case ["create", group, members]:
            return Create(group, tuple(sorted(set(members.split(",")))))
        case ["delete", group]:
            return Delete(group)
        case ["add", site]:
            return AddSite(site)
        case ["remove", site]:
            return RemoveSite(site)
        case ["set", group, option]:
            return _option(group, option)
        case ["move", group]:
            return Move(group, ())
        case ["move", group, sites]:
            return Move(group, tuple(sorted(set(sites.split(",")))))
        case ["level", level] if level in list(Level):
            return SetLevel(Level(level))
    raise InputError(f"change {text!r}: give {HOW}")


def _option(group: str, option: str) -> Set:
    if option in MACHINES:
        return Set(group, protocol=option)
    if option in list(Planner):
        return Set(group, planner=Planner(option))
    if option in list(Policy):
        return Set(group, policy=Policy(option))
    if option in list(Delivery):
        return Set(group, delivery=Delivery(option))
    if option.startswith("direct=") and option[7:].isdecimal():
        return Set(group, direct_bytes=int(option[7:]))
    if option.startswith("copies=") and option[7:].isdecimal():
        return Set(group, copies=int(option[7:]))
    raise InputError(f"set {group} {option}: there is no protocol, planner, policy or delivery of that name")


def setup_of(
    membership: Membership,
    like: Options,
    level: Level = Level.ACYCLIC,
    *,
    senders: int = 0,
    causal: bool = False,
    sequencers: tuple[SiteId, ...] = (),
    direct_bytes: int = 0,
) -> Setup:
    """Return configuration 1 of a membership table: all groups with one set of options, and sites that only send."""
    groups = {
        name: GroupSetup(tuple(sorted(members)), *like, tuple(sorted(set(sequencers))), direct_bytes=direct_bytes)
        for name, members in membership.as_dict().items()
        if "+" not in name
    }
    outside = [f"sender{index}" for index in range(1, senders + 1)]
    unions = [tuple(sorted(union)) for union in membership.unions]
    return first_setup([*outside, *sequencers], groups, level, unions, causal=causal)


def destinations(setup: Setup, site: SiteId) -> list[Destination]:
    """Return where a site may send to: single groups first, then pairs."""
    several = sorted({(a, b) for a in setup.groups for b in setup.groups if a < b})
    found: list[Destination] = [(group,) for group in setup.groups]
    for pair in several:
        try:
            if setup.destination(site, pair) is not None:
                found.append(pair)
        except LocalError:
            continue
    return found


def traffic(setup: Setup, messages: int, span: float, several: float, chance: random.Random) -> Sends:
    """Return messages of all sites, a share of them to two groups at once where that is allowed."""
    where = {site: destinations(setup, site) for site in setup.sites}
    found = []
    for _ in range(messages):
        site = chance.choice(sorted(setup.sites))
        pairs = [groups for groups in where[site] if len(groups) > 1]
        single = [groups for groups in where[site] if len(groups) == 1]
        groups = chance.choice(pairs) if pairs and chance.random() < several else chance.choice(single)
        found.append((chance.uniform(0, span), site, groups))
    return tuple(sorted(found))


def churn(setup: Setup, rate: float, span: float, chance: random.Random) -> Changes:
    """Return joins and leaves at random times, so many per unit of time; some cannot be done and are refused."""
    found: list[tuple[float, SiteId, Change]] = []
    time = chance.expovariate(rate) if rate else span
    while time < span:
        group, site = chance.choice(sorted(setup.groups)), chance.choice(sorted(setup.sites))
        change = Leave(group, site) if chance.random() < 0.5 else Join(group, site)
        found.append((time, chance.choice(sorted(setup.sites)), change))
        time += chance.expovariate(rate)
    return tuple(found)


def case_of(
    setup: Setup,
    network: Network,
    seed: int,
    sends: Sends,
    changes: Changes = (),
    faults: Iterable[Fault] = (),
) -> Case:
    """Return a run, with what it promises; raises InputError for sites that there are not."""
    faults = tuple(faults)
    added = {change.site for _, _, change in changes if isinstance(change, AddSite)}
    for fault in faults:
        for site in (fault.site, fault.other):
            if site and site not in setup.sites and site not in added:
                raise InputError(f"{site!r} is not a site of this run (sites: {', '.join(setup.sites)[:200]})")
    promises = {"fifo", "total"}
    promises |= {"acyclic"} if setup.level is Level.ACYCLIC else set()
    promises |= {"causal"} if setup.causal else set()
    return Case(setup, frozenset(promises), network, seed, sends, changes, faults)
