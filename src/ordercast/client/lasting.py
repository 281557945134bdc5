"""A connection that outlives the connections it is made of: the client survives its site.

When a connection ends, another one is made: to the same site, wherever it is now; or to another one, while nothing is
read and everything that was answered is safe, so that nothing overtakes what the first site may still send. Posts that
were not answered are made again, under the same session and numbers, so that each is delivered once; reading goes on
after the last position. Only where groups change: elsewhere nobody drops what is posted twice, and the end of the
connection is the end.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from ordercast.client.connection import Connection
from ordercast.errors import LocalError, LostError, OrdercastError, UnreachableError
from ordercast.wire import batch
from ordercast.wire import clients as wire
from ordercast.wire.tags import Tag

if TYPE_CHECKING:
    from pathlib import Path

FIRST_S, LAST_S = 0.05, 1.0  # between two tries
STAY_S = 3.0  # so long its own site is tried alone: it may be starting again


class Asked:
    """Something that waits for its answer."""

    __slots__ = ("done", "said", "tag", "then")

    def __init__(
        self, tag: int, said: Callable[[int], msgspec.Struct], then: Callable[[Any], None] | None, done: Any
    ) -> None:
        self.tag, self.said, self.then, self.done = tag, said, then, done


class Lasting:
    """Behaves like a `Connection`."""

    def __init__(self, addresses: Iterable[str], heard: Callable[[int, Any], None], survive: float) -> None:
        self.addresses, self.survive = list(addresses), survive
        self.address = self.addresses[0]
        self.site = ""
        self.session = os.urandom(16)
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
        self._join: wire.Join | None = None  # what is read
        self._next = 0  # the position that comes next
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
            made.end(LostError(wrong))
            raise (LocalError if welcome.site == self.site else LostError)(wrong)  # it will not be otherwise later
        self._now, self.address, self.site = made, address, welcome.site
        self._survives, self._life = welcome.others is not None, welcome.incarnation
        if self._disks != welcome.disks and self._disks is not None:
            self._give_up_posts()
        self._disks = welcome.disks
        made.ended.append(lambda error: self._lost(made, error))
        return welcome

    def _wrong(self, welcome: wire.Welcome) -> str | None:
        """Return why a site does not do: what is read are positions of one life of one site."""
        if self._join is None or (welcome.site, welcome.incarnation) == (self.site, self._life):
            return None
        if welcome.site != self.site:
            return f"positions of {self.site} mean nothing at {welcome.site}"
        return f"{self.site} has lost its disk: positions of its earlier life mean nothing any more"

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
                self._join, self._next = join, answer.first if join.after is None else join.after + 1
                if then is not None:
                    then(answer)

            asked.then = joined
        elif asked.tag == Tag.LEAVE:
            self._join = None
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
            self._next = said.position + batch.count(said.body)
        elif tag == Tag.DROPPED:
            self._join = None
        self._heard(tag, said)

    def _lost(self, connection: Connection, error: OrdercastError) -> None:
        if connection is not self._now or self.error is not None:
            return
        self._now = None
        if self._survives and self.survive > 0:
            self._again = self._loop.create_task(self._reconnect(error))
        else:
            self.end(error)

    async def _reconnect(self, error: OrdercastError) -> None:
        """Try again, less and less often, until a site answers that will do."""
        begun, wait = self._loop.time(), FIRST_S
        while self._loop.time() - begun < self.survive:
            alone = self._stays or self._loop.time() - begun < STAY_S
            for address in [self.address] if alone else [self.address, *self.addresses]:
                try:
                    await self._open(address)
                    await self._go_on()
                except (UnreachableError, LostError) as failed:
                    error = failed
                except LocalError as refused:
                    self.end(LostError(str(refused)))
                    return
                else:
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
        assert connection is not None
        self.reconnects += 1
        if self._join is not None:
            again = msgspec.structs.replace(self._join, after=self._next - 1)
            await connection.ask(Tag.JOIN, lambda number: msgspec.structs.replace(again, id=number))
        for asked in list(self._waiting):
            if not asked.done.done():
                self._ask(connection, asked)

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
