"""Merges the folds of many pieces: what each site delivered of each destination, and which sites need a closer look.

The pieces of a site are put in the order of their positions. Then a sum over a site is the sum over its pieces, and an
order holds along a site when it holds inside each piece and from the end of one piece to the beginning of the next.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordercast.names import SiteId
from ordercast.runs.destinations import Destination

Sums = tuple[int, int, int]
"""A set of messages: its count and two sums of hashes, modulo 2^64."""
WRAP = 2**64 - 1


class ShuffledError(Exception):
    """The pieces of a site overlap: its rows must be sorted before they can be folded."""


@dataclass
class Merged:
    """The fold of a whole log. `fifo`, `epochs` and `stamps` are the sites where the property may be broken."""

    rows: int = 0
    sites: dict[SiteId, tuple[int, int, int, int]] = field(default_factory=dict)
    """Per site: the count of rows, the first and the last position, the sum over (position, message)."""
    sets: dict[tuple[SiteId, Destination], Sums] = field(default_factory=dict)
    """The messages that each site delivered of each destination."""
    told: dict[tuple[SiteId, Destination], int] = field(default_factory=dict)
    """A sum over the same messages and what the site tells of them: stamp, class, epoch, body."""
    classes: dict[Destination, set[str]] = field(default_factory=dict)
    """The classes that messages of each destination are in; more than one is wrong."""
    fifo: set[SiteId] = field(default_factory=set)
    epochs: set[SiteId] = field(default_factory=set)
    stamps: set[SiteId] = field(default_factory=set)
    repeated: set[SiteId] = field(default_factory=set)
    """The sites that have two rows with one position."""


def merge(folded: Any) -> Merged:
    """Merge folds of deliveries; raises ShuffledError when the pieces of a site overlap."""
    found = Merged()
    sites = sites_of(folded)
    names = sites.names.to_pylist()
    found.rows = int(sites.rows.sum())
    values = (values.tolist() for values in (sites.rows, sites.first, sites.last, sites.sequence))
    found.sites = dict(zip(names, zip(*values, strict=True), strict=True))
    found.epochs = {names[at] for at in np.flatnonzero(sites.epochs)}
    found.repeated = {names[at] for at in np.flatnonzero(sites.repeated)}
    sets = sets_of(folded)
    keys = list(zip(sets.sites.to_pylist(), sets.groups.to_pylist(), strict=True))
    sums = zip(sets.rows.tolist(), sets.one.tolist(), sets.other.tolist(), strict=True)
    found.sets, found.told = dict(zip(keys, sums, strict=True)), dict(zip(keys, sets.told.tolist(), strict=True))
    found.fifo, found.stamps = set(falling(folded)), broken_stamps(folded, sites)
    for group, order_class in _of_kind(folded, "class", "group order_class"):
        found.classes.setdefault(group, set()).add(order_class)
    return found


def check_order(folded: Any) -> None:
    """Raise ShuffledError when the pieces of a site overlap."""
    sites_of(folded)


def _of_kind(folded: Any, kind: str, names: str) -> list[tuple[Any, ...]]:
    """Return some columns of the rows of one kind, as tuples."""
    own = of_kind(folded, kind)
    return list(zip(*(own.column(name).to_pylist() for name in names.split()), strict=True))


def of_kind(folded: Any, kind: str) -> Any:
    """Return the rows of one kind."""
    return folded.filter(pc.equal(folded.column("kind"), kind))


@dataclass
class MergedSends:
    """The fold of everything that was sent."""

    sets: dict[Destination, Sums] = field(default_factory=dict)
    newest: dict[SiteId, int] = field(default_factory=dict)
    """The highest number of each source."""


def merge_sends(folded: Any) -> MergedSends:
    """Merge folds of sends, per destination."""
    found = MergedSends()
    names = ("group", "source", "n", "x1", "x2", "last")
    for group, source, n, x1, x2, last in zip(*(folded.column(name).to_pylist() for name in names), strict=True):
        count, one, other = found.sets.get(group, (0, 0, 0))
        found.sets[group] = (count + n, (one + x1) & WRAP, (other + x2) & WRAP)
        found.newest[source] = max(last, found.newest.get(source, last))
    return found


class Sites(NamedTuple):
    """What is known of each site, as columns."""

    names: Any
    rows: Any
    first: Any
    last: Any
    """The first and the last position."""
    sequence: Any
    """A sum over (position, message)."""
    epochs: Any
    """Whether epochs fall."""
    repeated: Any
    """Whether two rows have one position."""
    pieces: Any
    """How many pieces its log has."""
    ends: Any
    """Site, first and last position of every piece, and whether no position is missing between; in order."""


def sites_of(folded: Any) -> Sites:
    """Put the pieces of each site in order and compare their ends; raises ShuffledError when they overlap."""
    own = of_kind(folded, "site")
    names, site = coded(own.column("site"))
    wanted = ("n", "x1", "first", "last", "p0", "p1", "bad", "lie_at", "whole")
    value = {name: own.column(name).to_numpy() for name in wanted}
    order = np.lexsort((value["p1"], value["p0"], site))
    site, value = site[order], {name: values[order] for name, values in value.items()}
    same = site[1:] == site[:-1]
    begin, end = value["p0"][1:], value["p1"][:-1]
    if bool((same & (begin < end)).any()):
        raise ShuffledError(names[int(site[1:][same & (begin < end)][0])].as_py())
    none = np.zeros(min(1, len(site)), np.bool_)
    fell = (value["bad"] > 0) | np.concatenate([none, same & (value["first"][1:] < value["last"][:-1])])
    twice = (value["lie_at"] >= 0) | np.concatenate([none, same & (begin == end)])
    at = np.flatnonzero(np.concatenate([~none, ~same]))
    if not len(at):
        no, never = np.empty(0, np.int64), np.empty(0, np.bool_)
        return Sites(names, no, no, no, no, never, never, no, (site, no, no, never))
    return Sites(
        names,
        np.add.reduceat(value["n"], at),
        value["p0"][at],
        value["p1"][np.append(at[1:], len(site)) - 1],
        np.add.reduceat(value["x1"].view(np.uint64), at),
        np.logical_or.reduceat(fell, at),
        np.logical_or.reduceat(twice, at),
        np.diff(np.append(at, len(site))),
        (site, value["p0"], value["p1"], value["whole"] > 0),
    )


def coded(column: Any) -> tuple[Any, Any]:
    """Return the different names of a column, and the number of each row's."""
    found = (column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column).dictionary_encode()
    return found.dictionary, found.indices.to_numpy()


