"""Run directories are written here: whole ones by `simulate`, parts of a growing one by each live site.

A part is named after its site and the positions in it, and appears whole. After a restart a site goes on where its
last part ended: its history delivers again what was not exported.
"""

import hashlib
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ordercast.errors import InputError
from ordercast.names import GroupId, SiteId
from ordercast.runs import schema

ROWS_AT_MOST, BYTES_AT_MOST = 50_000, 32 * 2**20  # that a writer holds before it asks to write them
Members = Mapping[GroupId, Sequence[SiteId]]
Values = Mapping[str, Any]
"""The columns of some rows, by name."""


class SentRow(NamedTuple):
    """A message as its source sent it."""

    msg_id: str
    groups: tuple[GroupId, ...]
    source: SiteId
    number: int
    sent_at: float
    after: int
    """How many messages the source had delivered by then."""
    body: bytes


class DeliveredRow(NamedTuple):
    """A message as a site delivered it; a site's rows come in the order of its log."""

    site: SiteId
    msg_id: str
    groups: tuple[GroupId, ...]
    source: SiteId
    number: int
    epoch: int
    delivered_at: float
    order_class: str
    stamp: bytes
    body: bytes


def body_hashes(bodies: Iterable[bytes]) -> Any:
    """Return a 64-bit BLAKE2b of each body, as signed numbers: the same in every process and version.

    Not two CRCs: of equally long bodies, CRCs with different starts differ by a constant and are worth one.
    """
    import numpy as np

    blake2b = hashlib.blake2b
    return np.frombuffer(b"".join([blake2b(body, digest_size=8).digest() for body in bodies]), "<i8")


def body_hash(body: bytes) -> int:
    """Return the hash of one body, the same as `body_hashes` gives."""
    return int.from_bytes(hashlib.blake2b(body, digest_size=8).digest(), "little", signed=True)


def message_stamp(stamp: bytes, index: int) -> bytes:
    """Return the stamp of a message: that of its batch, then its place in the batch."""
    return stamp + index.to_bytes(4, "big")


