"""What applications call on a site: send, read, wait."""

import asyncio
from typing import TYPE_CHECKING, Any

from ordercast.client.values import AckLevel, Destination, Place, Policy, Receipt, tidy
from ordercast.errors import LocalError
from ordercast.live.inbox import Inbox
from ordercast.names import GroupId, SiteId
from ordercast.node import inputs as io
from ordercast.node.node import Node
from ordercast.node.readers import Reader
from ordercast.wire.batch import Origin

if TYPE_CHECKING:
    from ordercast.live.changing import Changes, Snapshot


class Calls:
    """The calls of a site; `live.site.Site` is the whole."""

    node: Node
    loop: asyncio.AbstractEventLoop
    inboxes: dict[Reader, Inbox]
    changes: "Changes | None"

    def feed(self, given: io.Input) -> None:
        """Feed the node."""
        raise NotImplementedError

    def turn(self) -> None:
        """End a turn of the node."""
        raise NotImplementedError

    async def multicast(self, group: Destination, body: bytes, ack: AckLevel = "none") -> Receipt | None:
        """Send a message to a group, or to several at once.

        `ack="ordered"` waits until it has its place, `ack="safe"` until every member has it durably. Without, it waits
        only while too much of this site to that destination is not safe yet.
        """
        node, groups = self.node, (group,) if type(group) is str else tidy(group)
        done = None if ack == "none" else self.loop.create_future()
        if node.outbox.add(groups, body, ack, done):
            if node.outbox.stirred:
                self.turn()
            if done is None:
                return None
        else:
            done = self._post(io.Post(groups, [body], ack, self.loop.create_future()))
        receipts: list[Receipt] = await done
        return receipts[0] if ack != "none" else None

    async def multicast_many(
        self,
        group: Destination,
        bodies: list[bytes],
        ack: AckLevel = "none",
        origin: Origin | None = None,
        disks: int = -1,
    ) -> tuple[int, list[bytes | None]]:
        """Send messages as one batch of their own; returns the number of the first, and the stamps when asked for.

        With `ack="none"` it waits until they are durable here. `origin`: who posts, so that it is delivered once;
        `disks`: it has posted this before, when the cluster had lost so many disks.
        """
        receipts = await self._post(io.Post(tidy(group), bodies, ack, self.loop.create_future(), origin, disks))
        return receipts[0].number, [receipt.stamp for receipt in receipts] if ack != "none" else []

    async def committed(self) -> None:
        """Wait until everything sent so far is on this site's disk; at once when it is not durable."""
        done: asyncio.Future[list[Receipt]] = self.loop.create_future()
        self.feed(io.Flush(done))
        await done

    def _post(self, post: io.Post) -> "asyncio.Future[list[Receipt]]":
        done: asyncio.Future[list[Receipt]] = post.token
        done.add_done_callback(lambda _: self.feed(io.Withdraw(done)) if done.cancelled() else None)
        self.feed(post)
        return done

    def inbox(
        self,
        groups: list[GroupId] | None = None,
        *,
        after: int | Place | None = None,
        name: str = "here",
        policy: Policy = "block",
        snapshot: "Snapshot | None" = None,
    ) -> Inbox:
        """Open a reader of all groups this site is in, or of some; `after` a position or a message, or from now on.

        Where groups change, `snapshot(group)` is called between two messages when the state of a group is needed.
        """
        if policy == "gap" and snapshot is not None:
            raise LocalError("who reads with gaps has no state to give: policy gap takes no snapshot")
        reader = self.node.reader(name, groups, after, policy)
        inbox = self.inboxes[reader] = Inbox(reader, lambda: self._took(reader))
        if snapshot is None and self.changes is not None and policy != "gap":
            snapshot = self.changes.snapshot
        if self.changes is not None and snapshot is not None:
            self.changes.giver(inbox, snapshot)
        self.turn()
        return inbox

    # Changes.

    async def create_group(self, group: GroupId, members: list[SiteId], **options: str) -> None:
        """Create a group and wait until it is there; options: `policy` and `delivery`."""
        await self.change("create", group, tuple(members), options)

    async def delete_group(self, group: GroupId) -> None:
        """Delete a group; what was sent to it and is not delivered is dropped."""
        await self.change("delete", group)

    async def join_group(self, group: GroupId, site: SiteId) -> None:
        """Make a site a member of a group."""
        await self.change("join", group, (site,))

    async def leave_group(self, group: GroupId, site: SiteId) -> None:
        """Let a site be a member of a group no more."""
        await self.change("leave", group, (site,))

    async def change(
        self, what: str, group: GroupId = "", sites: tuple[SiteId, ...] = (), options: dict[str, str] | None = None
    ) -> None:
        """Ask for any change and wait until it is in force; raises LocalError when it is refused."""
        if self.changes is None:
            raise LocalError("groups are fixed here: a cluster with policy = atomic or available changes")
        from ordercast.epochs.requests import read_change

        await self.changes.request(read_change(what, group, sites, options or {}))

    def asked(self, what: str, about: str = "") -> dict[str, Any]:
        """Answer a question: status, explain, configuration."""
        if what == "configuration":
            if self.changes is None:
                raise LocalError("groups are fixed here: the configuration is the cluster's file")
            return self.changes.described()
        return self.explain(about) if what == "explain" else self.status()

    def explain(self, message: str) -> dict[str, Any]:
        """Return where a message is."""
        raise NotImplementedError

    def status(self) -> dict[str, Any]:
        """Return what there is to know."""
        raise NotImplementedError

    def _took(self, reader: Reader) -> None:
        if reader.past or self.node.intake.parked:
            self.feed(io.Took(reader))

    def leave(self, inbox: Inbox) -> None:
        """Close a reader."""
        self.inboxes.pop(inbox.reader, None)
        if self.changes is not None and inbox in self.changes.givers:
            self.changes.givers.remove(inbox)
        self.feed(io.Leave(inbox.reader))
        inbox.close()
