"""Run directories as Arrow columns, read in pieces: what is required, what is refused, and by which name.

A piece is a file, or some row groups of a large one. Names that repeat are read as dictionaries, so the fold works on
small numbers; messages and stamps stay bytes laid end to end.
"""

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from ordercast.errors import InputError
from ordercast.membership.toml import check_group
from ordercast.names import GroupId, SiteId
from ordercast.runs import destinations, files, schema
from ordercast.runs.schema import BINARY, GROUPS, LISTS, MANY, NAMES, NUMBER, TEXT, WHOLE

PIECE_ROWS = 500_000  # joining row groups costs a copy; a piece, a few milliseconds
SHORT_OFFSETS = 2**30  # bytes that 32-bit offsets are surely enough for
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt
DICTIONARY = pa.dictionary(pa.int32(), pa.string())
LONG_OFFSETS = {"binary_type": pa.large_binary()}


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
    derived: bool = False
    """Whether nobody recorded these rows, and they were made of what sites delivered."""

    @property
    def rows(self) -> int:
        """Count the rows."""
        return sum(piece.rows for piece in self.pieces)


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
    """Find a table of a run directory and read the heads of its files (or of one); says what is missing or mixed.

    A column that may be absent is left out of the table when some of its files lack it.
    """
    system, root = file_system(folder)
    where = f"{root.rstrip('/')}/{name}".rstrip("/") or "/"
    kinds: dict[str, tuple[str, str]] = {}
    columns: dict[str, str] | None = None
    pieces: list[Piece] = []
    derived = False
    for path in _paths(system, folder, name, where, only):
        arrow, meta = _head(system, path)
        here = _columns(path, where, arrow, required, optional)
        _check_kinds(path, arrow, here, kinds)
        for absent in [column for column in schema.MAY_BE_ABSENT if column in (columns or {}).keys() ^ here.keys()]:
            if columns is not None:
                columns.pop(absent, None)
                here.pop(absent, None)
        if columns is not None and here.keys() != columns.keys():
            odd = sorted(here.keys() ^ columns.keys())[0]
            raise InputError(f"{path}: column {odd!r} is in some files of {name}/ and not in others")
        columns = here
        pieces += _pieces(path, meta)
        derived |= schema.DERIVED_KEY in (arrow.metadata or {})
    assert columns is not None
    return Table(name, columns, pieces, derived)


def _paths(system: Any, folder: str, name: str, where: str, only: str | None) -> list[str]:
    """Return the files of a table that hold rows, at least one."""
    try:
        listed = system.get_file_info(pafs.FileSelector(where, recursive=only is None))
    except (pa.ArrowException, OSError):
        what = f"no folder {name}/ of Parquet files" if name else "no such folder"
        raise InputError(f"{folder}: {what}") from None
    there = sorted(f.path for f in listed if f.type == pafs.FileType.File and f.size)
    if only is not None:
        paths = [path for path in there if path.rsplit("/", 1)[-1] == only]
    else:
        paths = [path for path in there if files.is_data(path, where)]
    if not paths:
        raise InputError(f"{folder}: no Parquet file in {name}/" if name else f"{folder}: no Parquet file")
    return paths


def _head(system: Any, path: str) -> tuple[Any, Any]:
    """Return the schema and the metadata of a file; one of a later version than ours is refused."""
    try:
        with system.open_input_file(path) as file:
            head = pq.ParquetFile(file)
            arrow, meta = head.schema_arrow, head.metadata
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{path}: not readable as Parquet: {str(error).splitlines()[0]}") from None
    version = (arrow.metadata or {}).get(schema.VERSION_KEY, b"1").decode(errors="replace")
    if version not in schema.VERSIONS:
        ours = " and ".join(schema.VERSIONS)
        raise InputError(f"{path}: a run directory of version {version[:20]}; this program reads {ours}")
    return arrow, meta


