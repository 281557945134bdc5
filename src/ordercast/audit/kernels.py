"""The compiled loops over every delivery: hashes of names, the fold, and the search for cycles.

Two sets of messages are compared by their counts and by two 64-bit sums of hashes. Equal sets always have equal sums.
Different sets have equal sums with probability 2^-64, whoever chose the names, because every audit draws a new key for
the hash. Nothing else depends on hashes: the order is judged by comparing stamps byte by byte, or by names.
"""

import secrets
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ordercast.compiled import kernel

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Hashes = NDArray[np.uint64]

PRIME = np.uint64(0x100000001B3)
MIX_1 = np.uint64(0xFF51AFD7ED558CCD)
MIX_2 = np.uint64(0xC4CEB9FE1A85EC53)
SHIFT, HALF, LOW = np.uint64(33), np.uint64(32), np.uint64(2**32 - 1)
BITS_8, BITS_16 = np.uint64(8), np.uint64(16)
EVEN_BYTES, EVEN_PAIRS = np.uint64(0x00FF00FF00FF00FF), np.uint64(0x0000FFFF0000FFFF)
NOWHERE = np.int64(-1)
LONG = 512  # bytes; few names are longer


class Strings(NamedTuple):
    """Byte strings laid end to end."""

    offsets: Ints | Longs
    data: Bytes
    words: Hashes
    """`words[i]` is the number in `data[i : i + 8]`, low byte first. A view of `data`, not a copy."""


class Key(NamedTuple):
    """The secret part of a hash: whoever does not know it cannot choose names that collide."""

    words: Hashes
    """Random numbers, two for each word of a name."""
    kept: np.uint64
    """A mask: the bits of a hash that are kept."""


def fresh_key(bits: int = 64) -> Key:
    """Draw a key. Tests keep few bits, so that most names collide, and check that no verdict is wrong."""
    drawn = np.frombuffer(secrets.token_bytes(2 * LONG), np.uint64)
    return Key(drawn, np.uint64((1 << bits) - 1))


@kernel
def mix(h: np.uint64) -> np.uint64:
    """Mix a number so that every bit of the input changes about half of the output (the finalizer of MurmurHash3)."""
    h = (h ^ (h >> SHIFT)) * MIX_1
    h = (h ^ (h >> SHIFT)) * MIX_2
    return h ^ (h >> SHIFT)


@kernel
def absorb(word: np.uint64, key: np.uint64) -> np.uint64:
    """Return what eight bytes add to the NH sum of a string (Black et al., UMAC, 1999).

    Each half of the word is added to its half of the key, and the two are multiplied. Two different strings of one
    length have the same sum for one key in 2^32, so with two keys for one in 2^64. A product with a constant instead
    of a key is not enough: thousands of names like `tenant000042` then have the same hash.
    """
    return ((word + key) & LOW) * (((word >> HALF) + (key >> HALF)) & LOW)


@kernel
def hash_bytes(strings: Strings, key: Key) -> Hashes:
    """Hash each string: its length, then its words of eight bytes; the last word overlaps the one before it.

    A string of less than eight bytes is one word. The hash of a string of more than LONG bytes is 0 here, and
    `columns.hashes` replaces it.
    """
    offsets, data, words = strings
    found = np.zeros(len(offsets) - 1, np.uint64)
    for i in range(len(offsets) - 1):
        at, end = offsets[i], offsets[i + 1]
        size = end - at
        if size > LONG:
            continue
        one, other = np.uint64(size) * PRIME, np.uint64(0)
        place = 0
        if size < 8:
            word = np.uint64(0)
            while at < end:
                word = word << BITS_8 | np.uint64(data[at])
                at += 1
        else:
            while at + 8 < end:
                one += absorb(words[at], key.words[place])
                other += absorb(words[at], key.words[place + 1])
                at += 8
                place += 2
            word = words[end - 8]
        one += absorb(word, key.words[place])
        other += absorb(word, key.words[place + 1])
        found[i] = mix(mix(one) + other) & key.kept
    return found


