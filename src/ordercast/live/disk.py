"""A history on a thread of its own: what a node asks for is done in order, off the event loop, and told to the node."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ordercast.errors import BugError, OrdercastError
from ordercast.history.store import History
from ordercast.node.inputs import Committed, DiskFailed, Input, Keep, Kept, ReadPast, Write
from ordercast.node.reading import read_past


class Disk:
    """Carries out `Write`, `Keep` and `ReadPast`."""

    def __init__(self, history: History, tell: Callable[[Input], None]) -> None:
        self.history, self._tell = history, tell
        self._loop = asyncio.get_running_loop()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="history")

    def write(self, write: Write) -> None:
        """Append records and index entries in one commit."""
        begun = time.perf_counter()
        work = (self.history.append, write.records, write.positions)
        self._run(work, lambda _: Committed(time.perf_counter() - begun))

    def keep(self, keep: Keep) -> None:
        """Write a checkpoint."""
        self._run((self.history.keep, keep.checkpoint, keep.from_delivered, keep.needed), lambda _: Kept())

    def read(self, read: ReadPast) -> None:
        """Read a slice of what was delivered."""
        self._run((read_past, self.history, read), lambda past: past)

    def _run(self, work: tuple[Any, ...], done: Callable[[Any], Input]) -> None:
        def told(future: "asyncio.Future[Any]") -> None:
            if future.cancelled():
                return
            error = future.exception()
            if error is None:
                self._tell(done(future.result()))
            elif isinstance(error, OrdercastError):
                self._tell(DiskFailed(error))
            else:
                self._tell(DiskFailed(BugError(f"{type(error).__name__}: {error}")))

        self._loop.run_in_executor(self._thread, *work).add_done_callback(told)

    def close(self) -> None:
        """Finish what was asked for, and let go of the files."""
        self._thread.shutdown()
        self.history.close()
