"""Sites with the same groups, found by the sets themselves: no hash decides, Arrow compares every byte.

A piece of the table becomes a list of its sites and a list of the different sets of groups they have there; the driver
gives all pieces' groups, sets and sites their numbers. A set is written as the numbers of its groups, ascending, four
bytes each, so a list of sets is a column of byte strings, and a dictionary of that column tells equal ones.
"""

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ordercast.audit import columns
from ordercast.audit.kernels import Ints, Longs
from ordercast.errors import InputError
from ordercast.membership.toml import check_group
from ordercast.runs import reader

Lists = tuple[Longs, Ints]
"""Offsets, and the numbers of groups between them."""


def sites_and_sets(table: Any) -> Any:
    """Return the sites of a piece, the number of each one's set, the sets, and the names of groups, as one row."""
    site, names = _sites(table)
    group, groups = _in_order(table)
    lists = _lists(site.astype(np.int64) * len(groups) + group, len(names), len(groups), names, groups)
    sets = _bytes(lists).dictionary_encode()
    columns = {"site": names, "set": sets.indices, "sets": sets.dictionary, "groups": groups}
    return pa.table({name: pa.LargeListArray.from_arrays([0, len(c)], c) for name, c in columns.items()})


def sets_of_sites(table: Any) -> Any:
    """Return the sites of a piece and the groups of each, by name: what Spark itself brings together."""
    site, names = _sites(table)
    group, groups = _in_order(table)
    ptr, members = _lists(site.astype(np.int64) * len(groups) + group, len(names), len(groups), names, groups)
    lists = pa.ListArray.from_arrays(pa.array(ptr, pa.int32()), groups.take(pa.array(members)).cast(pa.string()))
    return pa.table({"site": names.cast(pa.string()), "groups": lists})


def merged(path: str, parts: list[Any]) -> Any:
    """Return meta (its first site), n, groups of every meta-group, from the pieces of a whole table."""
    parts = sorted(parts, key=lambda part: part.column("site").chunk(0).values[:1].to_pylist())
    column = {name: [part.column(name).chunk(0).values for part in parts] for name in parts[0].column_names}
    groups, number = _numbered(pa.concat_arrays(column["groups"]))
    begins = np.cumsum([0, *(len(own) for own in column["groups"])])
    sets = pa.concat_arrays([_renumbered(own, number[at:]) for own, at in zip(column["sets"], begins, strict=False)])
    sets = sets.dictionary_encode()
    first = np.cumsum([0, *(len(own) for own in column["sets"])])
    at = [own.to_numpy() + begin for own, begin in zip(column["set"], first[:-1], strict=True)]
    at_set = sets.indices.to_numpy()[np.concatenate(at)]
    site, names, in_order = _known(pa.concat_arrays(column["site"]))
    distinct = sets.dictionary
    if len(names) < len(site):
        try:
            distinct, at_set = _joined(distinct, at_set, site, names, groups)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None
    of_site = np.empty(len(names), np.int64)
    of_site[site] = at_set
    called = pa.array(np.arange(len(names))) if in_order else names
    rows = pa.table({"set": of_site, "site": called}).group_by("set", use_threads=False)
    found = rows.aggregate([("site", "min"), ("site", "count")])
    first = found.column("site_min").combine_chunks()
    meta = (names.take(first) if in_order else first).cast(pa.string())
    ptr, members = _numbers(distinct.take(found.column("set")).combine_chunks())
    lists = pa.ListArray.from_arrays(pa.array(ptr, pa.int32()), groups.take(pa.array(members)).cast(pa.string()))
    return pa.table({"meta": meta, "n": found.column("site_count"), "groups": lists})


def _known(names: Any) -> tuple[Ints, Any, bool]:
    """Number the sites of all pieces, and say whether they come in the order of their names: then nothing is hashed."""
    before, after = names[:-1], names[1:]
    if pc.all(pc.less_equal(before, after), min_count=0).as_py():
        new = np.concatenate([[True], pc.not_equal(before, after).to_numpy(zero_copy_only=False)])[: len(names)]
        return (np.cumsum(new) - 1).astype(np.int32), names.filter(pa.array(new)), True
    coded = names.dictionary_encode()
    return coded.indices.to_numpy(), coded.dictionary, False


