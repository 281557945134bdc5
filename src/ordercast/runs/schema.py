"""Run directories: what was sent and delivered, as Parquet that anyone can read (docs/formats.md)."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ordercast.core.events import Envelope
from ordercast.errors import InputError
from ordercast.names import GroupId, SiteId

Delivered = tuple[SiteId, Envelope, bytes, float]
"""Site, envelope, stamp, time."""
REPEATED = ("site", "group", "source", "order_class")
COUNTED = ("position", "source_seq", "epoch", "after")


def write_run(
    folder: Path,
    members: Mapping[GroupId, Sequence[SiteId]],
    classes: Sequence[Sequence[GroupId]],
    sends: Iterable[tuple[Envelope, float, int]],
    deliveries: Iterable[Delivered],
) -> None:
    """Write `membership/`, `sends/` and `deliveries/`; a class goes by the name of its first group."""
    import pyarrow as pa

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: {error.strerror}") from None
    rows = [(site, group) for group, sites in sorted(members.items()) for site in sites]
    _write(folder / "membership", {"site": pa.string(), "group": pa.string()}, rows)
    sent = [(e.msg_id, "+".join(e.groups), e.source, e.number, time, after) for e, time, after in sends]
    long, text = pa.int64(), pa.string()
    columns = {
        "msg_id": text,
        "group": text,
        "source": text,
        "source_seq": long,
        "sent_at": pa.float64(),
        "after": long,
    }
    _write(folder / "sends", columns, sent)
    order_of = {group: groups[0] for groups in classes for group in groups}
    place: dict[SiteId, int] = {}
    last: dict[tuple[SiteId, GroupId], bytes] = {}
    done = []
    for site, e, stamp, time in deliveries:
        at = place[site] = place.get(site, -1) + 1
        order = order_of[e.groups[0]]
        before = last.get((site, order))
        last[site, order] = stamp
        group = "+".join(e.groups)
        head = (site, at, e.msg_id, group, e.source, e.number, e.class_id.epoch, time)
        done.append((*head, order, stamp, before))
    columns = {"site": text, "position": long, "msg_id": text, "group": text, "source": text, "source_seq": long}
    columns |= {"epoch": long, "delivered_at": pa.float64(), "order_class": text}
    _write(folder / "deliveries", columns | {"stamp": pa.binary(), "prev_stamp": pa.binary()}, done)


def write_table(table: Any, path: Path, row_group_size: int | None = None) -> None:
    """Write one Parquet file of a run directory.

    Dictionaries for the names that repeat, differences for what is counted, LZ4, and no column that may be null but
    `prev_stamp`: read in half the time of Parquet's defaults, and smaller.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = [
        pa.field(name, column.type, nullable=name == "prev_stamp" or column.null_count > 0)
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    table = pa.table(table.columns, schema=pa.schema(fields))
    names = [name for name in table.column_names if name in REPEATED]
    counts = {name: "DELTA_BINARY_PACKED" for name in table.column_names if name in COUNTED}
    pq.write_table(
        table, path, compression="lz4", use_dictionary=names or False, column_encoding=counts or None,
        row_group_size=row_group_size,
    )  # fmt: skip


def _write(folder: Path, columns: Mapping[str, object], rows: Sequence[tuple[object, ...]]) -> None:
    import pyarrow as pa

    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.parquet"):
        old.unlink()
    arrays = [pa.array([row[index] for row in rows], type=kind) for index, kind in enumerate(columns.values())]
    write_table(pa.table(arrays, names=list(columns)), folder / "part-0.parquet")
