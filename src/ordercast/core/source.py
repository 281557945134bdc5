"""A site as a source: it numbers its envelopes, over all classes."""

import msgspec

from ordercast.core.events import Envelope, Multicast
from ordercast.names import ClassId, SiteId


class Source(msgspec.Struct):
    """One per site, shared by the machines of its classes."""

    me: SiteId
    incarnation: int = 1
    sent: int = 0
    """The number of the last envelope."""

    def envelope(self, class_id: ClassId, multicast: Multicast) -> Envelope:
        """Make an envelope, the next one or one that has its number; whether it may be sent is checked before."""
        number = multicast.number
        if not number:
            self.sent = number = self.sent + 1
        return Envelope(class_id, multicast.groups, self.me, self.incarnation, number, multicast.body)
