"""A site's log, read by position at its client port: what the stream source asks of a live site.

A reader of the past holds nobody up; one that has caught up and is too slow is dropped by the site, and joins again
where it was.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from ordercast.client.connection import Connection
from ordercast.client.values import Lot, place_of
from ordercast.errors import LocalError, LostError
from ordercast.wire import batch
from ordercast.wire import clients as wire
from ordercast.wire.tags import Tag

CONNECT_S = 10.0
SEEK_S = 60.0  # so long a site may look for a message
READER = "spark"  # what the site calls us where it says who is behind


class SiteLog:
    """One connection. Errors: UnreachableError, LocalError (refused, or nothing of this can be read), LostError."""

    def __init__(self, address: str, token: str | None = None, ca: str | None = None) -> None:
        self.address, self._token, self._ca = address, token, ca
        self.site, self.life = "", 0
        self.groups: frozenset[str] = frozenset()
        """The groups the site is in."""
        self._lots: deque[wire.LotFrame] = deque()
        self._dropped = False
        self._more = asyncio.Event()
        self._connection: Connection

    async def open(self) -> None:
        """Connect, and see whether what the site has delivered stays where it is."""
        self._connection = Connection(self.address, self._heard)
        self._connection.ended.append(lambda _: self._more.set())
        welcome = await self._connection.open(self._token, CONNECT_S, self._ca)
        self.site, self.life = welcome.site, welcome.incarnation
        self.groups = frozenset(group for group in welcome.groups if "+" not in group)

    def close(self) -> None:
        """End the connection."""
        self._connection.end(LostError("the reader has closed"))

    def _heard(self, tag: int, said: Any) -> None:
        if tag == Tag.LOT:
            self._lots.append(said)
        elif tag == Tag.DROPPED:
            self._dropped = True
        self._more.set()

    async def end(self, groups: frozenset[str]) -> int:
        """Return the position behind the last delivery; raises LocalError where positions do not last."""
        status = await self._asked("status")
        if not status["durable"]:
            raise LocalError(f"{self.site} is not durable: its positions are gone when it stops")
        missing = sorted(groups - set(status["groups"]))
        if missing:
            raise LocalError(f"{self.site} is not in group {missing[0]!r}; it is in {', '.join(sorted(self.groups))}")
        for of_class in (status["epochs"] or {}).get("classes", ()):
            undone = sorted((groups or self.groups) & set(of_class["groups"]))
            if undone and of_class["policy"] == "available" and of_class["delivery"] != "safe":
                raise LocalError(
                    f"{self.site}: what is delivered to {undone[0]} may be undone (policy available, delivery"
                    f" {of_class['delivery']}): streams read groups with delivery safe"
                )
        return int(status["delivered"])

    async def _asked(self, what: Any) -> dict[str, Any]:
        answer = await self._connection.ask(Tag.ASK, lambda number: wire.Ask(number, what))
        found: dict[str, Any] = msgspec.json.decode(answer.json)
        return found

    async def first(self) -> int:
        """Return the oldest position that is kept."""
        return await self._join(begin=True)

    async def after(self, place: str) -> int:
        """Return the position behind a message that was read at another member; raises LocalError if it is not here."""
        async with asyncio.timeout(SEEK_S):
            return await self._join(place=place_of(place))

    async def _join(self, **how: Any) -> int:
        """Begin to read, and end it: what counts is where reading would have begun."""
        first = await self._begin(**how)
        await self._leave()
        return first

    async def _begin(self, after: int | None = None, **how: Any) -> int:
        receipt = await self._connection.ask(
            Tag.JOIN, lambda number: wire.Join(number, None, after, "drop", READER, **how)
        )
        return int(receipt.first)

    async def _leave(self) -> None:
        await self._connection.ask(Tag.LEAVE, wire.Leave)
        self._taken(sum(len(lot.body) for lot in self._lots))
        self._lots.clear()
        self._dropped = False

    def _taken(self, size: int) -> None:
        self._connection.write(Tag.TAKEN, wire.Taken(size))

    async def read(self, begin: int, end: int) -> AsyncIterator[Lot]:
        """Yield what was delivered at the positions from `begin` to before `end`."""
        while begin < end:
            await self._begin(begin - 1)
            while begin < end and (frame := await self._next()) is not None:
                lot = Lot(frame.position, frame.groups, frame.source, frame.first, frame.stamp, frame.body)
                if lot.last >= begin:
                    yield _between(lot, begin, end)
                begin = max(begin, lot.last + 1)
                self._taken(len(frame.body))
            await self._leave()

    async def _next(self) -> wire.LotFrame | None:
        """Return what comes next; None when the site has dropped this reader."""
        while not self._lots:
            if self._dropped:
                return None
            self._connection.raise_error()
            self._more.clear()
            await self._more.wait()
        return self._lots.popleft()

    async def last_place(self, begin: int, end: int, groups: frozenset[str]) -> str | None:
        """Return the place of the last message to some groups before `end`; None if there is none since `begin`."""
        many, found = 1, None
        while end > begin and found is None:
            since = max(begin, end - many)
            async for lot in self.read(since, end):
                if lot.source and (not groups or groups & set(lot.groups)):
                    found = lot.place
            end, many = since, many * 16
        return found


def _between(lot: Lot, begin: int, end: int) -> Lot:
    """Return what of a lot lies in a range of positions."""
    if begin <= lot.position and lot.last < end:
        return lot
    kept = [message for message in lot.messages() if begin <= message.position < end] if lot.source else []
    if not kept:
        return lot
    body = batch.pack(kept[0].number, [message.body for message in kept])
    return Lot(kept[0].position, lot.groups, lot.source, kept[0].number, lot.stamp, body)
