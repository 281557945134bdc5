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
from typing import Any, NamedTuple

from ordercast.core.effects import Append, Deliver, Placed, Refuse, Safe, Send
from ordercast.core.events import Event, LinkDown, LinkUp, Message, Multicast, Received, Tick
from ordercast.core.machines import Machines
from ordercast.names import ClassId, GroupId, SiteId
from ordercast.protocols.registry import Deployment
from ordercast.sim.film import Film, Mark
from ordercast.sim.world import flight_of
from ordercast.verify.deliveries import ALWAYS, JUDGES
from ordercast.verify.findings import Sent
from ordercast.verify.record import Record

MULTICAST, CARRY, LOSE, DOUBLE, RECONNECT, CRASH, TICK = range(7)
UP, DOWN = 7, 8  # what a site is told of a link


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


@dataclass
class Explored:
    """The outcome: how much was tried, and the shortest way to a violation."""

    states: int = 0
    ends: int = 0
    complete: bool = True
    findings: dict[str, str] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)
    film: Film | None = None


Delivery = tuple[str, int, bytes, bytes]
"""Message, order, stamp, body."""


class Local(NamedTuple):
    """What one site has become."""

    site: int
    machine: int  # its number, see `Explorer._freeze`
    log: tuple[Delivery, ...]
    after: tuple[int, ...]  # for each multicast of this site: deliveries here before it was sent
    inputs: tuple[Event, ...]  # the durable log, kept only while a crash may happen
    places: tuple[tuple[int, bytes], ...] = ()  # what this site heard of its messages


Move = tuple[int, int, int, int]
"""What happens: a kind, a site or a link, which message of the link, and after how many effects the site crashes.

Zero effects: it does not crash.
"""
Sends = tuple[tuple[int, int], ...]
State = tuple[int, ...]
"""A number for each site, one for each link, then losses, duplicates, reconnects and crashes left, and ticks passed."""


