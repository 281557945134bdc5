"""What applications and servers share: messages, receipts, destinations."""

from collections.abc import Iterable

import msgspec

from ordercast.errors import LocalError, bounded
from ordercast.names import GroupId, SiteId
from ordercast.wire import batch
from ordercast.wire.clients import AckLevel, Place, Policy

__all__ = [
    "AckLevel", "Delivered", "Destination", "Event", "Gap", "Lot", "Place", "Policy", "Receipt", "Restored",
    "RolledBack", "Said", "ViewChanged", "events_in", "place_of", "said_in", "said_lot", "tidy",
]  # fmt: skip

Destination = GroupId | tuple[GroupId, ...]
"""A group, or several at once."""


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """A message, in its place of the one order."""

    position: int
    """Counts what this site delivers, from 0; store it with what you made of the message."""
    group: GroupId
    """Several, when it was sent to several, joined by `+`."""
    source: SiteId
    number: int
    body: bytes
    stamp: bytes = b""
    """Of the messages that were delivered together with it."""

    @property
    def place(self) -> str:
        """Where it is in the order, at any member of its groups: store it instead of the position to read elsewhere."""
        return place_named(self.group.split("+"), self.source, self.number, self.stamp)


def place_named(groups: Iterable[GroupId], source: SiteId, number: int, stamp: bytes) -> str:
    """Return the place of a message as a text that applications store."""
    return f"{source}:{number}@{'+'.join(groups)}@{stamp.hex()}"


def place_of(place: str) -> Place:
    """Return what `Delivered.place` has written; raises LocalError for what it has not."""
    try:
        message, groups, stamp = place.split("@")
        source, _, number = message.rpartition(":")
        return Place(tuple(groups.split("+")), source, int(number), bytes.fromhex(stamp))
    except ValueError:
        raise LocalError(f"{bounded(place)!r} is not the place of a message") from None


class Lot(msgspec.Struct, frozen=True, gc=False):
    """Messages of one source that were delivered together; bodies are unpacked when they are read."""

    position: int
    groups: tuple[GroupId, ...]
    source: SiteId
    first: int
    stamp: bytes
    body: bytes

    @property
    def count(self) -> int:
        """How many messages there are."""
        return batch.count(self.body)

    @property
    def last(self) -> int:
        """The position of the last message."""
        return self.position + self.count - 1

    @property
    def place(self) -> str:
        """Where its last message is in the order, at any member of its groups."""
        return place_named(self.groups, self.source, self.first + self.count - 1, self.stamp)

    def starting_at(self, position: int) -> "Lot":
        """Return the lot without what lies before a position."""
        if self.position >= position:
            return self
        skip = position - self.position
        first, bodies = self.first + skip, batch.unpack(self.body)[skip:]
        return msgspec.structs.replace(self, position=position, first=first, body=batch.pack(first, bodies))

    def messages(self) -> list[Delivered]:
        """Return the messages."""
        group, source, position, first = "+".join(self.groups), self.source, self.position, self.first
        stamp = self.stamp
        return [
            Delivered(position + index, group, source, first + index, body, stamp)
            for index, body in enumerate(batch.unpack(self.body))
        ]


class ViewChanged(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=1):
    """The members of a group change here in the stream: at the same place of its order at all of them."""

    group: GroupId
    members: tuple[SiteId, ...]
    joined: tuple[SiteId, ...]
    left: tuple[SiteId, ...]
    epoch: int
    away: tuple[SiteId, ...]
    """Who was taken out because it is suspected, and comes back: what it has of the group stays good."""
    position: int = -1
    """Its place in the stream, counted with the messages."""


class RolledBack(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=2):
    """What was delivered at these positions did not happen: undo it, last one first. What stays of it comes again."""

    positions: tuple[int, ...]
    position: int = -1


class Restored(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=3):
    """The state of a group as its other members have it here; with `gap` what this site had of the group is void."""

    group: GroupId
    count: int
    state: bytes
    gap: bool
    position: int = -1


class Gap(msgspec.Struct, frozen=True, gc=False, array_like=True, tag=4):
    """A reader with policy `gap` was too far behind: messages at these positions were skipped, perhaps all of them."""

    first: int
    last: int
    position: int = -1


def events_in(lot: Lot) -> list["Event"]:
    """Return everything that a lot holds: messages, or what the site says beside them."""
    said = said_in(lot)
    return list(lot.messages()) if said is None else [said]


Said = ViewChanged | RolledBack | Restored | Gap
"""What a site says in the stream beside messages, in a lot without a source: one position each; a gap has its last."""
Event = Delivered | Said
"""What the one stream of a member holds where groups change."""
_said = msgspec.msgpack.Decoder(Said)


def said_lot(position: int, groups: tuple[GroupId, ...], said: Said) -> Lot:
    """Return what a site says as a lot of one."""
    return Lot(position, groups, "", 0, b"", batch.pack(0, [msgspec.msgpack.encode(said)]))


def said_in(lot: Lot) -> Said | None:
    """Return what a site says in a lot; None when it has messages."""
    if lot.source:
        return None
    said: Said = msgspec.structs.replace(_said.decode(batch.unpack(lot.body)[0]), position=lot.position)
    return said


class Receipt(msgspec.Struct, frozen=True):
    """What became of a message: its number at its source, and its place in the order of its class."""

    number: int
    stamp: bytes | None
    """None when a link broke while it was on its way: it is ordered, and safe, but nobody said where."""


def tidy(destination: Destination) -> tuple[GroupId, ...]:
    """Return the groups of a destination, each once, sorted: who names the same groups shares a batch."""
    return (destination,) if isinstance(destination, str) else tuple(sorted(set(destination)))
