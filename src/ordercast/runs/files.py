"""Parquet as others write it: which files are data, columns in the names of folders, and values that cannot be taken.

Everything here is about one file; `runs.reader` knows what a table needs.
"""

from contextlib import suppress
from itertools import accumulate
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ordercast.errors import InputError

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
MOST = 2**63 - 1
ARROW_NOTE, MAGIC = b"ARROW:schema", b"PAR1"


def is_data(path: str, root: str) -> bool:
    """Whether a file below a folder holds rows: Parquet, and neither it nor a folder above it is hidden or private.

    `_temporary/`, `_delta_log/`, `_SUCCESS` and `.hidden` are what writers leave beside their tables.
    """
    parts = path.removeprefix(root).strip("/").split("/")
    hidden = any(part.startswith(("_", ".")) and "=" not in part for part in parts)
    return path.endswith((".parquet", ".pq")) and not hidden


def plain_metadata(file: Any) -> Any:
    """Read what a file says of itself, but for Arrow's note of the types that were written.

    With the note, Arrow makes texts and bytes with short offsets again, and looks at each value whether it still fits:
    long offsets are read in three fifths of the time.
    """
    size = file.size()
    file.seek(max(size - 8, 0))
    tail = file.read(8)
    length = int.from_bytes(tail[:4], "little")
    if tail[4:] != MAGIC or length + 8 > size:
        return pq.read_metadata(file)  # which says what is wrong
    file.seek(size - 8 - length)
    footer = file.read(length).replace(ARROW_NOTE, ARROW_NOTE.lower())
    return pq.read_metadata(pa.BufferReader(MAGIC + footer + tail))


def in_folders(path: str) -> dict[str, str]:
    """Return the columns that the folders of a file give a value, as in `site=a/part-0.parquet`."""
    named = (part.partition("=") for part in path.split("/")[:-1] if "=" in part)
    return {unquote(name): unquote(value) for name, _, value in named}


def folder_column(path: str, name: str, rows: int, *, whole: bool) -> Any:
    """Return a column that is only in the name of a folder."""
    value = in_folders(path)[name]
    if value == NO_VALUE:
        raise InputError(f"{path}: {name} is null")
    if whole:
        digits = value.removeprefix("-")
        if not (digits.isascii() and digits.isdecimal() and len(digits) < 19):
            raise InputError(f"{path}: {name} {value[:40]!r} is not a whole number")
        return pa.chunked_array([pa.array(np.full(rows, int(value)))])
    codes = pa.array(np.zeros(rows, np.int32))
    return pa.chunked_array([pa.DictionaryArray.from_arrays(codes, pa.array([value], pa.string()))])


def checked(path: str, name: str, column: Any, *, first: int, text: bool, may_be_null: bool) -> Any:
    """Return a column as the audit takes it: whole numbers for names become text; what cannot be is told by row.

    `first` is the number of its first row in the file, from 1.
    """
    if column.null_count and not may_be_null:
        row = pc.index(pc.is_null(column), True).as_py()
        raise InputError(f"{path}: row {first + row}: {name} is null")
    if text and pa.types.is_integer(column.type):
        return column.cast(pa.string())
    if text:
        _check_text(path, name, column, first)
    elif pa.types.is_uint64(column.type) and len(column) and pc.max(column).as_py() > MOST:
        row = int(np.argmax(column.to_numpy() > MOST))
        raise InputError(f"{path}: row {first + row}: {name} {column[row].as_py()} is above 2^63 - 1")
    return column


def check_lists(path: str, name: str, column: Any, *, first: int) -> None:
    """Refuse lists that are empty, or have something in them that is null, empty or not UTF-8."""
    for chunk, begin in zip(column.chunks, accumulate(map(len, column.chunks), initial=first), strict=False):
        many = chunk.value_lengths().to_numpy(zero_copy_only=False)
        if not many.all():
            raise InputError(f"{path}: row {begin + int(np.argmin(many != 0))}: {name} is an empty list")
        inside = chunk.flatten()
        if pa.types.is_dictionary(inside.type):
            inside = inside.cast(inside.type.value_type)
        values = inside.cast(pa.large_binary())
        bad = pc.or_kleene(pc.is_null(values), pc.equal(pc.binary_length(values), 0)).to_numpy(zero_copy_only=False)
        with suppress(pa.ArrowInvalid):
            inside.validate(full=True)
            if not bad.any():
                continue
        texts = values.to_pylist()
        at = next(index for index, value in enumerate(texts) if not value or not _is_text(value))
        row = begin + int(np.searchsorted(np.cumsum(many), at, side="right"))
        raise InputError(f"{path}: row {row}: {name} has a name that is null, empty or not UTF-8 text")


def _check_text(path: str, name: str, column: Any, first: int) -> None:
    """Refuse bytes that are not UTF-8; a dictionary is looked at once, whatever its rows."""
    if all(map(_is_ascii, column.chunks)):  # nearly always, and five times as fast
        return
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        for chunk, begin in zip(column.chunks, accumulate(map(len, column.chunks), initial=first), strict=False):
            is_coded = pa.types.is_dictionary(chunk.type)
            values = (chunk.dictionary if is_coded else chunk).cast(pa.large_binary()).to_pylist()
            bad = [index for index, value in enumerate(values) if value is not None and not _is_text(value)]
            rows = np.flatnonzero(np.isin(chunk.indices.to_numpy(), bad)).tolist() if is_coded else bad
            if rows:
                raise InputError(f"{path}: row {begin + rows[0]}: {name} is not UTF-8 text") from None
        raise InputError(f"{path}: column {name!r} is not readable") from None


def _is_ascii(chunk: Any) -> bool:
    """Whether a chunk surely has nothing but ASCII in it."""
    values = chunk.dictionary if pa.types.is_dictionary(chunk.type) else chunk
    if not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return False
    data = values.buffers()[2]
    return data is None or bool(np.frombuffer(data, np.uint8).max(initial=0) < 128)


def _is_text(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True
