"""What this site has delivered: positions, the last of each source and order, and in which record each body stands."""

from ordercast.client.values import Lot
from ordercast.core.configuration import Configuration
from ordercast.core.effects import Deliver
from ordercast.core.events import Envelope
from ordercast.history.store import Position
from ordercast.names import GroupId, SiteId
from ordercast.node.inputs import Delivered
from ordercast.node.sessions import Sessions
from ordercast.wire import batch

Identity = tuple[SiteId, int, int]
"""Source, incarnation and number of an envelope."""
Stream = tuple[SiteId, int, tuple[GroupId, ...]]
"""Source, incarnation and destination: what one source sends to one destination is delivered in the order sent."""


Undoable = tuple[int, int, str, tuple[GroupId, ...], batch.Origin | None]
"""What was delivered and may be rolled back: position, how many messages, order, groups, and who posted it."""


class Deliveries:
    """One per node."""

    def __init__(self, groups: frozenset[GroupId], configuration: Configuration) -> None:
        self.groups = groups
        self.order_of = {group: names[0] for names in configuration.orders for group in names}
        self.count = 0  # messages delivered: the position of the next one
        self.last: dict[SiteId, int] = {}  # number of the last message of each source
        self.stamps: dict[GroupId, bytes] = {}  # of the last message of each order, by its name
        self.bodies: dict[Identity, int] = {}  # envelopes not yet delivered here, and the record each came in
        self.numbers: dict[Stream, int] = {}  # the last envelope of each stream that was delivered
        self.sessions = Sessions()  # where groups change: posts of clients that were delivered

    def hold(self, groups: tuple[GroupId, ...], identity: Identity, record: int) -> None:
        """Remember in which record an envelope came, when it is for us and was not delivered."""
        source, incarnation, number = identity
        if not self.groups.isdisjoint(groups) and number > self.numbers.get((source, incarnation, groups), 0):
            self.bodies.setdefault(identity, record)

    def add(self, effect: Deliver) -> Delivered:
        """Give a delivery its position."""
        envelope, stamp = effect.envelope, effect.stamp
        first, many = batch.read_head(envelope.body)
        lot = Lot(self.count, envelope.groups, envelope.source, first, stamp, envelope.body)
        self.count += many
        if first + many > self.last.get(envelope.source, 0):  # classes of one source may overtake each other
            self.last[envelope.source] = first + many - 1
        order = self.order(envelope)
        before = self.stamps.get(order)
        assert before is None or before < stamp, f"{envelope} was delivered after a larger stamp of its order"
        self.stamps[order] = stamp + (many - 1).to_bytes(4, "big")
        return Delivered(lot, many, envelope.class_id, order, before, envelope.incarnation)

    def order(self, envelope: Envelope) -> str:
        """Return the order that an envelope is in."""
        return self.order_of[envelope.groups[0]]

    def indexed(self, effect: Deliver, done: Delivered) -> Position:
        """Return the entry of a delivery in the index of the history; its body is not held back any more."""
        envelope = effect.envelope
        record = self.bodies.pop((envelope.source, envelope.incarnation, envelope.number))
        self.numbers[envelope.source, envelope.incarnation, envelope.groups] = envelope.number  # they only grow: FIFO
        return Position(done.lot.position, done.many, record, effect.stamp)
