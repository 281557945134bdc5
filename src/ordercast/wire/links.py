"""What hosts say to each other besides the machines' messages: handshake, heartbeat; and what clients say."""

from typing import Any

import msgspec

from ordercast.errors import PeerError

VERSION = 2
HELLO, REFUSE, HEARTBEAT = 100, 101, 102
LOGIN, WELCOME, JOIN, LOT, TAKEN, LEAVE, POST, RECEIPT, ASK, ANSWER, ERROR = range(110, 121)


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
    restarted: str = ""
    """The site whose restart began this epoch; only where nothing is durable."""


class Refuse(msgspec.Struct, frozen=True, array_like=True):
    """The last frame: why I will not talk to you."""

    reason: str


class Login(msgspec.Struct, frozen=True, array_like=True):
    """A client's first frame."""

    version: int
    token: str | None = None


class Welcome(msgspec.Struct, frozen=True, array_like=True):
    """Who answers, the groups it is in, and all groups there are."""

    site: str
    groups: list[str]
    all_groups: list[str]
    body_bytes: int
    causal: bool = False


class Join(msgspec.Struct, frozen=True, array_like=True):
    """Read these groups (all, when None), after a position (from now on, when None); a receipt answers."""

    id: int
    groups: list[str] | None
    after: int | None


class Leave(msgspec.Struct, frozen=True, array_like=True):
    """Read no more; a receipt answers, and nothing that was delivered comes after it."""

    id: int


class LotFrame(msgspec.Struct, frozen=True, array_like=True):
    """What was delivered."""

    position: int
    groups: tuple[str, ...]
    source: str
    first: int
    stamp: bytes
    body: bytes


class Taken(msgspec.Struct, frozen=True, array_like=True):
    """So many bytes more were read: send more."""

    bytes: int


class Post(msgspec.Struct, frozen=True, array_like=True):
    """Send these messages."""

    id: int
    groups: tuple[str, ...]
    ack: str
    bodies: list[bytes]


class ReceiptFrame(msgspec.Struct, frozen=True, array_like=True):
    """What became of a post, a join or a leave: the number of the first message, the stamps, or why not."""

    id: int
    first: int = 0
    stamps: list[bytes | None] = []
    error: str | None = None


class Ask(msgspec.Struct, frozen=True, array_like=True):
    """A question: `status`, or `explain` with a message."""

    id: int
    what: str
    about: str = ""


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """The answer, as JSON."""

    id: int
    json: bytes


KINDS: dict[int, type[msgspec.Struct]] = {
    HELLO: Hello,
    REFUSE: Refuse,
    LOGIN: Login,
    WELCOME: Welcome,
    JOIN: Join,
    LOT: LotFrame,
    TAKEN: Taken,
    LEAVE: Leave,
    POST: Post,
    RECEIPT: ReceiptFrame,
    ASK: Ask,
    ANSWER: Answer,
    ERROR: Refuse,
}
_DECODERS = {tag: msgspec.msgpack.Decoder(kind) for tag, kind in KINDS.items()}


def encode(value: msgspec.Struct) -> bytes:
    """Return a struct as bytes."""
    return msgspec.msgpack.encode(value)


def read(tag: int, payload: bytes | memoryview) -> Any:
    """Return what a host or a client said; raises PeerError when it makes no sense."""
    decoder = _DECODERS.get(tag)
    if decoder is None:
        raise PeerError(f"tag {tag} is not expected here")
    try:
        return decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PeerError(f"not a {KINDS[tag].__name__}: {error}") from None
