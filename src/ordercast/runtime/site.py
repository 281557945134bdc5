"""A site: one machine, its links, its history, its readers. The driver is dull: events in, effects out.

Everything a machine asks for passes one pipeline, in order. What is to be durable is written in one commit with all
that came meanwhile, and what follows in the list is done after it: so nothing is sent, delivered or acknowledged that
is not on disk. A site that is declared not durable does everything at once.
"""

import asyncio
import io
import logging
import pickle
import ssl
import time
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

import msgspec

from ordercast.core.edges import Ack, Carry, Null, Resend
from ordercast.core.effects import Append, Deliver, Effect, Placed, Safe, Send
from ordercast.core.events import Control, Event, Message, Multicast, Received, Tick
from ordercast.core.machine import Machine
from ordercast.errors import HistoryError, LocalError, OrdercastError
from ordercast.history.store import Checkpoint, History, MemoryHistory, event_of, record
from ordercast.runtime.checks import Checker
from ordercast.runtime.clients import ClientLink
from ordercast.runtime.config import Cluster, deploy, plan_hash
from ordercast.runtime.export import SECONDS, Export
from ordercast.runtime.inbox import Inbox, Lot, lot_of
from ordercast.runtime.links import Link
from ordercast.types import GroupId, SiteId
from ordercast.wire import batch
from ordercast.wire.codec import Encoder
from ordercast.wire.links import VERSION, Hello

log = logging.getLogger("ordercast")

TICK_S = 0.005  # while there is much to acknowledge: acknowledgements climb the tree at this pace
HURRY_S = 0.001
REST_S = 0.1  # while there is little to acknowledge
ACKNOWLEDGE_BYTES = 128 * 2**10
LINGER_S = 0.002  # a batch waits so long for more when many are under way
IDLE_S = 0.001  # a site that has sent nothing for so long sends at once
MANY_UNDER_WAY = 16
UNDER_WAY_AT_MOST = 1000  # envelopes of a site whose protocol gives no receipts
CHECKPOINT_BYTES = 64 * 2**20

COUNTS = ("batches", "commits", "records", "reconnects", "resent", "parked", "extra")

AckLevel = Literal["none", "ordered", "safe"]


class Receipt(msgspec.Struct, frozen=True):
    """What became of a message: its number at its source, and its place in the order of its class."""

    number: int
    stamp: bytes | None
    """None when a link broke while it was on its way: it is ordered, and safe, but nobody said where."""


class _Batch:
    """Messages of this site to the same groups, not yet sent."""

    __slots__ = ("bodies", "bytes", "groups", "key", "waiting")

    def __init__(self, key: GroupId | tuple[GroupId, ...], groups: tuple[GroupId, ...]) -> None:
        self.key, self.groups = key, groups
        self.bodies: list[bytes] = []
        self.bytes = 0
        self.waiting: list[tuple[int, AckLevel, asyncio.Future[Receipt]]] = []


class _Exported(NamedTuple):
    """A batch of this site that goes into the run directory, once it is on disk."""

    first: int
    many: int
    groups: tuple[GroupId, ...]
    after: int


class _Sent:
    """An envelope of this site that is not safe."""

    __slots__ = ("bytes", "first", "groups", "many", "since", "stamp", "waiting")

    def __init__(self, batch: _Batch, first: int, since: float) -> None:
        self.bytes, self.first, self.waiting, self.since = batch.bytes, first, batch.waiting, since
        self.groups, self.many = batch.groups, len(batch.bodies)
        self.stamp: bytes | None = None