def _sites(table: Any) -> tuple[Ints, Any]:
    """Number the sites of a piece: by runs when rows come site by site (one may come again), by name otherwise."""
    names = reader.one(table.column("site")).cast(pa.large_string())
    runs = pc.run_end_encode(names)
    if 2 * len(runs.values) <= len(names):
        ends = runs.run_ends.to_numpy()
        return np.repeat(np.arange(len(ends), dtype=np.int32), np.diff(ends, prepend=0)), runs.values
    coded = names.dictionary_encode()
    return coded.indices.to_numpy(), coded.dictionary


def _in_order(table: Any) -> tuple[Ints, Any]:
    """Number the groups of a piece in the order of their names."""
    column = reader.one(table.column("group"))
    coded = column.dictionary.cast(pa.large_string()).dictionary_encode()  # a file may name a group twice
    order = pc.sort_indices(coded.dictionary)
    names = coded.dictionary.take(order)
    for name in names.filter(pc.match_substring(names, "+")).to_pylist():
        check_group("", name)
    rank = np.empty(len(names), np.int32)
    rank[order.to_numpy()] = np.arange(len(names), dtype=np.int32)
    return rank[coded.indices.to_numpy()][column.indices.to_numpy(zero_copy_only=False)], names


def _lists(key: Longs, sites: int, groups: int, site_names: Any, group_names: Any) -> Lists:
    """Return the groups of each site, ascending; a key is site times the number of groups, plus group."""
    if bool((key[1:] < key[:-1]).any()):
        key.sort()
    same = key[1:] == key[:-1]
    if bool(same.any()):
        twice = int(key[1:][same][0])
        site, group = site_names[twice // groups].as_py(), group_names[twice % groups].as_py()
        raise InputError(f"{site!r} appears twice in group {group!r}")
    ptr = np.zeros(sites + 1, np.int64)
    np.cumsum(np.bincount(key // groups, minlength=sites), out=ptr[1:])
    return ptr, (key % groups).astype(np.int32)


def _bytes(lists: Lists) -> Any:
    """Write lists of numbers as byte strings."""
    ptr, numbers = lists
    buffers = [None, pa.py_buffer(ptr * 4), pa.py_buffer(numbers)]
    return pa.LargeBinaryArray.from_buffers(pa.large_binary(), len(ptr) - 1, buffers)


def _numbers(sets: Any) -> Lists:
    """Read byte strings as lists of numbers."""
    strings = columns.laid_out(sets)
    begin, end = int(strings.offsets[0]), int(strings.offsets[-1])
    numbers = np.frombuffer(strings.data[begin:end].tobytes(), np.int32)
    return (strings.offsets.astype(np.int64) - begin) // 4, numbers


def _numbered(names: Any) -> tuple[Any, Ints]:
    """Return the different names in their order, and the number of each."""
    coded = names.dictionary_encode()
    order = pc.sort_indices(coded.dictionary)
    rank = np.empty(len(order), np.int32)
    rank[order.to_numpy()] = np.arange(len(order), dtype=np.int32)
    return coded.dictionary.take(order), rank[coded.indices.to_numpy()]


def _renumbered(sets: Any, number: Ints) -> Any:
    """Write a piece's sets in the numbers of all groups: both are in the order of names, so they stay ascending."""
    ptr, numbers = _numbers(sets)
    return _bytes((ptr, number[numbers]))


def _joined(sets: Any, at_set: Longs, site: Ints, names: Any, groups: Any) -> tuple[Any, Longs]:
    """Give sites that stand in several pieces the union of their sets."""
    several = np.flatnonzero(np.bincount(site)[site] > 1)
    ptr, numbers = _numbers(sets)
    own = at_set[several]
    many = (ptr[1:] - ptr[:-1])[own]
    within = np.arange(many.sum()) - np.repeat(np.cumsum(many) - many, many)
    member = numbers[np.repeat(ptr[:-1][own], many) + within]
    split, at = np.unique(site[several], return_inverse=True)
    key = np.repeat(at.astype(np.int64), many) * len(groups) + member
    lists = _lists(key, len(split), len(groups), names.take(pa.array(split)), groups)
    every = pa.concat_arrays([sets, _bytes(lists)]).dictionary_encode()
    number = every.indices.to_numpy()
    again = number[at_set]
    again[several] = number[len(sets) :][at]
    return every.dictionary, again
