"""A site without I/O: what happens is fed to `take`, and what is to be done comes back, in order.

A node is made of parts that know little of each other: `Intake` lets in what peers say, `Pipeline` makes it durable,
`Outbox` batches and holds back what the site sends, `Deliveries` counts what is delivered, `Readers` holds what
applications have not read, `Peers` knows who may be talked to, `Pace` when to tick. The node passes between them; the
machines of its classes decide on the order.
"""

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

from ordercast.client.values import AckLevel, Place, Policy
from ordercast.core.effects import Deliver, Effect, Placed, Refuse, Safe, Send
from ordercast.core.events import Event, Multicast, Tick
from ordercast.errors import HistoryError, LocalError, LostError, OrdercastError
from ordercast.history import records
from ordercast.history.store import History
from ordercast.names import ClassId, GroupId, SiteId
from ordercast.node import inputs as io
from ordercast.node import recovery
from ordercast.node.deliveries import Deliveries, Undoable
from ordercast.node.intake import Checker, Intake
from ordercast.node.links import Links
from ordercast.node.outbox import Outbox
from ordercast.node.pace import Pace
from ordercast.node.peers import Peers, neighbours
from ordercast.node.pipeline import Pipeline
from ordercast.node.readers import Reader, Readers
from ordercast.node.reading import Reading
from ordercast.node.recovery import Keeper
from ordercast.node.settings import Settings
from ordercast.protocols.registry import Deployment
from ordercast.wire.codec import Encoder


class Phase(Enum):
    """What a node is doing; see `NEXT` for what may follow what."""

    STARTING = "starting"
    RUNNING = "running"
    DRAINING = "draining"
    FAILED = "failed"
    STOPPED = "stopped"


NEXT = {
    Phase.STARTING: {Phase.RUNNING, Phase.FAILED},
    Phase.RUNNING: {Phase.DRAINING, Phase.FAILED},
    Phase.DRAINING: {Phase.STOPPED, Phase.FAILED},
    Phase.FAILED: set[Phase](),
    Phase.STOPPED: set[Phase](),
}
ENDED = (Phase.FAILED, Phase.STOPPED)


