"""A reader of an embedded application: a node's reader, to wait for."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from ordercast.client.streams import Events, Lots, Messages
from ordercast.client.values import Event, Lot
from ordercast.errors import DroppedError
from ordercast.node.readers import Reader


class Inbox:
    """One reader. It holds a bounded number of bytes; what happens beyond is its policy (`node.readers`)."""

    def __init__(self, reader: Reader, took: Callable[[], None]) -> None:
        self.reader, self._took = reader, took
        self.unread: Iterator[Event] = iter(())
        self._more = asyncio.Event()
        self.closed = False
        self.between: Callable[[], Awaitable[None]] | None = None
        """Called before each take: its caller is done with all that it took."""

    @property
    def bytes(self) -> int:
        """What waits here."""
        return self.reader.bytes

    def wake(self) -> None:
        """There is something new, or the end."""
        self._more.set()

    def close(self) -> None:
        """End the stream after what is there."""
        self.closed = True
        self._more.set()

    async def begin(self) -> int:
        """Wait until the message is found after which this reads; returns the position that comes next."""
        while self.reader.place is not None and self.reader.ended is None:
            self._more.clear()
            await self._more.wait()
        if self.reader.ended is not None:
            raise self.reader.ended
        return self.reader.next if not self.reader.lots else self.reader.lots[0].position

    async def take(self) -> Lot | None:
        """Return what comes next, None at the end; raises DroppedError when this reader was dropped."""
        while True:
            if self.between is not None:
                await self.between()
            lot = self.reader.take()
            if lot is not None:
                self._took()
                return lot
            if self.reader.ended is not None or self.closed:
                break
            self._more.clear()
            await self._more.wait()
        if isinstance(self.reader.ended, DroppedError):
            raise self.reader.ended
        return None

    def lots(self) -> Lots:
        """Iterate over what is delivered, in batches."""
        return Lots(self)

    def events(self) -> Events:
        """Iterate over the one stream of a member: `Delivered | ViewChanged | RolledBack | Restored | Gap`."""
        return Events(self)

    def __aiter__(self) -> Messages:
        """Iterate over what is delivered, message by message; who stops in between goes on with the next message."""
        return Messages(self)
