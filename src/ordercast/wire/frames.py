"""Frames: a head and a payload; split from a stream of bytes, checked, with a limit on their size.

The head tells the payload's length and checksum, and ends with a checksum of itself: a flipped bit in the length is
noticed before anybody waits for bytes that never come. TCP's own checksum is too weak for this, and what goes to many
receivers pays for its payload once: only heads differ.
"""

from collections.abc import Iterator
from struct import Struct
from zlib import crc32

from ordercast.errors import PeerError
from ordercast.names import ClassId

FIELDS = Struct(">IIBQIIQ")  # length and checksum of the payload; tag, epoch and index of the class, stream, number
NO_CLASS = ClassId(0, 0)
"""In frames that are no message of a machine."""
CHECK = Struct(">I")
HEAD_BYTES = FIELDS.size + CHECK.size
FRAME_AT_MOST = 24 * 2**20
GREETING_AT_MOST = 64 * 2**10
"""Of a frame from somebody who has not said who it is."""
SMALL = 4096  # parts of an unfinished frame below this are put together: each would cost more than its bytes

Frame = tuple[int, ClassId, int, int, memoryview]
"""Tag, class, stream, number, payload; the payload is good until the next bytes are fed."""


def frame(
    tag: int, stream: int, number: int, payload: bytes, class_id: ClassId = NO_CLASS, checksum: int | None = None
) -> tuple[bytes, bytes]:
    """Return what to write, head and payload; who has the payload's checksum already gives it."""
    if checksum is None:
        checksum = crc32(payload)
    fields = FIELDS.pack(len(payload), checksum, tag, *class_id, stream, number)
    return fields + CHECK.pack(crc32(fields)), payload


class Splitter:
    """Takes bytes as they come and yields whole frames that check out."""

    def __init__(self, at_most: int = FRAME_AT_MOST) -> None:
        self.at_most = at_most
        """May be raised while frames are taken: it holds from the next frame on."""
        self._parts: list[bytes | bytearray] = []
        self._have = 0
        self._need = HEAD_BYTES

    @property
    def announced(self) -> int:
        """Length of the frame that is not complete; 0 while its head is not complete."""
        return self._need - HEAD_BYTES

    def feed(self, data: bytes) -> Iterator[Frame]:
        """Yield the frames that are complete now; take all before more bytes are fed."""
        self._have += len(data)
        if self._have < self._need:  # a large frame is joined once, when its last byte is there
            self._keep(data)
            return
        if self._parts:
            data = b"".join([*self._parts, data])
            self._parts.clear()
        view, at = memoryview(data), 0
        self._need = HEAD_BYTES
        while len(data) - at >= HEAD_BYTES:
            length, checksum, tag, epoch, index, stream, number = self._head(data, at)
            begin = at + HEAD_BYTES
            end = begin + length
            if end > len(data):
                self._need = HEAD_BYTES + length
                break
            payload = view[begin:end]
            if crc32(payload) != checksum:
                raise PeerError(f"a frame of {length} bytes with a wrong checksum")
            at = end
            yield tag, ClassId(epoch, index), stream, number, payload
        rest = data[at:] if at else data
        self._have = len(rest)
        if rest:
            self._parts.append(rest)

    def _head(self, data: bytes, at: int) -> tuple[int, int, int, int, int, int, int]:
        fields = data[at : at + FIELDS.size]
        if CHECK.unpack_from(data, at + FIELDS.size)[0] != crc32(fields):
            raise PeerError("a frame whose head has a wrong checksum")
        head: tuple[int, int, int, int, int, int, int] = FIELDS.unpack(fields)
        if head[0] > self.at_most:
            raise PeerError(f"a frame of {head[0]} bytes, at most {self.at_most} are allowed")
        return head

    def _keep(self, data: bytes) -> None:
        """Keep a part; an unfinished frame takes about as much memory as has come of it."""
        last = self._parts[-1] if self._parts else None
        if len(data) >= SMALL:
            self._parts.append(data)
        elif type(last) is bytearray and len(last) < 16 * SMALL:
            last += data
        else:
            self._parts.append(bytearray(data))
