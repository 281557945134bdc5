"""The audit of a run that goes on: what live sites export is judged as it comes, and never read twice.

The judge is the simulator's (`verify.online.Watch`): its memory is bounded by what is under way. It wants things in the
order in which they happen, and files come in any order: a site's deliveries wait until the sends of their sources are
there, and a site's own until the part before them is. What waits is said, with the reason and since when.
"""

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ordercast.errors import InputError
from ordercast.names import GroupId, SiteId
from ordercast.runs.reader import has_table, read_members
from ordercast.verify import findings
from ordercast.verify.deliveries import JUDGES
from ordercast.verify.findings import Delivery, Finding, Sent
from ordercast.verify.online import Watch
from ordercast.verify.online_state import WatchState, restore, snapshot

FORMAT = 1
LEVELS = {"fifo": ("fifo",), "total": ("fifo", "total"), "acyclic": ("fifo", "total", "acyclic")}
PROPERTIES = ("creation", "duplicate", "completeness", "body", "fifo", "epochs", "stamps", "total", "acyclic")
SENDS = ("msg_id", "group", "source", "source_seq", "body_hash")
DELIVERIES = (
    "msg_id", "group", "source", "source_seq", "site", "position", "epoch", "order_class", "stamp", "prev_stamp",
    "delivered_at", "body_hash",
)  # fmt: skip
AHEAD_ROWS = 200_000  # of one table that are read at once
UNDER_WAY_AT_MOST = 5_000_000
SEARCH_S = 2.0  # between two searches for cycles among what is not retired
SAVE_S = 10.0
LATE_S = 10.0  # what waits for longer is told


class Row(NamedTuple):
    """A delivery as a site's log tells it."""

    msg_id: str
    groups: tuple[GroupId, ...]
    source: SiteId
    number: int
    site: SiteId
    position: int
    epoch: int
    order_class: str
    stamp: bytes
    prev_stamp: bytes | None
    delivered_at: float
    body: int

    def told(self) -> Delivery:
        """Return it as evidence."""
        return Delivery(self.site, self.position, self.msg_id, self.groups, self.source, self.number, self.epoch)


class Held(NamedTuple):
    """What cannot be judged yet."""

    site: SiteId
    reason: str
    seconds: float


class Saved(msgspec.Struct, frozen=True, array_like=True):
    """What a follower knows, for its next life."""

    format: int
    level: str
    next: dict[str, int]
    deliveries: int
    epochs: dict[SiteId, tuple[int, str]]
    watch: WatchState


class Tail:
    """The parts of one table, in the order of each writer: `SITE-first-last.parquet`."""

    def __init__(self, folder: Path, first: int, next_of: Callable[[SiteId], int]) -> None:
        self.folder, self._first, self._next_of = folder, first, next_of
        self._seen: set[str] = set()
        self._parts: dict[SiteId, list[tuple[int, int, Path]]] = {}
        self.gaps: dict[SiteId, tuple[str, float]] = {}

    def look(self) -> None:
        """Find new parts."""
        try:
            names = {entry.name for entry in os.scandir(self.folder)}
        except FileNotFoundError:
            return
        for name in names - self._seen:
            self._seen.add(name)
            site, _, rest = name.removesuffix(".parquet").rpartition("-")
            site, _, first = site.rpartition("-")
            if name.startswith((".", "_")) or not name.endswith(".parquet"):
                continue
            if not (site and first.isdecimal() and rest.isdecimal()):
                raise InputError(
                    f"{self.folder / name}: not a part that a live site writes; a whole run is judged once"
                )
            self._parts.setdefault(site, []).append((int(first), int(rest), self.folder / name))
            self._parts[site].sort()

    def take(self, site: SiteId) -> Path | None:
        """Return the part of a site that comes next, if it is there."""
        parts = self._parts.get(site, [])
        after = max(self._first, self._next_of(site))
        while parts and parts[0][1] < after:
            parts.pop(0)
        if parts and parts[0][0] <= after:
            self.gaps.pop(site, None)
            return parts.pop(0)[2]
        if parts:
            reason = f"{self.folder.name}/ of {site} from {after} to {parts[0][0] - 1} are not there"
            self.gaps[site] = (reason, self.gaps.get(site, (reason, time.monotonic()))[1])
        return None

    def sites(self) -> list[SiteId]:
        """Return whose parts there are."""
        return sorted(self._parts)


