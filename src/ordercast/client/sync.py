"""The client library for scripts: the same calls without `await`, the loop in a thread of its own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ordercast.client.client import CONNECT_S, SURVIVE_S, Client
from ordercast.client.values import AckLevel, Delivered, Destination, Event, Lot, Policy, Receipt
from ordercast.names import GroupId, SiteId

if TYPE_CHECKING:
    from pathlib import Path

T = TypeVar("T")


class SyncClient:
    """A connection to a site; use it with `with`."""

    def __init__(
        self,
        address: str | list[str],
        token: str | None = None,
        timeout: float = CONNECT_S,
        *,
        ca: "Path | str | None" = None,
        survive: float = SURVIVE_S,
        session: bytes | None = None,
    ) -> None:
        self._client = Client(address, token, timeout, ca=ca, survive=survive, session=session)
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
        after: int | str | None = None,
        policy: Policy = "block",
        name: str = "",
        snapshot: Callable[[GroupId], bytes] | None = None,
    ) -> None:
        """Read these groups, or all the site is in; see `Client.join`. `snapshot` is called while this thread reads."""

        async def give(group: GroupId) -> bytes:
            assert snapshot is not None
            return snapshot(group)

        gives = None if snapshot is None else give
        self._run(self._client.join(groups, after=after, policy=policy, name=name, snapshot=gives))

    def leave(self) -> None:
        """Read no more; `join` reads again."""
        self._run(self._client.leave())

    def messages(self, timeout: float | None = None) -> Iterator[Delivered]:
        """Yield what is delivered; raises TimeoutError when nothing comes for so long."""

        async def next_one() -> Delivered | None:
            return await asyncio.wait_for(anext(aiter(self._client), None), timeout)

        while (message := self._run(next_one())) is not None:
            yield message

    def events(self, timeout: float | None = None) -> Iterator[Event]:
        """Yield the one stream of this member; raises TimeoutError when nothing comes for so long."""

        async def next_one() -> Event | None:
            return await asyncio.wait_for(anext(self._client.events(), None), timeout)

        while (event := self._run(next_one())) is not None:
            yield event

    def lots(self, timeout: float | None = None) -> Iterator[Lot]:
        """Yield what is delivered in batches; raises TimeoutError when nothing comes for so long."""

        async def next_one() -> Lot | None:
            return await asyncio.wait_for(anext(self._client.lots(), None), timeout)

        while (lot := self._run(next_one())) is not None:
            yield lot

    @property
    def site(self) -> SiteId:
        """The site that this client is connected to."""
        return self._client.site

    @property
    def address(self) -> str:
        """Where that site is."""
        return self._client.address

    def multicast_many(
        self, group: Destination, bodies: list[bytes], ack: AckLevel = "none"
    ) -> tuple[int, list[bytes | None]]:
        """Send messages as one batch and wait for it; see `Client.multicast_many`."""
        return self._run(self._client.multicast_many(group, bodies, ack))

    def create_group(
        self, group: GroupId, members: list[SiteId], *, policy: str | None = None, delivery: str | None = None
    ) -> None:
        """Create a group and wait until it is there."""
        self._run(self._client.create_group(group, members, policy=policy, delivery=delivery))

    def delete_group(self, group: GroupId) -> None:
        """Delete a group."""
        self._run(self._client.delete_group(group))

    def join_group(self, group: GroupId, site: SiteId | None = None) -> None:
        """Make a site a member of a group."""
        self._run(self._client.join_group(group, site))

    def leave_group(self, group: GroupId, site: SiteId | None = None) -> None:
        """Let a site be a member of a group no more."""
        self._run(self._client.leave_group(group, site))

    def move_group(self, group: GroupId, *sequencers: SiteId) -> None:
        """Let one of these sites sequence a group, and all that is ordered with it; without any, a member does."""
        self._run(self._client.move_group(group, *sequencers))

    def change(
        self, what: str, group: GroupId = "", sites: tuple[SiteId, ...] = (), options: dict[str, str] | None = None
    ) -> None:
        """Ask for a change and wait until it is in force; see `Client.change`."""
        self._run(self._client.change(what, group, sites, options))

    def configuration(self) -> dict[str, Any]:
        """Return the configuration in force."""
        return self._run(self._client.configuration())

    def status(self) -> dict[str, Any]:
        """Return what the site says of itself."""
        return self._run(self._client.status())

    def explain(self, message: str) -> dict[str, Any]:
        """Return where a message is, as far as the site knows."""
        return self._run(self._client.explain(message))


def connect(
    address: str | list[str],
    token: str | None = None,
    timeout: float = CONNECT_S,
    *,
    ca: "Path | str | None" = None,
    survive: float = SURVIVE_S,
    session: bytes | None = None,
) -> SyncClient:
    """Return a client; connect with `with`. With `ca`, the certificates of a CA, it speaks TLS."""
    return SyncClient(address, token, timeout, ca=ca, survive=survive, session=session)