def _check_kinds(path: str, arrow: Any, here: Mapping[str, str], kinds: dict[str, tuple[str, str]]) -> None:
    """Refuse a column that holds something else than in an earlier file; `kinds` remembers what, and in which file."""
    for column in here:
        in_folder = WHOLE if here[column] == WHOLE else TEXT
        kind = _kind(arrow.field(column).type) if column in arrow.names else in_folder
        seen = kinds.setdefault(column, (kind, path))
        if seen[0] != kind:
            raise InputError(f"{path}: column {column!r} holds {kind}, but {seen[0]} in {seen[1]}")


def _columns(
    path: str, root: str, arrow: Any, required: Mapping[str, str], optional: Mapping[str, str]
) -> dict[str, str]:
    found = {}
    given = files.in_folders(path.removeprefix(root))
    for column, kind in (*required.items(), *optional.items()):
        if arrow.names.count(column) > 1:
            raise InputError(f"{path}: column {column!r} is there twice")
        if column not in arrow.names:
            if column in given and kind != BINARY:
                found[column] = kind
            elif column in required:
                there = ", ".join(arrow.names)[:200] or "none"
                raise InputError(f"{path}: column {column!r} is missing (columns: {there})")
            continue
        there = _kind(arrow.field(column).type)
        taken = {TEXT: (TEXT, WHOLE), GROUPS: (TEXT, WHOLE, LISTS), NAMES: (LISTS,)}.get(kind, (kind,))
        if there not in taken:
            raise InputError(f"{path}: column {column!r} holds {arrow.field(column).type}, not a {kind}")
        found[column] = LISTS if there == LISTS and kind == GROUPS else kind
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
    names = [c for c, kind in columns.items() if c in schema.REPEATED and kind not in (MANY, LISTS) and c not in given]
    long = [c for c, kind in columns.items() if c not in names and kind in (TEXT, MANY, BINARY)]
    try:
        with system.open_input_file(piece.path) as file:
            meta = files.plain_metadata(file)
            there = set(meta.schema.to_arrow_schema().names)
            stored = {column for column in columns if column in there}
            groups = range(piece.first, piece.first + piece.many)
            rows: dict[str, Any] = {}
            for some, types in ((stored - set(long), {"read_dictionary": names}), (stored & set(long), LONG_OFFSETS)):
                if some:
                    source = pq.ParquetFile(file, metadata=meta, **types)
                    table = source.read_row_groups(list(groups), columns=sorted(some), use_threads=threads)
                    rows |= {column: table.column(column) for column in some}
            first = 1 + sum(meta.row_group(group).num_rows for group in range(piece.first))
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{piece.path}: not readable as Parquet: {str(error).splitlines()[0]}") from None
    found = {}
    for name, kind in columns.items():
        if name not in stored:
            found[name] = files.folder_column(piece.path, name, piece.rows, whole=kind == WHOLE)
            continue
        text, null = kind in (TEXT, MANY, GROUPS), name in schema.MAY_BE_NULL
        found[name] = files.checked(piece.path, name, rows[name], first=first, text=text, may_be_null=null)
        if kind == LISTS:
            files.check_lists(piece.path, name, found[name], first=first)
    if "position" in columns and piece.rows:
        positions = found["position"].to_numpy()
        if int(positions.min()) < 0:
            row = first + int(np.argmax(positions < 0))
            raise InputError(f"{piece.path}: row {row}: position {positions.min()} is negative")
    return pa.table(found)


def read_part(path: str, required: Mapping[str, str], optional: Mapping[str, str]) -> tuple[Any, dict[str, str]]:
    """Read one file of a table on this machine, whole, by the rules of a run: its rows, and which columns there are."""
    system = pafs.LocalFileSystem()
    arrow, meta = _head(system, path)
    columns = _columns(path, path.rpartition("/")[0], arrow, required, optional)
    return pa.concat_tables([read(system, piece, columns) for piece in _pieces(path, meta)]), columns


def tidy(table: Any, columns: Mapping[str, str]) -> Any:
    """Bring columns to the types the fold works on, each in one array."""
    return pa.table([_tidied(table.column(name), name, kind) for name, kind in columns.items()], names=list(columns))


