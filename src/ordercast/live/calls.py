"""What applications call on a site: send, read, wait."""

import asyncio

from ordercast.client.values import AckLevel, Destination, Policy, Receipt, tidy
from ordercast.live.inbox import Inbox
from ordercast.names import GroupId
from ordercast.node import inputs as io
from ordercast.node.node import Node
from ordercast.node.readers import Reader


class Calls:
    """The calls of a site; `live.site.Site` is the whole."""

    node: Node
    loop: asyncio.AbstractEventLoop
    inboxes: dict[Reader, Inbox]

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
        self, group: Destination, bodies: list[bytes], ack: AckLevel = "none"
    ) -> tuple[int, list[bytes | None]]:
        """Send messages as one batch of their own; returns the number of the first, and the stamps when asked for.

        With `ack="none"` it waits until they are durable here.
        """
        receipts = await self._post(io.Post(tidy(group), bodies, ack, self.loop.create_future()))
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
        after: int | None = None,
        name: str = "here",
        policy: Policy = "block",
    ) -> Inbox:
        """Open a reader of all groups this site is in, or of some; `after` a position, or from now on."""
        reader = self.node.reader(name, groups, after, policy)
        inbox = self.inboxes[reader] = Inbox(reader, lambda: self._took(reader))
        self.turn()
        return inbox

    def _took(self, reader: Reader) -> None:
        if reader.past or self.node.intake.parked:
            self.feed(io.Took(reader))

    def leave(self, inbox: Inbox) -> None:
        """Close a reader."""
        self.inboxes.pop(inbox.reader, None)
        self.feed(io.Leave(inbox.reader))
        inbox.close()
