"""What a client sends: open batches, the window that keeps it within the site's bounds, and what was not taken."""

import asyncio
from collections import deque
from collections.abc import Callable

from ordercast.client.values import AckLevel, Receipt
from ordercast.errors import LocalError, LostError, OrdercastError
from ordercast.names import GroupId
from ordercast.wire import batch
from ordercast.wire.clients import MESSAGE_COST, ReceiptFrame, Welcome, cost

BATCH_BYTES, BATCH_MESSAGES = 64 * 2**10, 1024

Groups = tuple[GroupId, ...]
Post = Callable[[Groups, list[bytes], AckLevel], "asyncio.Future[ReceiptFrame]"]


class Room:
    """A window: bytes and posts that the site has not answered. Who finds it full waits; first come, first served."""

    def __init__(self, size: int, posts: int) -> None:
        self.size, self.posts = size, posts
        self.used = self.under_way = 0
        self.full = False
        """Whether somebody who comes now may have to wait."""
        self._waiting: deque[tuple[int, int, asyncio.Future[None]]] = deque()
        self._closed: OrdercastError | None = None

    async def enter(self, size: int, posts: int = 0) -> None:
        """Take bytes and posts of it; waits for them, and raises what ended the connection meanwhile."""
        if self._closed is not None:
            raise self._closed
        if not self._waiting and self._fits(size):
            self.take(size, posts)
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append((size, posts, turn))
        self.full = True
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self.leave(size, posts)
            raise

    def _fits(self, size: int) -> bool:
        """A message larger than the window goes alone."""
        return not self.used or (self.used + size <= self.size and self.under_way < self.posts)

    def take(self, size: int, posts: int) -> None:
        """Take without waiting; a negative size gives back and lets nobody in."""
        self.used += size
        self.under_way += posts
        self._look()

    def leave(self, size: int, posts: int) -> None:
        """Give back, and let in who fits now."""
        self.used -= size
        self.under_way -= posts
        assert self.used >= 0 and self.under_way >= 0, "more was given back than taken"
        while self._waiting:
            size, posts, turn = self._waiting[0]
            if not turn.done():
                if not self._fits(size):
                    break
                self.used += size
                self.under_way += posts
                turn.set_result(None)
            self._waiting.popleft()
        self._look()

    def _look(self) -> None:
        crowded = self.used >= self.size or self.under_way >= self.posts
        self.full = crowded or bool(self._waiting) or self._closed is not None

    def close(self, error: OrdercastError) -> None:
        """Nobody waits any longer."""
        self._closed = error
        for _, _, turn in self._waiting:
            if not turn.done():
                turn.set_exception(error)
        self._waiting.clear()
        self._look()


class Open:
    """Messages to the same groups, not yet posted."""

    __slots__ = ("bodies", "bytes")

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.bytes = 0


