"""Who may send what in message passing; checked before anything changes: what is refused leaves no trace (errata 62).

What comes down comes from the parent. What is to be ordered comes from its source, to its entry. A body that comes past
extra nodes comes from the site above them.
"""

from ordercast.core import stamps
from ordercast.core.configuration import Destination, OrderClass
from ordercast.core.events import Envelope, Message
from ordercast.core.streams import Carry
from ordercast.errors import LocalError, PeerError
from ordercast.names import SiteId
from ordercast.planning.routes import Routes
from ordercast.protocols.propagation.messages import Body, Close, Propagate


class Rules:
    """What one site may be sent."""

    def __init__(self, me: SiteId, groups: OrderClass, routes: Routes, *, causal: bool, direct: bool) -> None:
        """`direct`: bodies may go past extra nodes."""
        self.me, self.groups, self.routes, self.causal, self.direct = me, groups, routes, causal, direct
        self.first_stamp = stamps.first_of(groups.id)
        self._depths: dict[int, int] = {}
        self._sendable: set[tuple[SiteId, Destination]] = set()  # as many as sources and destinations there are

    def _depth(self, part: int) -> int:
        depth = self._depths.get(part)
        if depth is None:
            depth = self._depths[part] = self.routes.depth(part, self.me)
        return depth

    def check(self, sender: SiteId, carry: Carry[Message]) -> None:
        """Raise PeerError for what no honest peer sends."""
        message = carry.message
        if type(message) is Close:
            part, down = divmod(carry.stream, 2)
            if not down or part >= len(self.groups.parts) or sender != self.routes.parent(part, self.me):
                raise PeerError(f"{sender} sent Close, and is not above {self.me}")
            return
        if type(message) is Body:
            self._check_body(sender, carry.stream, message.envelope)
            return
        if type(message) is not Propagate:
            raise PeerError(f"{sender} sent what is not for propagation: {message}")
        envelope = message.envelope
        part = self.groups.check(sender, envelope)
        if carry.stream != 2 * part + bool(message.stamp):
            raise PeerError(f"{sender} sent {envelope} on stream {carry.stream}")
        try:
            entry = self.routes.entry(envelope.groups)
        except LocalError as error:
            raise PeerError(f"{sender} sent {envelope}: {error}") from None
        if message.stamp:
            if sender != self.routes.parent(part, self.me) or not self.routes.passes(self.me, envelope.groups):
                raise PeerError(f"{sender} sent {envelope} down, and is not above {self.me}")
            if not stamps.is_of_tree(message.stamp, self.first_stamp, self._depth(part)):
                raise PeerError(f"{sender} sent {envelope} with a stamp that nobody above {self.me} gives")
            if message.bare and not self._takes_places(sender, envelope):
                raise PeerError(f"{sender} sent the place of {envelope}, whose body comes with it")
        elif envelope.source != sender or entry != self.me or message.bare:
            raise PeerError(f"{sender} sent {envelope}, which is not its own or does not enter at {self.me}")
        self._check_past(sender, message)

    def _takes_places(self, sender: SiteId, envelope: Envelope) -> bool:
        """Whether there are extra nodes just above, or this is one: then the body may go another way."""
        relays = (self.routes.relays(self.me, envelope.groups), self.routes.giver(self.me, envelope.groups) is not None)
        return self.direct and any(relays) and not envelope.body

    def _check_body(self, sender: SiteId, stream: int, envelope: Envelope) -> None:
        part = self.groups.check(sender, envelope)
        try:
            passes = self.routes.passes(self.me, envelope.groups)
        except LocalError as error:
            raise PeerError(f"{sender} sent the body of {envelope}: {error}") from None
        own = self.direct and passes and sender == self.routes.giver(self.me, envelope.groups)
        if not own or stream != 2 * len(self.groups.parts) + part:
            raise PeerError(f"{sender} sent the body of {envelope}, which comes another way")

    def _check_past(self, sender: SiteId, message: Propagate) -> None:
        """What a message names was sent before it: by its source, or with `causal` by anybody."""
        envelope = message.envelope
        for source, groups, number in message.past:
            if (source, groups) not in self._sendable:
                self._check_named(sender, envelope, source, groups)
            own = source == envelope.source
            if (not own and not self.causal) or (own and number >= envelope.number):
                raise PeerError(f"{sender} sent {envelope} after {source}:{number}, which does not come before it")
        if not 0 <= message.safe < envelope.number:
            raise PeerError(f"{sender} sent {envelope} and calls {message.safe} messages safe")

    def _check_named(self, sender: SiteId, envelope: Envelope, source: SiteId, groups: Destination) -> None:
        try:
            self.groups.origin(source, groups)
            self.routes.entry(groups)
        except LocalError as error:
            raise PeerError(f"{sender} sent {envelope} after a message that nobody sends: {error}") from None
        self._sendable.add((source, groups))
