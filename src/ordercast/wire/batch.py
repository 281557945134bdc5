"""Bodies of envelopes: many messages of one source, packed; unpacked in one go.

A batch is the number of its first message (a source counts its messages from 1, over all groups), how many there are,
and their bodies as a msgpack array.
"""

from struct import Struct
from struct import error as struct_error

import msgspec

from ordercast.errors import PeerError

HEAD = Struct(">QI")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[bytes]).decode


def pack(first: int, bodies: list[bytes]) -> bytes:
    """Return the body of an envelope."""
    return HEAD.pack(first, len(bodies)) + _encode(bodies)


def count(body: bytes) -> int:
    """Return how many messages an envelope has."""
    return read_head(body)[1]


def read_head(body: bytes) -> tuple[int, int]:
    """Return the number of the first message, and how many there are."""
    try:
        first, many = HEAD.unpack_from(body)
    except struct_error:
        raise PeerError("an envelope without messages") from None
    return first, many


def unpack(body: bytes) -> list[bytes]:
    """Return the messages of an envelope."""
    try:
        bodies = _decode(memoryview(body)[HEAD.size :])
    except msgspec.MsgspecError as error:
        raise PeerError(f"an envelope that is no batch: {error}") from None
    if not bodies or len(bodies) != read_head(body)[1]:
        raise PeerError(f"an envelope of {len(bodies)} messages says it has {read_head(body)[1]}")
    return bodies
