"""Tables of a run as DataFrames, from anywhere: the fold on executors, wherever rows are and in whatever order.

Only public calls of DataFrames are used (`mapInArrow`, `toArrow`), on a classic session. The rows of
a partition are folded some hundred thousand at a time. If the rows of a site turn out to be spread in no order, they
are brought together by site and position first: one shuffle of everything.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ordercast.audit import columns
from ordercast.audit.facts import Facts, Known
from ordercast.audit.fold import FOLDED, SPARK_FOLDED, fold_deliveries, fold_sends
from ordercast.audit.kernels import Hashes, Key, fresh_key
from ordercast.audit.local import SEQUENCE
from ordercast.audit.merge import ShuffledError, check_order
from ordercast.audit.packed import SPARK_PACKED, packed, unpacked
from ordercast.audit.rows import Rows, untouched
from ordercast.audit.search import Suspected, on_cycles
from ordercast.audit.spread import as_destinations, reduce_sends
from ordercast.errors import InputError
from ordercast.membership.toml import check_group
from ordercast.names import GroupId, SiteId
from ordercast.runs import reader, schema
from ordercast.runs.destinations import Destination
from ordercast.runs.reader import Table, Told
from ordercast.runs.schema import BINARY, GROUPS, LISTS, TEXT, WHOLE
from ordercast.spark import facts
from ordercast.spark.pieces import COMPILE_ROWS, MARK, collect, decoded, schema_of
from ordercast.spark.searching import hashed, repeated_hashes, with_hashes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FOLD_ROWS = 400_000  # that are folded at once
SITES_IN_A_QUERY = 200  # named in a condition; more are looked for by executors
Names = Mapping[str, str]
"""Our name of a column, and what it is called in the user's tables."""
KINDS = {
    TEXT: ("string", "char", "varchar", "tinyint", "smallint", "int", "bigint"),
    WHOLE: ("tinyint", "smallint", "int", "bigint"),
    BINARY: ("binary",),
}
"""What Spark calls the types that a column may have."""
CAST = {TEXT: "string", WHOLE: "bigint", BINARY: "binary"}


def table_of(
    frame: "DataFrame", name: str, required: Names, optional: Names, called: Names
) -> "tuple[DataFrame, Table]":
    """Return a DataFrame with our columns, and which of them it has; raises InputError for what cannot be taken."""
    from pyspark.sql import functions as F  # noqa: N812

    there = {field.name: field.dataType.simpleString() for field in frame.schema.fields}
    found: dict[str, str] = {}
    taken = []
    for column, wanted in (*required.items(), *optional.items()):
        theirs = called.get(column, column)
        if theirs not in there:
            if column in required:
                known = ", ".join(there)[:200] or "none"
                raise InputError(f"{name}: column {theirs!r} is missing (columns: {known})")
            continue
        one, holds = F.col(f"`{theirs}`"), there[theirs]
        if wanted == GROUPS and holds == "array<string>":
            found[column] = LISTS
        else:
            found[column] = TEXT if wanted == GROUPS else wanted
            if holds.partition("(")[0] not in KINDS[found[column]]:
                raise InputError(f"{name}: column {theirs!r} holds {holds}, not a {found[column]}")
            one = one.cast(CAST[found[column]])
        taken.append(one.alias(column))
    return frame.select(*taken), Table(name, found, ())


def sends_of(deliveries: "DataFrame", called: Names) -> "DataFrame":
    """Return what was sent as far as deliveries tell: each message once; the columns are called as they are there."""
    from pyspark.sql import functions as F  # noqa: N812

    frame, table = table_of(deliveries, "deliveries", schema.SENDS, {}, called)
    several = table.columns["group"] == LISTS
    groups = F.array_sort(F.array_distinct(F.col("group") if several else F.split("group", r"\+")))
    once = frame.withColumn("group", groups if several else F.concat_ws("+", groups)).distinct()
    return once.withColumnsRenamed({ours: called.get(ours, ours) for ours in schema.SENDS})


def members_of(frame: "DataFrame", *, texts: bool) -> dict[GroupId, list[SiteId]] | None:
    """Collect who is in which group; None when there are too many."""
    members: dict[GroupId, set[SiteId]] = {}
    table = collect(frame.distinct().limit(facts.MEMBERS_AT_MOST + 1))
    if len(table) > facts.MEMBERS_AT_MOST:
        return None
    for site, group in zip(table.column("site").to_pylist(), table.column("group").to_pylist(), strict=True):
        if site is None or group is None:
            raise InputError("membership: a site or a group is null")
        if texts:
            check_group("membership: ", group)
        members.setdefault(group, set()).add(site)
    if not members:
        raise InputError("membership: no rows")
    return {group: sorted(sites) for group, sites in sorted(members.items())}


