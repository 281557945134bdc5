"""Every interleaving of a small case, shortest first: which order of arrivals, losses, doubles or a crash breaks it?

A state is the machines, what is under way on each link, what is still to be sent, and what was delivered. Links are
FIFO unless `reorder`. A machine's step depends on its own state and the event alone, so steps are remembered per site
and shared by all the states they occur in; only the distinct ones are ever computed. Time passes only when nothing is
under way: then every site ticks.
"""

import pickle
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from ordercast.core.effects import Append, Deliver, Send
from ordercast.core.events import Envelope, Event, Message, Multicast, Received, Tick
from ordercast.core.machine import Machine
from ordercast.protocols.deployment import Deployment
from ordercast.types import GroupId, SiteId
from ordercast.verify.deliveries import ALWAYS, JUDGES, Record, Sent

Link = tuple[SiteId, SiteId]
Delivered = tuple[tuple[str, int, bytes], ...]


@dataclass(frozen=True)
class Case:
    """What is sent (source, groups), in order per source, and which faults may happen how often."""

    deployment: Deployment
    multicasts: tuple[tuple[SiteId, tuple[GroupId, ...]], ...]
    losses: int = 0
    duplicates: int = 0
    crashes: int = 0
    reorder: bool = False
    states_at_most: int = 5_000_000
    ticks_at_most: int = 12


@dataclass(frozen=True, slots=True)
class State:
    """One point of the search; everything in it is a value."""

    machines: tuple[int, ...]  # numbers of local states, see `Explorer._freeze`
    links: tuple[tuple[Link, tuple[Message, ...]], ...]
    to_send: tuple[int, ...]  # per source: how many of its multicasts are sent
    logs: tuple[Delivered, ...]
    after: tuple[tuple[str, int], ...]  # message -> deliveries at its source before it was sent
    faults: tuple[int, int, int]
    ticks: int
    inputs: tuple[tuple[Event, ...], ...]  # durable log per site, kept only while a crash may happen


@dataclass
class Explored:
    """The outcome: how much was tried, and the shortest way to a violation."""

    states: int = 0
    ends: int = 0
    complete: bool = True
    findings: dict[str, str] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)


