"""The client library: `async with connect("host:port") as client`; the same calls as an embedded site."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, Self, cast

import msgspec

from ordercast.client.lasting import SEEK_S, Lasting
from ordercast.client.sending import Groups, Sender
from ordercast.client.streams import Events, Lots, Messages
from ordercast.client.values import AckLevel, Destination, Event, Lot, Policy, Receipt, place_of, tidy
from ordercast.errors import DroppedError, InputError, LocalError, LostError, bounded
from ordercast.names import GroupId, SiteId
from ordercast.wire import clients as wire
from ordercast.wire.tags import Tag

if TYPE_CHECKING:
    from pathlib import Path

CONNECT_S = 10.0
SURVIVE_S = 60.0
SESSION_BYTES = 16
BEGINNING = "beginning"
Snapshot = Callable[[GroupId], Awaitable[bytes]]
"""An application's state of a group, after everything it has read."""


class _Reading:
    """What was joined, until it is left: whoever reads it finds its end then, also when something new is joined."""

    def __init__(self, connection: Lasting, snapshot: Snapshot | None = None) -> None:
        self.unread: Iterator[Event] = iter(())
        self._connection = connection
        self._snapshot = snapshot
        self._lots: deque[Lot | wire.WantState] = deque()
        self._more = asyncio.Event()
        self._left = False
        self._dropped: DroppedError | None = None
        connection.ended.append(lambda _: self._more.set())

    def put(self, lot: Lot | wire.WantState) -> None:
        """Add what was delivered, or a question at this place of the stream."""
        self._lots.append(lot)
        self._more.set()

    def drop(self, error: DroppedError) -> None:
        """Nothing more comes; who reads finds what is there, then the error."""
        self._dropped = error
        self._more.set()

    def leave(self) -> None:
        """Nothing more is read of this: what is there counts as taken."""
        self._left, self.unread = True, iter(())
        for lot in self._lots:
            if isinstance(lot, Lot):
                _taken(self._connection, len(lot.body))
        self._lots.clear()
        self._more.set()

    async def take(self) -> Lot | None:
        """Return what comes next; nothing is taken before it is there, so a wait can be cancelled."""
        while not self._left:
            if self._lots:
                lot = self._lots[0]
                if isinstance(lot, wire.WantState):  # its reader is done with all that came before
                    await self._give(lot)
                    continue
                self._lots.popleft()
                _taken(self._connection, len(lot.body))
                return lot
            if self._dropped is not None:
                raise self._dropped
            self._connection.raise_error()
            self._more.clear()
            await self._more.wait()
        return None

    async def _give(self, wanted: wire.WantState) -> None:
        assert self._snapshot is not None
        state = await self._snapshot(wanted.group)
        if self._lots and self._lots[0] is wanted:  # nobody has left meanwhile
            self._lots.popleft()
            self._connection.write(Tag.GIVE_STATE, wire.State(wanted.id, state))


class _Later:
    """What will be joined when somebody reads: all groups of the site."""

    def __init__(self, client: "Client") -> None:
        self.client = client
        self.reading: _Reading | None = None

    @property
    def unread(self) -> Iterator[Event]:
        """What is left of a lot."""
        return iter(()) if self.reading is None else self.reading.unread

    @unread.setter
    def unread(self, messages: Iterator[Event]) -> None:
        if self.reading is not None:
            self.reading.unread = messages

    async def take(self) -> Lot | None:
        """Join, then read."""
        if self.reading is None:
            self.reading = await self.client.joined()
        return await self.reading.take()


def _taken(connection: Lasting, size: int) -> None:
    """Tell the site that there is room for more."""
    connection.write(Tag.TAKEN, wire.Taken(size))


