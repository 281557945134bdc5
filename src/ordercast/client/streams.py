"""Iterators over what is delivered: message by message, in batches, or with all that a site says beside messages."""

from collections.abc import Iterator
from typing import Protocol, Self

from ordercast.client.values import Delivered, Event, Lot, Restored, ViewChanged, events_in
from ordercast.errors import LocalError


class Source(Protocol):
    """Where lots come from; who stops in the middle of one goes on with its next message."""

    unread: Iterator[Event]

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


class Events:
    """An iterator over the one stream of a member: messages, views, rollbacks, states."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        """Wait for the next one."""
        source = self._source
        while True:
            for event in source.unread:
                return event
            lot = await source.take()
            if lot is None:
                raise StopAsyncIteration
            source.unread = iter(events_in(lot))


class Messages:
    """An iterator over messages alone; what cannot be left out without being wrong is an error."""

    def __init__(self, source: Source) -> None:
        self._events = Events(source)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivered:
        """Wait for the next one; raises LocalError where messages are undone, or a state replaces them."""
        while True:
            event = await anext(self._events)
            if isinstance(event, Delivered):
                return event
            begins = isinstance(event, Restored) and not event.state and not event.gap
            if not isinstance(event, ViewChanged) and not begins:
                raise LocalError(f"position {event.position} is a {type(event).__name__}: read events(), not messages")
