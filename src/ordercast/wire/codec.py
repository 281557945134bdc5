"""The machines' messages to bytes and back; new fields go last, with defaults.

A message is a tag, a stream and a number (both zero unless it travels on a numbered edge), and its fields as a msgpack
array. Bodies are opaque.
"""

from zlib import crc32

import msgspec

from ordercast.core import edges, events
from ordercast.core.edges import Carry
from ordercast.core.events import Message
from ordercast.errors import PeerError, bounded
from ordercast.protocols import propagation, sequencing, two_phase
from ordercast.protocols import timestamp as lamport
from ordercast.protocols.swap import counting
from ordercast.protocols.swap import multicast as swap
from ordercast.wire.frames import frame
from ordercast.wire.tags import Tag

KINDS: dict[int, type[Message]] = {
    Tag.PROPAGATE: propagation.Propagate,
    Tag.PLACE: propagation.Place,
    Tag.SETTLED: propagation.Settled,
    Tag.ACK: edges.Ack,
    Tag.NULL: edges.Null,
    Tag.RESEND: edges.Resend,
    Tag.PROPOSE: two_phase.Propose,
    Tag.PROPOSAL: two_phase.Proposal,
    Tag.DECIDE: two_phase.Decide,
    Tag.STAMPED: lamport.Stamped,
    Tag.ASK_CLOCK: lamport.Ask,
    Tag.SILENT: lamport.Silent,
    Tag.SWAP: swap.Swap,
    Tag.REQUEST: swap.Request,
    Tag.ORDERED: swap.Ordered,
    Tag.ASK_COUNT: counting.Ask,
    Tag.COUNT: counting.Count,
    Tag.GRANT: counting.Grant,
    Tag.NUMBERED: counting.Numbered,
    Tag.DO_MULTICAST: sequencing.DoMulticast,
    Tag.ACCEPT: sequencing.Accept,
    Tag.ACCEPTED: sequencing.Accepted,
    Tag.FETCH: sequencing.FetchMsgs,
    Tag.LATEST: sequencing.Latest,
    Tag.STABLE: sequencing.Stable,
}

_TAG_OF = {kind: int(tag) for tag, kind in KINDS.items()}
_DECODERS = {int(tag): msgspec.msgpack.Decoder(kind) for tag, kind in KINDS.items()}
_encode = msgspec.msgpack.Encoder().encode


class Encoder:
    """Encodes; what goes to many in a row is encoded, and its checksum reckoned, once."""

    def __init__(self) -> None:
        self._last: Message | None = None
        self._payload = b""
        self._checksum: int | None = None

    def encode(self, message: Message) -> tuple[int, int, int, bytes]:
        """Return tag, stream, number, payload."""
        if type(message) is Carry:
            inner = message.message
            if inner is not self._last:
                self._last, self._payload, self._checksum = inner, _encode(inner), None
            return _TAG_OF[type(inner)], message.stream, message.number, self._payload
        return _TAG_OF[type(message)], 0, 0, _encode(message)

    def frame(self, message: Message) -> tuple[bytes, bytes]:
        """Return what to write on a link, head and payload."""
        encoded = self.encode(message)
        if encoded[3] is not self._payload:
            return frame(*encoded)
        if self._checksum is None:
            self._checksum = crc32(self._payload)
        return frame(*encoded, self._checksum)


def decode(tag: int, stream: int, number: int, payload: bytes | memoryview) -> Message:
    """Return the message; raises PeerError for bytes that are none."""
    decoder = _DECODERS.get(tag)
    if decoder is None:
        raise PeerError(f"tag {tag} is unknown")
    try:
        message = decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PeerError(f"tag {tag}: {bounded(str(error))}") from None
    if not number:
        return message
    if isinstance(message, events.Control):
        raise PeerError(f"tag {tag} does not travel on a numbered edge")
    return Carry(stream, number, message)
