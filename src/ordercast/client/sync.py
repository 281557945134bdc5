"""The client library for scripts: the same calls without `await`, the loop in a thread of its own."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ordercast.client.client import CONNECT_S, Client
from ordercast.client.values import AckLevel, Delivered, Destination, Policy, Receipt
from ordercast.names import GroupId

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")


class SyncClient:
    """A connection to a site; use it with `with`."""

    def __init__(
        self, address: str, token: str | None = None, timeout: float = CONNECT_S, *, ca: "Path | str | None" = None
    ) -> None:
        self._client = Client(address, token, timeout, ca=ca)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ordercast", daemon=True)

    def _run(self, work: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self._run(self._client.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            self._run(self._client.__aexit__(kind, error, trace))
        finally:
            self._stop()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def multicast(self, group: Destination, body: bytes, ack: AckLevel = "none") -> Receipt | None:
        """Send a message; see `Client.multicast`."""
        return self._run(self._client.multicast(group, body, ack))

    def flush(self) -> None:
        """Wait until the site has everything on its disk; raises what went wrong with any of it."""
        self._run(self._client.flush())

    def join(
        self,
        groups: list[GroupId] | None = None,
        *,
        after: int | None = None,
        policy: Policy = "block",
        name: str = "",
    ) -> None:
        """Read these groups, or all the site is in; see `Client.join`."""
        self._run(self._client.join(groups, after=after, policy=policy, name=name))

    def leave(self) -> None:
        """Read no more; `join` reads again."""
        self._run(self._client.leave())

    def messages(self, timeout: float | None = None) -> Iterator[Delivered]:
        """Yield what is delivered; raises TimeoutError when nothing comes for so long."""

        async def next_one() -> Delivered | None:
            return await asyncio.wait_for(anext(aiter(self._client), None), timeout)

        while (message := self._run(next_one())) is not None:
            yield message

    def status(self) -> dict[str, Any]:
        """Return what the site says of itself."""
        return self._run(self._client.status())


def connect(
    address: str, token: str | None = None, timeout: float = CONNECT_S, *, ca: "Path | str | None" = None
) -> SyncClient:
    """Return a client; connect with `with`. With `ca`, the certificates of a CA, it speaks TLS."""
    return SyncClient(address, token, timeout, ca=ca)
