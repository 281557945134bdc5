"""What hosts say to each other besides the machines' messages: handshake, heartbeat; and what clients say."""

from typing import TypeVar

import msgspec

from ordercast.errors import PeerError

T = TypeVar("T")

VERSION = 1
HELLO, REFUSE, HEARTBEAT = 100, 101, 102
JOIN, POST, RECEIPT, BATCH, TAKEN, ASK, ANSWER, LOGIN, WELCOME, ERROR = range(110, 120)


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The first frame in both directions: who I am, whom I want, and what I run."""

    version: int
    cluster: str
    site: str
    wanted: str
    incarnation: int
    epoch: int
    plan: str
    """A hash of protocol, plan and groups: sites that differ must not talk."""


class Refuse(msgspec.Struct, frozen=True, array_like=True):
    """The last frame: why I will not talk to you."""

    reason: str


def encode(value: msgspec.Struct) -> bytes:
    """Return a struct as bytes."""
    return msgspec.msgpack.encode(value)


def read_hello(payload: bytes | memoryview) -> Hello:
    """Return the greeting; raises PeerError when it is none."""
    return _read(payload, Hello)


def read_refuse(payload: bytes | memoryview) -> Refuse:
    """Return the refusal; raises PeerError when it is none."""
    return _read(payload, Refuse)


def _read(payload: bytes | memoryview, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(payload, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PeerError(f"not a {kind.__name__}: {error}") from None
