"""A site as a source: it numbers its envelopes, over all classes."""

import msgspec

from ordercast.core.events import Envelope
from ordercast.names import ClassId, GroupId, SiteId


class Source(msgspec.Struct):
    """One per site, shared by the machines of its classes."""

    me: SiteId
    incarnation: int = 1
    sent: int = 0
    """The number of the last envelope."""

    def envelope(self, class_id: ClassId, groups: tuple[GroupId, ...], body: bytes) -> Envelope:
        """Make the next envelope; whether it may be sent is checked before."""
        self.sent += 1
        return Envelope(class_id, groups, self.me, self.incarnation, self.sent, body)
