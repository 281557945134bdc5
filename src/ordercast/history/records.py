"""Events as records, and back. A tag is never used twice; new fields go last, with defaults.

To add a kind of record: a struct with the next tag, a case in `encode_event`, a case in `decode`.
"""

import msgspec

from ordercast.core.events import Envelope, Event, LinkDown, LinkUp, Multicast, PeerReset, Received, Tick
from ordercast.core.streams import Carry
from ordercast.epochs.events import Begin, Requested, Snapshotted
from ordercast.epochs.requests import Change
from ordercast.epochs.setup import Setup
from ordercast.errors import HistoryError, PeerError
from ordercast.names import ClassId, GroupId, SiteId
from ordercast.wire.codec import Encoder
from ordercast.wire.codec import decode as decode_message


class _Multicast(msgspec.Struct, frozen=True, array_like=True, tag=1):
    groups: tuple[GroupId, ...]
    body: bytes
    receipt: bool = False
    disks: int = -1


class _Received(msgspec.Struct, frozen=True, array_like=True, tag=2):
    sender: SiteId
    tag: int
    stream: int
    number: int
    payload: bytes
    epoch: int
    index: int


class _Tick(msgspec.Struct, frozen=True, array_like=True, tag=3):
    now: float


class _LinkUp(msgspec.Struct, frozen=True, array_like=True, tag=4):
    peer: SiteId


class _LinkDown(msgspec.Struct, frozen=True, array_like=True, tag=5):
    peer: SiteId


class _PeerReset(msgspec.Struct, frozen=True, array_like=True, tag=6):
    peer: SiteId
    incarnation: int


class Met(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """This site has met a peer in this life of it, whose history had so many records.

    Durable before the two exchange anything. A peer that comes back in another life, or with fewer records, has lost
    what this site may build on.
    """

    peer: SiteId
    incarnation: int
    records: int
    start: int = 0
    """How often it was restarted with that history, and when. Of this site itself: that it was, and when."""
    boot: int = 0


class Told(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """What the application is told and no other record holds: a change of the configuration, or a delivery again."""

    groups: tuple[GroupId, ...]
    source: SiteId
    """Empty when the site itself says it (`client.values.Said`)."""
    body: bytes


class _Requested(msgspec.Struct, frozen=True, array_like=True, tag=9):
    change: Change


class _Snapshotted(msgspec.Struct, frozen=True, array_like=True, tag=10):
    number: int
    states: tuple[tuple[GroupId, bytes], ...]


class _Begin(msgspec.Struct, frozen=True, array_like=True, tag=11):
    first: Setup


_Event = _Multicast | _Received | _Tick | _LinkUp | _LinkDown | _PeerReset | _Requested | _Snapshotted | _Begin
Stored = Event | Met | Told
"""What a record says."""

_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(_Event | Met | Told)


def encode(fact: Met | Told) -> bytes:
    """Return what is no event as a record."""
    return _encode(fact)


def encode_event(event: Event, encoder: Encoder) -> bytes:
    """Return an event as a record."""
    match event:
        case Received(sender, message, class_id):
            return _encode(_Received(sender, *encoder.encode(message), *class_id))
        case Multicast(groups, body, receipt, _, disks):
            return _encode(_Multicast(groups, body, receipt, disks))
        case Tick(now):
            return _encode(_Tick(now))
        case LinkUp(peer):
            return _encode(_LinkUp(peer))
        case LinkDown(peer):
            return _encode(_LinkDown(peer))
        case PeerReset(peer, incarnation):
            return _encode(_PeerReset(peer, incarnation))
        case Requested(change):
            return _encode(_Requested(change))
        case Snapshotted(asked, states):
            return _encode(_Snapshotted(asked, states))
        case Begin(first):
            return _encode(_Begin(first))
        case _:
            raise TypeError(f"no record for {event!r}")


def decode(record: bytes) -> Stored:
    """Return what a record says; raises HistoryError when it says nothing."""
    try:
        stored: _Event | Met | Told = _decoder.decode(record)
        match stored:
            case _Received(sender, tag, stream, number, payload, epoch, index):
                return Received(sender, decode_message(tag, stream, number, payload), ClassId(epoch, index))
            case _Multicast(groups, body, receipt, disks):
                return Multicast(groups, body, receipt, disks=disks)
            case _Tick(now):
                return Tick(now)
            case _LinkUp(peer):
                return LinkUp(peer)
            case _LinkDown(peer):
                return LinkDown(peer)
            case _PeerReset(peer, incarnation):
                return PeerReset(peer, incarnation)
            case _Requested(change):
                return Requested(change)
            case _Snapshotted(asked, states):
                return Snapshotted(asked, states)
            case _Begin(first):
                return Begin(first)
            case _:
                return stored
    except (msgspec.MsgspecError, UnicodeDecodeError, PeerError, RecursionError) as error:
        raise HistoryError(f"a record is damaged: {error}") from None


def envelope_of(stored: Stored) -> Envelope | None:
    """Return the envelope that was received with a record, if there is one."""
    if not isinstance(stored, Received):
        return None
    message = stored.message.message if isinstance(stored.message, Carry) else stored.message
    envelope = getattr(message, "envelope", None)
    return envelope if isinstance(envelope, Envelope) else None