@kernel
def dense(one: Ints, ones: int, other: Ints, others: int) -> tuple[Ints, Ints, Ints]:
    """Number the pairs (one[i], other[i]) in the order of first occurrence.

    Returns the pair of each row, and the first and the second half of each pair.
    """
    rows = len(one)
    table = np.full(ones * others, -1, np.int32)
    pair = np.empty(rows, np.int32)
    first = np.empty(min(rows, ones * others), np.int32)
    second = np.empty(min(rows, ones * others), np.int32)
    count = 0
    for i in range(rows):
        key = np.int64(one[i]) * others + other[i]
        if table[key] < 0:
            table[key] = count
            first[count] = one[i]
            second[count] = other[i]
            count += 1
        pair[i] = table[key]
    return pair, first[:count].copy(), second[:count].copy()


@kernel
def is_sorted(site: Ints, position: Longs, sites: int) -> bool:
    """Whether every site's rows come in the order of their positions."""
    last = np.full(sites, -1, np.int64)
    for i in range(len(site)):
        if position[i] <= last[site[i]]:
            return False
        last[site[i]] = position[i]
    return True


@kernel
def fold_sets(
    order: Longs, pair: Ints, pairs: int, header: Hashes, message: Hashes, seq: Longs, position: Longs, told: Hashes
) -> tuple[Longs, Hashes, Hashes, Hashes, Longs, Longs, Longs, Longs, Longs]:
    """Fold the rows of each pair, which is a (site, destination, source).

    Returns per pair: the count of rows; the two sums x1 and x2 over message, destination, source and number; the sum xs
    that also covers what was told (stamp, class, epoch, body); the first and the last number; how often the number fell
    and at which position first; the first position. Sums are modulo 2^64 and not xor: a message that is there twice
    counts twice, and does not vanish.
    """
    count, bad, at = np.zeros(pairs, np.int64), np.zeros(pairs, np.int64), np.full(pairs, NOWHERE, np.int64)
    x1, x2, xs = np.zeros(pairs, np.uint64), np.zeros(pairs, np.uint64), np.zeros(pairs, np.uint64)
    first, last, p0 = np.zeros(pairs, np.int64), np.zeros(pairs, np.int64), np.zeros(pairs, np.int64)
    has_told = len(told) > 0
    for k in range(len(order)):
        i = order[k]
        p = pair[i]
        number = np.uint64(seq[i])
        h = mix(message[i] ^ (header[p] + number * MIX_1))
        x1[p] += h
        x2[p] += mix(message[i] + (header[p] ^ number * MIX_2))
        if has_told:
            xs[p] += mix(h ^ told[i])
        if count[p] == 0:
            first[p] = seq[i]
            p0[p] = position[i]
        elif seq[i] < last[p]:
            bad[p] += 1
            if at[p] == NOWHERE:
                at[p] = position[i]
        count[p] += 1
        last[p] = seq[i]
    return count, x1, x2, xs, first, last, bad, at, p0


@kernel
def fold_sites(
    order: Longs, site: Ints, sites: int, message: Hashes, position: Longs, epoch: Longs
) -> tuple[Longs, Longs, Longs, Hashes, Longs, Longs, Longs, Longs, Longs]:
    """Fold the rows of each site.

    Returns per site: the count of rows, the first and the last position, a sum over (position, message), the first and
    the last epoch, how often the epoch fell and at which position first, and the first position that occurs twice.
    """
    count, first, last = np.zeros(sites, np.int64), np.zeros(sites, np.int64), np.zeros(sites, np.int64)
    sequence = np.zeros(sites, np.uint64)
    epoch_0, epoch_1 = np.zeros(sites, np.int64), np.zeros(sites, np.int64)
    bad, at, repeated = np.zeros(sites, np.int64), np.full(sites, NOWHERE, np.int64), np.full(sites, NOWHERE, np.int64)
    for k in range(len(order)):
        i = order[k]
        s = site[i]
        if count[s] == 0:
            first[s] = position[i]
            epoch_0[s] = epoch[i]
        else:
            if epoch[i] < epoch_1[s]:
                bad[s] += 1
                if at[s] == NOWHERE:
                    at[s] = position[i]
            if position[i] == last[s] and repeated[s] == NOWHERE:
                repeated[s] = position[i]
        count[s] += 1
        last[s] = position[i]
        epoch_1[s] = epoch[i]
        sequence[s] += mix(message[i] ^ (np.uint64(position[i]) * MIX_1 + MIX_2))
    return count, first, last, sequence, epoch_0, epoch_1, bad, at, repeated


