"""Writes the run directory of a live site, in parts, on a thread of its own, while the site runs."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from ordercast.errors import BugError, OrdercastError
from ordercast.node.inputs import Delivered, DiskFailed, Keep, Sent
from ordercast.runs.writer import RunWriter
from ordercast.wire import batch

if TYPE_CHECKING:
    from ordercast.live.site import Site

SECONDS = 2.0  # between parts; a full one is written at once


class Exporter:
    """One per site that exports."""

    def __init__(self, site: "Site", folder: Path) -> None:
        self._site = site
        self.writer = RunWriter(folder, site.me, site.node.configuration.members, batch.unpack)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="export")
        self._timer = site.loop.call_later(SECONDS, self._now_and_then)

    def sent(self, sent: Sent) -> None:
        """A batch of this site is on disk."""
        self.writer.sent(sent.first, batch.count(sent.body), sent.groups, sent.after, sent.body)
        self._look()

    def delivered(self, done: Delivered) -> None:
        """A batch was delivered."""
        lot = done.lot
        self.writer.delivered(
            lot.position, lot.first, done.many, lot.groups, lot.source, done.class_id.epoch, done.order, lot.stamp,
            done.before, lot.body,
        )  # fmt: skip
        self._look()

    def _look(self) -> None:
        if self.writer.full:
            self.write()

    def _now_and_then(self) -> None:
        self._timer = self._site.loop.call_later(SECONDS, self._now_and_then)
        self.write()

    def write(self) -> "asyncio.Future[None]":
        """Write what was collected; parts appear in the order they were taken."""
        writing = self._site.loop.run_in_executor(self._thread, self.writer.write, self.writer.take())
        writing.add_done_callback(self._written)
        return writing

    def _written(self, writing: "asyncio.Future[None]") -> None:
        error = None if writing.cancelled() else writing.exception()
        if isinstance(error, OrdercastError):
            self._site.feed(DiskFailed(error))
        elif error is not None:
            self._site.feed(DiskFailed(BugError(f"{type(error).__name__}: {error}")))

    def before(self, keep: Callable[[Keep], None]) -> Callable[[Keep], None]:
        """Return `keep` behind a part: what is before a checkpoint is not delivered again after a restart."""

        def write_then_keep(output: Keep) -> None:
            def written(writing: "asyncio.Future[None]") -> None:
                if not writing.cancelled() and writing.exception() is None:
                    keep(output)

            self.write().add_done_callback(written)

        return write_then_keep

    async def close(self) -> None:
        """Write what is left."""
        self._timer.cancel()
        await asyncio.wait([self.write()])
        self._thread.shutdown()
