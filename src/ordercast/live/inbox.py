"""What an application reads: one stream of all its groups, message by message or in batches."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from ordercast.client.streams import Lots, Messages
from ordercast.client.values import Delivered, Lot
from ordercast.core.events import Envelope
from ordercast.errors import DroppedError
from ordercast.names import GroupId
from ordercast.wire import batch

OVERHEAD = 64  # what a batch takes beside its bytes, about


def lot_of(envelope: Envelope, stamp: bytes, position: int) -> Lot:
    """Return a delivered envelope as applications see it."""
    first, _ = batch.read_head(envelope.body)
    return Lot(position, envelope.groups, envelope.source, first, stamp, envelope.body)


class Inbox:
    """One reader. It holds a bounded number of bytes: the site takes no more in while the slowest reader is behind."""

    def __init__(
        self,
        groups: frozenset[GroupId] | None,
        past: Iterable[Lot],
        drained: Callable[[], None],
        name: str = "",
        drop_above: int | None = None,
    ) -> None:
        self._groups, self.name, self._drop_above = groups, name, drop_above
        self._dropped = False
        self._taken = -1  # the last position
        self._past = iter(past)
        self.unread: Iterator[Delivered] = iter(())
        self._drained = drained
        self._lots: deque[Lot] = deque()
        self._more = asyncio.Event()
        self._closed = False
        self.bytes = 0

    def put(self, lot: Lot) -> None:
        """Add what was delivered, if it is for this reader."""
        if self._groups is None or not self._groups.isdisjoint(lot.groups):
            self._lots.append(lot)
            self.bytes += len(lot.body) + OVERHEAD
            self._more.set()
            if self._drop_above is not None and self.bytes > self._drop_above:
                self._dropped, self._groups, self.bytes = True, frozenset(), 0
                self._lots.clear()

    def close(self) -> None:
        """End the stream after what is there."""
        self._closed = True
        self._more.set()

    async def take(self) -> Lot | None:
        """Return what comes next, None at the end; what was taken is not counted any more."""
        for lot in self._past:
            if self._groups is None or not self._groups.isdisjoint(lot.groups):
                self._taken = lot.last
                return lot
        while not self._lots:
            if self._dropped:
                raise DroppedError(f"reader {self.name} was too far behind", self._taken)
            if self._closed:
                return None
            self._more.clear()
            await self._more.wait()
        lot = self._lots.popleft()
        self.bytes -= len(lot.body) + OVERHEAD
        self._taken = lot.last
        self._drained()
        return lot

    def lots(self) -> Lots:
        """Iterate over what is delivered, in batches."""
        return Lots(self)

    def __aiter__(self) -> Messages:
        """Iterate over what is delivered, message by message; who stops in between goes on with the next message."""
        return Messages(self)
