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
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import msgspec

from ordercast.core.effects import Append, Deliver, Effect, Placed, Refuse, Safe, Send
from ordercast.core.events import Control, Event, LinkDown, LinkUp, Message, Multicast, Received, Tick
from ordercast.core.machines import Machines
from ordercast.core.streams import Ack, Carry, Null, Resend
from ordercast.errors import HistoryError, LocalError, OrdercastError
from ordercast.history.store import Checkpoint, History, MemoryHistory, event_of, record
from ordercast.live import look
from ordercast.live.changes import described, differences
from ordercast.live.checks import Checker
from ordercast.live.clients import ClientLink
from ordercast.live.config import Cluster, deploy, plan_hash
from ordercast.live.epochs import Epochs
from ordercast.live.export import SECONDS, Export
from ordercast.live.inbox import Inbox, Lot, lot_of
from ordercast.live.links import Link
from ordercast.live.outbox import AckLevel, Destination, Exported, Outbox, Receipt
from ordercast.names import ClassId, GroupId, SiteId
from ordercast.protocols.registry import Deployment
from ordercast.wire import batch
from ordercast.wire.codec import Encoder

log = logging.getLogger("ordercast")

TICK_S = 0.005  # while there is much to acknowledge: acknowledgements climb the tree at this pace
HURRY_S = 0.001
REST_S = 0.1  # while there is little to acknowledge
ACKNOWLEDGE_BYTES = 128 * 2**10
UNWRITTEN_AT_MOST = 10_000_000  # messages a site has sent and not exported when it is killed, generously

