"""Bodies of envelopes: many messages of one source, packed; unpacked in one go.

A batch is the number of its first message (a source counts its messages from 1, over all groups), how many there are,
who posted them where that matters (`Origin`), and their bodies as a msgpack array.
"""

from struct import Struct
from struct import error as struct_error
from typing import Annotated

import msgspec

from ordercast.errors import LocalError, PeerError

HEAD = Struct(">QI")
ORIGIN = Struct(">16sQ")
POSTED = 2**31  # added to the count where an origin follows
Origin = tuple[bytes, int]
"""A client's session, and its number for this post to this destination: posted again elsewhere, it is the same post."""
MESSAGES_AT_MOST = 65_536  # in one envelope
LENGTH_BYTES = 5  # what msgpack puts before a body, at most
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Annotated[list[bytes], msgspec.Meta(max_length=MESSAGES_AT_MOST)]).decode


def packed_bytes(bodies: list[bytes]) -> int:
    """Return how large a batch of these becomes, at most."""
    return HEAD.size + ORIGIN.size + LENGTH_BYTES * (len(bodies) + 1) + sum(map(len, bodies))


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


def pack(first: int, bodies: list[bytes], origin: Origin | None = None) -> bytes:
    """Return the body of an envelope."""
    if origin is None:
        return HEAD.pack(first, len(bodies)) + _encode(bodies)
    return HEAD.pack(first, POSTED + len(bodies)) + ORIGIN.pack(*origin) + _encode(bodies)


def origin_of(body: bytes) -> Origin | None:
    """Return who posted a batch, where that was said; raises PeerError for what is none."""
    try:
        if HEAD.unpack_from(body)[1] < POSTED:
            return None
        session, number = ORIGIN.unpack_from(body, HEAD.size)
    except struct_error:
        raise PeerError("an envelope without messages") from None
    return session, number


def count(body: bytes) -> int:
    """Return how many messages an envelope has."""
    return read_head(body)[1]


def read_head(body: bytes) -> tuple[int, int]:
    """Return the number of the first message, and how many there are."""
    try:
        first, many = HEAD.unpack_from(body)
    except struct_error:
        raise PeerError("an envelope without messages") from None
    return first, many % POSTED


def unpack(body: bytes) -> list[bytes]:
    """Return the messages of an envelope."""
    begin = HEAD.size if origin_of(body) is None else HEAD.size + ORIGIN.size
    try:
        bodies: list[bytes] = _decode(memoryview(body)[begin:])
    except msgspec.MsgspecError as error:
        raise PeerError(f"an envelope that is no batch: {error}") from None
    if not bodies or len(bodies) != read_head(body)[1]:
        raise PeerError(f"an envelope of {len(bodies)} messages says it has {read_head(body)[1]}")
    return bodies
