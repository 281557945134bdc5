"""Where a message goes: one group or several, under one name however a log writes it.

A log says `a+b`, `b+a` or, in a column of lists, ["a", "b"]: one destination, the union of both. The fold knows it by
one text: names sorted, joined by `+`, and a `+` inside a name (lists may have one) kept apart by a backslash.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from ordercast.errors import InputError
from ordercast.names import GroupId, SiteId

Destination = str
"""One or more groups as one text; `groups_of` tells which."""
_PARTS = re.compile(r"(?:[^\\+]|\\.)+", re.DOTALL)
_ESCAPED = re.compile(r"\\(.)", re.DOTALL)


def destination(groups: Iterable[GroupId]) -> Destination:
    """Return the text that these groups together are known by."""
    return "+".join(name.replace("\\", "\\\\").replace("+", "\\+") for name in sorted(set(groups)))


def written(text: str) -> Destination:
    """Return the destination that a log writes as `a+b`."""
    return destination(name for name in text.split("+") if name)


@lru_cache(maxsize=100_000)
def groups_of(known: Destination) -> tuple[GroupId, ...]:
    """Return the single groups of a destination."""
    if "+" not in known and "\\" not in known:
        return (known,)
    return tuple(_ESCAPED.sub(r"\1", part) for part in _PARTS.findall(known))


def shown(known: Destination) -> str:
    """Return a destination as people write it."""
    return "+".join(groups_of(known))


class Members:
    """Who gets a message: the members of every group it is for."""

    def __init__(self, members: Mapping[GroupId, Sequence[SiteId]]) -> None:
        self._members = members
        self._sites: dict[Destination, frozenset[SiteId]] = {}

    def of(self, known: Destination) -> frozenset[SiteId]:
        """Return the sites of a destination."""
        if known not in self._sites:
            self._sites[known] = frozenset(s for name in groups_of(known) for s in self._members.get(name, ()))
        return self._sites[known]


def of_texts(column: Any) -> Any:
    """Return a column of `a+b` as one of destinations; both are dictionaries."""
    names = column.dictionary.to_pylist()
    if not any("+" in name or "\\" in name for name in names):
        return column
    return _renamed(column.indices.to_numpy(zero_copy_only=False), [written(name) for name in names])


def of_lists(column: Any) -> Any:
    """Return a column of lists of groups as one of destinations."""
    if isinstance(column, pa.ChunkedArray):
        column = pa.array([], column.type)
    names = column.flatten().cast(pa.string()).dictionary_encode()
    if names.null_count:
        raise InputError("a list of groups has a null in it")
    many = column.value_lengths().to_numpy(zero_copy_only=False)
    begin = np.cumsum(many) - many
    flat, texts = names.indices.to_numpy(zero_copy_only=False), names.dictionary.to_pylist()
    found = [destination([text]) for text in texts]
    code = np.full(len(column), -1, np.int64)
    code[many == 1] = flat[begin[many == 1]]
    number: dict[bytes, int] = {}
    for row in np.flatnonzero(many != 1).tolist():
        parts = flat[begin[row] : begin[row] + many[row]]
        key = parts.tobytes()
        if key not in number:
            number[key] = len(found)
            found.append(destination(texts[part] for part in parts.tolist()))
        code[row] = number[key]
    return _renamed(code, found)


def _renamed(code: Any, names: list[Destination]) -> Any:
    """Return a dictionary column of these names, each once."""
    if "" in (names[c] for c in np.unique(code).tolist()):
        raise InputError("a message is for no group at all")
    number = {name: index for index, name in enumerate(sorted(set(names)))}
    again = np.array([number[name] for name in names], np.int32)
    return pa.DictionaryArray.from_arrays(pa.array(again[code], pa.int32()), pa.array(list(number), pa.string()))
