"""Merges the folds of many pieces: what each site delivered of each destination, and which sites need a closer look.

The pieces of a site are put in the order of their positions. Then a sum over a site is the sum over its pieces, and an
order holds along a site when it holds inside each piece and from the end of one piece to the beginning of the next.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

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
    repeated: dict[SiteId, int] = field(default_factory=dict)
    """The sites that have two rows with one position, and the first such position."""


def merge(folded: Any) -> Merged:
    """Merge folds of deliveries; raises ShuffledError when the pieces of a site overlap."""
    found = Merged()
    whole = _merge_sites(_of_kind(folded, "site", "site n x1 first last p0 p1 bad lie_at whole"), found)
    sets = folded.filter(pc.equal(folded.column("kind"), "set"))
    _merge_sets(sets, found)
    streams = folded.filter(pc.equal(folded.column("kind"), "stream"))
    _merge_streams(pa.concat_tables([streams, sets.filter(pc.is_valid(sets.column("first")))]), found)
    runs = _of_kind(folded, "run", "site order_class p0 p1 bad lie s0 s1 prev")
    _merge_runs(runs, whole, found)
    for group, order_class in _of_kind(folded, "class", "group order_class"):
        found.classes.setdefault(group, set()).add(order_class)
    return found


def check_order(folded: Any) -> None:
    """Raise ShuffledError when the pieces of a site overlap."""
    _merge_sites(_of_kind(folded, "site", "site n x1 first last p0 p1 bad lie_at whole"), Merged())


def _of_kind(folded: Any, kind: str, names: str) -> list[tuple[Any, ...]]:
    """Return some columns of the rows of one kind, as tuples."""
    own = folded.filter(pc.equal(folded.column("kind"), kind))
    return list(zip(*(own.column(name).to_pylist() for name in names.split()), strict=True))


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


def _merge_sites(rows: list[tuple[Any, ...]], found: Merged) -> dict[SiteId, list[tuple[int, int, bool]]]:
    """Put the pieces of each site in order and compare their ends.

    Returns of each piece its first and last position, and whether no position is missing between.
    """
    pieces: dict[SiteId, list[tuple[Any, ...]]] = defaultdict(list)
    for site, n, x1, epoch_0, epoch_1, p0, p1, bad, repeated, dense in rows:
        pieces[site].append((p0, p1, n, x1, epoch_0, epoch_1, bad, repeated, bool(dense)))
    whole = {}
    for site, own in pieces.items():
        own.sort()
        for one, other in pairwise(own):
            if other[0] < one[1]:
                raise ShuffledError(site)
            if other[0] == one[1]:
                found.repeated.setdefault(site, one[1])
            if other[4] < one[5]:
                found.epochs.add(site)
        sequence = count = 0
        for _, _, n, x1, _, _, bad, repeated, _ in own:
            sequence = (sequence + x1) & WRAP
            count += n
            if bad:
                found.epochs.add(site)
            if repeated >= 0:
                found.repeated.setdefault(site, repeated)
        found.rows += count
        found.sites[site] = (count, own[0][0], own[-1][1], sequence)
        whole[site] = [(piece[0], piece[1], piece[8]) for piece in own]
    return whole


def _ordered(rows: Any) -> tuple[dict[str, list[str]], dict[str, Any]]:
    """Sort rows by site, group, source and position.

    Returns the names of each column, and as arrays the numbers of these names and the order of the rows.
    """
    coded = {name: rows.column(name).combine_chunks().dictionary_encode() for name in ("site", "group", "source")}
    found = {name: column.indices.to_numpy() for name, column in coded.items()}
    order = np.lexsort((rows.column("p0").to_numpy(), found["source"], found["group"], found["site"]))
    names = {name: column.dictionary.to_pylist() for name, column in coded.items()}
    return names, {name: values[order] for name, values in found.items()} | {"order": order}


def _merge_streams(rows: Any, found: Merged) -> None:
    """Find the sites where the numbers of a source fall within a group.

    There may be many sources times many pieces, so this compares whole columns instead of rows.
    """
    if not len(rows):
        return
    names, key = _ordered(rows)
    first, last, bad = (rows.column(name).to_numpy()[key["order"]] for name in ("first", "last", "bad"))
    same = np.ones(len(first) - 1, np.bool_)
    for name in ("site", "group", "source"):
        same &= key[name][1:] == key[name][:-1]
    falls = np.concatenate([[False], same & (first[1:] < last[:-1])])
    found.fifo |= {names["site"][s] for s in np.unique(key["site"][falls | (bad > 0)])}


def _merge_sets(rows: Any, found: Merged) -> None:
    """Add up the sums of each site and destination, over sources and pieces."""
    if not len(rows):
        return
    names, key = _ordered(rows)
    site, group = key["site"], key["group"]
    n, x1, x2, xs = (rows.column(name).to_numpy()[key["order"]] for name in ("n", "x1", "x2", "xs"))
    at = np.flatnonzero(np.concatenate([[True], (site[1:] != site[:-1]) | (group[1:] != group[:-1])]))
    sums = [np.add.reduceat(values.view(np.uint64), at).tolist() for values in (n, x1, x2)]
    keys = [(names["site"][s], names["group"][g]) for s, g in zip(site[at], group[at], strict=True)]
    found.sets = dict(zip(keys, zip(*sums, strict=True), strict=True))
    found.told = dict(zip(keys, np.add.reduceat(xs.view(np.uint64), at).tolist(), strict=True))


def _merge_runs(rows: list[tuple[Any, ...]], whole: dict[SiteId, list[tuple[int, int, bool]]], found: Merged) -> None:
    """Find the sites where stamps of a class do not grow, or a previous stamp is not the stamp before it."""
    runs: dict[tuple[SiteId, str], list[tuple[Any, ...]]] = defaultdict(list)
    for site, order_class, *row in rows:
        runs[site, order_class].append(tuple(row))
    for (site, _), own in runs.items():
        own.sort(key=lambda row: row[0])
        before, since = None, -1
        for p0, p1, bad, lie, s0, s1, prev in own:
            if bad or lie:
                found.stamps.add(site)
            pieces = whole[site]
            if before is None:  # the first delivery of its class: it must have no previous stamp, wherever it stands
                if prev is not None and pieces[0][0] == 0 and p0 > pieces[0][1] and _no_gap(pieces, 0, p0):
                    found.stamps.add(site)
            elif before >= s0 or (lie is not None and prev != before and _no_gap(pieces, since, p0)):
                found.stamps.add(site)
            before, since = s1, p1


def _no_gap(pieces: list[tuple[int, int, bool]], begin: int, end: int) -> bool:
    """Whether no position between these two is missing."""
    touched = [piece for piece in pieces if piece[1] >= begin and piece[0] <= end]
    return all(piece[2] for piece in touched) and all(one[1] + 1 == other[0] for one, other in pairwise(touched))
