"""The one reader of memberships: TOML, CSV and Parquet.

Every error is one line: the file, the line or row or key, and what is wrong with it. Clusters and workloads, which have
a table of groups among others, read it by `membership.toml`.
"""

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ordercast.errors import InputError
from ordercast.membership.table import Indices, Membership
from ordercast.membership.toml import check_group, groups_in, read_toml, table_in, unions_in
from ordercast.names import GroupId, SiteId


def existing(path: str | Path) -> Path:
    """Return the path if there is something readable at it."""
    try:
        Path(path).stat()
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{str(path)[:200]}: {error.strerror}") from None
    return Path(path)


def read_membership(path: str | Path) -> Membership:
    """Read TOML (`[groups]`), CSV or Parquet (columns `site`, `group`); the ending says which."""
    path = existing(path)
    ending = ".parquet" if path.is_dir() else path.suffix.lower()
    match ending:
        case ".toml":
            given = read_toml(path)
            return Membership.of(groups_in(path, given)).with_unions(unions_in(path, given))
        case ".csv":
            rows = read_csv(path, ("site", "group"))
            return _from_codes(path, *_encode(rows["site"]), *_encode(rows["group"]), lines=rows["line"])
        case ".parquet" | ".pq":
            return _from_codes(path, *_encode_parquet(path, "site"), *_encode_parquet(path, "group"))
        case _:
            raise InputError(f"{path}: a membership file ends in .toml, .csv or .parquet, not {path.suffix!r}")


def read_weights(path: str | Path, membership: Membership) -> NDArray[np.float64]:
    """Read the traffic of each group: TOML `[weights]`, or CSV / Parquet with columns `group`, `weight`."""
    path = existing(path)
    found = _weights_in(path)
    for group, weight in found.items():
        number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not number or not (weight == 0 or 1e-12 <= weight <= 1e15):
            told = str(weight)[:40]
            raise InputError(f"{path}: weight of group {group!r} must be 0 or from 1e-12 to 1e15, a number, not {told}")
    unknown = sorted(found.keys() - set(membership.groups))
    missing = sorted(set(membership.groups) - found.keys())
    if unknown or missing:
        group, what = (unknown[0], "is not in the membership") if unknown else (missing[0], "has no weight")
        raise InputError(f"{path}: group {group!r} {what}")
    weights = np.array([found[group] for group in membership.groups], np.float64)
    if weights.sum() <= 0:
        raise InputError(f"{path}: every weight is 0")
    return weights


def _weights_in(path: Path) -> dict[GroupId, Any]:
    """Return what a file gives each group, not checked but for groups that appear twice."""
    found: dict[GroupId, Any] = {}
    match path.suffix.lower():
        case ".toml":
            found = table_in(path, read_toml(path), "weights")
        case ".csv":
            rows = read_csv(path, ("group", "weight"))
            for line, group, weight in zip(rows["line"], rows["group"], rows["weight"], strict=True):
                if group in found:
                    raise InputError(f"{path}: line {line}: group {group!r} appears twice")
                try:
                    found[group] = float(weight)
                except ValueError:
                    raise InputError(f"{path}: line {line}: weight {weight!r} is not a number") from None
        case ".parquet" | ".pq":
            groups = read_parquet(path, "group", "string").to_pylist()
            found = dict(zip(groups, read_parquet(path, "weight", "number").to_pylist(), strict=True))
            if len(found) != len(groups):
                raise InputError(f"{path}: row {_first_repeat(groups)}: a group appears twice")
        case _:
            raise InputError(f"{path}: a weights file ends in .toml, .csv or .parquet, not {path.suffix!r}")
    return found


def read_latencies(path: str | Path) -> dict[tuple[SiteId, SiteId], float]:
    """Read how long a message takes between two sites: CSV with columns `site`, `other`, `latency`."""
    path = existing(path)
    if path.suffix.lower() != ".csv":
        raise InputError(f"{path}: a file of latencies ends in .csv, not {path.suffix!r}")
    rows = read_csv(path, ("site", "other", "latency"))
    found: dict[tuple[SiteId, SiteId], float] = {}
    for line, site, other, text in zip(*(rows[name] for name in ("line", "site", "other", "latency")), strict=True):
        try:
            latency = float(text)
        except ValueError:
            latency = -1.0
        if not 0 < latency <= 1e9:
            raise InputError(f"{path}: line {line}: latency {text!r} is not a number above 0")
        if site == other or (site, other) in found or (other, site) in found:
            why = "a site and itself" if site == other else f"{site}, {other} appear twice"
            raise InputError(f"{path}: line {line}: {why}")
        found[site, other] = latency
    return found


def _first_repeat(names: Sequence[str]) -> int:
    """Return the row, from 1, of the first name that was there before."""
    seen: set[str] = set()
    return next(row for row, name in enumerate(names, start=1) if name in seen or seen.add(name))  # type: ignore[func-returns-value]


