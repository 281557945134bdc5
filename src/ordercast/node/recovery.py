"""What a node writes of itself, and how it comes back: the last checkpoint, then the records after it.

Machines are deterministic: a new machine that steps through the same records is the same machine, and delivers the same
again. What follows from the records but is not in a machine (positions, receipts, whom we have met) is rebuilt on the
way.

A checkpoint is taken in two halves. The machines are as they are when all records of a commit were stepped, before the
commit begins; everything else is as it is when all effects of that commit are done. Meanwhile more may have been sent:
what the machines of the checkpoint had not sent is left out, for its records come after the checkpoint.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from ordercast.client.values import Lot
from ordercast.core.effects import Deliver, Effect, Placed, Safe
from ordercast.core.events import Multicast
from ordercast.errors import HistoryError
from ordercast.history import records
from ordercast.history.store import Checkpoint, History, Position
from ordercast.names import GroupId, SiteId
from ordercast.node import inputs as io
from ordercast.node.changes import differences
from ordercast.node.deliveries import Identity, Stream, Undoable
from ordercast.node.peers import Life
from ordercast.node.retention import Mark, Retention
from ordercast.node.sessions import Kept
from ordercast.node.settings import Settings
from ordercast.wire import batch

if TYPE_CHECKING:
    from ordercast.node.node import Node

FORMAT = 1
SLICE = 1000  # records that are stepped through before the host has its turn


class Unfinished(msgspec.Struct, frozen=True, array_like=True):
    """An envelope of this site that was not known to be safe."""

    number: int
    groups: tuple[GroupId, ...]
    first: int
    many: int
    since: float
    stamp: bytes | None


class State(msgspec.Struct, frozen=True):
    """All there is to a node: what stands in a checkpoint."""

    format: int
    plan: str
    described: bytes
    machines: bytes
    messages: int
    """Sent by this site, by the time the machines were as they are here."""
    last_delivered: dict[SiteId, int]
    stamps: dict[GroupId, bytes]
    """The stamp of the last delivery of each order."""
    unfinished: list[Unfinished]
    bodies: list[tuple[Identity, int]]
    """Envelopes that are held back here, and the record that each came in."""
    numbers: list[tuple[Stream, int]]
    """The last envelope of each stream that was delivered."""
    met: dict[SiteId, Life]
    undoable: list[Undoable] = []
    """Where groups change: what was delivered and may be rolled back."""
    sessions: Kept = []
    """Where groups change: which posts of clients were delivered."""
    marks: list[Mark] = []
    """When how many messages and bytes there were (`node.retention`)."""


_encoder = msgspec.msgpack.Encoder(order="deterministic")
_decoder = msgspec.msgpack.Decoder(State)


def decode(data: bytes) -> State:
    """Return the state of a checkpoint; raises HistoryError when it is none."""
    try:
        state = _decoder.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise HistoryError(f"the checkpoint is damaged: {error}") from None
    if state.format != FORMAT:
        raise HistoryError(f"the checkpoint has format {state.format}, this program reads {FORMAT}")
    return state


class Frozen(NamedTuple):
    """The first half of a checkpoint."""

    records: int
    machines: bytes
    sent: int
    messages: int


def freeze(node: "Node") -> Frozen:
    """Take the first half: all records so far are stepped, none of this commit is written."""
    machines = node.deployment.encode(node.machines.snapshot())
    return Frozen(node.pipeline.next_record - 1, machines, node.machines.sent, node.outbox.messages)


def checkpoint(node: "Node", frozen: Frozen) -> Checkpoint:
    """Add the second half: everything that follows from the records of the first is done."""
    done, settings = node.deliveries, node.settings
    unfinished = [
        Unfinished(number, sent.groups, sent.first, sent.many, sent.since, sent.stamp)
        for number, sent in node.outbox.unsafe.items()
        if number <= frozen.sent
    ]
    state = State(
        format=FORMAT, plan=settings.plan, described=settings.described, machines=frozen.machines,
        messages=frozen.messages, last_delivered=done.last, stamps=done.stamps, unfinished=unfinished,
        bodies=[(identity, record) for identity, record in done.bodies.items() if record <= frozen.records],
        numbers=list(done.numbers.items()), met=node.peers.met, undoable=list(node.undoable),
        sessions=done.sessions.snapshot(), marks=node.keeper.retention.marks,
    )  # fmt: skip
    return Checkpoint(frozen.records, done.count, _encoder.encode(state))


class Keeper:
    """Tells when a write is done, and takes checkpoints."""

    def __init__(self, node: "Node") -> None:
        self.node = node
        self.checkpoints, self.commit_seconds = 0, 0.0
        self.retention = Retention(node.settings.limits)
        self._next: io.Keep | None = None  # waits for its index entries
        self._under_way = 0

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is under way."""
        return self._next is not None or self._under_way > 0

    def freeze(self) -> Frozen | None:
        """Take the first half of a checkpoint, when enough has been written since the last one."""
        node, pipeline = self.node, self.node.pipeline
        enough = pipeline.bytes > node.settings.limits.checkpoint_bytes or self.retention.due(node.clock())
        return None if self.busy or not enough else self._freeze()

    def _freeze(self) -> Frozen:
        self.retention.bytes += self.node.pipeline.bytes
        self.node.pipeline.bytes = 0
        return freeze(self.node)

    def committed(self, given: io.Committed) -> None:
        """A write is on disk: do what follows from it, and ask for a checkpoint when its first half was taken."""
        node = self.node
        self.commit_seconds += given.seconds
        positions, frozen = node.pipeline.committed()
        node.readers.written(len(positions))
        if frozen is not None and self._keep(frozen):
            return
        if self._next is not None:
            self._tell(self._next)

    def _keep(self, frozen: Frozen) -> bool:
        """Take the second half of a checkpoint; returns whether its index entries must be written before it."""
        node, now = self.node, self.node.clock()
        self.retention.mark(now, node.deliveries.count)
        oldest = self.retention.oldest(now, node.deliveries.count)
        needed = frozenset(record for record in node.deliveries.bodies.values() if record <= frozen.records)
        self._next = io.Keep(checkpoint(node, frozen), oldest, needed)
        return node.pipeline.write_positions()  # no reader finds a gap between the checkpoint and the index

    def _tell(self, keep: io.Keep) -> None:
        self.node.tell(keep)
        self.node.note("history.checkpoint", records=keep.checkpoint.records)
        self._next, self._under_way = None, self._under_way + 1

    def look(self) -> None:
        """Forget what is too old, also where nothing is written any more."""
        node, now = self.node, self.node.clock()
        if self.busy or node.pipeline.open or not node.settings.durable:
            return
        self.retention.look(now, node.deliveries.count)
        late = self.retention.late(now, node.history.first_position, node.deliveries.count)
        if late and not self._keep(self._freeze()) and self._next is not None:
            self._tell(self._next)

    def kept(self, _: io.Kept) -> None:
        """A checkpoint is on disk."""
        self.checkpoints += 1
        self._under_way -= 1

    def first(self) -> None:
        """Ask for the checkpoint that every history begins with."""
        self._under_way += 1
        self.node.tell(io.Keep(checkpoint(self.node, freeze(self.node)), 0))


