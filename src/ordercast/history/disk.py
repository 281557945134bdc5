"""The history on disk: SQLite in WAL mode, one durable transaction per append, a checksum on every row.

A row of `chunks` holds small records of one append together, or a large one; a row of `positions` some hundreds of
index entries; `uses` says up to which position a chunk that is older than the checkpoint is referred to (`forget.py`).
`mark` beside the database says what was acknowledged (`mark.py`). The folder is locked: one process at a time.
"""

import fcntl
import os
import sqlite3
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self
from zlib import crc32

import msgspec

from ordercast.errors import HistoryError, LocalError
from ordercast.history import forget
from ordercast.history.mark import FORMAT, Mark, Told
from ordercast.history.store import Checkpoint, Identity, Position, check_keep, refuse_others, unknown
from ordercast.names import SiteId

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
ROW_ENTRIES = 512  # of the index in a row, about; fewer are written only with a checkpoint
SLICE_BYTES = 4 * 2**20  # of records that `past` returns at once, about
GIVE_BACK_PAGES = 2048  # at one checkpoint

_encode = msgspec.msgpack.Encoder().encode
_lengths_of = msgspec.msgpack.Decoder(list[int | None]).decode
_entries_of = msgspec.msgpack.Decoder(list[Position]).decode
_head_of = msgspec.msgpack.Decoder(forget.Head).decode


def checksum(key: int, *data: bytes) -> int:
    """Return the checksum of a row."""
    value = crc32(b"%d" % key)
    for part in data:
        value = crc32(part, value)
    return value