class Follower:
    """Follows a run directory. Call `look` again and again; it returns the violations that it has found since."""

    search_s = SEARCH_S

    def __init__(self, folder: Path, level: str = "acyclic", state: Path | None = None) -> None:
        """`state`: a file to go on from, and to keep what is known in; raises InputError when it is of another run."""
        if level not in LEVELS:
            raise InputError(
                f"--follow judges the levels {', '.join(LEVELS)}, not {level}: causal order is judged whole"
            )
        if has_table(str(folder), "lives"):
            raise InputError(f"{folder}: groups change in this run; it is judged whole, now and then: audit --running")
        self.folder, self.level, self._file = folder, level, state
        self.deliveries = 0
        self.newest = 0.0  # when the last delivery that is judged was delivered
        self.broken: dict[str, Finding] = {}
        self._next: Counter[str] = Counter()  # of sends/SITE and deliveries/SITE
        self._epochs: dict[SiteId, tuple[int, str]] = {}
        self._waiting: dict[SiteId, deque[Row]] = {}
        self._since: dict[SiteId, float] = {}
        self._groups: dict[str, tuple[GroupId, ...]] = {}
        self._searched = self._saved = time.monotonic()
        self._watch: Watch | None = None
        self._tails = {
            "sends": Tail(folder / "sends", 1, lambda site: self._next[f"sends/{site}"]),
            "deliveries": Tail(folder / "deliveries", 0, lambda site: self._next[f"deliveries/{site}"]),
        }

    @property
    def under_way(self) -> int:
        """How many messages are not at all their members yet, or behind such a one."""
        return self._watch.under_way if self._watch is not None else 0

    def held(self) -> list[Held]:
        """Return what cannot be judged yet, why, and for how long."""
        now = time.monotonic()
        found = [
            Held(site, why, now - since) for tail in self._tails.values() for site, (why, since) in tail.gaps.items()
        ]
        for site, rows in self._waiting.items():
            if rows:
                row = rows[0]
                why = f"{row.msg_id} at position {row.position} waits for what {row.source} has sent"
                found.append(Held(site, why, now - self._since.get(site, now)))
        return sorted(found, key=lambda held: -held.seconds)

    def look(self) -> list[Finding]:
        """Read what is new and judge it; returns the first violation of each property that is new."""
        if self._watch is None and not self._begin():
            return []
        assert self._watch is not None
        known = set(self.broken)
        for tail in self._tails.values():
            tail.look()
        for row in self._rows("sends"):
            self._send(row)
        sites = self._tails["deliveries"].sites()
        read = 1
        while read:
            read = sum(self._read(site) for site in sites)
            while sum(self._deliver(site) for site in sites):
                pass
        self._search()
        if self._watch.under_way > UNDER_WAY_AT_MOST:
            raise InputError(f"{self.folder}: {self._watch.under_way:,} messages are not everywhere: a member is gone")
        for name, finding in self._watch.broken.items():
            self.broken.setdefault(name, finding)
        if self._file is not None and time.monotonic() - self._saved > SAVE_S:
            self.save()
        return [self.broken[name] for name in PROPERTIES if name in self.broken and name not in known]

    def _begin(self) -> bool:
        members = read_members(str(self.folder), texts=True, may_be_empty=True)
        if members:
            self._watch = Watch(members, frozenset(LEVELS[self.level]))
            self._load(self._watch)
        return bool(members)

    # Reading.

    def _rows(self, table: str) -> Iterator[Any]:
        tail = self._tails[table]
        for site in tail.sites():
            while (path := tail.take(site)) is not None:
                yield from self._part(path, table)

    def _part(self, path: Path, table: str) -> Iterator[Any]:
        """Yield the rows of a part that were not read before; what is no part is refused by name."""
        names = SENDS if table == "sends" else DELIVERIES
        try:
            found = pq.ParquetFile(path).read(list(names))
            columns = [found.column(name).to_pylist() for name in names]
        except (pa.ArrowException, OSError, KeyError) as error:
            raise InputError(f"{path}: {str(error).splitlines()[0]}") from None
        by = "source_seq" if table == "sends" else "position"
        numbers, site = columns[names.index(by)], path.stem.rpartition("-")[0].rpartition("-")[0]
        key, groups = f"{table}/{site}", columns[1]
        columns[1] = [self._groups.get(text) or self._named(text) for text in groups]
        skip = sum(number < self._next[key] for number in numbers)
        self._next[key] = max(self._next[key], numbers[-1] + 1) if numbers else self._next[key]
        yield from islice(zip(*columns, strict=True), skip, None)

    def _named(self, text: str) -> tuple[GroupId, ...]:
        found = self._groups[text] = tuple(sorted(set(text.split("+"))))
        return found

    def _read(self, site: SiteId) -> bool:
        """Read the next part of a site's log, unless enough of it waits; returns whether there was one."""
        waiting = self._waiting.setdefault(site, deque())
        if len(waiting) >= AHEAD_ROWS:
            return False
        path = self._tails["deliveries"].take(site)
        if path is None:
            return False
        waiting.extend(map(Row._make, self._part(path, "deliveries")))
        return True

    # Judging.

    def _send(self, row: Any) -> None:
        assert self._watch is not None
        msg_id, groups, source, number, body = row
        unknown = [group for group in groups if group not in self._watch.members]
        if unknown:
            self._watch.note(findings.nowhere(msg_id, Sent(groups, source, number), unknown[0]))
        else:
            self._watch.sent(source, number, groups, body)

    def _deliver(self, site: SiteId) -> int:
        """Judge what a site has delivered, as far as the sends are known; returns how much that was."""
        watch, waiting, many = self._watch, self._waiting.setdefault(site, deque()), 0
        assert watch is not None
        while waiting and waiting[0].number <= watch.last_sent(waiting[0].source):
            row = waiting.popleft()
            many += 1
            self._judge(watch, row)
            self.newest = max(self.newest, row.delivered_at)
        self.deliveries += many
        if many or not waiting:
            self._since.pop(site, None)
        if waiting:
            self._since.setdefault(site, time.monotonic())
        return many

    def _judge(self, watch: Watch, row: Row) -> None:
        sent_to = watch.sent_to(row.source, row.number)
        if row.msg_id != f"{row.source}:{row.number}" or (sent_to is not None and sent_to != row.groups):
            sent = Sent(sent_to or row.groups, row.source, row.number)
            watch.note(findings.otherwise(row.told(), sent))
        epoch, before = self._epochs.get(row.site, (0, ""))
        if row.epoch < epoch:
            watch.note(findings.epoch_fell(row.told()._replace(msg_id=before, epoch=epoch), row.told()))
        self._epochs[row.site] = (row.epoch, row.msg_id)
        last = watch.last_of(row.site, row.order_class)
        if last is not None and row.prev_stamp != last.stamp:
            watch.note(findings.not_previous(last, row.told()))
        watch.delivered(row.site, row.source, row.number, row.order_class, row.stamp, row.body)

    def _search(self) -> None:
        """Search what is not retired for cycles, and for what a site has passed over: both are never retired."""
        watch, now = self._watch, time.monotonic()
        assert watch is not None
        if now - self._searched < self.search_s or not watch.under_way:
            return
        watch.look_for_losses()
        record = watch.remains()
        for name in ("total", "acyclic"):
            if name in watch.promises and name not in watch.broken:
                finding = JUDGES[name](record)
                if finding is not None:
                    watch.note(finding)
        self._searched = time.monotonic()

    # Keeping.

    def save(self) -> None:
        """Keep what is known: whoever begins from it judges on."""
        if self._file is None or self._watch is None:
            return
        waits = {f"deliveries/{site}": rows[0].position for site, rows in self._waiting.items() if rows}
        saved = Saved(FORMAT, self.level, {**self._next, **waits}, self.deliveries, self._epochs, snapshot(self._watch))
        new = self._file.with_name(f".{self._file.name}.{os.getpid()}.tmp")
        try:
            new.write_bytes(msgspec.msgpack.encode(saved))
            new.replace(self._file)
        except OSError as error:
            raise InputError(f"{self._file}: {error.strerror}") from None
        self._saved = time.monotonic()

    def _load(self, watch: Watch) -> None:
        if self._file is None or not self._file.exists():
            return
        try:
            saved = msgspec.msgpack.decode(self._file.read_bytes(), type=Saved)
        except (OSError, msgspec.MsgspecError) as error:
            raise InputError(f"{self._file}: not what --follow keeps: {error}") from None
        if (saved.format, saved.level) != (FORMAT, self.level):
            raise InputError(f"{self._file}: is of level {saved.level}, format {saved.format}; begin anew without it")
        self._next.update(saved.next)
        self.deliveries = saved.deliveries
        self._epochs.update(saved.epochs)
        restore(watch, saved.watch)
        self.broken.update(watch.broken)
