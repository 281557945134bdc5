"""The client port of a site: several clients, local or remote, with tokens and rights, and back-pressure both ways."""

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ordercast.errors import LocalError, OrdercastError, PeerError
from ordercast.live.inbox import Inbox
from ordercast.names import GroupId
from ordercast.wire import links
from ordercast.wire.frames import NO_CLASS, Splitter, frame

if TYPE_CHECKING:
    from ordercast.live.outbox import AckLevel
    from ordercast.live.site import Site

CREDIT_BYTES = 4 * 2**20  # sent to a client and not yet read by it
POSTS_AT_MOST = 1024  # of one client, not yet answered


class ClientLink(asyncio.Protocol):
    """One client."""

    def __init__(self, site: "Site") -> None:
        self.site = site
        self.name: str | None = None
        self._transport: asyncio.Transport
        self._splitter = Splitter()
        self._inbox: Inbox | None = None
        self._credit = CREDIT_BYTES
        self._more = asyncio.Event()
        self._forwarding: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the login."""
        self._transport = cast(asyncio.Transport, transport)
        self.site.clients.add(self)
        if len(self.site.clients) > self.site.limits.connections:
            self._refuse(f"{self.site.me} has {self.site.limits.connections} clients, which is the limit")

    def data_received(self, data: bytes) -> None:
        """Take whole frames; what is not understood ends the connection."""
        try:
            for tag, _, _, _, payload in self._splitter.feed(data):
                self._take(tag, links.read(tag, payload))
        except PeerError as error:
            self._refuse(str(error))

    def _take(self, tag: int, said: Any) -> None:
        if self.name is None:
            if tag != links.LOGIN:
                raise PeerError("a client must log in first")
            self._login(said)
        elif tag == links.JOIN:
            self._join(said)
        elif tag == links.LEAVE:
            self._leave()
            self._write(links.RECEIPT, links.ReceiptFrame(said.id))
        elif tag == links.TAKEN:
            self._credit = min(CREDIT_BYTES, self._credit + max(0, said.bytes))
            self._more.set()
        elif tag == links.POST:
            if len(self._tasks) > POSTS_AT_MOST:
                raise PeerError(f"more than {POSTS_AT_MOST} posts without waiting for an answer")
            self._spawn(self._post(said))
        elif tag == links.ASK:
            self._answer(said)
        else:
            raise PeerError(f"tag {tag} is not expected from a client")

    def _login(self, login: links.Login) -> None:
        if login.version != links.VERSION:
            raise PeerError(f"the client speaks version {login.version}, {self.site.me} speaks {links.VERSION}")
        tokens = self.site.cluster.security.tokens
        if tokens and login.token not in tokens:
            raise PeerError("this token is not known here")
        self.name = tokens.get(login.token or "", "anyone")
        everything = sorted(self.site.deployment.groups.members)
        limits, causal = self.site.limits, self.site.cluster.causal
        welcome = links.Welcome(self.site.me, sorted(self.site.groups), everything, limits.body_bytes, causal)
        self._write(links.WELCOME, welcome)

    def _allowed(self, what: str, groups: tuple[GroupId, ...] | list[GroupId]) -> None:
        rights: dict[str, list[GroupId]] = getattr(self.site.cluster.security, what)
        if not rights:
            return
        allowed = rights.get(str(self.name), [])  # where there are rules, who has none may do nothing
        for group in groups:
            if group not in allowed:
                raise LocalError(f"client {self.name} may not {what} in group {group}")

    def _join(self, join: links.Join) -> None:
        """Begin to send what is delivered; a refusal is the answer, and changes nothing else."""
        try:
            if self._inbox is not None:
                raise LocalError("this client has joined already; leave first")
            self._allowed("receive", join.groups if join.groups is not None else sorted(self.site.groups))
            inbox = self.site.inbox(join.groups, after=join.after)
        except LocalError as error:
            self._write(links.RECEIPT, links.ReceiptFrame(join.id, error=str(error)))
            return
        self._inbox, self._credit = inbox, CREDIT_BYTES
        self._write(links.RECEIPT, links.ReceiptFrame(join.id))
        self._forwarding = self._spawn(self._forward(inbox))

    def _leave(self) -> None:
        if self._forwarding is not None:
            self._forwarding.cancel()
            self._forwarding = None
        if self._inbox is not None:
            self.site.leave(self._inbox)
            self._inbox = None

    async def _forward(self, inbox: Inbox) -> None:
        """Send what is delivered, as fast as the client reads."""
        try:
            async for lot in inbox.lots():
                while self._credit <= 0:
                    self._more.clear()
                    await self._more.wait()
                self._credit -= len(lot.body)
                fields = (lot.position, lot.groups, lot.source, lot.first, lot.stamp, lot.body)
                self._write(links.LOT, links.LotFrame(*fields))
        except OrdercastError as error:
            self._refuse(str(error))

    async def _post(self, post: links.Post) -> None:
        try:
            self._allowed("send", post.groups)
            first, stamps = await self.site.multicast_many(post.groups, post.bodies, cast("AckLevel", post.ack))
            receipt = links.ReceiptFrame(post.id, first, stamps)
        except OrdercastError as error:
            receipt = links.ReceiptFrame(post.id, error=str(error))
        self._write(links.RECEIPT, receipt)

    def _answer(self, ask: links.Ask) -> None:
        known = self.site.status() if ask.what == "status" else self.site.explain(ask.about)
        self._write(links.ANSWER, links.Answer(ask.id, msgspec.json.encode(known)))

    def _write(self, tag: int, value: msgspec.Struct) -> None:
        if not self._transport.is_closing():
            self._transport.writelines(frame(tag, NO_CLASS, 0, 0, links.encode(value)))

    def _spawn(self, work: Any) -> asyncio.Task[None]:
        task = self.site.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def beat(self) -> None:
        """Say that the site is there."""
        if self.name is not None:
            self._transport.writelines(frame(links.HEARTBEAT, NO_CLASS, 0, 0, b""))

    def _refuse(self, reason: str) -> None:
        self.site.note("client.closed", client=self.name, reason=reason)
        self._write(links.ERROR, links.Refuse(reason[:500]))
        self._transport.close()

    def close(self) -> None:
        """End the connection."""
        self._transport.close()

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the client."""
        self.site.clients.discard(self)
        self._leave()
        for task in list(self._tasks):
            with suppress(RuntimeError):
                task.cancel()
