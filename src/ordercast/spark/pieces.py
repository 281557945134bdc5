"""Work on pieces of files: a piece's place goes out to an executor, Arrow tables come back.

Executors read Parquet themselves, with Arrow: names arrive as dictionaries, nothing passes through the JVM, and a pass
over a hundred million rows costs what reading them costs (benchmarks/RESULTS.md, "Spark: audit").
"""

import gc
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ordercast.audit.columns import load_compiler
from ordercast.errors import InputError, OrdercastError, PlanError
from ordercast.runs import reader, schema
from ordercast.runs.reader import Piece
from ordercast.spark.faults import reason
from ordercast.spark.session import Spark

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

MARK, PLAN_MARK = "ordercast-input:", "ordercast-plan:"
TASKS_PER_CORE, TASK_ROWS = 4, 4_000_000
BUNDLE_ROWS = 100_000  # of small files that are read one after the other and worked on at once
COMPILE_ROWS = 50_000  # a worker reads piece after piece: loading compiled loops pays early
Work = Callable[[Any], Any]


def _reader(folder: str, columns: Mapping[str, str], work: Work) -> Callable[[Sequence[Piece]], Any]:
    plain = dict(columns)

    def read(bundle: Sequence[Piece]) -> Any:
        if sum(piece.rows for piece in bundle) > COMPILE_ROWS:
            load_compiler()
        reader.keep_memory()
        system, _ = reader.file_system(folder)
        try:
            table = reader.tidy(_joined([reader.read(system, piece, plain) for piece in bundle]), plain)
        except InputError as error:
            raise RuntimeError(f"{MARK}{error}") from None
        try:
            return work(table)
        except InputError as error:
            where = bundle[0].path if len(bundle) == 1 else folder
            raise RuntimeError(f"{MARK}{where}: {error}") from None
        finally:
            if "numba" in sys.modules:
                _spare_the_compiler()

    return read


@cache
def _spare_the_compiler() -> None:
    """Let the collection of garbage pass over what this process has loaded by now.

    Spark collects in a worker after every task: with the compiler loaded 70 ms, as much as reading 400,000 rows.
    """
    gc.collect()
    gc.freeze()


def _joined(tables: list[Any]) -> Any:
    if len(tables) == 1:
        return tables[0]
    some = [table for table in tables if len(table)] or tables[:1]
    return pa.concat_tables(some, promote_options="permissive")


def shared_out(pieces: Sequence[Piece], cores: int) -> list[list[list[Piece]]]:
    """Deal out pieces to tasks, as bundles that are worked on at once.

    A piece costs some milliseconds and a task some 40, however few rows they have: small files that follow one another
    are one bundle. Bundles are dealt out by size, so that no large one is left at the end.
    """
    rows = sum(piece.rows for piece in pieces)
    enough = min(BUNDLE_ROWS, rows // (2 * TASKS_PER_CORE * cores))
    bundles: list[list[Piece]] = [[]]
    size = 0
    for piece in pieces:
        if bundles[-1] and size + piece.rows > enough:
            bundles.append([])
            size = 0
        bundles[-1].append(piece)
        size += piece.rows
    tasks = min(len(bundles), max(TASKS_PER_CORE * cores, rows // TASK_ROWS))
    bundles.sort(key=lambda bundle: -sum(piece.rows for piece in bundle))
    return [bundles[index::tasks] for index in range(tasks)]


def fold_pieces(
    spark: Spark, folder: str, pieces: Sequence[Piece], columns: Mapping[str, str], work: Work
) -> list[Any]:
    """Return what `work` makes of every piece, or of several small ones, on the driver: for what is small by then.

    No query planner: its start alone would take longer than a small audit may.
    """
    read = _reader(folder, columns, work)

    def one(bundle: Sequence[Piece]) -> bytes:
        sink = pa.BufferOutputStream()
        made = read(bundle)
        with pa.ipc.new_stream(sink, made.schema) as stream:
            stream.write_table(made)
        return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]

    dealt = shared_out(pieces, spark.context.defaultParallelism)
    try:
        made = spark.context.parallelize(dealt, len(dealt)).flatMap(lambda share: map(one, share)).collect()
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
                for bundle in row["share"]:
                    yield from read([Piece(**piece) for piece in bundle]).to_batches(max_chunksize=500_000)

    dealt = shared_out(pieces, spark.context.defaultParallelism)
    rows = [([[(p.path, p.first, p.many, p.rows) for p in bundle] for bundle in share],) for share in dealt]
    kind = "struct<path: string, first: int, many: int, rows: bigint>"
    frame = spark.sql.createDataFrame(rows, f"share array<array<{kind}>>")
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


def counted(frame: "DataFrame") -> int:
    """Count the rows of a table."""
    try:
        return int(frame.count())
    except Exception as error:
        raise refused(error) from None


def refused(error: Exception) -> Exception:
    """Return our own error when it was one."""
    text = str(error)
    if MARK in text:
        return InputError(text.split(MARK, 1)[1].split("\n", 1)[0])
    if PLAN_MARK in text:
        return PlanError(text.split(PLAN_MARK, 1)[1].split("\n", 1)[0])
    if isinstance(error, OrdercastError):
        return error
    return OrdercastError(f"Spark: {reason(text or type(error).__name__)[:300]}")
