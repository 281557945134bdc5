"""What a peer may say, and when it is let in.

Everything that machines take for granted is checked before they see it (errata 62). While a reader holds up a class,
the messages of that class wait outside its machine, in order; what repairs and acknowledges is let in.
"""

from collections import deque
from collections.abc import Callable
from functools import cache

import msgspec

from ordercast.core.configuration import NUMBER_AT_MOST, Configuration
from ordercast.core.events import Control, Envelope, Event, Message, Received
from ordercast.core.streams import Ack, Carry, Null, Resend
from ordercast.errors import LostHistoryError, PeerError
from ordercast.names import ClassId, SiteId
from ordercast.node.inputs import Hangup, Output
from ordercast.node.pace import Pace
from ordercast.node.readers import Readers
from ordercast.protocols.swap.counting import Numbered
from ordercast.protocols.swap.multicast import Ordered
from ordercast.wire import batch

NUMBERS = {
    "number",
    "upto",
    "last",
    "first",
    "count",
    "counted",
    "amount",
    "time",
    "priority",
    "place",
    "safe",
    "sent",
    "acked",
    "received",
}
TABLES = ("context", "past", "numbers", "beyond")
"""Fields that are tables whose entries end with a number."""
STUBS = (Ordered, Numbered)
"""Messages whose envelope has no body where it is not delivered."""


@cache
def _fields(kind: type[Message]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which fields of a message are numbers, and which are tables."""
    hints = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return (
        tuple(name for name, hint in hints.items() if name in NUMBERS and hint is int),
        tuple(name for name in hints if name in TABLES),
    )


class Checker:
    """Knows the configuration; raises PeerError for what no honest host sends. Who may say what, the machines check."""

    def __init__(self, me: SiteId, configuration: Configuration, doubts: Callable[[SiteId, int], str | None]) -> None:
        """`doubts` says why an envelope of this life of a source is not taken, if so."""
        self.me, self.configuration, self._doubts = me, configuration, doubts
        self.groups = frozenset(group for group, sites in configuration.members.items() if me in sites)

    def check(self, sender: SiteId, class_id: ClassId, message: Message) -> None:
        """Check one message."""
        inner: Message = message
        if not self.knows(class_id):
            raise PeerError(f"{sender} sent {type(message).__name__} of class {class_id}, which is not here")
        if type(message) is Carry:
            inner = message.message
            if not 0 < message.number <= NUMBER_AT_MOST:
                raise PeerError(f"{sender} sent number {message.number}")
        kind = type(inner)
        numbers, tables = _fields(kind)
        for name in numbers:
            value = getattr(inner, name)
            if not 0 <= value <= NUMBER_AT_MOST:
                raise PeerError(f"{sender} sent {kind.__name__} with {name} {value}")
        for name in tables:
            for entry in getattr(inner, name):
                if not 0 <= entry[-1] <= NUMBER_AT_MOST:
                    raise PeerError(f"{sender} sent {kind.__name__} with {name} {entry}")
        envelope: Envelope | None = getattr(inner, "envelope", None)
        if envelope is not None:
            if envelope.class_id != class_id and not self.cites(class_id):
                raise PeerError(f"{sender} sent {envelope} of class {envelope.class_id} as class {class_id}")
            doubts = self._doubts(envelope.source, envelope.incarnation)
            if doubts is not None:
                raise LostHistoryError(doubts)
            if not getattr(inner, "bare", False):
                self._check_body(envelope, may_be_empty=kind in STUBS)

    def knows(self, class_id: ClassId) -> bool:
        """Whether this site may hear of a class."""
        return class_id in self.configuration.classes

    def cites(self, class_id: ClassId) -> bool:
        """Whether messages of a class bring envelopes of others."""
        return False

    def delivers(self, envelope: Envelope) -> bool:
        """Whether this site is in a group of an envelope."""
        return not self.groups.isdisjoint(envelope.groups)

    def _check_body(self, envelope: Envelope, *, may_be_empty: bool) -> None:
        """A body is a batch: wholly checked where it is delivered, its head elsewhere; a stub has none, nor an end."""
        if self.delivers(envelope):
            batch.unpack(envelope.body)
        elif envelope.body or (envelope.groups and not may_be_empty):
            batch.read_head(envelope.body)


class Intake:
    """What peers said, let in class by class; what waits is bounded by the windows of the sources."""

    def __init__(
        self,
        checker: Checker,
        readers: Readers,
        pace: Pace,
        clock: Callable[[], float],
        step: Callable[[Event], None],
        tell: Callable[[Output], None],
        lost: Callable[[SiteId, str], None],
    ) -> None:
        """`lost` is called with a peer that passes on what a site without its history sent, and the reason."""
        self.checker, self.readers, self.pace = checker, readers, pace
        self.clock, self.step, self.tell, self.lost = clock, step, tell, lost
        self.parked: dict[ClassId, deque[tuple[SiteId, Message]]] = {}
        self.waited = 0  # messages that ever waited
        self.resent = 0  # messages that peers asked for again
        self.extra = 0  # envelopes for groups this site is not in

    def take(self, peer: SiteId, messages: list[tuple[ClassId, Message]]) -> None:
        """Let in what a peer sent; what no honest peer sends ends the link to it."""
        now = self.clock()
        try:
            for class_id, message in messages:
                self.checker.check(peer, class_id, message)
                if (self.parked or self.readers.full) and self._holds(peer, class_id, message):
                    continue
                self._let_in(peer, class_id, message, now)
        except LostHistoryError as error:
            self.lost(peer, str(error))
        except PeerError as error:
            self.tell(Hangup(peer, str(error)))
        self.pace.active = True
        self.pace.rest(now)

    def _holds(self, peer: SiteId, class_id: ClassId, message: Message) -> bool:
        """Whether a message waits outside now, or is dropped because what it speaks of waits there."""
        queue = self.parked.get(class_id)
        if queue is None and not self.readers.holds_up(class_id):
            return False
        if type(message) is Null:  # it would make the machine ask again for what waits outside already
            return queue is not None
        if isinstance(message, Control):
            return False
        self.parked.setdefault(class_id, deque()).append((peer, message))
        self.waited += 1
        return True

    def _let_in(self, peer: SiteId, class_id: ClassId, message: Message, now: float) -> None:
        self.step(Received(peer, message, class_id))
        if type(message) is Carry:
            envelope = getattr(message.message, "envelope", None)
            if envelope is not None:
                self.pace.took(now, len(envelope.body))
                self.extra += self.checker.groups.isdisjoint(envelope.groups)
            if getattr(message.message, "receipt", False):
                self.pace.hurry(now)
        elif type(message) is Resend:
            self.resent += message.last - message.first + 1
        elif type(message) is Ack:
            self.pace.acknowledged(now)

    def let_in(self) -> None:
        """A reader has read, or is gone: let in what waited, as far as there is room."""
        now = self.clock()
        for class_id in list(self.parked):
            queue = self.parked[class_id]
            while queue and not self.readers.holds_up(class_id):
                peer, message = queue.popleft()
                try:
                    self._let_in(peer, class_id, message, now)
                except PeerError as error:
                    self.tell(Hangup(peer, str(error)))
            if not queue:
                del self.parked[class_id]
        self.pace.rest(now)