class DiskHistory:
    """A history in a folder of its own."""

    def __init__(self, folder: Path, lock: int) -> None:
        """Use `open`."""
        self.folder, self.path = folder, folder / "history.db"
        self.identity: Identity
        self.count = self.next_position = self.first_position = 0
        self._lock = lock
        self._mark: Mark | None = None
        self._db: sqlite3.Connection | None = None
        self._head = forget.Head()
        self._kept = 0  # as in the mark
        self._pending: list[Position] = []  # entries that are not in the database yet
        self._written = 0  # bytes of records since the last checkpoint
        self._failed = ""

    @classmethod
    def open(cls, folder: Path, cluster: str, site: SiteId, new_incarnation: int) -> Self:
        """Open the history of a site, or create one of this incarnation where there is none.

        Raises HistoryError when it is in use, damaged, another site's, or of another format; the last two, and a folder
        in use, are left exactly as they are.
        """
        history = cls(folder, _locked(folder))
        try:
            with history._named():
                history._open_mark(Identity(cluster, site, new_incarnation))
                history._open_database()
                history._load()
                history._check()
        except BaseException:
            history._let_go()
            raise
        return history

    # Opening.

    def _open_mark(self, new: Identity) -> None:
        """Find out whose history this is, before anything is touched."""
        size = self.path.stat().st_size if self.path.exists() else 0
        old = size > 0 and _user_version(self.path) == 0
        try:
            self._mark = Mark.open(self.folder / "mark")
        except HistoryError:
            if not old:
                raise
        if self._mark is None and old:
            raise HistoryError(
                f"{self.folder}: a history of version 0.1, which this version cannot read; nothing was changed. Move"
                " it aside to start over"
            )
        if self._mark is None and size:
            raise HistoryError(f"{self.folder / 'mark'}: missing beside a history")
        if self._mark is None:
            self.folder.chmod(0o700)
            self._mark = Mark.create(self.folder / "mark", new)
            _sync_folder(self.folder)
        self.identity = self._mark.identity
        refuse_others(str(self.folder), self.identity, new.cluster, new.site)
        if self._mark.told.created and not size:
            raise HistoryError(f"{self.path}: missing, but {self._mark.told.records} records were written")

    def _open_database(self) -> None:
        assert self._mark is not None
        if not self._mark.told.created:
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=0.5)
        if not self._mark.told.created:
            self._create()
        for setting in ALWAYS:
            self._db.execute(f"PRAGMA {setting}")
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version != FORMAT:
            raise HistoryError(f"{self.path}: has format {version}, this program reads {FORMAT}")
        found = [Identity(*row) for row in self._db.execute("SELECT * FROM identity").fetchall()]
        if found != [self.identity]:
            whose = " and ".join(f"site {one.site} of cluster {one.cluster!r}" for one in found) or "nobody"
            raise HistoryError(f"{self.path}: the history of {whose}, beside a mark of site {self.identity.site}")

    def _create(self) -> None:
        """Make the database, once; a crash meanwhile leaves it empty or whole."""
        assert self._mark is not None and self._db is not None
        if not self._db.execute("PRAGMA user_version").fetchone()[0]:
            for setting in BEFORE:
                self._db.execute(f"PRAGMA {setting}")
            self._db.executescript(SCHEMA)
            row = (self.identity.cluster, self.identity.site, self.identity.incarnation)
            self._db.execute("INSERT INTO identity VALUES (?, ?, ?)", row)
            self._db.execute("COMMIT")
        _sync_folder(self.folder)
        self._mark.write(Told(created=True))
        self._mark.sync()

    def _load(self) -> None:
        """Find where the history begins and ends."""
        kept = self._checkpoint()
        if kept is not None:
            checkpoint, self._head = kept
            self._kept, self.count = checkpoint.records + 1, checkpoint.records
        self.first_position = self.next_position = self._head.first_position
        chunk = self._one("SELECT * FROM chunks ORDER BY first DESC LIMIT 1")
        if chunk is not None:
            self.count = max(self.count, chunk[0] + len(self.chunk(*chunk)) - 1)
        row = self._one("SELECT * FROM positions ORDER BY first DESC LIMIT 1")
        if row is not None:
            self.next_position = self._entries(*row)[-1].end
            (first,) = self._one("SELECT min(first) FROM positions") or (None,)
            if first != self.first_position:
                raise HistoryError(f"{self.path}: the index begins at {first}, not at {self.first_position}")

    def _check(self) -> None:
        """Compare with the mark, and renew it: what is there now is acknowledged from now on."""
        assert self._mark is not None
        told, found = self._mark.told, self._told()
        for what, written, there in zip(("record", "position", "checkpoint"), told, found, strict=False):
            if there < written:
                raise HistoryError(f"{self.path}: ends at {what} {there}, but {written} were written")
        for _ in self.records(max(told.records, self._kept - 1)):
            pass  # a mark may be behind after a crash: see with our own eyes what it is to say
        self._mark.write(found)
        self._mark.sync()
        for path in (self.folder, self.path, self._mark.path):
            path.chmod(0o700 if path is self.folder else 0o600)

    def _told(self) -> Told:
        in_database = self._pending[0].position if self._pending else self.next_position
        return Told(self.count, in_database, self._kept, created=True)

    # Reading.

    def checkpoint(self) -> Checkpoint | None:
        """Return the last checkpoint."""
        with self._named():
            kept = self._checkpoint()
        return None if kept is None else kept[0]

    def _checkpoint(self) -> tuple[Checkpoint, "forget.Head"] | None:
        row = self._one("SELECT * FROM checkpoint ORDER BY records DESC LIMIT 1")
        if row is None:
            return None
        records, crc, head, state = row
        if checksum(records, head, state) != crc:
            raise HistoryError(f"{self.path}: the checkpoint at record {records} is damaged")
        read = _head_of(head)
        return Checkpoint(records, read.delivered, state), read

    def records(self, after: int) -> Iterator[bytes]:
        """Yield all records after one, in order."""
        expected = after + 1
        while expected <= self.count:
            with self._named():
                row = self._one("SELECT * FROM chunks WHERE first <= ? ORDER BY first DESC LIMIT 1", expected)
                chunk = [] if row is None else self.chunk(*row)[expected - row[0] :]
            if not chunk:
                raise HistoryError(f"{self.path}: record {expected} is missing")
            for data in chunk:
                if data is None:
                    raise HistoryError(f"{self.path}: record {expected} is forgotten")
                yield data
                expected += 1

    def past(self, begin: int, at_most: int) -> list[tuple[Position, bytes]]:
        """Return index entries from a position on with their records."""
        if begin < self.first_position:
            raise LocalError(f"position {begin} is not kept here any more; the oldest is {self.first_position}")
        found: list[tuple[Position, bytes]] = []
        chunks: dict[int, list[bytes | None]] = {}
        size = 0
        with self._named():
            for entry in self.entries(begin):
                if len(found) >= at_most or size > SLICE_BYTES:
                    break
                data = self._record(entry.record, chunks)
                size += len(data)
                found.append((entry, data))
        return found

    def entries(self, begin: int) -> Iterator[Position]:
        """Yield the entries of the index from the one that contains a position on."""
        in_database = self._pending[0].position if self._pending else self.next_position
        at = begin
        while at < in_database:
            row = self._one("SELECT * FROM positions WHERE first <= ? ORDER BY first DESC LIMIT 1", at)
            entries = [] if row is None else [entry for entry in self._entries(*row) if entry.end > at]
            if not entries or entries[0].position > at:
                raise HistoryError(f"{self.path}: the index lacks position {at}")
            yield from entries
            at = entries[-1].end
        yield from [entry for entry in self._pending if entry.end > at]

    def _record(self, number: int, chunks: dict[int, list[bytes | None]]) -> bytes:
        """Return a record; `chunks` are those read so far."""
        key = self.chunk_with(number)
        if key not in chunks:
            if len(chunks) > 3:
                del chunks[next(iter(chunks))]
            row = self._one("SELECT * FROM chunks WHERE first = ?", key)
            chunks[key] = [] if row is None else self.chunk(*row)
        data = chunks[key][number - key] if number - key < len(chunks[key]) else None
        if data is None:
            raise HistoryError(f"{self.path}: record {number} is missing")
        return data

    def chunk_with(self, record: int) -> int:
        """Return the key of the chunk that holds a record, if any does."""
        (key,) = self._one("SELECT max(first) FROM chunks WHERE first <= ?", record) or (None,)
        return int(key or 0)

    def chunk(self, first: int, crc: int, lengths: bytes, data: bytes) -> list[bytes | None]:
        """Return the records of a row of `chunks`; None where one is forgotten."""
        if checksum(first, lengths, data) != crc:
            raise HistoryError(f"{self.path}: the records from {first} on are damaged")
        if not lengths:
            return [data]
        records: list[bytes | None] = []
        at = 0
        for length in _lengths_of(lengths):
            records.append(None if length is None else data[at : at + length])
            at += length or 0
        return records

    def _entries(self, first: int, crc: int, data: bytes) -> list[Position]:
        if checksum(first, data) != crc:
            raise HistoryError(f"{self.path}: the index from position {first} on is damaged")
        return _entries_of(data)

    # Writing.

    def append(self, records: list[bytes], positions: list[Position]) -> None:
        """Write records, and index entries when there are many, in one transaction."""
        new = unknown(positions, self.next_position, self.count + len(records))
        pending = self._pending + new
        flush = len(pending) >= ROW_ENTRIES
        with self._named(), self._transaction(records or flush):
            first = self.count + 1
            for chunk in _pieces(records):
                self.put_chunk(first, chunk)
                first += len(chunk)
            if flush:
                self._put_entries(pending)
        self.count += len(records)
        self._written += sum(map(len, records))
        self._pending = [] if flush else pending
        self.next_position = pending[-1].end if pending else self.next_position
        if records or flush:
            self._acknowledge()

    def put_chunk(self, first: int, records: "list[bytes] | list[bytes | None]") -> None:
        """Write, or write again, the records from a number on."""
        lengths = b"" if len(records) == 1 else _encode([None if data is None else len(data) for data in records])
        data = b"".join(data for data in records if data is not None)  # of one, this is no copy
        row = (first, checksum(first, lengths, data), lengths, data)
        self.execute("INSERT OR REPLACE INTO chunks VALUES (?, ?, ?, ?)", *row)

    def _put_entries(self, entries: list[Position]) -> None:
        first, data = entries[0].position, _encode(entries)
        self.execute("INSERT INTO positions VALUES (?, ?, ?)", first, checksum(first, data), data)

    def keep(self, checkpoint: Checkpoint, from_delivered: int, needed: Collection[int] = ()) -> None:
        """Replace the checkpoint, and forget what nobody needs any more."""
        check_keep(checkpoint, max(0, self._kept - 1), self)
        from_delivered = max(self.first_position, min(from_delivered, checkpoint.delivered))
        with self._named():
            with self._transaction(True):
                if self._pending:
                    self._put_entries(self._pending)
                head = forget.sweep(self, self._head, checkpoint, from_delivered, needed)
                data = _encode(head)
                crc = checksum(checkpoint.records, data, checkpoint.state)
                self.execute("DELETE FROM checkpoint")
                row = (checkpoint.records, crc, data, checkpoint.state)
                self.execute("INSERT INTO checkpoint VALUES (?, ?, ?, ?)", *row)
            self._head, self._kept, self._pending = head, checkpoint.records + 1, []
            self.first_position = head.first_position
            self._acknowledge()
            self._give_back()
            self._written = 0

    def _give_back(self) -> None:
        """Return free pages to the file system, except for about as many as the next records will take."""
        (free,) = self.execute("PRAGMA freelist_count").fetchone()
        (page,) = self.execute("PRAGMA page_size").fetchone()
        pages = min(GIVE_BACK_PAGES, free - 2 * self._written // page)
        if pages > 0 and self._db is not None:
            self._db.executescript(f"PRAGMA incremental_vacuum({pages})")  # `execute` stops after the first page

    def _acknowledge(self) -> None:
        assert self._mark is not None
        self._mark.write(self._told())

    def execute(self, query: str, *values: object) -> sqlite3.Cursor:
        """Run one statement."""
        if self._db is None:
            raise HistoryError(f"{self.path}: closed")
        return self._db.execute(query, values)

    def _one(self, query: str, *values: object) -> tuple[Any, ...] | None:
        return self.execute(query, *values).fetchone()  # type: ignore[no-any-return]

    @contextmanager
    def _transaction(self, anything: object) -> Iterator[None]:
        """Commit all that is done within, or nothing of it."""
        if self._failed:
            raise HistoryError(self._failed)
        if not anything:
            yield
            return
        try:
            self.execute("BEGIN")
            yield
            self.execute("COMMIT")
        except BaseException as error:
            self._failed = f"{self.path}: closed to writes since: {error}"
            with suppress(sqlite3.Error):
                self.execute("ROLLBACK")
            raise

    @contextmanager
    def _named(self) -> Iterator[None]:
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

    def close(self) -> None:
        """Let go of the files."""
        with self._named():
            self._let_go()

    def _let_go(self) -> None:
        database, self._db = self._db, None
        mark, self._mark = self._mark, None
        lock, self._lock = self._lock, -1
        try:
            if database is not None:
                database.close()
        finally:
            if mark is not None:
                mark.close()
            if lock >= 0:
                os.close(lock)


def _locked(folder: Path) -> int:
    """Make the folder if need be, and lock it; raises HistoryError when another process has."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise HistoryError(f"{folder}: {error.strerror}") from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        raise HistoryError(f"{folder}: another process uses it") from None
    return lock


def _user_version(path: Path) -> int | None:
    """Return the format version in the head of a SQLite file, without opening it as one."""
    with path.open("rb") as file:
        head = file.read(64)
    return int.from_bytes(head[60:64], "big") if head.startswith(b"SQLite format 3\0") and len(head) == 64 else None


def _sync_folder(folder: Path) -> None:
    """Make new names in a folder durable, and its own."""
    for path in (folder, folder.parent):
        file = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(file)
        finally:
            os.close(file)


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
