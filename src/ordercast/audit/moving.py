"""Follows a run in which groups change, by `verify.window.Window`: each log in order, whatever order files come in.

A log's positions are counted over `deliveries/` and `changes/` together, so the parts of one table need not meet.
"""

import time
from pathlib import Path

import msgspec

from ordercast.audit.changing import as_change, check_log_name
from ordercast.audit.tails import Held, Part, Reader, Row, Tail
from ordercast.errors import InputError
from ordercast.names import GroupId, SiteId
from ordercast.runs import schema
from ordercast.runs.reader import read_part
from ordercast.verify.findings import Finding, Sent
from ordercast.verify.numbers import Numbers
from ordercast.verify.stays import LIFE, Change
from ordercast.verify.window import Window
from ordercast.verify.window_state import WindowState, restore, snapshot

AHEAD_ROWS = 100_000  # that are read between two judgements
Told = Row | tuple[SiteId, Change]


class MovingState(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a run in which groups change."""

    sends: dict[str, list[tuple[int, int]]]
    at: dict[str, int]
    deliveries: int
    waits: dict[str, float]
    window: WindowState


class Moving:
    """One per run."""

    def __init__(self, folder: Path, promises: frozenset[str]) -> None:
        self.folder = folder
        self.deliveries, self.newest = 0, 0.0
        self.window = Window(promises)
        self._reader = Reader()
        self._at: dict[str, int] = {}
        """The next position of each log, by the name in its files."""
        self._waiting: dict[str, dict[int, Told]] = {}
        self._read_sends: dict[str, Numbers] = {}
        """The numbers of the parts of sends/ that are read, by the name in the files."""
        self._stuck: dict[str, float] = {}
        self._sends, self._changes, self._deliveries, self._drops = (
            Tail(folder / name) for name in ("sends", "changes", "deliveries", "drops")
        )
        self._known: set[Path] = set()
        self._new = True
        self._searched, self._took = time.monotonic(), 0.0

    @property
    def broken(self) -> dict[str, Finding]:
        """The first violation of each property."""
        return self.window.broken

    @property
    def under_way(self) -> int:
        """How many messages are not at all their members yet, or behind such a one."""
        return self.window.under_way

    @property
    def stands(self) -> bool:
        """Whether it can judge on: not when a site has undone what was settled."""
        return not self.window.undone

    def held(self) -> list[Held]:
        """Return what cannot be judged yet."""
        now = time.time()
        found = [Held("", reason, now - since) for reason, since in self.window.waits.items()]
        return found + [Held("", reason, now - since) for reason, since in self._stuck.items()]

    def notes(self) -> list[str]:
        """Say what was not judged."""
        return self.window.notes()

    def look(self, search_s: float) -> None:
        """Read what is new and judge it: every `search_s`, or as long as it takes, or at once when that is 0."""
        for tail in (self._deliveries, self._changes):  # what is there now was written after what is read next
            tail.look()
        self._founding()
        for tail in (self._sends, self._drops):
            tail.look()
        for writer in self._sends.writers():
            for part in self._sends.take_all(writer):
                self._sent(writer, part)
        for writer in self._drops.writers():
            for part in self._drops.take_all(writer):
                for row in self._reader.rows(part):
                    self.window.dropped(row["msg_id"])
        while self._read():
            self._judge()
        self._look_for_gaps()
        pause = max(search_s, self._took) if search_s else 0.0
        if self._new and time.monotonic() - self._searched >= pause:
            self._judge()

    def _judge(self) -> None:
        begun = time.monotonic()
        self.window.judge(time.time())
        self._searched = time.monotonic()
        self._took, self._new = self._searched - begun, False

    # Reading.

    def _founding(self) -> None:
        """Read who was in which group when the cluster began, and which logs there are."""
        members: dict[GroupId, list[SiteId]] = {}
        for table, columns in (("membership", schema.MEMBERSHIP), ("lives", schema.LIVES)):
            paths = {path for path in (self.folder / table).glob("[!._]*.parquet") if path not in self._known}
            for path in sorted(paths):
                for row in read_part(str(path), columns, {})[0].to_pylist():
                    site = str(row["site"])
                    check_log_name(str(path), site)
                    if table == "lives":
                        self.window.began(site)
                    else:
                        members.setdefault(str(row["group"]), []).append(site)
            self._known |= paths
            self._new |= bool(paths)
        self.window.founded(members)

    def _sent(self, writer: str, part: Part) -> None:
        read = self._read_sends.setdefault(writer, Numbers())
        if part.first in read and part.last in read:
            return
        source = ""
        for row in self._reader.rows(part):
            source = row["source"]
            sent = Sent(row["group"], source, row["source_seq"], 0, row.get("body_hash"))
            self.window.sent(row["msg_id"], sent, row.get("post", ""))
        self._new = True
        read.add(part.first, part.last)
        self.window.written(source, part.first, part.last)

    def _read(self) -> bool:
        """Read on in every log; returns whether as much was read as is to be judged at once."""
        many, again = 0, True
        while again and many < AHEAD_ROWS:
            again = False
            for log in sorted({*self._deliveries.writers(), *self._changes.writers()}):
                waiting, at = self._waiting.setdefault(log, {}), self._at.get(log, 0)
                if (part := self._changes.take(log, at)) is not None:
                    self._changed(waiting, at, part)
                    again = True
                if (part := self._deliveries.take(log, at)) is not None:
                    rows = self._reader.deliveries(part)
                    for row in rows:
                        check_log_name(str(part.path), row.site)
                        self._wait(waiting, at, row.position, row, part)
                    many += len(rows)
                    again = True
                again |= self._go_on(log, waiting)
        return many >= AHEAD_ROWS

    def _wait(self, waiting: dict[int, Told], at: int, position: int, told: Told, part: Part) -> None:
        if position in waiting:
            raise InputError(f"{part.path}: position {position} is there twice")
        if position >= at:
            waiting[position] = told

    def _changed(self, waiting: dict[int, Told], at: int, part: Part) -> None:
        for row in self._reader.rows(part):
            check_log_name(str(part.path), row["site"])
            site, change = as_change(str(part.path), row)
            self._wait(waiting, at, change.position, (site, change), part)

    def _go_on(self, log: str, waiting: dict[int, Told]) -> bool:
        """Give the window what comes next in a log; that a founder was in its groups is to be known before."""
        at = begun = self._at.get(log, 0)
        while (item := waiting.get(at)) is not None and self._may(item):
            del waiting[at]
            self._new = True
            at += 1
            if isinstance(item, Row):
                self.deliveries += 1
                self.newest = max(self.newest, item.delivered_at)
                self.window.delivered(item.told())
            else:
                self.window.changed(*item)
        self._at[log] = at
        return at > begun

    def _may(self, item: Told) -> bool:
        site = item.site if isinstance(item, Row) else item[0]
        return LIFE in site or site in self.window.founders

    def _look_for_gaps(self) -> None:
        """Say where logs do not go on."""
        stuck = set[str]()
        for log in sorted({*self._deliveries.writers(), *self._changes.writers()}):
            at, waiting = self._at.get(log, 0), self._waiting.get(log, {})
            if at in waiting:
                stuck.add(f"who was in which group when {log} began is not there")
            elif waiting or self._deliveries.next(log) or self._changes.next(log):
                stuck.add(f"position {at} of {log} is not there")
        self._stuck = {reason: self._stuck.get(reason, time.time()) for reason in sorted(stuck)}

    # Keeping.

    def saved(self) -> MovingState:
        """Return what is known; what waits is read again."""
        sends = {writer: numbers.parts for writer, numbers in self._read_sends.items()}
        return MovingState(
            sends, self._at, self.deliveries, {**self.window.waits, **self._stuck}, snapshot(self.window)
        )

    def load(self, saved: msgspec.Raw) -> None:
        """Go on from what another one has saved."""
        state = msgspec.msgpack.decode(saved, type=MovingState)
        self._read_sends = {writer: Numbers(parts) for writer, parts in state.sends.items()}
        self._at.update(state.at)
        self.deliveries = state.deliveries
        self._stuck = self.window.waits = dict(state.waits)
        restore(self.window, state.window)
