"""Snapshots as bytes: versioned, deterministic, and checked when they are read.

A snapshot is a typed struct (`Machine.snapshot`). Its byte form is a mark with the version, a checksum, and the struct
as msgpack. Messages inside carry their tag (`wire.codec`). Reading makes only values of the declared types: bytes that
are damaged or were written by somebody else raise HistoryError, and are never run as code.
"""

from hashlib import blake2b
from typing import TypeVar

import msgspec

from ordercast.errors import HistoryError

MARK = b"ordercast snapshot 1\n"
DIGEST = 16
S = TypeVar("S", bound=msgspec.Struct)
_encode = msgspec.msgpack.Encoder().encode


def encode_snapshot(state: msgspec.Struct) -> bytes:
    """Return a snapshot as bytes; equal states give equal bytes."""
    data = _encode(state)
    return MARK + blake2b(data, digest_size=DIGEST).digest() + data


def decode_snapshot(data: bytes, decoder: "msgspec.msgpack.Decoder[S]") -> S:
    """Return the snapshot; raises HistoryError when the bytes are none of this type and version."""
    if not data.startswith(MARK):
        raise HistoryError("not a snapshot of this version")
    digest, payload = data[len(MARK) : len(MARK) + DIGEST], data[len(MARK) + DIGEST :]
    if blake2b(payload, digest_size=DIGEST).digest() != digest:
        raise HistoryError("a snapshot is damaged: its checksum is wrong")
    try:
        return decoder.decode(payload)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise HistoryError(f"a snapshot does not fit what runs here: {error}") from None
