"""What a site sends: open batches, what is not safe yet, receipts, and the window that holds senders back."""

import asyncio
from typing import TYPE_CHECKING, Any, NamedTuple

from ordercast.client.values import AckLevel, Destination, Receipt, tidy
from ordercast.core.events import Multicast
from ordercast.errors import LocalError, OrdercastError
from ordercast.names import GroupId
from ordercast.wire import batch

if TYPE_CHECKING:
    from ordercast.live.site import Site

LINGER_S = 0.002  # a batch waits so long for more when many are under way
IDLE_S = 0.001  # a site that has sent nothing for so long sends at once
MANY_UNDER_WAY = 16
UNDER_WAY_AT_MOST = 1000  # envelopes of a site whose protocol gives no receipts


class Batch:
    """Messages of this site to the same groups, not yet sent."""

    __slots__ = ("bodies", "bytes", "groups", "waiting")

    def __init__(self, groups: tuple[GroupId, ...]) -> None:
        self.groups = groups
        self.bodies: list[bytes] = []
        self.bytes = 0
        self.waiting: list[tuple[int, AckLevel, asyncio.Future[Receipt]]] = []


class Exported(NamedTuple):
    """A batch of this site that goes into the run directory, once it is on disk."""

    first: int
    many: int
    groups: tuple[GroupId, ...]
    after: int


class Sent:
    """An envelope of this site that is not safe."""

    __slots__ = ("bytes", "first", "groups", "many", "restored", "since", "stamp", "waiting")

    def __init__(
        self, groups: tuple[GroupId, ...], first: int, many: int, size: int, since: float, stamp: bytes | None = None
    ) -> None:
        self.groups, self.first, self.many, self.bytes, self.since = groups, first, many, size, since
        self.stamp, self.restored = stamp, False
        self.waiting: list[tuple[int, AckLevel, asyncio.Future[Receipt]]] = []

    def answer(self, level: AckLevel) -> None:
        """Tell those who wait for this."""
        for index, wanted, done in self.waiting:
            if wanted == level and not done.done():
                stamp = None if self.stamp is None else self.stamp + index.to_bytes(4, "big")
                done.set_result(Receipt(self.first + index, stamp))
        self.waiting = [waiting for waiting in self.waiting if not waiting[2].done()]


