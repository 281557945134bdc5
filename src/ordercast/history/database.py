"""The tables of a history on disk: rows to records, index entries and a checkpoint, a checksum on every row.

A row of `chunks` holds small records of one append together, or a large one; a row of `positions` some hundreds of
index entries; `uses` says up to which position a chunk that is older than the checkpoint is referred to (`forget.py`).
"""

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

from ordercast.errors import HistoryError
from ordercast.history.mark import FORMAT
from ordercast.history.store import Checkpoint, Identity, Position

SCHEMA = f"""
BEGIN;
CREATE TABLE identity (cluster TEXT NOT NULL, site TEXT NOT NULL, incarnation INTEGER NOT NULL);
CREATE TABLE chunks (first INTEGER PRIMARY KEY, crc INTEGER NOT NULL, lengths BLOB NOT NULL, data BLOB NOT NULL);
CREATE TABLE positions (first INTEGER PRIMARY KEY, crc INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE uses (chunk INTEGER PRIMARY KEY, until INTEGER NOT NULL);
CREATE TABLE checkpoint (records INTEGER PRIMARY KEY, crc INTEGER NOT NULL, head BLOB NOT NULL, state BLOB NOT NULL);
PRAGMA user_version={FORMAT};
"""
BEFORE = ("page_size=16384", "auto_vacuum=INCREMENTAL")  # must be set before there are tables
ALWAYS = (
    "locking_mode=EXCLUSIVE",
    "journal_mode=WAL",
    "synchronous=FULL",
    "wal_autocheckpoint=2000",
    f"journal_size_limit={64 * 2**20}",
)
CHUNK_BYTES = 2**18  # of small records in a row, about
LARGE_BYTES = 2**14  # a record of that size has a row of its own, and is not copied on its way

Records = Sequence[bytes | None]
"""Of a chunk; None where one is forgotten."""


class Head(msgspec.Struct, frozen=True, array_like=True):
    """What stands beside the state in a checkpoint's row."""

    delivered: int = 0
    first_position: int = 0
    """Where the index begins."""
    swept: int = 0
    """All chunks up to this record were looked at by `forget`."""
    entries_from: int = 0
    """Only entries from here on may refer to records after that."""


_encode = msgspec.msgpack.Encoder().encode
_lengths_of = msgspec.msgpack.Decoder(list[int | None]).decode
_entries_of = msgspec.msgpack.Decoder(list[Position]).decode
_head_of = msgspec.msgpack.Decoder(Head).decode