def _gathered(batches: Iterator[Any], name: str, kinds: Names, rows: int) -> Iterator[Any]:
    """Yield tables of at least so many rows as the fold takes them; what cannot be taken is refused by its name."""
    waiting: list[Any] = []
    for batch in batches:
        if batch.num_rows:
            waiting.append(batch)
        if sum(one.num_rows for one in waiting) >= rows:
            yield _tidy(waiting, name, kinds)
            waiting = []
    if waiting:
        yield _tidy(waiting, name, kinds)


def _tidy(batches: list[Any], name: str, kinds: Names) -> Any:
    table = pa.Table.from_batches(batches)
    for column in kinds:
        if table.column(column).null_count and column not in schema.MAY_BE_NULL:
            raise RuntimeError(f"{MARK}{name}: {column} is null in some row")
    if "position" in kinds and len(table) and int(table.column("position").to_numpy().min()) < 0:
        raise RuntimeError(f"{MARK}{name}: a position is negative")
    if len(table) > COMPILE_ROWS:
        columns.load_compiler()
    several = name != "membership"  # there, a group is one group
    plain = {
        column: GROUPS if column == "group" and kind == TEXT and several else kind for column, kind in kinds.items()
    }
    try:
        return reader.tidy(table, plain)
    except InputError as error:
        raise RuntimeError(f"{MARK}{name}: {error}") from None


