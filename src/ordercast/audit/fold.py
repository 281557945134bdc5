"""The fold: turns rows into a few sums per site, group, source and class. One pass, and no sort when logs are in order.

The same functions run in process and on executors. What comes out is small, and `audit.merge` adds it up.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from ordercast.audit import kernels, plain
from ordercast.audit.columns import codes, hashes, hashes_of, laid_out, plainly
from ordercast.audit.kernels import MIX_1, MIX_2, Hashes, Ints, Key, Longs
from ordercast.runs.destinations import groups_of

# One schema for all kinds of rows, because that is how they leave an executor. `kind`: set (site, destination, source),
# stream (site, single group, source), site, run (site, class), class (destination, class), send (destination, source).
# Where no message of a piece is for several groups its sets are its streams, and `first` of a set is not null.
FOLDED = pa.schema(
    [
        ("kind", pa.string()),
        ("site", pa.string()),
        ("group", pa.string()),
        ("source", pa.string()),
        ("order_class", pa.string()),
        ("n", pa.int64()),
        ("x1", pa.int64()),
        ("x2", pa.int64()),
        ("xs", pa.int64()),
        ("first", pa.int64()),
        ("last", pa.int64()),
        ("p0", pa.int64()),
        ("p1", pa.int64()),
        ("bad", pa.int64()),
        ("at", pa.int64()),
        ("lie", pa.int64()),
        ("lie_at", pa.int64()),
        ("whole", pa.int64()),
        ("s0", pa.binary()),
        ("s1", pa.binary()),
        ("prev", pa.binary()),
    ]
)
SPARK_FOLDED = (
    "kind string, site string, group string, source string, order_class string, n bigint, x1 bigint, x2 bigint, "
    "xs bigint, first bigint, last bigint, p0 bigint, p1 bigint, bad bigint, at bigint, lie bigint, lie_at bigint, "
    "whole bigint, s0 binary, s1 binary, prev binary"
)


def _folded(kind: str, rows: int, **columns: Any) -> Any:
    arrays = []
    for field in FOLDED:
        if field.name == "kind":
            arrays.append(pa.array([kind] * rows, field.type))
        elif field.name in columns:
            values = columns[field.name]
            if isinstance(values, np.ndarray) and values.dtype == np.uint64:
                values = values.view(np.int64)
            arrays.append(pa.array(values, field.type))
        else:
            arrays.append(pa.nulls(rows, field.type))
    return pa.table(arrays, schema=FOLDED)


def _loops(rows: int) -> Any:
    return plain if plainly(rows) else kernels


def in_order(site: Ints, position: Longs, sites: int) -> Longs:
    """Return the order of rows by site and position; when every site's rows are sorted already, as they are."""
    if _loops(len(site)).is_sorted(site, position, sites):
        return np.arange(len(site))
    return np.lexsort((position, site)).astype(np.int64)


