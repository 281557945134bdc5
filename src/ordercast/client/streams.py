"""Iterators over what is delivered, message by message or in batches; for a client's connection and a site's inbox."""

from collections.abc import Iterator
from typing import Protocol, Self

from ordercast.client.values import Delivered, Lot


class Source(Protocol):
    """Where lots come from; who stops in the middle of one goes on with its next message."""

    unread: Iterator[Delivered]

    async def take(self) -> Lot | None:
        """Wait for the next lot; None is the end. A wait that is cancelled takes nothing: the next one gets it."""
        ...


class Lots:
    """An iterator over what is delivered, in batches."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Lot:
        """Wait for the next one."""
        lot = await self._source.take()
        if lot is None:
            raise StopAsyncIteration
        return lot


class Messages:
    """An iterator over what is delivered, message by message."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivered:
        """Wait for the next one."""
        source = self._source
        while True:
            for message in source.unread:
                return message
            lot = await source.take()
            if lot is None:
                raise StopAsyncIteration
            source.unread = iter(lot.messages())
