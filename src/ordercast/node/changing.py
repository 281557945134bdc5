"""A site of a cluster that changes: a node whose machines are a participant (`epochs.participant`).

What is new beside a node: requests and suspicions come in, plans and states of applications are asked for, and the
stream that applications read says more than messages. Whatever the site says itself takes a position (`client.values`,
`Said`), and so does each delivery that comes again after a rollback: a position is one thing for ever. What no record
of an event holds gets a record of its own (`records.Told`).
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, cast

from ordercast.client.values import AckLevel, Lot, Restored, RolledBack, Said, ViewChanged, said_lot
from ordercast.core.configuration import Configuration, Destination
from ordercast.core.effects import Deliver, Effect
from ordercast.core.events import Envelope, Event, Message
from ordercast.core.snapshots import encode_snapshot
from ordercast.epochs import events as e
from ordercast.epochs import messages as m
from ordercast.epochs import snapshot
from ordercast.epochs.participant import Participant
from ordercast.epochs.setup import Setup, nothing
from ordercast.errors import InputError, LocalError, LostError, OrdercastError
from ordercast.history import records
from ordercast.history.store import History, Position
from ordercast.names import ClassId, GroupId, SiteId
from ordercast.node import inputs as io
from ordercast.node.deliveries import Deliveries
from ordercast.node.detector import Detector
from ordercast.node.intake import Checker
from ordercast.node.migration import Migration
from ordercast.node.node import ENDED, Node, Phase
from ordercast.node.sessions import unwrap, wrap
from ordercast.node.settings import Settings
from ordercast.protocols.registry import Deployment
from ordercast.wire import batch

ASKED_AT_MOST = 32  # sites that one calls which knows nothing
NOWHERE = ClassId(0, 0)
"""The class of a destination that nobody is in now."""


class _Deployment:
    """What the machines of a changing site are built from: it answers what a `Deployment` is asked by a node."""

    receipts, plan, protocol = True, None, "as configured"

    def __init__(self, setup: Setup) -> None:
        self.setup, self.causal = setup, setup.causal
        self.groups = Configuration({}, {}, ())  # nothing is fixed

    def machines(self, me: SiteId, incarnation: int) -> Participant:
        """Build a participant; with configuration 0 it knows nothing, and learns everything from the others."""
        return Participant(me, self.setup, incarnation)

    @staticmethod
    def encode(state: snapshot.ParticipantState) -> bytes:
        """Return a snapshot as bytes."""
        return encode_snapshot(state)

    @staticmethod
    def decode(data: bytes) -> snapshot.ParticipantState:
        """Return a snapshot; raises HistoryError when the bytes are none."""
        return snapshot.decode(data)

    @staticmethod
    def entry(groups: Destination) -> None:
        """Where messages enter the plan is another question in every configuration."""


class ChangingChecker(Checker):
    """Checks what peers say; who may say what of which class, the participant knows."""

    def __init__(self, participant: Participant, doubts: Callable[[SiteId, int], str | None]) -> None:
        super().__init__(participant.me, Configuration({}, {}, ()), doubts)
        self.participant = participant

    def delivers(self, envelope: Envelope) -> bool:
        """Whether this site is in a group of an envelope in its class: a class that closes has the groups it had.

        Of a class that is not known here yet only bodies are checked that are there (errata 116).
        """
        setup, class_id = self.participant.setup, envelope.class_id
        of_class = setup.classes.get(class_id) or self.participant.earlier.get(class_id)
        if of_class is None:
            return bool(envelope.body)
        return any(self.me in of_class.members.get(group, ()) for group in envelope.groups)

    def knows(self, class_id: ClassId) -> bool:
        """A class may be of a configuration that this site has not heard of, or has forgotten."""
        return True

    def check(self, sender: SiteId, class_id: ClassId, message: Message) -> None:
        """Check one message; a state must be one."""
        super().check(sender, class_id, message)
        if type(message) is m.State and message.snapshot is not None:
            unwrap(message.snapshot)

    def cites(self, class_id: ClassId) -> bool:
        """What is said about configurations brings messages of closed classes."""
        return class_id == m.CONTROL


class ChangingDeliveries(Deliveries):
    """Counts deliveries. Classes come and go, so an order is not called after its first group."""

    def order(self, envelope: Envelope) -> str:
        """Return the name under which stamps must grow: the class of an envelope, and its first group."""
        return f"{envelope.class_id} {envelope.groups[0]}"

    def forget(self, classes: Iterable[ClassId], record: int) -> None:
        """Forget the stamps of classes that are no more, and where bodies stand that came before a record.

        What was not delivered within a whole configuration may never be; if it is, it gets a record of its own.
        """
        known = {str(class_id) for class_id in classes}
        self.stamps = {order: stamp for order, stamp in self.stamps.items() if order.partition(" ")[0] in known}
        self.bodies = {identity: came for identity, came in self.bodies.items() if came >= record}


def neighbours(setup: Setup, me: SiteId, known: Collection[ClassId] = ()) -> set[SiteId]:
    """Return who is linked with a site: its neighbours in the plans of classes, and the council with everybody.

    Others are called when there is something to say to them: n sites need not have n squared links. `known`: classes
    that were looked at before.
    """
    found = set(setup.sites) if me in setup.council else set(setup.council)
    for of_class in [of_class for class_id, of_class in setup.classes.items() if class_id not in known]:
        for edge in of_class.plan.edges if me in of_class.nodes and of_class.plan is not None else ():
            if me in (edge.parent, edge.child):
                found |= {edge.parent, edge.child}
    return found - {me}


def strangers(first: Setup | None, settings: Settings) -> set[SiteId]:
    """Return whom a site asks that knows no configuration: who is to begin with it, or some of those it knows."""
    known = sorted(settings.sites) if first is None else sorted({*first.council, min(first.sites)})
    return set(known[:ASKED_AT_MOST])


class ChangingNode(Node):
    """One site. It is always durable: a council whose members forget their promises decides twice."""

    def __init__(
        self, me: SiteId, settings: Settings, first: Setup | None, history: History, clock: Callable[[], float]
    ) -> None:
        """`first`: what the cluster begins with; None at a site that was added later, or has a history."""
        assert settings.changes, "peers would refuse who has lost its disk"
        if not settings.durable:
            raise InputError("groups that change take durable = true")
        super().__init__(me, settings, cast(Deployment, _Deployment(nothing())), history, clock)
        self._first, self.detector = first, Detector(settings.suspect_beats)
        self.migration = Migration(settings.suspect_beats, settings.migrate_at)
        self.participant = cast(Participant, self.machines)
        self.deliveries: ChangingDeliveries = ChangingDeliveries(frozenset(), self.configuration)
        self.reading.may_undo = lambda group: bool(self.participant.setup.may_undo(group))
        self.reading.enters = self.participant.opening.enters
        self.intake.checker = ChangingChecker(self.participant, self.peers.doubts)
        self._number = -1  # of the configuration that the parts of the node know
        self._classes: Collection[ClassId] = ()  # whose plans were looked at
        self._marks = (0, 0)  # the records that came before this configuration, and before the one before it
        self._tokens: dict[int, Any] = {}  # who waits for the answer to which request
        self._untold: list[tuple[Lot, int, int | None]] | None = []  # while the history is stepped through
        self._doors |= {
            io.Ask: self._ask,
            io.Beat: self._beat,
            io.LinkLost: self._link_lost,
            io.Suspect: lambda given: self.hear(e.Suspected(given.site)),
            io.Trust: lambda given: self.hear(e.Trusted(given.site)),
            io.Planned: lambda given: self.hear(e.Made(given.planned)),
            io.Snapshotted: self._snapshotted,
        }
        self._doing |= {
            e.Plan: lambda effect: self.tell(io.Plan(effect.setup, effect.wanted)),
            e.TakeSnapshot: lambda effect: self.tell(
                io.TakeSnapshot(effect.number, effect.groups, self.deliveries.count)
            ),
            e.ViewChanged: self._view_changed,
            e.RolledBack: self._rolled_back,
            e.Restored: self._restored,
            e.Answered: self._answered,
            e.Dropped: self._dropped,
        }
        self.outbox.begun = False
        self._look()

    # Starting.

    def start(self) -> Iterator[list[io.Output]]:
        """Come back from the history; then go on, and ask the application again for what it was asked for."""
        yield from super().start()
        for peer in sorted(self.peers.needed if not self._number else ()):  # nobody waits for a call of ours
            self.tell(io.Dial(peer))
        untold, self._untold = self._untold or [], None
        for lot, many, record in untold:
            self._index(lot, many, record)
        self.pipeline.put(self.participant.again())
        if self._first is not None and not self._number:
            self.hear(e.Begin(self._first))
        yield self.turn()

    def step_again(self, event: Event) -> list[Effect]:
        """Let the participant take an event of the history."""
        effects = self.participant.replay(event)
        self._look()
        return effects

    def do_again(self, effect: Effect) -> None:
        """Do what an earlier life has done, or would have."""
        if isinstance(effect, e.ViewChanged | e.RolledBack | e.Restored | e.Dropped):
            self._doing[type(effect)](effect)
        else:
            super().do_again(effect)

    # What a configuration changes for the parts of the node.

    def step(self, event: Event) -> None:
        """Let the participant take an event."""
        super().step(event)
        if self.participant.setup.number != self._number:
            self._look()

    def _look(self) -> None:
        """Another configuration may be in force: which groups are ours, and who is to be linked with."""
        setup = self.participant.setup
        if setup.number == self._number:
            return
        knows, founds = self._number < 1 <= setup.number, setup.founders.get(self.me) == self.incarnation
        self._number, self.causal = setup.number, setup.causal
        self.peers.sites.update(setup.sites)
        self.groups = frozenset(group for group in setup.groups if self.me in setup.members(group))
        if knows and self.exporting:
            self.tell(io.Began({group: setup.members(group) for group in setup.groups if founds and setup.number == 1}))
        self.deliveries.groups = self.intake.checker.groups = self.readers.own = self.groups
        self._marks = (self.pipeline.next_record, self._marks[0])
        self.deliveries.forget((*setup.classes, *self.participant.earlier), self._marks[1])
        known, self._classes = self._classes, setup.classes.keys()
        linked = neighbours(setup, self.me, known) if setup.number else strangers(self._first, self.settings)
        news = linked - self.peers.needed - {self.me}
        self.peers.needed |= news
        for peer in sorted(news):
            if peer > self.me and self.phase is Phase.RUNNING:
                self.tell(io.Dial(peer))
        if knows:
            self.outbox.begin()

    def _wake(self, given: io.Wake) -> None:
        super()._wake(given)
        if not self.pipeline.open:  # nothing is still to be done, so what may be undone is all known
            keep = len(self.participant.handed)
            self.undoable = self.undoable[len(self.undoable) - keep :] if keep else []

    def turn(self) -> list[io.Output]:
        """End a turn; what was delivered in it is told at once, because somebody may wait for it to be safe."""
        if self.phase is Phase.RUNNING and self.participant.stability.news:
            self.step(e.Tell())
        return super().turn()

    # Failures.

    def _beat(self, _: io.Beat) -> None:
        self.keeper.look()
        for event in list(self.detector.beat(self.peers.needed, self.peers.up, self.participant.detected)):
            self.note("site.suspected" if isinstance(event, e.Suspected) else "site.trusted", peer=event.site)
            self.hear(event)
        self.migration.beat(self)

    def _link_lost(self, given: io.LinkLost) -> None:
        self.links.lost(given)
        if given.silent:
            self.detector.silent(given.peer)

    # Asking.

    def hear(self, event: Event) -> None:
        """Let the participant take an event that comes from here."""
        self.step(event)
        self.pace.rest(self.clock())

    def _ask(self, given: io.Ask) -> None:
        self.hear(e.Requested(given.change))
        if given.token is not None:
            self._tokens[self.participant.requests] = given.token

    def _answered(self, effect: e.Answered) -> None:
        token = self._tokens.pop(effect.request, None)
        if token is not None:
            self.tell(io.Resolve(token, error=LocalError(effect.reason) if effect.reason else None))

    def _enter(self, phase: Phase) -> None:
        super()._enter(phase)
        if phase in ENDED:
            lost = LostError(f"{self.me} has stopped: what was asked for may be done, or not")
            for token in self._tokens.values():
                self.tell(io.Resolve(token, error=lost))
            self._tokens.clear()

    def _dropped(self, effect: e.Dropped) -> None:
        first, _ = batch.read_head(effect.body)
        self.tell(io.Dropped(effect.groups, batch.unpack(effect.body), effect.reason, first))
        self.outbox.dropped(effect.number, LostError(effect.reason))

    def refuse_post(self, groups: tuple[GroupId, ...], ack: AckLevel) -> None:
        """Raise what forbids a message of this site to these groups now."""
        self.refuse_now(ack)
        if self.outbox.begun:
            self.participant.setup.destination(self.me, groups)

    def forbids(self, groups: tuple[GroupId, ...]) -> OrdercastError | None:
        """Return why a batch that was begun cannot be sent any more: its group was deleted meanwhile."""
        try:
            self.participant.setup.destination(self.me, groups)
        except LocalError as error:
            return LostError(str(error))
        return None

    def class_of(self, groups: tuple[GroupId, ...]) -> ClassId:
        """Return the class of a destination; NOWHERE while nobody is there."""
        return next(self.participant.setup.class_of.get(group) for group in groups) or NOWHERE

    # The stream.

    def deliver(self, effect: Deliver, *, again: bool = False) -> None:
        """Give a delivery its position, and to readers."""
        envelope = effect.envelope
        identity = (envelope.source, envelope.incarnation, envelope.number)
        self.deliveries.numbers[envelope.source, envelope.incarnation, envelope.groups] = envelope.number
        origin = batch.origin_of(envelope.body)
        if origin is not None and not self.deliveries.sessions.is_new(envelope.groups, origin):
            self.deliveries.bodies.pop(identity, None)  # its client has posted it again, and it was delivered
            self.undoable.append((self.deliveries.count, 0, "", envelope.groups, None))
            return
        done = self.deliveries.add(effect)
        self.undoable.append((done.lot.position, done.many, done.order, envelope.groups, origin))
        self._put(done.lot, done.many, self.deliveries.bodies.pop(identity, None))
        if self.exporting:
            self.tell(done)

    def _say(self, groups: tuple[GroupId, ...], said: Said, epoch: int = 0) -> None:
        """Say something in the stream, beside messages."""
        lot = said_lot(self.deliveries.count, groups, said)
        if self.exporting:
            self.tell(io.Noted(self.deliveries.count, said, epoch))
        self.deliveries.count += 1
        self._put(lot, 1, None)

    def _put(self, lot: Lot, many: int, record: int | None) -> None:
        """Index what has a position now, unless an earlier life has, and give it to readers."""
        if self._untold is None:
            self._index(lot, many, record)
        elif lot.position >= self.history.next_position:
            self._untold.append((lot, many, record))
        self.readers.put(lot, many)

    def _index(self, lot: Lot, many: int, record: int | None) -> None:
        if record is None:
            record = self.pipeline.next_record
            self.pipeline.log(records.encode(records.Told(lot.groups, lot.source, lot.body)))
        self.pipeline.positions.append(Position(lot.position, many, record, lot.stamp))
        self.readers.recent.append(lot)

    def _view_changed(self, effect: e.ViewChanged) -> None:
        self.deliveries.sessions.viewed(effect.group, effect.joined, effect.members)
        view = ViewChanged(effect.group, effect.members, effect.joined, effect.left, effect.epoch, effect.away)
        self._say((effect.group,), view, effect.epoch)
        self.note("view.changed", group=effect.group, members=list(effect.members), epoch=effect.epoch)

    def _restored(self, effect: e.Restored) -> None:
        given = unwrap(effect.snapshot)
        self.deliveries.sessions.take_over(effect.group, given.sessions)
        self._say((effect.group,), Restored(effect.group, effect.count, given.state, effect.gap), effect.epoch)

    def _snapshotted(self, given: io.Snapshotted) -> None:
        """The application has given its states: what posts are in them goes along."""
        states = tuple((group, wrap(state, self.deliveries.sessions.of_group(group))) for group, state in given.states)
        self.hear(e.Snapshotted(given.number, states))

    def _rolled_back(self, effect: e.RolledBack) -> None:
        undone = self.undoable[len(self.undoable) - effect.many :]
        assert len(undone) == effect.many, "more is rolled back than was delivered"
        del self.undoable[len(self.undoable) - effect.many :]
        for _, _, order, concerned, origin in undone:
            self.deliveries.stamps.pop(order, None)
            if origin is not None:
                self.deliveries.sessions.undo(concerned, origin)
        positions = tuple(position for first, many, *_ in undone for position in range(first, first + many))
        groups = {group for *_, concerned, _ in undone for group in concerned}
        self._say(tuple(sorted(groups)), RolledBack(positions))
        self.note("history.rolled_back", messages=len(positions))
