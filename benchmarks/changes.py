"""What a change costs, protocol by protocol, and what keeping track costs while nothing changes.

200 sites, 40 groups of 5, each message takes one latency. A site joins a group while every group gets messages: how
many classes and groups stop, for how many latencies, and how many messages it takes until everybody has everything.
Propagation closes along its tree (GS88 §5.1), and by report when one site is suspected meanwhile; sequencer and swaps
order the end of their classes; the others close by report.

Run: python -m benchmarks.changes [--sites 200] [--groups 40]
"""

import argparse
import random
import sys
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from benchmarks.results import record, table

from ordercast.core.effects import Deliver, Effect
from ordercast.core.events import Control, Event, Message, Multicast
from ordercast.epochs import messages as m
from ordercast.epochs.change import first_setup
from ordercast.epochs.requests import Change, Join, Leave, Move
from ordercast.epochs.setup import GroupSetup, Setup
from ordercast.names import ClassId, Delivery, GroupId, Level, Policy, SiteId
from ordercast.protocols.registry import MACHINES
from ordercast.sim.changing import Case, Fault, Host, World, findings
from ordercast.sim.network import Network

ASKED = 20.0
EVERY = 2.0  # latencies between two messages to a group
COUNTING_EVERY = 20.0  # one counter for many groups: more than this and its queue grows without end
STABILITY = (m.Have, m.AskHave, m.Stable, m.AskSafe, m.Whereabouts)
FETCHING = (m.Fetch, m.Body, m.AskState, m.State)


class Counting(World):
    """A world that counts what is said, by kind."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.said = Counter[str]()

    def _send(self, sender: SiteId, to: SiteId, message: Message, class_id: ClassId) -> None:
        kind = (
            "of changes" if class_id == m.CONTROL else "of links" if isinstance(message, Control) else "of the protocol"
        )
        kind = "of fetching" if isinstance(message, FETCHING) else kind
        self.said["of stability" if isinstance(message, STABILITY) else kind] += 1
        super()._send(sender, to, message, class_id)


class Stalls(Counting):
    """A world that notes when the members of each group stop, and when they go on."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.groups_at: dict[SiteId, list[GroupId]] = {}
        for group, of_group in case.setup.groups.items():
            for site in of_group.members:
                self.groups_at.setdefault(site, []).append(group)
        self.stopped: dict[GroupId, float] = {}
        self.resumed: dict[GroupId, float] = {}
        self.standing: set[tuple[SiteId, GroupId]] = set()
        self.sent_at: dict[str, float] = {}
        self.slowest: dict[GroupId, tuple[float, float]] = {}  # the longest way of a message: before, and since

    def tell(self, host: Host, effect: Effect, told: tuple[Any, ...]) -> None:
        """Tell an application something, and note how long a message took."""
        super().tell(host, effect, told)
        if isinstance(effect, Deliver):
            group, sent = effect.envelope.groups[0], self.sent_at[effect.envelope.msg_id]
            before, since = self.slowest.get(group, (0.0, 0.0))
            took = self.now - sent
            quiet = self.now < ASKED
            self.slowest[group] = (max(before, took), since) if quiet else (before, max(since, took))

    def _logged(self, host: Host, event: Event) -> None:
        super()._logged(host, event)
        if isinstance(event, Multicast):
            self.sent_at.setdefault(f"{host.site}:{host.participant.source.sent}", self.now)

    def feed(self, host: Host, event: Event) -> None:
        """Take an event, and look whether anything stopped or went on."""
        super().feed(host, event)
        participant = host.participant
        for group in self.groups_at.get(host.site, ()):
            class_id, at = participant.setup.class_of[group], (host.site, group)
            runs = participant.runs(class_id) or bool(participant.installing.ending)  # the old one runs to its end
            if runs and at in self.standing:
                self.standing.discard(at)
                self.resumed[group] = self.now
            elif not runs and at not in self.standing:
                self.standing.add(at)
                self.stopped.setdefault(group, self.now)


def family(sites: int, groups: int, protocol: str, level: Level, delivery: Delivery) -> Setup:
    """Return random groups of five, all sites in at least one where there is room."""
    chance = random.Random(4)
    names = [f"s{index:03}" for index in range(sites)] + ["x"]
    members = {f"g{index:02}": tuple(sorted(chance.sample(names[:-1], 5))) for index in range(groups)}
    made = {g: GroupSetup(s, protocol, policy=Policy.AVAILABLE, delivery=delivery) for g, s in members.items()}
    return first_setup(names, made, level)


def sends(setup: Setup, span: float, every: float) -> list[tuple[float, SiteId, tuple[GroupId, ...]]]:
    chance = random.Random(5)
    found = []
    for group, of_group in setup.groups.items():
        time = chance.uniform(0, every)
        while time < span:
            found.append((time, chance.choice(of_group.members), (group,)))
            time += every
    return sorted(found)


def depths(of: Setup, classes: Iterable[ClassId]) -> int:
    """Return how deep the trees of some classes are, those of plans or of swap objects: from a root to the farthest."""
    above: dict[SiteId, SiteId] = {}
    for class_id in classes:
        of_class = of.classes[class_id]
        if of_class.plan is not None:
            above |= {edge.child: edge.parent for edge in of_class.plan.edges}
        elif MACHINES[of_class.protocol].tree:
            tree = of_class.deployment.tree(class_id)
            above |= {site: up for site in tree.sites if (up := tree.parent(site)) is not None}
    return max((depth_of(site, above) for site in above), default=0)