class Explorer:
    """Breadth-first search over the states of a case."""

    def __init__(self, case: Case) -> None:
        self.case, self.deployment = case, case.deployment
        self.sites = self.deployment.sites
        self.count = len(self.sites)
        self.number = {site: index for index, site in enumerate(self.sites)}
        self.orders = [[groups for source, groups in case.multicasts if source == site] for site in self.sites]
        self.faults = self.count + self.count**2  # where the faults left stand in a state
        self._machines: dict[bytes, int] = {}  # a snapshot, as bytes -> its number
        self._frozen: list[bytes] = []
        self._idle: list[bool] = []
        self._locals: dict[Local, int] = {}
        self._local: list[Local] = []
        self._messages: dict[tuple[Message, ClassId], int] = {}
        self._message: list[tuple[Message, ClassId]] = []
        self._contents: dict[tuple[int, ...], int] = {(): 0}
        self._content: list[tuple[int, ...]] = [()]
        # By number of the site: what it becomes, sends, how many effects there were, and its messages called safe.
        self._steps: list[dict[Any, tuple[int, Sends, int, tuple[int, ...]]]] = []
        self._called_safe: dict[str, str] = {}

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
            if end or self._called_safe:
                found.ends += 1
                found.findings = self._called_safe or self._judge(state)
                if found.findings:
                    found.trace, found.film = self._trace(parents, moves, index)
                    break
            if found.states > self.case.states_at_most:
                found.complete = False
                break
        return found

    def _start(self) -> State:
        case = self.case
        fresh = [self._freeze(self.deployment.machines(site)) for site in self.sites]
        sites = [self._local_number(Local(index, machine, (), (), ())) for index, machine in enumerate(fresh)]
        faults = (case.losses, case.duplicates, case.reconnects, case.crashes)
        return (*sites, *[0] * self.count**2, *faults, 0)

    def _moves(self, state: State) -> Iterator[tuple[Move, State]]:
        """Yield what may happen next, and where it leads."""
        moved = False
        losses, duplicates, reconnects, crashes, ticks = state[self.faults :]
        for site in range(self.count):
            if len(self._local[state[site]].after) < len(self.orders[site]):
                moved = True
                yield from self._with_crashes(state, (MULTICAST, site, 0, 0), site)
        for link in range(self.count, self.faults):
            content = self._content[state[link]]
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
                for effects in range(1, self._steps[state[site]][(TICK, ticks + 1), crashes][2]):
                    yield (TICK, site, 0, effects), self._do(state, (TICK, site, 0, effects))

    def _with_crashes(self, state: State, move: Move, site: int) -> Iterator[tuple[Move, State]]:
        """Yield a move, and the same with a crash between any two effects of the site's step."""
        yield move, self._do(state, move)
        if state[-2]:
            event = self._code(state, move)
            for effects in range(1, self._steps[state[site]][event, state[-2]][2]):
                broken = (*move[:3], effects)
                yield broken, self._do(state, broken)

    def _code(self, state: State, move: Move) -> tuple[int, ...]:
        """Return what a site is fed by a multicast or an arrival, in numbers."""
        kind, at, choice, _ = move
        if kind == MULTICAST:
            return (MULTICAST, len(self._local[state[at]].after))
        return (CARRY, (at - self.count) // self.count, self._content[state[at]][choice])

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
            content = self._content[state[at]]
            if kind != DOUBLE:
                after[at] = self._content_number(content[:choice] + content[choice + 1 :])
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

    def _feed(self, state: list[int], site: int, event: tuple[int, ...], effects: int = 0) -> None:
        """Step one site and put what it sends on its links; with `effects` it crashes after so many of them."""
        steps = self._steps[state[site]]
        key = (event, state[-2], effects) if effects else (event, state[-2])
        step = steps.get(key)
        if step is None:
            step = steps[key] = self._step(self._local[state[site]], event, state[-2] > 0, effects)
        state[site], sends, _, safe = step
        for number in safe:
            self._check_safe(state, site, number)
        for link, message in sends:
            state[link] = self._content_number((*self._content[state[link]], message))
        if effects:
            self._crash(state, site)

    def _check_safe(self, state: list[int], site: int, number: int) -> None:
        """A message that is called safe has been delivered at every destination."""
        groups = self.orders[site][number - 1]
        message = f"{self.sites[site]}:{number}"
        for member in self.deployment.groups.union(groups):
            delivered = self._local[state[self.number[member]]].log
            if not any(entry[0] == message for entry in delivered):
                self._called_safe["receipts"] = f"{message} is called safe, and {member} lacks it"

    def _step(
        self, local: Local, code: tuple[int, ...], durable: bool, upto: int
    ) -> tuple[int, Sends, int, tuple[int, ...]]:
        """Compute a step that was never met: the site after it, what goes on which link, how many effects it has."""
        event = self._event(local, code)
        machine = self._thaw(local)
        log, inputs, after, sends = list(local.log), list(local.inputs), local.after, []
        places, safe = list(local.places), []
        effects = machine.step(event)
        if isinstance(event, Multicast) and (not upto or Append(event) in effects[:upto]):
            after = (*after, len(log))
        for effect in effects[: upto or None]:
            match effect:
                case Send(to, message, class_id):
                    number = self._message_number((message, class_id))
                    sends.append((self.count * (local.site + 1) + self.number[to], number))
                case Deliver():
                    log.append(self._delivery(effect))
                case Append(input_):
                    if durable:
                        inputs.append(input_)
                case Refuse():
                    raise AssertionError(f"{machine.me} refuses an honest peer: {effect}")
                case Placed(number, stamp):
                    places.append((number, stamp))
                case Safe(number):
                    safe.append(number)
                case _:
                    raise TypeError(f"no such effect: {effect!r}")
        frozen = local.machine if upto else self._freeze(machine)
        kept = tuple(inputs) if durable else ()
        became = Local(local.site, frozen, tuple(log), after, kept, tuple(places))
        return self._local_number(became), tuple(sends), len(effects), tuple(safe)

    def _event(self, local: Local, code: tuple[int, ...]) -> Event:
        if code[0] == MULTICAST:
            groups, body = self.orders[local.site][code[1]], b"%d" % (code[1] + 1)
            return Multicast(groups, body, self.deployment.receipts)
        if code[0] == TICK:
            return Tick(float(code[1]))
        peer = self.sites[code[1]]
        if code[0] in (UP, DOWN):
            return LinkUp(peer) if code[0] == UP else LinkDown(peer)
        message, class_id = self._message[code[2]]
        return Received(peer, message, class_id)

    def _delivery(self, deliver: Deliver) -> Delivery:
        envelope = deliver.envelope
        return envelope.msg_id, self.deployment.groups.order_of(envelope.groups), deliver.stamp, envelope.body

    def _crash(self, state: list[int], site: int) -> None:
        """Lose the machine and what is under way to it; step a new one through its log.

        It delivers again what it had delivered, and what it had only logged.
        """
        local = self._local[state[site]]
        machine = self.deployment.machines(self.sites[site])
        log: list[Delivery] = []
        for event in local.inputs:
            log += [self._delivery(effect) for effect in machine.step(event) if isinstance(effect, Deliver)]
        if tuple(log[: len(local.log)]) != local.log:
            log = [*local.log, ("another delivery after the restart", 0, b"", b"")]
        state[-2] -= 1
        inputs = local.inputs if state[-2] else ()
        state[site] = self._local_number(local._replace(machine=self._freeze(machine), log=tuple(log), inputs=inputs))
        for other in range(self.count):
            state[self.count * (other + 1) + site] = 0
        if not state[-2]:  # nobody needs a durable log any more: states that differ only there are one
            for other in range(self.count):
                state[other] = self._local_number(self._local[state[other]]._replace(inputs=()))

    def _local_number(self, local: Local) -> int:
        number = self._locals.get(local)
        if number is None:
            number = self._locals[local] = len(self._local)
            self._local.append(local)
            self._steps.append({})
        return number

    def _message_number(self, message: tuple[Message, ClassId]) -> int:
        if message not in self._messages:
            self._messages[message] = len(self._message)
            self._message.append(message)
        return self._messages[message]

    def _content_number(self, content: tuple[int, ...]) -> int:
        number = self._contents.get(content)
        if number is None:
            number = self._contents[content] = len(self._content)
            self._content.append(content)
        return number

    def _freeze(self, machines: Machines) -> int:
        """Return the number of this local state: equal machines of one site have one number."""
        form = self.deployment.encode(machines.snapshot())
        number = self._machines.get(form)
        if number is None:
            number = self._machines[form] = len(self._frozen)
            self._frozen.append(form)
            self._idle.append(machines.idle)
        return number

    def _thaw(self, local: Local) -> Machines:
        machines = self.deployment.machines(self.sites[local.site])
        machines.restore(self.deployment.decode(self._frozen[local.machine]))
        return machines

    def _all_idle(self, state: State) -> bool:
        return all(self._idle[self._local[number].machine] for number in state[: self.count])

    def _judge(self, state: State) -> dict[str, str]:
        """Judge an end: nothing is under way, all is sent, nobody has anything to do."""
        locals_ = [self._local[number] for number in state[: self.count]]
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
            if held := self._thaw(local).held():
                findings["held"] = f"{site}: {held[0]}"
        return findings

    def _trace(self, parents: "array[int]", moves: list[Move], index: int) -> tuple[list[str], Film]:
        """Return the way to a state, told step by step and filmed: every step takes one unit of time."""
        way: list[Move] = []
        while index:
            way.append(moves[index])
            index = parents[index]
        state, steps = self._start(), []
        film = Film(self.sites)
        departed: dict[int, list[float]] = {link: [] for link in range(self.count, self.faults)}
        for time, move in enumerate(way[::-1], start=1):
            after = self._do(state, move)
            steps.append("; ".join([self._told(state, move), *self._delivered(state, after)]))
            self._shoot(film, departed, state, move, float(time))
            for link, times in departed.items():
                times.extend([float(time)] * (len(self._content[after[link]]) - len(times)))
            for site, message in self._new(state, after):
                film.happens(Mark(site, float(time), "deliver", message))
            state = after
        return steps, film

    def _shoot(self, film: Film, departed: dict[int, list[float]], state: State, move: Move, time: float) -> None:
        """Film one step; keeps up when what is on each link was put there."""
        kind, at, choice, effects = move
        if kind == MULTICAST:
            number = len(self._local[state[at]].after)
            text = f"{self.sites[at]}:{number + 1} {'+'.join(self.orders[at][number])}"
            film.happens(Mark(self.sites[at], time, "multicast", text))
        elif kind == CRASH:
            film.happens(Mark(self.sites[at], time, "crash"))
            film.happens(Mark(self.sites[at], time, "back"))
            for other in range(self.count):
                departed[self.count * (other + 1) + at].clear()
        elif kind == RECONNECT:
            one, other = divmod(at - self.count, self.count)
            departed[at].clear()
            departed[self.count * (other + 1) + one].clear()
        elif kind != TICK:
            sender, receiver = divmod(at - self.count, self.count)
            message, _ = self._message[self._content[state[at]][choice]]
            if effects:
                film.happens(Mark(self.sites[receiver], time, "crash"))
            departs = departed[at][choice] if kind == DOUBLE else departed[at].pop(choice)
            ends = (self.sites[sender], self.sites[receiver])
            film.flies(flight_of(*ends, message, departs, time, lost=kind == LOSE))

    def _told(self, state: State, move: Move) -> str:
        kind, at, choice, effects = move
        broken = f", and crashes after {effects} effects" if effects else ""
        if kind == MULTICAST:
            groups = self.orders[at][len(self._local[state[at]].after)]
            return f"{self.sites[at]} multicasts {'+'.join(groups)}{broken}"
        if kind == CRASH:
            return f"{self.sites[at]} crashes and restarts"
        if kind == TICK:
            return f"time passes{f'; {self.sites[at]} ticks' if effects else ''}{broken}"
        sender, receiver = divmod(at - self.count, self.count)
        if kind == RECONNECT:
            return f"the link of {self.sites[sender]} and {self.sites[receiver]} breaks and is mended"
        message, _ = self._message[self._content[state[at]][choice]]
        verb = {CARRY: "", LOSE: "lost: ", DOUBLE: "doubled: "}[kind]
        return f"{verb}{self.sites[sender]} -> {self.sites[receiver]} {message}{broken}"

    def _delivered(self, before: State, after: State) -> Iterator[str]:
        for site, message in self._new(before, after):
            yield f"{site} delivers {message}"

    def _new(self, before: State, after: State) -> Iterator[tuple[SiteId, str]]:
        for site, old, new in zip(self.sites, before, after, strict=False):
            for message, *_ in self._local[new].log[len(self._local[old].log) :]:
                yield site, message