class FrameSource:
    """A run as DataFrames of the user's session (`audit.rows.Source`)."""

    def __init__(
        self, deliveries: "DataFrame", sends: "DataFrame | None", membership: "DataFrame", called: Names | None = None,
        key: Key | None = None,
    ) -> None:  # fmt: skip
        """`called`: what our columns are called in these tables, where they are called something else.

        Without `sends`, what was sent is what was delivered: nobody recorded it.
        """
        names, self._key = dict(called or {}), key or fresh_key()
        derived = sends is None
        if sends is None:
            sends = sends_of(deliveries, names)
        if any(column in sends.columns for column in schema.CHANGING_ONLY):
            raise InputError("sends: groups change in this run; it is judged in process: ordercast audit DIR --local")
        optional = {name: kind for name, kind in schema.SENDS_OPTIONAL.items() if name != "post"}
        self._deliveries, told = table_of(
            deliveries, "deliveries", schema.DELIVERIES, schema.DELIVERIES_OPTIONAL, names
        )
        self._sends, sent = table_of(sends, "sends", schema.SENDS, optional, names)
        sent = replace(sent, derived=derived)
        for name, theirs in names.items():
            if name not in {**told.columns, **sent.columns}:
                raise InputError(f"columns: there is no {name!r}, or no table has {theirs!r}")
        self._texts = any(table.columns["group"] != LISTS for table in (told, sent))
        self._membership, _ = table_of(membership, "membership", schema.MEMBERSHIP, {}, names)
        self._members = members_of(self._membership, texts=self._texts)
        self.run = Told(told, sent, lambda: self._members or {})

    def _on(self, frame: "DataFrame", table: Table, work: Callable[[Any], Any], made: str) -> Any:
        """Return what `work` makes of the rows of a table, on the driver."""
        return collect(self._frame(frame, table, work, made))

    @staticmethod
    def _frame(frame: "DataFrame", table: Table, work: Callable[[Any], Any], made: str) -> "DataFrame":
        name, kinds = table.name, dict(table.columns)

        def each(batches: Iterator[Any]) -> Iterator[Any]:
            for one in _gathered(batches, name, kinds, FOLD_ROWS):
                try:
                    yield from work(one).to_batches()
                except InputError as error:
                    raise RuntimeError(f"{MARK}{name}: {error}") from None

        return frame.mapInArrow(each, made)

    def facts(self) -> Facts:
        """Fold everything. Folds that fit the driver are merged there; more stay on executors."""
        folds = self.folds(together=False).persist()  # counted, then taken or shuffled: rows are read once
        try:
            many = sum(collect(folds.select("n")).column("n").to_pylist())
            if many > facts.FOLDS_AT_MOST or self._members is None:
                return facts.Spread(self, 2 * many, self._key, folds)
            folded = _folds(folds)
        finally:
            folds.unpersist()
        try:
            check_order(folded)
        except ShuffledError:
            folded = _folds(self.folds(together=True))
        sends = self._on(self._sends, self.run.sends, self._fold_sends, SPARK_FOLDED)
        return Known(self._members, folded, sends.cast(FOLDED), search_at_most=facts.SEARCH_AT_MOST)

    @property
    def _fold_sends(self) -> Callable[[Any], Any]:
        key, bodies = self._key, self.run.sent_bodies
        return lambda table: fold_sends(table, key, bodies=bodies)

    def folds(self, *, together: bool) -> "DataFrame":
        """Return the folds of deliveries, packed; `together`: of rows that were sorted by site and position first."""
        key, bodies = self._key, self.run.sent_bodies
        rows = self._deliveries
        if together:
            rows = rows.repartition("site").sortWithinPartitions("site", "position")

        def work(table: Any) -> Any:
            return packed("folds", fold_deliveries(table, key, sent_bodies=bodies))

        return self._frame(rows, self.run.deliveries, work, SPARK_PACKED)

    def sends_folded(self) -> "DataFrame":
        """Return the folds of sends, packed."""
        fold = self._fold_sends

        def work(table: Any) -> Any:
            return packed("sends", reduce_sends(fold(table)))

        return self._frame(self._sends, self.run.sends, work, SPARK_PACKED)

    def belongs(self) -> "DataFrame":
        """Return who is a member of what: site, group; a group as the destination it is."""
        texts = self._texts
        return self._frame(
            self._membership, Table("membership", schema.MEMBERSHIP, ()),
            lambda table: as_destinations(table, texts=texts), "site string, group string",
        )  # fmt: skip

    def _rows(self, frame: "DataFrame", table: Table, work: Callable[[Any], Any], names: Iterable[str] = ()) -> Any:
        """Return some rows of a table, and some of its columns."""
        found, kinds = self._picked(frame, table, work, names)
        return reader.tidy(collect(found), kinds)

    def _picked(
        self, frame: "DataFrame", table: Table, work: Callable[[Any], Any], names: Iterable[str]
    ) -> "tuple[DataFrame, dict[str, str]]":
        kinds = {name: TEXT if name == "group" else kind for name, kind in table.columns.items()}
        kinds = {name: kinds[name] for name in names or kinds}
        wanted = list(kinds)
        return self._frame(frame, table, lambda one: decoded(work(one).select(wanted)), schema_of(kinds)), kinds

    def logs(self, sites: Iterable[SiteId], keep: Rows = untouched) -> Any:
        """Return the rows of these sites, or what `keep` leaves of them on executors."""
        frame, table, own = self._of_sites(sites)
        return self._rows(frame, table, lambda rows: keep(own(rows)))

    def on_cycles(self, sites: Iterable[SiteId] | None) -> Suspected:
        """Search the logs of these sites, or of all, by hashes: executors send eight bytes a delivery."""
        frame, table, only = self._of_sites(sites)
        rows = self._picked(frame, table, only, SEQUENCE)[0]
        return on_cycles(collect(hashed(rows, self._key)))

    def sequences(self, sites: Iterable[SiteId] | None, only: Hashes | None = None) -> Any:
        """Return site, position and message of deliveries: of some sites or all, of messages of these hashes or all."""
        frame, table, own = self._of_sites(sites)
        messages = with_hashes(only, self._key)
        return self._rows(frame, table, lambda rows: messages(own(rows)), SEQUENCE)

    def _of_sites(self, sites: Iterable[SiteId] | None) -> "tuple[DataFrame, Table, Callable[[Any], Any]]":
        """Return how to find the rows of some sites: the source of the table may help, when they are few."""
        from pyspark.sql import functions as F  # noqa: N812

        if sites is None:
            return self._deliveries, self.run.deliveries, untouched
        wanted = sorted(sites)
        if len(wanted) <= SITES_IN_A_QUERY:
            return self._deliveries.where(F.col("site").isin(wanted)), self.run.deliveries, untouched
        return self._deliveries, self.run.deliveries, _only("site", wanted)

    def sends(self, groups: Iterable[Destination] | None) -> Any:
        """Return what was sent to these destinations, or all."""
        return self._rows(self._sends, self.run.sends, untouched if groups is None else _only("group", groups))

    def sends_named(self, ids: Iterable[str]) -> Any:
        """Return the sends of these messages."""
        return self._rows(self._sends, self.run.sends, _only("msg_id", ids))

    def sends_alike(self) -> tuple[Any, int, bool]:
        """Return the sends whose ids have the hash of another, how many hashes, and whether there are more."""
        key = self._key

        def hashed(table: Any) -> Any:
            return pa.table([pa.array(columns.hashes(table.column("msg_id"), key).view(np.int64))], names=["hash"])

        every = self._frame(self._sends, self.run.sends, hashed, "hash bigint")
        counted = collect(repeated_hashes(every))
        found = counted.column("hash").to_numpy().view(np.uint64)
        alike, more = found[: facts.ALIKE_AT_MOST], len(found) > facts.ALIKE_AT_MOST

        def among(table: Any) -> Any:
            return table.filter(pa.array(np.isin(columns.hashes(table.column("msg_id"), key), alike)))

        if not len(alike):
            return self._rows(self._sends.limit(0), self.run.sends, untouched), 0, False
        return self._rows(self._sends, self.run.sends, among), len(alike), more


def _folds(frame: "DataFrame") -> Any:
    data = collect(frame).column("data").to_pylist()
    return unpacked(data) if data else FOLDED.empty_table()


def _only(name: str, values: Iterable[str]) -> Callable[[Any], Any]:
    wanted = sorted(values)
    return lambda table: columns.among(table, name, wanted)
