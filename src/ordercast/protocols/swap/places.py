"""A swap tree that nodes enter and leave while others swap (HTW00 §6.2): only neighbours take part.

A node enters as a leaf: it tells one node of the tree, and its arrow points there. A node that leaves locks itself and
its neighbours, one after the other in the order of their names, so that two neighbours who leave at once never wait for
each other; when its neighbours have changed meanwhile, it starts over. Then nothing is under way to it, and an heir
takes its place: the node that its arrow points to, its parent, or, where it is the sink or the root, a neighbour that
becomes the sink or the root with its value (errata 45; the printed rule leaves a circle of two behind).

Links are FIFO and lose nothing (`core.edges`). Who is locked holds swaps back, but for those of the node that leaves:
they were under way before. Whatever is sent to a node that has left is answered with where it went.
"""

from collections import deque
from typing import Any, Literal

import msgspec

from ordercast.core.events import Envelope
from ordercast.names import ClassId, SiteId
from ordercast.protocols.swap.arrow import Arrow
from ordercast.protocols.swap.combining import Combining
from ordercast.protocols.swap.multicast import MsgKey, ObjectState, Swap, Swapped

Kind = Literal["arrow", "combining"]
NOWHERE = ClassId(0, 0)


class Said(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What one node says to another."""


class Enter(Said, frozen=True, gc=False, tag=43):
    """I am a leaf of yours from now on."""


class Entered(Said, frozen=True, gc=False, tag=44):
    """You are."""


class Moved(Said, frozen=True, gc=False, tag=45):
    """I have left; this node is in my place."""

    heir: SiteId


class Lock(Said, frozen=True, gc=False, tag=46):
    """I want to leave: hold still."""


class Locked(Said, frozen=True, gc=False, tag=47):
    """I do, until you say what becomes of us."""


class Release(Said, frozen=True, gc=False, tag=48):
    """I start over: go on."""


class Splice(Said, frozen=True, gc=False, tag=49):
    """I have left: the heir has my place and all my neighbours, and my value where it is the sink or the root now."""

    heir: SiteId
    others: tuple[SiteId, ...]
    last: bool = False
    """I was the sink, or the root."""
    value: MsgKey | None = None


class Found(Said, frozen=True, gc=False, tag=54):
    """Your swap of this number came right after that one."""

    number: int
    before: MsgKey | None


Message = Swap | Enter | Entered | Moved | Lock | Locked | Release | Splice | Found
Sends = list[tuple[SiteId, Message]]


class PlaceState(msgspec.Struct, array_like=True):
    """The whole state of a node."""

    neighbours: list[SiteId]
    swap_object: ObjectState
    parent: SiteId | None
    locker: SiteId | None
    queue: list[SiteId]
    held: list[tuple[SiteId, Swap | Enter]]
    wants: list[SiteId]
    got: list[SiteId]
    leaving: bool
    left: bool
    heir: SiteId
    entering: bool
    sent: int
    found: dict[int, MsgKey | None]


class Place:
    """One node's place in the tree, and its part in the swap object."""

    def __init__(
        self, me: SiteId, kind: Kind, neighbours: tuple[SiteId, ...] = (), toward: SiteId | None = None
    ) -> None:
        """`toward`: the neighbour on the way to the root, None at the root."""
        self.me, self.kind = me, kind
        self.neighbours = set(neighbours)
        self.object: Arrow | Combining = Arrow(me, toward) if kind == "arrow" else Combining(me, toward)
        self.locker: SiteId | None = None  # who wants to leave, and holds this node
        self.queue: deque[SiteId] = deque()  # who waits to hold it
        self.held: deque[tuple[SiteId, Swap | Enter]] = deque()
        self.wants: list[SiteId] = []  # whom this node has to lock, in order
        self.got: list[SiteId] = []
        self.leaving = self.left = False
        self.heir = ""
        self.entering = False
        self.sent = 0
        self.found: dict[int, MsgKey | None] = {}  # the results of this node's swaps

    # What an application asks for.

    def swap(self) -> Sends:
        """Swap the next value of this node in; it is found in `found` what was there before."""
        assert not self.leaving and not self.left, "it leaves"
        self.sent += 1
        envelope = Envelope(NOWHERE, (), self.me, 1, self.sent, b"")
        return self._swap(self.me, Swap(envelope, (self.me, 1, self.sent)))

    def enter(self, where: SiteId) -> Sends:
        """Become a leaf of a node; swaps wait until it has said so."""
        self.entering = True
        self._point(where)
        return [(where, Enter())]

    def leave(self) -> Sends:
        """Leave the tree, when nothing of this node is under way any more in it."""
        self.leaving = True
        return self._lock_next() if not self.entering else []

    def tick(self) -> Sends:
        """Time passes: a combining tree sends on what it has gathered."""
        return self._done(self.object.tick()) if not self.left and not self._holds_still(self.me) else []

    # What neighbours say.

    def take(self, sender: SiteId, message: Message) -> Sends:
        """Take a message to completion."""
        match message:
            case Swap():
                return self._swap(sender, message)
            case Enter():
                return self._let_in(sender)
            case Entered():
                self.entering = False
                self.neighbours.add(sender)
                return self._go_on() + (self._lock_next() if self.leaving else [])
            case Moved(heir):
                return self._moved(sender, heir)
            case Lock():
                return self._grant(sender)
            case Locked():
                self.got.append(sender)
                return self._lock_next()
            case Release():
                return self._unlock()
            case Splice():
                return self._splice(sender, message)
            case Found(number, before):
                self.found[number] = before
                return []

    def _holds_still(self, sender: SiteId) -> bool:
        """Whether what a node sends is held back: this node is locked by another one, or not in the tree yet."""
        return self.entering or (self.locker not in (None, self.me) and sender != self.locker)

    def _swap(self, sender: SiteId, swap: Swap) -> Sends:
        if self._holds_still(sender):
            self.held.append((sender, swap))
            return []
        return self._done(self.object.swap(sender, swap))

    def _done(self, swapped: Swapped) -> Sends:
        sends: Sends = list(swapped.forward)
        for before, envelope in swapped.ordered:
            if envelope.source == self.me:
                self.found[envelope.number] = before
            else:
                sends.append((envelope.source, Found(envelope.number, before)))
        return sends

    def _let_in(self, sender: SiteId) -> Sends:
        if self.left:
            return [(sender, Moved(self.heir))]
        if self.locker is not None or self.entering:
            self.held.append((sender, Enter()))
            return []
        self.neighbours.add(sender)
        return [(sender, Entered())]

    def _moved(self, sender: SiteId, heir: SiteId) -> Sends:
        """Who was asked has left: a node that enters asks the heir, one that leaves starts over."""
        if self.entering:
            return self.enter(heir)
        return self._start_over()

    # Leaving.

    def _lock_next(self) -> Sends:
        """Ask for the next lock; with all of them, leave."""
        if not self.wants:
            self.wants = self._around()
        if len(self.got) < len(self.wants):
            other = self.wants[len(self.got)]
            return self._grant(self.me) if other == self.me else [(other, Lock())]
        if self.wants != self._around():
            return self._start_over()
        return self._go()

    def _around(self) -> list[SiteId]:
        return sorted({self.me, *self.neighbours})

    def _start_over(self) -> Sends:
        got, self.got, self.wants = self.got, [], []
        sends: Sends = [(other, Release()) for other in got if other != self.me]
        if self.me in got:
            sends += self._unlock()
        return sends + self._lock_next()

    def _grant(self, to: SiteId) -> Sends:
        """Let a node hold this one; one at a time."""
        if self.left:
            return [(to, Moved(self.heir))]
        if self.locker is not None or self.entering:
            self.queue.append(to)
            return []
        self.locker = to
        if to == self.me:
            self.got.append(self.me)
            return self._lock_next()
        return [(to, Locked())]

    def _unlock(self) -> Sends:
        self.locker = None
        return self._go_on()

    def _go_on(self) -> Sends:
        """Take what was held back, and let the next node hold this one."""
        sends: Sends = []
        held, self.held = self.held, deque()
        for sender, message in held:
            sends += self._swap(sender, message) if isinstance(message, Swap) else self._let_in(sender)
        if self.queue and self.locker is None:
            sends += self._grant(self.queue.popleft())
        return sends

    def _go(self) -> Sends:
        """Everybody around holds still: hand the place over, and be gone."""
        others = sorted(self.neighbours)
        self.left, self.leaving, self.locker = True, False, None
        self.heir = self.toward or (others[0] if others else "")
        if not others:
            return [(who, Moved("")) for who in self.queue]
        sends: Sends = []
        sends += self._empty()
        last = self.toward is None
        for other in others:
            rest = tuple(one for one in others if one != self.heir) if other == self.heir else ()
            value = self.object.value if last and other == self.heir else None
            sends.append((other, Splice(self.heir, rest, last and other == self.heir, value)))
        sends += [(who, Moved(self.heir)) for who in self.queue]
        sends += [(who, Moved(self.heir)) for who, message in self.held if isinstance(message, Enter)]
        self.queue.clear()
        self.held.clear()
        self.neighbours.clear()
        return sends

    def _empty(self) -> Sends:
        """A node of a combining tree sends on what it has gathered before it goes (errata 45)."""
        node = self.object
        gathered = isinstance(node, Combining) and node.parent is not None and node.gathered
        sends = self._done(node.tick()) if gathered else []
        if isinstance(node, Combining):
            node.busy = False  # it has no more ticks
        return sends

    def _splice(self, sender: SiteId, told: Splice) -> Sends:
        """A neighbour has left: the heir takes its place."""
        self.neighbours.discard(sender)
        self.neighbours.update(told.others if told.heir == self.me else (told.heir,))
        sends: Sends = []
        if told.heir != self.me:
            if self.toward == sender:
                self._point(told.heir)
        elif told.last:
            sends += self._become_last(told.value)
        return sends + self._unlock()

    def _become_last(self, value: MsgKey | None) -> Sends:
        """Be the sink, or the root."""
        node = self.object
        if isinstance(node, Arrow):
            node.link, node.value = self.me, value
            return []
        gathered, node.gathered, node.busy = node.gathered, [], False
        node.parent, node.value = None, value
        return [send for swap in gathered for send in self._done(node.swap(self.me, swap))]

    @property
    def toward(self) -> SiteId | None:
        """Return the neighbour on the way to the sink or the root; None where it is here."""
        node = self.object
        if isinstance(node, Arrow):
            return node.link if node.link != self.me else None
        return node.parent

    def _point(self, to: SiteId) -> None:
        if isinstance(self.object, Arrow):
            self.object.link = to
        else:
            self.object.parent = to

    # Looking.

    @property
    def rests(self) -> bool:
        """Whether nothing waits here."""
        busy = self.held or self.queue or self.locker or self.entering or self.leaving or self.object.restless
        return not busy and len(self.found) == self.sent

    def snapshot(self) -> PlaceState:
        """Return the whole state."""
        parent = self.object.parent if isinstance(self.object, Combining) else None
        return PlaceState(
            sorted(self.neighbours), self.object.snapshot(), parent, self.locker, list(self.queue), list(self.held),
            list(self.wants), list(self.got), self.leaving, self.left, self.heir, self.entering, self.sent,
            dict(sorted(self.found.items())),
        )  # fmt: skip

    def restore(self, state: Any) -> None:
        """Take over a state."""
        self.neighbours, self.locker, self.queue = set(state.neighbours), state.locker, deque(state.queue)
        self.object.restore(state.swap_object)
        if isinstance(self.object, Combining):
            self.object.parent = state.parent
        self.held, self.wants, self.got = deque(state.held), state.wants, state.got
        self.leaving, self.left, self.heir, self.entering = state.leaving, state.left, state.heir, state.entering
        self.sent, self.found = state.sent, state.found
