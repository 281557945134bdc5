"""Links that can be cut: a proxy between two sites."""

import asyncio
import random
from contextlib import suppress


class Proxy:
    """A link that can be cut: both ways, or held one way; what is held goes on when it is healed."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self.target = (host, int(port))
        self.address = ""
        self.cut = False
        self.flips = 0
        """So many pieces of what passes get a flipped bit."""
        self.delay = 0.0
        """Seconds that each piece takes longer."""
        self._chance = random.Random(target)
        self._held: dict[bool, asyncio.Event] = {}
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self, port: int) -> None:
        """Listen."""
        self._held = {True: asyncio.Event(), False: asyncio.Event()}
        for event in self._held.values():
            event.set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.cut:
            writer.close()
            return
        try:
            other_reader, other_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.close()
            return
        self._writers |= {writer, other_writer}
        with suppress(asyncio.CancelledError):  # the run is over
            await asyncio.gather(self._pump(reader, other_writer, True), self._pump(other_reader, writer, False))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, forth: bool) -> None:
        try:
            while data := await reader.read(65_536):
                await asyncio.sleep(self.delay)
                await self._held[forth].wait()
                writer.write(self._spoiled(data))
                await writer.drain()
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    def _spoiled(self, data: bytes) -> bytes:
        if not self.flips:
            return data
        self.flips -= 1
        changed = bytearray(data)
        changed[self._chance.randrange(len(changed))] ^= 1 << self._chance.randrange(8)
        return bytes(changed)

    def break_all(self) -> None:
        """Cut: every connection ends, and no new one is made."""
        self.cut = True
        for writer in list(self._writers):
            writer.transport.abort()

    def hold(self, forth: bool) -> None:
        """Let nothing pass one way."""
        self._held[forth].clear()

    def heal(self) -> None:
        """Let everything pass again."""
        self.cut, self.delay = False, 0.0
        for event in self._held.values():
            event.set()

    def close(self) -> None:
        """Stop."""
        if self._server is not None:
            self._server.close()
        for writer in list(self._writers):
            writer.transport.abort()
