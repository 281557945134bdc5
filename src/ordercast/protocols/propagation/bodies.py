"""Large bodies that go past extra nodes (MGT §4.2, repaired: errata 24, 25), and wait here until their places come."""

from collections.abc import Iterable, Iterator

import msgspec

from ordercast.core.effects import Held
from ordercast.core.events import Envelope
from ordercast.names import SiteId
from ordercast.planning.routes import Routes
from ordercast.protocols.propagation.messages import Propagate

MsgKey = tuple[SiteId, int, int]
"""Source, incarnation, number."""


def key_of(envelope: Envelope) -> MsgKey:
    """Return the name of a message."""
    return envelope.source, envelope.incarnation, envelope.number


class Bodies:
    """Those of one site. Bodies of `at_least` bytes go past extra nodes; 0: none."""

    def __init__(self, me: SiteId, routes: Routes, at_least: int) -> None:
        self.me, self.routes, self.at_least = me, routes, at_least
        self.kept: dict[MsgKey, bytes] = {}

    def take(self, envelope: Envelope) -> None:
        """Keep a body until its place comes."""
        self.kept[key_of(envelope)] = envelope.body

    def missing(self, message: Propagate) -> str | None:
        """Return what a place waits for: its body, where this site has use of it."""
        envelope = message.envelope
        if not message.bare or key_of(envelope) in self.kept or self.routes.relays(self.me, envelope.groups):
            return None
        return f"its body has not come from {self.routes.giver(self.me, envelope.groups)}"

    def joined(self, message: Propagate) -> Propagate:
        """Return a message with its body, if that came another way and this site has use of it."""
        if not message.bare or self.routes.relays(self.me, message.envelope.groups):
            return message
        envelope = msgspec.structs.replace(message.envelope, body=self.kept.pop(key_of(message.envelope)))
        return msgspec.structs.replace(message, envelope=envelope, bare=False)

    def ends(self, children: Iterable[SiteId], envelope: Envelope) -> dict[SiteId, SiteId]:
        """Return the children that a body need not pass, and where it goes instead."""
        if not 0 < self.at_least <= len(envelope.body):
            return {}
        return {child: end for child in children if (end := self.routes.shortcut(child, envelope.groups))}

    def held(self, now: float) -> Iterator[Held]:
        """Say which bodies wait."""
        for source, _, number in self.kept:
            yield Held(f"{source}:{number}", "its body is here, its place has not come from above", now)


def place_of(message: Propagate) -> Propagate:
    """Return a message without its body."""
    return msgspec.structs.replace(message, envelope=msgspec.structs.replace(message.envelope, body=b""), bare=True)
