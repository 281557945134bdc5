"""One site's part in a cluster whose groups change and whose sites fail: one door around the machines of its classes.

A class never changes. It is closed, and what it has ordered becomes a fixed history (`epochs.recovery`); then others are
opened. Machines know nothing of this: they are built when their class is opened and thrown away when it is closed.
What is delivered passes through here, is counted (`epochs.track`), and is handed to the application: at once, or when
every member has it. What this site sends is kept until it is safe (`epochs.sending`).

Two rules keep a restart right. Whatever changes durable state is the handling of one event, which is appended before
its effects; and that handling depends on durable state and the event alone. What follows from volatile knowledge (a
majority of votes, the counts of all members) is therefore said as a message to oneself, and is an event of its own.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any

from ordercast.core.effects import Append, Deliver, Effect, Held, Placed, Safe, Send
from ordercast.core.events import Control, Event, LinkDown, LinkUp, Multicast, PeerReset, Received, Tick
from ordercast.core.machine import Machine
from ordercast.core.source import Source
from ordercast.epochs import events as e
from ordercast.epochs import messages as m
from ordercast.epochs.change import Asked, Change
from ordercast.epochs.council import Council
from ordercast.epochs.manager import Manager
from ordercast.epochs.opening import Opening
from ordercast.epochs.recovery import Installing
from ordercast.epochs.sending import Sending
from ordercast.epochs.setup import ClassSetup, Setup
from ordercast.epochs.snapshot import ParticipantState, restore_snapshot, take_snapshot
from ordercast.epochs.stability import Stability
from ordercast.epochs.track import Entry, Track
from ordercast.errors import LocalError
from ordercast.names import ClassId, Delivery, GroupId, SiteId

STABILITY = (m.Have, m.Stable, m.AskSafe, m.Whereabouts)
EARLY_AT_MOST = 10_000  # messages of classes that are not open here yet; what is beyond is sent again by its sender
DECISIONS_KEPT = 64  # who is further behind starts from a snapshot
HISTORY_KEPT = 1024  # messages of a group that a site can give to one that comes back


class Participant:
    """One site. The same door as `core.machines.Machines`, and more events (`epochs.events`)."""

    def __init__(self, me: SiteId, setup: Setup, incarnation: int = 1) -> None:
        """`setup` has number 0 at a site that has no history: it learns everything from the others."""
        self.me, self.setup, self.now = me, setup, 0.0
        self.since = 0  # taken in with an empty disk by this configuration; earlier classes knew another life of it
        self.admitted = setup.number > 0  # an empty disk may have forgotten promises: it neither votes nor leads
        self.source = Source(me, incarnation)
        self.out: list[Effect] = []
        self.suspected: set[SiteId] = set()
        self.fresh: dict[SiteId, int] = {}  # sites that came with an empty disk and are not taken in, as far as known
        first = {setup.number: m.Decision(setup, m.NO_BALLOT, {})} if setup.number else {}
        self.decisions: dict[int, m.Decision] = first
        self.machines: dict[ClassId, Machine] = {}
        self.awake: set[ClassId] = set()  # classes whose machines get the next tick: something happened to them
        self.closed: set[ClassId] = set()  # classes of this configuration that stand still here
        self.earlier: dict[ClassId, ClassSetup] = {}  # closed classes that are not installed everywhere
        self.tracks: dict[ClassId, Track] = {}
        self.handed: list[Entry] = []  # what the application has and might have to undo, with all after it
        self.counts: dict[GroupId, int] = {}  # messages of each group of this site since the group was created
        self.history: dict[GroupId, deque[tuple[int, Entry]]] = {}
        self.council, self.sending, self.installing = Council(), Sending(), Installing()
        self.undone: set[int] = set()  # configurations that somebody may not have installed
        self.asked_for: dict[int, Change] = {}
        self.requests = 0
        self.early: deque[tuple[SiteId, Any, ClassId]] = deque()
        self.manager, self.stability = Manager(self), Stability(self)
        self.opening = Opening(self)
        self._durable, self._feeding, self._send_later = False, 0, False
        self._here: deque[Received] = deque()  # messages to oneself
        self._told: set[SiteId] = set()  # since the last tick: who was told which configuration this is
        for group in setup.groups:
            if me in setup.members(group):
                self.counts[group] = 0

    # The door.

    def step(self, event: Event) -> list[Effect]:
        """Take one event to completion and return what is to be done, in order."""
        done = self._one(event)
        while self._here:
            done += self._one(self._here.popleft())
        return done

    def _one(self, event: Event) -> list[Effect]:
        self.out, self._durable = [], False
        match event:
            case Received(sender, message, class_id):
                if class_id == m.CONTROL:
                    self._control(sender, message)
                else:
                    self._of_class(sender, message, class_id)
            case Multicast():
                self._multicast(event)
            case Tick(now):
                self._tick(now)
            case LinkUp(peer):
                self.say(peer, m.At(self.setup.number))
                self._all(event)
            case LinkDown() | PeerReset():
                self._all(event)
            case e.Suspected(site):
                self.suspected.add(site)
                self.manager.look()
            case e.Trusted(site):
                self.suspected.discard(site)
                self.manager.look()
            case e.Requested(change):
                self.requests = max(self.requests, self.setup.answered.get(self.me, 0)) + 1
                self.asked_for[self.requests] = change
                self.durable()
                self.manager.look()
            case e.Made(planned):
                self.manager.plan(planned)
            case e.Snapshotted(number, states):
                self.opening.snapshotted(number, states)
            case _:
                raise TypeError(f"no participant takes {event!r}")
        if self._durable:
            self.out.insert(0, Append(event))
        return self.out

    def durable(self) -> None:
        """The event that is being taken changes what must survive a crash."""
        self._durable = True

    def say(self, to: SiteId, message: Control, class_id: ClassId = m.CONTROL) -> None:
        """Send to a site, or to oneself: then it is an event of its own."""
        if to == self.me:
            self._here.append(Received(to, message, class_id))
        else:
            self.out.append(Send(to, message, class_id))

    def _control(self, sender: SiteId, message: Any) -> None:
        number = self.setup.number
        match message:
            case m.Prepare():
                self._vote(sender, message, message.number)
            case m.Accept():
                self._vote(sender, message, message.decision.number)
            case m.Promise() if message.number == number + 1:
                self.manager.promised(sender, message)
            case m.Accepted() if message.number == number + 1:
                self.manager.accepted(sender, message)
            case m.Outvoted() if message.number == number + 1:
                self.manager.outvoted(message)
            case m.Decided(decision):
                self.opening.decided(sender, decision)
            case m.At(theirs):
                self._at(sender, theirs)
            case m.Wish():
                self._at(sender, message.number)
                self.manager.wish(sender, message)
            case m.Answer(request, reason):
                self.answered(request, reason)
            case m.Close():
                self._close(sender, message)
            case m.Report() if message.number == number + 1:
                self.manager.reported(sender, message)
            case m.Installed(which):
                self.manager.installed(sender, which)
            case m.AskInstalled(which):
                if which > number:
                    self.say(sender, m.At(number))
                elif self.opening.has_installed(which):
                    self.say(sender, m.Installed(which))
            case m.AskDone(which):
                if which <= number and which not in self.undone:
                    self.say(sender, m.Done(which))
            case m.Done(which):
                self.opening.done(which)
            case m.Fetch() | m.Body() | m.AskState() | m.State():
                self.opening.take(sender, message)

    def _vote(self, sender: SiteId, message: m.Prepare | m.Accept, number: int) -> None:
        if number != self.setup.number + 1:
            self._at(sender, number - 1)
        elif self.me in self.setup.council and self.admitted:
            ask = self.council.prepare if isinstance(message, m.Prepare) else self.council.accept
            answer, news = ask(message)  # type: ignore[operator]
            if news:
                self.durable()
            self.say(sender, answer)

    def _at(self, sender: SiteId, theirs: int) -> None:
        """A site tells which configuration it is in: who is ahead tells the other what was decided since."""
        mine = self.setup.number
        if theirs == mine:
            self.manager.knows(sender)
        elif theirs > mine:
            self._tell_at(sender)
        elif sender != self.me:
            first = theirs + 1 if theirs and theirs + 1 in self.decisions else mine
            for number in range(first, min(first + 8, mine + 1)):
                if number in self.decisions:
                    self.say(sender, m.Decided(self.decisions[number]))

    def _tell_at(self, sender: SiteId) -> None:
        if sender not in self._told and sender != self.me:
            self._told.add(sender)
            self.say(sender, m.At(self.setup.number))

    # Classes.

    def class_setup(self, class_id: ClassId) -> ClassSetup:
        """Return a class, open or closed."""
        return self.setup.classes[class_id] if class_id in self.setup.classes else self.closed_class(class_id)

    def closed_class(self, class_id: ClassId) -> ClassSetup:
        """Return a class that closes, or was closed and may not be installed everywhere."""
        return self.setup.classes.get(class_id) or self.earlier[class_id]

    def runs(self, class_id: ClassId) -> bool:
        """Whether the machine of a class may run here."""
        of_class = self.setup.classes.get(class_id)
        if of_class is None or class_id in self.closed or class_id.epoch < self.since or not self.admitted:
            return False
        return not (self.me in of_class.sites and class_id.epoch in self.opening.numbers)

    def machine(self, class_id: ClassId) -> Machine:
        """Return the machine of a class that runs here."""
        machine = self.machines.get(class_id)
        if machine is None:
            machine = self.machines[class_id] = self.setup.classes[class_id].machine(self.source)
            self.machines = dict(sorted(self.machines.items()))
        return machine

    def _of_class(self, sender: SiteId, message: Any, class_id: ClassId) -> None:
        if isinstance(message, STABILITY):
            self.stability.take(sender, class_id, message)
        elif self.runs(class_id):
            self.feed(class_id, Received(sender, message, class_id))
        elif class_id.epoch > self.setup.number or class_id in self.setup.classes:
            if class_id not in self.closed and len(self.early) < EARLY_AT_MOST and not isinstance(message, Control):
                self.early.append((sender, message, class_id))
            if class_id.epoch > self.setup.number:
                self._tell_at(sender)
        else:
            self._tell_at(sender)  # an older class: its sender may not know that it was closed (errata 57)

    def let_in(self) -> None:
        """Feed what came early to the classes that are open now."""
        waiting, self.early = self.early, deque()
        for sender, message, class_id in waiting:
            if self.runs(class_id):
                for effect in self.step_again(Received(sender, message, class_id)):
                    self.out.append(effect)
            elif class_id.epoch > self.setup.number or class_id in self.setup.classes:
                self.early.append((sender, message, class_id))

    def step_again(self, event: Event) -> list[Effect]:
        """Take another event inside of one: it is appended for itself."""
        out, durable = self.out, self._durable
        try:
            return self._one(event)
        finally:
            self.out, self._durable = out, durable

    def feed(self, class_id: ClassId, event: Event) -> None:
        """Let a machine take an event; what it delivers is counted here."""
        machine = self.machine(class_id) if class_id in self.setup.classes else self.machines[class_id]
        self.awake.add(class_id)
        self._feeding += 1  # what a delivery sets free is sent when all effects of this step are done
        for effect in machine.step(event):
            kind = type(effect)
            if kind is Append:
                self.durable()
            elif kind is Deliver:
                order = self.class_setup(class_id).order_class.part_of(effect.envelope.groups[0])  # type: ignore[union-attr]
                self.delivered(class_id, order, effect.stamp, effect.envelope)  # type: ignore[union-attr]
            elif kind is not Placed and kind is not Safe:  # both are said by `stability`, for every protocol
                self.out.append(effect)
        self._feeding -= 1
        if self._send_later and not self._feeding:
            self._send_later = False
            self.send_waiting()

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

    @staticmethod
    def new_history(kept: Iterable[tuple[int, Entry]] = ()) -> deque[tuple[int, Entry]]:
        """Return the history of a group: the last messages, each with its count."""
        return deque(kept, HISTORY_KEPT)

    def remember(self, entry: Entry, of_class: ClassSetup) -> None:
        """Count a message in the groups of this site that it goes to, and keep it for who comes back."""
        for group in entry.envelope.groups:
            if self.me in of_class.members.get(group, ()) and group in self.counts:
                self.counts[group] += 1
                self.history.setdefault(group, self.new_history()).append((self.counts[group], entry))

    def placed(self, number: int, stamp: bytes) -> None:
        """A message of this site has its place."""
        own = self.sending.own.get(number)
        if own is not None and not own.placed:
            own.placed = True
            self.out.append(Placed(number, stamp))

    def hand_over(self, class_id: ClassId) -> None:
        """Give the application what it may have of a class, in order."""
        track = self.tracks.get(class_id)
        if track is not None:
            agreed = self.class_setup(class_id).delivery is Delivery.AGREED
            for entry in track.ready(agreed=agreed):
                self.hand(entry)
            track.prune()

    def hand(self, entry: Entry) -> None:
        """Give the application one message."""
        self.durable()
        entry.handed = True
        self.handed.append(entry)
        self.out.append(Deliver(entry.envelope, entry.stamp))
        if len(self.handed) > 64:
            self._forget_handed()

    def _forget_handed(self) -> None:
        """Forget what can never be undone, from the front."""
        final = 0
        for entry in self.handed:
            track = self.tracks.get(entry.class_id)
            if track is not None and not track.is_stable(entry):
                break
            final += 1
        del self.handed[:final]

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
                self.durable()
                self.sending.settle(number)
                self.out.append(e.Dropped(number, str(error)))
                continue
            if class_id is None or class_id in waits:
                continue
            if self.why_not(number, class_id) is not None:
                waits.add(class_id)
                continue
            self.durable()
            self.sending.sent(number, class_id)
            self.feed(class_id, Multicast(own.groups, own.body, number=number))

    def why_not(self, number: int, class_id: ClassId) -> str | None:
        """Return why a message is not sent now in its class, if so."""
        if self._is_stranger(class_id):
            return f"class {class_id} does not know this site yet"
        if not self.runs(class_id):
            return f"class {class_id} is not open here"
        return self.sending.waits_for(number, causal=self.setup.causal)

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

    # Requests.

    def asks(self) -> list[Asked]:
        """Return the requests of this site that are not answered."""
        return [(self.me, number, change) for number, change in self.asked_for.items()]

    def answered(self, request: int, reason: str) -> None:
        """A request of this site was carried out or refused."""
        if self.asked_for.pop(request, None) is not None:
            self.durable()
            self.out.append(e.Answered(request, reason))

    def stands_still(self) -> set[ClassId]:
        """Return classes that must be opened anew: closed in a ballot that failed, or this site must be a source."""
        found = set(self.closed)
        for number in self.sending.unsent:
            try:
                class_id = self.setup.destination(self.me, self.sending.own[number].groups)
            except LocalError:
                continue
            if class_id is not None and self._is_stranger(class_id):
                found.add(class_id)
        return found

    def _is_stranger(self, class_id: ClassId) -> bool:
        """Whether a class was opened without this site, or with an earlier life of it: it must be opened anew."""
        return class_id.epoch < self.since or not self.setup.classes[class_id].order_class.is_source(self.me)

    # Closing.

    def _close(self, sender: SiteId, close: m.Close) -> None:
        """Stop classes for good, and report; once a higher ballot was heard of, lower ones are refused."""
        if close.number != self.setup.number + 1:
            self._at(sender, close.number - 1)
            return
        if not self.admitted:  # this life has nothing to report; its wish tells the manager so
            return
        news = self.council.hears(close.ballot)
        if news is None:
            self.say(sender, m.Outvoted(close.number, self.council.promised))
            return
        stop = [c for c in close.classes if c in self.setup.classes and c not in self.closed]
        if news or stop:
            self.durable()
        for class_id in stop:
            self.closed.add(class_id)
            self.machines.pop(class_id, None)
        told, finished = {}, []
        for class_id in (*close.classes, *close.before):
            if class_id in close.before and class_id not in self.earlier:
                finished.append(class_id)
            else:
                told[class_id] = self.tracks.get(class_id, Track()).report()
        joining = tuple(self.installing.states)
        self.say(sender, m.Report(close.number, close.ballot, told, tuple(finished), joining))

    def before(self, closing: Iterable[ClassId]) -> tuple[ClassId, ...]:
        """Return the closed classes that must be reported on with these, because they may not be installed everywhere."""
        epochs = {class_id.epoch for class_id in closing} & self.undone
        found = {class_id for number in epochs for class_id in self.decisions[number].cuts}
        return tuple(sorted(found & self.earlier.keys()))

    # Time.

    def _tick(self, now: float) -> None:
        self.now = now
        self._told.clear()
        for class_id in sorted(self.awake):
            if class_id in self.machines and self.runs(class_id):
                self.feed(class_id, Tick(now))
        self.awake = {
            class_id for class_id in self.awake if class_id in self.machines and not self.machines[class_id].idle
        }
        self.stability.tick()
        self.opening.tick()
        self._wish()
        self.manager.tick()

    def _wish(self) -> None:
        """Tell the manager what is asked for here, what stands still, and whom this site suspects."""
        touch = self.stands_still()
        if not (self.asked_for or touch or self.suspected or self._wishes):
            return
        suspected, life = tuple(sorted(self.suspected)), 0 if self.admitted else self.source.incarnation
        wish = m.Wish(self.setup.number, tuple(self.asks()), tuple(sorted(touch)), suspected, life)
        leader = self.leader
        for other in self.setup.council if life else () if leader is None else (leader,):
            if other != self.me:
                self.say(other, wish)

    @property
    def leader(self) -> SiteId | None:
        """The first of the council that is not suspected, and is known not to have lost its promises."""
        out = self.suspected | self.fresh.keys() | (set() if self.admitted else {self.me})
        return next((name for name in self.setup.council if name not in out), None)

    # Snapshots.

    def snapshot(self) -> ParticipantState:
        """Return the whole state."""
        return take_snapshot(self)

    def restore(self, state: ParticipantState) -> None:
        """Take over a state of the same site; raises HistoryError when it is of another."""
        restore_snapshot(self, state)

    # Looking.

    @property
    def sent(self) -> int:
        """The number of the last message of this site."""
        return self.source.sent

    def held(self) -> list[Held]:
        """Return everything that waits here, why, and since when."""
        found = [held for class_id, machine in self.machines.items() for held in machine.held()]
        for number in self.sending.unsent:
            found.append(Held(f"{self.me}:{number}", self._why_unsent(number), self.now))
        for number, own in self.sending.own.items():
            missing = sorted(self.class_setup(own.class_id).needed & self.suspected) if own.class_id is not None else []
            if missing:
                says = f"class {own.class_id} needs {', '.join(missing)}, suspected to have failed"
                found.append(Held(f"{self.me}:{number}", says, self.now))
        found += [Held(f"class {c}", "it was closed, and nothing was opened for it", self.now) for c in self.closed]
        return found + self.opening.held() + self.stability.held() + self.manager.held()

    @property
    def idle(self) -> bool:
        """Whether no tick would change anything."""
        if self.awake or not self.manager.idle:
            return False
        waits = self.sending.own or self.closed or self.asked_for or self.undone or self._wishes
        return not waits and self.installing.done and self.stability.idle

    @property
    def _wishes(self) -> bool:
        return self.council.accepted is not None or not self.admitted

    def under_way(self, class_id: ClassId) -> int:
        """How many messages of a class are not where they should be."""
        machine = self.machines.get(class_id)
        return machine.under_way if machine is not None else 0
