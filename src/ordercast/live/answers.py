"""What a session says to its client; who does not read answers is not read from."""

import asyncio

import msgspec

from ordercast.live.reading import Reading
from ordercast.wire import clients as wire
from ordercast.wire.frames import frame

WRITE_AHEAD = 256 * 2**10  # bytes the client has not read from its socket


class Answers(asyncio.Protocol):
    """The writing half of a session; `live.session.Session` is the whole."""

    writing_paused: bool
    _loop: asyncio.AbstractEventLoop
    _transport: asyncio.Transport
    _reading: Reading

    def _hold(self, why: str) -> None:
        raise NotImplementedError

    def _release(self, why: str) -> None:
        raise NotImplementedError

    def _answer(self, tag: int, value: msgspec.Struct) -> None:
        """Answer; who does not read answers is not read from."""
        self.write(tag, value)
        if self._crowded():
            self._hold("answers")
            self._loop.call_soon(self._look_again)

    def _crowded(self) -> bool:
        return self.writing_paused or self._transport.get_write_buffer_size() > WRITE_AHEAD

    def _look_again(self) -> None:
        """What the loop could write at once was never told to us as paused."""
        if not self._crowded():
            self._release("answers")

    def write(self, tag: int, value: msgspec.Struct) -> None:
        """Say something."""
        if not self._transport.is_closing():
            self._transport.writelines(frame(tag, 0, 0, wire.encode(value)))

    def pause_writing(self) -> None:
        """The client does not read what it is sent."""
        self.writing_paused = True

    def resume_writing(self) -> None:
        """It does again."""
        self.writing_paused = False
        self._reading.go_on()
        self._release("answers")
