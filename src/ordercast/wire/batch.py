"""Bodies of envelopes: many messages of one source, packed; unpacked in one go.

A batch is the number of its first message (a source counts its messages from 1, over all groups), how many there are,
and their bodies as a msgpack array.
"""

from struct import Struct
from struct import error as struct_error
from typing import Annotated

import msgspec

from ordercast.errors import LocalError, PeerError

HEAD = Struct(">QI")
MESSAGES_AT_MOST = 65_536  # in one envelope
LENGTH_BYTES = 5  # what msgpack puts before a body, at most
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Annotated[list[bytes], msgspec.Meta(max_length=MESSAGES_AT_MOST)]).decode


def packed_bytes(bodies: list[bytes]) -> int:
    """Return how large a batch of these becomes, at most."""
    return HEAD.size + LENGTH_BYTES * (len(bodies) + 1) + sum(map(len, bodies))


def check(bodies: list[bytes], at_most: int) -> int:
    """Return the bytes of these messages; raises LocalError when they are none, too many or too large for an envelope.

    What is counted is what they become. Twelve million empty messages are no bytes, and too long a frame for anybody.
    """
    if not bodies:
        raise LocalError("no message")
    if len(bodies) > MESSAGES_AT_MOST:
        raise LocalError(f"{len(bodies)} messages at once; at most {MESSAGES_AT_MOST} are allowed")
    size = sum(map(len, bodies))
    if size > at_most:
        raise LocalError(f"{len(bodies)} messages of {size} bytes at once; at most {at_most} are allowed")
    return size


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
        bodies: list[bytes] = _decode(memoryview(body)[HEAD.size :])
    except msgspec.MsgspecError as error:
        raise PeerError(f"an envelope that is no batch: {error}") from None
    if not bodies or len(bodies) != read_head(body)[1]:
        raise PeerError(f"an envelope of {len(bodies)} messages says it has {read_head(body)[1]}")
    return bodies
