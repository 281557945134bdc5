"""Structs as msgpack, read by tag: what is not understood is a PeerError with the name of what was expected."""

from collections.abc import Callable
from typing import Any

import msgspec

from ordercast.errors import PeerError, bounded

encode = msgspec.msgpack.Encoder().encode


def reader(kinds: dict[int, type[msgspec.Struct]]) -> Callable[[int, bytes | memoryview], Any]:
    """Return a function that reads what has one of these tags."""
    decoders = {int(tag): msgspec.msgpack.Decoder(kind) for tag, kind in kinds.items()}

    def read(tag: int, payload: bytes | memoryview) -> Any:
        decoder = decoders.get(tag)
        if decoder is None:
            raise PeerError(f"tag {tag} is not expected here")
        try:
            return decoder.decode(payload)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise PeerError(f"tag {tag} is not a {decoder.type.__name__}: {bounded(str(error))}") from None

    return read
