"""The tag table, and messages to bytes and back. Tags are never reused; new fields go last, with defaults.

A message travels as a tag, the id of its class, a stream and a number (both zero unless it travels on a numbered edge),
and its fields as a msgpack array, which starts with the tag too: so messages inside snapshots are told apart. Bodies
are opaque.
"""

import msgspec

from ordercast.core import resume, streams
from ordercast.core.events import Control, Message
from ordercast.core.streams import Carry
from ordercast.errors import PeerError
from ordercast.names import ClassId
from ordercast.protocols import timestamp as lamport
from ordercast.protocols import two_phase
from ordercast.protocols.propagation import messages as propagation
from ordercast.protocols.sequencing import messages as sequencing
from ordercast.protocols.swap import counting
from ordercast.protocols.swap import multicast as swap

TAGS: dict[int, type[Message]] = {
    1: propagation.Propagate,
    2: propagation.Place,
    3: propagation.Settled,
    10: streams.Ack,
    11: streams.Null,
    12: streams.Resend,
    13: resume.Resume,
    20: two_phase.Propose,
    21: two_phase.Proposal,
    22: two_phase.Decide,
    30: lamport.Stamped,
    31: lamport.Ask,
    32: lamport.Silent,
    40: swap.Swap,
    41: swap.Request,
    42: swap.Ordered,
    50: counting.Ask,
    51: counting.Count,
    52: counting.Grant,
    53: counting.Numbered,
    60: sequencing.DoMulticast,
    61: sequencing.Accept,
    62: sequencing.Accepted,
    63: sequencing.FetchMsgs,
    64: sequencing.Latest,
    65: sequencing.Stable,
}
"""Up to 99: what machines say to each other. From 100 on: what hosts say (`wire.links`)."""
assert all(kind.__struct_config__.tag == tag for tag, kind in TAGS.items()), "a message has another tag than its class"

_TAG_OF = {kind: tag for tag, kind in TAGS.items()}
_DECODERS = {tag: msgspec.msgpack.Decoder(kind) for tag, kind in TAGS.items()}
_encode = msgspec.msgpack.Encoder().encode


class Encoder:
    """Encodes; what goes to many in a row is encoded once."""

    def __init__(self) -> None:
        self._last: Message | None = None
        self._payload = b""

    def encode(self, message: Message, class_id: ClassId) -> tuple[int, ClassId, int, int, bytes]:
        """Return tag, class, stream, number, payload: what `frames.frame` takes."""
        if type(message) is Carry:
            inner = message.message
            if inner is not self._last:
                self._last, self._payload = inner, _encode(inner)
            return _TAG_OF[type(inner)], class_id, message.stream, message.number, self._payload
        return _TAG_OF[type(message)], class_id, 0, 0, _encode(message)


def decode(tag: int, stream: int, number: int, payload: bytes | memoryview) -> Message:
    """Return the message; raises PeerError for bytes that are none."""
    decoder = _DECODERS.get(tag)
    if decoder is None:
        raise PeerError(f"tag {tag} is unknown")
    try:
        message = decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PeerError(f"tag {tag}: {error}") from None
    if not number:
        return message
    if isinstance(message, Control):
        raise PeerError(f"tag {tag} does not travel on a numbered edge")
    return Carry(stream, number, message)