class Database:
    """The open database of a history; whatever goes wrong with it becomes a HistoryError that names the file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._failed = ""
        self._connection: sqlite3.Connection | None = sqlite3.connect(
            path, isolation_level=None, check_same_thread=False, timeout=0.5
        )

    def create(self, identity: Identity) -> None:
        """Make the tables, once; a crash meanwhile leaves the database empty or whole."""
        if not self.one("PRAGMA user_version")[0]:
            for setting in BEFORE:
                self.execute(f"PRAGMA {setting}")
            self.script(SCHEMA)
            row = (identity.cluster, identity.site, identity.incarnation)
            self.execute("INSERT INTO identity VALUES (?, ?, ?)", *row)
            self.execute("COMMIT")

    def begin(self, identity: Identity) -> None:
        """Set it up for use; raises HistoryError when it is of another format, or another history's."""
        for setting in ALWAYS:
            self.execute(f"PRAGMA {setting}")
        (version,) = self.one("PRAGMA user_version")
        if version != FORMAT:
            raise HistoryError(f"{self.path}: has format {version}, this program reads {FORMAT}")
        found = [Identity(*row) for row in self.execute("SELECT * FROM identity").fetchall()]
        if found != [identity]:
            whose = " and ".join(f"site {one.site} of cluster {one.cluster!r}" for one in found) or "nobody"
            raise HistoryError(f"{self.path}: the history of {whose}, beside a mark of site {identity.site}")

    def execute(self, query: str, *values: object) -> sqlite3.Cursor:
        """Run one statement."""
        if self._connection is None:
            raise HistoryError(f"{self.path}: closed")
        return self._connection.execute(query, values)

    def script(self, queries: str) -> None:
        """Run statements to their end."""
        if self._connection is None:
            raise HistoryError(f"{self.path}: closed")
        self._connection.executescript(queries)

    def one(self, query: str, *values: object) -> tuple[Any, ...]:
        """Return the first row; an empty one when there is none."""
        row: tuple[Any, ...] | None = self.execute(query, *values).fetchone()
        return () if row is None else row

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit all that is done within, or nothing of it; after a failure, nothing more is written."""
        if self._failed:
            raise HistoryError(self._failed)
        try:
            self.execute("BEGIN")
            yield
            self.execute("COMMIT")
        except BaseException as error:
            self.fail(error)
            with suppress(sqlite3.Error):
                self.execute("ROLLBACK")
            raise

    def fail(self, error: BaseException) -> None:
        """Write nothing more: nobody knows what became of the last write."""
        self._failed = f"{self.path}: closed to writes since: {error}"

    @contextmanager
    def named(self) -> Iterator[None]:
        """Name the file in whatever goes wrong with it."""
        try:
            yield
        except sqlite3.Error as error:
            why = "another process uses it" if "locked" in str(error) else str(error)
            raise HistoryError(f"{self.path}: {why}") from None
        except OSError as error:
            raise HistoryError(f"{self.path}: {error.strerror}") from None
        except (TypeError, ValueError, OverflowError, IndexError, msgspec.MsgspecError) as error:
            raise HistoryError(f"{self.path}: damaged: {error}") from None  # another kind of value than was written

    # Records.

    def put_records(self, first: int, records: list[bytes]) -> None:
        """Write the records of one append, from a number on."""
        for chunk in _pieces(records):
            self.put_chunk(first, chunk)
            first += len(chunk)

    def put_chunk(self, first: int, records: Records) -> None:
        """Write, or write again, one row of records."""
        lengths = b"" if len(records) == 1 else _encode([None if data is None else len(data) for data in records])
        data = b"".join([data for data in records if data is not None])  # of one, this is no copy
        row = (first, _checksum(first, lengths, data), lengths, data)
        self.execute("INSERT OR REPLACE INTO chunks VALUES (?, ?, ?, ?)", *row)

    def chunk_with(self, record: int) -> int:
        """Return the key of the chunk that holds a record, if any does."""
        return int(self.one("SELECT max(first) FROM chunks WHERE first <= ?", record)[0] or 0)

    def chunk(self, first: int) -> Records:
        """Return the records of the row with that key; none when there is no such row."""
        row = self.one("SELECT crc, lengths, data FROM chunks WHERE first = ?", first)
        if not row:
            return []
        crc, lengths, data = row
        if _checksum(first, lengths, data) != crc:
            raise HistoryError(f"{self.path}: the records from {first} on are damaged")
        if not lengths:
            return [data]
        records: list[bytes | None] = []
        at = 0
        for length in _lengths_of(lengths):
            records.append(None if length is None else data[at : at + length])
            at += length or 0
        return records

    # The index.

    def put_entries(self, entries: list[Position]) -> None:
        """Write one row of index entries."""
        first, data = entries[0].position, _encode(entries)
        self.execute("INSERT INTO positions VALUES (?, ?, ?)", first, _checksum(first, data), data)

    def entries(self, position: int) -> list[Position]:
        """Return the entries of the last row that begins at a position or before."""
        row = self.one("SELECT * FROM positions WHERE first <= ? ORDER BY first DESC LIMIT 1", position)
        if not row:
            return []
        first, crc, data = row
        if _checksum(first, data) != crc:
            raise HistoryError(f"{self.path}: the index from position {first} on is damaged")
        return _entries_of(data)

    # The checkpoint.

    def put_checkpoint(self, checkpoint: Checkpoint, head: Head) -> None:
        """Replace the checkpoint."""
        records, _, state = checkpoint
        data = _encode(head)
        self.execute("DELETE FROM checkpoint")
        row = (records, _checksum(records, data, state), data, state)
        self.execute("INSERT INTO checkpoint VALUES (?, ?, ?, ?)", *row)

    def checkpoint(self) -> tuple[Checkpoint, Head] | None:
        """Return the checkpoint, if there is one."""
        row = self.one("SELECT * FROM checkpoint ORDER BY records DESC LIMIT 1")
        if not row:
            return None
        records, crc, data, state = row
        if _checksum(records, data, state) != crc:
            raise HistoryError(f"{self.path}: the checkpoint at record {records} is damaged")
        head = _head_of(data)
        return Checkpoint(records, head.delivered, state), head

    def give_back(self, at_most: int, reserve: int) -> None:
        """Return up to so many free pages to the file system, except for a reserve of so many bytes."""
        (free,), (page,) = self.one("PRAGMA freelist_count"), self.one("PRAGMA page_size")
        pages = min(at_most, free - reserve // page)
        if pages > 0:
            self.script(f"PRAGMA incremental_vacuum({pages})")  # `execute` would stop after the first page

    def close(self) -> None:
        """Let go of the files."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def user_version(path: Path) -> int | None:
    """Return the format version in the head of a SQLite file, without opening it as one; None when it has none."""
    with path.open("rb") as file:
        head = file.read(64)
    return int.from_bytes(head[60:64], "big") if head.startswith(b"SQLite format 3\0") and len(head) == 64 else None


def make_file(path: Path) -> None:
    """Make an empty file that only its owner may read."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


def _checksum(key: int, *data: bytes) -> int:
    """Return the checksum of a row."""
    value = crc32(b"%d" % key)
    for part in data:
        value = crc32(part, value)
    return value


def _pieces(records: list[bytes]) -> Iterator[list[bytes]]:
    """Cut the records of one append into chunks."""
    piece: list[bytes] = []
    size = 0
    for data in records:
        if piece and (size >= CHUNK_BYTES or len(data) >= LARGE_BYTES or len(piece[0]) >= LARGE_BYTES):
            yield piece
            piece, size = [], 0
        piece.append(data)
        size += len(data)
    if piece:
        yield piece
