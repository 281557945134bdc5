"""The classes of a site: their machines, what they deliver, and what the site sends through them."""

from collections import deque
from collections.abc import Iterable
from typing import Any

from ordercast.core.configuration import Destination
from ordercast.core.effects import Append, Deliver, Effect, Finished, Placed, Refuse, Safe
from ordercast.core.events import Control, Event, Multicast, Received
from ordercast.core.machine import Machine
from ordercast.epochs import events as e
from ordercast.epochs import messages as m
from ordercast.epochs.handing import Handing
from ordercast.epochs.sending import Own
from ordercast.epochs.track import Track
from ordercast.errors import LocalError, PeerError
from ordercast.names import ClassId, SiteId

STABILITY = (m.Have, m.AskHave, m.Stable, m.AskSafe, m.Whereabouts)
EARLY_AT_MOST = 10_000  # messages of classes that are not open here yet; what is beyond is sent again by its sender


class Classes(Handing):
    """What a participant keeps, and what happens inside a configuration; changes come from outside."""

    def take_one(self, event: Event) -> list[Effect]:
        """Take one event to completion; what it says to this site itself comes later."""
        raise NotImplementedError

    def runs(self, class_id: ClassId) -> bool:
        """Whether the machine of a class may run here."""
        of_class = self.setup.classes.get(class_id)
        if class_id in self.draining:
            return True
        if of_class is None or class_id in self.closed or class_id.epoch < self.since or not self.admitted:
            return False
        return not (self.me in of_class.sites and class_id.epoch in self.opening.numbers)

    def machine(self, class_id: ClassId) -> Machine:
        """Return the machine of a class that runs here."""
        machine = self.machines.get(class_id)
        if machine is None:
            machine = self.machines[class_id] = self.class_setup(class_id).machine(self.source)
            self.machines = dict(sorted(self.machines.items()))
        return machine

    def under_way(self, class_id: ClassId) -> int:
        """How many messages of a class are not where they should be."""
        machine = self.machines.get(class_id)
        return machine.under_way if machine is not None else 0

    def _of_class(self, sender: SiteId, message: Any, class_id: ClassId) -> None:
        if isinstance(message, STABILITY):
            self.stability.take(sender, class_id, message)
        elif self.runs(class_id):
            self.feed(class_id, Received(sender, message, class_id))
        elif class_id.epoch > self.setup.number or class_id in self.setup.classes:
            if class_id not in self.closed and len(self.early) < EARLY_AT_MOST and not isinstance(message, Control):
                self.early.append((sender, message, class_id))
            if class_id.epoch > self.setup.number:
                self.behind.ask(sender)
        else:
            self.behind.tell(sender)  # an older class: its sender may not know that it was closed (errata 57)

    def let_in(self) -> None:
        """Feed what came early to the classes that are open now."""
        waiting, self.early = self.early, deque()
        for sender, message, class_id in waiting:
            if self.runs(class_id):
                try:
                    self.out += self.step_again(Received(sender, message, class_id))
                except PeerError as error:  # its sender has nothing to do with what is being taken now
                    self.out.append(Refuse(sender, str(error)))
            elif class_id.epoch > self.setup.number or class_id in self.setup.classes:
                self.early.append((sender, message, class_id))

    def step_again(self, event: Event) -> list[Effect]:
        """Take another event inside of one: it is appended for itself."""
        out, durable = self.out, self._durable
        try:
            return self.take_one(event)
        finally:
            self.out, self._durable = out, durable

    def feed(self, class_id: ClassId, event: Event) -> None:
        """Let a machine take an event; what it delivers is counted here."""
        machine, finished = self.machine(class_id), False
        self.awake.add(class_id)
        self._feeding += 1  # what a delivery sets free is sent when all effects of this step are done
        for effect in machine.step(event):
            kind = type(effect)
            if kind is Append:
                self.durable()
            elif kind is Deliver:
                order = self.class_setup(class_id).order_class.part_of(effect.envelope.groups[0])  # type: ignore[union-attr]
                self.delivered(class_id, order, effect.stamp, effect.envelope)  # type: ignore[union-attr]
            elif kind is Finished:
                finished = class_id in self.draining  # else it is said again when the decision is known
            elif kind is not Placed and kind is not Safe:  # both are said by `stability`, for every protocol
                self.out.append(effect)
        self._feeding -= 1
        if self._send_later and not self._feeding:
            self._send_later = False
            self.send_waiting()
        if finished:
            self.opening.finished(class_id)

    def _all(self, event: Event) -> None:
        for class_id in list(self.machines):
            if self.runs(class_id):
                self.feed(class_id, event)

    # Deliveries.

    def delivered(self, class_id: ClassId, order: int, stamp: bytes, envelope: Any) -> None:
        """Count a delivery of a class, and hand over what may be."""
        self.durable()
        entry = self.tracks.setdefault(class_id, Track()).add(class_id, order, stamp, envelope)
        self.remember(entry, self.class_setup(class_id))
        if envelope.source == self.me and envelope.incarnation == self.source.incarnation:
            self.placed(envelope.number, stamp)
        self.hand_over(class_id)
        if len(self.class_setup(class_id).destinations(envelope.groups)) == 1:
            self.stability.alone(class_id, envelope.groups)
        elif class_id in self.setup.classes:
            self.stability.copies.count(class_id, envelope.groups)

    # Sending.

    def _multicast(self, multicast: Multicast) -> None:
        self.setup.destination(self.me, multicast.groups)  # raises LocalError, and nothing has changed
        self.durable()
        self.source.sent += 1
        self.sending.add(self.source.sent, multicast)
        self.send_waiting()

    def send_waiting(self) -> None:
        """Give to the machines what is not sent and may be now; in every class in the order of the numbers."""
        if self._feeding:
            self._send_later = True
            return
        waits = set[ClassId]()
        for number in list(self.sending.unsent):
            own = self.sending.own.get(number)
            if own is None or own.class_id is not None:
                continue
            try:
                class_id = self.setup.destination(self.me, own.groups)
            except LocalError as error:
                self.drop(number, own, str(error))
                continue
            if own.disks not in (-1, self.setup.disks):  # who knew that it had come may have forgotten it (errata 125)
                self.drop(number, own, e.MAY_BE_SENT)
                continue
            if class_id is None or class_id in waits:
                continue
            if self.why_not(number, class_id) is not None:
                waits.add(class_id)
                continue
            self.durable()
            self.sending.sent(number, class_id)
            self.feed(class_id, Multicast(own.groups, own.body, number=number))

    def drop(self, number: int, own: Own, reason: str) -> None:
        """Give a message up, and say why."""
        self.durable()
        self.sending.settle(number)
        self.out.append(e.Dropped(number, reason, own.groups, own.body))

    def why_not(self, number: int, class_id: ClassId) -> str | None:
        """Return why a message is not sent now in its class, if so."""
        if self._is_stranger(class_id):
            return f"class {class_id} does not know this site yet"
        if not self.runs(class_id):
            return f"class {class_id} is not open here"
        for closing, unknown in self.sending.unknown.items():
            if any(self._goes_to(groups) == class_id for groups in unknown):  # those before this one go first
                return f"which message was the last in class {closing} is not known yet"
        return self.sending.waits_for(number, causal=self.setup.causal)

    def _goes_to(self, groups: Destination) -> ClassId | None:
        """Return the class of a message to these groups, if there is one."""
        try:
            return self.setup.destination(self.me, groups)
        except LocalError:
            return None

    def _why_unsent(self, number: int) -> str:
        groups = self.sending.own[number].groups
        try:
            class_id = self.setup.destination(self.me, groups)
        except LocalError as error:
            return str(error)
        if class_id is None:
            return f"nobody is in {'+'.join(groups)} now"
        return self.why_not(number, class_id) or "an earlier message of its class waits"

    def safe(self, number: int) -> None:
        """A message of this site is safe."""
        own = self.sending.own.get(number)
        if own is not None and self.sending.settle(number):
            self.durable()
            self.out.append(Safe(number))

    def _is_stranger(self, class_id: ClassId) -> bool:
        """Whether a class was opened without this site, or with an earlier life of it: it must be opened anew."""
        return class_id.epoch < self.since or not self.setup.classes[class_id].order_class.is_source(self.me)

    def before(
        self, closing: Iterable[ClassId], empty: Iterable[SiteId] = (), held_up: Iterable[ClassId] = ()
    ) -> tuple[ClassId, ...]:
        """Return the closed classes that must be reported on with these: they may not be installed everywhere.

        `empty`: who has lost its disk, and with it perhaps what others are to get from it. `held_up`: classes whose
        end does not come down their tree.
        """
        epochs = {class_id.epoch for class_id in closing} & self.undone
        epochs |= {number for number in self.undone if set(empty).intersection(self.decisions[number].installers)}
        epochs |= {number for number in self.undone if self.decisions[number].closed.keys() & set(held_up)}
        found = {class_id for number in epochs for class_id in self.decisions[number].closed}
        return tuple(sorted(found & self.earlier.keys()))

    def halt(self, class_id: ClassId) -> None:
        """Stop a class that closes along its tree: it is closed by report instead."""
        if class_id in self.draining:
            self.draining.discard(class_id)
            self.halted.add(class_id)
            self.machines.pop(class_id, None)
