"""The history on disk: SQLite in WAL mode, one durable transaction per append.

`database.py` knows the tables, `forget.py` what a checkpoint makes superfluous, `mark.py` what was acknowledged. The
folder is locked: one process at a time.
"""

import fcntl
import os
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Self

from ordercast.errors import HistoryError, LocalError
from ordercast.history.database import Database, Head, Records, make_file, user_version
from ordercast.history.forget import forget
from ordercast.history.mark import Mark, Told
from ordercast.history.store import Checkpoint, Identity, Position, check_keep, refuse_others, unknown
from ordercast.names import SiteId

ROW_ENTRIES = 512  # of the index in a row, about; fewer are written only with a checkpoint
SLICE_BYTES = 4 * 2**20  # of records that `past` returns at once, about
GIVE_BACK_PAGES = 2048  # at one checkpoint


class DiskHistory:
    """A history in a folder of its own."""

    def __init__(self, database: Database, mark: Mark, lock: int) -> None:
        """Use `open`."""
        self.database, self._mark, self._lock = database, mark, lock
        self.identity = mark.identity
        self.count = self.next_position = self.first_position = 0
        self._head = Head()
        self._kept = 0  # as in the mark
        self._pending: list[Position] = []  # entries that are not in the database yet
        self._written = 0  # bytes of records since the last checkpoint

    @classmethod
    def open(cls, folder: Path, cluster: str, site: SiteId, new_incarnation: int) -> Self:
        """Open the history of a site, or create one of this incarnation where there is none.

        Raises HistoryError when it is in use, damaged, another site's, or of another format; the last two, and a folder
        in use, are left exactly as they are.
        """
        lock = _locked(folder)
        try:
            mark = _open_mark(folder, Identity(cluster, site, new_incarnation))
        except BaseException:
            os.close(lock)
            raise
        database = Database(folder / "history.db")
        history = cls(database, mark, lock)
        try:
            with database.named():
                history._begin(folder)
        except BaseException:
            history._let_go()
            raise
        return history

    def _begin(self, folder: Path) -> None:
        if not self._mark.told.created:
            self.database.create(self.identity)
            _sync_folder(folder)
            self._mark.write(Told(created=True))
            self._mark.sync()
        self.database.begin(self.identity)
        self._load()
        self._check()
        folder.chmod(0o700)
        for path in (self.database.path, self._mark.path):
            path.chmod(0o600)

    def _load(self) -> None:
        """Find where the history begins and ends."""
        kept = self.database.checkpoint()
        if kept is not None:
            checkpoint, self._head = kept
            self._kept, self.count = checkpoint.records + 1, checkpoint.records
        (last,) = self.database.one("SELECT max(first) FROM chunks")
        if last is not None:
            self.count = max(self.count, last + len(self.database.chunk(last)) - 1)
        self.first_position = self.next_position = self._head.first_position
        first, last = self.database.one("SELECT min(first), max(first) FROM positions")
        if last is not None:
            self.next_position = self.database.entries(last)[-1].end
            if first != self.first_position:
                raise HistoryError(f"{self.database.path}: the index does not begin at {self.first_position}")

    def _check(self) -> None:
        """Compare with the mark, and renew it: what is there now is acknowledged from now on."""
        told, found, path = self._mark.told, self._told(), self.database.path
        if found.records < told.records:
            raise HistoryError(f"{path}: ends at record {found.records}, but {told.records} were written")
        if found.positions < told.positions:
            raise HistoryError(f"{path}: the index ends at {found.positions}, but {told.positions} were written")
        if found.kept < told.kept:
            raise HistoryError(f"{path}: the checkpoint at record {told.kept - 1} is missing")
        for _ in self.records(max(told.records, self._kept - 1)):
            pass  # a mark may be behind after a crash: see with our own eyes what it is to say
        self._mark.write(found)
        self._mark.sync()

    def _told(self) -> Told:
        return Told(self.count, self._in_database, self._kept, created=True)

    @property
    def _in_database(self) -> int:
        """The position behind the last entry that is in the database."""
        return self._pending[0].position if self._pending else self.next_position

    # Reading.

    def checkpoint(self) -> Checkpoint | None:
        """Return the last checkpoint."""
        with self.database.named():
            kept = self.database.checkpoint()
        return None if kept is None else kept[0]

    def records(self, after: int) -> Iterator[bytes]:
        """Yield all records after one, in order."""
        expected = after + 1
        while expected <= self.count:
            with self.database.named():
                first = self.database.chunk_with(expected)
                chunk = self.database.chunk(first)[expected - first :]
            if not chunk:
                raise HistoryError(f"{self.database.path}: record {expected} is missing")
            for data in chunk:
                if data is None:
                    raise HistoryError(f"{self.database.path}: record {expected} is forgotten")
                yield data
                expected += 1

    def past(self, begin: int, at_most: int) -> list[tuple[Position, bytes]]:
        """Return index entries from a position on with their records."""
        if begin < self.first_position:
            raise LocalError(f"position {begin} is not kept here any more; the oldest is {self.first_position}")
        found: list[tuple[Position, bytes]] = []
        chunks: dict[int, Records] = {}
        size = 0
        with self.database.named():
            for entry in self.entries(begin):
                if len(found) >= at_most or size > SLICE_BYTES:
                    break
                data = self._record(entry.record, chunks)
                size += len(data)
                found.append((entry, data))
        return found

    def entries(self, begin: int) -> Iterator[Position]:
        """Yield the entries of the index from the one that contains a position on."""
        at = begin
        while at < self._in_database:
            entries = [entry for entry in self.database.entries(at) if entry.end > at]
            if not entries or entries[0].position > at:
                raise HistoryError(f"{self.database.path}: the index lacks position {at}")
            yield from entries
            at = entries[-1].end
        yield from [entry for entry in self._pending if entry.end > at]

    def _record(self, number: int, chunks: dict[int, Records]) -> bytes:
        """Return a record; `chunks` are the last ones read."""
        first = self.database.chunk_with(number)
        if first not in chunks:
            if len(chunks) > 3:
                del chunks[next(iter(chunks))]
            chunks[first] = self.database.chunk(first)
        chunk = chunks[first]
        data = chunk[number - first] if number - first < len(chunk) else None
        if data is None:
            raise HistoryError(f"{self.database.path}: record {number} is missing")
        return data

    # Writing.

    def append(self, records: list[bytes], positions: list[Position]) -> None:
        """Write records, and index entries when there are many, in one transaction."""
        pending = self._pending + unknown(positions, self.next_position, self.count + len(records))
        flush = len(pending) >= ROW_ENTRIES
        if records or flush:
            with self.database.named(), self.database.transaction():
                self.database.put_records(self.count + 1, records)
                if flush:
                    self.database.put_entries(pending)
        self.count += len(records)
        self._written += sum(map(len, records))
        self._pending = [] if flush else pending
        self.next_position = pending[-1].end if pending else self.next_position
        if records or flush:
            self._acknowledge()

    def keep(self, checkpoint: Checkpoint, from_delivered: int, needed: Collection[int] = ()) -> None:
        """Replace the checkpoint, and forget what nobody needs any more."""
        check_keep(checkpoint, max(0, self._kept - 1), self)
        from_delivered = max(self.first_position, min(from_delivered, checkpoint.delivered))
        with self.database.named(), self.database.transaction():
            if self._pending:
                self.database.put_entries(self._pending)
            head = forget(self, self._head, checkpoint, from_delivered, needed)
            self.database.put_checkpoint(checkpoint, head)
        self._head, self._kept, self._pending = head, checkpoint.records + 1, []
        self.first_position = head.first_position
        self._acknowledge()
        with self.database.named():  # a reserve, because the records until the next checkpoint take as much again
            self.database.give_back(GIVE_BACK_PAGES, reserve=2 * self._written)
        self._written = 0

    def _acknowledge(self) -> None:
        """Mark what is committed, before anybody is told of it."""
        with self.database.named():
            try:
                self._mark.write(self._told())
            except OSError as error:
                self.database.fail(error)
                raise

    def close(self) -> None:
        """Let go of the files."""
        with self.database.named():
            self._let_go()

    def _let_go(self) -> None:
        lock, self._lock = self._lock, -1
        try:
            self.database.close()
        finally:
            self._mark.close()
            if lock >= 0:
                os.close(lock)


