"""The MP protocol of GS88 §3.2 over any verified plan: GS88 trees, meta-group trees, the central site, our own.

A source sends to the entry of the destination. The entry puts the message in order with everything that passes it and
sends it down; every site passes on what it gets, in the order it got it. Edges are numbered (`core.edges`), source
traffic and tree traffic apart, and each class has streams of its own.

Stamp: the last stamp that came from above, zeros down to this site's depth, then this site's own counter. Bytes that
come from above later are larger, because an ancestor's counter stands where we wrote zeros.

A message may wait for others: its `past` names, for a source and a destination, the last message that came before it,
and a site holds a stream back until it has passed on those of them that pass here (errata 6, 7, 66). A stream from
above is held back by what comes to this site directly, and the other way round; both never wait for each other, because
the parent keeps to the same rule: what passes it is in the right order in its stream already.

 - fifo: a source that has sent to several groups at once names what it sent to other entries of the class before.
   Naming only what shares a group is not enough: m0 to A+C and m2 to B+D from above, m1 to A+B here, and all wait.
 - `causal`: a message names everything its source had sent and delivered, in all classes. It is causal order wherever
   no site is in two classes, and refused elsewhere (`protocols.deployment`). What is safe at every destination needs
   not be named any more: a source says with its messages, or when it falls silent, up to which number that is so.

With `receipts` a source learns of its messages: their place, from the entry (errata 9), and when they are safe, because
acknowledgements then climb the tree: a site acknowledges what all its children have acknowledged. `causal` needs them.
"""

from collections import OrderedDict, deque

import msgspec

from ordercast.core.edges import Ack, Carry, Edges, Key
from ordercast.core.effects import Append, Deliver, Effect, Held, Placed, Safe, Send
from ordercast.core.events import Control, Envelope, Event, Message, Multicast, Received, Tick
from ordercast.core.machine import Groups
from ordercast.errors import LocalError, PeerError
from ordercast.names import GroupId, SiteId
from ordercast.planning.routes import Routes

Destination = tuple[GroupId, ...]
Past = tuple[tuple[SiteId, Destination, int], ...]
"""For a source and a destination, the highest number of a message that came before."""
TELL_SETTLED = 3
HERE = ""  # the sender of an edge that is none: messages that enter where they are sent


class Propagate(Message, frozen=True, gc=False):
    """A multicast on its way (GS88 App. I, record `message`); without a stamp on its way to its entry."""

    envelope: Envelope
    stamp: bytes = b""
    past: Past = ()
    receipt: bool = False
    """The source waits to hear of its place."""
    safe: int = 0
    """With `causal`: the source's messages up to this number are at all their destinations."""

    def __str__(self) -> str:
        return f"Propagate {self.envelope}"


class Settled(Control, frozen=True, gc=False):
    """With `causal`: my messages up to this number are at all their destinations; name them no more."""

    number: int

    def __str__(self) -> str:
        return f"Settled {self.number}"


class Place(Control, frozen=True, gc=False):
    """The entry tells the source where its message stands."""

    number: int
    stamp: bytes

    def __str__(self) -> str:
        return f"Place {self.number}"


class _Tree:
    """What one site keeps for one class."""

    __slots__ = ("above", "counter", "depth")

    def __init__(self, depth: int, epoch: int) -> None:
        self.depth = depth
        self.above = epoch.to_bytes(8, "big")  # the last stamp from above; every stamp starts with the epoch
        self.counter = 0

    def next_stamp(self) -> bytes:
        self.counter += 1
        skipped = self.depth + 1 - len(self.above) // 8
        return self.above + _level(0) * skipped + _level(self.counter)


def _level(count: int) -> bytes:
    """Return one level of a stamp.

    Its first bit is set. A live site counts the messages of a batch behind the stamp of their envelope, in numbers
    whose first bit is not set: so a stamp that goes on with another level comes after the whole batch.
    """
    return (2**63 + count).to_bytes(8, "big")