class Sets(NamedTuple):
    """What each site delivered of each destination, as columns."""

    sites: Any
    groups: Any
    rows: Any
    one: Any
    other: Any
    told: Any


def sets_of(folded: Any) -> Sets:
    """Add up the sums of each site and destination, over sources and pieces."""
    rows = of_kind(folded, "set")
    site_names, site = coded(rows.column("site"))
    group_names, group = coded(rows.column("group"))
    order = np.lexsort((group, site))
    site, group = site[order], group[order]
    at = np.flatnonzero(np.concatenate([site[:1] >= 0, (site[1:] != site[:-1]) | (group[1:] != group[:-1])]))
    sums = (rows.column(name).to_numpy()[order].view(np.uint64) for name in ("n", "x1", "x2", "xs"))
    added = [np.add.reduceat(values, at) if len(at) else values for values in sums]
    return Sets(site_names.take(pa.array(site[at])), group_names.take(pa.array(group[at])), *added)


def falling(folded: Any) -> list[SiteId]:
    """Return the sites where the numbers of a source fall within a group.

    There may be many sources times many pieces, so this compares whole columns instead of rows.
    """
    sets = of_kind(folded, "set")
    rows = pa.concat_tables([of_kind(folded, "stream"), sets.filter(pc.is_valid(sets.column("first")))])
    if not len(rows):
        return []
    number = {name: coded(rows.column(name)) for name in ("site", "group", "source")}
    key = [number[name][1] for name in ("source", "group", "site")]
    order = np.lexsort((rows.column("p0").to_numpy(), *key))
    first, last, bad = (rows.column(name).to_numpy()[order] for name in ("first", "last", "bad"))
    same = np.ones(len(first) - 1, np.bool_)
    for codes in key:
        same &= codes[order][1:] == codes[order][:-1]
    falls = np.concatenate([[False], same & (first[1:] < last[:-1])]) | (bad > 0)
    found: list[SiteId] = number["site"][0].take(pa.array(np.unique(number["site"][1][order][falls]))).to_pylist()
    return found


def broken_stamps(folded: Any, sites: Sites) -> set[SiteId]:
    """Return the sites where stamps of a class do not grow, or a previous stamp is not the stamp before it."""
    runs = of_kind(folded, "run")
    wrong = pc.or_(pc.greater(runs.column("bad"), 0), pc.greater(pc.fill_null(runs.column("lie"), 0), 0))
    found = set(runs.column("site").filter(wrong).to_pylist())
    several = sites.names.filter(pa.array(sites.pieces > 1))
    if not len(several):
        return found
    runs = runs.filter(pc.is_in(runs.column("site"), value_set=several))
    wanted = ("site", "order_class", "p0", "p1", "lie", "s0", "s1", "prev")
    return found | _where_pieces_meet(zip(*(runs.column(name).to_pylist() for name in wanted), strict=True), sites)


def _where_pieces_meet(rows: Iterable[tuple[Any, ...]], sites: Sites) -> set[SiteId]:
    """Return the sites where stamps of a class do not grow from one piece to the next, or a previous stamp is wrong."""
    runs: dict[tuple[SiteId, str], list[tuple[Any, ...]]] = defaultdict(list)
    for site, order_class, *row in rows:
        runs[site, order_class].append(tuple(row))
    whole = _whole(sites)
    found = set()
    for (site, _), own in runs.items():
        own.sort(key=lambda row: row[0])
        before, since = None, -1
        for p0, p1, lie, s0, s1, prev in own:
            pieces = whole[site]
            if before is None:  # the first delivery of its class: it must have no previous stamp, wherever it stands
                if prev is not None and pieces[0][0] == 0 and p0 > pieces[0][1] and _no_gap(pieces, 0, p0):
                    found.add(site)
            elif before >= s0 or (lie is not None and prev != before and _no_gap(pieces, since, p0)):
                found.add(site)
            before, since = s1, p1
    return found


def _whole(sites: Sites) -> dict[SiteId, list[tuple[int, int, bool]]]:
    """Return first and last position of the pieces of each site that has several, and whether they have no gap."""
    names, found = sites.names.to_pylist(), defaultdict(list)
    several = sites.pieces[sites.ends[0]] > 1
    for site, p0, p1, dense in zip(*(column[several].tolist() for column in sites.ends), strict=True):
        found[names[site]].append((p0, p1, dense))
    return found


def _no_gap(pieces: list[tuple[int, int, bool]], begin: int, end: int) -> bool:
    """Whether no position between these two is missing."""
    first, last = bisect_left(pieces, begin, key=lambda one: one[1]), bisect_right(pieces, end, key=lambda one: one[0])
    touched = pieces[first:last]
    return all(piece[2] for piece in touched) and all(one[1] + 1 == other[0] for one, other in pairwise(touched))
