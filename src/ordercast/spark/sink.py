"""Rows of a query become messages: each is delivered once, however often Spark writes its batch.

A task posts its rows in a session named after the query, the batch and the partition. Members of a group drop what they
have had of a session (`node.sessions`), so a task that runs again posts the same rows under the same numbers, and
nothing is doubled. That needs rows that come again in the same order; sources and narrow transformations give that.
"""

import asyncio
import hashlib
import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from ordercast.client.client import Client
from ordercast.client.values import tidy
from ordercast.errors import InputError
from ordercast.spark.streams import streams_of

POST_ROWS, POST_BYTES = 500, 64 * 2**10  # of one post, at most; another number would be another post
POSTS_UNDER_WAY = 64
BATCH, QUERY = "streaming.sql.batchId", "sql.streaming.queryId"  # what Spark calls a batch and its query in a task
Groups = tuple[str, ...]


@dataclass
class Written(WriterCommitMessage):
    """What a task has sent."""

    rows: int


class Sink(DataSourceStreamArrowWriter):
    """Columns: `body` (binary or string), and `group` (several are joined by `+`) unless an option names it."""

    def __init__(self, schema: Any, options: Mapping[str, str]) -> None:
        (stream,) = streams_of(options)[:1]
        self.addresses, self.token, self.ca, self.patience = stream.addresses, stream.token, stream.ca, stream.patience
        self.group, self.query, self.job = options.get("group"), options.get("query"), ""
        kinds = {field.name: field.dataType.simpleString() for field in schema.fields}
        _check(kinds, "body", ("binary", "string"))
        if self.group is None:
            _check(kinds, "group", ("string",))

    def alone(self) -> "TableSink":
        """Return the sink of a table that is written once."""
        return TableSink(self)

    def write(self, iterator: Iterator[Any]) -> Written:
        """Send the rows of a task, and wait until they are safe."""
        context = TaskContext.get()
        assert context is not None
        query, batch = self.query or context.getLocalProperty(QUERY), context.getLocalProperty(BATCH)
        job = self.job or (f"{query}/{batch}" if query and batch else "")
        if not job:
            raise InputError("Spark does not say which batch this is: rows could be doubled, so nothing was sent")
        session = hashlib.blake2b(f"{job}/{context.partitionId()}".encode(), digest_size=16).digest()
        return Written(asyncio.run(self._send(session, iterator)))

    async def _send(self, session: bytes, rows: Iterator[Any]) -> int:
        sent, under_way = 0, deque[asyncio.Task[Any]]()
        addresses = list(self.addresses)
        async with Client(addresses, self.token, ca=self.ca, survive=self.patience, session=session) as client:
            for groups, bodies in posts(self._pairs(rows)):
                sent += len(bodies)
                under_way.append(asyncio.create_task(client.multicast_many(groups, bodies, ack="safe")))
                await asyncio.sleep(0)  # posts leave in the order in which they were begun
                while len(under_way) >= POSTS_UNDER_WAY:
                    await under_way.popleft()
            while under_way:
                await under_way.popleft()
        return sent

    def _pairs(self, rows: Iterator[Any]) -> Iterator[tuple[str, bytes]]:
        """Yield destination and body of each row."""
        for batch in rows:
            bodies = batch.column(batch.schema.get_field_index("body")).to_pylist()
            at = batch.schema.get_field_index("group")
            groups = [self.group] * len(bodies) if self.group is not None else batch.column(at).to_pylist()
            for group, body in zip(groups, bodies, strict=True):
                if not group or body is None:
                    raise InputError(f"a row without a {'body' if group else 'group'} cannot be sent")
                yield group, body.encode() if isinstance(body, str) else body


class TableSink(DataSourceArrowWriter):
    """The same for a table that is written once: a task that runs again doubles nothing, another write sends again."""

    def __init__(self, sink: Sink) -> None:
        self.sink = sink
        sink.job = uuid.uuid4().hex

    def write(self, iterator: Iterator[Any]) -> Written:
        """Send the rows of a task, and wait until they are safe."""
        return self.sink.write(iterator)


def posts(pairs: Iterator[tuple[str, bytes]]) -> Iterator[tuple[Groups, list[bytes]]]:
    """Yield the rows as posts: where one ends depends on the rows alone, not on how they come in batches."""
    collected: dict[str, list[bytes]] = {}
    sizes: dict[str, int] = {}
    for group, body in pairs:
        if collected.get(group) and sizes[group] + len(body) > POST_BYTES:
            yield tidy(tuple(group.split("+"))), collected.pop(group)
        bodies = collected.setdefault(group, [])
        sizes[group] = sizes.get(group, 0) * bool(bodies) + len(body)
        bodies.append(body)
        if len(bodies) >= POST_ROWS:
            yield tidy(tuple(group.split("+"))), collected.pop(group)
    for group, bodies in collected.items():
        yield tidy(tuple(group.split("+"))), bodies


def _check(kinds: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> None:
    if name not in kinds:
        raise InputError(f"rows to be sent need a column {name!r} (columns: {', '.join(kinds)})")
    if kinds[name] not in allowed:
        raise InputError(f"column {name!r} holds {kinds[name]}, not {' or '.join(allowed)}")
