"""What a peer may say: everything that machines take for granted is checked before they see it (errata 62)."""

from functools import cache

import msgspec

from ordercast.core.configuration import NUMBER_AT_MOST
from ordercast.core.events import Envelope, Message
from ordercast.core.streams import Carry
from ordercast.errors import PeerError
from ordercast.names import SiteId
from ordercast.protocols.registry import Deployment
from ordercast.protocols.swap.counting import Numbered
from ordercast.protocols.swap.multicast import Ordered
from ordercast.wire import batch


@cache
def _fields(kind: type[Message]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which fields of a message are numbers, and which are tables whose entries end with one."""
    fields = kind.__struct_fields__
    numbers = ("number", "upto", "last", "first", "count", "counted", "amount", "time", "priority", "place", "safe")
    hints = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return (
        tuple(name for name in fields if name in numbers and hints[name] is int),
        tuple(name for name in fields if name in ("context", "past", "numbers")),
    )


class Checker:
    """Knows the groups; raises PeerError for what no honest host sends. Who may say what, the machines check."""

    def __init__(self, me: SiteId, deployment: Deployment) -> None:
        self.me, self.groups = me, deployment.groups
        self.streams = 2 * len(self.groups.orders) + len(self.groups.members)

    def check(self, sender: SiteId, message: Message) -> None:
        """Check one message."""
        inner: Message = message
        if type(message) is Carry:
            inner = message.message
            if not 0 < message.number <= NUMBER_AT_MOST:
                raise PeerError(f"{sender} sent number {message.number}")
        stream = getattr(message, "stream", 0)
        if not 0 <= stream < self.streams:
            raise PeerError(f"{sender} sent {type(message).__name__} on stream {stream}")
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
            self._check_body(sender, envelope, stub=type(inner) in (Ordered, Numbered))

    def _check_body(self, sender: SiteId, envelope: Envelope, *, stub: bool) -> None:
        """A body is a batch: wholly checked where it is delivered, its head elsewhere; a stub has none."""
        if envelope.class_id not in self.groups.classes:
            raise PeerError(f"{sender} sent {envelope} in class {envelope.class_id}, which is none")
        self.groups.order_class(envelope.class_id).check(sender, envelope)
        if self.me in self.groups.union(envelope.groups):
            batch.unpack(envelope.body)
        elif envelope.body or not stub:
            batch.read_head(envelope.body)
