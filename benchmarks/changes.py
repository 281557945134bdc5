"""What a change costs, protocol by protocol, and what keeping track costs while nothing changes.

200 sites, 40 groups of 5, each message takes one latency. A site joins a group while every group gets messages: how
many classes and groups stop, for how many latencies, and how many messages it takes until everybody has everything.

Run: python -m benchmarks.changes [--sites 200] [--groups 40]
"""

import argparse
import random
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor

from benchmarks.results import record, table

from ordercast.core.events import Control, Event, Message
from ordercast.epochs import messages as m
from ordercast.epochs.change import first_setup
from ordercast.epochs.requests import Join
from ordercast.epochs.setup import GroupSetup, Setup
from ordercast.names import ClassId, Delivery, GroupId, Level, Policy, SiteId
from ordercast.protocols.registry import MACHINES
from ordercast.sim.changing import Case, Host, World, findings
from ordercast.sim.network import Network

ASKED = 20.0
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

    def feed(self, host: Host, event: Event) -> None:
        """Take an event, and look whether anything stopped or went on."""
        super().feed(host, event)
        participant = host.participant
        for group in self.groups_at.get(host.site, ()):
            runs, at = participant.runs(participant.setup.class_of[group]), (host.site, group)
            if runs and at in self.standing:
                self.standing.discard(at)
                self.resumed[group] = self.now
            elif not runs and at not in self.standing:
                self.standing.add(at)
                self.stopped.setdefault(group, self.now)


def family(sites: int, groups: int, protocol: str, level: Level, delivery: Delivery) -> Setup:
    """Return random groups of five, all sites in at least one where there is room."""
    chance = random.Random(4)
    names = [f"s{index:03}" for index in range(sites)]
    members = {f"g{index:02}": tuple(sorted(chance.sample(names, 5))) for index in range(groups)}
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


def change(protocol: str, level: Level, sites: int, groups: int) -> tuple[list[object], bool]:
    """Return the row of one change."""
    setup = family(sites, groups, protocol, level, Delivery.AGREED)
    group = max(setup.classes.values(), key=lambda of_class: len(of_class.groups)).groups[0]  # of the largest class
    joiner = next(site for site in setup.sites if site not in setup.groups[group].members)
    asks = setup.groups[group].members[0]
    promises = frozenset({"fifo", "total"} | ({"acyclic"} if level is Level.ACYCLIC else set()))
    traffic = tuple(sends(setup, 50.0, 2.0))
    world = Stalls(Case(setup, promises, Network(latency=1.0), 1, traffic, ((ASKED, asks, Join(group, joiner)),)))
    world.run(ASKED)
    before = Counter(world.said)
    world.run(140.0)
    told = world.said - before
    closed = next(iter(world.hosts.values())).participant.decisions[2]
    stalls = sorted(world.resumed[group] - at for group, at in world.stopped.items())
    classes = len([c for c in setup.classes if c in closed.closed])
    row: list[object] = [
        protocol, level, f"{classes} of {len(setup.classes)}", f"{len(stalls)} of {len(setup.groups)}",
        f"{stalls[len(stalls) // 2]:.1f}" if stalls else "", f"{stalls[-1]:.1f}" if stalls else "",
        f"{told['of changes']:,}", f"{told['of fetching']:,}",
    ]  # fmt: skip
    return row, findings(world) == []


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
        sizes = {protocol: (60, 12) if MACHINES[protocol].knows_sources else size for protocol in MACHINES}
        changes = [pool.submit(change, name, level, *sizes[name]) for name in MACHINES for level in Level]
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
    head = ["protocol", "level", "classes that close", "groups that stop", "median stall", "longest stall"]
    head += ["messages for the change", "of state and fetching"]
    told = (
        f"{asked.sites} sites, {asked.groups} groups of 5, policy available, delivery agreed; a site joins a group of "
        "the largest class, "
        "closed by report. A stall is from the first member that stops to the last that goes on, in link latencies "
        "(one tick = one latency). Protocols that hear from every source have 60 sites and 12 "
        "groups here. MGT claims that a membership change touches little: the column of groups says how "
        "much is touched where groups must be ordered together."
    )
    command = "python -m benchmarks.changes"
    record("Cost of a change", command, [*table(head, rows), "", told])
    head = ["protocol", "delivery", "messages of the protocol", "of its links", "of stability", "of configurations"]
    told = "Per 1,000 multicasts, level total, nothing changes; a message every two latencies to each group."
    record("Cost of keeping track", command, [*table(head, idle), "", told])
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
