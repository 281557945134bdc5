"""What a client reads: an inbox of the site, sent on as fast as the client takes it."""

import asyncio
import time
from typing import TYPE_CHECKING

from ordercast.errors import DroppedError, LocalError, OrdercastError, PeerError, bounded
from ordercast.live.inbox import Inbox
from ordercast.names import GroupId
from ordercast.wire import clients as wire
from ordercast.wire.tags import Code, Tag

if TYPE_CHECKING:
    from ordercast.live.session import Session


class Reading:
    """One per session. Bytes sent and not taken are at most the session's share, and one lot more."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._unread = 0
        self._inbox: Inbox | None = None
        self._forwarding: asyncio.Task[None] | None = None
        self._more = asyncio.Event()
        self._asked: dict[int, asyncio.Future[bytes]] = {}  # states that the client was asked for

    def join(self, join: wire.Join) -> None:
        """Begin to send what is delivered; a refusal is the answer, and changes nothing else."""
        session = self._session
        first = self._first(join)
        try:
            inbox = self._open(join, first)
        except LocalError as error:
            session.write(Tag.RECEIPT, _refused(join, error))
            return
        self._inbox = inbox
        if join.place is not None:
            self._forwarding = session.spawn(self._seek(inbox, join))
            return
        session.write(Tag.RECEIPT, wire.ReceiptFrame(join.id, first))
        self._forwarding = session.spawn(self._forward(inbox, first - 1))

    async def _seek(self, inbox: Inbox, join: wire.Join) -> None:
        """Answer when the message is found after which the client reads; then send."""
        session = self._session
        try:
            first = await inbox.begin()
        except LocalError as error:
            self._forwarding = None
            self.leave()
            session.write(Tag.RECEIPT, _refused(join, error))
            return
        except asyncio.CancelledError:
            session.write(Tag.RECEIPT, _refused(join, LocalError("the client has left")))
            raise
        session.write(Tag.RECEIPT, wire.ReceiptFrame(join.id, first))
        await self._forward(inbox, first - 1)

    def _first(self, join: wire.Join) -> int:
        """Return the position to begin with."""
        site = self._session.site
        if join.begin:
            return site.node.history.first_position
        return join.after + 1 if join.after is not None else site.delivered

    def _open(self, join: wire.Join, first: int) -> Inbox:
        session, site = self._session, self._session.site
        if self._inbox is not None:
            raise LocalError("this client has joined already; leave first")
        if join.groups is not None and not join.groups:
            raise LocalError("no group to read; without a list, all groups of the site are read")
        if not join.name.isprintable():
            raise LocalError("a reader's name must be printable")
        own = (group for group in sorted(site.groups) if "+" not in group)  # unions are no groups to rules
        session.port.doorman.check(str(session.name), "receive", own if join.groups is None else join.groups)
        name = f"{session.name}/{join.name}" if join.name else str(session.name)
        if join.gives and not site.cluster.states:
            raise LocalError("applications give no states here: states = true is not in the cluster's file")
        snapshot = self._ask_state if join.gives else None
        after = join.place if join.place is not None else first - 1
        return site.inbox(join.groups, after=after, name=name, policy=join.policy, snapshot=snapshot)

    async def _ask_state(self, group: GroupId) -> bytes:
        """Ask the client for its state of a group; it answers when it has read what it was sent."""
        number = time.time_ns()  # no two questions are the same, on whatever connection
        done: asyncio.Future[bytes] = self._session.site.loop.create_future()
        self._asked[number] = done
        self._session.write(Tag.WANT_STATE, wire.WantState(number, group))
        try:
            return await done
        finally:
            del self._asked[number]

    def given(self, said: wire.State) -> None:
        """The client gives a state."""
        done = self._asked.get(said.id)
        if done is None:
            raise PeerError(f"state {said.id} was not asked for")
        if not done.done():
            done.set_result(said.state)

    def leave(self) -> None:
        """Send nothing more. What is on its way still counts until the client has taken it."""
        if self._forwarding is not None:
            self._forwarding.cancel()
            self._forwarding = None
        if self._inbox is not None:
            self._session.site.leave(self._inbox)
            self._inbox = None

    def taken(self, size: int) -> None:
        """The client has read so much; it cannot have read what it was not sent."""
        if size > self._unread:
            raise PeerError(f"{size} bytes were taken, {self._unread} were sent")
        self._unread -= size
        self.go_on()

    def go_on(self) -> None:
        """There may be room for more."""
        self._more.set()

    async def _forward(self, inbox: Inbox, last: int) -> None:
        session, site = self._session, self._session.site
        try:
            while True:
                while self._unread >= session.share or session.writing_paused:
                    self._more.clear()
                    await self._more.wait()
                lot = await inbox.take()
                if lot is None:
                    return
                last = lot.last
                self._unread += len(lot.body)
                fields = (lot.position, lot.groups, lot.source, lot.first, lot.stamp, lot.body)
                session.write(Tag.LOT, wire.LotFrame(*fields))
        except DroppedError as error:
            site.note("reader.dropped", client=session.name, after=last)
            self._forwarding = None
            self.leave()
            session.write(Tag.DROPPED, wire.Dropped(bounded(error.reason, 500), last))
        except OrdercastError as error:
            session.refuse(str(error), Code.FAILED)


def _refused(join: wire.Join, error: LocalError) -> wire.ReceiptFrame:
    return wire.ReceiptFrame(join.id, error=bounded(str(error), 500), code=Code.REFUSED)