def write_table(table: Any, path: Path, row_group_size: int | None = None, *, derived: bool = False) -> None:
    """Write one Parquet file of a run directory; `derived`: nobody recorded its rows, other tables tell them.

    Dictionaries for the names that repeat, differences for what is counted, LZ4, and no column that may be null but
    `prev_stamp`: read in half the time of Parquet's defaults, and smaller.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    fields = [
        pa.field(name, column.type, nullable=name in schema.MAY_BE_NULL or column.null_count > 0)
        for name, column in zip(table.column_names, table.columns, strict=True)
    ]
    said = {schema.VERSION_KEY: schema.VERSION} | ({schema.DERIVED_KEY: schema.DERIVED} if derived else {})
    table = pa.table(table.columns, schema=pa.schema(fields, said))
    names = [name for name in table.column_names if name in schema.REPEATED]
    counts = {name: "DELTA_BINARY_PACKED" for name in table.column_names if name in schema.COUNTED}
    pq.write_table(
        table, path, compression="lz4", use_dictionary=names or False, column_encoding=counts or None,
        row_group_size=row_group_size,
    )  # fmt: skip


def write_run(folder: Path, members: Members, sends: Iterable[SentRow], deliveries: Iterable[DeliveredRow]) -> None:
    """Write a whole run; what stood in the folder before is replaced."""
    last: dict[tuple[SiteId, str], bytes] = {}
    log: dict[SiteId, int] = {}
    positions, previous, delivered = [], [], list(deliveries)
    for row in delivered:
        positions.append(log.get(row.site, 0))
        log[row.site] = positions[-1] + 1
        previous.append(last.get((row.site, row.order_class)))
        last[row.site, row.order_class] = row.stamp
    told = _told(DeliveredRow, delivered) | {"position": positions, "prev_stamp": previous}
    for table, values in (
        ("membership", _membership(members)),
        ("sends", _told(SentRow, list(sends))),
        ("deliveries", told),
    ):
        for old in (folder / table).glob("*.parquet"):
            old.unlink()
        _write(folder, table, "part-0", values)


def _told(kind: Any, rows: Sequence[Any]) -> dict[str, Any]:
    """Return rows as the columns of their table."""
    values = dict(zip(kind._fields, zip(*rows, strict=True) if rows else [()] * len(kind._fields), strict=True))
    values["group"] = ["+".join(groups) for groups in values.pop("groups")]
    values["source_seq"] = values.pop("number")
    values["body_hash"] = body_hashes(values.pop("body"))
    return values


def _membership(members: Members) -> Values:
    rows = [(site, group) for group, sites in sorted(members.items()) for site in sites]
    return {"site": [site for site, _ in rows], "group": [group for _, group in rows]}


def _write(folder: Path, table: str, name: str, values: Values) -> None:
    """Write a file of a table under another name and rename it: readers see all of it or nothing."""
    import pyarrow as pa

    kinds = {
        schema.WHOLE: pa.int64(), schema.NUMBER: pa.float64(), schema.BINARY: pa.binary(),
        schema.NAMES: pa.list_(pa.string()),
    }  # fmt: skip
    written = schema.WRITTEN[table].items()
    columns = {column: kind for column, kind in written if column in values or column not in schema.CHANGING_ONLY}
    arrays = [pa.array(values[column], kinds.get(kind, pa.string())) for column, kind in columns.items()]
    path = folder / table / f"{name}.parquet"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{name}.{os.getpid()}.tmp")  # hidden: who reads the folder passes over what a kill left
        write_table(pa.table(arrays, names=list(columns)), new)
        _sync(new)  # a site keeps a checkpoint behind it, and does not tell again what was before
        new.replace(path)
        _sync(path.parent)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None


def _sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


class _SentBatch(NamedTuple):
    first: int
    """The number of the first message that is to be written; `skip` come before it in the body."""
    skip: int
    group: str
    sent_at: float
    after: int
    body: bytes
    post: str | None


class _DeliveredBatch(NamedTuple):
    position: int
    first: int
    skip: int
    group: str
    source: SiteId
    epoch: int
    delivered_at: float
    order_class: str
    stamp: bytes
    before: bytes | None
    """The stamp of the delivery before the batch, of the same class."""
    body: bytes


class Part(NamedTuple):
    """What a writer has collected and not yet written."""

    deliveries: list[_DeliveredBatch]
    sends: list[_SentBatch]
    changes: list[Values]
    drops: list[int]


class RunWriter:
    """One live site's share of a run directory, written in parts.

    `sent` and `delivered` cost a few steps per batch and belong on the site's loop; `write` unpacks, hashes and writes,
    and may run in another thread, one part after the other in the order they were taken.
    """

    def __init__(
        self, folder: Path, site: SiteId, unpack: Callable[[bytes], Sequence[bytes]], life: int | None = None
    ) -> None:
        """`unpack` returns the messages of a batch; what is already in the folder is not written again.

        `life`: the incarnation, where a site that loses its disk begins anew; its files carry it in their names.
        """
        self.folder, self.site = folder, site
        self._files = site if life is None else f"{site}@{life}"
        self._alone = life is not None  # what was before a message may have been undone: nothing is said of that
        self.next_position = self._end("deliveries")
        self.next_send = self._end("sends") or 1
        self.next_change = self._end("changes")
        self._unpack = unpack
        self._rows = self._bytes = 0
        self._part = Part([], [], [], [])

    def members(self, members: Members) -> None:
        """Write who is in which group; where groups change, who was when the cluster began."""
        _write(self.folder, "membership", "part-0" if self._files == self.site else self._files, _membership(members))

    def lives(self) -> None:
        """Write that this site has a life of that name."""
        _write(self.folder, "lives", self._files, {"site": [self.site]})

    def _end(self, table: str) -> int:
        """Return the position (the number) after the last one that this site has written."""
        name = re.compile(rf"{re.escape(self._files)}-\d+-(\d+)")
        found = (name.fullmatch(path.stem) for path in (self.folder / table).glob("*.parquet"))
        return max((int(match[1]) for match in found if match), default=-1) + 1

    def sent(
        self, first: int, many: int, groups: Sequence[GroupId], after: int, body: bytes, post: str | None = None
    ) -> None:
        """Note a batch that was sent: the numbers of its messages, and how many this site had delivered by then.

        `post`: what its client calls it, empty without a name; posted again elsewhere it has the same.
        """
        skip = max(0, self.next_send - first)
        if skip < many:
            batch = _SentBatch(first + skip, skip, "+".join(groups), time.time(), after, body, post)
            self._part.sends.append(batch)
            self._grow(many - skip, body)
            self.next_send = first + many

    def delivered(
        self, position: int, first: int, many: int, groups: Sequence[GroupId], source: SiteId, epoch: int,
        order_class: str, stamp: bytes, before: bytes | None, body: bytes,
    ) -> None:  # fmt: skip
        """Note a batch that was delivered, `before` being the stamp before it in its order.

        Messages written before a restart are left out.
        """
        skip = max(0, self.next_position - position)
        if skip < many:
            before = message_stamp(stamp, skip - 1) if skip else before
            batch = _DeliveredBatch(
                position + skip, first + skip, skip, "+".join(groups), source, epoch, time.time(), order_class, stamp,
                before, body,
            )  # fmt: skip
            self._part.deliveries.append(batch)
            self._grow(many - skip, body)
            self.next_position = position + many

    def changed(self, position: int, **values: Any) -> None:
        """Note what this site says in its log beside deliveries."""
        if position >= self.next_change:
            empty = dict.fromkeys(("members", "joined", "left", "away"), ()) | {"group": "", "undone_from": -1}
            self._part.changes.append({**empty, "site": self.site, "position": position, **values})
            self._rows += 1
            self.next_change = position + 1

    def dropped(self, numbers: Iterable[int]) -> None:
        """Note messages that were taken and will not be sent."""
        self._part.drops.extend(numbers)

    def _grow(self, rows: int, body: bytes) -> None:
        self._rows += rows
        self._bytes += len(body)

    @property
    def full(self) -> bool:
        """Whether a part should be written now."""
        return self._rows >= ROWS_AT_MOST or self._bytes >= BYTES_AT_MOST

    def take(self) -> Part:
        """Return what was collected, and begin anew."""
        taken, self._part = self._part, Part([], [], [], [])
        self._rows = self._bytes = 0
        return taken

    def write(self, part: Part) -> None:
        """Write a part, in this thread; raises InputError when the folder cannot be written."""
        if part.sends:
            self._write_numbered("sends", "source_seq", self._sends(part.sends))
        if part.deliveries:
            self._write_numbered("deliveries", "position", self._deliveries(part.deliveries))
        if part.changes:
            rows = {name: [row[name] for row in part.changes] for name in schema.CHANGES}
            self._write_numbered("changes", "position", rows)
        if part.drops:
            drops = sorted(part.drops)
            names = {"msg_id": [f"{self.site}:{number}" for number in drops], "source": [self.site] * len(drops)}
            self._write_numbered("drops", "source_seq", {**names, "source_seq": drops})

    def _write_numbered(self, table: str, by: str, values: Values) -> None:
        _write(self.folder, table, f"{self._files}-{values[by][0]}-{values[by][-1]}", values)

    def _sends(self, batches: Iterable[_SentBatch]) -> Values:
        found: dict[str, list[Any]] = {name: [] for name in schema.WRITTEN["sends"]}
        for batch in batches:
            bodies = self._unpack(batch.body)[batch.skip :]
            many, numbers = len(bodies), range(batch.first, batch.first + len(bodies))
            found["msg_id"] += [f"{self.site}:{number}" for number in numbers]
            found["source_seq"] += numbers
            found["body_hash"] += body_hashes(bodies).tolist()
            same = {"group": batch.group, "source": self.site, "sent_at": batch.sent_at, "after": batch.after}
            for name, value in same.items():
                found[name] += [value] * many
            if batch.post is not None:
                skipped = range(batch.skip, batch.skip + many)
                found["post"] += [f"{batch.post}.{index}" if batch.post else "" for index in skipped]
        if not found["post"]:
            del found["post"]
        return found

    def _deliveries(self, batches: Iterable[_DeliveredBatch]) -> Values:
        found: dict[str, list[Any]] = {name: [] for name in schema.WRITTEN["deliveries"]}
        for batch in batches:
            bodies = self._unpack(batch.body)[batch.skip :]
            many, numbers = len(bodies), range(batch.first, batch.first + len(bodies))
            stamps = [message_stamp(batch.stamp, batch.skip + index) for index in range(many)]
            found["position"] += range(batch.position, batch.position + many)
            found["msg_id"] += [f"{batch.source}:{number}" for number in numbers]
            found["source_seq"] += numbers
            found["stamp"] += stamps
            found["prev_stamp"] += [batch.before, *stamps[:-1]] if not self._alone else [None] * many
            found["body_hash"] += body_hashes(bodies).tolist()
            for name in ("group", "source", "epoch", "delivered_at", "order_class"):
                found[name] += [getattr(batch, name)] * many
            found["site"] += [self.site] * many
        return found
