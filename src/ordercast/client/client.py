"""The client library: `async with connect("host:port") as client`; the same calls as an embedded site."""

import asyncio
import itertools
from collections import deque
from collections.abc import Iterator
from typing import Any, Self, cast

import msgspec

from ordercast.errors import InputError, LocalError, OrdercastError, PeerError
from ordercast.live.inbox import Delivered, Lot, Lots, Messages
from ordercast.live.outbox import AckLevel, Destination, Receipt, tidy
from ordercast.names import GroupId
from ordercast.wire import links
from ordercast.wire.frames import NO_CLASS, Splitter, frame

WINDOW_BYTES = 4 * 2**20  # posted and not yet taken by the site
BATCH_BYTES, BATCH_MESSAGES = 64 * 2**10, 1024
CONNECT_S = 10.0
BEAT_S, BEATS_MISSED = 1.0, 8  # a site speaks twice a second; one that is silent for so many beats is gone


class LinkLostError(OrdercastError):
    """The connection to the site ended; what was not acknowledged may or may not have been sent."""


class _Open:
    """Messages to the same groups, not yet posted."""

    __slots__ = ("bodies", "bytes")

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.bytes = 0


class _Reading:
    """What was joined, until it is left: whoever reads it finds its end then, also when something new is joined."""

    def __init__(self, client: "Client") -> None:
        self.client = client
        self.lots: deque[Lot] = deque()
        self.unread: Iterator[Delivered] = iter(())
        self.more = asyncio.Event()
        self.left = False

    def leave(self) -> None:
        """Nothing more is read of this."""
        self.left, self.unread = True, iter(())
        self.more.set()

    async def take(self) -> Lot | None:
        """Return what comes next; nothing is taken before it is there, so a wait can be cancelled."""
        while not self.left:
            if self.lots:
                lot = self.lots.popleft()
                self.client.taken(lot)
                return lot
            self.client.raise_error()
            self.more.clear()
            await self.more.wait()
        return None


class _Later:
    """What will be joined when somebody reads: all groups of the site."""

    def __init__(self, client: "Client") -> None:
        self.client = client
        self.reading: _Reading | None = None

    @property
    def unread(self) -> Iterator[Delivered]:
        """What is left of a lot."""
        return iter(()) if self.reading is None else self.reading.unread

    @unread.setter
    def unread(self, messages: Iterator[Delivered]) -> None:
        if self.reading is not None:
            self.reading.unread = messages

    async def take(self) -> Lot | None:
        """Join, then read."""
        if self.reading is None:
            self.reading = await self.client.joined()
        return await self.reading.take()


