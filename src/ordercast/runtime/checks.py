"""What a peer may say: everything that machines take for granted is checked before they see it (errata 62)."""

from functools import cache

import msgspec

from ordercast.core.edges import Carry
from ordercast.core.events import Envelope, Message
from ordercast.errors import PeerError
from ordercast.protocols.counting import Numbered
from ordercast.protocols.deployment import Deployment
from ordercast.protocols.swap import Ordered
from ordercast.types import SiteId
from ordercast.wire import batch

NUMBER_AT_MOST = 2**62


@cache
def _fields(kind: type[Message]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return which fields of a message are numbers, and which are tables of groups and numbers."""
    fields = kind.__struct_fields__
    numbers = ("number", "upto", "last", "first", "count", "counted", "amount", "time", "priority", "place")
    hints = {field.name: field.type for field in msgspec.structs.fields(kind)}
    return (
        tuple(name for name in fields if name in numbers and hints[name] is int),
        tuple(name for name in fields if name in ("context", "past", "numbers")),
    )


class Checker:
    """Knows the groups; raises PeerError for what no honest peer sends."""

    def __init__(self, me: SiteId, deployment: Deployment) -> None:
        self.me, self.groups = me, deployment.groups
        self.apart = deployment.protocol in (
            "two-phase",
            "timestamp",
        )  # one message may go to groups of several classes
        groups = self.groups
        self.sources = frozenset(groups.sources)
        self.streams = 2 * len(groups.classes) + 2

    def check(self, sender: SiteId, message: Message) -> None:
        """Check one message."""
        inner: Message = message
        if type(message) is Carry:
            inner = message.message
            if not 0 <= message.stream < self.streams or not 0 < message.number <= NUMBER_AT_MOST:
                raise PeerError(f"{sender} sent number {message.number} on stream {message.stream}")
        envelope: Envelope | None = getattr(inner, "envelope", None)
        if envelope is not None:
            self._check_envelope(sender, envelope, stub=type(inner) in (Ordered, Numbered))
        kind = type(inner)
        numbers, tables = _fields(kind)
        for name in numbers:
            value = getattr(inner, name)
            if not 0 <= value <= NUMBER_AT_MOST:
                raise PeerError(f"{sender} sent {kind.__name__} with {name} {value}")
        for name in tables:
            for entry in getattr(inner, name):
                group, number = entry[-2], entry[-1]
                if group not in self.groups.members or not 0 <= number <= NUMBER_AT_MOST:
                    raise PeerError(f"{sender} sent {kind.__name__} with {name} {entry}")
        group = getattr(inner, "group", None)
        if group is not None and group not in self.groups.members:
            raise PeerError(f"{sender} speaks of group {group!r}, which is not here")

    def _check_envelope(self, sender: SiteId, envelope: Envelope, *, stub: bool) -> None:
        groups = self.groups
        if not envelope.groups or any(group not in groups.members for group in envelope.groups):
            raise PeerError(f"{sender} sent {envelope.msg_id} to groups that are not here: {envelope.groups}")
        same = envelope.groups[:1] if self.apart else envelope.groups
        if any(groups.class_of(group) != envelope.order_class for group in same):
            raise PeerError(f"{sender} sent {envelope} in class {envelope.order_class}")
        if envelope.epoch != groups.epoch:
            raise PeerError(f"{sender} sent {envelope} of epoch {envelope.epoch}, this is {groups.epoch}")
        if envelope.source not in self.sources or not 0 < envelope.number <= NUMBER_AT_MOST:
            raise PeerError(f"{sender} sent {envelope}, whose source or number is none")
        mine = self.me in groups.union(envelope.groups)
        if envelope.body or mine or not stub:
            if mine:
                batch.unpack(envelope.body)
            else:
                batch.read_head(envelope.body)
