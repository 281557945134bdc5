"""The run directory of a live site: Parquet parts, written while it runs, that Spark and `audit` can read.

A part is named after the site and the positions in it and appears whole. After a restart it goes on where the last part
ended: the history delivers again what was not exported.
"""

import os
import re
import time
from pathlib import Path
from typing import Any

from ordercast.core.configuration import Configuration
from ordercast.errors import InputError
from ordercast.live.inbox import Lot
from ordercast.names import GroupId, SiteId
from ordercast.runs.schema import write_table
from ordercast.wire import batch

ROWS_AT_MOST = 50_000
SECONDS = 2.0


class Export:
    """Collects what one site sends and delivers, and writes it in parts."""

    def __init__(self, folder: Path, site: SiteId, groups: Configuration) -> None:
        self.folder, self.site, self.groups = folder, site, groups
        self.next_position = self._begin("deliveries")
        self.next_send = self._begin("sends") or 1
        self.deliveries: list[tuple[Any, ...]] = []
        self.sends: list[tuple[Any, ...]] = []
        self.last: dict[int, bytes] = {}
        """The stamp of the last delivery of each order; a checkpoint keeps it."""
        rows = [(site, group) for group, sites in sorted(groups.members.items()) for site in sites]
        self._write("membership", "part-0", {"site": "string", "group": "string"}, rows)

    def _begin(self, table: str) -> int:
        """Return where the last part of this site ended."""
        name = re.compile(rf"{re.escape(self.site)}-\d+-(\d+)")
        found = (name.fullmatch(path.stem) for path in (self.folder / table).glob("*.parquet"))
        return max((int(match[1]) for match in found if match), default=-1) + 1

    def sent(self, first: int, many: int, groups: tuple[GroupId, ...], after: int) -> None:
        """A batch was sent, after so many deliveries here."""
        group, now = "+".join(groups), time.time()
        for number in range(max(first, self.next_send), first + many):
            self.sends.append((f"{self.site}:{number}", group, self.site, number, now, after))
        self.next_send = max(self.next_send, first + many)

    def delivered(self, lot: Lot) -> None:
        """A batch was delivered; what was exported before a restart is not exported again."""
        order = self.groups.order_of(lot.groups)
        name, group, now = self.groups.orders[order][0], "+".join(lot.groups), time.time()
        for index in range(batch.count(lot.body)):
            stamp = lot.stamp + index.to_bytes(4, "big")
            before = self.last.get(order)
            self.last[order] = stamp
            position, number = lot.position + index, lot.first + index
            if position >= self.next_position:
                head = (self.site, position, f"{lot.source}:{number}", group, lot.source, number)
                self.deliveries.append((*head, self.groups.epoch, now, name, stamp, before))
                self.next_position = position + 1

    @property
    def full(self) -> bool:
        """Whether a part should be written now."""
        return len(self.deliveries) + len(self.sends) >= ROWS_AT_MOST

    def take(self) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
        """Return what was collected, and begin anew."""
        taken = (self.deliveries, self.sends)
        self.deliveries, self.sends = [], []
        return taken

    def write(self, taken: tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]) -> None:
        """Write parts; may run in another thread."""
        deliveries, sends = taken
        sent = {"msg_id": "string", "group": "string", "source": "string", "source_seq": "int64"}
        if sends:
            self._write(
                "sends",
                f"{self.site}-{sends[0][3]}-{sends[-1][3]}",
                sent | {"sent_at": "float64", "after": "int64"},
                sends,
            )
        if deliveries:
            columns = {"site": "string", "position": "int64", **sent, "epoch": "int64", "delivered_at": "float64"}
            columns |= {"order_class": "string", "stamp": "binary", "prev_stamp": "binary"}
            name = f"{self.site}-{deliveries[0][1]}-{deliveries[-1][1]}"
            self._write("deliveries", name, columns, deliveries)

    def _write(self, table: str, name: str, columns: dict[str, str], rows: list[tuple[Any, ...]]) -> None:
        import pyarrow as pa

        kinds = {"string": pa.string(), "int64": pa.int64(), "float64": pa.float64(), "binary": pa.binary()}
        arrays = [pa.array(column, type=kinds[kind]) for column, kind in zip(zip(*rows, strict=True), columns.values(), strict=True)]  # fmt: skip # noqa: E501
        path = self.folder / table / f"{name}.parquet"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            new = path.with_suffix(f".{os.getpid()}.tmp")
            write_table(pa.table(arrays, names=list(columns)), new)
            new.replace(path)
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from None
