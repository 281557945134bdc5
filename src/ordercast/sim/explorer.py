"""Breadth-first search over every interleaving of a small case: which arrivals, losses or crashes break it?

A state holds what each site has become, what is under way on each link, and which faults may still happen. Sites and
links are numbered as they are met. A site's number stands for its machines, its log and what it has sent; a link's
number stands for the messages on it. A step depends on the site's state and the event alone, so each step is computed
once and then looked up, and a state is a row of small numbers.

The rules of the world:

 - Links are FIFO, unless `reorder`.
 - A link may break: what is under way on it is lost, and both ends are told that it is down and up again.
 - A site crashes between two events, or between any two effects of a step, and comes back from its log.
 - Time passes only when nothing is under way: then every site ticks.

Sites are not folded by symmetry: ties go by name, so hardly two are alike.
"""

from array import array
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct

from ordercast.core.effects import Deliver
from ordercast.names import GroupId, SiteId
from ordercast.protocols.registry import Deployment
from ordercast.sim.film import Film
from ordercast.sim.retelling import Move, Retelling, State
from ordercast.sim.steps import (
    CARRY,
    CRASH,
    DOUBLE,
    DOWN,
    LOSE,
    MULTICAST,
    RECONNECT,
    TICK,
    UP,
    Code,
    Delivery,
    Local,
    Steps,
)
from ordercast.verify.deliveries import ALWAYS, JUDGES
from ordercast.verify.findings import Sent, not_a_prefix
from ordercast.verify.record import Record


@dataclass(frozen=True)
class Case:
    """What is sent (source, groups), in order per source, and which faults may happen how often."""

    deployment: Deployment
    multicasts: tuple[tuple[SiteId, tuple[GroupId, ...]], ...]
    losses: int = 0
    duplicates: int = 0
    reconnects: int = 0
    crashes: int = 0
    reorder: bool = False
    states_at_most: int = 20_000_000
    ticks_at_most: int = 12
    prefix: bool = False
    """Judge the prefix property in every state."""


@dataclass
class Explored:
    """The outcome: how much was tried, and the shortest way to a violation."""

    states: int = 0
    ends: int = 0
    complete: bool = True
    findings: dict[str, str] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)
    film: Film | None = None


