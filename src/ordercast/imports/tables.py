"""Tables of a run that grow row by row and are written in parts: a part is all that is in memory."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.ipc

from ordercast.runs import schema
from ordercast.runs.writer import write_table

ROWS, BYTES = 50_000, 32 * 2**20  # that are kept as Python values
PART_ROWS, PART_BYTES = 500_000, 256 * 2**20  # that are kept as Arrow's
BUCKET_ROWS, BUCKETS_AT_MOST = 2_000_000, 250
ARROW = {
    schema.WHOLE: pa.int64(), schema.NUMBER: pa.float64(), schema.BINARY: pa.binary()
}  # fmt: skip
SENT = ("msg_id", "group", "source", "source_seq")


class Parts:
    """One table of a run, in files of half a million rows."""

    def __init__(self, folder: Path, table: str, columns: Sequence[str], *, derived: bool = False) -> None:
        self.rows = 0
        self._folder, self._derived = folder / table, derived
        kinds = schema.WRITTEN[table]
        self._schema = pa.schema([(column, ARROW.get(kinds[column], pa.string())) for column in columns])
        self._values: list[Sequence[Any]] = []
        self._bytes = 0
        self._tables: list[Any] = []
        self._files = 0
        self._folder.mkdir(parents=True)

    def add(self, values: Sequence[Any], size: int) -> None:
        """Add a row, read from so many bytes."""
        self._values.append(values)
        self._bytes += size
        if len(self._values) >= ROWS or self._bytes >= BYTES:
            self._pack()

    def add_table(self, table: Any) -> None:
        """Add rows that Arrow has."""
        self.rows += len(table)
        self._tables.append(table)
        if sum(map(len, self._tables)) >= PART_ROWS or sum(one.nbytes for one in self._tables) >= PART_BYTES:
            self._write()

    def end(self) -> None:
        """Write what is left; a table has one file at least."""
        self._pack()
        if self._tables or not self._files:
            self._write()

    def _pack(self) -> None:
        if self._values:
            columns = zip(*self._values, strict=True)
            arrays = [pa.array(column, kind) for column, kind in zip(columns, self._schema.types, strict=True)]
            self._values, self._bytes = [], 0
            self.add_table(pa.table(arrays, schema=self._schema))

    def _write(self) -> None:
        table = pa.concat_tables(self._tables) if self._tables else self._schema.empty_table()
        write_table(table, self._folder / f"part-{self._files}.parquet", derived=self._derived)
        self._tables = []
        self._files += 1


def derive_sends(folder: Path, rows: int, spill: Path) -> int:
    """Write sends/ from what is in deliveries/, so many rows: each message once; returns how many.

    The same message has the same number wherever it was delivered, so rows are dealt out by number to buckets on disk,
    and one bucket at a time is in memory.
    """
    import pyarrow.parquet as pq

    sends = Parts(folder, "sends", SENT, derived=True)
    buckets = min(1 + rows // BUCKET_ROWS, BUCKETS_AT_MOST)
    names = [spill / f"{bucket}.arrow" for bucket in range(buckets)]
    spill.mkdir()
    writers: list[Any] = []
    try:
        for path in sorted((folder / "deliveries").iterdir()):
            table = pq.read_table(path, columns=list(SENT))
            if not writers:
                writers = [pa.ipc.new_stream(name, table.schema) for name in names]
            bucket = table.column("source_seq").to_numpy() % buckets
            for number, writer in enumerate(writers):
                writer.write_table(table.filter(pa.array(bucket == number)) if buckets > 1 else table)
    finally:
        for writer in writers:
            writer.close()
    for name in names:
        with pa.ipc.open_stream(name) as reader:
            once = reader.read_all().group_by(list(SENT), use_threads=False).aggregate([])
        for begin in range(0, len(once), PART_ROWS):
            sends.add_table(once.slice(begin, PART_ROWS))
        name.unlink()
    spill.rmdir()
    sends.end()
    return sends.rows
