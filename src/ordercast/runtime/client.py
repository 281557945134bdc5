"""The client library: `async with connect("host:port") as client`; the same calls as an embedded site."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator
from typing import Any, Self, cast

import msgspec

from ordercast.errors import LocalError, OrdercastError, PeerError
from ordercast.runtime.inbox import Delivered, Lot
from ordercast.runtime.site import AckLevel, Receipt
from ordercast.types import GroupId
from ordercast.wire import links
from ordercast.wire.frames import Splitter, frame

WINDOW_BYTES = 4 * 2**20  # posted and not yet taken by the site
BATCH_BYTES, BATCH_MESSAGES = 64 * 2**10, 1024


class LinkLostError(OrdercastError):
    """The connection to the site ended; what was not acknowledged may or may not have been sent."""


class _Open:
    """Messages to the same groups, not yet posted."""

    __slots__ = ("bodies", "bytes")

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.bytes = 0


class Client(asyncio.Protocol):
    """A connection to a site."""

    def __init__(self, address: str, token: str | None = None) -> None:
        self.address, self.token = address, token
        self.site = ""
        self.groups: frozenset[GroupId] = frozenset()
        self._transport: asyncio.Transport | None = None
        self._splitter = Splitter()
        self._loop: asyncio.AbstractEventLoop
        self._welcome: asyncio.Future[links.Welcome]
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._ids = itertools.count(1)
        self._open: dict[GroupId | tuple[GroupId, ...], _Open] = {}
        self._posting = False
        self._unanswered = 0
        self._room = asyncio.Event()
        self._lots: asyncio.Queue[Lot | None] = asyncio.Queue()
        self._error: OrdercastError | None = None
        self._joined = False
        self._refused: LocalError | None = None
        self._unread: Iterator[Delivered] = iter(())
        self._causal = False

    async def __aenter__(self) -> Self:
        host, _, port = self.address.rpartition(":")
        if not host or not port.isdigit():
            raise LocalError(f"{self.address!r} is not host:port")
        self._loop = asyncio.get_running_loop()
        self._welcome = self._loop.create_future()
        try:
            await self._loop.create_connection(lambda: self, host, int(port))
        except OSError as error:
            raise LinkLostError(f"nobody answers at {self.address}: {error.strerror or error}") from None
        self._write(links.LOGIN, links.Login(links.VERSION, self.token))
        welcome = await self._welcome
        self.site, self.groups = welcome.site, frozenset(welcome.groups)
        self._body_bytes, self._causal = welcome.body_bytes, welcome.causal
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._error is None:
            self._post_open()
            waiting = list(self._waiting.values())
            if waiting:
                await asyncio.wait(waiting, timeout=10)
        if self._transport is not None:
            self._transport.close()

    # Sending.

    async def multicast(
        self, group: GroupId | tuple[GroupId, ...], body: bytes, ack: AckLevel = "none"
    ) -> Receipt | None:
        """Send a message; see `Site.multicast`."""
        if self._error is not None:
            raise self._error
        if self._refused is not None:
            self._raise_refusal()
        if type(body) is not bytes:
            raise LocalError(f"a message is bytes, not {type(body).__name__}")
        while self._unanswered > WINDOW_BYTES:
            self._room.clear()
            await self._room.wait()
            if self._error is not None:
                raise self._error
        if len(body) > self._body_bytes:
            raise LocalError(f"a message of {len(body)} bytes; at most {self._body_bytes} are allowed")
        if ack != "none":
            self._post_open()
            done = self._post(group, [body], ack)
            receipt = await done
            return Receipt(receipt.first, receipt.stamps[0] if receipt.stamps else None)
        if type(group) is not str:
            group = tuple(sorted(set(group)))
            group = group[0] if len(group) == 1 else group
        batch = self._open.get(group)
        if batch is not None and batch.bytes + len(body) > BATCH_BYTES:
            self._post_open()
            batch = None
        if batch is None:
            if self._causal:  # what was sent to another group before must go before
                self._post_open()
            batch = self._open[group] = _Open()
            if not self._posting:
                self._posting = True
                self._loop.call_soon(self._post_open)
        batch.bodies.append(body)
        batch.bytes += len(body)
        if batch.bytes >= BATCH_BYTES or len(batch.bodies) >= BATCH_MESSAGES:
            self._post_open()
            await asyncio.sleep(0)
        return None

    def _post_open(self) -> None:
        self._posting = False
        batches, self._open = self._open, {}
        for group, batch in batches.items():
            self._post(group, batch.bodies, "none").add_done_callback(self._note_refusal)

    def _note_refusal(self, done: asyncio.Future[Any]) -> None:
        """What was sent without an acknowledgement and refused is raised by the next `multicast` or `flush`."""
        error = None if done.cancelled() else done.exception()
        if isinstance(error, LocalError) and self._refused is None:
            self._refused = error

    def _raise_refusal(self) -> None:
        refused, self._refused = self._refused, None
        if refused is not None:
            raise refused

    def _post(self, group: GroupId | tuple[GroupId, ...], bodies: list[bytes], ack: str) -> asyncio.Future[Any]:
        done: asyncio.Future[Any] = self._loop.create_future()
        if self._error is not None:
            done.set_exception(self._error)
            return done
        number = next(self._ids)
        groups = (group,) if isinstance(group, str) else group
        size = sum(map(len, bodies))
        self._unanswered += size
        self._waiting[number] = done
        done.add_done_callback(lambda _: self._answered(size))
        self._write(links.POST, links.Post(number, groups, ack, bodies))
        return done

    def _answered(self, size: int) -> None:
        self._unanswered -= size
        if self._unanswered <= WINDOW_BYTES:
            self._room.set()

    async def flush(self) -> None:
        """Wait until the site has taken everything; raises what went wrong with any of it."""
        self._post_open()
        await asyncio.gather(*self._waiting.values())
        self._raise_refusal()
        if self._error is not None:
            raise self._error

    # Reading.

    async def join(self, groups: list[GroupId] | None = None, *, after: int | None = None) -> None:
        """Read these groups, or all the site is in; after a position, or from now on."""
        for group in groups or ():
            if group not in self.groups:
                raise LocalError(f"{self.site} is not in group {group!r}; it is in {', '.join(sorted(self.groups))}")
        self._write(links.JOIN, links.Join(groups, after))
        self._joined = True

    async def leave(self) -> None:
        """Read no more."""
        self._write(links.LEAVE, links.Join(None, None))
        self._joined = False
        self._lots.put_nowait(None)

    async def lots(self) -> AsyncIterator[Lot]:
        """Yield what is delivered, in batches."""
        if not self._joined:
            await self.join()
        while (lot := await self._lots.get()) is not None:
            self._write(links.TAKEN, links.Taken(len(lot.body)))
            yield lot
        self._lots.put_nowait(None)  # whoever reads again finds the end too
        if self._error is not None:
            raise self._error

    async def __aiter__(self) -> AsyncIterator[Delivered]:
        """Yield what is delivered, message by message; who stops in between goes on with the next message."""
        for message in self._unread:
            yield message
        async for lot in self.lots():
            self._unread = iter(lot.messages())
            for message in self._unread:
                yield message

    # Asking.

    async def status(self) -> dict[str, Any]:
        """Return what the site says of itself."""
        return cast(dict[str, Any], await self._ask("status", ""))

    async def explain(self, message: str) -> dict[str, Any]:
        """Return where a message is, as far as this site knows, and what it waits for."""
        return cast(dict[str, Any], await self._ask("explain", message))

    async def _ask(self, what: str, about: str) -> Any:
        if self._error is not None:
            raise self._error
        done: asyncio.Future[Any] = self._loop.create_future()
        number = next(self._ids)
        self._waiting[number] = done
        self._write(links.ASK, links.Ask(number, what, about))
        return msgspec.json.decode((await done).json)

    # The connection.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember it."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Take whole frames."""
        try:
            for tag, _, _, payload in self._splitter.feed(data):
                self._take(tag, links.read(tag, payload))
        except PeerError as error:
            self._end(error)

    def _take(self, tag: int, said: Any) -> None:
        if tag == links.WELCOME:
            self._welcome.set_result(said)
        elif tag == links.LOT:
            self._lots.put_nowait(Lot(said.position, said.groups, said.source, said.first, said.stamp, said.body))
        elif tag in (links.RECEIPT, links.ANSWER):
            done = self._waiting.pop(said.id, None)
            if done is not None and not done.done():
                if tag == links.RECEIPT and said.error is not None:
                    done.set_exception(LocalError(said.error))
                else:
                    done.set_result(said)
        elif tag == links.ERROR:
            self._end(LocalError(said.reason))
        else:
            raise PeerError(f"tag {tag} is not expected from a site")

    def _write(self, tag: int, value: msgspec.Struct) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(frame(tag, 0, 0, links.encode(value)))

    def _end(self, error: OrdercastError) -> None:
        if self._error is None:
            self._error = error
        if not self._welcome.done():
            self._welcome.set_exception(self._error)
        for done in self._waiting.values():
            if not done.done():
                done.set_exception(self._error)
        self._waiting.clear()
        self._room.set()
        self._lots.put_nowait(None)
        if self._transport is not None:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """Tell everybody who waits."""
        self._end(LinkLostError(f"the connection to {self.address} ended"))


def connect(address: str, token: str | None = None) -> Client:
    """Return a client; connect with `async with`."""
    return Client(address, token)
