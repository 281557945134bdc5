"""The loops of `kernels.py` as numpy expressions: no compiler to load, and fast enough for a million rows.

Every function does what its namesake in `kernels.py` does; a test folds the same logs with both and compares.
"""

import numpy as np
from numpy.typing import NDArray

from ordercast.audit.kernels import (
    BITS_8,
    HALF,
    LONG,
    LOW,
    MIX_1,
    MIX_2,
    NOWHERE,
    PRIME,
    SHIFT,
    Hashes,
    Ints,
    Key,
    Longs,
    Strings,
)


def mix(h: Hashes) -> Hashes:
    """Mix numbers so that every bit of the input changes about half of the output."""
    h = (h ^ (h >> SHIFT)) * MIX_1
    h = (h ^ (h >> SHIFT)) * MIX_2
    return h ^ (h >> SHIFT)


def absorb(word: Hashes, key: np.uint64 | Hashes) -> Hashes:
    """Return what a word adds to the NH sum of its string."""
    return ((word + key) & LOW) * (((word >> HALF) + (key >> HALF)) & LOW)


def hash_bytes(strings: Strings, key: Key) -> Hashes:
    """Hash each string: its length, then its words of eight bytes; 0 for a string of more than LONG bytes."""
    offsets, data, words = strings
    begin, end, size = offsets[:-1], offsets[1:], np.diff(offsets)
    one, other = size.astype(np.uint64) * PRIME, np.zeros(len(size), np.uint64)
    word = np.zeros(len(size), np.uint64)
    long = longer = np.flatnonzero((size >= 8) & (size <= LONG))
    word[long] = words[end[long] - 8]
    for at in range(0, int(size[long].max(initial=0)) - 8, 8):
        longer = longer[size[longer] > at + 8]
        here = words[begin[longer] + at]
        one[longer] += absorb(here, key.words[at // 4])
        other[longer] += absorb(here, key.words[at // 4 + 1])
    more = np.flatnonzero(size < 8)
    for at in range(7):
        more = more[size[more] > at]
        word[more] = word[more] << BITS_8 | data[begin[more] + at]
    last = np.clip((size - 1) // 8, 0, LONG // 8 - 1) * 2  # the place of the last word
    one += absorb(word, key.words[last])
    other += absorb(word, key.words[last + 1])
    found = mix(mix(one) + other) & key.kept
    found[size > LONG] = 0
    return found


def dense(one: Ints, ones: int, other: Ints, others: int) -> tuple[Ints, Ints, Ints]:
    """Number the pairs in the order of first occurrence: the pair of each row, and both halves of each pair."""
    key = one.astype(np.int64) * others + other
    found, first, pair = np.unique(key, return_index=True, return_inverse=True)
    rank = np.empty(len(found), np.int64)
    rank[np.argsort(first)] = np.arange(len(found))
    found = found[np.argsort(first)]
    return rank[pair].astype(np.int32), (found // others).astype(np.int32), (found % others).astype(np.int32)


def is_sorted(site: Ints, position: Longs, sites: int) -> bool:
    """Whether every site's rows come in the order of their positions."""
    rows = np.argsort(site, kind="stable")
    same = site[rows][1:] == site[rows][:-1]
    return not bool((same & (position[rows][1:] <= position[rows][:-1])).any())


def _segments(order: Longs, key: Ints, keys: int) -> tuple[Longs, Longs, Longs, NDArray[np.bool_]]:
    """Sort rows by key, in log order within a key.

    Returns the rows, where each key begins, how many rows it has, and whether a row has one of its key before it.
    """
    rows = order[np.argsort(key[order], kind="stable")]
    count = np.bincount(key, minlength=keys)
    begin = np.concatenate([[0], np.cumsum(count)[:-1]])
    follows = np.ones(len(rows), np.bool_)
    follows[begin[count > 0]] = False
    return rows, begin, count, follows


def _sum(values: Hashes, begin: Longs, count: Longs) -> Hashes:
    found = np.zeros(len(begin), np.uint64)
    found[count > 0] = np.add.reduceat(values, begin[count > 0]) if len(values) else 0
    return found


def _tally(wrong: NDArray[np.bool_], key: Ints, keys: int, position: Longs) -> tuple[Longs, Longs]:
    """Count the wrong rows of each key, and return the position of the first; rows come in log order."""
    bad = np.bincount(key[wrong], minlength=keys).astype(np.int64)
    at = np.full(keys, NOWHERE, np.int64)
    at[key[wrong][::-1]] = position[wrong][::-1]
    return bad, at


def _ends(values: Longs, begin: Longs, count: Longs, default: int) -> tuple[Longs, Longs]:
    first, last = np.full(len(begin), default, np.int64), np.full(len(begin), default, np.int64)
    there = count > 0
    first[there], last[there] = values[begin[there]], values[begin[there] + count[there] - 1]
    return first, last


def fold_sets(
    order: Longs, pair: Ints, pairs: int, header: Hashes, message: Hashes, seq: Longs, position: Longs, told: Hashes
) -> tuple[Longs, Hashes, Hashes, Hashes, Longs, Longs, Longs, Longs, Longs]:
    """Fold the rows of each (site, destination, source): see `kernels.fold_sets`."""
    rows, begin, count, follows = _segments(order, pair, pairs)
    numbers, heads = seq.astype(np.uint64), header[pair]
    h = mix(message ^ (heads + numbers * MIX_1))[rows]
    h2 = mix(message + (heads ^ numbers * MIX_2))[rows]
    xs = _sum(mix(h ^ told[rows]), begin, count) if len(told) else np.zeros(pairs, np.uint64)
    number = seq[rows]
    wrong = follows & np.concatenate([[False], number[1:] < number[:-1]])
    bad, at = _tally(wrong, pair[rows], pairs, position[rows])
    first, last = _ends(number, begin, count, 0)
    p0, _ = _ends(position[rows], begin, count, 0)
    return count, _sum(h, begin, count), _sum(h2, begin, count), xs, first, last, bad, at, p0


def fold_sites(
    order: Longs, site: Ints, sites: int, message: Hashes, position: Longs, epoch: Longs
) -> tuple[Longs, Longs, Longs, Hashes, Longs, Longs, Longs, Longs, Longs]:
    """Fold the rows of each site: see `kernels.fold_sites`."""
    rows, begin, count, follows = _segments(order, site, sites)
    at_row, of_epoch = position[rows], epoch[rows]
    sequence = _sum(mix(message[rows] ^ (at_row.astype(np.uint64) * MIX_1 + MIX_2)), begin, count)
    falls = follows & np.concatenate([[False], of_epoch[1:] < of_epoch[:-1]])
    same = follows & np.concatenate([[False], at_row[1:] == at_row[:-1]])
    bad, at = _tally(falls, site[rows], sites, at_row)
    _, repeated = _tally(same, site[rows], sites, at_row)
    first, last = _ends(at_row, begin, count, 0)
    return count, first, last, sequence, *_ends(of_epoch, begin, count, 0), bad, at, repeated


def fold_runs(
    order: Longs,
    site: Ints,
    sites: int,
    pair: Ints,
    pairs: int,
    position: Longs,
    stamps: Strings,
    prevs: Strings,
    no_prev: NDArray[np.bool_],
) -> tuple[Longs, Longs, Longs, Longs, Longs, Longs, Longs]:
    """Fold the rows of each (site, class): see `kernels.fold_runs`."""
    by_site, _, _, goes_on = _segments(order, site, sites)
    at = position[by_site]
    begins = ~(goes_on & np.concatenate([[False], at[1:] <= at[:-1] + 1]))
    whole_since = np.empty(len(order), np.int64)
    whole_since[by_site] = at[np.maximum.accumulate(np.where(begins, np.arange(len(at)), 0))]
    rows, begin, count, follows = _segments(order, pair, pairs)
    first, last = _ends(rows, begin, count, -1)
    where = position[rows]
    apart = follows & np.concatenate([[False], where[1:] != where[:-1]])
    falls = np.concatenate([[False], compare(stamps, rows[:-1], stamps, rows[1:]) >= 0])
    bad, bad_at = _tally(apart & falls, pair[rows], pairs, where)
    if not len(no_prev):
        return count, first, last, bad, bad_at, np.zeros(pairs, np.int64), np.full(pairs, NOWHERE, np.int64)
    none = no_prev[rows]
    other = np.concatenate([[True], compare(stamps, rows[:-1], prevs, rows[1:]) != 0])
    known = np.concatenate([[False], where[:-1] >= whole_since[rows][1:]])
    lies = (apart & known & (none | other)) | (~follows & (whole_since[rows] == 0) & ~none)
    return count, first, last, bad, bad_at, *_tally(lies, pair[rows], pairs, where)


def compare(ones: Strings, a: Longs, others: Strings, b: Longs) -> Longs:
    """Compare strings `a[i]` of one column with strings `b[i]` of another, as bytes: -1, 0 or 1 for each pair."""
    start_a, start_b = ones.offsets[a].astype(np.int64), others.offsets[b].astype(np.int64)
    size_a, size_b = ones.offsets[a + 1] - start_a, others.offsets[b + 1] - start_b
    found, shared = np.sign(size_a - size_b), np.minimum(size_a, size_b)
    left = np.flatnonzero((shared >= 8) & (shared <= LONG))
    for at in range(0, int(shared[left].max(initial=0)), 8):
        left = left[shared[left] > at]
        step = np.minimum(at, shared[left] - 8)  # the last eight bytes, of which some are known to be equal
        x, y = ones.words[start_a[left] + step].byteswap(), others.words[start_b[left] + step].byteswap()
        found[left[x != y]] = np.where(x < y, -1, 1)[x != y]
        left = left[x == y]
    left = np.flatnonzero(shared < 8)
    for at in range(7):
        left = left[shared[left] > at]
        x, y = ones.data[start_a[left] + at], others.data[start_b[left] + at]
        found[left[x != y]] = np.where(x < y, -1, 1)[x != y]
        left = left[x == y]
    for i in np.flatnonzero(shared > LONG).tolist():  # so long that each is worth a call of its own
        one = ones.data[start_a[i] : start_a[i] + size_a[i]].tobytes()
        other = others.data[start_b[i] : start_b[i] + size_b[i]].tobytes()
        found[i] = (one > other) - (one < other)
    return found
