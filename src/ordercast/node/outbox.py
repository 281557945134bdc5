"""What a site sends: open batches, posts that wait for room, what is not safe yet, receipts, windows.

A window bounds what a site has sent to one destination and is not safe: so a destination with a dead or slow member
makes its own senders wait, and nobody else's. Where the protocol gives no receipts, the window is per class, and counts
what the slowest peer has not acknowledged.

Order: open batches never have a group in common, and a post that waits for room holds back later ones that have a group
in common with it (with `causal`, all later ones). So nothing overtakes what the same sender sent before it.
"""

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import msgspec

from ordercast.client.values import AckLevel, Receipt
from ordercast.core.events import Multicast
from ordercast.core.machines import Machines
from ordercast.errors import LocalError, OrdercastError
from ordercast.names import ClassId, GroupId
from ordercast.node.deliveries import Deliveries
from ordercast.node.inputs import Dropped, Output, Post, Resolve, Sent
from ordercast.node.settings import Limits
from ordercast.wire import batch

LINGER_S = 0.002  # a batch waits so long for more when many are under way
IDLE_S = 0.001  # a site that has sent nothing for so long sends at once
MANY_UNDER_WAY = 16

Groups = tuple[GroupId, ...]


class Host(Protocol):
    """What an outbox needs of its node."""

    receipts: bool
    causal: bool
    exporting: bool
    deliveries: Deliveries
    machines: Machines

    def clock(self) -> float:
        """Return the time."""
        ...

    def refuse_post(self, groups: Groups, ack: AckLevel) -> None:
        """Raise what forbids a message of this site to these groups."""
        ...

    def forbids(self, groups: Groups) -> OrdercastError | None:
        """Return why a batch that was begun cannot be sent any more, if so."""
        ...

    def class_of(self, groups: Groups) -> ClassId:
        """Return the class of a destination."""
        ...

    def originate(self, multicast: Multicast) -> None:
        """Give the machines what this site sends."""
        ...

    def after_commit(self, output: Output) -> None:
        """Put something behind what is to be written."""
        ...


class Waiter(msgspec.Struct, gc=False):
    """Who waits for messages of a batch: from which one on, how many, for what."""

    at: int
    many: int
    ack: AckLevel
    token: Any


class Batch:
    """Messages of this site to the same groups, not yet sent."""

    __slots__ = ("bodies", "bytes", "disks", "groups", "origin", "waiting")

    def __init__(self, groups: Groups) -> None:
        self.groups = groups
        self.bodies: list[bytes] = []
        self.bytes = 0
        self.origin: batch.Origin | None = None
        self.disks = -1
        self.waiting: list[Waiter] = []


class Unsafe(msgspec.Struct):
    """An envelope of this site that is not known to be safe."""

    groups: Groups
    first: int
    many: int
    size: int
    since: float
    stamp: bytes | None = None
    restored: bool = False
    """Of an earlier life: it may well be safe, for acknowledgements are not in the history."""
    waiting: list[Waiter] = []

    def answers(self, level: AckLevel) -> Iterator[Resolve]:
        """Yield answers to those who wait for this."""
        for waiter in self.waiting:
            if waiter.ack == level:
                yield Resolve(waiter.token, [self._receipt(waiter.at + index) for index in range(waiter.many)])
        self.waiting = [waiter for waiter in self.waiting if waiter.ack != level]

    def _receipt(self, index: int) -> Receipt:
        stamp = None if self.stamp is None else self.stamp + index.to_bytes(4, "big")
        return Receipt(self.first + index, stamp)