class Client:
    """A client of a site. Errors: UnreachableError, LocalError (refused), LostError (it was there, and is gone)."""

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
        self.addresses = [address] if isinstance(address, str) else list(address)
        if not self.addresses:
            raise InputError("no address to connect to")
        if session is not None and len(session) != SESSION_BYTES:
            raise InputError(f"a session has {SESSION_BYTES} bytes, not {len(session)}")
        self.token, self.timeout, self.survive = token, timeout, survive
        self.ca, self.session = ca, session
        self._numbers: dict[Groups, int] = {}  # of posts to each destination
        self.groups: frozenset[GroupId] = frozenset()
        self._connection = self._lasting()
        self._sender: Sender
        self._reading: _Reading | None = None
        self._joining: asyncio.Future[Any] | None = None
        self._snapshot: Snapshot | None = None

    @property
    def site(self) -> SiteId:
        """The site that this client is connected to, or was last."""
        return self._connection.site

    @property
    def address(self) -> str:
        """Where the site is that this client is connected to."""
        return self._connection.address

    async def __aenter__(self) -> Self:
        self._connection = self._lasting()  # a new one, who enters again begins anew
        self._numbers.clear()
        welcome = await self._connection.open(self.token, self.timeout, self.ca)
        self.groups = frozenset(welcome.groups)
        self._sender = Sender(welcome, self._post)
        self._connection.ended.append(self._sender.end)
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Wait until the site has everything on its disk, and raise what it has not; who is cancelled does not wait."""
        try:
            if error is None:
                await self._sender.settle()
            elif isinstance(error, Exception) and error is not self._connection.error:
                await self._settle_within(self.timeout)
        finally:
            self._connection.end(LostError("the client was closed"))

    def _lasting(self) -> Lasting:
        return Lasting(self.addresses, self._heard, self.survive, self.session)

    # Sending.

    def multicast(self, group: Destination, body: bytes, ack: AckLevel = "none") -> Coroutine[Any, Any, Receipt | None]:
        """Send a message; see `Site.multicast`. It waits while too much is not answered by the site.

        With `none` it returns before the site has taken the message. If the site does not, the next call, `flush` or
        the end of `async with` raises.
        """
        if ack == "none":
            return self._sender.one((group,) if type(group) is str else tidy(group), body)
        return self._acknowledged(group, body, ack)

    async def _acknowledged(self, group: Destination, body: bytes, ack: AckLevel) -> Receipt:
        first, stamps = await self.multicast_many(group, [body], ack)
        return Receipt(first, stamps[0] if stamps else None)

    async def multicast_many(
        self, group: Destination, bodies: list[bytes], ack: AckLevel = "none"
    ) -> tuple[int, list[bytes | None]]:
        """Send messages as one batch and wait for it; see `Site.multicast_many`. `none` waits for the site's disk."""
        if ack not in ("none", "ordered", "safe"):
            raise LocalError(f"ack is none, ordered or safe, not {ack!r}")
        receipt = await self._sender.many(tidy(group), bodies, ack)
        return receipt.first, receipt.stamps

    async def flush(self) -> None:
        """Wait until the site has everything that was sent on its disk; raises what went wrong with any of it.

        A site that is not durable has it in its memory. Whether others have it is another matter: `ack="safe"`.
        """
        await self._sender.settle()
        self._connection.raise_error()

    def _post(self, groups: Groups, bodies: list[bytes], ack: AckLevel) -> "asyncio.Future[wire.ReceiptFrame]":
        count = self._numbers[groups] = self._numbers.get(groups, 0) + 1
        return self._connection.ask(Tag.POST, lambda number: wire.Post(number, groups, ack, bodies, count))

    async def _settle_within(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._sender.settle()
        except TimeoutError:
            raise self._sender.give_up(LostError(f"{self.site} takes nothing")) from None

    # Reading.

    async def join(
        self,
        groups: list[GroupId] | None = None,
        *,
        after: int | str | None = None,
        policy: Policy = "block",
        name: str = "",
        snapshot: Snapshot | None = None,
    ) -> None:
        """Read these groups, or all the site is in; after a position or a place, from the beginning, or from now on.

        A position (`Delivered.position`) is of one site: who reads after one, be it -1, stays with its site. A place
        (`Delivered.place`) is the same at all members: who reads after one, from the beginning (`after="beginning"`, of
        what is kept), or from now on, goes on at another member of all its groups when its own site is gone. Where
        deliveries may be undone, reading stays with its site.

        Where groups change, `await snapshot(group)` is called between two messages when somebody joins a group: it
        returns this application's state of the group, which the joiner gets as `Restored`.

        A reader that is too far behind stops its site (`block`), or is dropped (`drop`): reading then raises
        DroppedError, whose `after` is where to join again; or it misses messages (`gap`), and `events()` says which.
        The site's status calls the reader by `name`.
        """
        if policy == "gap" and snapshot is not None:
            raise LocalError("who reads with gaps has no state to give: policy gap takes no snapshot")
        if groups is not None and not groups:
            raise LocalError("no group to read; without a list, all groups of the site are read")
        self._connection.raise_error()
        self._snapshot = snapshot
        begin = after == BEGINNING
        place = place_of(after) if isinstance(after, str) and not begin else None
        position = after if isinstance(after, int) else None
        gives = snapshot is not None
        done = self._joining = self._connection.ask(
            Tag.JOIN,
            lambda number: wire.Join(number, groups, position, policy, bounded(name), gives, place, begin),
            self._begin_reading,
        )
        try:
            async with asyncio.timeout(SEEK_S if place is not None else None):
                await asyncio.shield(done)
        except TimeoutError:
            await self.leave()
            raise LocalError(f"{self.site} has not delivered the message of this place within {SEEK_S:g} s") from None
        finally:
            if done.done() and self._joining is done:
                self._joining = None

    async def leave(self) -> None:
        """Read no more: who reads finds the end, and what was not read by now is not read."""
        self._connection.raise_error()
        if self._reading is not None:
            self._reading.leave()
            self._reading = None
        await self._connection.ask(Tag.LEAVE, wire.Leave)

    async def joined(self) -> _Reading:
        """Return what was joined; joins all groups of the site if nothing was."""
        if self._reading is None:
            await (self.join() if self._joining is None else asyncio.shield(self._joining))
        assert self._reading is not None
        return self._reading

    def _begin_reading(self, _: Any) -> None:
        """What is delivered from now on is what was joined."""
        if self._reading is not None:  # it was dropped
            self._reading.leave()
        self._reading = _Reading(self._connection, self._snapshot)

    def _heard(self, tag: int, said: Any) -> None:
        """Take what the site says unasked."""
        if tag == Tag.LOT and self._reading is not None:
            lot = Lot(said.position, said.groups, said.source, said.first, said.stamp, said.body)
            self._reading.put(lot)
        elif tag == Tag.LOT:
            _taken(self._connection, len(said.body))  # it was under way when the client left
        elif tag == Tag.DROPPED and self._reading is not None:
            self._reading.drop(DroppedError(bounded(said.reason, 500), said.after))
        elif tag == Tag.WANT_STATE and self._reading is not None:
            self._reading.put(said)

    def lots(self) -> Lots:
        """Iterate over what is delivered, in batches; joins all groups of the site if nothing was joined."""
        return Lots(self._reading or _Later(self))

    def __aiter__(self) -> Messages:
        """Iterate over what is delivered; who stops in between goes on with the next message."""
        return Messages(self._reading or _Later(self))

    def events(self) -> Events:
        """Iterate over the one stream of this member: `Delivered | ViewChanged | RolledBack | Restored | Gap`."""
        return Events(self._reading or _Later(self))

    # Changes.

    async def create_group(
        self, group: GroupId, members: list[SiteId], *, policy: str | None = None, delivery: str | None = None
    ) -> None:
        """Create a group and wait until it is there; what is not given is as in the other groups."""
        options = {"policy": policy, "delivery": delivery}
        await self.change("create", group, members, {name: value for name, value in options.items() if value})

    async def delete_group(self, group: GroupId) -> None:
        """Delete a group; what was sent to it and is not delivered is dropped."""
        await self.change("delete", group)

    async def join_group(self, group: GroupId, site: SiteId | None = None) -> None:
        """Make a site a member of a group; without a name, the site of this client."""
        await self.change("join", group, [site or self.site])

    async def leave_group(self, group: GroupId, site: SiteId | None = None) -> None:
        """Let a site be a member of a group no more; without a name, the site of this client."""
        await self.change("leave", group, [site or self.site])

    async def move_group(self, group: GroupId, *sequencers: SiteId) -> None:
        """Let one of these sites sequence a group, and all that is ordered with it; without any, a member does."""
        await self.change("move", group, sequencers)

    async def change(
        self, what: Any, group: GroupId = "", sites: Iterable[SiteId] = (), options: dict[str, str] | None = None
    ) -> None:
        """Ask for any change (`wire.clients.Change`) and wait until it is in force; raises LocalError when refused."""
        frame = lambda number: wire.Change(number, what, group, tuple(sites), options or {})  # noqa: E731
        await self._connection.ask(Tag.CHANGE, frame)

    async def configuration(self) -> dict[str, Any]:
        """Return the configuration in force, as this site knows it."""
        return cast(dict[str, Any], await self._ask("configuration", ""))

    # Asking.

    async def status(self) -> dict[str, Any]:
        """Return what the site says of itself."""
        return cast(dict[str, Any], await self._ask("status", ""))

    async def explain(self, message: str) -> dict[str, Any]:
        """Return where a message is, as far as this site knows, and what it waits for."""
        return cast(dict[str, Any], await self._ask("explain", message))

    async def _ask(self, what: Literal["status", "explain", "configuration"], about: str) -> Any:
        answer = await self._connection.ask(Tag.ASK, lambda number: wire.Ask(number, what, about))
        return msgspec.json.decode(answer.json)


def connect(
    address: str | list[str],
    token: str | None = None,
    timeout: float = CONNECT_S,
    *,
    ca: "Path | str | None" = None,
    survive: float = SURVIVE_S,
    session: bytes | None = None,
) -> Client:
    """Return a client; connect with `async with`. With `ca`, the certificates of a CA, it speaks TLS.

    Of several addresses the first that answers is taken. Where groups change, the client survives its site: for
    `survive` seconds it tries to go on, with its site or with another (docs/live.md).

    A program that may be started again to send the same once more names its `session`, 16 bytes: whoever posts the same
    batches, in the same order, in a session of that name, has each of them delivered once. Without a name a session is
    new. Sessions need groups that change.
    """
    return Client(address, token, timeout, ca=ca, survive=survive, session=session)
