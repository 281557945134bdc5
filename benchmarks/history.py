"""The embedded store of a site: SQLite against LMDB on what a busy site writes: group commits of envelopes, fsynced.

Run: python -m benchmarks.history
"""

import shutil
import sys
import tempfile
import time
from pathlib import Path
from zlib import crc32

import lmdb
from benchmarks.results import record, table

from ordercast.history.disk import DiskHistory
from ordercast.history.store import Checkpoint, Position


def sqlite_history(folder: Path) -> DiskHistory:
    return DiskHistory.open(folder / "sqlite", "cluster", "site", 1)


class LmdbHistory:
    """As `DiskHistory`, as far as writing and reading go."""

    def __init__(self, folder: Path) -> None:
        self.env = lmdb.open(str(folder / "lmdb"), map_size=8 * 2**30, sync=True)
        self.count = 0

    def append(self, records: list[bytes], positions: list[Position]) -> None:
        """Write and wait for the disk; without an index."""
        with self.env.begin(write=True) as transaction:
            for data in records:
                self.count += 1
                value = crc32(data).to_bytes(4, "big") + data
                transaction.put(self.count.to_bytes(8, "big"), value, append=True)


def entries(first_record: int, count: int) -> list[Position]:
    """Return the index entries of a commit: each record is an envelope of ten messages."""
    return [Position(10 * (number - 1), 10, number, bytes(17)) for number in range(first_record, first_record + count)]


def forget_and_read() -> str:
    """Measure a checkpoint that forgets 64 MB, and a reader that resumes."""
    folder = Path(tempfile.mkdtemp(dir="."))
    try:
        history = sqlite_history(folder)
        for _ in range(2):
            for _ in range(1600):
                first = history.count + 1
                history.append([bytes(5_000)] * 8, [])
                history.append([], entries(first, 8))
            begun = time.perf_counter()
            history.keep(Checkpoint(history.count, history.next_position, bytes(10**6)), history.next_position - 10)
            forgotten = time.perf_counter() - begun
        for _ in range(400):
            first = history.count + 1
            history.append([bytes(5_000)] * 8, [])
            history.append([], entries(first, 8))
        begun, at, read = time.perf_counter(), history.first_position, 0
        while found := history.past(at, 64):
            at, read = found[-1][0].end, read + len(found)
        took = time.perf_counter() - begun
        history.close()
    finally:
        shutil.rmtree(folder)
    return (
        f"A checkpoint that forgets 64 MB takes {1000 * forgotten:.0f} ms. A reader that resumes is served"
        f" {read / took:,.0f} envelopes of 5,000 bytes per second, in slices of 64."
    )


def main() -> int:
    rows: list[list[object]] = []
    for size, batch in ((150, 1), (5_000, 8), (50_000, 1), (50_000, 8), (50_000, 32)):
        cells: list[object] = [f"{batch} x {size:,} bytes"]
        for make in (sqlite_history, LmdbHistory):
            folder = Path(tempfile.mkdtemp(dir="."))
            try:
                history = make(folder)
                data = [bytes([n % 251]) * size for n in range(batch)]
                rounds = max(20, min(400, 200_000_000 // (size * batch)))
                begun, cpu = time.perf_counter(), time.process_time()
                for _ in range(rounds):
                    before = history.count - batch + 1
                    history.append(data, entries(before, batch) if before > 0 else [])
                took, spent = time.perf_counter() - begun, time.process_time() - cpu
                written = rounds * batch
                cells += [
                    f"{rounds / took:,.0f}",
                    f"{written * size / took / 1e6:,.0f}",
                    f"{1e6 * spent / written:.0f}",
                ]
            finally:
                shutil.rmtree(folder)
        rows.append(cells)
        print(cells, flush=True)
    names = ("commits/s", "MB/s", "CPU µs per record")
    head = ["a commit", *(f"SQLite {name}" for name in names), *(f"LMDB {name}" for name in names)]
    told = (
        "Every commit is on disk when it returns; the one on SQLite keeps an index of positions, too. LMDB takes more "
        "small commits, SQLite more bytes; both more than a site needs. SQLite is kept: a damaged file is an error it "
        "reports, and it comes with Python; LMDB maps the file and trusts it: a flipped bit in a page can end the "
        "process."
    )
    record(
        "History: SQLite against LMDB",
        "python -m benchmarks.history",
        [*table(head, rows), "", told, "", forget_and_read()],
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