@kernel
def high_byte_first(word: np.uint64) -> np.uint64:
    """Reverse the bytes of a word: two reversed words compare as numbers the way their bytes compare."""
    word = (word & EVEN_BYTES) << BITS_8 | (word >> BITS_8) & EVEN_BYTES
    word = (word & EVEN_PAIRS) << BITS_16 | (word >> BITS_16) & EVEN_PAIRS
    return word << HALF | word >> HALF


@kernel
def compare(ones: Strings, a: int, others: Strings, b: int) -> int:
    """Compare string `a` of one column with string `b` of another, as bytes: -1, 0 or 1."""
    start_a, start_b = ones.offsets[a], others.offsets[b]
    size_a, size_b = ones.offsets[a + 1] - start_a, others.offsets[b + 1] - start_b
    shared = min(size_a, size_b)
    k = 0
    while k + 8 <= shared:
        x, y = ones.words[start_a + k], others.words[start_b + k]
        if x != y:
            return -1 if high_byte_first(x) < high_byte_first(y) else 1
        k += 8
    while k < shared:
        if ones.data[start_a + k] != others.data[start_b + k]:
            return -1 if ones.data[start_a + k] < others.data[start_b + k] else 1
        k += 1
    if size_a == size_b:
        return 0
    return -1 if size_a < size_b else 1


@kernel
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
    """Fold the rows of each pair, which is a (site, class).

    Returns per pair: the count of rows; the first and the last row; how many stamps are not larger than the stamp
    before, and the first such position; how many previous stamps are not the stamp before, and the first such position.
    A previous stamp is compared only if no position is missing since the delivery before it; the first one of a class,
    which must be null, only if none is missing since position 0.
    """
    count, first, last = np.zeros(pairs, np.int64), np.full(pairs, NOWHERE, np.int64), np.full(pairs, NOWHERE, np.int64)
    bad, bad_at = np.zeros(pairs, np.int64), np.full(pairs, NOWHERE, np.int64)
    lie, lie_at = np.zeros(pairs, np.int64), np.full(pairs, NOWHERE, np.int64)
    whole_since = np.full(sites, NOWHERE, np.int64)  # no position of the site is missing since this one
    at = np.full(sites, NOWHERE, np.int64)
    for k in range(len(order)):
        i = order[k]
        s, p = site[i], pair[i]
        if at[s] == NOWHERE or position[i] > at[s] + 1:
            whole_since[s] = position[i]
        at[s] = position[i]
        before = last[p]
        if before == NOWHERE:
            first[p] = i
            if whole_since[s] == 0 and len(no_prev) and not no_prev[i]:
                lie[p] += 1
                if lie_at[p] == NOWHERE:
                    lie_at[p] = position[i]
        elif position[i] != position[before]:
            if compare(stamps, before, stamps, i) >= 0:
                bad[p] += 1
                if bad_at[p] == NOWHERE:
                    bad_at[p] = position[i]
            if (
                len(no_prev)
                and position[before] >= whole_since[s]
                and (no_prev[i] or compare(stamps, before, prevs, i) != 0)
            ):
                lie[p] += 1
                if lie_at[p] == NOWHERE:
                    lie_at[p] = position[i]
        count[p] += 1
        last[p] = i
    return count, first, last, bad, bad_at, lie, lie_at