class Explorer:
    """Breadth-first search over the states of a case."""

    def __init__(self, case: Case) -> None:
        self.case, self.deployment = case, case.deployment
        self.sites = self.deployment.sites
        self.count = len(self.sites)
        self.number = {site: index for index, site in enumerate(self.sites)}
        self.orders = [[groups for source, groups in case.multicasts if source == site] for site in self.sites]
        self.faults = self.count + self.count**2  # where the faults left stand in a state
        self.known = Steps(self.deployment, self.orders)
        self._called_safe: dict[str, str] = {}
        self._prefixes = set[tuple[int, ...]]()  # what sites have become together, and was judged

    def run(self) -> Explored:
        """Explore until a violation, the end, or the limit."""
        start = self._start()
        pack = Struct(f"{len(start)}I").pack
        seen = {pack(*start)}
        parents, moves = array("I", [0]), [(TICK, 0, 0, 0)]
        queue = deque([(0, start)])
        found = Explored(states=1)
        while queue:
            index, state = queue.popleft()
            end = True
            for move, after in self._moves(state):
                end = False
                key = pack(*after)
                if key not in seen:
                    seen.add(key)
                    queue.append((found.states, after))
                    found.states += 1
                    parents.append(index)
                    moves.append(move)
            early = self._called_safe or self._not_prefix(state)
            if end or early:
                found.ends += 1
                found.findings = early or self._judge(state)
                if found.findings:
                    way = []
                    while index:
                        way.append(moves[index])
                        index = parents[index]
                    found.trace, found.film = Retelling(self.known, start, self._do).tell(way[::-1])
                    break
            if found.states > self.case.states_at_most:
                found.complete = False
                break
        return found

    def _start(self) -> State:
        case = self.case
        fresh = [self.known.freeze(self.deployment.machines(site)) for site in self.sites]
        sites = [self.known.local_number(Local(index, machine, (), (), ())) for index, machine in enumerate(fresh)]
        faults = (case.losses, case.duplicates, case.reconnects, case.crashes)
        return (*sites, *[0] * self.count**2, *faults, 0)

    def _moves(self, state: State) -> Iterator[tuple[Move, State]]:
        """Yield what may happen next, and where it leads."""
        moved = False
        losses, duplicates, reconnects, crashes, ticks = state[self.faults :]
        for site in range(self.count):
            if len(self.known.local[state[site]].after) < len(self.orders[site]):
                moved = True
                yield from self._with_crashes(state, (MULTICAST, site, 0, 0), site)
        for link in range(self.count, self.faults):
            content = self.known.content[state[link]]
            if not content:
                continue
            moved = True
            for choice in range(len(content) if self.case.reorder else 1):
                if content[choice] in content[:choice]:
                    continue
                yield from self._with_crashes(state, (CARRY, link, choice, 0), (link - self.count) % self.count)
                if losses:
                    yield (LOSE, link, choice, 0), self._do(state, (LOSE, link, choice, 0))
                if duplicates:
                    yield (DOUBLE, link, choice, 0), self._do(state, (DOUBLE, link, choice, 0))
        if reconnects:
            for one in range(self.count):
                for other in range(one + 1, self.count):
                    move = (RECONNECT, self.count * (one + 1) + other, 0, 0)
                    yield move, self._do(state, move)
        if crashes:
            for site in range(self.count):
                yield (CRASH, site, 0, 0), self._do(state, (CRASH, site, 0, 0))
        if not moved and ticks < self.case.ticks_at_most and not self._all_idle(state):
            yield (TICK, 0, 0, 0), self._do(state, (TICK, 0, 0, 0))
            for site in range(self.count) if crashes else ():
                for effects in range(1, self.known.steps[state[site]][(TICK, ticks + 1), crashes][2]):
                    yield (TICK, site, 0, effects), self._do(state, (TICK, site, 0, effects))

    def _with_crashes(self, state: State, move: Move, site: int) -> Iterator[tuple[Move, State]]:
        """Yield a move, and the same with a crash between any two effects of the site's step."""
        yield move, self._do(state, move)
        if state[-2]:
            event = self._code(state, move)
            for effects in range(1, self.known.steps[state[site]][event, state[-2]][2]):
                broken = (*move[:3], effects)
                yield broken, self._do(state, broken)

    def _code(self, state: State, move: Move) -> Code:
        """Return what a site is fed by a multicast or an arrival, in numbers."""
        kind, at, choice, _ = move
        if kind == MULTICAST:
            return (MULTICAST, len(self.known.local[state[at]].after))
        return (CARRY, (at - self.count) // self.count, self.known.content[state[at]][choice])

    def _do(self, state: State, move: Move) -> State:
        """Let one thing happen."""
        kind, at, choice, effects = move
        after = list(state)
        if kind == MULTICAST:
            self._feed(after, at, self._code(state, move), effects)
        elif kind == CRASH:
            self._crash(after, at)
        elif kind == RECONNECT:
            self._reconnect(after, at)
        elif kind == TICK:
            after[-1] += 1
            for site in range(self.count):
                if not effects or site != at:
                    self._feed(after, site, (TICK, after[-1]))
            if effects:
                self._feed(after, at, (TICK, after[-1]), effects)
        else:
            content = self.known.content[state[at]]
            if kind != DOUBLE:
                after[at] = self.known.content_number(content[:choice] + content[choice + 1 :])
            if kind != CARRY:
                after[self.faults + kind - LOSE] -= 1
            if kind != LOSE:
                self._feed(after, (at - self.count) % self.count, self._code(state, move), effects)
        return tuple(after)

    def _reconnect(self, state: list[int], link: int) -> None:
        """Break the link between two sites and mend it: what is under way on it is lost, both ways."""
        state[self.faults + RECONNECT - LOSE] -= 1
        one, other = divmod(link - self.count, self.count)
        state[link] = state[self.count * (other + 1) + one] = 0
        for code in (DOWN, UP):
            for site, peer in ((one, other), (other, one)):
                self._feed(state, site, (code, peer))

    def _feed(self, state: list[int], site: int, event: Code, effects: int = 0) -> None:
        """Step one site and put what it sends on its links; with `effects` it crashes after so many of them."""
        steps = self.known.steps[state[site]]
        key = (event, state[-2], effects) if effects else (event, state[-2])
        step = steps.get(key)
        if step is None:
            step = steps[key] = self.known.step(self.known.local[state[site]], event, state[-2] > 0, effects)
        state[site], sends, _, safe = step
        for number in safe:
            self._check_safe(state, site, number)
        for link, message in sends:
            state[link] = self.known.content_number((*self.known.content[state[link]], message))
        if effects:
            self._crash(state, site)

    def _check_safe(self, state: list[int], site: int, number: int) -> None:
        """A message that is called safe has been delivered at every destination."""
        groups = self.orders[site][number - 1]
        message = f"{self.sites[site]}:{number}"
        for member in self.deployment.groups.union(groups):
            delivered = self.known.local[state[self.number[member]]].log
            if not any(entry[0] == message for entry in delivered):
                self._called_safe["receipts"] = f"{message} is called safe, and {member} lacks it"

    def _crash(self, state: list[int], site: int) -> None:
        """Lose the machine and what is under way to it; step a new one through its log.

        It delivers again what it had delivered, and what it had only logged.
        """
        local = self.known.local[state[site]]
        machine = self.deployment.machines(self.sites[site])
        log: list[Delivery] = []
        for event in local.inputs:
            log += [self.known.delivery(effect) for effect in machine.step(event) if isinstance(effect, Deliver)]
        if tuple(log[: len(local.log)]) != local.log:
            log = [*local.log, ("another delivery after the restart", 0, b"", b"")]
        state[-2] -= 1
        inputs = local.inputs if state[-2] else ()
        state[site] = self.known.local_number(
            local._replace(machine=self.known.freeze(machine), log=tuple(log), inputs=inputs)
        )
        for other in range(self.count):
            state[self.count * (other + 1) + site] = 0
        if not state[-2]:  # nobody needs a durable log any more: states that differ only there are one
            for other in range(self.count):
                state[other] = self.known.local_number(self.known.local[state[other]]._replace(inputs=()))

    def _all_idle(self, state: State) -> bool:
        return all(self.known.idle[self.known.local[number].machine] for number in state[: self.count])

    def _not_prefix(self, state: State) -> dict[str, str]:
        """Judge the prefix property: at every moment, not only at an end (`verify.online`)."""
        together = tuple(state[: self.count])
        if not self.case.prefix or together in self._prefixes:
            return {}
        self._prefixes.add(together)
        locals_ = [self.known.local[number] for number in together]
        known = {(order, stamp): message for local in locals_ for message, order, stamp, _ in local.log}
        for site, local in zip(self.sites, locals_, strict=True):
            has = {message for message, *_ in local.log}
            last: dict[int, tuple[bytes, str]] = {}
            for message, order, stamp, _ in local.log:
                last[order] = max(last.get(order, (b"", "")), (stamp, message))
            for (order, stamp), message in known.items():
                source, _, number = message.rpartition(":")
                groups = self.orders[self.number[source]][int(number) - 1]
                goes_here = site in self.deployment.groups.union(groups)
                if goes_here and message not in has and stamp < last.get(order, (b"", ""))[0]:
                    return {"prefix": not_a_prefix(site, last[order][1], message).says}
        return {}

    def _judge(self, state: State) -> dict[str, str]:
        """Judge an end: nothing is under way, all is sent, nobody has anything to do."""
        locals_ = [self.known.local[number] for number in state[: self.count]]
        sends = {}
        for site, local in zip(self.sites, locals_, strict=True):
            for number, (groups, after) in enumerate(zip(self.orders[local.site], local.after, strict=True), start=1):
                sends[f"{site}:{number}"] = Sent(groups, site, number, after)
        logs = {site: [m for m, *_ in local.log] for site, local in zip(self.sites, locals_, strict=True)}
        stamps = {site: [(c, s) for _, c, s, _ in local.log] for site, local in zip(self.sites, locals_, strict=True)}
        record = Record(self.deployment.groups.members, sends, logs, stamps)
        names = (*ALWAYS, *sorted(self.deployment.promises))
        findings = {name: found.says for name in names if (found := JUDGES[name](record)) is not None}
        for site, local in zip(self.sites, locals_, strict=True):
            for message, _, _, body in local.log:
                if message in sends and body != b"%d" % sends[message].number:
                    findings["creation"] = f"{site} delivers {message} with another body than was sent"
            stamp_of = {message: stamp for other in locals_ for message, _, stamp, _ in other.log}
            for number, stamp in local.places:
                if stamp_of.get(f"{site}:{number}", stamp) != stamp:
                    findings["receipts"] = f"{site} hears another place of {site}:{number} than is delivered"
            if held := self.known.thaw(local).held():
                findings["held"] = f"{site}: {held[0]}"
        return findings
