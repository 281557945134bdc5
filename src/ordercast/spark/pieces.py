"""Work on pieces of files: a piece's place goes out to an executor, Arrow tables come back.

Executors read Parquet themselves, with Arrow: names arrive as dictionaries, nothing passes through the JVM, and a pass
over a hundred million rows costs what reading them costs (benchmarks/RESULTS.md, "Spark: audit").
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ordercast.audit.columns import load_compiler
from ordercast.errors import InputError, OrdercastError
from ordercast.runs import reader, schema
from ordercast.runs.reader import Piece
from ordercast.spark.session import Spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MARK = "ordercast-input:"
TASKS_PER_CORE, TASK_ROWS = 4, 4_000_000
COMPILE_ROWS = 50_000  # a worker reads piece after piece: loading compiled loops pays early
Work = Callable[[Any], Any]


def _reader(folder: str, columns: Mapping[str, str], work: Work) -> Callable[[Piece], Any]:
    plain = dict(columns)

    def read(piece: Piece) -> Any:
        if piece.rows > COMPILE_ROWS:
            load_compiler()
        reader.keep_memory()
        system, _ = reader.file_system(folder)
        try:
            table = reader.tidy(reader.read(system, piece, plain), plain)
        except InputError as error:
            raise RuntimeError(f"{MARK}{error}") from None
        try:
            return work(table)
        except InputError as error:
            raise RuntimeError(f"{MARK}{piece.path}: {error}") from None

    return read


def fold_pieces(
    spark: Spark, folder: str, pieces: Sequence[Piece], columns: Mapping[str, str], work: Work
) -> list[Any]:
    """Return what `work` makes of every piece, on the driver: for what is small by then.

    No query planner: its start alone would take longer than a small audit may.
    """
    read = _reader(folder, columns, work)

    def one(piece: Piece) -> bytes:
        sink = pa.BufferOutputStream()
        made = read(piece)
        with pa.ipc.new_stream(sink, made.schema) as stream:
            stream.write_table(made)
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    # A task costs some 40 ms of its own: small pieces share one, dealt out by size so that none is left at the end.
    tasks = min(
        len(pieces), max(TASKS_PER_CORE * spark.context.defaultParallelism, sum(p.rows for p in pieces) // TASK_ROWS)
    )
    by_size = sorted(pieces, key=lambda piece: -piece.rows)
    dealt = [by_size[index::tasks] for index in range(tasks)]
    try:
        made = spark.context.parallelize(dealt, tasks).flatMap(lambda share: map(one, share)).collect()
    except Exception as error:  # py4j wraps what executors raise in several classes
        raise refused(error) from None
    return [pa.ipc.open_stream(data).read_all() for data in made]


def frame_of_pieces(
    spark: Spark, folder: str, pieces: Sequence[Piece], columns: Mapping[str, str], work: Work, schema: str
) -> "DataFrame":
    """Return what `work` makes of every piece as a DataFrame: for what has to be shuffled."""
    read = _reader(folder, columns, work)

    def each(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for row in batch.to_pylist():
                yield from read(Piece(**row)).to_batches(max_chunksize=500_000)

    rows = sorted(((piece.path, piece.first, piece.many, piece.rows) for piece in pieces), key=lambda row: -row[3])
    frame = spark.sql.createDataFrame(rows, "path string, first int, many int, rows long")
    return frame.repartition(len(rows)).mapInArrow(each, schema)


def decoded(table: Any) -> Any:
    """Return a piece as Spark takes it: no dictionaries."""
    kinds = [column.type.value_type if pa.types.is_dictionary(column.type) else column.type for column in table.columns]
    return pa.table([c.cast(kind) for c, kind in zip(table.columns, kinds, strict=True)], names=table.column_names)


def schema_of(columns: Mapping[str, str]) -> str:
    """Return what Spark calls the types of these columns."""
    called = {schema.TEXT: "string", schema.MANY: "string", schema.WHOLE: "bigint", schema.BINARY: "binary"}
    return ", ".join(f"`{name}` {called[kind]}" for name, kind in columns.items())


def collect(frame: "DataFrame") -> Any:
    """Bring a table to the driver; what an executor refused is refused here, by the same line."""
    try:
        return frame.toArrow()
    except Exception as error:
        raise refused(error) from None


def refused(error: Exception) -> Exception:
    """Return our own error when it was one."""
    text = str(error)
    if MARK in text:
        return InputError(text.split(MARK, 1)[1].split("\n", 1)[0])
    if isinstance(error, OrdercastError):
        return error
    last = next((line for line in reversed(text.splitlines()) if line.strip()), type(error).__name__)
    return OrdercastError(f"Spark: {last.strip()[:300]}")