@kernel
def knots(log_ptr: Longs, logs: Ints, messages: int) -> Ints:
    """Return the strongly connected component of each message in the union of all logs; -1 when it is on no cycle.

    The graph has an edge between any two neighbours of a log. Kahn's algorithm, forwards and then backwards, removes
    what is neither on a cycle nor between two cycles: in a nearly clean log that is nearly everything. Tarjan's
    algorithm finds the components of the rest.
    """
    edges = len(logs) - (len(log_ptr) - 1)
    tail, head = np.empty(max(edges, 0), np.int32), np.empty(max(edges, 0), np.int32)
    count = 0
    for s in range(len(log_ptr) - 1):
        for at in range(log_ptr[s], log_ptr[s + 1] - 1):
            tail[count] = logs[at]
            head[count] = logs[at + 1]
            count += 1
    tail, head = tail[:count], head[:count]
    left = peel(tail, head, messages)
    keep = left[tail] & left[head]
    tail, head = tail[keep], head[keep]
    back = peel(head, tail, messages)
    left &= back
    keep = left[tail] & left[head]
    return tarjan(tail[keep], head[keep], left)


@kernel
def adjacency(tail: Ints, head: Ints, messages: int) -> tuple[Longs, Ints]:
    """Return the graph as adjacency lists: the successors of message m are `found[ptr[m] : ptr[m + 1]]`."""
    ptr = np.zeros(messages + 1, np.int64)
    for e in range(len(tail)):
        ptr[tail[e] + 1] += 1
    for m in range(messages):
        ptr[m + 1] += ptr[m]
    fill = ptr[:-1].copy()
    found = np.empty(len(tail), np.int32)
    for e in range(len(tail)):
        found[fill[tail[e]]] = head[e]
        fill[tail[e]] += 1
    return ptr, found


@kernel
def peel(tail: Ints, head: Ints, messages: int) -> NDArray[np.bool_]:
    """Run Kahn's algorithm: remove messages without a predecessor until there are none; return which are left."""
    ptr, after = adjacency(tail, head, messages)
    earlier = np.zeros(messages, np.int32)
    for e in range(len(head)):
        earlier[head[e]] += 1
    left = np.ones(messages, np.bool_)
    stack = np.empty(messages, np.int32)
    size = 0
    for m in range(messages):
        if earlier[m] == 0:
            stack[size] = m
            size += 1
    while size:
        size -= 1
        m = stack[size]
        left[m] = False
        for at in range(ptr[m], ptr[m + 1]):
            n = after[at]
            earlier[n] -= 1
            if earlier[n] == 0:
                stack[size] = n
                size += 1
    return left


@kernel
def tarjan(tail: Ints, head: Ints, among: NDArray[np.bool_]) -> Ints:  # noqa: PLR0915 - one search, one stack
    """Run Tarjan's algorithm on some messages: return the component of each, -1 for a component of one message."""
    messages = len(among)
    ptr, after = adjacency(tail, head, messages)
    found, low = np.zeros(messages, np.int32), np.zeros(messages, np.int32)
    component = np.full(messages, -1, np.int32)
    on_stack = np.zeros(messages, np.bool_)
    cursor = ptr[:-1].copy()
    stack, path = np.empty(messages, np.int32), np.empty(messages, np.int32)
    open_size = 0
    clock = 0
    components = 0
    for root in range(messages):
        if not among[root] or found[root]:
            continue
        clock += 1
        found[root] = low[root] = clock
        path[0] = root
        deep = 1
        stack[open_size] = root
        open_size += 1
        on_stack[root] = True
        while deep:
            v = path[deep - 1]
            if cursor[v] < ptr[v + 1]:
                w = after[cursor[v]]
                cursor[v] += 1
                if not found[w]:
                    clock += 1
                    found[w] = low[w] = clock
                    path[deep] = w
                    deep += 1
                    stack[open_size] = w
                    open_size += 1
                    on_stack[w] = True
                elif on_stack[w]:
                    low[v] = min(low[v], found[w])
                continue
            deep -= 1
            if deep:
                low[path[deep - 1]] = min(low[path[deep - 1]], low[v])
            if low[v] == found[v]:
                size = 0
                while True:
                    open_size -= 1
                    w = stack[open_size]
                    on_stack[w] = False
                    component[w] = components
                    size += 1
                    if w == v:
                        break
                if size == 1:
                    component[v] = -1
                else:
                    components += 1
    return component
