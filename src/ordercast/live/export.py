"""Writes the run directory of a live site, in parts, on a thread of its own, while the site runs."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from ordercast.client.values import Restored, RolledBack, ViewChanged
from ordercast.errors import BugError, HistoryError, OrdercastError
from ordercast.names import SiteId
from ordercast.node.inputs import Began, Delivered, DiskFailed, Dropped, Keep, Noted, Sent, Write
from ordercast.runs.writer import RunWriter
from ordercast.wire import batch

if TYPE_CHECKING:
    from ordercast.live.site import Site

SECONDS = 2.0  # between parts; a full one is written at once
PARTS_AT_MOST = 4  # that wait to be written; beyond that a durable site commits nothing new
LOST_AT = 64  # parts; what a site that is not durable cannot write in time ends it


class Exporter:
    """One per site that exports."""

    def __init__(self, site: "Site", folder: Path) -> None:
        self._site = site
        changes = site.changes is not None
        self.writer = RunWriter(folder, site.me, batch.unpack, site.node.incarnation if changes else None)
        if not changes:
            self.writer.members(site.node.configuration.members)
        self._failed = False
        self._parts = 0  # that are not yet written
        self._held: Callable[[], None] | None = None  # a commit; there is one at a time
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="export")
        self._timer = site.loop.call_later(SECONDS, self._now_and_then)

    def sent(self, sent: Sent) -> None:
        """A batch of this site is on disk."""
        self.writer.sent(sent.first, batch.count(sent.body), sent.groups, sent.after, sent.body)
        self._look()

    def delivered(self, done: Delivered) -> None:
        """A batch was delivered."""
        self._delivered(done, done.lot.source, done.before)

    def dropped(self, dropped: Dropped) -> None:
        """What is taken in groups that are fixed is sent."""

    def _delivered(self, done: Delivered, source: SiteId, before: bytes | None) -> None:
        lot = done.lot
        self.writer.delivered(
            lot.position, lot.first, done.many, lot.groups, source, done.class_id.epoch, done.order, lot.stamp,
            before, lot.body,
        )  # fmt: skip
        self._look()

    def _look(self) -> None:
        if self.writer.full:
            self.write()
            if self._parts > LOST_AT and not self._site.cluster.durable and not self._failed:
                self._failed = True
                says = f"{self.writer.folder}: the exported run cannot be written as fast as the site delivers"
                self._site.loop.call_soon(self._site.feed, DiskFailed(HistoryError(says)))

    def _now_and_then(self) -> None:
        self._timer = self._site.loop.call_later(SECONDS, self._now_and_then)
        if not self._parts:
            self.write()

    def write(self) -> "asyncio.Future[None]":
        """Write what was collected; parts appear in the order they were taken."""
        writing = self._site.loop.run_in_executor(self._thread, self.writer.write, self.writer.take())
        self._parts += 1
        writing.add_done_callback(self._written)
        return writing

    def bounded(self, write: Callable[[Write], None]) -> Callable[[Write], None]:
        """Return `write` that waits while too many parts do: a slow export disk slows the site down, as its own would.

        What is not committed is neither sent nor delivered, so nothing more is exported meanwhile; links stay up.
        """

        def write_or_wait(output: Write) -> None:
            if self._parts > PARTS_AT_MOST:
                assert self._held is None, "two commits under way"
                self._held = lambda: write(output)
                self._site.note("export.slow", parts=self._parts, waits="commits wait until parts are written")
            else:
                write(output)

        return write_or_wait

    def _written(self, writing: "asyncio.Future[None]") -> None:
        self._parts -= 1
        if self._held is not None and self._parts <= PARTS_AT_MOST:
            held, self._held = self._held, None
            self._site.note("export.goes_on", parts=self._parts)
            held()
        error = None if writing.cancelled() else writing.exception()
        self._failed = self._failed or error is not None
        if isinstance(error, OrdercastError):
            self._site.feed(DiskFailed(error))
        elif error is not None:
            self._site.feed(DiskFailed(BugError(f"{type(error).__name__}: {error}")))

    def before(self, keep: Callable[[Keep], None]) -> Callable[[Keep], None]:
        """Return `keep` behind a part: what is before a checkpoint is not delivered again after a restart."""

        def write_then_keep(output: Keep) -> None:
            def written(writing: "asyncio.Future[None]") -> None:
                if not writing.cancelled() and not self._failed:  # an earlier part may be lost: it must come again
                    keep(output)

            self.write().add_done_callback(written)

        return write_then_keep

    async def close(self) -> None:
        """Write what is left."""
        self._timer.cancel()
        await asyncio.wait([self.write()])
        self._thread.shutdown()


class ChangingExporter(Exporter):
    """The same where groups change: it writes what the site says beside messages, too.

    A site that has lost its disk begins another log, and its messages have other ids: it is called `site@incarnation`,
    unless it is in the life in which it began with the cluster.
    """

    def began(self, began: Began) -> None:
        """The site takes part."""
        self._name()
        try:
            self.writer.lives()  # first: who follows the run knows by this that groups change
            if began.members:
                self.writer.members(began.members)
        except OrdercastError as error:
            self._site.feed(DiskFailed(error))

    def sent(self, sent: Sent) -> None:
        """A batch of this site is on disk."""
        self._name()
        origin = batch.origin_of(sent.body)
        post = "" if origin is None else f"{origin[0].hex()}.{'+'.join(sent.groups)}.{origin[1]}"
        self.writer.sent(sent.first, batch.count(sent.body), sent.groups, sent.after, sent.body, post)
        self._look()

    def delivered(self, done: Delivered) -> None:
        """A batch was delivered; what was before it may have been undone, so nothing is said of that."""
        self._name()
        self._delivered(done, self._called(done.lot.source, done.life), None)

    def noted(self, noted: Noted) -> None:
        """The site says something."""
        self._name()
        said = noted.said
        match said:
            case ViewChanged():
                values = {name: getattr(said, name) for name in ("group", "members", "joined", "left", "away")}
                self.writer.changed(noted.position, kind="view", epoch=noted.epoch, **values)
            case Restored():
                self.writer.changed(noted.position, kind="state", epoch=noted.epoch, group=said.group)
            case RolledBack():
                first = min(said.positions, default=noted.position)
                self.writer.changed(noted.position, kind="undone", epoch=0, undone_from=first)
        self._look()

    def dropped(self, dropped: Dropped) -> None:
        """The site will not send what it has taken."""
        if dropped.first:
            self.writer.dropped(range(dropped.first, dropped.first + len(dropped.bodies)))

    def _name(self) -> None:
        self.writer.site = self._called(self._site.me, self._site.node.incarnation)

    def _called(self, site: SiteId, life: int) -> str:
        changes = self._site.changes
        assert changes is not None
        return site if changes.setup.founders.get(site) == life else f"{site}@{life}"
