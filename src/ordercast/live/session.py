"""One client of a site: login, posts, questions; each with a bound. `reading` has what is sent to it.

Reading stops (`_hold`) for named reasons, in the middle of what has arrived if need be, and goes on when all are gone:
`posts`, too many are not answered; `answers`, the client does not read them; `large`, no room for a large frame;
`login`, a wrong token waits for its answer.
"""

import asyncio
from collections import deque
from collections.abc import Coroutine, Iterator
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ordercast.errors import LocalError, OrdercastError, PeerError, bounded
from ordercast.live.answers import WRITE_AHEAD, Answers
from ordercast.live.reading import Reading
from ordercast.node.node import Phase
from ordercast.wire import clients as wire
from ordercast.wire.frames import FRAME_AT_MOST, GREETING_AT_MOST, Frame, Splitter, frame
from ordercast.wire.tags import Code, Tag

if TYPE_CHECKING:
    from ordercast.live.port import Port

LOGIN_S = 5.0
IDLE_S = 60.0  # a client beats every second unless its program is busy
LARGE_S = 60.0  # for a large frame, from the moment it is announced
CLOSE_S = 5.0  # for the client to read why
POSTS = 1024  # of one client, not yet answered; as `Welcome` says
LARGE = GREETING_AT_MOST


class Session(Answers):
    """One connection; `name` is known once it has logged in."""

    def __init__(self, port: "Port") -> None:
        self.port, self.site = port, port.site
        self.name: str | None = None
        self._session: bytes | None = None  # of a client that survives its site
        self._loop = self.site.loop
        self._heard = self._loop.time()
        self._transport: asyncio.Transport
        self._splitter = Splitter(GREETING_AT_MOST)
        self._arrived: deque[bytes] = deque()
        self._frames: Iterator[Frame] = iter(())
        self._holds: set[str] = set()
        self.share = 0
        self._large = 0  # bytes taken from the port's budget for the frame that is read
        self._large_since = 0.0
        self._posts = self._post_bytes = 0
        self._reading = Reading(self)
        self.writing_paused = False
        self._tasks: set[asyncio.Task[None]] = set()
        self._login_timer = self._loop.call_later(0, lambda: None)  # begins when the connection is made

    # The connection.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the login."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_AHEAD)
        self._login_timer = self._loop.call_later(LOGIN_S, self._too_late)
        self.port.arrived(self)

    def connection_lost(self, error: Exception | None) -> None:
        """Forget the client; what it has posted and the site has taken goes on."""
        self._login_timer.cancel()
        self._arrived.clear()
        self._frames = iter(())
        self._reading.leave()
        for task in list(self._tasks):
            task.cancel()
        if self._large:
            self.port.large.give(self._large)
            self._large = 0
        self.port.left(self, self.share)
        self.share = 0

    def refuse(self, reason: str, code: Code) -> None:
        """Say why, and close; a client that does not read it is cut off."""
        if self._transport.is_closing():
            return
        self.site.note("client.closed", client=self.name, code=str(code), reason=bounded(reason))
        self.write(Tag.ERROR, wire.Error(bounded(reason, 500), code))
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._arrived.clear()
        self._transport.close()
        self._loop.call_later(CLOSE_S, self._transport.abort)

    def _too_late(self) -> None:
        if self.name is None:
            self.refuse(f"no login within {LOGIN_S:g} s", Code.SILENT)

    def beat(self, now: float) -> None:
        """Say that the site is there; give up on a client that is not, or that does not finish a large frame."""
        if self.name is None or self._transport.is_closing():
            return
        if self._large_since and now - self._large_since > LARGE_S:
            size = self._splitter.announced
            self.refuse(f"a frame of {size} bytes was not read within {LARGE_S:g} s", Code.BUSY)
        elif now - self._heard > IDLE_S and not self._holds:
            self.refuse(f"nothing was heard for {IDLE_S:g} s", Code.SILENT)
        elif not self.writing_paused:
            self._transport.writelines(frame(Tag.HEARTBEAT, 0, 0, b""))

    # Bytes in.

    def data_received(self, data: bytes) -> None:
        """Take whole frames; what is not understood ends the connection."""
        self._heard = self._loop.time()
        self._arrived.append(data)
        self._work()

    def _work(self) -> None:
        try:
            while not self._holds and not self._transport.is_closing():
                for tag, *_, payload in self._frames:
                    self._take(tag, payload)
                    break
                else:
                    if self._splitter.announced > LARGE and not self._large:
                        self._take_large(self._splitter.announced)
                    if not self._arrived or self._holds:
                        return
                    self._frames = self._splitter.feed(self._arrived.popleft())
        except PeerError as error:
            self.refuse(str(error), Code.BAD_BYTES)

    def _take_large(self, size: int) -> None:
        self._large_since = self._loop.time()
        if self.port.large.take(self, size):
            self._large = size
        else:
            self._hold("large")

    def let_in(self, size: int) -> None:
        """There is room for the large frame this session waits with."""
        self._large = size
        self._release("large")

    def _hold(self, why: str) -> None:
        if not self._holds and not self._transport.is_closing():
            self._transport.pause_reading()
        self._holds.add(why)

    def _release(self, why: str) -> None:
        if why not in self._holds:
            return
        self._holds.discard(why)
        if not self._holds and not self._transport.is_closing():
            self._heard = self._loop.time()
            self._transport.resume_reading()
            self._loop.call_soon(self._work)

    def _take(self, tag: int, payload: memoryview) -> None:
        large, self._large, self._large_since = self._large, 0, 0.0
        try:
            if tag == Tag.HEARTBEAT:
                return
            said = wire.from_client(tag, payload)
            if tag == Tag.POST and self.name is not None:
                self._posted(said, large)
                large = 0
            else:
                self._take_other(tag, said)
        finally:
            if large:
                self.port.large.give(large)

    def _take_other(self, tag: int, said: Any) -> None:
        if self.name is None:
            if tag != Tag.LOGIN:
                raise PeerError("a client must log in first")
            self._login(said)
        elif tag == Tag.JOIN:
            self._reading.join(said)
        elif tag == Tag.LEAVE:
            self._reading.leave()
            self.write(Tag.RECEIPT, wire.ReceiptFrame(said.id))
        elif tag == Tag.TAKEN:
            self._reading.taken(said.bytes)
        elif tag == Tag.ASK:
            self._asked(said)
        elif tag == Tag.CHANGE:
            self.spawn(self._change(said))
        elif tag == Tag.GIVE_STATE:
            self._reading.given(said)
        else:
            raise PeerError(f"tag {tag} is not expected from a client")

    def _asked(self, ask: wire.Ask) -> None:
        """Answer a question, if the client may look."""
        try:
            self.port.doorman.check_look(str(self.name))
            known = self.site.asked(ask.what, ask.about)
        except LocalError as error:
            self._answer(Tag.RECEIPT, wire.ReceiptFrame(ask.id, error=bounded(str(error), 500), code=Code.REFUSED))
        else:
            self._answer(Tag.ANSWER, wire.Answer(ask.id, msgspec.json.encode(known)))

    async def _change(self, asked: wire.Change) -> None:
        """Ask for a change, if the client may, and answer when it is in force."""
        try:
            self.port.doorman.check_admin(str(self.name))
            await self.site.change(asked.what, asked.group, asked.sites, asked.options)
            receipt = wire.ReceiptFrame(asked.id)
        except OrdercastError as error:
            code = Code.REFUSED if isinstance(error, LocalError) else Code.FAILED
            receipt = wire.ReceiptFrame(asked.id, error=bounded(str(error), 500), code=code)
        self._answer(Tag.RECEIPT, receipt)

    def _login(self, login: wire.Login) -> None:
        site = self.site
        if login.version != wire.VERSION:
            reason = f"the client speaks version {login.version}, {site.me} speaks {wire.VERSION}"
            self.refuse(reason, Code.VERSION)
            return
        name = self.port.doorman.who(login.token)
        if name is None:
            peer = self._transport.get_extra_info("peername") or ("?",)
            wait = self.port.brake.wrong(str(peer[0]), self._loop.time())
            self._hold("login")
            self._loop.call_later(wait, self.refuse, "this token is not known here", Code.TOKEN)
            return
        self.name, self.share = name, self.port.grant()
        self._session = login.session if site.changes is not None else None
        self._login_timer.cancel()
        self._splitter.at_most = FRAME_AT_MOST
        bounds = (site.limits.body_bytes, self.share, POSTS, site.node.causal)
        self.write(
            Tag.WELCOME,
            wire.Welcome(
                site.me, sorted(site.groups), site.all_groups, *bounds, site.others, site.node.incarnation, site.disks
            ),
        )

    # Posts and answers.

    def _posted(self, post: wire.Post, large: int) -> None:
        """Take a post. A client that keeps to its window is never held: it may be reading on this connection too."""
        size = wire.cost(post.bodies)
        self._posts += 1
        self._post_bytes += size
        if self._posts > 2 * POSTS or (self._post_bytes > 2 * self.share and self._posts > 1):
            self._hold("posts")
        task = self.spawn(self._post(post))
        task.add_done_callback(lambda _: self._post_ended(size, large))

    async def _post(self, post: wire.Post) -> None:
        """Send; without an acknowledgement the answer says that it is on this site's disk."""
        site = self.site
        try:
            self.port.doorman.check(str(self.name), "send", post.groups)
            origin = (self._session, post.number) if self._session is not None and post.number else None
            first, stamps = await site.multicast_many(post.groups, post.bodies, post.ack, origin, post.disks)
            receipt = wire.ReceiptFrame(post.id, first, stamps)
        except OrdercastError as error:
            code = Code.REFUSED if isinstance(error, LocalError) else Code.FAILED
            if (site.removed or site.node.phase is not Phase.RUNNING) and self._session is not None:
                code = Code.BUSY  # nothing was changed, and another site may take it
            receipt = wire.ReceiptFrame(post.id, error=bounded(str(error), 500), code=code)
        self._answer(Tag.RECEIPT, receipt)

    def _post_ended(self, size: int, large: int) -> None:
        """Give back what a post held, whatever became of it."""
        self._posts -= 1
        self._post_bytes -= size
        if large:
            self.port.large.give(large)
        if self._posts <= POSTS and (self._post_bytes <= self.share or self._posts <= 1):
            self._release("posts")

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Do something that ends with the connection."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
