"""Follows a run in which groups change, by `verify.window.Window`: each log in order, whatever order files come in.

A log's positions are counted over `deliveries/` and `changes/` together, so the parts of one table need not meet.
"""

import time
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ordercast.audit.tails import DELIVERIES, SENDS, Held, Reader, Row, Tail
from ordercast.errors import InputError
from ordercast.names import GroupId, SiteId
from ordercast.runs import schema
from ordercast.verify.findings import Finding, Sent
from ordercast.verify.stays import Change
from ordercast.verify.window import Window
from ordercast.verify.window_state import WindowState, restore, snapshot

AHEAD_ROWS = 100_000  # that are read between two judgements
LISTS = ("members", "joined", "left", "away")


class MovingState(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a run in which groups change."""

    done: dict[str, int]
    at: dict[str, int]
    deliveries: int
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
        self._waiting: dict[str, dict[int, Row | tuple[SiteId, Change]]] = {}
        self._stuck: dict[str, float] = {}
        self._sends, self._changes, self._deliveries = (
            Tail(folder / name, self._reader.done, gaps=True) for name in ("sends", "changes", "deliveries")
        )
        self._known: set[Path] = set()
        self._new = False
        self._searched, self._took = time.monotonic(), 0.0

    @property
    def broken(self) -> dict[str, Finding]:
        """The first violation of each property."""
        return self.window.broken

    @property
    def under_way(self) -> int:
        """How many messages are not at all their members yet, or behind such a one."""
        return self.window.under_way

    def held(self) -> list[Held]:
        """Return what cannot be judged yet."""
        now = time.monotonic()
        found = [Held("", reason, now - since) for reason, since in self.window.waits.items()]
        for log, since in self._stuck.items():
            found.append(Held(log, f"position {self._at.get(log, 0)} of {log} is not there", now - since))
        return found

    def notes(self) -> list[str]:
        """Say what was not judged."""
        many, logs = self.window.not_judged, ", ".join(sorted(self.window.given_up | self.window.back))
        return [f"{many:,} deliveries of sites that were away ({logs}) were not judged: they came late"] if many else []

    def look(self, search_s: float) -> None:
        """Read what is new and judge it."""
        self._deliveries.look()  # what is there now was written after what is read next
        self._changes.look()
        self._founding()
        self._sends.look()
        for site in self._sends.sites():
            while (part := self._sends.take(site)) is not None:
                self._sent(part.path, part.first, part.last)
        while self._read():
            self._judge()
        now = time.monotonic()
        if self._new and now - self._searched >= max(search_s, self._took):
            self._judge()

    def _judge(self) -> None:
        begun = time.monotonic()
        self.window.judge()
        self._searched = time.monotonic()
        self._took, self._new = self._searched - begun, False

    # Reading.

    def _founding(self) -> None:
        """Read who was in which group when the cluster began, and which logs there are."""
        members: dict[GroupId, list[SiteId]] = {}
        for table, names in (("lives", ("site",)), ("membership", ("site", "group"))):
            paths = {path for path in (self.folder / table).glob("[!._]*.parquet") if path not in self._known}
            for path in sorted(paths):
                try:
                    rows = pq.ParquetFile(path).read(list(names)).to_pylist()
                except (pa.ArrowException, OSError, KeyError) as error:
                    raise InputError(f"{path}: {str(error).splitlines()[0]}") from None
                for row in rows:
                    if table == "lives":
                        self.window.began(row["site"])
                    else:
                        members.setdefault(row["group"], []).append(row["site"])
            self._known |= paths
        self.window.founded(members)

    def _sent(self, path: Path, first: int, last: int) -> None:
        post = "post" in pq.read_schema(path).names
        source = ""
        for msg_id, groups, source, number, body, *name in self._reader.rows(path, (*SENDS, "post")[: 5 + post]):
            self.window.sent(msg_id, Sent(groups, source, number, 0, body), name[0] if name else "")
        if source:
            self.window.written(source, first, last)

    def _read(self) -> bool:
        """Read on in every log; returns whether as much was read as is to be judged at once."""
        many, again = 0, True
        while again and many < AHEAD_ROWS:
            again = False
            for log in self._changes.sites():
                while (part := self._changes.take(log)) is not None:
                    self._changed(log, part.path)
            for log in sorted({*self._deliveries.sites(), *self._changes.sites()}):
                waiting = self._waiting.setdefault(log, {})
                part = None if self._at.get(log, 0) in waiting else self._deliveries.take(log)
                if part is not None:
                    rows = [Row(*row) for row in self._reader.rows(part.path, DELIVERIES)]
                    waiting.update((row.position, row) for row in rows)
                    many += len(rows)
                    again = True
                self._go_on(log, waiting)
        return many >= AHEAD_ROWS

    def _changed(self, log: str, path: Path) -> None:
        waiting = self._waiting.setdefault(log, {})
        for row in self._reader.rows(path, tuple(schema.CHANGES)):
            values: dict[str, Any] = {
                name: tuple(value) if name in LISTS else value for name, value in zip(schema.CHANGES, row, strict=True)
            }
            site = values.pop("site")
            waiting[values["position"]] = (site, Change(**values))

    def _go_on(self, log: str, waiting: dict[int, Row | tuple[SiteId, Change]]) -> None:
        """Give the window what comes next in a log."""
        at = self._at.get(log, 0)
        while (item := waiting.pop(at, None)) is not None:
            self._new = True
            at += 1
            if isinstance(item, Row):
                self.deliveries += 1
                self.newest = max(self.newest, item.delivered_at)
                self.window.delivered(item.told())
            else:
                self.window.changed(*item)
        self._at[log] = at
        if waiting:
            self._stuck.setdefault(log, time.monotonic())
        else:
            self._stuck.pop(log, None)

    # Keeping.

    def saved(self) -> MovingState:
        """Return what is known; what waits is read again."""
        done = dict(self._reader.done)
        for log, waiting in self._waiting.items():
            for table in ("deliveries", "changes"):
                if waiting:
                    done[f"{table}/{log}"] = min(done.get(f"{table}/{log}", 0), self._at.get(log, 0))
        return MovingState(done, self._at, self.deliveries, snapshot(self.window))

    def load(self, saved: msgspec.Raw) -> None:
        """Go on from what another one has saved."""
        state = msgspec.msgpack.decode(saved, type=MovingState)
        self._reader.done.update(state.done)
        self._at.update(state.at)
        self.deliveries = state.deliveries
        restore(self.window, state.window)
