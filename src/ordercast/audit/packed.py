"""Tables packed as bytes: many rows for Arrow, one row for whoever carries them.

A row that passes through Spark's JVM costs it some 20 microseconds, more than everything that is done with it here. So
a process deals out its rows to shares itself, and hands over a few rows per share, each with a table inside.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from ordercast.audit.columns import hashes
from ordercast.audit.kernels import Key, Longs

SPARK_PACKED = "kind string, share int, n bigint, rows bigint, data binary"
PACKED = pa.schema(
    [("kind", pa.string()), ("share", pa.int32()), ("n", pa.int64()), ("rows", pa.int64()), ("data", pa.binary())]
)
OPTIONS = pa.ipc.IpcWriteOptions(compression="lz4")


def shares_of(names: Any, shares: int, key: Key) -> Longs:
    """Return the share that each name belongs to: the same in every process that has the key."""
    found: Longs = (hashes(names, key) % np.uint64(shares)).astype(np.int64)
    return found


def packed(kind: str, table: Any, share: Longs | None = None, rows: int = 0) -> Any:
    """Pack a table, one row per share; `rows` is a number to be added up along the way."""
    if not len(table):
        return PACKED.empty_table()
    if share is None:
        share = np.zeros(len(table), np.int64)
    order = np.argsort(share, kind="stable")
    share, table = share[order], table.take(pa.array(order)).combine_chunks()
    begin = np.flatnonzero(np.concatenate([[True], share[1:] != share[:-1]]))
    many = np.diff(np.append(begin, len(share)))
    data = [_written(table.slice(at, size)) for at, size in zip(begin.tolist(), many.tolist(), strict=True)]
    columns = [[kind] * len(begin), share[begin], many, [rows] + [0] * (len(begin) - 1), data]
    return pa.table([pa.array(c, field.type) for c, field in zip(columns, PACKED, strict=True)], schema=PACKED)


def _written(table: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=OPTIONS) as stream:
        stream.write_table(table)
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def unpacked(data: Iterable[bytes]) -> Any:
    """Return all rows that were packed."""
    return pa.concat_tables([pa.ipc.open_stream(one).read_all() for one in data])


def share_by_share(batches: Iterable[Any]) -> Iterator[Any]:
    """Return the tables of packed rows that come in the order of their shares, one table per share."""
    waiting: list[bytes] = []
    current = None
    for batch in batches:
        columns = batch.to_pydict()
        for share, data in zip(columns["share"], columns["data"], strict=True):
            if share != current and waiting:
                yield unpacked(waiting)
                waiting = []
            current = share
            waiting.append(data)
    if waiting:
        yield unpacked(waiting)