class Site:
    """Runs embedded (`async with Site(cluster, "main-1") as site`) or as a daemon; the same class, the same API."""

    def __init__(self, cluster: Cluster, me: SiteId) -> None:
        if me not in cluster.sites:
            raise LocalError(f"{me!r} is not one of the sites: {', '.join(cluster.sites)}")
        self.cluster, self.me, self.limits = cluster, me, cluster.limits
        self.deployment = deploy(cluster)
        self.groups = frozenset(group for group, sites in self.deployment.groups.members.items() if me in sites)
        self.plan = plan_hash(cluster, self.deployment)
        self.checker = Checker(me, self.deployment)
        self.loop: asyncio.AbstractEventLoop
        self.machine: Machine
        self.history: History
        self.links: dict[SiteId, Link] = {}
        self.failed: OrdercastError | None = None
        self.delivered = 0  # messages, by now
        self.messages = 0  # sent by this site
        self.started = time.time()
        self.counts = dict.fromkeys(COUNTS, 0)
        self.commit_seconds = 0.0
        self._incarnations: dict[SiteId, int] = {}
        self._all_links: set[Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._client_server: asyncio.Server | None = None
        self._metrics_server: asyncio.Server | None = None
        self.export: Export | None = None
        self._exporting = asyncio.Lock()
        self._part_is_full = asyncio.Event()
        self.clients: set[ClientLink] = set()
        self._readers: list[Inbox] = []
        self._batches: dict[GroupId | tuple[GroupId, ...], _Batch] = {}
        self._sending: asyncio.TimerHandle | asyncio.Handle | None = None
        self._sent: dict[int, _Sent] = {}
        self._unsafe_bytes = self._under_way = 0  # bytes; envelopes, where the protocol gives no receipts
        self._room = asyncio.Event()
        self._posting = asyncio.Lock()
        self._parked: deque[tuple[SiteId, Message]] = deque()
        self._ticking: asyncio.TimerHandle | None = None
        self._last_delivered: dict[SiteId, int] = {}
        self._hurried = 0.0
        self._to_flush: dict[Link, None] = {}
        self._time = 0.0
        self._unacknowledged = 0  # bytes taken in since the last tick
        self._last_sent = 0.0
        self._active = False
        self._encoder = Encoder()
        self._records: list[bytes] = []
        self._record_bytes = 0
        self._pending: list[Effect | _Exported] = []
        self._committing = False
        self._disk: ThreadPoolExecutor | None = None
        self._stopping = False

    # Starting and stopping.

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Read the history, listen, call the others."""
        self.loop = asyncio.get_running_loop()
        self._open_history()
        host, port = self.cluster.address(self.me)
        try:
            self._server = await self.loop.create_server(
                lambda: Link(self, None), host, port, ssl=self._tls(server=True)
            )
        except OSError as error:
            raise LocalError(f"{self.me} cannot listen at {host}:{port}: {error.strerror}") from None
        if self.me in self.cluster.clients:
            await self._listen_to_clients()
        if self.me in self.cluster.metrics:
            from ordercast.runtime.metrics import serve

            self._metrics_server = await serve(self)
        if self.export is not None:
            self._spawn(self._export())
        for peer in self.cluster.sites:
            if peer > self.me:
                self._spawn(self._call(peer))
        self._spawn(self._beat())
        self.note("site.started", records=self.history.count, delivered=self.delivered)
        self._tick_soon(REST_S)

    async def _listen_to_clients(self) -> None:
        host, port = self.cluster.address(self.me, "clients")
        try:
            self._client_server = await self.loop.create_server(lambda: ClientLink(self), host, port)
        except OSError as error:
            raise LocalError(f"{self.me} cannot listen to clients at {host}:{port}: {error.strerror}") from None

    async def _export(self) -> None:
        """Write a part now and then."""
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._part_is_full.wait(), SECONDS)
            self._part_is_full.clear()
            try:
                await self._write_part()
            except OrdercastError as error:
                self._fail(error)
                return

    async def _write_part(self) -> None:
        """Write what was collected; parts appear in order."""
        assert self.export is not None
        async with self._exporting:
            await asyncio.to_thread(self.export.write, self.export.take())

    def _open_history(self) -> None:
        self.incarnation = time.time_ns() // 1_000_000
        if self.cluster.export is not None:
            folder = Path(self.cluster.folder) / self.cluster.export
            self.export = Export(folder, self.me, self.deployment.groups)
        if not self.cluster.durable:
            self.history = MemoryHistory()
            self.machine = self.deployment.machine(self.me)
            self.machine.incarnation = self.incarnation  # type: ignore[attr-defined]
            return
        from ordercast.history.disk import DiskHistory

        self.history = DiskHistory(self.cluster.data_folder / self.me)
        restored, self.machine = self._restore(self.history.checkpoint())
        for event, effects in self._replay(self.machine, restored):
            if isinstance(event, Multicast):
                first, many = batch.read_head(event.body)
                self.messages = max(self.messages, first + many - 1)
                if self.export is not None:
                    self.export.sent(first, many, event.groups, self.delivered)
            for effect in effects:
                if type(effect) is Deliver:
                    self._deliver(lot_of(effect.envelope, effect.stamp, self.delivered))
        if self.history.count == 0:
            state = self._frozen() + self._remembered()
            self.history.keep(Checkpoint(0, 0, state), from_delivered=0)
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="history")

    def _restore(self, checkpoint: Checkpoint | None) -> tuple[int, Machine]:
        """Build the machine of a checkpoint; return it and the record it stands at."""
        if checkpoint is None:
            machine = self.deployment.machine(self.me)
            return 0, machine
        data = io.BytesIO(checkpoint.state)  # our own file, with a checksum
        state = pickle.load(data)
        if state["plan"] != self.plan:
            raise HistoryError(f"the history of {self.me} is of another plan or other groups; nothing was changed")
        self._last_delivered, stamps = pickle.load(data)
        if self.export is not None:
            self.export.last = stamps
        self.incarnation, self.delivered, self.messages = state["incarnation"], checkpoint.delivered, state["messages"]
        return checkpoint.records, self.deployment.thaw(self.me, state["machine"])

    def _replay(self, machine: Machine, after: int) -> Iterator[tuple[Event, list[Effect]]]:
        for data in self.history.records(after):
            event = event_of(data)
            yield event, machine.step(event)

    def _frozen(self) -> bytes:
        state = {"plan": self.plan, "incarnation": self.incarnation, "messages": self.messages}
        return pickle.dumps(state | {"machine": self.deployment.freeze(self.machine)}, protocol=5)

    def _remembered(self) -> bytes:
        """Return what deliveries leave behind outside the machine: a second pickle, behind that of the machine.

        The machine is frozen before the effects of its last steps are done, this after them.
        """
        stamps = self.export.last if self.export is not None else {}
        return pickle.dumps((self._last_delivered, stamps), protocol=5)

    async def stop(self) -> None:
        """Send what is open, write what is to be written, and close."""
        if self._stopping:
            return
        self._stopping = True
        self._room.set()
        if self.failed is None:
            self._send_open()
            while self._committing:
                await asyncio.sleep(0.001)
        for reader in self._readers:
            reader.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for server in (self._server, self._client_server, self._metrics_server):
            if server is not None:
                server.close()
        for client in list(self.clients):
            client.close()
        for link in list(self._all_links):
            link.close()
        if self._ticking is not None:
            self._ticking.cancel()
        if self.export is not None:
            try:
                self.export.write(self.export.take())
            except OrdercastError as error:
                log.error("export.failed site=%s reason=%r", self.me, str(error))
        self._fail_receipts(LocalError("the site was stopped"))
        if self._disk is not None:
            self._disk.shutdown()
        self.history.close()
        self.note("site.stopped")

    def _spawn(self, work: Any) -> None:
        task = self.loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def note(self, event: str, **facts: Any) -> None:
        """Log one line: a stable name and facts."""
        log.info("%s site=%s %s", event, self.me, " ".join(f"{name}={value!r}" for name, value in facts.items()))

    def clock(self) -> float:
        """Return the time that machines are told: it goes on after a restart, and never back."""
        self._time = max(self._time, time.time())
        return self._time

    # Links.

    def hello(self, wanted: SiteId) -> Hello:
        """Return our greeting to a site."""
        epoch = self.deployment.groups.epoch
        return Hello(VERSION, self.cluster.name, self.me, wanted, self.incarnation, epoch, self.plan)

    def why_not(self, hello: Hello, called: SiteId | None) -> str | None:
        """Return why we do not talk to this one, if so."""
        if self.failed is not None:
            return f"{self.me} has failed: {self.failed}"
        ours = self.hello(hello.site)
        if hello.version != VERSION:
            return f"{hello.site} speaks version {hello.version}, {self.me} speaks {VERSION}"
        if hello.cluster != ours.cluster:
            return f"{hello.site} is of cluster {hello.cluster!r}, this is {ours.cluster!r}"
        if hello.wanted != self.me or (called is not None and hello.site != called):
            return f"{hello.site} wants {hello.wanted}; this is {self.me}, which called {called}"
        if hello.site not in self.cluster.sites or hello.site == self.me:
            return f"{hello.site!r} is not one of the sites"
        if hello.epoch != ours.epoch:
            return f"{hello.site} is in epoch {hello.epoch}, {self.me} in {ours.epoch}"
        if hello.plan != self.plan:
            return f"{hello.site} has plan {hello.plan}, {self.me} has {self.plan}: protocol, plan or groups differ"
        known = self._incarnations.get(hello.site, hello.incarnation)
        if self.cluster.durable and known != hello.incarnation:
            return f"{hello.site} has lost its history: it was incarnation {known}, now it is {hello.incarnation}"
        return None

    def connected(self, link: Link) -> None:
        """A connection is there; who it is we know when it has greeted."""
        self._all_links.add(link)
        if len(self._all_links) > self.limits.connections:
            link.refuse(f"{self.me} has {self.limits.connections} links, which is the limit")

    def linked(self, link: Link, hello: Hello) -> None:
        """A peer has greeted: from now on this is the link to it."""
        old = self.links.get(hello.site)
        if old is not None:
            old.abort()
        self.links[hello.site] = link
        known = self._incarnations.get(hello.site)
        edges = getattr(self.machine, "edges", None)
        if known not in (None, hello.incarnation):
            self._begin_anew_with(hello.site)
        self._incarnations[hello.site] = hello.incarnation
        self.counts["reconnects"] += known is not None
        self.note("link.up", peer=hello.site)
        if edges is not None:
            self._do(edges.resume(hello.site))
        self._end_round()

    def _begin_anew_with(self, peer: SiteId) -> None:
        """A site that is not durable was restarted: what was under way to and from it is lost, and said to be."""
        self.note("peer.lost_everything", peer=peer)
        self._parked = deque(waiting for waiting in self._parked if waiting[0] != peer)
        edges = getattr(self.machine, "edges", None)
        forget = getattr(self.machine, "forget", None) or getattr(edges, "forget", None)
        lost = forget(peer) if forget is not None else None
        for number in lost or ():
            sent = self._sent.get(number)
            if sent is not None:
                for _, _, done in sent.waiting:
                    if not done.done():
                        done.set_exception(LocalError(f"lost: {peer} was restarted and is not durable"))
                sent.waiting = []
                self._safe(number)

    def unlinked(self, link: Link) -> None:
        """A connection is gone."""
        self._all_links.discard(link)
        if link.peer is not None and self.links.get(link.peer) is link:
            del self.links[link.peer]
            self.note("link.down", peer=link.peer)

    async def _call(self, peer: SiteId) -> None:
        """Keep a link to a peer: call, wait for its end, call again."""
        wait = 0.05
        host, port = self.cluster.address(peer)
        while True:
            try:
                tls = self._tls(server=False)
                name = peer if tls is not None else None
                _, link = await self.loop.create_connection(
                    lambda: Link(self, peer), host, port, ssl=tls, server_hostname=name
                )
                await link.closed
                wait = 0.05 if link.peer is not None else min(2 * wait, 2.0)
            except (OSError, ssl.SSLError) as error:
                log.debug("link.failed site=%s peer=%s reason=%r", self.me, peer, str(error))
                wait = min(2 * wait, 1.0)
            await asyncio.sleep(wait)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            now = self.loop.time()
            for link in list(self._all_links):
                link.beat(now)

    def _tls(self, *, server: bool) -> ssl.SSLContext | None:
        if self.cluster.security.certs is None:
            return None
        from ordercast.runtime.tls import context

        return context(self.cluster, self.me, server=server)

    # Events in, effects out.

    def receive(self, peer: SiteId, messages: list[Message]) -> None:
        """Take what a peer sent; messages wait outside while a reader is too far behind."""
        if self.failed is not None or self._stopping:
            return
        for message in messages:
            self.checker.check(peer, message)
            if (self._parked or self._behind()) and not isinstance(message, Control):
                self._parked.append((peer, message))  # bounded by the windows of the sources: nothing is acknowledged
                self.counts["parked"] += 1
                continue
            if type(message) is Null and self._parked:
                continue  # it would make the machine ask again for what waits outside already
            self._step(Received(peer, message))
            if type(message) is Carry:
                envelope = getattr(message.message, "envelope", None)
                self._unacknowledged += len(envelope.body) if envelope is not None else 0
                if getattr(message.message, "receipt", False):
                    self._hurry(for_seconds=0.1)
                self.counts["extra"] += envelope is not None and self.groups.isdisjoint(envelope.groups)
            elif type(message) is Resend:
                self.counts["resent"] += message.last - message.first + 1
            elif type(message) is Ack and self.loop.time() < self._hurried:
                self._hurry()  # it settles what a source waits for: pass it on
        self._active = True
        self._end_round()
        if self._unacknowledged > ACKNOWLEDGE_BYTES and self._ticking is not None:
            self._tick_within(TICK_S)

    def _behind(self) -> bool:
        return any(reader.bytes > self.limits.inbox_bytes for reader in self._readers)

    def _unpark(self) -> None:
        """A reader has read: let in what waited, as far as there is room."""
        while self._parked and not self._behind() and self.failed is None:
            peer, message = self._parked.popleft()
            try:
                self._step(Received(peer, message))
            except OrdercastError as error:
                if peer in self.links:
                    self.links[peer].refuse(str(error))
        self._end_round()

    def _step(self, event: Event) -> None:
        self._do(self.machine.step(event))

    def _do(self, effects: "Sequence[Effect | _Exported]") -> None:
        """Put effects into the pipeline, or do them when nothing has to be written first."""
        if self.failed is not None:
            return
        if self._disk is None:
            for effect in effects:
                self._apply(effect)
            return
        for effect in effects:
            if type(effect) is Append:
                data = record(effect.event, self._encoder)
                self._records.append(data)
                self._record_bytes += len(data)
            else:
                self._pending.append(effect)

    def _apply(self, effect: "Effect | _Exported") -> None:
        kind = type(effect)
        if kind is Send:
            link = self.links.get(effect.to)  # type: ignore[union-attr]
            if link is not None:
                link.send(effect.message)  # type: ignore[union-attr]
                self._to_flush[link] = None
        elif kind is Deliver:
            self._deliver(lot_of(effect.envelope, effect.stamp, self.delivered))  # type: ignore[union-attr]
        elif kind is Placed:
            self._placed(effect.number, effect.stamp)  # type: ignore[union-attr]
        elif kind is Safe:
            self._safe(effect.number)  # type: ignore[union-attr]
        elif self.export is not None:
            self.export.sent(*effect)  # type: ignore[misc]

    def _end_round(self) -> None:
        """All that came is stepped: write, or send."""
        if self.failed is not None:
            return
        if self._disk is not None:
            if (self._records or self._pending) and not self._committing:
                self._committing = True
                self._spawn(self._commit())
        else:
            self._flush()
        self._tick_soon(REST_S)

    def _flush(self) -> None:
        while self._to_flush:
            self._to_flush.popitem()[0].flush()

    async def _commit(self) -> None:
        """Write everything that came, do what follows from it, and again while more came."""
        try:
            while self.failed is None and (self._records or self._pending):
                records, self._records = self._records, []
                pending, self._pending = self._pending, []
                frozen = None
                if self._record_bytes > CHECKPOINT_BYTES:
                    self._record_bytes, frozen = 0, self._frozen()
                if records:
                    begun = time.perf_counter()
                    await self.loop.run_in_executor(self._disk, self.history.append, records)
                    self.commit_seconds += time.perf_counter() - begun
                    self.counts["commits"] += 1
                    self.counts["records"] += len(records)
                for effect in pending:
                    self._apply(effect)
                self._flush()
                if frozen is not None:
                    await self._checkpoint(frozen)
        except OrdercastError as error:
            self._fail(error)
        except Exception as error:  # ours to mend, and nothing may be sent or written after it
            log.exception("site.bug site=%s", self.me)
            self._fail(LocalError(f"{type(error).__name__}: {error}"))
        finally:
            self._committing = False

    async def _checkpoint(self, frozen: bytes) -> None:
        """The state was taken when all records of this commit were stepped, and all its effects are done now."""
        checkpoint = Checkpoint(self.history.count, self.delivered, frozen + self._remembered())
        if self.export is not None:  # what is before a checkpoint is not delivered again after a restart
            await self._write_part()
        from_delivered = max(0, self.delivered - self.limits.retain_messages)
        keep = self.history.keep
        await self.loop.run_in_executor(self._disk, lambda: keep(checkpoint, from_delivered=from_delivered))
        self.note("history.checkpoint", records=checkpoint.records, bytes=len(frozen))

    def _fail(self, error: OrdercastError) -> None:
        """The disk is full or broken: say so, acknowledge nothing more, and let go of all links."""
        if self.failed is not None:
            return
        self.failed = error
        self._records, self._pending = [], []
        self._parked.clear()
        log.error("site.failed site=%s reason=%r", self.me, str(error))
        self._fail_receipts(error)
        self._batches.clear()
        self._room.set()
        for link in list(self._all_links):
            link.abort()
        for reader in self._readers:
            reader.close()

    def _tick_soon(self, seconds: float) -> None:
        if self._ticking is None and not self._stopping:
            self._ticking = self.loop.call_later(seconds, self._tick)

    def _hurry(self, for_seconds: float = 0.0) -> None:
        """Somebody waits for a receipt: acknowledge soon, and for a while what is acknowledged to us too."""
        self._hurried = max(self._hurried, self.loop.time() + for_seconds)
        self._tick_within(HURRY_S)

    def _tick_within(self, seconds: float) -> None:
        """Tick at least that soon."""
        if self._ticking is not None:
            if self._ticking.when() <= self.loop.time() + seconds:
                return
            self._ticking.cancel()
        self._ticking = self.loop.call_later(seconds, self._tick)

    def _tick(self) -> None:
        self._ticking = None
        if self.failed is not None:
            return
        self._unacknowledged = 0
        active, self._active = self._active, False
        self._step(Tick(self.clock()))
        if not self.deployment.receipts:
            self._count_under_way()
        if self._disk is None:
            self._flush()
        elif self._pending and not self._committing:
            self._committing = True
            self._spawn(self._commit())
        if not self.machine.idle:
            self._tick_soon(REST_S if active else 2 * REST_S)

    # Sending.

    async def multicast(
        self, group: GroupId | tuple[GroupId, ...], body: bytes, ack: AckLevel = "none"
    ) -> Receipt | None:
        """Send a message to a group, or to several at once.

        `ack="ordered"` waits until it has its place, `ack="safe"` until every member has it durably. Without, it waits
        only while too much of this site is not safe yet.
        """
        if self._crowded:
            await self._wait_for_room()
        if self.failed is not None:
            raise self.failed
        if type(body) is not bytes:
            raise LocalError(f"a message is bytes, not {type(body).__name__}")
        if type(group) is not str:
            group = tuple(sorted(set(group)))
            group = group[0] if len(group) == 1 else group
        size = len(body)
        if size > self.limits.body_bytes:
            raise LocalError(f"a message of {size} bytes; at most {self.limits.body_bytes} are allowed")
        batch = self._batches.get(group) or self._begin(group)
        full = batch.bytes + size > self.limits.envelope_bytes or len(batch.bodies) >= self.limits.envelope_messages
        if full and batch.bodies:
            self._send(batch)
            batch = self._begin(group)
        batch.bodies.append(body)
        batch.bytes += size
        if ack != "none" and not self.deployment.receipts:
            batch.bodies.pop()
            batch.bytes -= size
            raise LocalError(f"protocol {self.cluster.protocol} gives no receipts: ack must be 'none'")
        if ack != "none":
            done: asyncio.Future[Receipt] = self.loop.create_future()
            batch.waiting.append((len(batch.bodies) - 1, ack, done))
            return await done
        if batch.bytes >= self.limits.envelope_bytes or len(batch.bodies) >= self.limits.envelope_messages:
            self._send(batch)
            self._end_round()
            await asyncio.sleep(0)
        elif self.loop.time() - self._last_sent > IDLE_S:
            self._send_open()
        return None

    async def multicast_many(
        self, group: GroupId | tuple[GroupId, ...], bodies: list[bytes], ack: AckLevel = "none"
    ) -> tuple[int, list[bytes | None]]:
        """Send messages as one batch of their own; returns the number of the first, and the stamps when asked for."""
        if not bodies or sum(map(len, bodies)) > self.limits.body_bytes:
            raise LocalError(f"no message, or more than {self.limits.body_bytes} bytes")
        if ack != "none" and not self.deployment.receipts:
            raise LocalError(f"protocol {self.cluster.protocol} gives no receipts: ack must be 'none'")
        async with self._posting:  # who came first is sent first
            await self._wait_for_room()
            for open_batch in list(self._batches.values()):
                self._send(open_batch)
            own = self._begin(group)
            own.bodies += bodies
            own.bytes = sum(map(len, bodies))
            done: list[asyncio.Future[Receipt]] = []
            if ack != "none":
                done = [self.loop.create_future() for _ in bodies]
                own.waiting += [(index, ack, future) for index, future in enumerate(done)]
            first = self.messages + 1
            self._send(own)
            self._end_round()
        return first, [receipt.stamp for receipt in await asyncio.gather(*done)]

    def _begin(self, group: GroupId | tuple[GroupId, ...]) -> _Batch:
        """Start a batch: it is sent at the next turn of the loop, or a little later when many are under way."""
        if self.failed is not None:
            raise self.failed
        if self._stopping:
            raise LocalError("the site was stopped")
        groups = (group,) if isinstance(group, str) else tuple(sorted(set(group)))
        for name in groups:
            if name not in self.deployment.groups.members:
                raise LocalError(f"there is no group {name!r}")
        if len(groups) > 1 and self.cluster.protocol not in ("two-phase", "timestamp"):
            classes = {self.deployment.groups.class_of(name) for name in groups}
            if len(classes) > 1:
                raise LocalError(f"groups {', '.join(groups)} are ordered apart: one message cannot go to all of them")
        if not groups:
            raise LocalError("a message to no group")
        if self.cluster.causal:  # what was sent to another group before must go before
            for earlier in list(self._batches.values()):
                self._send(earlier)
        found = self._batches[group] = _Batch(group, groups)
        if self._sending is None:
            if len(self._sent) > MANY_UNDER_WAY:
                self._sending = self.loop.call_later(LINGER_S, self._send_open)
            else:
                self._sending = self.loop.call_soon(self._send_open)
        return found

    def _send_open(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None
        if self.failed is not None:
            return
        for open_batch in list(self._batches.values()):
            self._send(open_batch)
        self._end_round()

    def _send(self, open_batch: _Batch) -> None:
        groups = open_batch.groups
        self._batches.pop(open_batch.key, None)
        if not open_batch.bodies:
            return
        first = self.messages + 1
        self.messages += len(open_batch.bodies)
        number = self.machine.sent + 1
        self._last_sent = self.loop.time()
        self._sent[number] = _Sent(open_batch, first, self.clock())
        self._unsafe_bytes += open_batch.bytes
        self._active = True
        self.counts["batches"] += 1
        self._step(Multicast(groups, batch.pack(first, open_batch.bodies), bool(open_batch.waiting)))
        if self.export is not None:
            self._do([_Exported(first, len(open_batch.bodies), groups, self.delivered)])
        if open_batch.waiting:
            self._hurry(for_seconds=0.1)
        if not self.deployment.receipts:
            self._under_way += 1
            self._safe(number)

    @property
    def _crowded(self) -> bool:
        return self._unsafe_bytes > self.limits.window_bytes or self._under_way > UNDER_WAY_AT_MOST

    def _count_under_way(self) -> None:
        """Without receipts: what the slowest peer has not acknowledged, or what is held here, whichever is more."""
        edges = getattr(self.machine, "edges", None)
        self._under_way = max(edges.under_way if edges is not None else 0, len(self.machine.held()))
        if not self._crowded:
            self._room.set()

    async def _wait_for_room(self) -> None:
        while self._crowded and self.failed is None and not self._stopping:
            self._room.clear()
            await self._room.wait()

    def _placed(self, number: int, stamp: bytes) -> None:
        sent = self._sent.get(number)
        if sent is not None:
            sent.stamp = stamp
            self._answer(sent, "ordered")

    def _safe(self, number: int) -> None:
        sent = self._sent.pop(number, None)
        if sent is None:
            return
        self._unsafe_bytes -= sent.bytes
        if not self._crowded:
            self._room.set()
        self._answer(sent, "ordered")
        self._answer(sent, "safe")

    @staticmethod
    def _answer(sent: _Sent, level: AckLevel) -> None:
        if not sent.waiting:
            return
        for index, wanted, done in sent.waiting:
            if wanted == level and not done.done():
                stamp = None if sent.stamp is None else sent.stamp + index.to_bytes(4, "big")
                done.set_result(Receipt(sent.first + index, stamp))
        sent.waiting = [waiting for waiting in sent.waiting if not waiting[2].done()]

    def _fail_receipts(self, error: OrdercastError) -> None:
        waiting = [w for sent in self._sent.values() for w in sent.waiting]
        waiting += [w for open_batch in self._batches.values() for w in open_batch.waiting]
        for _, _, done in waiting:
            if not done.done():
                done.set_exception(error)

    # Reading.

    def _deliver(self, lot: Lot) -> None:
        many = batch.count(lot.body)
        self.delivered += many
        self._last_delivered[lot.source] = max(self._last_delivered.get(lot.source, 0), lot.first + many - 1)
        for reader in self._readers:
            reader.put(lot)
        if self.export is not None:
            self.export.delivered(lot)
            if self.export.full:
                self._part_is_full.set()

    def inbox(self, groups: list[GroupId] | None = None, *, after: int | None = None) -> Inbox:
        """Open a reader of all groups this site is in, or of some; `after` a position, or from now on."""
        for group in groups or ():
            if group not in self.groups:
                raise LocalError(f"{self.me} is not in group {group!r}; it is in {', '.join(sorted(self.groups))}")
        past: Iterator[Lot] = iter(())
        if after is not None and after + 1 < self.delivered:
            past = self._past(after + 1, self.delivered)
        elif after is not None and after + 1 > self.delivered:
            raise LocalError(f"position {after} was never delivered here; the last one is {self.delivered - 1}")
        reader = Inbox(frozenset(groups) if groups is not None else None, past, self._drained)
        self._readers.append(reader)
        return reader

    def leave(self, reader: Inbox) -> None:
        """Close a reader."""
        if reader in self._readers:
            self._readers.remove(reader)
        reader.close()
        self._drained()

    def _drained(self) -> None:
        if self._parked and not self._behind():
            self._unpark()

    def _past(self, begin: int, end: int) -> Iterator[Lot]:
        """Deliver again what was delivered: step a second machine through the history."""
        checkpoint = self.history.checkpoint(begin)
        if checkpoint is None:
            raise LocalError(f"position {begin} is not kept here any more")
        position = checkpoint.delivered
        state = pickle.loads(checkpoint.state)
        machine = self.deployment.thaw(self.me, state["machine"])
        for _, effects in self._replay(machine, checkpoint.records):
            for effect in effects:
                if type(effect) is not Deliver:
                    continue
                lot = lot_of(effect.envelope, effect.stamp, position)
                position += batch.count(lot.body)
                if position > end:
                    return
                if position > begin:
                    yield _from(lot, begin)

    # Looking.

    def explain(self, message: str) -> dict[str, Any]:
        """Return where a message SOURCE:NUMBER is, as far as this site knows, what it waits for, and since when."""
        source, _, number = message.rpartition(":")
        if source not in self.cluster.sites or not number.isdigit():
            return {"message": message, "error": "give SOURCE:NUMBER, with the name of a site"}
        now, facts = self.clock(), []
        if source == self.me:
            facts += self._explain_own(int(number), now)
        last = self._last_delivered.get(source, 0)
        if int(number) <= last:
            facts.append(f"{self.me} has delivered messages of {source} up to {last}")
        elif self.groups:
            facts.append(f"{self.me} has not delivered it; the last of {source} here is {last}")
        for held in self.machine.held()[:100]:
            if held.what.startswith(f"{source}:") or f" {source}:" in held.what:
                facts.append(f"held here: {held.what}, {held.reason}, for {max(0.0, now - held.since):.1f} s")
        if self._parked:
            facts.append(f"{len(self._parked)} envelopes wait outside: a reader is more than the limit behind")
        missing = [peer for peer in self.cluster.sites if peer != self.me and peer not in self.links]
        if missing:
            facts.append(f"no link to {', '.join(missing)}")
        return {"message": message, "site": self.me, "facts": facts}

    def _explain_own(self, number: int, now: float) -> list[str]:
        if number > self.messages:
            return [f"{self.me} has sent {self.messages} messages; this one does not exist"]
        for sent in self._sent.values():
            if sent.first <= number < sent.first + sent.many:
                entry = self.deployment.routes.entry(sent.groups) if self.deployment.plan is not None else "?"
                place = "ordered" if sent.stamp is not None else f"ordered by {entry}"
                return [f"sent to {'+'.join(sent.groups)} {now - sent.since:.1f} s ago, {place}; not safe yet"]
        return ["sent, and safe: every member has it" if self.deployment.receipts else "sent"]

    def status(self) -> dict[str, Any]:
        """Return what there is to know, as plain values."""
        now = self.clock()
        held = [
            {"what": h.what, "reason": h.reason, "seconds": round(max(0.0, now - h.since), 3)}
            for h in self.machine.held()[:100]
        ]
        oldest = min((sent.since for sent in self._sent.values()), default=now)
        return {
            "site": self.me,
            "cluster": self.cluster.name,
            "protocol": self.cluster.protocol,
            "durable": self.cluster.durable,
            "failed": str(self.failed) if self.failed is not None else None,
            "groups": sorted(self.groups),
            "peers": {peer: peer in self.links for peer in self.cluster.sites if peer != self.me},
            "sent": self.messages,
            "delivered": self.delivered,
            "unsafe_envelopes": len(self._sent),
            "unsafe_bytes": self._unsafe_bytes,
            "under_way": self._under_way if not self.deployment.receipts else len(self._sent),
            "oldest_unsafe_seconds": round(now - oldest, 3),
            "parked": len(self._parked),
            "reader_bytes": [reader.bytes for reader in self._readers],
            "link_bytes": {peer: link.waiting_bytes for peer, link in self.links.items()},
            "held": held,
            "records": self.history.count,
            "counts": self.counts,
            "commit_seconds": round(self.commit_seconds, 3),
        }


def _from(lot: Lot, begin: int) -> Lot:
    """Return a lot without what lies before a position."""
    if lot.position >= begin:
        return lot
    skip = begin - lot.position
    bodies = batch.unpack(lot.body)[skip:]
    return msgspec.structs.replace(
        lot, position=begin, first=lot.first + skip, body=batch.pack(lot.first + skip, bodies)
    )
