"""One site's part in a cluster whose groups change and whose sites fail: one door around the machines of its classes.

A class never changes. It is closed, and what it has ordered becomes a fixed history (`epochs.recovery`); then others
are opened. Machines know nothing of this: they are built when their class is opened and thrown away when it is closed.
What is delivered passes through here, is counted (`epochs.track`), and is handed to the application: at once, or when
every member has it. What this site sends is kept until it is safe (`epochs.sending`).

Two rules keep a restart right. Whatever changes durable state is the handling of one event, which is appended before
its effects; and that handling depends on durable state and the event alone. What follows from volatile knowledge (a
majority of votes, the counts of all members) is therefore said as a message to oneself, and is an event of its own.
"""

from typing import Any

from ordercast.core.effects import Append, Effect, Held
from ordercast.core.events import Event, LinkDown, LinkUp, Multicast, PeerReset, Received, Tick
from ordercast.epochs import events as e
from ordercast.epochs import messages as m
from ordercast.epochs.classes import Classes
from ordercast.epochs.manager import Manager
from ordercast.epochs.requests import Asked
from ordercast.epochs.rules import check
from ordercast.epochs.snapshot import ParticipantState, restore_snapshot, take_snapshot
from ordercast.errors import LocalError
from ordercast.names import ClassId, SiteId


