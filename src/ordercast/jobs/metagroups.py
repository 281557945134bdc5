"""The loops over every membership and every site of a table, compiled: signatures, and the meta-groups they make (MGT).

Sites are told apart by their names, byte by byte; sets of groups by their signatures alone (`--verify` checks those
against the rows, exactly).
"""

import numpy as np
from numpy.typing import NDArray

from ordercast.audit.kernels import Bytes, Hashes, Ints, Longs, Strings, compare
from ordercast.planning.kernels import kernel

ONE = np.uint64(1)


@kernel
def same_as_before(offsets: Ints | Longs, data: Bytes, words: Hashes) -> NDArray[np.bool_]:
    """Whether each of many strings equals the one before it; sites in runs differ in their last bytes, if at all."""
    count = len(offsets) - 1
    same = np.zeros(count, np.bool_)
    for i in range(1, count):
        at, end, before = offsets[i], offsets[i + 1], offsets[i - 1]
        if end - at != at - before:
            continue
        back = at - before
        while end - at >= 8 and words[end - 8] == words[end - 8 - back]:
            end -= 8
        if end - at >= 8:
            continue
        while end > at and data[end - 1] == data[end - 1 - back]:
            end -= 1
        same[i] = end == at
    return same


@kernel
def sign(site: Ints, sites: int, group: Ints, hashed: Hashes, salted: Hashes) -> tuple[Hashes, Hashes, Longs]:
    """Sum up the groups of each site: two xor sums of hashes, and how many."""
    first, second, count = np.zeros(sites, np.uint64), np.zeros(sites, np.uint64), np.zeros(sites, np.int64)
    for i in range(len(site)):
        first[site[i]] ^= hashed[group[i]]
        second[site[i]] ^= salted[group[i]]
        count[site[i]] += 1
    return first, second, count


@kernel
def slots_for(many: int) -> int:
    """Return a power of two that leaves at least half of a hash table empty."""
    slots = 16
    while slots < 2 * many:
        slots *= 2
    return slots


@kernel
def numbered(offsets: Ints | Longs, data: Bytes, words: Hashes, hashed: Hashes) -> tuple[Ints, Longs]:
    """Number different names in the order they come: the number of each row, the first row of each number."""
    strings = Strings(offsets, data, words)
    rows = len(hashed)
    slots = slots_for(rows)
    table, mask = np.full(slots, -1, np.int32), np.uint64(slots - 1)
    number, first = np.empty(rows, np.int32), np.empty(rows, np.int64)
    count = 0
    for i in range(rows):
        at = hashed[i] & mask
        while table[at] >= 0:
            other = first[table[at]]
            if hashed[other] == hashed[i] and compare(strings, other, strings, i) == 0:
                break
            at = (at + ONE) & mask
        if table[at] < 0:
            table[at] = count
            first[count] = i
            count += 1
        number[i] = table[at]
    return number, first[:count].copy()


@kernel
def added(site: Ints, sites: int, h1: Longs, h2: Longs, k: Longs) -> tuple[Longs, Longs, Longs]:
    """Add up the signatures of sites whose rows stand in several pieces."""
    all_1, all_2, all_k = np.zeros(sites, np.int64), np.zeros(sites, np.int64), np.zeros(sites, np.int64)
    for i in range(len(site)):
        all_1[site[i]] ^= h1[i]
        all_2[site[i]] ^= h2[i]
        all_k[site[i]] += k[i]
    return all_1, all_2, all_k


@kernel
def alike(
    offsets: Ints | Longs, data: Bytes, words: Hashes, row: Longs, h1: Longs, h2: Longs, k: Longs
) -> tuple[Longs, Longs]:
    """Group sites by signature: the site whose name is the first of each group, and how many there are."""
    strings = Strings(offsets, data, words)
    sites = len(row)
    slots = slots_for(sites)
    table, mask = np.full(slots, -1, np.int32), np.uint64(slots - 1)
    first, many = np.empty(sites, np.int64), np.zeros(sites, np.int64)
    count = 0
    for s in range(sites):
        at = np.uint64(h1[s]) & mask
        while table[at] >= 0:
            other = first[table[at]]
            if h1[other] == h1[s] and h2[other] == h2[s] and k[other] == k[s]:
                break
            at = (at + ONE) & mask
        m = table[at]
        if m < 0:
            table[at] = m = count
            first[m] = s
            count += 1
        elif compare(strings, row[s], strings, row[first[m]]) < 0:
            first[m] = s
        many[m] += 1
    return first[:count].copy(), many[:count].copy()