class Node:
    """One site. It touches no socket, disk, thread or random source; `clock` is the only thing it reads."""

    def __init__(
        self, me: SiteId, settings: Settings, deployment: Deployment, history: History, clock: Callable[[], float]
    ) -> None:
        self.me, self.settings, self.deployment, self.history, self.clock = me, settings, deployment, history, clock
        self.configuration = deployment.groups
        self.groups = frozenset(g for g, sites in self.configuration.members.items() if me in sites)
        self.receipts, self.causal, self.exporting = deployment.receipts, deployment.causal, settings.exporting
        self.phase, self.failed = Phase.STARTING, None  # type: Phase, OrdercastError | None
        self.incarnation = history.identity.incarnation
        self.machines = deployment.machines(me, self.incarnation)
        self.undoable: list[Undoable] = []  # where groups change (`node.changing`)
        self._out: list[io.Output] = []
        self._woken_at: float | None = None  # the wake that was asked for
        self._encoder = Encoder()
        limits, self.pace = settings.limits, Pace()
        self.deliveries = Deliveries(self.groups, self.configuration)
        self.readers = Readers(limits.inbox_bytes, self.class_of, self.groups, self.tell, me)
        self.peers = Peers(me, settings, neighbours(deployment, me), self.incarnation, int(clock() * 1000))
        self.links, self.reading = Links(self), Reading(self)
        checker = Checker(me, self.configuration, self.peers.doubts)
        self.intake = Intake(checker, self.readers, self.pace, clock, self.step, self.tell, self.links.lost_history)
        self.outbox = Outbox(self, limits, self.tell)
        self.keeper = Keeper(self)
        self.pipeline = Pipeline(
            durable=settings.durable, record=self._record, do=self._do, tell=self.tell, freeze=self.keeper.freeze
        )
        self._doors: dict[type, Callable[[Any], None]] = {
            io.FromPeer: lambda given: self.intake.take(given.peer, given.messages),
            io.Greeted: self.links.greeted,
            io.LinkMade: self.links.made,
            io.LinkLost: self.links.lost,
            io.RefusedBy: self.links.refused_by,
            io.Post: self._post,
            io.Withdraw: lambda given: self.outbox.withdraw(given.token),
            io.Flush: self._flush,
            io.Committed: self.keeper.committed,
            io.Kept: self.keeper.kept,
            io.DiskFailed: lambda given: self.fail(given.error),
            io.Took: self.reading.took,
            io.Past: self.reading.past,
            io.Leave: self.reading.leave,
            io.Wake: self._wake,
            io.Beat: lambda _: self.keeper.look(),
            io.Drain: self._drain,
        }
        self._doing: dict[type, Callable[[Any], None]] = {
            Send: self._send,
            Deliver: self.deliver,
            Placed: lambda effect: self.outbox.placed(effect.number, effect.stamp),
            Safe: lambda effect: self.outbox.safe(effect.number),
            Refuse: self.links.refuse,
            io.LinkMade: self.links.passes,
            io.Resolve: self.tell,
            io.Sent: self.tell,
        }

    # Doors.

    def take(self, given: io.Input) -> list[io.Output]:
        """Take one input to completion and return what is to be done, in order."""
        if self.phase in ENDED:
            return []
        self._doors[type(given)](given)
        return self.turn()

    def turn(self) -> list[io.Output]:
        """End a turn: begin to write, and say when to wake. Also for whoever went through `outbox.add`."""
        self.outbox.stirred = False
        self.pipeline.begin()
        if self.phase is Phase.DRAINING and not self.pipeline.open and not self.keeper.busy:
            self._enter(Phase.STOPPED)
            self.outbox.close(LostError("the site was stopped"))
            self.readers.close(LostError("the site was stopped"))
            self.tell(io.Stopped())
        times = [time for time in (self.pace.tick_at, self.outbox.send_at) if time is not None]
        if times and self.phase not in ENDED and (self._woken_at is None or min(times) < self._woken_at):
            self._woken_at = min(times)
            self.tell(io.WakeAt(self._woken_at))
        return self._taken()

    def _taken(self) -> list[io.Output]:
        out, self._out = self._out, []
        return out

    def tell(self, output: io.Output) -> None:
        """Have something done by the host."""
        self._out.append(output)

    def go_on_from(self, position: int, messages: int) -> None:
        """Give no position and no number twice that an earlier life has exported; where nothing else was kept."""
        self.deliveries.count, self.outbox.messages = position, messages

    def start(self) -> Iterator[list[io.Output]]:
        """Come back from the history, slice by slice, then run; raises HistoryError when it does not check out."""
        for _ in recovery.recover(self):
            yield self._taken()
        self.links.begin()
        self._enter(Phase.RUNNING)
        self.note("site.started", records=self.pipeline.written, delivered=self.deliveries.count)
        for peer in sorted(self.peers.needed):
            if peer > self.me:  # of two neighbours the first calls
                self.tell(io.Dial(peer))
        self.pace.rest(self.clock())
        yield self.turn()

    def _enter(self, phase: Phase) -> None:
        assert phase in NEXT[self.phase], f"{self.phase.value} cannot become {phase.value}"
        self.phase = phase

    def fail(self, error: OrdercastError) -> None:
        """Acknowledge nothing more, and tell all who wait: the disk is full or broken, or this is a bug."""
        if self.phase in ENDED:
            return
        self._enter(Phase.FAILED)
        self.failed, self.peers.failed = error, str(error)
        for work in self.pipeline.clear():
            if type(work) is io.Resolve:  # who waits for the commit hears that there is none
                self.tell(io.Resolve(work.token, error=error))
        self.intake.parked.clear()
        self.outbox.close(error)
        self.readers.close(error)
        self.note("site.failed", reason=str(error))
        self.tell(io.Stopped(error))

    def _drain(self, _: io.Drain) -> None:
        if self.phase is Phase.RUNNING:  # who asks twice is not answered twice
            self.outbox.send_open()
            self._enter(Phase.DRAINING)

    def _wake(self, _: io.Wake) -> None:
        self._woken_at, now = None, self.clock()
        if self.outbox.send_at is not None and self.outbox.send_at <= now:
            self.outbox.send_open()
        if self.pace.tick_at is not None and self.pace.tick_at <= now:
            self.step(Tick(now))
            if not self.receipts:
                self.outbox.count_under_way(self.machines.under_way)
            self.pace.ticked(now, idle=self.machines.idle)

    def note(self, event: str, **facts: Any) -> None:
        """Have one line logged: a stable name and facts."""
        self.tell(io.Note(event, facts))

    # Events in, effects out.

    def step(self, event: Event) -> None:
        """Let the machines take an event; what they ask for goes through the pipeline."""
        self.pipeline.put(self.machines.step(event))

    def step_again(self, event: Event) -> list[Effect]:
        """Let the machines take an event of the history."""
        return self.machines.step(event)

    def do_again(self, effect: Effect) -> None:
        """Do what an earlier life has done, or would have, and what is known only from that."""
        recovery.do_again(self, effect)

    def _record(self, event: Event) -> bytes:
        self.note_envelope(event, self.pipeline.next_record)
        return records.encode_event(event, self._encoder)

    def note_envelope(self, event: Event, record: int) -> None:
        """Remember in which record an envelope came, and in which life its source is."""
        if type(event) is Multicast:
            self.deliveries.hold(event.groups, (self.me, self.incarnation, self.machines.sent), record)
        elif (envelope := records.envelope_of(event)) is not None:
            self.peers.heard_of(envelope.source, envelope.incarnation)
            if envelope.body:
                self.deliveries.hold(envelope.groups, (envelope.source, envelope.incarnation, envelope.number), record)

    def _do(self, work: Any) -> None:
        self._doing[type(work)](work)

    def _send(self, effect: Send) -> None:
        if effect.to in self.peers.up:
            self._out.append(effect)
        elif effect.to not in self.peers.needed:  # the machines say it again when the link is there
            self.peers.needed.add(effect.to)
            self.tell(io.Dial(effect.to))

    def deliver(self, effect: Deliver, *, again: bool = False) -> None:
        """Give a delivery its position, and to readers; `again`: an earlier life may have done so."""
        done = self.deliveries.add(effect)
        if self.settings.durable:
            position = self.deliveries.indexed(effect, done)
            if not again or position.position >= self.history.next_position:
                self.pipeline.positions.append(position)
                self.readers.recent.append(done.lot)
        self.readers.put(done.lot, done.many)
        if self.exporting:
            self.tell(done)

    # Sending.

    def _post(self, post: io.Post) -> None:
        try:
            self.outbox.post(post)
        except OrdercastError as error:
            self.tell(io.Resolve(post.token, error=error))

    def _flush(self, given: io.Flush) -> None:
        self.outbox.send_open()
        self.after_commit(io.Resolve(given.token))

    def refuse_post(self, groups: tuple[GroupId, ...], ack: AckLevel) -> None:
        """Raise what forbids a message of this site to these groups, before anything changes."""
        self.refuse_now(ack)
        self.deployment.check(self.me, groups)

    def refuse_now(self, ack: AckLevel) -> None:
        """Raise what forbids any message of this site."""
        if self.failed is not None:
            raise self.failed
        if self.phase is not Phase.RUNNING:
            raise LocalError(f"the site is {self.phase.value}")
        if self.peers.lost is not None:
            raise HistoryError(f"nothing is sent: {self.peers.lost}")
        if ack not in ("none", "ordered", "safe"):
            raise LocalError(f"ack is none, ordered or safe, not {ack!r}")
        if ack != "none" and not self.receipts:
            raise LocalError(f"protocol {self.deployment.protocol} gives no receipts: ack must be 'none'")

    def forbids(self, groups: tuple[GroupId, ...]) -> OrdercastError | None:
        """Return why a batch that was begun cannot be sent any more: groups that are fixed stay."""
        return None

    def class_of(self, groups: tuple[GroupId, ...]) -> ClassId:
        """Return the class of a destination."""
        return self.configuration.destination(groups)

    def originate(self, multicast: Multicast) -> None:
        """Give the machines what this site sends."""
        self.pace.active = True
        self.step(multicast)
        if multicast.receipt:
            self.pace.hurry(self.clock())
        self.pace.rest(self.clock())

    def after_commit(self, output: io.Output) -> None:
        """Put an output behind what is to be written."""
        self.pipeline.put([output])

    # Reading.

    def reader(self, name: str, groups: list[GroupId] | None, after: int | Place | None, policy: Policy) -> Reader:
        """Open a reader of all groups this site is in, or of some; after a position or a message, or from now on."""
        return self.reading.open(name, groups, after, policy)