class Explorer:
    """Breadth-first search over the states of a case."""

    def __init__(self, case: Case) -> None:
        self.case, self.deployment = case, case.deployment
        self.sites = self.deployment.sites
        self.number = {site: index for index, site in enumerate(self.sites)}
        self.sources = sorted({source for source, _ in case.multicasts})
        self.orders = {s: [groups for source, groups in case.multicasts if source == s] for s in self.sources}
        self._fresh = {site: self.deployment.machine(site) for site in self.sites}
        shared = [self.deployment.groups, self.deployment.trees, self.deployment.sequencers]
        shared += [self.deployment.routes] if self.deployment.plan is not None else []
        first = self._fresh[self.sites[0]]  # what all machines share is never part of a state
        self._static = {"me"} | {name for name, value in vars(first).items() if any(value is one for one in shared)}
        self._known: dict[Any, int] = {}  # canonical form of a machine -> its number
        self._frozen: list[bytes] = []  # by number
        self._steps: dict[tuple[int, Event], tuple[int, tuple[Any, ...], int]] = {}
        self._idle: dict[int, bool] = {}

    def run(self) -> Explored:
        """Explore until a violation, the end, or the limit."""
        start = self._start()
        came: dict[State, tuple[State | None, str]] = {start: (None, "")}
        queue = deque([start])
        found = Explored()
        while queue:
            state = queue.popleft()
            moves = self._moves(state)
            if not moves:
                found.ends += 1
                findings = self._judge(state)
                if findings:
                    found.findings, found.trace = findings, self._trace(came, state)
                    break
            for name, after in moves:
                if after not in came:
                    came[after] = (state, name)
                    queue.append(after)
            if len(came) > self.case.states_at_most:
                found.complete = False
                break
        found.states = len(came)
        return found

    def _start(self) -> State:
        case = self.case
        return State(
            machines=tuple(self._freeze(self._fresh[site]) for site in self.sites),
            links=(),
            to_send=tuple(0 for _ in self.sources),
            logs=tuple(() for _ in self.sites),
            after=(),
            faults=(case.losses, case.duplicates, case.crashes),
            ticks=0,
            inputs=tuple(() for _ in self.sites) if case.crashes else (),
        )

    def _moves(self, state: State) -> list[tuple[str, State]]:
        moves = []
        for at, source in enumerate(self.sources):
            if state.to_send[at] < len(self.orders[source]):
                groups = self.orders[source][state.to_send[at]]
                sent = tuple(count + (index == at) for index, count in enumerate(state.to_send))
                event = Multicast(groups, b"")
                moves.append(
                    (f"{source} multicasts {'+'.join(groups)}", self._feed(state, source, event, to_send=sent))
                )
        for index, ((sender, receiver), messages) in enumerate(state.links):
            choices = range(len(messages)) if self.case.reorder else range(1)
            for choice in choices:
                if messages[choice] in messages[:choice]:
                    continue
                moves += self._carry(state, index, choice, sender, receiver)
        losses, duplicates, crashes = state.faults
        if crashes:
            faults = (losses, duplicates, crashes - 1)
            moves += [(f"{site} crashes and restarts", self._crash(state, site, faults)) for site in self.sites]
        if not state.links and not moves and state.ticks < self.case.ticks_at_most and not self._all_idle(state):
            moves.append(("time passes", self._tick(state)))
        return moves

    def _carry(
        self, state: State, index: int, choice: int, sender: SiteId, receiver: SiteId
    ) -> list[tuple[str, State]]:
        (_, messages) = state.links[index]
        message = messages[choice]
        rest = messages[:choice] + messages[choice + 1 :]
        without = (*state.links[:index], *(((((sender, receiver), rest)),) if rest else ()), *state.links[index + 1 :])
        what = f"{sender} -> {receiver} {message}"
        moves = [(what, self._feed(state, receiver, Received(sender, message), links=without))]
        losses, duplicates, crashes = state.faults
        if losses:
            moves.append((f"lost: {what}", _with(state, links=without, faults=(losses - 1, duplicates, crashes))))
        if duplicates:
            twice = self._feed(state, receiver, Received(sender, message))
            moves.append((f"doubled: {what}", _with(twice, faults=(losses, duplicates - 1, crashes))))
        return moves

    def _feed(self, state: State, site: SiteId, event: Event, **changes: Any) -> State:
        """Step one machine and put its effects into the state."""
        index = self.number[site]
        machine, effects, sent = self._step(state.machines[index], site, event)
        if isinstance(event, Multicast):
            envelope = Envelope(0, 1, event.groups, site, 1, sent, b"")
            changes["after"] = (*state.after, (envelope.msg_id, len(state.logs[index])))
        links = dict(changes.pop("links", state.links))
        log, inputs = state.logs[index], state.inputs
        for effect in effects:
            match effect:
                case Send(to, message):
                    links[site, to] = (*links.get((site, to), ()), message)
                case Deliver(envelope, stamp):
                    log = (*log, (envelope.msg_id, envelope.order_class, stamp))
                case Append(durable) if state.faults[2]:
                    inputs = _put(inputs, index, (*inputs[index], durable))
        return _with(
            state,
            machines=_put(state.machines, index, machine),
            links=tuple(sorted(links.items(), key=lambda item: item[0])),
            logs=_put(state.logs, index, log),
            inputs=inputs if state.faults[2] else (),
            **changes,
        )

    def _tick(self, state: State) -> State:
        now = float(state.ticks + 1)
        for site in self.sites:
            state = self._feed(state, site, Tick(now))
        return _with(state, ticks=state.ticks + 1)

    def _crash(self, state: State, site: SiteId, faults: tuple[int, int, int]) -> State:
        """Lose the machine and what is under way to it; step a new one through its log."""
        machine = self.deployment.machine(site)
        for event in state.inputs[self.number[site]]:
            machine.step(event)
        links = tuple(item for item in state.links if item[0][1] != site)
        index = self.number[site]
        inputs = state.inputs if faults[2] else ()
        return _with(
            state,
            machines=_put(state.machines, index, self._freeze(machine)),
            links=links,
            faults=faults,
            inputs=inputs,
        )

    def _step(self, number: int, site: SiteId, event: Event) -> tuple[int, tuple[Any, ...], int]:
        key = (number, event)
        if key not in self._steps:
            machine = self._thaw(number, site)
            effects = tuple(machine.step(event))
            self._steps[key] = (self._freeze(machine), effects, machine.sent)
        return self._steps[key]

    def _freeze(self, machine: Machine) -> int:
        """Return the number of this local state: equal machines of one site have one number."""
        changing = {name: value for name, value in vars(machine).items() if name not in self._static}
        form = (machine.me, canonical(changing))
        if form not in self._known:
            self._known[form] = len(self._frozen)
            self._frozen.append(pickle.dumps(changing, protocol=5))
        return self._known[form]

    def _thaw(self, number: int, site: SiteId) -> Machine:
        fresh = self._fresh[site]
        machine: Machine = object.__new__(type(fresh))
        vars(machine).update({k: v for k, v in vars(fresh).items() if k in self._static})
        vars(machine).update(pickle.loads(self._frozen[number]))
        return machine

    def _all_idle(self, state: State) -> bool:
        for site, number in zip(self.sites, state.machines, strict=True):
            if number not in self._idle:
                self._idle[number] = self._thaw(number, site).idle
            if not self._idle[number]:
                return False
        return True

    def _judge(self, state: State) -> dict[str, str]:
        """Judge an end: nothing is under way, all is sent, nobody has anything to do."""
        counts = dict.fromkeys(self.sources, 0)
        sends = {}
        for source, groups in self.case.multicasts:
            counts[source] += 1
            number = counts[source]
            name = Envelope(0, 1, groups, source, 1, number, b"").msg_id
            sends[name] = Sent(groups, source, number, dict(state.after).get(name, 0))
        logs = {site: [m for m, _, _ in log] for site, log in zip(self.sites, state.logs, strict=True)}
        stamps = {site: [(c, s) for _, c, s in log] for site, log in zip(self.sites, state.logs, strict=True)}
        record = Record(self.deployment.groups.members, sends, logs, stamps)
        names = (*ALWAYS, *sorted(self.deployment.promises))
        findings = {name: example for name in names if (example := JUDGES[name](record)) is not None}
        for site, number in zip(self.sites, state.machines, strict=True):
            held = self._thaw(number, site).held()
            if held:
                findings["held"] = f"{site}: {held[0]}"
        return findings

    def _trace(self, came: dict[State, tuple[State | None, str]], state: State) -> list[str]:
        steps: list[str] = []
        at: State | None = state
        while at is not None:
            before, name = came[at]
            if before is not None:
                new = [
                    f"{site} delivers {message}"
                    for site, log, earlier in zip(self.sites, at.logs, before.logs, strict=True)
                    for message, _, _ in log[len(earlier) :]
                ]
                steps.append(name + "".join(f"; {line}" for line in new))
            at = before
        return steps[::-1]


def canonical(value: Any) -> Any:
    """Turn the state of a machine into a value that is equal exactly when the states are."""
    match value:
        case dict():
            return ("dict", *sorted(((canonical(k), canonical(v)) for k, v in value.items()), key=repr))
        case list() | tuple() | deque():
            return tuple(canonical(item) for item in value)
        case set() | frozenset():
            return ("set", *sorted((canonical(item) for item in value), key=repr))
        case None | bool() | int() | float() | str() | bytes() | Message() | Envelope():
            return value
    names = getattr(value, "__slots__", None) or vars(value)
    return (type(value).__name__, *((name, canonical(getattr(value, name))) for name in sorted(names)))


def _put(values: tuple[Any, ...], index: int, value: Any) -> tuple[Any, ...]:
    return (*values[:index], value, *values[index + 1 :])


def _with(state: State, **changes: Any) -> State:
    fields = {name: getattr(state, name) for name in State.__slots__}
    return State(**(fields | changes))
