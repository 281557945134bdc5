"""Folds that are too many for one process: merged site by site, then compared group by group, in many processes.

Both steps are functions of Arrow tables, so each process takes its share and nothing else:

1. `reduce_folds`: all folds of some sites come in; out come one row per site, one per (site, destination), and which
   classes there are. What is wrong with a site alone (its numbers, epochs, stamps) is known here.
2. `compare_groups`: all rows of some destinations come in: what was sent, what each site delivered, who is a member.
   Out come the sites that differ.

What the verdict needs of this is small when the log is clean, whatever the size of the log.
"""

from collections.abc import Collection
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordercast.audit.columns import hashes
from ordercast.audit.facts import EPOCHS, NUMBERS, SETS, STAMPS, TOLD
from ordercast.audit.kernels import Key, Longs
from ordercast.audit.merge import ShuffledError, broken_stamps, coded, falling, of_kind, sets_of, sites_of
from ordercast.membership.toml import check_group
from ordercast.runs.destinations import Destination, destination, groups_of

# The kinds of rows. From folds of deliveries: site, set (site, destination), run (site, class), class (destination,
# class), union (destination, one of its groups as `order_class`), shuffled (a site whose rows must be sorted first).
# From sends: send (destination), union, newest (a source as `site`). Of members: member (site, destination).
# From a comparison: suspect (site), edge (site, class), several (destination, class).
REDUCED = pa.schema(
    [(name, pa.string()) for name in ("kind", "site", "group", "order_class")]
    + [(name, pa.int64()) for name in ("n", "x1", "x2", "told", "p0", "p1", "flags")]
)
SPARK_REDUCED = (
    "kind string, site string, group string, order_class string, "
    "n bigint, x1 bigint, x2 bigint, told bigint, p0 bigint, p1 bigint, flags bigint"
)
FLAGS = {SETS: 1, TOLD: 2, NUMBERS: 4, EPOCHS: 8, STAMPS: 16}
NAMED = 32
"""The flag of a site that is to be looked at whatever its fold says."""


def rows_of_kind(kind: str, rows: int, **columns: Any) -> Any:
    """Return rows of one kind; columns that are not given are null."""
    arrays = [pa.array([kind]).take(pa.array(np.zeros(rows, np.int32)))]
    for field in list(REDUCED)[1:]:
        values = columns.get(field.name)
        if isinstance(values, np.ndarray) and values.dtype == np.uint64:
            values = values.view(np.int64)
        if isinstance(values, pa.ChunkedArray):
            values = values.combine_chunks()
        arrays.append(pa.nulls(rows, field.type) if values is None else pa.array(values, field.type))
    return pa.table(arrays, schema=REDUCED)


def reduce_folds(folded: Any, key: Key) -> Any:
    """Merge all folds of some sites."""
    classes = of_kind(folded, "class").select(["group", "order_class"]).group_by(["group", "order_class"]).aggregate([])
    parts = [
        rows_of_kind("class", len(classes), group=classes.column("group"), order_class=classes.column("order_class"))
    ]
    try:
        sites = sites_of(folded)
    except ShuffledError as error:
        return rows_of_kind("shuffled", 1, site=[str(error)])
    flags = np.where(sites.epochs, FLAGS[EPOCHS], 0) | np.where(sites.repeated, FLAGS[NUMBERS], 0)
    for names, flag in ((falling(folded), NUMBERS), (list(broken_stamps(folded, sites)), STAMPS)):
        at = pc.index_in(pa.array(names, pa.string()), value_set=sites.names).to_numpy()
        flags[at] |= FLAGS[flag]
    sets = sets_of(folded)
    of_group, group = coded(sets.groups)
    groups = np.zeros(len(sites.names), np.uint64)  # tells sets of destinations apart, as sums tell sets of messages
    np.add.at(groups, pc.index_in(sets.sites, value_set=sites.names).to_numpy(), hashes(of_group, key)[group])
    parts.append(
        rows_of_kind(
            "site", len(sites.names), site=sites.names, n=sites.rows, p0=sites.first, p1=sites.last, x1=sites.sequence,
            told=groups, flags=flags,
        )
    )  # fmt: skip
    sums = {"n": sets.rows, "x1": sets.one, "x2": sets.other, "told": sets.told}
    parts.append(rows_of_kind("set", len(sets.sites), site=sets.sites, group=sets.groups, **sums))
    return pa.concat_tables([*parts, _different(folded, "run", "site"), unions(of_group.to_pylist())])


def _different(folded: Any, kind: str, name: str) -> Any:
    """Return the different pairs of a name and a class."""
    pairs = of_kind(folded, kind).select([name, "order_class"]).group_by([name, "order_class"]).aggregate([])
    named = {name: pairs.column(name), "order_class": pairs.column("order_class")}
    return rows_of_kind(kind, len(pairs), **named)


def reduce_sends(folded: Any) -> Any:
    """Return the folds of sends in the same form: what was sent to a destination, and the numbers of sources."""
    sums = {name: folded.column(name) for name in ("n", "x1", "x2")}
    parts = [rows_of_kind("send", len(folded), group=folded.column("group"), **sums)]
    newest = folded.select(["source", "last"]).group_by("source").aggregate([("last", "max")])
    parts.append(rows_of_kind("newest", len(newest), site=newest.column("source"), n=newest.column("last_max")))
    return pa.concat_tables([*parts, unions(coded(folded.column("group"))[0].to_pylist())])


