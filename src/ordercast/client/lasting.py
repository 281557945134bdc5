"""A connection that outlives the connections it is made of: the client survives its site.

When a connection ends, another one is made: to the same site, wherever it is now; or to another one, when everything
that was answered is safe, so that nothing overtakes what the first site may still send. Posts that were not answered
are made again, under the same session and numbers, so that each is delivered once. Reading goes on after the last
position; at another site after the last message, unless the application has asked for a position: those are of one
site. Only where groups change: elsewhere nobody drops what is posted twice, and the end of the connection is the end.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from ordercast.client.bookmark import Bookmark
from ordercast.client.connection import Connection
from ordercast.errors import LocalError, LostError, OrdercastError, UnreachableError
from ordercast.wire import clients as wire
from ordercast.wire.tags import Tag

if TYPE_CHECKING:
    from pathlib import Path

FIRST_S, LAST_S = 0.05, 1.0  # between two tries
STAY_S = 3.0  # so long its own site is waited for: it may be starting again
SEEK_S = 20.0  # so long a site may look for the message that was read last


class Asked:
    """Something that waits for its answer."""

    __slots__ = ("done", "said", "tag", "then")

    def __init__(
        self, tag: int, said: Callable[[int], msgspec.Struct], then: Callable[[Any], None] | None, done: Any
    ) -> None:
        self.tag, self.said, self.then, self.done = tag, said, then, done


class Lasting:
    """Behaves like a `Connection`."""

    def __init__(
        self, addresses: Iterable[str], heard: Callable[[int, Any], None], survive: float, session: bytes | None = None
    ) -> None:
        self.addresses, self.survive = list(addresses), survive
        self.address, self.site = self.addresses[0], ""
        self.session, self._named = session or os.urandom(16), session is not None
        self.error: OrdercastError | None = None
        """Why it has ended for good."""
        self.ended: list[Callable[[OrdercastError], None]] = []
        self.reconnects = 0
        self._heard = heard
        self._now: Connection | None = None
        self._login: tuple[str | None, float, Path | str | None] = (None, 0.0, None)
        self._survives = False
        self._life = 0  # the incarnation of the site: its positions mean nothing in another one
        self._waiting: dict[Asked, None] = {}  # posts and questions, in order: they are asked again
        self._bookmark: Bookmark | None = None  # what is read
        self._moves = False  # it is not waited for its own site any more
        self._owed: deque[Connection] = deque()  # of each lot that was not taken yet: where it came from
        self._again: asyncio.Task[None] | None = None
        self._disks: int | None = None  # what the site said of lost disks
        self._stays = False  # its site has taken messages that may not be safe: later ones must not overtake them

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    async def open(self, token: str | None, timeout: float, ca: "Path | str | None") -> wire.Welcome:
        """Connect to the first site that answers; raises what the last one said."""
        self._login = (token, timeout, ca)
        error: OrdercastError = UnreachableError("no address")
        for address in self.addresses:
            try:
                return await self._open(address)
            except UnreachableError as failed:
                error = failed
        raise error

    async def _open(self, address: str) -> wire.Welcome:
        token, timeout, ca = self._login
        made = Connection(address, lambda tag, said: self._hear(made, tag, said))
        welcome = await made.open(token, timeout, ca, self.session)
        self.addresses += [other for other in (address, *(welcome.others or ())) if other not in self.addresses]
        wrong = self._wrong(welcome)
        if wrong is not None:
            made.end(wrong)
            raise wrong
        self._now, self.address, self.site = made, address, welcome.site
        self._survives, self._life = welcome.others is not None, welcome.incarnation
        if self._disks != welcome.disks and self._disks is not None:
            self._give_up_posts()
        self._disks = welcome.disks
        made.ended.append(lambda error: self._lost(made, error))
        if made.error is not None:  # before anybody was told
            self._now = None
            raise LostError(str(made.error))
        return welcome

    def _wrong(self, welcome: wire.Welcome) -> OrdercastError | None:
        """Return why a site does not do; with a LostError another one may, or this one later."""
        if self._named and welcome.others is None:
            return LocalError(f"{welcome.site}: a session needs groups that change, and here they are fixed")
        if not self.site or (welcome.site, welcome.incarnation) == (self.site, self._life):
            return None
        mine = welcome.site == self.site
        if self._stays and not mine:
            return LostError(f"{self.site} has taken messages that may not be safe; {welcome.site} could overtake them")
        if not mine and not self._moves:
            return LostError(f"{self.site} is waited for, for {STAY_S:g} s")
        return self._bookmark.wrong(welcome) if self._bookmark is not None else None

    # Asking.

    def ask(
        self, tag: int, said: Callable[[int], msgspec.Struct], then: Callable[[Any], None] | None = None
    ) -> "asyncio.Future[Any]":
        """Say something that has an answer; see `Connection.ask`."""
        done = self._loop.create_future()
        done.add_done_callback(lambda one: one.cancelled() or one.exception())
        if self.error is not None:
            done.set_exception(self.error)
            return done
        asked = Asked(tag, said, then, done)
        if tag in (Tag.POST, Tag.ASK):
            self._waiting[asked] = None
            done.add_done_callback(lambda _: self._waiting.pop(asked, None))
        if self._now is not None:
            self._ask(self._now, asked)
        elif tag not in (Tag.POST, Tag.ASK):
            done.set_exception(LostError(f"there is no connection to {self.site} at the moment"))
        return done

    def _ask(self, connection: Connection, asked: Asked) -> None:
        if asked.tag == Tag.JOIN:
            join = asked.said(0)
            assert isinstance(join, wire.Join)
            then = asked.then

            def joined(answer: Any) -> None:
                self._bookmark = Bookmark(join, answer.first, (self.site, self._life), connection.groups)
                if then is not None:
                    then(answer)

            asked.then = joined
        elif asked.tag == Tag.LEAVE:
            self._bookmark = None
        answer = connection.ask(asked.tag, asked.said, asked.then)
        answer.add_done_callback(lambda one: self._answered(connection, asked, one))

    def _answered(self, connection: Connection, asked: Asked, answer: "asyncio.Future[Any]") -> None:
        if asked.done.done() or answer.cancelled():
            return
        error = answer.exception()
        if error is None:
            if asked.tag == Tag.POST and getattr(asked.said(0), "ack", "") != "safe":
                self._stays = True
            asked.done.set_result(answer.result())
            return
        ended = error is connection.error or (isinstance(error, UnreachableError) and asked.tag == Tag.POST)
        if ended and self._survives and self.error is None and asked in self._waiting:
            return  # it is asked again
        asked.done.set_exception(error)

    def write(self, tag: int, said: msgspec.Struct) -> None:
        """Say something that has no answer; what speaks of an earlier connection is not said."""
        if tag == Tag.TAKEN and (not self._owed or self._owed.popleft() is not self._now):
            return
        if self._now is not None:
            self._now.write(tag, said)

    def raise_error(self) -> None:
        """Raise what ended it for good, if it has ended."""
        if self.error is not None:
            raise self.error

    # Ends and beginnings.

    def _hear(self, connection: Connection, tag: int, said: Any) -> None:
        if connection is not self._now:
            return
        if tag == Tag.LOT:
            self._owed.append(connection)
            if self._bookmark is not None:
                self._bookmark.read(said)
        elif tag == Tag.DROPPED:
            self._bookmark = None
        self._heard(tag, said)
        if self._bookmark is not None and self._bookmark.left:
            connection.end(LostError(f"{self.site} is not in a group any more that is read"))

    def _lost(self, connection: Connection, error: OrdercastError) -> None:
        if connection is not self._now or self.error is not None:
            return
        left = self._bookmark is not None and self._bookmark.left  # others have what is read
        self._now, self._moves = None, connection.gone or left
        if connection.gone:  # what it had taken is in the order, or was dropped: nothing is overtaken
            self._stays = False
        if self._again is not None and not self._again.done():
            return  # it was being made
        if self._survives and self.survive > 0:
            self._again = self._loop.create_task(self._reconnect(error))
        else:
            self.end(error)

    async def _reconnect(self, error: OrdercastError) -> None:
        """Try again, less and less often, until a site answers that will do."""
        begun, wait = self._loop.time(), FIRST_S
        while self._loop.time() - begun < self.survive:
            self._moves = self._moves or self._loop.time() - begun > STAY_S
            for address in [self.address, *(one for one in self.addresses if one != self.address)]:
                try:  # others may know where the site is now
                    await self._open(address)
                    await self._go_on()
                except (UnreachableError, LostError) as failed:
                    error = failed
                except LocalError as refused:
                    if address == self.address:
                        self.end(LostError(str(refused)))
                        return
                    error = refused
                else:
                    if self._now is not None:  # it may have ended meanwhile
                        return
            await asyncio.sleep(wait)
            wait = min(2 * wait, LAST_S)
        self.end(LostError(f"no connection for {self.survive:g} s: {error}"))

    def _give_up_posts(self) -> None:
        """A site has lost its disk, and may not know which posts it had delivered: nothing is posted again."""
        error = LostError("a site has lost its disk meanwhile; whether this was sent is not known")
        for asked in [asked for asked in self._waiting if asked.tag == Tag.POST]:
            if not asked.done.done():
                asked.done.set_exception(error)

    async def _go_on(self) -> None:
        """Read on after the last position, and make the posts again that were not answered."""
        connection = self._now
        if connection is None:
            raise LostError(f"the connection to {self.address} ended")
        self.reconnects += 1
        if self._bookmark is not None:
            await self._read_on(connection, self._bookmark)
        for asked in list(self._waiting):
            if not asked.done.done():
                self._say_again(asked)
                self._ask(connection, asked)

    def _say_again(self, asked: Asked) -> None:
        """Say that a post was made before: a site that loses a disk meanwhile may not know it (errata 125)."""
        disks, said = self._disks or 0, asked.said
        if asked.tag == Tag.POST:
            asked.said = lambda number: msgspec.structs.replace(said(number), disks=disks)

    async def _read_on(self, connection: Connection, bookmark: Bookmark) -> None:
        """Join again where reading was; at another site, or in another life of it, after the last message."""
        life = (self.site, self._life)
        again = bookmark.again(life)
        done = connection.ask(
            Tag.JOIN,
            lambda number: msgspec.structs.replace(again, id=number),
            lambda answer: bookmark.joined(again, answer.first, life),  # before the first lot is looked at
        )
        try:
            async with asyncio.timeout(SEEK_S):
                await done
        except (TimeoutError, LocalError) as error:
            self._now = None
            connection.end(LostError(f"{self.site}: {error}"))
            raise LostError(f"{self.site} has not what was read last: {error}") from None

    def end(self, error: OrdercastError) -> None:
        """Nothing more comes and goes: tell everybody who waits."""
        if self.error is not None:
            return
        self.error = error
        if self._again is not None and self._again is not asyncio.current_task():
            self._again.cancel()
        for asked in list(self._waiting):
            if not asked.done.done():
                asked.done.set_exception(error)
        connection, self._now = self._now, None
        if connection is not None:
            connection.end(error)
        for tell in self.ended:
            tell(error)
