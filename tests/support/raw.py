"""A client that says what it likes, byte by byte."""

import asyncio
from typing import Any, Self

import msgspec

from ordercast.wire import clients as wire
from ordercast.wire.frames import Splitter, frame
from ordercast.wire.tags import Tag


class Raw:
    """A connection to a client port; reads nothing unless it is asked to."""

    def __init__(self, address: str) -> None:
        self.host, _, port = address.rpartition(":")
        self.port = int(port)
        self.splitter = Splitter()
        self.frames: list[tuple[int, Any]] = []

    async def __aenter__(self) -> Self:
        """Connect; small buffers of the kernel, so that who does not read is noticed soon."""
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port, limit=1024)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.transport.abort()

    def say(self, tag: int, said: msgspec.Struct) -> None:
        """Send a frame."""
        self.writer.writelines(frame(tag, 0, 0, wire.encode(said)))

    async def hear(self) -> tuple[int, Any]:
        """Return the next frame but heartbeats; the end of the connection is tag 0."""
        while not self.frames:
            data = await self.reader.read(2**16)
            if not data:
                return 0, None
            for tag, _, _, payload in self.splitter.feed(data):
                if tag != Tag.HEARTBEAT:
                    self.frames.append((tag, wire.from_site(tag, payload)))
        return self.frames.pop(0)

    async def login(self, token: str | None = None) -> Any:
        """Log in; return what the site answers."""
        self.say(Tag.LOGIN, wire.Login(wire.VERSION, token))
        return (await self.hear())[1]
