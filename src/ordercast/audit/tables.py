"""Run directories as Arrow columns, read in pieces: what is required, what is refused, and by which name.

A piece is a file, or some row groups of a large one. Names that repeat are read as dictionaries, so the fold works on
small numbers; messages and stamps stay bytes laid end to end.
"""

import ctypes
import hashlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from ordercast.audit import destinations, files, kernels, plain
from ordercast.audit.kernels import LONG, Hashes, Ints, Key, Longs, Strings
from ordercast.errors import InputError

PIECE_ROWS = 500_000  # joining row groups costs a copy; a piece, a few milliseconds
PLAIN_ROWS = 1_000_000  # up to here arrays are as good as compiled loops, which take a second to load
TEXT, WHOLE, BINARY, NUMBER = "string", "whole number", "binary", "number"
MANY = "strings, few of them the same"
GROUPS, LISTS = "string or list of strings", "list of strings"
DELIVERIES = {"site": TEXT, "position": WHOLE, "msg_id": TEXT, "group": GROUPS, "source": TEXT, "source_seq": WHOLE}
OPTIONAL = {"epoch": WHOLE, "order_class": TEXT, "stamp": BINARY, "prev_stamp": BINARY}
SENDS = {"msg_id": TEXT, "group": GROUPS, "source": TEXT, "source_seq": WHOLE}
CONTEXT = {"after": WHOLE}
MEMBERSHIP = {"site": TEXT, "group": TEXT}
NAMES = ("site", "group", "source", "order_class")
MAY_BE_NULL = ("prev_stamp",)
SHORT_OFFSETS = 2**30  # bytes that 32-bit offsets are surely enough for
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
DICTIONARY = pa.dictionary(pa.int32(), pa.string())


@dataclass(frozen=True)
class Piece:
    """Some rows of one file."""

    path: str
    first: int
    """The first row group."""
    many: int
    rows: int


@dataclass(frozen=True)
class Table:
    """One table of a run directory: where it is, which of its columns there are."""

    name: str
    columns: Mapping[str, str]
    pieces: Sequence[Piece]

    @property
    def rows(self) -> int:
        """Count the rows."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def stamped(self) -> bool:
        """Whether deliveries carry the certificate."""
        return "stamp" in self.columns and "order_class" in self.columns


def keep_memory() -> None:
    """Let this process keep the memory it has.

    Giving it back after every piece and faulting it in again is an eighth of an audit's cost, and more on a virtual
    machine, where the host takes it away too.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    with suppress(AttributeError, OSError):  # another C library
        libc = ctypes.CDLL(None)
        libc.mallopt(M_MMAP_THRESHOLD, 2**30)
        libc.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)


def file_system(folder: str) -> tuple[Any, str]:
    """Return who reads this path, and the path as it knows it: a local folder, or anything Arrow has a system for."""
    try:
        if "://" in folder:
            return pafs.FileSystem.from_uri(folder)  # type: ignore[no-any-return]
        return pafs.LocalFileSystem(), folder
    except (pa.ArrowException, ValueError, OSError) as error:
        raise InputError(f"{folder}: {str(error).splitlines()[0]}") from None


def find(
    folder: str, name: str, required: Mapping[str, str], optional: Mapping[str, str], only: str | None = None
) -> Table:
    """Find a table of a run directory and read the heads of its files (or of one); says what is missing or mixed."""
    system, root = file_system(folder)
    where = f"{root.rstrip('/')}/{name}".rstrip("/") or "/"
    try:
        listed = system.get_file_info(pafs.FileSelector(where, recursive=only is None))
    except (pa.ArrowException, OSError):
        raise InputError(
            f"{folder}: no folder {name}/ of Parquet files" if name else f"{folder}: no such folder"
        ) from None
    there = sorted(f.path for f in listed if f.type == pafs.FileType.File and f.size)
    if only is not None:
        paths = [path for path in there if path.rsplit("/", 1)[-1] == only]
    else:
        paths = [path for path in there if files.is_data(path, where)]
    if not paths:
        raise InputError(f"{folder}: no Parquet file in {name}/" if name else f"{folder}: no Parquet file")
    kinds: dict[str, tuple[str, str]] = {}
    columns: dict[str, str] | None = None
    pieces: list[Piece] = []
    for path in paths:
        try:
            with system.open_input_file(path) as file:
                head = pq.ParquetFile(file)
                schema, meta = head.schema_arrow, head.metadata
        except (pa.ArrowException, OSError) as error:
            raise InputError(f"{path}: not readable as Parquet: {str(error).splitlines()[0]}") from None
        here = _columns(path, where, schema, required, optional)
        for column in here:
            in_folder = WHOLE if here[column] == WHOLE else TEXT
            kind = _kind(schema.field(column).type) if column in schema.names else in_folder
            seen = kinds.setdefault(column, (kind, path))
            if seen[0] != kind:
                raise InputError(f"{path}: column {column!r} holds {kind}, but {seen[0]} in {seen[1]}")
        if columns is not None and here.keys() != columns.keys():
            odd = sorted(here.keys() ^ columns.keys())[0]
            raise InputError(f"{path}: column {odd!r} is in some files of {name}/ and not in others")
        columns = here
        pieces += _pieces(path, meta)
    assert columns is not None
    return Table(name, columns, pieces)