class Outbox:
    """One per site. Open batches never have a group in common, so nothing overtakes what was sent before it."""

    def __init__(self, site: "Site") -> None:
        self.site, self.limits = site, site.limits
        self.messages = 0  # sent by this site
        self.sent: dict[int, Sent] = {}
        self.unsafe_bytes = 0
        self.under_way = 0  # envelopes, where the protocol gives no receipts
        self._open: dict[tuple[GroupId, ...], Batch] = {}
        self._sending: asyncio.TimerHandle | asyncio.Handle | None = None
        self._last_sent = 0.0
        self._room = asyncio.Event()
        self._posting = asyncio.Lock()

    async def multicast(self, destination: Destination, body: bytes, ack: AckLevel) -> Receipt | None:
        """Send one message; see `Site.multicast`."""
        if self.crowded:
            await self._wait_for_room()
        groups = (destination,) if type(destination) is str else tidy(destination)
        batch = self._open.get(groups)
        if batch is None or ack != "none":  # the usual message joins an open batch, which was checked
            self._check(groups, ack)
        if type(body) is not bytes:
            raise LocalError(f"a message is bytes, not {type(body).__name__}")
        size, limits = len(body), self.limits
        if size > limits.body_bytes:
            raise LocalError(f"a message of {size} bytes; at most {limits.body_bytes} are allowed")
        if batch is not None and batch.bytes + size > limits.envelope_bytes:
            self._send(batch)
            batch = None
        if batch is None:
            batch = self._begin(groups)
        batch.bodies.append(body)
        batch.bytes += size
        full = batch.bytes >= limits.envelope_bytes or len(batch.bodies) >= limits.envelope_messages
        if ack != "none":
            done: asyncio.Future[Receipt] = self.site.loop.create_future()
            batch.waiting.append((len(batch.bodies) - 1, ack, done))
            if full:
                self._send(batch)
                self.site.end_round()
            return await done
        if full:
            self._send(batch)
            self.site.end_round()
            await asyncio.sleep(0)
        elif self.site.loop.time() - self._last_sent > IDLE_S:
            self.send_open()
        return None

    async def multicast_many(
        self, destination: Destination, bodies: list[bytes], ack: AckLevel
    ) -> tuple[int, list[bytes | None]]:
        """Send messages as one batch of their own; see `Site.multicast_many`."""
        size = batch.check(bodies, self.limits.body_bytes)
        groups = tidy(destination)
        async with self._posting:  # who came first is sent first
            await self._wait_for_room()
            self._check(groups, ack)
            self._send_all()
            own = self._begin(groups)
            own.bodies += bodies
            own.bytes = size
            done: list[asyncio.Future[Receipt]] = []
            if ack != "none":
                done = [self.site.loop.create_future() for _ in bodies]
                own.waiting += [(index, ack, future) for index, future in enumerate(done)]
            first = self.messages + 1
            self._send(own)
            self.site.end_round()
        return first, [receipt.stamp for receipt in await asyncio.gather(*done)]

    def _check(self, groups: tuple[GroupId, ...], ack: AckLevel) -> None:
        """Raise what is wrong before anything is changed."""
        site = self.site
        if site.failed is not None:
            raise site.failed
        if site.stopping:
            raise LocalError("the site was stopped")
        if ack not in ("none", "ordered", "safe"):
            raise LocalError(f"ack is none, ordered or safe, not {ack!r}")
        if ack != "none" and not site.deployment.receipts:
            raise LocalError(f"protocol {site.cluster.protocol} gives no receipts: ack must be 'none'")
        site.check_destination(groups)

    def _begin(self, groups: tuple[GroupId, ...]) -> Batch:
        """Start a batch: it is sent at the next turn of the loop, or a little later when many are under way."""
        causal = self.site.cluster.causal
        for earlier in list(self._open.values()):  # what went to one of these groups before must go before
            if causal or not set(earlier.groups).isdisjoint(groups):
                self._send(earlier)
        found = self._open[groups] = Batch(groups)
        if self._sending is None:
            if len(self.sent) > MANY_UNDER_WAY:
                self._sending = self.site.loop.call_later(LINGER_S, self.send_open)
            else:
                self._sending = self.site.loop.call_soon(self.send_open)
        return found

    def send_open(self) -> None:
        """Send what is open."""
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
        if self.site.failed is None:
            self._send_all()
            self.site.end_round()

    def _send_all(self) -> None:
        for open_batch in list(self._open.values()):
            self._send(open_batch)

    def _send(self, open_batch: Batch) -> None:
        site, groups = self.site, open_batch.groups
        self._open.pop(groups, None)
        if not open_batch.bodies:
            return
        first = self.messages + 1
        self.messages += len(open_batch.bodies)
        number = site.machine.sent + 1
        self._last_sent = site.loop.time()
        sent = self.sent[number] = Sent(groups, first, len(open_batch.bodies), open_batch.bytes, site.clock())
        sent.waiting = open_batch.waiting
        self.unsafe_bytes += open_batch.bytes
        site.counts["batches"] += 1
        site.originate(Multicast(groups, batch.pack(first, open_batch.bodies), bool(open_batch.waiting)))
        if site.export is not None:
            site.do([Exported(first, len(open_batch.bodies), groups, site.delivered)])
        if not site.deployment.receipts:
            self.under_way += 1
            self.safe(number)

    def restore(self, number: int, *sent: Any) -> None:
        """An envelope of an earlier life is not known to be safe: acknowledgements are not in the history.

        It does not count in the window: most were safe, and who asks again for what is missing is the edge.
        """
        self.sent[number] = Sent(*sent)
        self.sent[number].restored = True

    def frozen(self, upto: int) -> list[tuple[Any, ...]]:
        """Return what `restore` takes of each envelope that is not safe, up to a number.

        Those behind it are not written yet: who is killed before they are has never sent them.
        """
        return [(n, s.groups, s.first, s.many, 0, s.since, s.stamp) for n, s in self.sent.items() if n <= upto]

    # The window.

    @property
    def crowded(self) -> bool:
        """Whether senders have to wait."""
        return self.unsafe_bytes > self.limits.window_bytes or self.under_way > UNDER_WAY_AT_MOST

    def count_under_way(self) -> None:
        """Without receipts: what the slowest peer has not acknowledged, or what is held here, whichever is more."""
        machine = self.site.machine
        edges = getattr(machine, "edges", None)
        self.under_way = max(edges.under_way if edges is not None else 0, len(machine.held()))
        self._let_in()

    async def _wait_for_room(self) -> None:
        while self.crowded and self.site.failed is None and not self.site.stopping:
            self._room.clear()
            await self._room.wait()

    def _let_in(self) -> None:
        if not self.crowded:
            self._room.set()

    # What became of it.

    def placed(self, number: int, stamp: bytes) -> None:
        """An envelope has its place."""
        sent = self.sent.get(number)
        if sent is not None:
            sent.stamp = stamp
            sent.answer("ordered")

    def safe(self, number: int) -> None:
        """Every member has an envelope."""
        sent = self.sent.pop(number, None)
        if sent is None:
            return
        self.unsafe_bytes -= sent.bytes
        self._let_in()
        sent.answer("ordered")
        sent.answer("safe")

    def lose(self, error: OrdercastError) -> None:
        """Nothing will come of what was sent: tell all who wait, and let others send."""
        for sent in self.sent.values():
            _fail(sent.waiting, error)
        self.sent.clear()
        self.unsafe_bytes = self.under_way = 0
        self._room.set()

    def close(self, error: OrdercastError) -> None:
        """Nothing more is sent, and nobody waits any longer."""
        for open_batch in self._open.values():
            _fail(open_batch.waiting, error)
        self._open.clear()
        self.lose(error)

    def wake(self) -> None:
        """Let who waits look again: the site stops."""
        self._room.set()


def _fail(waiting: list[tuple[int, AckLevel, asyncio.Future[Receipt]]], error: OrdercastError) -> None:
    for _, _, done in waiting:
        if not done.done():
            done.set_exception(error)