class Outbox:
    """One per site."""

    def __init__(self, host: Host, limits: Limits, tell: Callable[[Output], None]) -> None:
        self.host, self.limits, self.tell = host, limits, tell
        self.messages = 0  # sent by this site
        self.batches = 0
        self.unsafe: dict[int, Unsafe] = {}  # by number of the envelope
        self.unsafe_bytes: dict[Groups, int] = {}  # by destination; the sum of `size` of its envelopes
        self.under_way: dict[ClassId, int] = {}  # envelopes, where the protocol gives no receipts
        self.waiting: list[tuple[Post, float]] = []  # posts without room, and since when
        self.begun = True  # the groups are known; until then everything waits
        self.stirred = False  # something happened that the host has to look at
        self.send_at: float | None = None  # when open batches are sent
        self._open: dict[Groups, Batch] = {}
        self._last_sent = 0.0

    # Taking messages.

    def add(self, groups: Groups, body: bytes, ack: AckLevel, token: Any) -> bool:
        """Put a message into an open batch; returns False when it has to wait for room: then `post` it.

        Raises LocalError for what cannot be sent. This is the one door that is passed for every message.
        """
        found = self._open.get(groups)
        if type(body) is not bytes:
            raise LocalError(f"a message is bytes, not {type(body).__name__}")
        size, limits = len(body), self.limits
        if found is None or ack != "none" or found.bytes + size > limits.envelope_bytes:
            found = self._batch_for(groups, size, ack)
            if found is None:
                return False
            if ack != "none":
                found.waiting.append(Waiter(len(found.bodies), 1, ack, token))
        bodies = found.bodies
        bodies.append(body)
        found.bytes += size
        if found.bytes >= limits.envelope_bytes or len(bodies) >= limits.envelope_messages:
            self._send(found)
        elif len(bodies) == 1 and ack == "none" and self.host.clock() - self._last_sent > IDLE_S:
            self.send_open()
        return True

    def _batch_for(self, groups: Groups, size: int, ack: AckLevel) -> Batch | None:
        """Return the batch for a message that does not just join one; None when there is no room for it."""
        self.host.refuse_post(groups, ack)
        if size > self.limits.body_bytes:
            raise LocalError(f"a message of {size} bytes; at most {self.limits.body_bytes} are allowed")
        if self._must_wait(groups):
            return None
        found = self._open.get(groups)
        if found is not None and found.bytes + size > self.limits.envelope_bytes:
            self._send(found)
            found = None
        return found if found is not None else self._begin(groups)

    def post(self, post: Post) -> None:
        """Send messages as a batch of their own, now or when there is room; raises LocalError for what cannot be."""
        self._check(post)
        if self._must_wait(post.groups):
            for earlier in list(self._open.values()):  # what joined it from now on would overtake this post
                if self._before(earlier.groups, post.groups):
                    self._send(earlier)
            self.waiting.append((post, self.host.clock()))
        else:
            self._send_post(post)

    def _check(self, post: Post) -> None:
        """Bound a post by what becomes of it: the frame of its envelope must pass every link."""
        self.host.refuse_post(post.groups, post.ack)
        if any(type(body) is not bytes for body in post.bodies):
            raise LocalError("a message is bytes")
        batch.check(post.bodies, self.limits.body_bytes)

    def _must_wait(self, groups: Groups) -> bool:
        """Whether there is no room for a destination, or an earlier post must go before."""
        return self.crowded(groups) or any(self._before(post.groups, groups) for post, _ in self.waiting)

    def _before(self, earlier: Groups, groups: Groups) -> bool:
        """Whether messages to two destinations must keep their order."""
        return self.host.causal or not set(earlier).isdisjoint(groups)

    def _send_post(self, post: Post) -> None:
        for earlier in list(self._open.values()):
            self._send(earlier)
        own = Batch(post.groups)
        own.bodies, own.bytes = post.bodies, sum(map(len, post.bodies))
        own.origin, own.disks = post.origin, post.disks
        if post.token is not None:
            again = post.disks >= 0 and post.ack == "none"  # it may be dropped until it has its place (errata 125)
            own.waiting.append(Waiter(0, len(post.bodies), "ordered" if again else post.ack, post.token))
        self._send(own)

    def withdraw(self, token: Any) -> None:
        """Forget a post that waits for room; what was sent is sent."""
        self.waiting = [(post, since) for post, since in self.waiting if post.token is not token]

    def _begin(self, groups: Groups) -> Batch:
        """Start a batch: it is sent at the next turn of the host, or a little later when many are under way."""
        for earlier in list(self._open.values()):  # what went to one of these groups before must go before
            if self._before(earlier.groups, groups):
                self._send(earlier)
        found = self._open[groups] = Batch(groups)
        self.stirred = True
        if self.send_at is None:
            self.send_at = self.host.clock() + (LINGER_S if len(self.unsafe) > MANY_UNDER_WAY else 0.0)
        return found

    def send_open(self) -> None:
        """Send what is open."""
        self.send_at = None
        for open_batch in list(self._open.values()):
            self._send(open_batch)

    def _send(self, made: Batch) -> None:
        """Give a batch to the machines; who waits only for the commit is told behind it."""
        groups, host = made.groups, self.host
        if self._open.get(groups) is made:
            del self._open[groups]
        forbidden = host.forbids(groups)
        if forbidden is not None:  # it was allowed when the batch was begun
            self._fail(made.waiting, forbidden)
            self.tell(Dropped(groups, made.bodies, str(forbidden)))
            return
        first, many = self.messages + 1, len(made.bodies)
        self.messages += many
        self.batches += 1
        self.stirred = True
        self._last_sent = host.clock()
        taken = [waiter for waiter in made.waiting if waiter.ack == "none"]
        waiting = [waiter for waiter in made.waiting if waiter.ack != "none"]
        body = batch.pack(first, made.bodies, made.origin)
        number = host.machines.sent + 1
        if host.receipts:
            self.unsafe[number] = Unsafe(groups, first, many, made.bytes, self._last_sent, waiting=waiting)
            self.unsafe_bytes[groups] = self.unsafe_bytes.get(groups, 0) + made.bytes
        else:
            class_id = host.class_of(groups)
            self.under_way[class_id] = self.under_way.get(class_id, 0) + 1
        host.originate(Multicast(groups, body, bool(waiting), disks=made.disks))
        for waiter in taken:
            receipts = [Receipt(first + waiter.at + index, None) for index in range(waiter.many)]
            host.after_commit(Resolve(waiter.token, receipts))
        if host.exporting:
            host.after_commit(Sent(first, groups, body, host.deliveries.count))

    # The windows.

    def crowded(self, groups: Groups) -> bool:
        """Whether senders to a destination have to wait."""
        if not self.begun:
            return True
        if self.host.receipts:
            return self.unsafe_bytes.get(groups, 0) > self.limits.window_bytes
        return self.under_way.get(self.host.class_of(groups), 0) > self.limits.window_envelopes

    def count_under_way(self, under_way: Callable[[ClassId], int]) -> None:
        """Without receipts: ask the machines how much is under way in each class, and let in what has room now."""
        for class_id in self.under_way:
            self.under_way[class_id] = under_way(class_id)
        self.let_in()

    def begin(self) -> None:
        """The groups are known now: refuse posts that cannot be sent, and send the others."""
        self.begun = True
        waiting, self.waiting = self.waiting, []
        for post, since in waiting:
            try:
                self.host.refuse_post(post.groups, post.ack)
            except OrdercastError as error:
                self.tell(Resolve(post.token, error=error))
            else:
                self.waiting.append((post, since))
        self.let_in()

    def let_in(self) -> None:
        """Send what waited and has room now, first come, first served."""
        if not self.waiting:
            return
        waiting, self.waiting = self.waiting, []
        for post, since in waiting:
            if self._must_wait(post.groups):
                self.waiting.append((post, since))
            else:
                self._send_post(post)

    # What became of it.

    def placed(self, number: int, stamp: bytes) -> None:
        """An envelope has its place."""
        sent = self.unsafe.get(number)
        if sent is not None:
            sent.stamp = stamp
            for answer in sent.answers("ordered"):
                self.tell(answer)

    def safe(self, number: int) -> None:
        """Every member has an envelope."""
        sent = self.unsafe.pop(number, None)
        if sent is None:
            return
        left = self.unsafe_bytes.get(sent.groups, 0) - sent.size
        assert left >= 0, "a window gave back more than was taken"
        if left:
            self.unsafe_bytes[sent.groups] = left
        else:
            self.unsafe_bytes.pop(sent.groups, None)
        for level in ("ordered", "safe"):
            for answer in sent.answers(level):
                self.tell(answer)
        self.let_in()

    def dropped(self, number: int, error: OrdercastError) -> None:
        """An envelope will not be sent: its groups are no more."""
        sent = self.unsafe.get(number)
        if sent is not None:
            waiting, sent.waiting = sent.waiting, []
            self.safe(number)
            self._fail(waiting, error)

    def restore(self, number: int, groups: Groups, first: int, many: int, since: float, stamp: bytes | None) -> None:
        """Remember an envelope of an earlier life: it is not known to be safe.

        It does not count in the window: most were safe, and who asks again for what is missing is the machine.
        """
        self.unsafe[number] = Unsafe(groups, first, many, 0, since, stamp, restored=True)

    def lose(self, error: OrdercastError) -> None:
        """Nothing will come of what was sent: tell all who wait for it."""
        for sent in self.unsafe.values():
            self._fail(sent.waiting, error)
        self.unsafe.clear()
        self.unsafe_bytes.clear()
        self.under_way.clear()
        self.let_in()

    def close(self, error: OrdercastError) -> None:
        """Nothing more is sent, and nobody waits any longer."""
        for open_batch in self._open.values():
            self._fail(open_batch.waiting, error)
        self._open.clear()
        self.send_at = None
        waiting, self.waiting = self.waiting, []
        for post, _ in waiting:
            self.tell(Resolve(post.token, error=error))
        self.lose(error)

    def _fail(self, waiting: list[Waiter], error: OrdercastError) -> None:
        for waiter in waiting:
            self.tell(Resolve(waiter.token, error=error))
