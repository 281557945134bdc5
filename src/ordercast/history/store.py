"""The interface of a history, its version in memory, and events as records.

Machines are deterministic, so a history is the inputs a machine asked to have written (`Append`), and a *checkpoint* of
the machine from which they are stepped through again. Deliveries are not stored: the same steps deliver the same again.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import msgspec

from ordercast.core.events import Event, Multicast, Received, Tick
from ordercast.errors import HistoryError, PeerError
from ordercast.names import ClassId, SiteId
from ordercast.wire.codec import Encoder, decode


class Checkpoint(NamedTuple):
    """A machine as it was after so many records and so many delivered messages."""

    records: int
    delivered: int
    state: bytes


class History(Protocol):
    """Records in order, counted from 1."""

    count: int
    """The last record written."""

    def checkpoint(self, delivered: int | None = None) -> Checkpoint | None:
        """Return the last checkpoint, or the last one not past so many delivered messages."""
        ...

    def records(self, after: int) -> Iterator[bytes]:
        """Yield the records after one, in order; raises HistoryError when one is missing or damaged."""
        ...

    def append(self, records: list[bytes]) -> None:
        """Write records; they are on disk when this returns."""
        ...

    def keep(self, checkpoint: Checkpoint, *, from_delivered: int) -> None:
        """Write a checkpoint, and forget what no reader from that position on needs."""
        ...

    def close(self) -> None:
        """Let go."""
        ...


class MemoryHistory:
    """A history that dies with the process: for sites that are declared not durable, it keeps nothing at all."""

    def __init__(self) -> None:
        self.count = 0

    def checkpoint(self, delivered: int | None = None) -> Checkpoint | None:
        """There is none."""
        return None

    def records(self, after: int) -> Iterator[bytes]:
        """There are none."""
        return iter(())

    def append(self, records: list[bytes]) -> None:
        """Count them."""
        self.count += len(records)

    def keep(self, checkpoint: Checkpoint, *, from_delivered: int) -> None:
        """Nothing is kept."""

    def close(self) -> None:
        """Nothing to let go."""


class _Multicast(msgspec.Struct, frozen=True, array_like=True, tag=1):
    groups: tuple[str, ...]
    body: bytes
    receipt: bool = False


class _Received(msgspec.Struct, frozen=True, array_like=True, tag=2):
    sender: SiteId
    tag: int
    class_id: ClassId
    stream: int
    number: int
    payload: bytes


class _Tick(msgspec.Struct, frozen=True, array_like=True, tag=3):
    now: float


_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(_Multicast | _Received | _Tick)


def record(event: Event, encoder: Encoder) -> bytes:
    """Return an event as a record."""
    match event:
        case Received(sender, message, class_id):
            return _encode(_Received(sender, *encoder.encode(message, class_id)))
        case Multicast(groups, body, receipt):
            return _encode(_Multicast(groups, body, receipt))
        case Tick(now):
            return _encode(_Tick(now))
        case _:
            raise TypeError(f"links are not logged: {event}")


def event_of(data: bytes) -> Event:
    """Return a record as an event; raises HistoryError when it is none."""
    try:
        stored = _decoder.decode(data)
        match stored:
            case _Received(sender, tag, class_id, stream, number, payload):
                return Received(sender, decode(tag, stream, number, payload), class_id)
            case _Multicast(groups, body, receipt):
                return Multicast(groups, body, receipt)
            case _:
                return Tick(stored.now)
    except (msgspec.MsgspecError, UnicodeDecodeError, PeerError, RecursionError) as error:
        raise HistoryError(f"a record is no event: {error}") from None