def read_csv(path: Path, columns: tuple[str, ...]) -> dict[str, list[Any]]:
    """Read the named columns as strings, and `line`, the file's line number of each row."""
    rows: dict[str, list[Any]] = {name: [] for name in (*columns, "line")}
    line = 1
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            header = next(reader, [])
            _check_columns(path, header, columns)
            at = [header.index(name) for name in columns]
            sinks = [rows[name] for name in columns]
            for row in reader:
                line = reader.line_num
                if not row:
                    continue
                if len(row) != len(header):
                    raise InputError(f"{path}: line {line}: {len(row)} fields where the header has {len(header)}")
                for index, sink, name in zip(at, sinks, columns, strict=True):
                    if not row[index]:
                        raise InputError(f"{path}: line {line}: {name} is empty")
                    sink.append(row[index])
                rows["line"].append(line)
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: after line {line}: not UTF-8 text ({error.reason})") from None
    except csv.Error as error:
        raise InputError(f"{path}: after line {line}: not valid CSV: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    if not rows["line"]:
        raise InputError(f"{path}: no rows")
    return rows


def read_parquet(path: Path, name: str, kind: str) -> Any:
    """Read one column of a Parquet file or folder, a "string" or a "number" without nulls, as a chunked array."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        folders = _folders(path)
        dataset = pq.ParquetDataset(path, partitioning=folders)
        _check_columns(path, dataset.schema.names, (name,))
        kinds = [
            part.physical_schema.field(name).type for part in dataset.fragments if name in part.physical_schema.names
        ]
        stored = {str(kind) for kind in kinds}
        if len(stored) > 1:
            raise InputError(f"{path}: column {name!r} holds {' in one part and '.join(sorted(stored))} in another")
        how = {"use_threads": False, "pre_buffer": False, "memory_map": True, "partitioning": folders}
        column = pq.read_table(path, columns=[name], **how).column(0)
        if pa.types.is_string_view(column.type):
            column = column.cast(pa.large_string())
        elif kind == "string" and pa.types.is_integer(column.type):
            column = column.cast(pa.string())
        column.validate(full=True)
    except (pa.ArrowException, OSError, KeyError) as error:
        raise InputError(f"{path}: not readable as Parquet: {str(error).splitlines()[0]}") from None
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)  # chunks with dictionaries of their own are slow to unify
    _check_column(path, name, kind, column)
    return column


def _check_column(path: Path, name: str, kind: str, column: Any) -> None:
    """Refuse a column of another kind, without rows or with a null."""
    import pyarrow as pa
    import pyarrow.compute as pc

    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    is_number = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
    if not (is_text if kind == "string" else is_number):
        raise InputError(f"{path}: column {name!r} holds {column.type}, not a {kind}")
    if column.null_count:
        row = pc.index(pc.is_null(column), True).as_py() + 1
        raise InputError(f"{path}: row {row}: {name} is null")
    if not len(column):
        raise InputError(f"{path}: no rows")


def _folders(path: Path) -> Any:
    """Return how to read folders like `group=a`: their values are text, whatever they look like."""
    import pyarrow as pa
    from pyarrow.dataset import partitioning

    below = (part for file in path.rglob("*.parquet") for part in file.relative_to(path).parts[:-1])
    names = sorted({part.partition("=")[0] for part in below if "=" in part}) if path.is_dir() else []
    return partitioning(pa.schema([(name, pa.string()) for name in names]), flavor="hive") if names else None


def _check_columns(path: Path, header: Sequence[str], columns: tuple[str, ...]) -> None:
    for name in columns:
        if header.count(name) != 1:
            how = "twice" if name in header else "missing"
            raise InputError(f"{path}: column {name!r} is {how} (columns: {', '.join(header)[:200] or 'none'})")


def _encode(names: list[str]) -> tuple[list[str], Indices]:
    distinct = sorted(set(names))
    number = {name: index for index, name in enumerate(distinct)}
    return distinct, np.fromiter((number[name] for name in names), np.int32, len(names))


def _encode_parquet(path: Path, name: str) -> tuple[list[str], Indices]:
    """Return the distinct names in order, and the place of each row's name among them."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # Ten million names pass through here once. Arrow's own pools give memory back and fault it in again all the time;
    # the system's keeps it (measured: 6.5 s against 10 s, half of it spent in the kernel).
    usual = pa.default_memory_pool()
    pa.set_memory_pool(pa.system_memory_pool())
    try:
        column = read_parquet(path, name, "string").dictionary_encode()
        names = column.chunk(0).dictionary  # one for all chunks
        codes = np.empty(len(column), np.int32)
        at = 0
        for chunk in column.chunks:
            codes[at : at + len(chunk)] = chunk.indices.to_numpy()
            at += len(chunk)
        in_order = pc.sort_indices(names).to_numpy()  # UTF-8 bytes sort like code points: Python's own order of str
        rank = np.empty(len(names), np.int32)
        rank[in_order] = np.arange(len(names), dtype=np.int32)
        np.take(rank, codes, out=codes, mode="clip")  # in place; "raise" would copy
        return names.take(in_order).to_pylist(), codes
    finally:
        pa.set_memory_pool(usual)


def _from_codes(
    path: Path, sites: list[str], site: Indices, groups: list[str], group: Indices, lines: Sequence[int] | None = None
) -> Membership:
    if not sites[0] or not groups[0]:
        name, codes = ("site", site) if not sites[0] else ("group", group)
        raise InputError(f"{path}: row {int(np.argmax(codes == 0)) + 1}: {name} has an empty name")
    for name in groups:
        check_group(f"{path}: ", name)
    key = group.astype(np.int64)
    key *= len(sites)
    key += site
    key.sort()
    repeated = key[1:] == key[:-1]
    if repeated.any():
        twice = key[1:][repeated][0]
        row = np.flatnonzero((group == twice // len(sites)) & (site == twice % len(sites)))[1]
        where = f"line {lines[row]}" if lines is not None else f"row {row + 1}"
        raise InputError(f"{path}: {where}: {sites[site[row]]!r} appears twice in group {groups[group[row]]!r}")
    ptr = np.zeros(len(groups) + 1, np.int64)
    np.cumsum(np.bincount(group, minlength=len(groups)), out=ptr[1:])
    return Membership(tuple(sites), tuple(groups), ptr, (key % len(sites)).astype(np.int32))
