"""The history on disk: SQLite, one transaction per group commit, a checksum on every record.

SQLite finds torn writes by itself and drops what it cannot read at the end of its log; so that this is never silent, a
mark beside the database says how many records were written. A history that ends before its mark has lost something.
"""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from zlib import crc32

from ordercast.errors import HistoryError
from ordercast.history.store import Checkpoint

SCHEMA = """
CREATE TABLE IF NOT EXISTS records (seq INTEGER PRIMARY KEY, crc INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS checkpoints (
    records INTEGER PRIMARY KEY, delivered INTEGER NOT NULL, crc INTEGER NOT NULL, state BLOB NOT NULL);
"""


def _sum(data: bytes, *numbers: int) -> int:
    """Return a checksum of a row: its bytes and its numbers."""
    return crc32(data, crc32(repr(numbers).encode()))


class DiskHistory:
    """A history in a folder of its own; one process at a time."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "history.db"
        self._mark = -1
        with self._named():
            folder.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(self.path, isolation_level=None, check_same_thread=False, timeout=0.5)
        try:
            with self._named():
                for setting in ("page_size=16384", "locking_mode=EXCLUSIVE", "journal_mode=WAL", "synchronous=FULL"):
                    self._db.execute(f"PRAGMA {setting}")
                self._db.execute("PRAGMA wal_autocheckpoint=2000")
                self._db.executescript(SCHEMA)
                self.count = self._last()
                self._mark = os.open(folder / "mark", os.O_RDWR | os.O_CREAT, 0o644)
                marked = int.from_bytes(os.pread(self._mark, 8, 0), "big")
            if marked > self.count:
                raise HistoryError(f"{self.path}: ends at record {self.count}, but {marked} were written")
        except HistoryError:
            self.close()
            raise

    def _last(self) -> int:
        (records,) = self._db.execute("SELECT max(seq) FROM records").fetchone()
        (kept,) = self._db.execute("SELECT max(records) FROM checkpoints").fetchone()
        return max(int(records or 0), int(kept or 0))

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
        except (TypeError, ValueError, OverflowError) as error:  # a column of another kind than was written
            raise HistoryError(f"{self.path}: damaged: {error}") from None

    def checkpoint(self, delivered: int | None = None) -> Checkpoint | None:
        """Return the last checkpoint, or the last one not past so many delivered messages."""
        limit = 2**62 if delivered is None else delivered
        query = "SELECT records, delivered, crc, state FROM checkpoints WHERE delivered <= ? ORDER BY records DESC"
        with self._named():
            row = self._db.execute(f"{query} LIMIT 1", (limit,)).fetchone()
            if row is None and delivered is None and self.count:
                raise HistoryError(f"{self.path}: {self.count} records, and no checkpoint to start from")
            if row is None:
                return None
            records, done, crc, state = row
            if _sum(state, records, done) != crc:
                raise HistoryError(f"{self.path}: the checkpoint at record {records} is damaged")
            return Checkpoint(int(records), int(done), bytes(state))

    def records(self, after: int) -> Iterator[bytes]:
        """Yield the records after one, in order."""
        expected = after
        while True:
            with self._named():
                query = "SELECT seq, crc, data FROM records WHERE seq > ? ORDER BY seq LIMIT 256"
                rows = self._db.execute(query, (expected,)).fetchall()
            for seq, crc, data in rows:
                expected += 1
                if seq != expected:
                    raise HistoryError(f"{self.path}: record {expected} is missing")
                with self._named():
                    damaged = _sum(data, seq) != crc
                if damaged:
                    raise HistoryError(f"{self.path}: record {seq} is damaged")
                yield bytes(data)
            if not rows:
                break
        if expected < self.count:
            raise HistoryError(f"{self.path}: record {expected + 1} is missing")

    def append(self, records: list[bytes]) -> None:
        """Write records in one transaction."""
        with self._named():
            self._db.execute("BEGIN")
            rows = [(seq, _sum(data, seq), data) for seq, data in enumerate(records, start=self.count + 1)]
            try:
                self._db.executemany("INSERT INTO records VALUES (?, ?, ?)", rows)
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
            self.count += len(records)
            os.pwrite(self._mark, self.count.to_bytes(8, "big"), 0)

    def keep(self, checkpoint: Checkpoint, *, from_delivered: int) -> None:
        """Write a checkpoint, and forget what no reader from that position on needs."""
        records, delivered, state = checkpoint
        row = (records, delivered, _sum(state, records, delivered), state)
        with self._named():
            self._db.execute("BEGIN")
            try:
                self._db.execute("INSERT OR REPLACE INTO checkpoints VALUES (?, ?, ?, ?)", row)
                query = "SELECT max(records) FROM checkpoints WHERE delivered <= ?"
                (needed,) = self._db.execute(query, (from_delivered,)).fetchone()
                if needed is not None:
                    self._db.execute("DELETE FROM records WHERE seq <= ?", (needed,))
                    self._db.execute("DELETE FROM checkpoints WHERE records < ?", (needed,))
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Let go of the files."""
        with self._named():
            self._db.close()
            if self._mark >= 0:
                os.close(self._mark)
                self._mark = -1