def _open_mark(folder: Path, new: Identity) -> Mark:
    """Find out whose history this is, before anything is touched; begin one where there is none."""
    database = folder / "history.db"
    try:
        size = database.stat().st_size if database.exists() else 0
        old = size > 0 and user_version(database) == 0
        mark = _found_mark(folder, old=old)
        if mark is None and size:
            raise HistoryError(f"{folder / 'mark'}: missing beside a history")
        if mark is None:
            folder.chmod(0o700)
            mark = Mark.create(folder / "mark", new)
            _sync_folder(folder)
    except OSError as error:
        raise HistoryError(f"{folder}: {error.strerror}") from None
    try:
        refuse_others(str(folder), mark.identity, new.cluster, new.site)
        if mark.told.created and not size:
            raise HistoryError(f"{database}: missing, but {mark.told.records} records were written")
        if not mark.told.created:
            make_file(database)
    except BaseException:
        mark.close()
        raise
    return mark


def _found_mark(folder: Path, *, old: bool) -> Mark | None:
    """Return the mark of a folder, if it has one; raises HistoryError when it is damaged, or of version 0.1."""
    mark = None
    try:
        mark = Mark.open(folder / "mark")
    except HistoryError:
        if not old:
            raise
    if mark is None and old:
        raise HistoryError(
            f"{folder}: a history of version 0.1, which this version cannot read; nothing was changed. Move it aside"
            " to start over"
        )
    return mark


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


def _sync_folder(folder: Path) -> None:
    """Make the names in a folder durable, and its own."""
    for path in (folder, folder.parent):
        file = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(file)
        finally:
            os.close(file)
