"""A membership that is too large for the driver: its connected parts are planned on executors.

Groups that no chain of common sites connects are never ordered together (KIN §4.2, condition S1). So a plan is the
plans of its components side by side, and small components are planned together, as one share of work.

Components are found in four rounds, however large the membership is. In the first every task makes a forest of its own
meta-groups: a row for each group that it has met, with a group that stands for all those connected with it. The forests
lie in 512 piles. In each further round eight piles become one forest, until one is left. A task has at most eight rows
for each group, the driver has none. Groups are their hashes here: two with one hash join their components, which makes
a share larger and no plan wrong.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ordercast.audit import columns
from ordercast.audit.kernels import Key, Longs, fresh_key
from ordercast.audit.packed import SPARK_PACKED, packed, unpacked
from ordercast.errors import InputError, PlanError
from ordercast.planning import kernels
from ordercast.spark.pieces import MARK, PLAN_MARK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PILES, TOGETHER = 512, 8  # eight to the third: three rounds make one of them
SHARE = 2_000_000  # memberships that are planned together; a component with more is a share alone
WAITING = 1_000_000  # rows that a task gathers before they become part of its forest
METAS = "meta string, n bigint, groups array<string>"
FOREST = pa.schema([("group", pa.uint64()), ("root", pa.uint64()), ("n", pa.int64())])
"""A row for each group: which one stands for all those connected with it, and its part of the memberships."""


def in_shares(metas: "DataFrame", work: Callable[[Any], dict[str, Any]], share: int) -> "DataFrame":
    """Do `work` with the meta-groups (meta, n, groups) of every share; return the tables it makes, packed by name."""
    key = fresh_key()
    first = metas.mapInArrow(_with_first(key), f"{METAS}, first bigint")
    together = first.join(_shares(metas, key, share), "first").drop("first")

    def one(number: tuple[Any], table: Any) -> Any:
        try:
            made = work(table).items()
            return pa.concat_tables([packed(kind, own, np.full(len(own), number[0].as_py())) for kind, own in made])
        except PlanError as error:
            raise RuntimeError(f"{PLAN_MARK}{error}") from None
        except InputError as error:
            raise RuntimeError(f"{MARK}{error}") from None

    return together.groupBy("share").applyInArrow(one, SPARK_PACKED)


def of_kind(made: "DataFrame", kind: str, schema: str) -> "DataFrame":
    """Return one of the tables of all shares."""

    def each(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for data in batch.column("data").to_pylist():
                yield from unpacked([data]).to_batches(max_chunksize=500_000)

    return made.where(f"kind = '{kind}'").mapInArrow(each, schema)


def _with_first(key: Key) -> Callable[[Iterator[Any]], Iterator[Any]]:
    def each(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            offsets, groups = _lists(batch)
            first = columns.hashes(groups.take(pa.array(offsets[:-1])), key)
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, pa.array(first.view(np.int64))], names=[*batch.schema.names, "first"]
            )

    return each


def _lists(batch: Any) -> tuple[Longs, Any]:
    """Return where the groups of each site begin and end, and the groups."""
    lists = batch.column("groups")
    offsets = lists.offsets.to_numpy().astype(np.int64)
    return offsets - offsets[0], lists.flatten()


def _shares(metas: "DataFrame", key: Key, share: int) -> "DataFrame":
    """Return first, share: the hash of each group, and the share that its component belongs to."""
    from pyspark.sql import functions as F  # noqa: N812

    def begin(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        task = TaskContext.get()
        forest = gathered(forest_of(*_lists(batch), batch.column("n").to_numpy(), key) for batch in batches)
        pile = 0 if task is None else task.partitionId() % PILES
        yield from packed("forest", forest, np.full(len(forest), pile)).to_batches()

    def merge(pile: tuple[Any], table: Any) -> Any:
        forest = gathered(_forests(table))
        return packed("forest", forest, np.full(len(forest), pile[0].as_py()))

    def deal(pile: tuple[Any], table: Any) -> Any:
        del pile
        return dealt(gathered(_forests(table)), share)

    eight = F.floor(F.col("share") / TOGETHER).cast("int")
    forests = metas.mapInArrow(begin, SPARK_PACKED)
    for _ in range(2):
        forests = forests.groupBy(eight).applyInArrow(merge, SPARK_PACKED)
    return forests.groupBy(eight).applyInArrow(deal, "first bigint, share int")


def _forests(table: Any) -> Iterator[Any]:
    for data in table.column("data").to_pylist():
        yield unpacked([data])


def forest_of(offsets: Longs, groups: Any, sites: Longs, key: Key) -> Any:
    """Make a forest of meta-groups: the groups of each are connected with its first one."""
    many = np.diff(offsets)
    called = columns.hashes(groups, key)
    memberships = np.zeros(len(called), np.int64)
    memberships[offsets[:-1]] = many * np.minimum(sites, 2)  # one site stands for all, and a twin for the others
    root = np.repeat(called[offsets[:-1]], many)
    return grown(pa.table([called, root, memberships], schema=FOREST))


def gathered(forests: Iterable[Any]) -> Any:
    """Make one forest of several, of some at a time."""
    own, waiting = FOREST.empty_table(), list[Any]()
    for forest in forests:
        waiting.append(forest)
        if sum(map(len, waiting)) > max(WAITING, len(own)):
            own, waiting = grown(pa.concat_tables([own, *waiting])), []
    return grown(pa.concat_tables([own, *waiting])) if waiting else own


def grown(rows: Any) -> Any:
    """Let one group stand for all that these rows connect; a group that comes several times gets one row."""
    group, root, memberships = (rows.column(name).to_numpy() for name in FOREST.names)
    if not len(group):
        return FOREST.empty_table()
    ids, at = np.unique(np.concatenate([group, root]), return_inverse=True)
    ends = at.reshape(2, -1).T.astype(np.int32)
    pairs = np.arange(0, 2 * len(group) + 1, 2)
    leader = kernels.connected(pairs, np.ascontiguousarray(ends).ravel(), len(ids))
    stands = np.empty(len(ids), np.int32)
    stands[ends[:, 0]] = stands[ends[:, 1]] = ends[leader, 0]
    own = np.bincount(ends[:, 0], weights=memberships, minlength=len(ids)).astype(np.int64)
    return pa.table([ids, ids[stands], own], schema=FOREST)


def dealt(forest: Any, share: int) -> Any:
    """Give every component a share: large ones one of their own, the others as many as fit one."""
    group, root, memberships = (forest.column(name).to_numpy() for name in FOREST.names)
    _, at = np.unique(root, return_inverse=True)
    size = np.bincount(at, weights=memberships).astype(np.int64)
    large = size >= share
    before = np.cumsum(np.where(large, 0, size)) - size
    number = np.where(large, 0, before // share)
    number[large] = number.max(initial=0) + 1 + np.arange(large.sum())
    return pa.table({"first": group.view(np.int64), "share": number[at].astype(np.int32)})