COUNTS = ("batches", "commits", "records", "reconnects", "resent", "parked", "extra")


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
        self.machine: Machines
        self.history: History = MemoryHistory()
        self.links: dict[SiteId, Link] = {}
        self.outbox = Outbox(self)
        self.epochs = Epochs(self)
        self.failed: OrdercastError | None = None
        self.delivered = 0  # messages, by now
        self.counts = dict.fromkeys(COUNTS, 0)
        self.commit_seconds = 0.0
        self._all_links: set[Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._client_server: asyncio.Server | None = None
        self._metrics_server: asyncio.Server | None = None
        self.export: Export | None = None
        self._exporting = asyncio.Lock()
        self._part_is_full = asyncio.Event()
        self.clients: set[ClientLink] = set()
        self.readers: list[Inbox] = []
        self.parked: deque[tuple[SiteId, Message, ClassId]] = deque()
        self._ticking: asyncio.TimerHandle | None = None
        self.last_delivered: dict[SiteId, int] = {}
        self._hurried = 0.0
        self._to_flush: dict[Link, None] = {}
        self._time = 0.0
        self._unacknowledged = 0  # bytes taken in since the last tick
        self._active = False
        self._encoder = Encoder()
        self._doing: dict[type, Callable[[Any], None]] = {
            Append: lambda _: None,  # a site that is not durable writes nothing
            Send: self._pass_on,
            Deliver: lambda effect: self._deliver(lot_of(effect.envelope, effect.stamp, self.delivered)),
            Placed: lambda effect: self.outbox.placed(effect.number, effect.stamp),
            Safe: lambda effect: self.outbox.safe(effect.number),
            Refuse: self._refuse,
            Exported: lambda effect: self.export.sent(*effect) if self.export is not None else None,
        }
        self._records: list[bytes] = []
        self._record_bytes = 0
        self._pending: list[Effect | Exported] = []
        self._committing = False
        self._disk: ThreadPoolExecutor | None = None
        self.stopping = self.started = False

    # Starting and stopping.

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Read the history, listen, call the others."""
        self.loop = asyncio.get_running_loop()
        try:
            await self._start()
        except BaseException:  # the next try must find nothing locked, bound or running
            await self.stop()
            raise
        self.started = True

    async def _start(self) -> None:
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
            from ordercast.live.metrics import serve

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
        checkpoint = None
        if self.cluster.durable:
            from ordercast.history.disk import DiskHistory

            self.history = DiskHistory(self.cluster.data_folder / self.me)
            checkpoint = self.history.checkpoint()
            self._refuse_changes(checkpoint)
        if self.cluster.export is not None:
            folder = Path(self.cluster.folder) / self.cluster.export
            self.export = Export(folder, self.me, self.deployment.groups)
        if not self.cluster.durable:
            self.machine = self._new_machine()
            if self.export is not None and self.export.next_position + self.export.next_send > 1:
                # An earlier life has exported: this one gives no position twice, and no number that one has used.
                self.delivered = self.export.next_position
                self.outbox.messages = self.export.next_send + UNWRITTEN_AT_MOST
            return
        restored, self.machine = self._restore(checkpoint)
        for event, effects in self._replay(self.machine, restored):
            if isinstance(event, Multicast):
                first, many = batch.read_head(event.body)
                self.outbox.messages = max(self.outbox.messages, first + many - 1)
                if self.export is not None:
                    self.export.sent(first, many, event.groups, self.delivered)
                if self.deployment.receipts:
                    self.outbox.restore(self.machine.sent, event.groups, first, many, 0, self.clock())
            for effect in effects:
                if type(effect) in (Deliver, Placed, Safe):
                    self._apply(effect)
        if self.history.count == 0:
            state = self._frozen() + self._remembered(self.machine.sent)
            self.history.keep(Checkpoint(0, 0, state), from_delivered=0)
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="history")

    def _refuse_changes(self, checkpoint: Checkpoint | None) -> None:
        """A history goes on only with the plan it was written with."""
        if checkpoint is None:
            return
        state: dict[str, Any] = pickle.loads(checkpoint.state)
        if state["plan"] != self.plan:
            told = differences(state.get("config", {}), described(self.cluster))
            raise HistoryError(
                f"{self.me} has a history of another plan ({told}); nothing was changed. Go back to what it was, or"
                f" start over: stop all sites, move {self.cluster.data_folder} aside on every machine, and start again"
            )

    def _restore(self, checkpoint: Checkpoint | None) -> tuple[int, Machines]:
        """Build the machine of a checkpoint; return it and the record it stands at."""
        if checkpoint is None:
            return 0, self.deployment.machines(self.me)
        data = io.BytesIO(checkpoint.state)  # our own file, with a checksum
        state = pickle.load(data)
        self.last_delivered, stamps, unsafe = pickle.load(data)
        for sent in unsafe:
            self.outbox.restore(*sent)
        if self.export is not None:
            self.export.last = stamps
        self.incarnation, self.delivered = state["incarnation"], checkpoint.delivered
        self.outbox.messages = state["messages"]
        return checkpoint.records, self._thawed(state)

    def _thawed(self, state: dict[str, Any]) -> Machines:
        machines = self.deployment.machines(self.me)
        machines.restore(self.deployment.decode(state["machine"]))
        return machines

    def _replay(self, machine: Machines, after: int) -> Iterator[tuple[Event, list[Effect]]]:
        for data in self.history.records(after):
            event = event_of(data)
            if machine is self.machine:  # a site that is restarted often must not step through ever more
                self._record_bytes += len(data)
            yield event, machine.step(event)

    def _frozen(self) -> bytes:
        state: dict[str, Any] = {"plan": self.plan, "config": described(self.cluster)}
        state |= {"incarnation": self.incarnation, "messages": self.outbox.messages}
        return pickle.dumps(state | {"machine": self.deployment.encode(self.machine.snapshot())}, protocol=5)

    def _remembered(self, sent: int) -> bytes:
        """Return what deliveries leave behind outside the machine: a second pickle, behind that of the machine.

        The machine is frozen before the effects of its last steps are done, this after them. Meanwhile more may have
        been sent: what the frozen machine had not sent is left out.
        """
        stamps = self.export.last if self.export is not None else {}
        return pickle.dumps((self.last_delivered, stamps, self.outbox.frozen(sent)), protocol=5)

    async def stop(self) -> None:
        """Send what is open, write what is to be written, and close."""
        if self.stopping:
            return
        self.stopping = True
        self.outbox.wake()
        if self.failed is None:
            self.outbox.send_open()
            while self._committing:
                await asyncio.sleep(0.001)
        for reader in self.readers:
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
        if self.export is not None and self.started:
            try:
                self.export.write(self.export.take())
            except OrdercastError as error:
                log.error("export.failed site=%s reason=%r", self.me, str(error))
        self.outbox.close(LocalError("the site was stopped"))
        if self._disk is not None:
            self._disk.shutdown()
        self.history.close()
        if self.started:
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

    def connected(self, link: Link) -> None:
        """A connection is there; who it is we know when it has greeted."""
        self._all_links.add(link)
        if len(self._all_links) > self.limits.connections:
            link.refuse(f"{self.me} has {self.limits.connections} links, which is the limit")

    def linked(self, link: Link, peer: SiteId, *, again: bool) -> None:
        """A peer has greeted: from now on this is the link to it."""
        old = self.links.get(peer)
        if old is not None:
            old.abort()
        self.links[peer] = link
        self.counts["reconnects"] += again
        self.note("link.up", peer=peer)
        self._step(LinkUp(peer))
        self.end_round()

    def begin_anew(self, deployment: Deployment, lost: LocalError) -> None:
        """Throw away what the machine knows and go on in another epoch; only where nothing is durable."""
        self.note("cluster.began_anew", epoch=deployment.groups.epoch, reason=str(lost))
        sent = self.machine.sent
        self._deploy(deployment)
        self.machine = self._new_machine()
        self.machine.source.sent = sent  # a source's numbers never restart within its incarnation
        self.parked.clear()
        self._to_flush.clear()
        self.last_delivered.clear()
        self.outbox.lose(lost)
        links, self.links = self.links, {}
        for link in links.values():
            link.abort()

    def _deploy(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.checker = Checker(self.me, deployment)
        if self.export is not None:
            self.export.groups = deployment.groups

    def _new_machine(self) -> Machines:
        return self.deployment.machines(self.me, self.incarnation)

    def unlinked(self, link: Link) -> None:
        """A connection is gone."""
        self._all_links.discard(link)
        if link.peer is not None and self.links.get(link.peer) is link:
            del self.links[link.peer]
            self.note("link.down", peer=link.peer)
            if self.failed is None and not self.stopping:
                self._step(LinkDown(link.peer))

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
            for client in list(self.clients):
                client.beat()

    def _tls(self, *, server: bool) -> ssl.SSLContext | None:
        if self.cluster.security.certs is None:
            return None
        from ordercast.live.tls import context

        return context(self.cluster, self.me, server=server)

    # Events in, effects out.

    def receive(self, peer: SiteId, messages: list[tuple[Message, ClassId]]) -> None:
        """Take what a peer sent; messages wait outside while a reader is too far behind."""
        if self.failed is not None or self.stopping:
            return
        for message, class_id in messages:
            self.checker.check(peer, message)
            if (self.parked or self._behind()) and not isinstance(message, Control):
                self.parked.append(
                    (peer, message, class_id)
                )  # bounded by the windows of the sources: nothing is acknowledged
                self.counts["parked"] += 1
                continue
            if type(message) is Null and self.parked:
                continue  # it would make the machine ask again for what waits outside already
            self._step(Received(peer, message, class_id))
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
        self.end_round()
        if self._unacknowledged > ACKNOWLEDGE_BYTES and self._ticking is not None:
            self._tick_within(TICK_S)

    def _behind(self) -> bool:
        return any(reader.bytes > self.limits.inbox_bytes for reader in self.readers)

    def _unpark(self) -> None:
        """A reader has read: let in what waited, as far as there is room."""
        while self.parked and not self._behind() and self.failed is None:
            peer, message, class_id = self.parked.popleft()
            try:
                self._step(Received(peer, message, class_id))
            except OrdercastError as error:
                if peer in self.links:
                    self.links[peer].refuse(str(error))
        self.end_round()

    def _step(self, event: Event) -> None:
        self.do(self.machine.step(event))

    def do(self, effects: "Sequence[Effect | Exported]") -> None:
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

    def _apply(self, effect: "Effect | Exported") -> None:
        doing = self._doing.get(type(effect))
        if doing is None:  # a machine that asks for what no site can do: better no site than a wrong one
            raise TypeError(f"no site knows how to do {type(effect).__name__}")
        doing(effect)

    def _pass_on(self, effect: Send) -> None:
        link = self.links.get(effect.to)
        if link is not None:
            link.send(effect.message, effect.class_id)
            self._to_flush[link] = None

    def _refuse(self, effect: Refuse) -> None:
        """Drop the link to a peer that sent what its protocol forbids."""
        link = self.links.get(effect.peer)
        if link is not None:
            link.refuse(effect.reason)

    def end_round(self) -> None:
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
                frozen, sent = None, self.machine.sent
                if self._record_bytes > self.limits.checkpoint_bytes:
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
                    await self._checkpoint(frozen, sent)
        except OrdercastError as error:
            self._fail(error)
        except Exception as error:  # ours to mend, and nothing may be sent or written after it
            log.exception("site.bug site=%s", self.me)
            self._fail(LocalError(f"{type(error).__name__}: {error}"))
        finally:
            self._committing = False

    async def _checkpoint(self, frozen: bytes, sent: int) -> None:
        """The state was taken when all records of this commit were stepped, and all its effects are done now."""
        checkpoint = Checkpoint(self.history.count, self.delivered, frozen + self._remembered(sent))
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
        self.parked.clear()
        log.error("site.failed site=%s reason=%r", self.me, str(error))
        self.outbox.close(error)
        for link in list(self._all_links):
            link.abort()
        for reader in self.readers:
            reader.close()

    def _tick_soon(self, seconds: float) -> None:
        if self._ticking is None and not self.stopping:
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
            self.outbox.count_under_way()
        if self._disk is None:
            self._flush()
        elif self._pending and not self._committing:
            self._committing = True
            self._spawn(self._commit())
        if not self.machine.idle:
            self._tick_soon(REST_S if active else 2 * REST_S)

    # Sending.

    def multicast(self, group: Destination, body: bytes, ack: AckLevel = "none") -> Coroutine[Any, Any, Receipt | None]:
        """Send a message to a group, or to several at once.

        `ack="ordered"` waits until it has its place, `ack="safe"` until every member has it durably. Without, it waits
        only while too much of this site is not safe yet.
        """
        return self.outbox.multicast(group, body, ack)

    def multicast_many(
        self, group: Destination, bodies: list[bytes], ack: AckLevel = "none"
    ) -> Coroutine[Any, Any, tuple[int, list[bytes | None]]]:
        """Send messages as one batch of their own; returns the number of the first, and the stamps when asked for."""
        return self.outbox.multicast_many(group, bodies, ack)

    def check_destination(self, groups: tuple[GroupId, ...]) -> None:
        """Raise LocalError when no message may go there."""
        self.deployment.check(self.me, groups)

    def originate(self, event: Multicast) -> None:
        """Give the machine what this site sends."""
        self._active = True
        self._step(event)
        if event.receipt:
            self._hurry(for_seconds=0.1)

    # Reading.

    def _deliver(self, lot: Lot) -> None:
        many = batch.count(lot.body)
        self.delivered += many
        self.last_delivered[lot.source] = max(self.last_delivered.get(lot.source, 0), lot.first + many - 1)
        for reader in self.readers:
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
            checkpoint = self.history.checkpoint(after + 1)
            if checkpoint is None:
                raise LocalError(f"position {after + 1} is not kept here any more")
            past = self._past(checkpoint, after + 1, self.delivered)
        elif after is not None and after + 1 > self.delivered:
            raise LocalError(f"position {after} was never delivered here; the last one is {self.delivered - 1}")
        reader = Inbox(frozenset(groups) if groups is not None else None, past, self._drained)
        self.readers.append(reader)
        return reader

    def leave(self, reader: Inbox) -> None:
        """Close a reader."""
        if reader in self.readers:
            self.readers.remove(reader)
        reader.close()
        self._drained()

    def _drained(self) -> None:
        if self.parked and not self._behind():
            self._unpark()

    def _past(self, checkpoint: Checkpoint, begin: int, end: int) -> Iterator[Lot]:
        """Deliver again what was delivered: step a second machine through the history."""
        position = checkpoint.delivered
        state = pickle.loads(checkpoint.state)
        machine = self._thawed(state)
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
        return look.explain(self, message)

    def status(self) -> dict[str, Any]:
        """Return what there is to know, as plain values."""
        return look.status(self)


def _from(lot: Lot, begin: int) -> Lot:
    """Return a lot without what lies before a position."""
    if lot.position >= begin:
        return lot
    skip = begin - lot.position
    bodies = batch.unpack(lot.body)[skip:]
    return msgspec.structs.replace(
        lot, position=begin, first=lot.first + skip, body=batch.pack(lot.first + skip, bodies)
    )