class Propagation:
    """One site's part in message passing along a plan."""

    def __init__(
        self,
        me: SiteId,
        groups: Groups,
        routes: Routes,
        *,
        incarnation: int = 1,
        causal: bool = False,
        receipts: bool = False,
        patience: float = 0.0,
    ) -> None:
        self.me, self.groups, self.routes, self.incarnation, self.causal = me, groups, routes, incarnation, causal
        self.receipts = receipts or causal
        self.edges = Edges(subtree=self.receipts, patience=patience)
        self.sent = 0
        self.local: dict[int, int] = {}  # messages that entered where they were sent, per stream
        self.of_class: dict[int, _Tree] = {}
        self.seen: dict[tuple[SiteId, Destination], int] = {}  # the last message passed on here
        self.own: dict[int, dict[Destination, int]] = {}  # per class: the last message of this site to a destination
        self.several: set[int] = set()  # classes in which this site has sent to several groups at once
        self.past: dict[SiteId, dict[Destination, int]] = {}  # with `causal`: what came before the next message
        self.waiting: dict[Key, deque[tuple[Propagate, float, int]]] = {}
        self.unsafe: dict[Key, deque[tuple[int, int]]] = {}  # own messages: (number on the edge, number), per edge
        self.not_safe: OrderedDict[int, None] = OrderedDict()  # own messages by number, the first in constant time
        self.placing: dict[int, SiteId] = {}  # own messages whose place is asked for, and who will say it
        self.safe_of: dict[SiteId, int] = {}  # with `causal`: messages of a source up to this number are safe
        self.told_safe, self.times_told = 0, TELL_SETTLED

    def step(self, event: Event) -> list[Effect]:
        """Take one event to completion."""
        if isinstance(event, Received):
            message = event.message
            if type(message) is not Carry:
                return self._control(event.sender, message)
            self._from_whom(event.sender, message)
            effects: list[Effect] = [Append(event)]
            key, held = (event.sender, message.stream), bool(self.waiting)
            ready = self.edges.receive(event.sender, message, effects)
            for number, inner in enumerate(ready, self.edges.expected(key) - len(ready)):
                assert type(inner) is Propagate
                self._arrive(key, inner, number, effects)
            if held and self.receipts:  # messages of this site may have been among what was held
                self._safe(effects)
            return effects
        if isinstance(event, Multicast):
            return self._originate(event)
        assert isinstance(event, Tick)
        effects = self.edges.tick(event.now)
        if self.causal:
            self._tell_settled(effects)
        return effects

    def _from_whom(self, sender: SiteId, carry: Carry) -> None:
        """What comes down comes from the parent, what is to be ordered from its source, to its entry (errata 62).

        Checked before anything changes: what is refused leaves no trace.
        """
        message = carry.message
        if type(message) is not Propagate:
            raise PeerError(f"{sender} sent what is not for propagation: {message}")
        envelope = message.envelope
        self.groups.check(sender, envelope)
        if carry.stream != 2 * envelope.order_class + bool(message.stamp):
            raise PeerError(f"{sender} sent {envelope} on stream {carry.stream}")
        try:
            entry = self.routes.entry(envelope.groups)
        except LocalError as error:
            raise PeerError(f"{sender} sent {envelope}: {error}") from None
        if message.stamp:
            above = self.routes.parent(envelope.order_class, self.me)
            if sender != above or not self.routes.passes(self.me, envelope.groups):
                raise PeerError(f"{sender} sent {envelope} down, and is not above {self.me}")
        elif envelope.source != sender or entry != self.me:
            raise PeerError(f"{sender} sent {envelope}, which is not its own or does not enter at {self.me}")
        self._check_past(sender, message)

    def _check_past(self, sender: SiteId, message: Propagate) -> None:
        """What a message names was sent before it: by its source, or with `causal` by anybody."""
        envelope = message.envelope
        for source, groups, number in message.past:
            try:
                self.groups.origin(source, groups)
                self.routes.entry(groups)
            except LocalError as error:
                raise PeerError(f"{sender} sent {envelope} after a message that nobody sends: {error}") from None
            own = source == envelope.source
            if (not own and not self.causal) or (own and number >= envelope.number):
                raise PeerError(f"{sender} sent {envelope} after {source}:{number}, which does not come before it")
        if not 0 <= message.safe < envelope.number:
            raise PeerError(f"{sender} sent {envelope} and calls {message.safe} messages safe")

    def _control(self, sender: SiteId, message: Message) -> list[Effect]:
        if type(message) is Place:
            expected = self.placing.get(message.number)
            if expected is None:  # doubled, or nobody asked
                return []
            if expected != sender:
                raise PeerError(f"{sender} speaks of the place of {message.number}, which {expected} orders")
            del self.placing[message.number]
            return [Placed(message.number, message.stamp)]
        if type(message) is Settled:
            if message.number <= self.safe_of.get(sender, 0):
                return []
            self._forget(sender, message.number)
            return [Append(Received(sender, message))]  # a restarted site must not name again what is everywhere
        effects = self.edges.control(sender, message)
        if self.receipts and type(message) is Ack:
            self._safe(effects)
        return effects

    def _safe(self, effects: list[Effect]) -> None:
        """Tell which of this site's messages are safe: acknowledged by their entry, or settled when it is this site."""
        for key, numbers in self.unsafe.items():
            upto = self.edges.settled(key) if not key[0] else self.edges.acked(key)
            while numbers and numbers[0][0] <= upto:
                number = numbers.popleft()[1]
                self.not_safe.pop(number, None)
                self.placing.pop(number, None)  # what told the place was lost
                effects.append(Safe(number))
        self._forget(self.me, self._safe_upto)

    @property
    def _safe_upto(self) -> int:
        return next(iter(self.not_safe), self.sent + 1) - 1 if self.receipts else 0

    def _forget(self, source: SiteId, number: int) -> None:
        """A source's messages up to this number are everywhere: nothing needs to wait for them any more."""
        if number <= self.safe_of.get(source, 0):
            return
        self.safe_of[source] = number
        kept = self.past.get(source)
        if kept is not None:
            self.past[source] = {groups: last for groups, last in kept.items() if last > number}
        if source == self.me:
            for own in self.own.values():
                for groups in [groups for groups, last in own.items() if last <= number]:
                    del own[groups]

    def _tell_settled(self, effects: list[Effect]) -> None:
        """Once this site has fallen silent and all it sent is safe, those who may still name it are told.

        It is said at some ticks, because nobody acknowledges it; whoever misses all of them names more than needed.
        """
        if self.told_safe < self.sent == self._safe_upto:
            self.times_told = 0
            self.told_safe = self.sent
        if self.told_safe == self.sent and self.times_told < TELL_SETTLED:
            self.times_told += 1
            others = sorted(self.groups.everybody - {self.me})
            effects += [Send(site, Settled(self.sent)) for site in others]

    def _originate(self, multicast: Multicast) -> list[Effect]:
        """`originate_message`: hand it to the primary destination, which may be this site."""
        groups = multicast.groups
        order_class, number = self.groups.origin(self.me, groups), self.sent + 1
        entry = self.routes.entry(groups)
        effects: list[Effect] = [Append(multicast)]
        safe = self._safe_upto if self.causal else 0
        self.sent = number
        envelope = self.groups.envelope(groups, self.me, self.incarnation, number, multicast.body)
        past = self._past(order_class, groups, entry)
        message = Propagate(envelope, b"", past, multicast.receipt, safe)
        stream = 2 * order_class
        key = (HERE if entry == self.me else entry, stream)
        if self.receipts:
            own = self.unsafe.setdefault(key, deque())
            self.not_safe[number] = None
        if entry == self.me:
            at = self.local[stream] = self.local.get(stream, 0) + 1
            if self.receipts:
                own.append((at, number))
            self._arrive(key, message, at, effects)
            if self.receipts:
                self._safe(effects)
        else:
            send = self.edges.send(entry, stream, message)
            if self.receipts:
                assert isinstance(send.message, Carry)
                own.append((send.message.number, number))
            if multicast.receipt:
                self.placing[number] = entry
            effects.append(send)
        return effects

    def _past(self, order_class: int, groups: Destination, entry: SiteId) -> Past:
        """Return what a message must not overtake, and remember it as what the next one must not overtake.

        What is safe is forgotten when acknowledgements say so, and they are not logged. A replay names it again, and
        that changes nothing, because it was seen everywhere. Nothing else may depend on what was forgotten.
        """
        past: Past = ()
        own = self.own.setdefault(order_class, {})
        if self.causal:
            known = ((source, *last) for source, by_destination in self.past.items() for last in by_destination.items())
            past = tuple(sorted(known))
            self.past.setdefault(self.me, {})[groups] = self.sent
        elif len(groups) > 1 or order_class in self.several:  # over one entry the stream keeps the order
            others = ((self.me, *last) for last in own.items() if self.routes.entry(last[0]) != entry)
            past = tuple(sorted(others))
        own[groups] = self.sent
        if len(groups) > 1:
            self.several.add(order_class)
        return past

    def _arrive(self, key: Key, message: Propagate, number: int, effects: list[Effect]) -> None:
        """Pass on now, or behind what its stream already holds back."""
        if not self.waiting and self._missing(message) is None:
            self._pass_on(key, message, number, effects)
            return
        self.waiting.setdefault(key, deque()).append((message, self.edges.now, number))
        self._release(effects)

    def _release(self, effects: list[Effect]) -> None:
        """Pass on the heads of streams whose past has been seen, until none is left."""
        moved = True
        while moved:
            moved = False
            for key, queue in sorted(self.waiting.items()):
                while queue and self._missing(queue[0][0]) is None:
                    message, _, number = queue.popleft()
                    self._pass_on(key, message, number, effects)
                    moved = True
                if not queue:
                    del self.waiting[key]

    def _missing(self, message: Propagate) -> tuple[SiteId, Destination, int] | None:
        """Return an earlier message that passes here and was not seen yet."""
        own = message.envelope.order_class
        for source, groups, number in message.past:
            if (
                self.seen.get((source, groups), 0) < number
                and self.routes.class_of[groups[0]] == own
                and self.routes.passes(self.me, groups)
            ):
                return source, groups, number
        return None

    def _pass_on(self, key: Key, message: Propagate, number: int, effects: list[Effect]) -> None:
        """`send_message` and `queue_for_delivery`; messages are values, so no counter is confused (errata 4)."""
        envelope = message.envelope
        order_class = envelope.order_class
        tree = self._tree(order_class)
        if message.stamp:
            tree.above = message.stamp
        else:
            message = msgspec.structs.replace(message, stamp=tree.next_stamp())
            if message.receipt:
                self._tell_place(envelope, message.stamp, effects)
        self.seen[envelope.source, envelope.groups] = envelope.number
        if self.routes.delivers(self.me, envelope.groups):
            effects.append(Deliver(envelope, message.stamp))
            if self.causal:
                self._remember(message)
        children = self.routes.children(self.me, envelope.groups)
        for child in children:
            effects.append(self.edges.send(child, 2 * order_class + 1, message))
        if self.receipts:
            self.edges.owe(key, number, [(child, 2 * order_class + 1) for child in children])

    def _tree(self, order_class: int) -> _Tree:
        tree = self.of_class.get(order_class)
        if tree is None:
            tree = _Tree(self.routes.depth(order_class, self.me), self.groups.epoch)
            self.of_class[order_class] = tree
        return tree

    def _tell_place(self, envelope: Envelope, stamp: bytes, effects: list[Effect]) -> None:
        if envelope.source == self.me:
            effects.append(Placed(envelope.number, stamp))
        else:
            effects.append(Send(envelope.source, Place(envelope.number, stamp)))

    def _remember(self, message: Propagate) -> None:
        """Add a delivered message and its past to what the next one of this site comes after."""
        envelope = message.envelope
        self._forget(envelope.source, message.safe)
        for source, groups, number in (*message.past, (envelope.source, envelope.groups, envelope.number)):
            if number > self.safe_of.get(source, 0):
                known = self.past.setdefault(source, {})
                known[groups] = max(known.get(groups, 0), number)

    def held(self) -> list[Held]:
        """Everything that waits here."""
        late = []
        for queue in self.waiting.values():
            missing = self._missing(queue[0][0]) if queue else None
            source, groups, number = missing or ("?", (), 0)
            before = f"{source}:{number} to {'+'.join(groups)}"
            for message, since, _ in queue:
                late.append(Held(str(message.envelope), f"{before} comes before it and was not seen", since))
        return self.edges.held() + late

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is unacknowledged."""
        silent = not self.causal or (self.told_safe == self.sent and self.times_told == TELL_SETTLED)
        return self.edges.idle and not self.waiting and silent