def recover(node: "Node") -> Iterator[None]:
    """Bring a new node to where its history ends; yields now and then, so that its host can work off outputs."""
    found = node.history.checkpoint()
    if found is None:
        if node.settings.durable:
            node.keeper.first()
        return
    if node.settings.durable:  # before anybody hears of it: who restores an old copy of a disk has forgotten that
        begun = records.Met(node.me, node.incarnation, 0, 0, node.peers.boot)
        node.history.append([records.encode(begun)], [])
    _restore(node, found)
    yield
    for number, data in enumerate(node.history.records(found.records), start=found.records + 1):
        node.pipeline.replayed(data)
        _replay(node, records.decode(data), number)
        if number % SLICE == 0:
            yield


def check(history: History, settings: Settings, me: SiteId) -> State | None:
    """Return the state in the checkpoint of a history; raises HistoryError when it is of another plan."""
    found = history.checkpoint()
    if found is None:
        return None
    state = decode(found.state)
    if state.plan != settings.plan:
        told = differences(state.described, settings.described)
        raise HistoryError(
            f"{me} has a history of another plan ({told}); nothing was changed. Go back to what it was, or start"
            f" over: stop all sites, move {settings.data} aside on every machine, and start again"
        )
    return state


def _restore(node: "Node", found: Checkpoint) -> None:
    state = check(node.history, node.settings, node.me)
    assert state is not None
    node.machines.restore(node.deployment.decode(state.machines))
    node.pipeline.written = found.records
    done = node.deliveries
    done.count, done.last, done.stamps = found.delivered, state.last_delivered, state.stamps
    done.bodies, done.numbers = dict(state.bodies), dict(state.numbers)
    node.outbox.messages, node.peers.met, node.undoable = state.messages, state.met, list(state.undoable)
    done.sessions.restore(state.sessions)
    node.keeper.retention.restore(state.marks)
    for sent in state.unfinished:
        node.outbox.restore(sent.number, sent.groups, sent.first, sent.many, sent.since, sent.stamp)


def _replay(node: "Node", stored: "records.Stored", number: int) -> None:
    """Step through one record; what it delivers was delivered, or would have been."""
    if isinstance(stored, records.Met):
        met, start = node.peers.met, stored.start
        if stored.peer == node.me:
            start = met[node.me].start + 1 if node.me in met else 1
        met[stored.peer] = Life(stored.incarnation, stored.records, start, stored.boot)
        return
    if isinstance(stored, records.Told):
        return
    effects = node.step_again(stored)
    node.note_envelope(stored, number)
    if isinstance(stored, Multicast):
        first, many = batch.read_head(stored.body)
        node.outbox.messages = first + many - 1
        if node.receipts:
            node.outbox.restore(node.machines.sent, stored.groups, first, many, node.clock(), None)
        if node.exporting:
            node.tell(io.Sent(first, stored.groups, stored.body, node.deliveries.count))
    for effect in effects:
        node.do_again(effect)


def do_again(node: "Node", effect: Effect) -> None:
    """Do what an earlier life has done, or would have, of what is known only from records."""
    if type(effect) is Deliver:
        node.deliver(effect, again=True)
    elif type(effect) is Placed:
        node.outbox.placed(effect.number, effect.stamp)
    elif type(effect) is Safe:
        node.outbox.safe(effect.number)


def lot_of(entry: Position, record: bytes, me: SiteId) -> tuple[Lot, int]:
    """Return what was delivered at a position, from the record that its envelope came in."""
    stored = records.decode(record)
    if isinstance(stored, Multicast):
        groups, source, body = stored.groups, me, stored.body
    elif isinstance(stored, records.Told):
        groups, source, body = stored.groups, stored.source, stored.body
    else:
        envelope = records.envelope_of(stored)
        if envelope is None:
            raise HistoryError(f"position {entry.position} is said to stand in record {entry.record}, which has none")
        groups, source, body = envelope.groups, envelope.source, envelope.body
    first, many = batch.read_head(body)
    return Lot(entry.position, groups, source, first, entry.stamp, body), many