def _tidied(column: Any, name: str, kind: str) -> Any:
    if kind == LISTS:
        return destinations.of_lists(one(column))
    if kind == GROUPS:
        return destinations.of_texts(_tidied(column, name, TEXT))
    if name in schema.REPEATED and kind != MANY:
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


def has_table(folder: str, name: str) -> bool:
    """Whether a run directory has a table: a folder with a file that holds rows."""
    system, root = file_system(folder)
    where = f"{root.rstrip('/')}/{name}"
    try:
        listed = system.get_file_info(pafs.FileSelector(where, recursive=True, allow_not_found=True))
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{folder}: {str(error).splitlines()[0]}") from None
    return any(f.type == pafs.FileType.File and f.size and files.is_data(f.path, where) for f in listed)


def read_rows(folder: str, name: str, columns: Mapping[str, str]) -> list[dict[str, Any]]:
    """Read a small table of a run directory, if it is there."""
    if not has_table(folder, name):
        return []
    system, _ = file_system(folder)
    found = find(folder, name, columns, {})
    return [row for piece in found.pieces for row in read(system, piece, found.columns).to_pylist()]


def read_members(folder: str, *, texts: bool, may_be_empty: bool = False) -> dict[GroupId, list[SiteId]]:
    """Read who is in which group; where logs write several groups as a text, no name has a `+`."""
    if may_be_empty and not has_table(folder, "membership"):
        return {}
    system, _ = file_system(folder)
    found = find(folder, "membership", schema.MEMBERSHIP, {})
    members: dict[GroupId, list[SiteId]] = {}
    for piece in found.pieces:
        for row in read(system, piece, found.columns).to_pylist():
            if texts:
                check_group(f"{piece.path}: ", row["group"])
            members.setdefault(row["group"], []).append(row["site"])
    if not members:
        raise InputError(f"{folder}: membership/: no rows")
    return {group: sorted(set(sites)) for group, sites in sorted(members.items())}


class Told:
    """The tables of a run, wherever they are: which optional columns there are, and who is a member of what."""

    def __init__(self, deliveries: Table, sends: Table, members: Callable[[], dict[GroupId, list[SiteId]]]) -> None:
        self.deliveries, self.sends, self._members = deliveries, sends, members

    @cached_property
    def members(self) -> dict[GroupId, list[SiteId]]:
        """Who is in which group: read when it is first asked for, because it may be too large to hold."""
        return self._members()

    @property
    def stamped(self) -> bool:
        """Whether deliveries carry the certificate of their order."""
        return "stamp" in self.deliveries.columns and "order_class" in self.deliveries.columns

    @property
    def epochs(self) -> bool:
        """Whether deliveries say of which epoch they are."""
        return "epoch" in self.deliveries.columns

    @property
    def context(self) -> bool:
        """Whether sends say how many deliveries came before them."""
        return "after" in self.sends.columns

    @property
    def bodies(self) -> bool:
        """Whether deliveries carry hashes of their bodies, to be compared between sites at least."""
        return "body_hash" in self.deliveries.columns

    @property
    def sent_bodies(self) -> bool:
        """Whether the hashes of delivered bodies can be compared with those that were sent."""
        return self.bodies and "body_hash" in self.sends.columns


class Run(Told):
    """The tables of a run directory."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        deliveries = find(folder, "deliveries", schema.DELIVERIES, schema.DELIVERIES_OPTIONAL)
        sends = find(folder, "sends", schema.SENDS, schema.SENDS_OPTIONAL)
        self.texts = any(table.columns["group"] != LISTS for table in (deliveries, sends))
        """Whether several groups are written as one text, so that no group has a `+` in its name."""
        self.changes = has_table(folder, "lives")
        """Whether groups change in this run."""
        self.membership = Table("membership", {}, ())
        if not self.changes or has_table(folder, "membership"):
            self.membership = find(folder, "membership", schema.MEMBERSHIP, {})
        super().__init__(deliveries, sends, lambda: read_members(folder, texts=self.texts, may_be_empty=self.changes))
