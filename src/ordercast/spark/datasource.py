"""`format("ordercast")`: a site's ordered stream as a source of Spark, and groups as a sink (docs/spark.md)."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from ordercast.errors import InputError
from ordercast.spark.sink import Sink, TableSink
from ordercast.spark.streams import SCHEMA, Offset, Stream, batches, number_of, streams_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

SLICE = 200_000  # positions that one task of a batch read takes
BEGINNINGS = ("earliest", "latest")


def register(spark: "SparkSession") -> None:
    """Let a session read and write `format("ordercast")`."""
    from ordercast.spark.library import ship

    ship(spark)
    spark.dataSource.register(OrdercastSource)


class OrdercastSource(DataSource):
    """One row per message, in the order of each site's log."""

    @classmethod
    def name(cls) -> str:
        """What stands in `format`."""
        return "ordercast"

    def schema(self) -> str:
        """The columns of a message."""
        return SCHEMA

    def reader(self, schema: "StructType") -> "PositionReader":
        """Read a range of positions."""
        return PositionReader(dict(self.options))

    def streamReader(self, schema: "StructType") -> "LogReader":  # noqa: N802
        """Read what is delivered, as it comes."""
        return LogReader(dict(self.options))

    def streamWriter(self, schema: "StructType", overwrite: bool) -> Sink:  # noqa: N802
        """Send the rows of a query."""
        return Sink(schema, dict(self.options))

    def writer(self, schema: "StructType", overwrite: bool) -> TableSink:
        """Send the rows of a table."""
        return Sink(schema, dict(self.options)).alone()


@dataclass
class Part(InputPartition):
    """What one task reads."""

    stream: Stream
    start: Offset
    end: Offset


class LogReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Offsets are one for each stream; an offset never goes back, and what is before it is never undone."""

    def __init__(self, options: dict[str, str]) -> None:
        self.streams = streams_of(options)
        self._begin = options.get("begin", "earliest")
        if self._begin not in BEGINNINGS:
            raise InputError(f"option begin: {' or '.join(BEGINNINGS)}, not {self._begin!r}")
        self._rows = int(number_of(options, "maxrowsperbatch", 0))
        self._now = [""] * len(self.streams)  # the address at which each was reached last
        self._target: dict[str, Any] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return where a new query begins."""
        return self._told([stream.begin(self._begin) for stream in self.streams])

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit that the options name."""
        return ReadMaxRows(self._rows) if self._rows else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return how far the next batch goes."""
        at_most = max(1, limit.max_rows // len(self.streams)) if isinstance(limit, ReadMaxRows) else None
        starts = [self._offset(start, index) for index in range(len(self.streams))]
        if self._target is None:
            known = zip(self.streams, starts, self._now, strict=True)
            return self._told([stream.ahead(begin, first, at_most) for stream, begin, first in known])
        return self._told([self._up_to_target(index, starts[index], at_most) for index in range(len(self.streams))])

    async def _up_to_target(self, index: int, start: Offset, at_most: int | None) -> Offset:
        """Return the next offset of a query that ends at its target."""
        stream = self.streams[index]
        ahead = await stream.ahead(start, self._now[index], at_most)
        if ahead == start:
            return start
        target = await stream.same(self._offset(self._target or {}, index), ahead.address)
        if ahead.next < target.next:
            return ahead
        return start if (await stream.same(start, ahead.address)).next >= target.next else target

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Remember how far a query goes that ends when it has what is there."""
        self._target = self._told([stream.begin("latest") for stream in self.streams])

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return a part for each stream that has something new."""
        pairs = [(self._offset(start, index), self._offset(end, index)) for index in range(len(self.streams))]
        return [Part(stream, *pair) for stream, pair in zip(self.streams, pairs, strict=True) if pair[0] != pair[1]]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the rows of a part; the same ones whenever it is read, and at whatever member."""
        return _read(partition)

    def _offset(self, offsets: dict[str, Any], index: int) -> Offset:
        try:
            return Offset.of(offsets[f"stream-{index}"])
        except KeyError:
            raise InputError(
                f"this query has read {len(offsets)} streams before, and option addresses names {len(self.streams)}"
            ) from None

    def _told(self, asked: list[Any]) -> dict[str, Any]:
        offsets: list[Offset] = asyncio.run(_all(asked))
        self._now = [offset.address for offset in offsets]
        return {f"stream-{index}": offset.plain() for index, offset in enumerate(offsets)}


async def _all(asked: list[Any]) -> list[Any]:
    return list(await asyncio.gather(*asked))


class PositionReader(DataSourceReader):
    """Options `begin` and `end`: the positions from one to before the other; all that is there without them."""

    def __init__(self, options: dict[str, str]) -> None:
        self.streams = streams_of(options)
        self._begin = int(number_of(options, "begin", 0)) if "begin" in options else None
        self._end = int(number_of(options, "end", 0)) if "end" in options else None

    def partitions(self) -> Sequence[InputPartition]:
        """Return slices of the positions."""
        return [
            part for found in asyncio.run(_all([self._slices(stream) for stream in self.streams])) for part in found
        ]

    async def _slices(self, stream: Stream) -> list[InputPartition]:
        first, last = await stream.begin("earliest"), await stream.begin("latest")
        begin = first.next if self._begin is None else self._begin
        end = last.next if self._end is None else self._end
        if begin < first.next:
            raise InputError(f"option begin: {first.site} keeps positions from {first.next} on, not {begin}")
        if end > last.next:
            raise InputError(f"option end: {first.site} has delivered {last.next} messages, not {end}")
        cuts = [*range(begin, end, SLICE), end]
        return [Part(stream, _moved(first, one), _moved(first, other)) for one, other in pairwise(cuts)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return the rows of a slice."""
        return _read(partition)


def _moved(offset: Offset, position: int) -> Offset:
    return msgspec.structs.replace(offset, next=position)


def _read(partition: InputPartition) -> Iterator[Any]:
    assert isinstance(partition, Part)
    return batches(partition.stream.lots(partition.start, partition.end))