class Participant(Classes):
    """One site. The same door as `core.machines.Machines`, and more events (`epochs.events`)."""

    # The door.

    def step(self, event: Event) -> list[Effect]:
        """Take one event to completion and return what is to be done, in order."""
        done = self.take_one(event)
        while self._here:
            done += self.take_one(self._here.popleft())
        return done

    def replay(self, event: Event) -> list[Effect]:
        """Take an event of the history again, after a restart.

        What it says to this site itself is left out: it was an event of its own, and is in the history if it changed
        anything (errata 98).
        """
        done = self.take_one(event)
        self._here.clear()
        return done

    def take_one(self, event: Event) -> list[Effect]:
        """Take one event to completion; what it says to this site itself comes later."""
        self.out, self._durable = [], False
        match event:
            case Received(sender, message, class_id):
                check(self, sender, message, class_id)
                if class_id == m.CONTROL:
                    self._control(sender, message)
                else:
                    self._of_class(sender, message, class_id)
            case Multicast():
                self._multicast(event)
            case Tick(now):
                self._tick(now)
            case LinkUp(peer):
                self.repeats.again()
                self.founding.greet(peer)
                self.say(peer, m.At(self.setup.number))
                self._all(event)
                self.manager.look()  # after a restart it knows of nobody who was away that he is back
            case LinkDown() | PeerReset():
                self._all(event)
            case e.Begin(first):
                self.founding.begin(first)
            case e.Tell():
                self.stability.tell()
            case e.Suspected(site) | e.Trusted(site):
                self.detected = self.detected | {site} if isinstance(event, e.Suspected) else self.detected - {site}
                self.manager.look()
            case e.Requested(change):
                self.requests = max(self.requests, *self.setup.answered.get(self.me, (0,))) + 1
                self.asked_for[self.requests] = change
                self.durable()
                self.manager.look()
                self._wish()
            case e.Made(planned):
                self.manager.plan(planned)
            case e.Snapshotted(number, states):
                self.opening.snapshotted(number, states)
            case _:
                raise TypeError(f"no participant takes {event!r}")
        if self._durable:
            self.out.insert(0, Append(event))
        return self.out

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
            case m.Decided(decision, gone):
                self.opening.told(sender, decision, gone)
            case m.Ready() | m.Began():
                self.founding.take(sender, message)
            case m.At(theirs):
                self.behind.at(sender, theirs)
            case m.Wish():
                self.behind.at(sender, message.number)
                self.manager.wish(sender, message)
            case m.Answer(request, reason):
                self.answered(request, reason)
            case m.Close():
                self.opening.stop(sender, message)
            case m.Released(which, ballot) if which == number + 1:
                self.opening.released(ballot)
            case m.Report() if message.number == number + 1:
                self.manager.reported(sender, message)
            case m.Installed(which):
                self.manager.installed(sender, which)
            case m.AskInstalled(which):
                if which > number:
                    self.say(sender, m.At(number))
                elif self.opening.has_installed(which):
                    self.say(sender, m.Installed(which))
                    if which not in self.undone:  # the manager was away when everybody was told
                        self.say(sender, m.Done(which, number))
                elif not self.admitted:
                    self.say(sender, self._its_wish())
            case m.AskDone(which):
                if which <= number and which not in self.undone and self.remembers(which):
                    self.say(sender, m.Done(which, self.setup.number))
            case m.Done(which, at):
                if at > number:
                    self.behind.ask(sender)
                else:
                    self.opening.done(which)
            case m.Fetch() | m.Body() | m.AskState() | m.State():
                self.opening.take(sender, message)

    def _vote(self, sender: SiteId, message: m.Prepare | m.Accept, number: int) -> None:
        if number != self.setup.number + 1:
            self.behind.at(sender, number - 1)
        elif self.me in self.setup.council and self.admitted:
            council = self.council
            answer, news = council.prepare(message) if isinstance(message, m.Prepare) else council.accept(message)
            if news:
                self.durable()
            self.say(sender, answer)

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
        """Return classes that must be closed: stopped in a ballot that failed, or not open to this site as a source."""
        found = self.closed | self.halted | (self.reported & self.earlier.keys()) | self.opening.stranded()
        for number in self.sending.unsent:
            try:
                class_id = self.setup.destination(self.me, self.sending.own[number].groups)
            except LocalError:
                continue
            if class_id is not None and self._is_stranger(class_id):
                found.add(class_id)
        return found

    def again(self) -> list[Effect]:
        """Go on after a restart: nobody is suspected, nothing is led. Returns what a host must do.

        It asks the application again for states that it has not given.
        """
        self.detected.clear()
        self.behind.again()
        self.manager = Manager(self)
        return [e.TakeSnapshot(number, groups) for number, groups in self.opening.asked.items()]

    # Time.

    def _tick(self, now: float) -> None:
        self.now = now
        self.repeats.tick()
        self.behind.tick()
        for class_id in sorted(self.awake):
            if class_id in self.machines and self.runs(class_id):
                self.feed(class_id, Tick(now))
        self.awake = {
            class_id for class_id in self.awake if class_id in self.machines and not self.machines[class_id].idle
        }
        self.stability.tick()
        self.opening.tick()
        self.founding.tick()
        self._wish()
        self.manager.tick()

    def _wish(self) -> None:
        """Tell the manager what is asked for here, what stands still, and whom this site suspects."""
        if not (self.asked_for or self.stands_still() or self.suspected or self._wishes or self.installing.states):
            return
        wish, leader = self._its_wish(), self.leader
        for other in self.setup.council if wish.life else () if leader is None else (leader,):
            if other != self.me:
                self.say(other, wish)

    def _its_wish(self) -> m.Wish:
        suspected, life = tuple(sorted(self.suspected)), 0 if self.admitted else self.source.incarnation
        accepted = self.council.accepted is not None
        asks, still = tuple(self.asks()), tuple(sorted(self.stands_still()))
        return m.Wish(self.setup.number, asks, still, suspected, life, accepted, tuple(self.installing.states))

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
        return (
            found
            + self.founding.held()
            + self.behind.held()
            + self.opening.held()
            + self.stability.held()
            + self.manager.held()
        )

    @property
    def idle(self) -> bool:
        """Whether no tick would change anything."""
        if self.awake or not self.manager.idle or self.founding.waits:
            return False
        waits = self.sending.own or self.closed or self.asked_for or self.undone or self._wishes or self.opening.asked
        return not waits and self.behind.idle and self.installing.done and self.stability.idle

    @property
    def _wishes(self) -> bool:
        """Whether it waits for a decision; who was removed and came back empty waits to be added, and says nothing."""
        if not self.admitted:
            return self.me in self.setup.sites or not self.setup.number
        return self.council.accepted is not None