def _columns(
    path: str, root: str, schema: Any, required: Mapping[str, str], optional: Mapping[str, str]
) -> dict[str, str]:
    found = {}
    given = files.in_folders(path.removeprefix(root))
    for column, kind in (*required.items(), *optional.items()):
        if schema.names.count(column) > 1:
            raise InputError(f"{path}: column {column!r} is there twice")
        if column not in schema.names:
            if column in given and kind != BINARY:
                found[column] = kind
            elif column in required:
                there = ", ".join(schema.names)[:200] or "none"
                raise InputError(f"{path}: column {column!r} is missing (columns: {there})")
            continue
        there = _kind(schema.field(column).type)
        taken = {TEXT: (TEXT, WHOLE), GROUPS: (TEXT, WHOLE, LISTS)}.get(kind, (kind,))
        if there not in taken:
            raise InputError(f"{path}: column {column!r} holds {schema.field(column).type}, not a {kind}")
        found[column] = LISTS if there == LISTS else kind
    return found


def _kind(kind: Any) -> str:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return TEXT
    if pa.types.is_integer(kind):
        return WHOLE
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return BINARY
    if pa.types.is_binary_view(kind):
        return BINARY
    if (pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _kind(kind.value_type) == TEXT:
        return LISTS
    return NUMBER if pa.types.is_floating(kind) else str(kind)


def _pieces(path: str, meta: Any) -> Iterator[Piece]:
    first = rows = 0
    for group in range(meta.num_row_groups):
        size = meta.row_group(group).num_rows
        if rows and rows + size > PIECE_ROWS:
            yield Piece(path, first, group - first, rows)
            first, rows = group, 0
        rows += size
    yield Piece(path, first, meta.num_row_groups - first, rows)


def read(system: Any, piece: Piece, columns: Mapping[str, str], *, threads: bool = False) -> Any:
    """Read a piece as an Arrow table: names as dictionaries; what cannot be taken is refused by row."""
    given = files.in_folders(piece.path)
    names = [c for c, kind in columns.items() if c in NAMES and kind not in (MANY, LISTS) and c not in given]
    try:
        with system.open_input_file(piece.path) as file:
            source = pq.ParquetFile(file, read_dictionary=names)
            groups = list(range(piece.first, piece.first + piece.many))
            there = set(source.schema_arrow.names)  # worked out anew each time it is asked for
            stored = [column for column in columns if column in there]
            table = source.read_row_groups(groups, columns=stored, use_threads=threads)
            first = 1 + sum(source.metadata.row_group(group).num_rows for group in range(piece.first))
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{piece.path}: not readable as Parquet: {str(error).splitlines()[0]}") from None
    found = {}
    for name, kind in columns.items():
        if name not in stored:
            found[name] = files.folder_column(piece.path, name, piece.rows, whole=kind == WHOLE)
            continue
        text, null = kind in (TEXT, MANY, GROUPS), name in MAY_BE_NULL
        found[name] = files.checked(piece.path, name, table.column(name), first=first, text=text, may_be_null=null)
        if kind == LISTS:
            files.check_lists(piece.path, name, found[name], first=first)
    if "position" in columns and piece.rows:
        positions = found["position"].to_numpy()
        if int(positions.min()) < 0:
            row = first + int(np.argmax(positions < 0))
            raise InputError(f"{piece.path}: row {row}: position {positions.min()} is negative")
    return pa.table(found)


def tidy(table: Any, columns: Mapping[str, str]) -> Any:
    """Bring columns to the types the fold works on, each in one array."""
    return pa.table([_tidied(table.column(name), name, kind) for name, kind in columns.items()], names=list(columns))


def _tidied(column: Any, name: str, kind: str) -> Any:
    if kind == LISTS:
        return destinations.of_lists(one(column))
    if kind == GROUPS:
        return destinations.of_texts(_tidied(column, name, TEXT))
    if name in NAMES and kind != MANY:
        if not pa.types.is_dictionary(column.type):
            column = column.cast(pa.string()).dictionary_encode()
        if column.type != DICTIONARY:
            column = column.cast(DICTIONARY)
        return one(column.unify_dictionaries() if column.num_chunks > 1 else column)
    if kind == WHOLE:
        return one(column.cast(pa.int64()))
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if not (pa.types.is_string(column.type) or pa.types.is_binary(column.type)) or column.nbytes > SHORT_OFFSETS:
        column = column.cast(pa.large_string() if kind in (TEXT, MANY) else pa.large_binary())
    return one(column)


def one(array: Any) -> Any:
    """Return a column as one array."""
    if not isinstance(array, pa.ChunkedArray):
        return array
    return array.chunk(0) if array.num_chunks == 1 else array.combine_chunks()


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
    """Return the place of every name among all, in order."""
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
    """Whether so many rows are not worth loading the compiler for, or there is none; once loaded, loops are faster."""
    if "numba" in sys.modules:
        return False
    return rows <= PLAIN_ROWS or importlib.util.find_spec("numba") is None


def load_compiler() -> None:
    """Load the compiler if there is one: from then on the compiled loops are taken."""
    with suppress(ImportError):
        import numba  # noqa: F401


def choose_loops(rows: int) -> None:
    """Load the compiler when a log of so many rows is worth it: by the whole, for its pieces never are."""
    if not plainly(rows):
        load_compiler()


def hashes(column: Any, key: Key) -> Hashes:
    """Hash every string of a column; one that is very long by a library, or it would hold up all others."""
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
    """Hash names."""
    return hashes(pa.array(names, pa.string()), key)
