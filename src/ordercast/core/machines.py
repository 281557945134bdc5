"""A site's machines, one per class, behind one door."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from ordercast.core.configuration import Configuration, OrderClass
from ordercast.core.effects import Append, Effect, Held
from ordercast.core.events import Event, LinkDown, LinkUp, Multicast, Received, Tick
from ordercast.core.machine import Machine
from ordercast.core.source import Source
from ordercast.errors import HistoryError, PeerError
from ordercast.names import ClassId, SiteId

State = TypeVar("State")
Make = Callable[[OrderClass, Source], Machine]


class Snapshot(msgspec.Struct, Generic[State], array_like=True):
    """All machines of a site: which site in which life, the number of its last envelope, and each machine's state."""

    me: SiteId
    incarnation: int
    sent: int
    machines: list[tuple[ClassId, State]]

    def durable(self) -> object:
        """Return what a replay of the appended events rebuilds; the rest is volatile."""
        states = [(class_id, state.durable()) for class_id, state in self.machines]  # type: ignore[attr-defined]
        return self.me, self.incarnation, self.sent, states


class Machines:
    """One site. A machine is built when its class is first met, and ticks only while it has something to do."""

    def __init__(self, me: SiteId, configuration: Configuration, make: Make, incarnation: int = 1) -> None:
        self.me, self.configuration = me, configuration
        self.source = Source(me, incarnation)
        self._make = make
        self._machines: dict[ClassId, Machine] = {}
        self._awake: dict[ClassId, Machine] = {}
        self._down: set[SiteId] = set()  # whom nothing reaches, as the host has promised

    @property
    def sent(self) -> int:
        """How many envelopes this site has sent, over all classes: the number of the last one."""
        return self.source.sent

    def step(self, event: Event) -> list[Effect]:
        """Take one event to completion and return what is to be done, in order.

        What belongs to a class goes to its machine; time and links concern them all.
        """
        kind = type(event)
        if kind is Received:
            machine = self._awake.get(event.class_id)  # type: ignore[union-attr]
            if machine is None:
                machine = self._of(event.class_id, event.sender)  # type: ignore[union-attr]
            return machine.step(event)
        if kind is Multicast:
            return self.machine(self.configuration.destination(event.groups)).step(event)  # type: ignore[union-attr]
        if kind is Tick:
            return self._all(event, self._awake)
        if kind is LinkDown and event.whole:  # type: ignore[union-attr]
            self._down.add(event.peer)  # type: ignore[union-attr]
        elif kind is LinkUp:
            self._down.discard(event.peer)  # type: ignore[union-attr]
        self._awake.update(self._machines)
        return self._all(event, self._machines)

    def _of(self, class_id: ClassId, sender: SiteId) -> Machine:
        if class_id not in self.configuration.classes:
            raise PeerError(f"{sender} speaks of class {class_id}, which {self.me} does not know")
        return self.machine(class_id)

    def machine(self, class_id: ClassId) -> Machine:
        """Return the machine of a class, awake."""
        machine = self._machines.get(class_id)
        if machine is None:
            machine = self._make(self.configuration.order_class(class_id), self.source)
            for peer in sorted(self._down):
                machine.step(LinkDown(peer, whole=True))
            self._machines[class_id] = machine
            self._machines = dict(sorted(self._machines.items()))
        self._awake[class_id] = machine
        return machine

    @staticmethod
    def _all(event: Event, machines: dict[ClassId, Machine]) -> list[Effect]:
        """Feed an event to several machines; it is appended once, before everything that follows from it."""
        effects: list[Effect] = []
        append = Append(event)
        logged = False
        for _, machine in sorted(machines.items()) if len(machines) > 1 else list(machines.items()):
            for effect in machine.step(event):
                if type(effect) is Append:
                    logged = True
                else:
                    effects.append(effect)
        return [append, *effects] if logged else effects

    def held(self) -> list[Held]:
        """Return everything that waits here, why, and since when."""
        return [held for machine in self._machines.values() for held in machine.held()]

    @property
    def idle(self) -> bool:
        """Whether no tick would change anything; machines that are idle sleep until something happens to them."""
        for class_id in [class_id for class_id, machine in self._awake.items() if machine.idle]:
            del self._awake[class_id]
        return not self._awake

    def under_way(self, class_id: ClassId) -> int:
        """How many messages of a class are not where they should be."""
        machine = self._machines.get(class_id)
        return machine.under_way if machine is not None else 0

    def snapshot(self) -> Snapshot[Any]:
        """Return the whole state. It shares values with the machines: encode it before the next step."""
        states = [(class_id, machine.snapshot()) for class_id, machine in self._machines.items()]
        return Snapshot(self.me, self.source.incarnation, self.source.sent, states)

    def restore(self, state: Snapshot[Any]) -> None:
        """Take over what `snapshot` gave at the same site; raises HistoryError when it is of another."""
        if state.me != self.me:
            raise HistoryError(f"a snapshot of {state.me}, not of {self.me}")
        if not 0 <= state.sent or not 0 < state.incarnation:
            raise HistoryError(f"a snapshot of {state.me} with numbers that cannot be")
        unknown = [class_id for class_id, _ in state.machines if class_id not in self.configuration.classes]
        if unknown:
            raise HistoryError(f"a snapshot of {state.me} with class {unknown[0]}, which this configuration has not")
        self.source.incarnation, self.source.sent = state.incarnation, state.sent
        self._machines, self._awake = {}, {}
        for class_id, of_class in state.machines:
            try:
                self.machine(class_id).restore(of_class)
            except (KeyError, ValueError, TypeError, AttributeError) as error:
                raise HistoryError(f"a snapshot of {state.me} that does not fit class {class_id}: {error!r}") from None