class Sender:
    """Open batches never have a group in common, so nothing overtakes what was sent to the same group before it."""

    def __init__(self, welcome: Welcome, post: Post) -> None:
        self.body_bytes, self.causal = welcome.body_bytes, welcome.causal
        self.room = Room(welcome.window_bytes, welcome.posts)
        self._send = post
        self._loop = asyncio.get_running_loop()
        self._open: dict[Groups, Open] = {}
        self._posting = False
        self._untaken: dict[asyncio.Future[ReceiptFrame], int] = {}
        self._refused: OrdercastError | None = None
        self._ended: OrdercastError | None = None
        self._lost = 0  # messages that nobody waited for and that the site has not answered before the end

    async def one(self, groups: Groups, body: bytes) -> Receipt | None:
        """Put a message into a batch; it is posted at the next turn of the loop, or when it is full."""
        if self._refused is not None:
            self.raise_refusal()
        if type(body) is not bytes:
            raise LocalError(f"a message is bytes, not {type(body).__name__}")
        if len(body) > self.body_bytes:
            raise LocalError(f"a message of {len(body)} bytes; at most {self.body_bytes} are allowed")
        if self.room.full:
            size = len(body) + MESSAGE_COST
            await self.room.enter(size)
            self.room.take(-size, 0)  # it is counted with its batch
        found = self._open.get(groups)
        if found is not None and found.bytes + len(body) > BATCH_BYTES:
            self.post_open()
            found = None
        if found is None:
            found = self._begin(groups)
        found.bodies.append(body)
        found.bytes += len(body)
        if found.bytes >= BATCH_BYTES or len(found.bodies) >= BATCH_MESSAGES:
            self.post_open()
            await asyncio.sleep(0)
        return None  # there is no receipt

    async def many(self, groups: Groups, bodies: list[bytes], ack: AckLevel) -> ReceiptFrame:
        """Post messages as a batch of their own, after what was sent before, and wait for the receipt."""
        self.raise_refusal()
        batch.check(bodies, self.body_bytes)
        if any(type(body) is not bytes for body in bodies):
            raise LocalError("messages are bytes")
        size = cost(bodies)
        await self.room.enter(size, posts=1)
        self.post_open()
        return await asyncio.shield(self._post(groups, bodies, ack, size))

    def _begin(self, groups: Groups) -> Open:
        """Start a batch; what was sent to one of these groups before goes before (to any, in causal order)."""
        if self.causal or any(not set(groups).isdisjoint(other) for other in self._open):
            self.post_open()
        found = self._open[groups] = Open()
        if not self._posting:
            self._posting = True
            self._loop.call_soon(self.post_open)
        return found

    def post_open(self) -> None:
        """Post what is open."""
        self._posting = False
        batches, self._open = self._open, {}
        for groups, found in batches.items():
            size = found.bytes + MESSAGE_COST * len(found.bodies)
            self.room.take(size, 1)  # a batch more than the window: the site allows for it
            done = self._post(groups, found.bodies, "none", size)
            self._untaken[done] = len(found.bodies)
            done.add_done_callback(self._settled)

    def _post(self, groups: Groups, bodies: list[bytes], ack: AckLevel, size: int) -> asyncio.Future[ReceiptFrame]:
        """Post what has entered the room; it leaves with the answer."""
        done = self._send(groups, bodies, ack)
        done.add_done_callback(lambda _: self.room.leave(size, 1))
        return done

    def _settled(self, done: asyncio.Future[ReceiptFrame]) -> None:
        """Remember what was not taken: the next `multicast` or `flush` raises."""
        many = self._untaken.pop(done)
        error = None if done.cancelled() else done.exception()
        if error is not None and error is self._ended:
            self._lost += many
        elif isinstance(error, OrdercastError):
            self._refused = self._refused or error

    async def settle(self) -> None:
        """Wait until the site has answered all that nobody waits for; raises what was refused, or lost."""
        self.post_open()
        waited = list(self._untaken)
        if waited:
            await asyncio.wait(waited)
            await asyncio.sleep(0)  # what happens when one is done happens at the next turn
        if self._ended is not None and self._lost:
            raise self._lost_error(self._ended)
        self.raise_refusal()
        for done in waited:  # another task may have been told; whoever waited for it is told too
            if not done.cancelled() and (error := done.exception()) is not None and error is not self._ended:
                raise error

    def raise_refusal(self) -> None:
        """Raise, once, what the site has refused of what nobody waited for."""
        refused, self._refused = self._refused, None
        if refused is not None:
            raise refused

    def end(self, error: OrdercastError) -> None:
        """The connection has ended."""
        self._ended = error
        self.room.close(error)

    def give_up(self, error: OrdercastError) -> LostError:
        """Wait no longer; return the error that says how much has no answer."""
        self._lost += sum(self._untaken.values())
        return self._lost_error(error)

    def _lost_error(self, error: OrdercastError) -> LostError:
        lost = "1 message was" if self._lost == 1 else f"{self._lost} messages were"
        return LostError(f"{error}; {lost} not taken")
