"""The search for cycles, on executors: logs put in order, as hashes; and the rows of some hashes."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ordercast.audit import columns
from ordercast.audit.kernels import Hashes, Key
from ordercast.audit.local import SEQUENCE
from ordercast.audit.search import HASHED, hashed_logs
from ordercast.runs import reader
from ordercast.runs.schema import TEXT, WHOLE
from ordercast.spark.facts import ALIKE_AT_MOST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

KINDS = dict(zip(SEQUENCE, (TEXT, WHOLE, TEXT), strict=True))


def repeated_hashes(every: "DataFrame") -> "DataFrame":
    """Return the hashes that are there more than once: as many as are looked at, and one more."""
    return every.groupBy("hash").count().where("count > 1").select("hash").limit(ALIKE_AT_MOST + 1)


def hashed(rows: "DataFrame", key: Key) -> "DataFrame":
    """Return every log in order as hashes, from site, position and message in no order: a shuffle of everything."""

    def each(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            if batch.num_rows:
                yield from hashed_logs(reader.tidy(pa.Table.from_batches([batch]), KINDS), key).to_batches()

    return rows.repartition("site").sortWithinPartitions("site", "position").mapInArrow(each, HASHED)


def with_hashes(only: Hashes | None, key: Key) -> Callable[[Any], Any]:
    """Return a function that keeps the rows whose messages have these hashes; None: all rows."""
    if only is None:
        return lambda table: table
    wanted = only

    def keep(table: Any) -> Any:
        own = columns.hashes(table.column("msg_id"), key)
        at = np.minimum(np.searchsorted(wanted, own), len(wanted) - 1)
        return table.filter(pa.array(wanted[at] == own))

    return keep