def _paired(one: Ints, ones: int, other: Ints, others: int) -> tuple[Ints, Ints, Ints]:
    if ones * others <= 64_000_000 or plainly(len(one)):
        numbered: tuple[Ints, Ints, Ints] = _loops(len(one)).dense(one, ones, other, others)
        return numbered
    key = one.astype(np.int64) * others + other
    found, pair = np.unique(key, return_inverse=True)
    return pair.astype(np.int32), (found // others).astype(np.int32), (found % others).astype(np.int32)


def _headers(group_names: list[str], of_pair: Ints, source_names: list[str], source_of_pair: Ints, key: Key) -> Hashes:
    return hashes_of(group_names, key)[of_pair] * MIX_1 ^ hashes_of(source_names, key)[source_of_pair]


def _bodies(table: Any) -> Hashes:
    """Return a number per row that depends on its body alone."""
    found: Hashes = table.column("body_hash").to_numpy().view(np.uint64) * MIX_1
    return found


def fold_sends(table: Any, key: Key, *, bodies: bool = False) -> Any:
    """Fold what was sent: count, sums and the highest number per (destination, source); with `bodies`, of bodies too.

    A sum of bodies is no sum of its own: the body is mixed into the message, so that equal sums mean equal bodies.
    """
    if not len(table):
        return FOLDED.empty_table()
    group, groups = codes(table, "group")
    source, sources = codes(table, "source")
    pair, of_group, of_source = _paired(group, len(groups), source, len(sources))
    seq = table.column("source_seq").to_numpy()
    rows = np.arange(len(table))
    header = _headers(groups, of_group, sources, of_source, key)
    empty = np.empty(0, np.uint64)
    message = hashes(table.column("msg_id"), key)
    if bodies:
        message ^= _bodies(table)
    n, x1, x2, *_ = _loops(len(table)).fold_sets(rows, pair, len(of_group), header, message, seq, seq, empty)
    highest = np.full(len(n), np.iinfo(np.int64).min)
    np.maximum.at(highest, pair, seq)
    names = {"group": [groups[g] for g in of_group], "source": [sources[s] for s in of_source]}
    return _folded("send", len(n), **names, n=n, x1=x1, x2=x2, last=highest)


def fold_deliveries(table: Any, key: Key, *, sent_bodies: bool = False) -> Any:
    """Fold what was delivered, all kinds of rows in one table; with `sent_bodies`, to compare bodies with the sends."""
    if not len(table):
        return FOLDED.empty_table()
    site, sites = codes(table, "site")
    group, groups = codes(table, "group")
    source, sources = codes(table, "source")
    position = table.column("position").to_numpy()
    seq = table.column("source_seq").to_numpy()
    names = table.column_names
    order = in_order(site, position, len(sites))
    message = hashes(table.column("msg_id"), key)
    at_group, of_site, of_group = _paired(site, len(sites), group, len(groups))
    pair, of_at_group, of_source = _paired(at_group, len(of_site), source, len(sources))
    header = _headers(groups, of_group[of_at_group], sources, of_source, key)
    with_body = message ^ _bodies(table) if sent_bodies else message
    n, x1, x2, xs, first, last, bad, at, p0 = _loops(len(table)).fold_sets(
        order, pair, len(of_source), header, with_body, seq, position, _told(table, key, bodies=not sent_bodies)
    )
    columns: dict[str, Any] = {
        "site": [sites[of_site[p]] for p in of_at_group],
        "group": [groups[of_group[p]] for p in of_at_group],
        "source": [sources[s] for s in of_source],
    }
    columns |= {"n": n, "x1": x1, "x2": x2, "xs": xs, "p0": p0}
    parts = []
    if all(len(groups_of(name)) == 1 for name in groups):
        columns |= {"first": first, "last": last, "bad": bad, "at": at}
    else:
        parts.append(_fold_streams(order, site, sites, group, groups, source, sources, seq, position))
    parts.append(_folded("set", len(n), **columns))
    epoch = table.column("epoch").to_numpy() if "epoch" in names else np.zeros(len(table), np.int64)
    parts.append(_fold_sites(order, site, sites, message, position, epoch))
    if "stamp" in names and "order_class" in names:
        parts += _fold_runs(table, order, site, sites, group, groups, position)
    return pa.concat_tables(parts)


def _told(table: Any, key: Key, *, bodies: bool) -> Hashes:
    """Return a number per row of what must be the same wherever a message is delivered: stamp, class, epoch, body."""
    names = table.column_names
    columns = [name for name in ("stamp", "epoch", "body_hash") if name in names]
    if "stamp" in names and "order_class" in names:
        order_class, classes = codes(table, "order_class")
        told = hashes(table.column("stamp"), key)
        told ^= (hashes_of(classes, key) * MIX_1)[order_class]
    else:
        told = np.zeros(len(table) if columns else 0, np.uint64)
    if "epoch" in names:
        told += table.column("epoch").to_numpy().astype(np.uint64) * MIX_2
    if bodies and "body_hash" in names:
        told ^= _bodies(table)
    return told


def _fold_streams(
    order: Longs,
    site: Ints,
    sites: list[str],
    group: Ints,
    groups: list[str],
    source: Ints,
    sources: list[str],
    seq: Longs,
    position: Longs,
) -> Any:
    """Fold the numbers per (site, single group, source): a message to several groups is in the stream of each."""
    parts = [groups_of(name) for name in groups]
    singles = sorted({name for names in parts for name in names})
    number = {name: index for index, name in enumerate(singles)}
    flat = np.array([number[name] for names in parts for name in names], np.int32)
    many = np.array([len(names) for names in parts])
    begin = np.cumsum(many) - many
    times = many[group[order]]
    rows = np.repeat(order, times)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(times) - times, times)
    single = flat[begin[group[rows]] + within]
    at_group, of_site, of_group = _paired(site[rows], len(sites), single, len(singles))
    pair, of_at_group, of_source = _paired(at_group, len(of_site), source[rows], len(sources))
    nothing, no_hash = np.empty(0, np.uint64), np.zeros(len(rows), np.uint64)
    _, _, _, _, first, last, bad, at, p0 = _loops(len(rows)).fold_sets(
        np.arange(len(rows)), pair, len(of_source), no_hash, no_hash, seq[rows], position[rows], nothing
    )
    return _folded(
        "stream",
        len(first),
        site=[sites[of_site[p]] for p in of_at_group],
        group=[singles[of_group[p]] for p in of_at_group],
        source=[sources[s] for s in of_source],
        first=first,
        last=last,
        p0=p0,
        bad=bad,
        at=at,
    )


