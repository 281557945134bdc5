"""Where a stream of Spark is in a site's log, and how its rows are read there, or at another member.

An offset names a position of one life of one site, and the last message before it as every member knows it (its
place). So a batch that was planned at one site is read again, row for row, at another one that is in the same groups:
two members of the same groups deliver the same messages in the same order, whichever classes these are in, because
what two sites have in common is in one order.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordercast.client.values import Lot, Restored, Said, said_in
from ordercast.errors import InputError, LocalError, LostError, OrdercastError, UnreachableError
from ordercast.spark.sitelog import SiteLog
from ordercast.wire import batch

SCHEMA = (
    "site string, position bigint, msg_id string, `group` string, source string, source_seq bigint, stamp binary, "
    "body binary"
)
ROWS = pa.schema(
    [
        ("site", pa.string()),
        ("position", pa.int64()),
        ("msg_id", pa.string()),
        ("group", pa.string()),
        ("source", pa.string()),
        ("source_seq", pa.int64()),
        ("stamp", pa.binary()),
        ("body", pa.binary()),
    ]
)
BATCH_ROWS, BATCH_BYTES = 65_536, 16 * 2**20  # of one Arrow batch, about
PATIENCE_S = 60.0  # so long sites that do not answer are tried again
STAY_S = 3.0  # so long the site that was read last is waited for, before others are
WAIT_S = 0.2


class Offset(msgspec.Struct, frozen=True, omit_defaults=True):
    """How far a stream is."""

    address: str
    site: str
    life: int
    next: int
    """The position that comes next."""
    groups: str = ""
    """That the site was in, joined by `+`."""
    place: str = ""
    """Of the last message before it; empty when there is none."""

    @staticmethod
    def of(values: Mapping[str, Any]) -> "Offset":
        """Return an offset from what Spark has kept."""
        return msgspec.convert(dict(values), Offset)

    def plain(self) -> dict[str, Any]:
        """Return it as Spark keeps it."""
        return dict(msgspec.to_builtins(self))


@dataclass(frozen=True)
class Stream:
    """One log: the addresses of sites that have it, and what of it is read."""

    addresses: tuple[str, ...]
    groups: frozenset[str] = frozenset()
    """None of them stands for all groups of the site."""
    token: str | None = None
    ca: str | None = None
    patience: float = PATIENCE_S

    async def reach(self, first: str = "", avoid: frozenset[str] = frozenset()) -> SiteLog:
        """Connect to a site, `first` before others; raises what the last one said when none will do for too long."""
        first = "" if first in avoid else first
        begun = asyncio.get_running_loop().time()
        error: OrdercastError = UnreachableError("no address")
        while True:
            waited = asyncio.get_running_loop().time() - begun
            others = [address for address in self.addresses if address != first and address not in avoid]
            for address in [*([first] if first else []), *(others if waited > STAY_S or not first else [])]:
                log = SiteLog(address, self.token, self.ca)
                try:
                    await log.open()
                    await log.end(self.groups)
                except (UnreachableError, LostError, LocalError) as failed:
                    error = failed
                    log.close()
                else:
                    return log
            if waited > self.patience or (isinstance(error, LocalError) and waited > STAY_S):
                raise error
            await asyncio.sleep(WAIT_S)

    async def position(self, log: SiteLog, offset: Offset) -> int:
        """Return which position of a log an offset means; raises LocalError when the log does not say."""
        if (log.site, log.life) == (offset.site, offset.life):
            return offset.next
        read = frozenset(offset.groups.split("+"))
        if not self.groups and read != log.groups:
            raise LocalError(f"{log.site} is not in the same groups as {offset.site}: {min(read ^ log.groups)}")
        if offset.place:
            return await log.after(offset.place)
        if offset.next == 0 and await log.first() == 0:
            return 0
        raise LocalError(f"{log.site} cannot say what was read at {offset.site} before position {offset.next}")

    async def begin(self, where: str) -> Offset:
        """Return where a new query begins: `earliest` or `latest`."""
        log = await self.reach()
        try:
            first = await log.first()
            if where == "earliest":
                return _offset(log, first)
            return await self._at(log, await log.end(self.groups), first, "")
        finally:
            log.close()

    async def ahead(self, start: Offset, first: str, at_most: int | None) -> Offset:
        """Return an offset up to so many positions later; the same one when there is nothing new.

        `first`: the address to try first.
        """
        log = await self.reach(first or start.address)
        try:
            begin = await self.position(log, start)
            end = await log.end(self.groups)
            until = end if at_most is None else min(end, begin + at_most)
            return start if until <= begin else await self._at(log, until, begin, start.place)
        finally:
            log.close()

    async def same(self, there: Offset, first: str) -> Offset:
        """Return an offset as the site says it that is reached now."""
        log = await self.reach(first or there.address)
        try:
            return _offset(log, await self.position(log, there), there.place)
        finally:
            log.close()

    async def _at(self, log: SiteLog, position: int, since: int, place: str) -> Offset:
        """Return a position of a log as an offset; `place` is of the last message before `since`."""
        return _offset(log, position, await log.last_place(since, position, self.groups) or place)

    async def lots(self, start: Offset, end: Offset) -> AsyncIterator[tuple[str, Lot]]:
        """Yield what lies between two offsets, with the site that told it; what a site tells no more, another does."""
        at, loop, avoid = start, asyncio.get_running_loop(), frozenset[str]()
        begun = loop.time()
        while True:
            log = await self.reach(end.address, avoid)
            try:
                async for lot in log.read(await self.position(log, at), await self.position(log, end)):
                    self._check(log, said_in(lot))
                    if lot.source and self._wants(lot):
                        yield log.site, lot
                        at = _offset(log, lot.last + 1, lot.place)
                        begun = loop.time()
                return
            except LocalError:  # another one may have it
                avoid |= {log.address}
                if avoid.issuperset({end.address, *self.addresses}):
                    raise
            except (UnreachableError, LostError):
                if loop.time() - begun > self.patience:
                    raise
            finally:
                log.close()

    def _wants(self, lot: Lot) -> bool:
        return not self.groups or not self.groups.isdisjoint(lot.groups)

    def _check(self, log: SiteLog, said: Said | None) -> None:
        """Go elsewhere when the site was given a state instead of messages: others have these."""
        if isinstance(said, Restored) and said.gap and (not self.groups or said.group in self.groups):
            raise LocalError(f"{log.site} was given the state of {said.group} instead of its messages")


def _offset(log: SiteLog, position: int, place: str = "") -> Offset:
    return Offset(log.address, log.site, log.life, position, "+".join(sorted(log.groups)), place)


def streams_of(options: Mapping[str, str]) -> list[Stream]:
    """Return the streams that options name: `addresses`, streams apart by `;` and members of one by commas."""
    text = options.get("addresses", "")
    streams = [tuple(one.strip() for one in part.split(",") if one.strip()) for part in text.split(";")]
    if not any(streams) or not all(streams):
        raise InputError('option addresses: name sites, as in "host:port,host:port"; several streams apart by ";"')
    groups = frozenset(group.strip() for group in options.get("groups", "").split(",") if group.strip())
    patience = number_of(options, "patience", PATIENCE_S)
    return [Stream(found, groups, options.get("token"), options.get("ca"), patience) for found in streams]


def number_of(options: Mapping[str, str], name: str, otherwise: float) -> float:
    """Return an option that is a number of at least 0."""
    text = options.get(name)
    try:
        value = otherwise if text is None else float(text)
    except ValueError:
        value = -1.0
    if not value >= 0:
        raise InputError(f"option {name}: a number of at least 0, not {text!r}")
    return value


def batches(told: AsyncIterator[tuple[str, Lot]]) -> Iterator[Any]:
    """Return messages as Arrow batches, as they come; drives the reader on a loop of its own."""
    with asyncio.Runner() as runner:
        waiting: list[tuple[str, Lot]] = []
        rows = size = 0
        while (one := runner.run(_next(told))) is not None:
            waiting.append(one)
            rows, size = rows + one[1].count, size + len(one[1].body)
            if rows >= BATCH_ROWS or size >= BATCH_BYTES:
                yield rows_of(waiting)
                waiting, rows, size = [], 0, 0
        if waiting:
            yield rows_of(waiting)


async def _next(told: AsyncIterator[tuple[str, Lot]]) -> tuple[str, Lot] | None:
    return await anext(told, None)


def rows_of(told: list[tuple[str, Lot]]) -> Any:
    """Return messages as rows."""
    lots = [lot for _, lot in told]
    bodies = [body for lot in lots for body in batch.unpack(lot.body)]
    many = np.array([lot.count for lot in lots])
    of_lot = np.repeat(np.arange(len(lots)), many)
    within = np.arange(len(bodies)) - np.repeat(np.cumsum(many) - many, many)
    position = np.array([lot.position for lot in lots])[of_lot] + within
    number = pa.array(np.array([lot.first for lot in lots])[of_lot] + within)
    rows = pa.array(of_lot)
    source = pa.array([lot.source for lot in lots]).take(rows)
    columns = {
        "site": pa.array([site for site, _ in told]).take(rows),
        "position": pa.array(position),
        "msg_id": pc.binary_join_element_wise(source, number.cast(pa.string()), ":"),
        "group": pa.array(["+".join(lot.groups) for lot in lots]).take(rows),
        "source": source,
        "source_seq": number,
        "stamp": pa.array([lot.stamp for lot in lots], pa.binary()).take(rows),
        "body": pa.array(bodies, pa.binary()),
    }
    return pa.record_batch([columns[name] for name in ROWS.names], schema=ROWS)