def unions(names: Collection[Destination]) -> Any:
    """Return which groups each of these destinations is made of, where it is made of several."""
    pairs = [(name, destination([part])) for name in names if len(groups_of(name)) > 1 for part in groups_of(name)]
    return rows_of_kind("union", len(pairs), group=[name for name, _ in pairs], order_class=[part for _, part in pairs])


def as_destinations(table: Any, *, texts: bool) -> Any:
    """Return who is a member of what, a group as the destination it is; with `texts` no group has a `+` in its name."""
    of_group, group = coded(table.column("group").cast(pa.string()))
    names = of_group.to_pylist()
    for name in names if texts else ():
        check_group("", name)
    renamed = pa.array([destination([name]) for name in names], pa.string()).take(pa.array(group))
    return pa.table({"site": table.column("site").cast(pa.string()), "group": renamed})


def compare_groups(rows: Any, twice: Collection[Destination], *, everyone: bool) -> Any:
    """Compare what was sent with what was delivered: all rows of some destinations.

    The members of the destinations `twice` are to be looked at in any case, or everyone.
    """
    shared = _Shared(rows)
    flags = np.zeros(len(shared.of_site), np.int64)
    flags[shared.odd_sites()] |= FLAGS[SETS]
    flags[shared.told_differently()] |= FLAGS[TOLD]
    many = len(shared.of_group)
    if everyone:
        flags[shared.members // many] |= NAMED
    elif twice:
        named = pc.is_in(shared.of_group, value_set=pa.array(sorted(twice), pa.string()))
        flags[(shared.members // many)[named.to_numpy(zero_copy_only=False)[shared.members % many]]] |= NAMED
    wrong = np.flatnonzero(flags)
    found = rows_of_kind("suspect", len(wrong), site=shared.of_site.take(pa.array(wrong)), flags=flags[wrong])
    return pa.concat_tables([found, *shared.classes()])


class _Shared:
    """All rows of some destinations, by number instead of by name; a pair is a site and a destination as one number."""

    def __init__(self, rows: Any) -> None:
        self.of_site, site = coded(pc.fill_null(rows.column("site"), ""))
        self.of_group, group = coded(rows.column("group"))
        kind = {n: np.flatnonzero(pc.equal(rows.column("kind"), n)) for n in ("set", "send", "member", "class")}
        value = {n: pc.fill_null(rows.column(n), 0).to_numpy() for n in ("n", "x1", "x2", "told")}
        self.site, self.group = site[kind["set"]], group[kind["set"]]
        self.sums = {name: values[kind["set"]] for name, values in value.items()}
        pair = site.astype(np.int64) * len(self.of_group) + group
        self.pair, self.members = pair[kind["set"]], np.unique(pair[kind["member"]])
        self.is_sent = np.zeros(len(self.of_group), np.bool_)
        self.is_sent[group[kind["send"]]] = True
        self.sent = {}
        for name in ("n", "x1", "x2"):
            self.sent[name] = np.zeros(len(self.of_group), np.int64)
            np.add.at(self.sent[name], group[kind["send"]], value[name][kind["send"]])
        asked = self.members[self.is_sent[self.members % max(len(self.of_group), 1)]]
        self.lacking = asked[~np.isin(asked, self.pair)]
        """The pairs of members and destinations of which nothing was delivered, though something was sent."""
        self._classes = rows.take(pa.array(kind["class"])).select(["group", "order_class"])

    def odd_sites(self) -> Longs:
        """Return the sites whose messages of some destination are not exactly those that were sent to it."""
        fits = self.is_sent[self.group] & np.isin(self.pair, self.members)
        for name, values in self.sent.items():
            fits &= self.sums[name] == values[self.group]
        return np.concatenate([self.site[~fits], self.lacking // max(len(self.of_group), 1)])

    def told_differently(self) -> Longs:
        """Return the sites that were told something else of the same messages than the first site, and that one."""
        rank = np.empty(len(self.of_site), np.int64)
        rank[pc.sort_indices(self.of_site).to_numpy()] = np.arange(len(rank))
        keys = [self.sums["x2"], self.sums["x1"], self.sums["n"], self.group]
        order = np.lexsort((rank[self.site], *keys))
        told, site = self.sums["told"][order], self.site[order]
        begins = np.concatenate([order[:1] >= 0, np.zeros(max(len(order) - 1, 0), np.bool_)])
        for values in keys:
            begins[1:] |= values[order][1:] != values[order][:-1]
        first = np.maximum.accumulate(np.where(begins, np.arange(len(order)), 0))
        differ = np.flatnonzero(told != told[first])
        return np.concatenate([site[differ], site[first[differ]]])

    def classes(self) -> list[Any]:
        """Return the destinations in several classes, and the classes that a site lacks everything of a part of."""
        pairs = self._classes.group_by(["group", "order_class"]).aggregate([])
        group = pc.index_in(pairs.column("group"), value_set=self.of_group).to_numpy()
        several = np.flatnonzero(np.bincount(group, minlength=len(self.of_group))[group] > 1)
        named = {n: pairs.column(n).take(pa.array(several)) for n in ("group", "order_class")}
        found = [rows_of_kind("several", len(several), **named)]
        order = np.argsort(group, kind="stable")
        many = max(len(self.of_group), 1)
        begin = np.searchsorted(group[order], self.lacking % many)
        there = begin < len(order)
        there[there] = group[order][begin[there]] == (self.lacking % many)[there]
        site = self.of_site.take(pa.array((self.lacking // many)[there]))
        of_class = pairs.column("order_class").take(pa.array(order[begin[there]]))
        return [*found, rows_of_kind("edge", len(site), site=site, order_class=of_class)]