def _fold_sites(order: Longs, site: Ints, sites: list[str], message: Hashes, position: Longs, epoch: Longs) -> Any:
    n, p0, p1, sequence, epoch_0, epoch_1, bad, at, repeated = _loops(len(site)).fold_sites(
        order, site, len(sites), message, position, epoch
    )
    seen = n > 0
    columns = {"n": n, "x1": sequence, "first": epoch_0, "last": epoch_1, "p0": p0, "p1": p1, "bad": bad, "at": at}
    columns |= {"lie_at": repeated, "whole": np.where(n == p1 - p0 + 1, 1, 0)}
    return _folded(
        "site",
        int(seen.sum()),
        site=[name for name, there in zip(sites, seen, strict=True) if there],
        **{name: values[seen] for name, values in columns.items()},
    )


def _fold_runs(
    table: Any, order: Longs, site: Ints, sites: list[str], group: Ints, groups: list[str], position: Longs
) -> list[Any]:
    order_class, names = codes(table, "order_class")
    pair, of_site, of_class = _paired(site, len(sites), order_class, len(names))
    stamps = laid_out(table.column("stamp"))
    if "prev_stamp" in table.column_names:
        prev = table.column("prev_stamp")
        no_prev, prevs = prev.is_null().to_numpy(zero_copy_only=False), laid_out(prev)
    else:
        no_prev, prevs = np.empty(0, np.bool_), laid_out(pa.array([], pa.binary()))
    n, first, last, bad, at, lie, lie_at = _loops(len(table)).fold_runs(
        order, site, len(sites), pair, len(of_site), position, stamps, prevs, no_prev
    )
    stamp = table.column("stamp")
    columns: dict[str, Any] = {
        "site": [sites[s] for s in of_site],
        "order_class": [names[c] for c in of_class],
        "n": n,
        "p0": position[first],
        "p1": position[last],
        "bad": bad,
        "at": at,
        "s0": _take(stamp, first),
        "s1": _take(stamp, last),
    }
    if len(no_prev):  # otherwise `lie` is null: a log without previous stamps is not asked for them
        columns |= {"lie": lie, "lie_at": lie_at, "prev": _take(table.column("prev_stamp"), first)}
    runs = _folded("run", len(first), **columns)
    _, of_group, of_class = _paired(group, len(groups), order_class, len(names))
    pairs = _folded(
        "class", len(of_group), group=[groups[g] for g in of_group], order_class=[names[c] for c in of_class]
    )
    return [runs, pairs]


def _take(column: Any, rows: Longs) -> Any:
    taken = column.take(pa.array(rows))
    return (taken.combine_chunks() if isinstance(taken, pa.ChunkedArray) else taken).cast(pa.binary())
