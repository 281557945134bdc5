"""What happens to a machine, and the envelope that everything is about."""

import msgspec

from ordercast.names import ClassId, GroupId, SiteId


class Envelope(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A batch of messages of one source to one destination, with the header every later rule needs (errata 57)."""

    class_id: ClassId
    groups: tuple[GroupId, ...]
    """Usually one; several where the machine allows it, delivered once at each site in their union."""
    source: SiteId
    incarnation: int
    number: int
    """Counts the source's envelopes from 1, over all classes, and never restarts within an incarnation."""
    body: bytes

    @property
    def msg_id(self) -> str:
        """A name for traces and logs; (source, incarnation, number) is the identity."""
        life = "" if self.incarnation == 1 else f"/{self.incarnation}"
        return f"{self.source}{life}:{self.number}"

    def __str__(self) -> str:
        return f"{self.msg_id} {'+'.join(self.groups)}"


class Message(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """What one machine sends another."""


class Control(Message, frozen=True, gc=False):
    """A message that repairs or acknowledges; the papers' costs (GS88 §4) do not count it."""


class Multicast(msgspec.Struct, frozen=True, gc=False):
    """The application at this site sends a body to a group, or to several at once."""

    groups: tuple[GroupId, ...]
    body: bytes
    receipt: bool = False
    """The application waits to hear of its place."""
    number: int = 0
    """Of a message that has its number already, because it waited or is sent again in another class (errata 10)."""
    disks: int = -1
    """Of a message that its client has posted before: how many disks the cluster had lost then (errata 125)."""

    def __str__(self) -> str:
        return f"multicast {'+'.join(self.groups)}"


class Received(msgspec.Struct, frozen=True, gc=False):
    """A message arrived; received is not delivered (KIN §3.1)."""

    sender: SiteId
    message: Message
    class_id: ClassId

    def __str__(self) -> str:
        return f"{self.sender} -> {self.message}"


class Tick(msgspec.Struct, frozen=True, gc=False):
    """Time passes: the only clock a machine has."""

    now: float

    def __str__(self) -> str:
        return f"tick {self.now:g}"


class LinkUp(msgspec.Struct, frozen=True, gc=False):
    """The link to a peer is there, for the first time or again; what was under way on an earlier one may be lost."""

    peer: SiteId

    def __str__(self) -> str:
        return f"link up {self.peer}"


class LinkDown(msgspec.Struct, frozen=True, gc=False):
    """The link to a peer is gone."""

    peer: SiteId
    whole: bool = False
    """The host promises that nothing that is sent from now on reaches the peer before `LinkUp`."""

    def __str__(self) -> str:
        return f"link down {self.peer}"


class PeerReset(msgspec.Struct, frozen=True, gc=False):
    """A peer has begun a new life, under another incarnation: it remembers nothing of what was exchanged with it."""

    peer: SiteId
    incarnation: int

    def __str__(self) -> str:
        return f"{self.peer} begins anew as {self.incarnation}"


class Forgot(msgspec.Struct, frozen=True, gc=False):
    """A peer has lost its disk, and goes on in other classes: what of it is parked here will never be complete."""

    peer: SiteId

    def __str__(self) -> str:
        return f"{self.peer} forgot"


class Finish(msgspec.Struct, frozen=True, gc=False):
    """The class is closed along its tree (GS88 §5.1): its roots order nothing more, and say so to those below.

    Only for machines that can (`Protocol.closes`).
    """

    def __str__(self) -> str:
        return "finish"


class HostEvent(msgspec.Struct, frozen=True, gc=False):
    """What else a host says to the site's part in changes of the configuration (`epochs.events`)."""


Event = Multicast | Received | Tick | LinkUp | LinkDown | PeerReset | Forgot | Finish | HostEvent
