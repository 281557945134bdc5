"""Frames: a length, a tag, a class, a stream, a number, a payload; split from a stream of bytes, with a size limit."""

from collections.abc import Iterator
from struct import Struct

from ordercast.errors import PeerError
from ordercast.names import ClassId

HEAD = Struct(">IBQIIQ")  # length of the payload, tag, epoch and index of the class, stream, number
NO_CLASS = ClassId(0, 0)
"""In frames that are no message of a machine."""
FRAME_AT_MOST = 24 * 2**20

Frame = tuple[int, ClassId, int, int, memoryview]
"""Tag, class, stream, number, payload; the payload is good until the next bytes are fed."""


def frame(tag: int, class_id: ClassId, stream: int, number: int, payload: bytes) -> tuple[bytes, bytes]:
    """Return what to write, head and payload."""
    return HEAD.pack(len(payload), tag, *class_id, stream, number), payload


class Splitter:
    """Takes bytes as they come and yields whole frames."""

    def __init__(self, at_most: int = FRAME_AT_MOST) -> None:
        self.at_most = at_most
        self._parts: list[bytes] = []
        self._have = 0
        self._need = HEAD.size

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are complete now."""
        self._have += len(data)
        if self._have < self._need:  # a large frame is joined once, when its last byte is there
            self._parts.append(data)
            return
        if self._parts:
            data = b"".join([*self._parts, data])
            self._parts.clear()
        view, at = memoryview(data), 0
        while len(data) - at >= HEAD.size:
            length, tag, epoch, index, stream, number = HEAD.unpack_from(data, at)
            if length > self.at_most:
                raise PeerError(f"a frame of {length} bytes, at most {self.at_most} are allowed")
            end = at + HEAD.size + length
            if end > len(data):
                break
            yield tag, ClassId(epoch, index), stream, number, view[at + HEAD.size : end]
            at = end
        rest = data[at:] if at else data
        self._have = len(rest)
        self._need = HEAD.size
        if rest:
            self._parts.append(rest)
            if len(rest) >= HEAD.size:
                self._need = HEAD.size + int.from_bytes(rest[:4], "big")