class Client(asyncio.Protocol):
    """A connection to a site."""

    def __init__(self, address: str, token: str | None = None, timeout: float = CONNECT_S) -> None:
        self.address, self.token, self.timeout = address, token, timeout
        self.site = ""
        self.groups: frozenset[GroupId] = frozenset()
        self._transport: asyncio.Transport | None = None
        self._splitter = Splitter()
        self._loop: asyncio.AbstractEventLoop
        self._welcome: asyncio.Future[links.Welcome]
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._ids = itertools.count(1)
        self._open: dict[tuple[GroupId, ...], _Open] = {}
        self._untaken: dict[asyncio.Future[Any], int] = {}
        self._posting = False
        self._unanswered = 0
        self._room = asyncio.Event()
        self._reading: _Reading | None = None
        self._joining: tuple[int, asyncio.Future[Any]] | None = None
        self._error: OrdercastError | None = None
        self._refused: LocalError | None = None
        self._lost = 0  # messages that were sent without an acknowledgement and that the site has not taken
        self._silent = 0
        self._listening: asyncio.TimerHandle | None = None
        self._causal = False

    async def __aenter__(self) -> Self:
        host, _, port = self.address.rpartition(":")
        if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise InputError(f"{self.address!r} is not host:port")
        self._loop = asyncio.get_running_loop()
        self._welcome = self._loop.create_future()
        try:
            async with asyncio.timeout(self.timeout):
                await self._loop.create_connection(lambda: self, host.strip("[]"), int(port))
                self._write(links.LOGIN, links.Login(links.VERSION, self.token))
                welcome = await self._welcome
        except TimeoutError:
            self._end(LinkLostError(f"{self.address} does not answer within {self.timeout:g} s"))
            raise cast(OrdercastError, self._error) from None
        except OSError as error:
            raise LinkLostError(f"nobody answers at {self.address}: {error.strerror or error}") from None
        except asyncio.CancelledError:
            self._end(LinkLostError("nobody waited for the connection"))
            raise
        self.site, self.groups = welcome.site, frozenset(welcome.groups)
        self._body_bytes, self._causal = welcome.body_bytes, welcome.causal
        self._listening = self._loop.call_later(BEAT_S, self._listen)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Wait until the site has taken everything, and raise what it has not; who is cancelled does not wait."""
        try:
            if error is None:
                await self._settle()
            elif isinstance(error, Exception) and error is not self._error:
                await self._flush_within(self.timeout)
        finally:
            self._end(LinkLostError("the client was closed"))

    # Sending.

    async def multicast(self, group: Destination, body: bytes, ack: AckLevel = "none") -> Receipt | None:
        """Send a message; see `Site.multicast`.

        With `none` it returns before the site has taken the message. If the site does not, the next call, `flush` or
        the end of `async with` raises.
        """
        self._raise_refusal()
        if type(body) is not bytes:
            raise LocalError(f"a message is bytes, not {type(body).__name__}")
        while self._unanswered > WINDOW_BYTES:
            self._room.clear()
            await self._room.wait()
            self._raise_refusal()
        if len(body) > self._body_bytes:
            raise LocalError(f"a message of {len(body)} bytes; at most {self._body_bytes} are allowed")
        if ack != "none":
            first, stamps = await self.multicast_many(group, [body], ack)
            return Receipt(first, stamps[0] if stamps else None)
        groups = (group,) if type(group) is str else tidy(group)
        batch = self._open.get(groups)
        if batch is not None and batch.bytes + len(body) > BATCH_BYTES:
            self._post_open()
            batch = None
        if batch is None:
            batch = self._begin(groups)
        batch.bodies.append(body)
        batch.bytes += len(body)
        if batch.bytes >= BATCH_BYTES or len(batch.bodies) >= BATCH_MESSAGES:
            self._post_open()
            await asyncio.sleep(0)
        return None

    async def multicast_many(
        self, group: Destination, bodies: list[bytes], ack: AckLevel = "none"
    ) -> tuple[int, list[bytes | None]]:
        """Send messages as one batch and wait for it; see `Site.multicast_many`."""
        self._raise_refusal()
        self._post_open()
        receipt = await self._post(tidy(group), bodies, ack)
        return receipt.first, receipt.stamps

    def _begin(self, groups: tuple[GroupId, ...]) -> _Open:
        """Start a batch; what was sent to one of these groups before goes before (to any, in causal order)."""
        if self._causal or any(not set(groups).isdisjoint(other) for other in self._open):
            self._post_open()
        batch = self._open[groups] = _Open()
        if not self._posting:
            self._posting = True
            self._loop.call_soon(self._post_open)
        return batch

    def _post_open(self) -> None:
        self._posting = False
        batches, self._open = self._open, {}
        for groups, batch in batches.items():
            done = self._post(groups, batch.bodies, "none")
            self._untaken[done] = len(batch.bodies)
            done.add_done_callback(self._settled)

    def _settled(self, done: asyncio.Future[Any]) -> None:
        """Remember what was not taken: the next `multicast` or `flush` raises."""
        many = self._untaken.pop(done)
        error = None if done.cancelled() else done.exception()
        if error is None:
            return
        if isinstance(error, LocalError):
            self._refused = self._refused or error
        else:
            self._lost += many

    def _raise_refusal(self) -> None:
        if self._error is not None:
            raise self._error
        if self._refused is not None:
            self._raise_lost()

    def _post(self, groups: tuple[GroupId, ...], bodies: list[bytes], ack: str) -> asyncio.Future[Any]:
        number, done = self._await_answer()
        if done.done():
            return done
        size = sum(map(len, bodies))
        self._unanswered += size
        done.add_done_callback(lambda _: self._answered(size))
        self._write(links.POST, links.Post(number, groups, ack, bodies))
        return done

    def _answered(self, size: int) -> None:
        self._unanswered -= size
        if self._unanswered <= WINDOW_BYTES:
            self._room.set()

    async def flush(self) -> None:
        """Wait until the site has taken everything; raises what went wrong with any of it."""
        await self._settle()
        if self._error is not None:
            raise self._error

    async def _settle(self) -> None:
        """Wait for what was sent without an acknowledgement; raises what was not taken."""
        self._post_open()
        waited = list(self._untaken)
        if waited:
            await asyncio.wait(waited)
            await asyncio.sleep(0)  # what happens when one is done happens at the next turn
        self._raise_lost()
        for done in waited:  # another task may have been told; whoever waited for it is told too
            if not done.cancelled() and isinstance(error := done.exception(), LocalError):
                raise error

    async def _flush_within(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._settle()
        except TimeoutError:
            self._lost += sum(self._untaken.values())
            self._end(LinkLostError(f"{self.site} takes nothing"))
            self._raise_lost()

    def _raise_lost(self) -> None:
        if self._error is not None and self._lost:
            lost = "1 message was" if self._lost == 1 else f"{self._lost} messages were"
            raise LinkLostError(f"{self._error}; {lost} not taken")
        refused, self._refused = self._refused, None
        if refused is not None:
            raise refused

    # Reading.

    async def join(self, groups: list[GroupId] | None = None, *, after: int | None = None) -> None:
        """Read these groups, or all the site is in; after a position, or from now on."""
        for group in groups or ():
            if group not in self.groups:
                raise LocalError(f"{self.site} is not in group {group!r}; it is in {', '.join(sorted(self.groups))}")
        if self._error is not None:
            raise self._error
        number, done = self._await_answer()
        self._joining = (number, done)
        self._write(links.JOIN, links.Join(number, groups, after))
        await asyncio.shield(done)

    async def leave(self) -> None:
        """Read no more: who reads finds the end, and what was not read by now is not read."""
        if self._error is not None:
            raise self._error
        if self._reading is not None:
            self._reading.leave()
            self._reading = None
        number, done = self._await_answer()
        self._write(links.LEAVE, links.Leave(number))
        await done

    async def joined(self) -> _Reading:
        """Return what was joined; joins all groups of the site if nothing was."""
        if self._reading is None:
            await (self.join() if self._joining is None else asyncio.shield(self._joining[1]))
        assert self._reading is not None
        return self._reading

    def taken(self, lot: Lot) -> None:
        """Tell the site that there is room for more."""
        self._write(links.TAKEN, links.Taken(len(lot.body)))

    def raise_error(self) -> None:
        """Raise what ended the connection, if it has ended."""
        if self._error is not None:
            raise self._error

    def lots(self) -> Lots:
        """Iterate over what is delivered, in batches; joins all groups of the site if nothing was joined."""
        return Lots(self._reading or _Later(self))

    def __aiter__(self) -> Messages:
        """Iterate over what is delivered; who stops in between goes on with the next message."""
        return Messages(self._reading or _Later(self))

    # Asking.

    async def status(self) -> dict[str, Any]:
        """Return what the site says of itself."""
        return cast(dict[str, Any], await self._ask("status", ""))

    async def explain(self, message: str) -> dict[str, Any]:
        """Return where a message is, as far as this site knows, and what it waits for."""
        return cast(dict[str, Any], await self._ask("explain", message))

    async def _ask(self, what: str, about: str) -> Any:
        number, done = self._await_answer()
        self._write(links.ASK, links.Ask(number, what, about))
        return msgspec.json.decode((await done).json)

    def _await_answer(self) -> tuple[int, asyncio.Future[Any]]:
        """Return a number for what is asked, and what its answer comes to; without a connection that is an error."""
        number, done = next(self._ids), self._loop.create_future()
        if self._error is not None:
            done.set_exception(self._error)
        else:
            self._waiting[number] = done
        return number, done

    # The connection.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember it."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Take whole frames."""
        self._silent = 0
        try:
            for tag, _, _, _, payload in self._splitter.feed(data):
                if tag != links.HEARTBEAT:
                    self._take(tag, links.read(tag, payload))
        except PeerError as error:
            if self.site:
                self._end(error)
            else:
                self._end(InputError(f"{self.address} does not answer as sites answer clients; is it in [clients]?"))

    def _listen(self) -> None:
        """Count beats, not seconds: a program that was busy for long has not listened, which is no silence."""
        self._silent += 1
        if self._silent > BEATS_MISSED:
            self._end(LinkLostError(f"{self.site} has said nothing for {BEATS_MISSED * BEAT_S:g} s"))
        else:
            self._listening = self._loop.call_later(BEAT_S, self._listen)

    def _take(self, tag: int, said: Any) -> None:
        if tag == links.WELCOME and not self._welcome.done():
            self._welcome.set_result(said)
        elif tag == links.LOT:
            if self._reading is not None:  # what comes after `leave` was under way
                lot = Lot(said.position, said.groups, said.source, said.first, said.stamp, said.body)
                self._reading.lots.append(lot)
                self._reading.more.set()
        elif tag in (links.RECEIPT, links.ANSWER):
            self._answer(said, getattr(said, "error", None))
        elif tag == links.ERROR:
            refused = LocalError(said.reason) if not self.site else LinkLostError(f"{self.site}: {said.reason}")
            self._end(refused)
        else:
            raise PeerError(f"tag {tag} is not expected from a site")

    def _answer(self, said: Any, error: str | None) -> None:
        if self._joining is not None and self._joining[0] == said.id:
            self._joining = None
            if error is None:  # what is delivered from now on is what was joined
                self._reading = _Reading(self)
        done = self._waiting.pop(said.id, None)
        if done is None or done.done():
            return
        if error is not None:
            done.set_exception(LocalError(error))
        else:
            done.set_result(said)

    def _write(self, tag: int, value: msgspec.Struct) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(frame(tag, NO_CLASS, 0, 0, links.encode(value)))

    def _end(self, error: OrdercastError) -> None:
        """Nothing more comes and goes: tell everybody who waits, and close."""
        if self._error is None:
            self._error = error
        if self._listening is not None:
            self._listening.cancel()
        if not self._welcome.done():
            self._welcome.set_exception(self._error)
            self._welcome.exception()  # nobody may be waiting for it
        for done in self._waiting.values():
            if not done.done():
                done.set_exception(self._error)
                done.exception()
        self._waiting.clear()
        self._room.set()
        if self._reading is not None:
            self._reading.more.set()
        if self._transport is not None:
            self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """Tell everybody who waits."""
        self._end(LinkLostError(f"the connection to {self.address} ended"))


def connect(address: str, token: str | None = None, timeout: float = CONNECT_S) -> Client:
    """Return a client; connect with `async with`."""
    return Client(address, token, timeout)
