"""Follows a run whose groups are fixed, by the simulator's judge (`verify.online.Watch`): it knows what is under way.

The judge wants things in the order in which they happen, and files come in any order: a site's deliveries wait until
the sends of their sources are there, and a site's own until the part before them is.
"""

import time
from collections import Counter, deque
from pathlib import Path
from typing import Any

import msgspec

from ordercast.audit.tails import Held, Part, Reader, Row, Tail
from ordercast.names import GroupId, SiteId
from ordercast.runs import schema
from ordercast.verify import findings
from ordercast.verify.deliveries import JUDGES
from ordercast.verify.findings import Finding, Sent
from ordercast.verify.online import Watch
from ordercast.verify.online_state import WatchState, restore, snapshot

AHEAD_ROWS = 200_000  # of one log that are read at once


class FixedState(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a run whose groups are fixed."""

    done: dict[str, int]
    deliveries: int
    epochs: dict[SiteId, tuple[int, str]]
    watch: WatchState


class Fixed:
    """One per run."""

    def __init__(self, folder: Path, promises: frozenset[str], members: dict[GroupId, list[SiteId]]) -> None:
        self.deliveries, self.newest = 0, 0.0
        self._watch = Watch(members, promises)
        self._reader = Reader()
        self._done: Counter[str] = Counter()
        """Up to where the rows of each site are read, by `TABLE/SITE`."""
        self._gaps: dict[str, float] = {}
        self._epochs: dict[SiteId, tuple[int, str]] = {}
        self._waiting: dict[SiteId, deque[Row]] = {}
        self._since: dict[SiteId, float] = {}
        self._searched = time.monotonic()
        self._sends, self._deliveries = Tail(folder / "sends"), Tail(folder / "deliveries")

    @property
    def broken(self) -> dict[str, Finding]:
        """The first violation of each property."""
        return self._watch.broken

    @property
    def under_way(self) -> int:
        """How many messages are not at all their members yet, or behind such a one."""
        return self._watch.under_way

    @property
    def stands(self) -> bool:
        """Whether it can judge on."""
        return True

    def held(self) -> list[Held]:
        """Return what cannot be judged yet."""
        now = time.monotonic()
        found = [Held("", f"{gap} are not there", now - since) for gap, since in self._gaps.items()]
        for site, rows in self._waiting.items():
            if rows:
                row = rows[0]
                why = f"{row.msg_id} at position {row.position} waits for what {row.source} has sent"
                found.append(Held(site, why, now - self._since.get(site, now)))
        return found

    def notes(self) -> list[str]:
        """Everything is judged."""
        return []

    def look(self, search_s: float) -> None:
        """Read what is new and judge it."""
        for tail in (self._sends, self._deliveries):
            tail.look()
        for site in self._sends.writers():
            while (part := self._take(self._sends, site)) is not None:
                for row in self._reader.rows(part)[self._skip("sends", site, part) :]:
                    self._send(row)
        sites = self._deliveries.writers()
        read = 1
        while read:
            read = sum(self._read(site) for site in sites)
            while sum(self._deliver(site) for site in sites):
                pass
        self._look_for_gaps()
        if time.monotonic() - self._searched >= search_s and self._watch.under_way:
            self._search()

    # Reading.

    def _take(self, tail: Tail, site: SiteId) -> Part | None:
        """Return the part of a site that comes next, if it is there."""
        table = tail.folder.name
        return tail.take(site, max(table == "sends", self._done[f"{table}/{site}"]))

    def _skip(self, table: str, site: SiteId, part: Part) -> int:
        """Return how many rows of a part were read before."""
        skip = max(0, self._done[f"{table}/{site}"] - part.first)
        self._done[f"{table}/{site}"] = part.last + 1
        return skip

    def _look_for_gaps(self) -> None:
        gaps = set[str]()
        for tail in (self._sends, self._deliveries):
            for site in tail.writers():
                table, part = tail.folder.name, tail.next(site)
                at = max(table == "sends", self._done[f"{table}/{site}"])
                if part is not None and part.first > at:
                    gaps.add(f"{table}/ of {site} from {at} to {part.first - 1}")
        self._gaps = {gap: self._gaps.get(gap, time.monotonic()) for gap in sorted(gaps)}

    def _read(self, site: SiteId) -> bool:
        """Read the next part of a site's log, unless enough of it waits; returns whether there was one."""
        waiting = self._waiting.setdefault(site, deque())
        if len(waiting) >= AHEAD_ROWS:
            return False
        part = self._take(self._deliveries, site)
        if part is None:
            return False
        waiting.extend(self._reader.deliveries(part)[self._skip("deliveries", site, part) :])
        return True

    # Judging.

    def _send(self, row: dict[str, Any]) -> None:
        msg_id, groups, source, number = (row[name] for name in schema.SENDS)
        body = row.get("body_hash")
        unknown = [group for group in groups if group not in self._watch.members]
        if unknown:
            self._watch.note(findings.nowhere(msg_id, Sent(groups, source, number), unknown[0]))
        else:
            self._watch.sent(source, number, groups, body)

    def _deliver(self, site: SiteId) -> int:
        """Judge what a site has delivered, as far as the sends are known; returns how much that was."""
        watch, waiting, many = self._watch, self._waiting.setdefault(site, deque()), 0
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
        watch = self._watch
        watch.look_for_losses()
        record = watch.remains()
        for name in ("total", "acyclic"):
            if name in watch.promises and name not in watch.broken:
                finding = JUDGES[name](record)
                if finding is not None:
                    watch.note(finding)
        self._searched = time.monotonic()

    # Keeping.

    def saved(self) -> FixedState:
        """Return what is known; what waits is read again."""
        waits = {f"deliveries/{site}": rows[0].position for site, rows in self._waiting.items() if rows}
        return FixedState({**self._done, **waits}, self.deliveries, self._epochs, snapshot(self._watch))

    def load(self, saved: msgspec.Raw) -> None:
        """Go on from what another one has saved."""
        state = msgspec.msgpack.decode(saved, type=FixedState)
        self._done.update(state.done)
        self.deliveries = state.deliveries
        self._epochs.update(state.epochs)
        restore(self._watch, state.watch)
