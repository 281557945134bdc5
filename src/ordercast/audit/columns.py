"""Columns of Arrow as the judges take them: numbers of names, strings laid end to end, hashes, some rows of a table."""

import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from ordercast.audit import kernels, plain
from ordercast.audit.kernels import LONG, Hashes, Ints, Key, Longs, Strings
from ordercast.runs.reader import one

PLAIN_ROWS = 1_000_000  # up to here arrays are as good as compiled loops, which take a second to load


def codes(table: Any, name: str) -> tuple[Ints, list[str]]:
    """Return the numbers of a column of names, and the names."""
    column = one(table.column(name))
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], pa.dictionary(pa.int32(), pa.string()))
    return column.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False), column.dictionary.to_pylist()


def listed(column: Any) -> list[Any]:
    """Return a column as a Python list, by way of numpy: many times faster than value by value."""
    column = one(column)
    if pa.types.is_dictionary(column.type):
        names = np.array(column.dictionary.to_pylist(), np.object_)
        return names[column.indices.to_numpy(zero_copy_only=False)].tolist()  # type: ignore[no-any-return]
    return column.to_numpy(zero_copy_only=False).tolist()  # type: ignore[no-any-return]


def among(table: Any, name: str, values: Iterable[str]) -> Any:
    """Return the rows whose name is one of these."""
    import pyarrow.compute as pc

    wanted = pa.array(sorted(values), pa.string())
    column = one(table.column(name))
    if pa.types.is_dictionary(column.type):
        known = pc.is_in(column.dictionary.cast(pa.string()), value_set=wanted).to_numpy(zero_copy_only=False)
        return table.filter(pa.array(known[column.indices.to_numpy(zero_copy_only=False)]))
    return table.filter(pc.is_in(column, value_set=wanted.cast(column.type)))


def numbered_logs(table: Any) -> tuple[dict[str, tuple[Longs, Hashes]], list[str]]:
    """Return positions and messages of each site, and what the messages are called.

    A message is a number given to its name, which Arrow tells from others byte by byte. Numbers are given site by site
    in the order of positions, so they are the same wherever the rows come from.
    """
    at_site, sites = codes(table, "site")
    rank = np.argsort(np.argsort(np.array(sites, np.object_)))
    position = table.column("position").to_numpy()
    message = one(table.column("msg_id"))
    order = np.lexsort((position, rank[at_site]))
    same = (at_site[order][1:] == at_site[order][:-1]) & (position[order][1:] == position[order][:-1])
    if bool(same.any()):  # two messages at one place: by name, whichever came first
        order = np.lexsort((_ranks(message), position, rank[at_site]))
    coded = message.take(pa.array(order)).dictionary_encode()
    number = coded.indices.to_numpy().astype(np.uint64)
    at_site, position = at_site[order], position[order]
    cuts = [0, *(np.flatnonzero(at_site[1:] != at_site[:-1]) + 1).tolist(), len(at_site)]
    logs = {sites[at_site[b]]: (position[b:e], number[b:e]) for b, e in pairwise(cuts) if e > b}
    return logs, coded.dictionary.to_pylist()


def _ranks(names: Any) -> Longs:
    """Return the rank of each name in the sorted order of all."""
    import pyarrow.compute as pc

    coded = names.dictionary_encode()
    rank = np.empty(len(coded.dictionary), np.int64)
    rank[pc.sort_indices(coded.dictionary).to_numpy()] = np.arange(len(rank))
    found: Longs = rank[coded.indices.to_numpy()]
    return found


def laid_out(column: Any) -> Strings:
    """Return a column of strings as arrays; a null is empty."""
    column = one(column)
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks else pa.array([], pa.large_binary())
    _, offsets, data = column.buffers()
    large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
    at: Any = np.frombuffer(offsets or bytes(8), np.int64 if large else np.int32)
    at = at[column.offset : column.offset + len(column) + 1]
    flat = np.frombuffer(data if data and len(data) >= 8 else bytes(data or b"") + bytes(8), np.uint8)
    words: Hashes = np.ndarray(len(flat) - 7, "<u8", flat.data, strides=(1,))
    return Strings(at, flat, words)


def plainly(rows: int) -> bool:
    """Whether to use numpy instead of compiled loops: few rows, or no compiler. Once it is loaded, loops are faster."""
    if "numba" in sys.modules:
        return False
    return rows <= PLAIN_ROWS or importlib.util.find_spec("numba") is None


def load_compiler() -> None:
    """Load the compiler if it is installed; from then on `plainly` says no."""
    with suppress(ImportError):
        import numba  # noqa: F401


def choose_loops(rows: int) -> None:
    """Load the compiler if the whole log has rows enough; its pieces alone would never be enough."""
    if not plainly(rows):
        load_compiler()


def hashes(column: Any, key: Key) -> Hashes:
    """Hash every string of a column. Very long ones go through BLAKE2b, so that the loops have a bound."""
    loops: Any = plain if plainly(len(column)) else kernels
    strings = laid_out(column)
    found: Hashes = loops.hash_bytes(strings, key)
    secret = key.words[:8].tobytes()
    for row in np.flatnonzero(np.diff(strings.offsets) > LONG).tolist():
        text = strings.data[strings.offsets[row] : strings.offsets[row + 1]]
        digest = hashlib.blake2b(text.data, digest_size=8, key=secret).digest()
        found[row] = np.uint64(int.from_bytes(digest, "little")) & key.kept
    return found


def hashes_of(names: Sequence[str], key: Key) -> Hashes:
    """Return the hash of each of these names."""
    return hashes(pa.array(names, pa.string()), key)
