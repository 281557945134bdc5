"""The search for cycles among hashes: eight bytes a delivery, in place of names.

Two messages of one hash are one vertex here. That can close a cycle, but not open one: a log without cycles among
hashes has none. What is on a cycle here is searched again by names (`audit.order`), so no verdict rests on a hash.
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from ordercast.audit import kernels
from ordercast.audit.columns import codes, hashes
from ordercast.audit.fold import in_order
from ordercast.audit.kernels import Hashes, Ints, Key
from ordercast.audit.merge import ShuffledError, coded

NOTHING = pa.table(
    [pa.array([], kind) for kind in (pa.string(), pa.int64(), pa.int64(), pa.binary())], ["site", "p0", "p1", "hashes"]
)
HASHED = "site string, p0 bigint, p1 bigint, hashes binary"


class Suspected(NamedTuple):
    """The messages that may be on cycles."""

    hashes: Hashes
    """In ascending order."""
    rows: int
    """How many deliveries they have."""


def hashed_logs(table: Any, key: Key) -> Any:
    """Return per site of a piece: the first and the last position, and the hashes of its messages in order."""
    if not len(table):
        return NOTHING
    site, sites = codes(table, "site")
    position = table.column("position").to_numpy()
    order = in_order(site, position, len(sites))
    order = order[np.argsort(site[order], kind="stable")]
    site, position = site[order], position[order]
    there, begin = np.unique(site, return_index=True)
    end = np.append(begin[1:], len(site))
    flat = pa.py_buffer(hashes(table.column("msg_id"), key)[order])
    at = pa.py_buffer((np.append(begin, len(site)) * 8).astype(np.int32))
    columns = {
        "site": pa.array(sites, pa.string()).take(pa.array(there)),
        "p0": position[begin],
        "p1": position[end - 1],
        "hashes": pa.BinaryArray.from_buffers(pa.binary(), len(there), [None, at, flat]),
    }
    return pa.table(columns)


def on_cycles(pieces: Any) -> Suspected:
    """Search the union of all logs; raises ShuffledError when the pieces of a site overlap."""
    names, site = coded(pieces.column("site"))
    p0, p1 = (pieces.column(name).to_numpy() for name in ("p0", "p1"))
    order = np.lexsort((p1, p0, site))
    site, p0, p1 = site[order], p0[order], p1[order]
    same = site[1:] == site[:-1]
    if bool((same & (p0[1:] < p1[:-1])).any()):
        raise ShuffledError(names[int(site[1:][same & (p0[1:] < p1[:-1])][0])].as_py())
    column = pieces.column("hashes").cast(pa.large_binary()).take(pa.array(order)).combine_chunks()
    own = column.chunk(0) if isinstance(column, pa.ChunkedArray) else column
    _, offsets, data = own.buffers()
    at = np.frombuffer(offsets, np.int64)[own.offset : own.offset + len(own) + 1]
    flat = np.frombuffer(data, np.uint64)[at[0] // 8 : at[-1] // 8]
    ends = (at[1:] - at[0]) // 8
    ptr = np.concatenate([[0], ends[np.append(~same, True)]])
    messages, code = np.unique(flat, return_inverse=True)
    logs: Ints = code.astype(np.int32)
    found = kernels.knots(ptr, logs, len(messages)) >= 0
    loops = np.flatnonzero(logs[1:] == logs[:-1]) + 1  # one hash twice in a row: two messages may be behind it
    found[logs[loops[~np.isin(loops, ptr)]]] = True
    return Suspected(messages[found], int(found[logs].sum()))
