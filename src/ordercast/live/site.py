"""A site on asyncio: it feeds a node with what happens and carries out what the node asks for. It decides nothing."""

import asyncio
import logging
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec

from ordercast.errors import BugError, LocalError, OrdercastError
from ordercast.history.memory import NoHistory
from ordercast.history.store import History, Identity
from ordercast.live.calls import Calls
from ordercast.live.carrier import Carrier
from ordercast.live.clock import WallClock
from ordercast.live.config import Cluster, deploy, settings_of
from ordercast.live.dialer import Dialer
from ordercast.live.disk import Disk
from ordercast.live.inbox import Inbox
from ordercast.live.linked import Links
from ordercast.live.links import Link
from ordercast.live.port import Port
from ordercast.live.rules import wrong_address
from ordercast.live.transport import Listener, Tcp, Transport
from ordercast.names import GroupId, SiteId
from ordercast.node import inputs as io
from ordercast.node import recovery, status
from ordercast.node.node import Node
from ordercast.node.readers import Reader
from ordercast.protocols.registry import Deployment
from ordercast.wire.codec import Encoder

if TYPE_CHECKING:
    from ordercast.live.changing import Changes, Snapshot
    from ordercast.live.export import Exporter

log = logging.getLogger("ordercast")
UNWRITTEN_AT_MOST = 10_000_000  # messages a site has sent and not exported when it is killed, generously