def depth_of(site: SiteId, above: dict[SiteId, SiteId]) -> int:
    """Return how many sites are above one."""
    return 1 + depth_of(above[site], above) if site in above else 0


def change(
    protocol: str, level: Level, size: tuple[int, int], what: str = "join", *, suspect: bool = False
) -> tuple[list[object], bool]:
    """Return the row of one change; `suspect`: a site in no group is suspected, so nothing closes along a tree."""
    setup = family(*size, protocol, level, Delivery.AGREED)
    group = max(setup.classes.values(), key=lambda of_class: len(of_class.groups)).groups[0]  # of the largest class
    joiner = next(site for site in setup.sites if site not in setup.groups[group].members)
    asks = setup.groups[group].members[0]
    promises = frozenset({"fifo", "total"} | ({"acyclic"} if level is Level.ACYCLIC else set()))
    traffic = tuple(sends(setup, 50.0, COUNTING_EVERY if "counting" in protocol else EVERY))
    faults = (Fault("suspect", ASKED - 3.0, "x", lasts=6.0),) if suspect else ()
    kinds: dict[str, Change] = {
        "join": Join(group, joiner),
        "leave": Leave(group, asks),
        "transfer": Move(group, (joiner,)),
    }
    world = Stalls(Case(setup, promises, Network(latency=1.0), 1, traffic, ((ASKED, asks, kinds[what]),), faults))
    world.run(ASKED)
    before = Counter(world.said)
    world.run(140.0)
    told = world.said - before
    decision = next(d for h in world.hosts.values() for d in h.participant.decisions.values() if d.closed)
    stalls = sorted(world.resumed[group] - at for group, at in world.stopped.items())
    touched = [g for class_id in decision.closed for g in decision.closed[class_id].groups]
    late = max((since - before for group, (before, since) in world.slowest.items() if group in touched), default=0.0)
    opened = [class_id for class_id in decision.setup.classes if class_id.epoch == decision.number]
    bound = depths(setup, decision.closed) + depths(decision.setup, opened) + 3 if decision.along_trees else 8
    row: list[object] = [
        protocol, level, what, "in order" if decision.along_trees else "by report",
        f"{len(decision.closed)} of {len(setup.classes)}", f"{len(touched)} of {len(setup.groups)}",
        f"{stalls[-1]:.1f}" if stalls else "0", f"{late:.1f}", f"{bound}",
        f"{told['of changes']:,}", f"{told['of fetching']:,}",
    ]  # fmt: skip
    longest = max(stalls[-1] if stalls else 0.0, late if decision.along_trees else 0.0)
    return row, findings(world) == [] and longest <= bound


def steady(protocol: str, delivery: Delivery, sites: int, groups: int) -> tuple[list[object], bool]:
    """Return the row of what is said while nothing changes."""
    setup = family(sites, groups, protocol, Level.TOTAL, delivery)
    traffic = tuple(sends(setup, 50.0, 2.0))
    world = Counting(Case(setup, frozenset({"fifo", "total"}), Network(latency=1.0), 1, traffic))
    world.run(140.0)
    kinds = ("of the protocol", "of links", "of stability", "of changes")
    of = 1000 / len(world.judge.sends)
    return [protocol, delivery, *(f"{of * world.said[kind]:,.0f}" for kind in kinds)], not findings(world)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sites", type=int, default=200)
    parser.add_argument("--groups", type=int, default=40)
    asked = parser.parse_args()
    size = (asked.sites, asked.groups)
    with ProcessPoolExecutor(2) as pool:
        sizes = {protocol: (60, 12) if MACHINES[protocol].waits_for_sources else size for protocol in MACHINES}
        changes = [pool.submit(change, name, level, sizes[name]) for name in MACHINES for level in Level]
        changes += [pool.submit(change, "propagation", level, size, suspect=True) for level in Level]
        changes += [pool.submit(change, "sequencer", level, size, w) for w in ("leave", "transfer") for level in Level]
        quiet = [pool.submit(steady, name, delivery, *sizes[name]) for name in MACHINES for delivery in Delivery]
        rows, kept = [], True
        for job in changes:
            row, ok = job.result()
            rows.append(row)
            kept &= ok
            print(row, flush=True)
        idle = []
        for job in quiet:
            row, ok = job.result()
            idle.append(row)
            kept &= ok
            print(row, flush=True)
    head = [
        "protocol",
        "level",
        "change",
        "closed",
        "classes that close",
        "groups that stop",
        "longest stall",
        "latest message",
    ]
    head += ["bound", "messages for the change", "of state and fetching"]
    told = (
        f"{asked.sites} sites, {asked.groups} groups of 5, policy available, delivery agreed; a site joins a group of "
        "the largest class, or leaves it, or its sequencer moves. A stall is from the first member that stops to the "
        "last that goes on, in link latencies (one tick = one latency); where the end is ordered no member stops. "
        "Latest message: how much longer than before a "
        "message of a group that stops takes at most, sent again included. Bound: depth of the old trees + depth of "
        "the new ones + 3 in order, 8 by report. Protocols that hear from every source have 60 sites and 12 "
        "groups here; those that count have a tenth of the messages. MGT claims that a membership change touches "
        "little: the column of groups says how much is touched where groups must be ordered together."
    )
    command = "python -m benchmarks.changes"
    record("Cost of a change", command, [*table(head, rows), "", told])
    head = ["protocol", "delivery", "messages of the protocol", "of its links", "of stability", "of configurations"]
    told = "Per 1,000 multicasts, level total, nothing changes; a message every two latencies to each group."
    record("Cost of keeping track", command, [*table(head, idle), "", told])
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