class Site(Calls):
    """Runs embedded (`async with Site(cluster, "main-1") as site`) or as a daemon; the same class, the same API."""

    def __init__(
        self,
        cluster: Cluster,
        me: SiteId,
        *,
        transport: Transport | None = None,
        clock: Callable[[], float] | None = None,
        snapshot: "Snapshot | None" = None,
        joins: bool = False,
        listen: str | None = None,
    ) -> None:
        """`snapshot` gives the state of a group to who joins it; `joins`: it was added to a cluster that runs.

        `listen`: where it listens to other sites, when they reach it at its address through something else.
        """
        if me not in cluster.sites:
            raise LocalError(f"{me!r} is not one of the sites: {', '.join(cluster.sites)}")
        self.cluster, self.me, self.limits, self.listens = cluster, me, cluster.limits, listen
        for problem in wrong_address(cluster, "sites", me, listen) if listen is not None else ():
            raise LocalError(problem)
        self._deployment = deploy(cluster) if not cluster.changes else None
        self.transport: Transport = transport if transport is not None else Tcp()
        self.clock = clock if clock is not None else WallClock()
        self.encoder = Encoder()  # one for all links: what goes to many is encoded once
        self.loop: asyncio.AbstractEventLoop
        self.node: Node
        self.links = Links(self)
        self.port: Port | None = None
        self.started = False
        self._listeners: list[Listener | asyncio.Server] = []
        self.inboxes: dict[Reader, Inbox] = {}
        self._disk: Disk | None = None
        self.exporter: Exporter | None = None
        self.carrier = Carrier(self)
        self.changes: Changes | None = None
        if cluster.changes:
            from ordercast.live import changing

            self.changes = changing.Changes(self, snapshot, joins=joins)
        elif joins or snapshot is not None:
            raise LocalError("groups are fixed: policy = atomic or available lets sites join, and give states")

    # Starting and stopping.

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        """Read the history, listen, call the others."""
        self.loop, self.ended = asyncio.get_running_loop(), asyncio.Event()
        self.dialer = Dialer(self)
        try:
            await self._start()
        except BaseException:  # the next try must find nothing locked, bound or running
            await self.stop()
            raise
        self.started = True

    async def _start(self) -> None:
        history = self._open_history()
        self._disk = disk = Disk(history, self.feed)
        self.node = self._node(history)
        settings = self.node.settings
        self.carrier.does |= {io.Write: disk.write, io.Keep: disk.keep, io.ReadPast: disk.read}
        recovery.check(history, settings, self.me)  # nothing is changed before it is known whose history this is
        if self.cluster.export is not None:
            from ordercast.live.export import ChangingExporter, Exporter

            kind = Exporter if self.changes is None else ChangingExporter
            self.exporter = exporter = kind(self, Path(self.cluster.folder) / self.cluster.export)
            self.carrier.does |= {
                io.Delivered: exporter.delivered,
                io.Sent: exporter.sent,
                io.Keep: exporter.before(disk.keep),
                io.Write: exporter.bounded(disk.write),
            }
            if isinstance(exporter, ChangingExporter):
                self.carrier.does |= {io.Began: exporter.began, io.Noted: exporter.noted}
            if not self.cluster.durable and exporter.writer.next_position + exporter.writer.next_send > 1:
                self.node.go_on_from(exporter.writer.next_position, exporter.writer.next_send + UNWRITTEN_AT_MOST)
        for outputs in self.node.start():
            self.carrier.carry(outputs)
        await self._listen("sites", lambda: Link(self, None), self.tls(server=True))
        if self.me in self.cluster.clients:
            self.port = Port(self)
            await self.port.open()
        if self.me in self.cluster.metrics:
            from ordercast.live.metrics import serve

            self._listeners.append(await serve(self))
        self.links.beat()
        if self.changes is not None:
            self.changes.started()

    def _node(self, history: History) -> Node:
        if self.changes is not None:
            return self.changes.node(history)
        return Node(self.me, settings_of(self.cluster, self.deployment), self.deployment, history, self.clock)

    def _open_history(self) -> History:
        incarnation = time.time_ns() // 1_000_000
        if not self.cluster.durable:
            return NoHistory(Identity(self.cluster.name, self.me, incarnation))
        from ordercast.history.disk import DiskHistory

        return DiskHistory.open(self.cluster.data_folder / self.me, self.cluster.name, self.me, incarnation)

    async def _listen(self, what: Any, make: Callable[[], Any], tls: ssl.SSLContext | None = None) -> None:
        host, port = self.cluster.address(self.me, what)
        if what == "sites" and self.listens is not None:
            host, port = self.listens.rpartition(":")[0].strip("[]"), int(self.listens.rpartition(":")[2])
        try:
            self._listeners.append(await self.transport.listen(make, (host, port), tls))
        except OSError as error:
            whom = "" if what == "sites" else f" to {what}"
            raise LocalError(f"{self.me} cannot listen{whom} at {host}:{port}: {error.strerror}") from None

    async def stop(self) -> None:
        """Send what is open, write what is to be written, and close."""
        if self.started:
            self.feed(io.Drain())
            await self.ended.wait()
            self.started = False
            self.note("site.stopped")
        await self.dialer.stop()
        for listener in self._listeners:
            listener.close()
        if self.port is not None:
            self.port.close()
        self.links.close()
        self.carrier.cancel()
        if self.exporter is not None:
            await self.exporter.close()
        if self._disk is not None:
            self._disk.close()
            self._disk = None

    def tls(self, *, server: bool) -> ssl.SSLContext | None:
        """Return what is needed to talk to other sites; None without certificates."""
        if self.cluster.security.certs is None:
            return None
        from ordercast.live.tls import context

        return context(self.cluster, self.me, server=server)

    def note(self, event: str, **facts: Any) -> None:
        """Log one line: a stable name and facts."""
        told = " ".join(f"{name}={value!r}" for name, value in facts.items())
        log.info("%s site=%s %s", event, self.me, told, extra={"facts": {"event": event, "site": self.me, **facts}})

    @property
    def failed(self) -> OrdercastError | None:
        """Why the site has given up, if it has."""
        return self.node.failed

    @property
    def deployment(self) -> Deployment:
        """What a site with fixed groups runs."""
        assert self._deployment is not None, "groups change here"
        return self._deployment

    @property
    def groups(self) -> frozenset[GroupId]:
        """The groups this site is in."""
        return self.node.groups

    @property
    def all_groups(self) -> list[GroupId]:
        """All groups there are, as far as this site knows."""
        if self.changes is not None:
            return sorted(self.changes.setup.groups)
        return sorted(self.node.configuration.members)

    @property
    def others(self) -> list[str] | None:
        """Where clients reach other sites, at which a post may be made again; None where groups are fixed."""
        return self.changes.others() if self.changes is not None else None

    @property
    def removed(self) -> bool:
        """Whether an operator has removed this site from its cluster."""
        return self.changes is not None and 0 < self.changes.setup.number and self.me not in self.changes.setup.sites

    @property
    def disks(self) -> int:
        """The configuration that last took in a site with an empty disk."""
        return self.changes.setup.disks if self.changes is not None else 0

    def address_of(self, peer: SiteId) -> tuple[str, int]:
        """Return where a peer is; raises LocalError when nobody knows."""
        return self.changes.address_of(peer) if self.changes is not None else self.cluster.address(peer)

    @property
    def delivered(self) -> int:
        """How many messages were delivered here: the position of the next one."""
        return self.node.deliveries.count

    # Feeding the node.

    def feed(self, given: io.Input) -> None:
        """Feed the node, and carry out what it asks for."""
        try:
            self.carrier.carry(self.node.take(given))
        except Exception as error:
            self._bug(error)

    def turn(self) -> None:
        """Carry out what the node asks for after something was put into its outbox."""
        try:
            self.carrier.carry(self.node.turn())
        except Exception as error:
            self._bug(error)

    def _bug(self, error: Exception) -> None:
        """A fault of ours: better no site than a wrong one."""
        log.exception("site.bug site=%s", self.me)
        self.node.fail(BugError(f"{type(error).__name__}: {error}"))
        self.carrier.carry(self.node.turn())

    # Looking.

    def explain(self, message: str) -> dict[str, Any]:
        """Return where a message SOURCE:NUMBER is, as far as this site knows, what it waits for, and since when."""
        return status.explain(self.node, message)

    def status(self) -> dict[str, Any]:
        """Return what there is to know, as plain values."""
        found = status.status(self.node)
        waiting = {peer: link.waiting_bytes for peer, link in self.links.up.items()}
        epochs = self.changes.status() if self.changes is not None else None
        found = msgspec.structs.replace(found, link_bytes=waiting, epochs=epochs)
        return dict(msgspec.to_builtins(found))
