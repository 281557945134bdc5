"""One stream between two sites: what travels on it, and what each end keeps of it.

A stream is a small number inside a class. Streams keep traffic apart that must not wait for each other (errata 6).
"""

from typing import Any, Generic, TypeVar

import msgspec

from ordercast.core.events import Control, Message
from ordercast.core.resume import Counts, Resume
from ordercast.names import SiteId

HERE: SiteId = ""
"""The sender of what this site's own application sends."""
Key = tuple[SiteId, int]
"""A peer and a stream."""
Range = tuple[int, int]
"""The first and the last number."""
M = TypeVar("M")


class Carry(Message, Generic[M], frozen=True, gc=False):
    """A message with its number on this edge."""

    stream: int
    number: int
    message: M

    def __str__(self) -> str:
        return f"{self.message} seq={self.number}"


class Null(Control, frozen=True, gc=False, tag=11):
    """I am alive, and this was the last number (GS88 §3.2, null messages)."""

    stream: int
    last: int

    def __str__(self) -> str:
        return f"Null last={self.last}"


class Resend(Control, frozen=True, gc=False, tag=12):
    """Send these numbers again."""

    stream: int
    first: int
    last: int

    def __str__(self) -> str:
        return f"Resend {self.first}-{self.last}"


class Ack(Control, frozen=True, gc=False, tag=10):
    """I have everything up to this number, and these ranges beyond it."""

    stream: int
    upto: int
    beyond: tuple[Range, ...] = ()

    def __str__(self) -> str:
        return f"Ack {self.upto}" + "".join(f" {first}-{last}" for first, last in self.beyond)


class Out(msgspec.Struct, Generic[M], array_like=True):
    """The sender's end of an edge."""

    sent: int = 0
    """The number given last."""
    acked: int = 0
    """Everything up to this number was acknowledged."""
    told: int = 0
    """The number given last when a tick last looked."""
    since: float = 0.0
    """When a tick last saw something new."""
    linked: int = 0
    """What was acknowledged when the link came up."""
    kept: dict[int, Carry[M]] = {}
    """Not yet acknowledged."""
    because: dict[int, tuple[Key, int]] = {}
    """With `subtree`: for a number, the incoming edge and its number that wait for it."""
    unsaid: int = 0
    """The first number that was given in this life while there was no link; 0 when the peer may have all."""


class In(msgspec.Struct, Generic[M], array_like=True):
    """The receiver's end of an edge."""

    expected: int = 1
    early: dict[int, M] = {}
    """The wait queue."""
    since: float = 0.0
    asked: bool = False
    """Since the last tick."""
    asked_upto: int = 0
    seen: int = 0
    """The highest number known to be missing."""
    fresh: bool = False
    """There is something to acknowledge."""
    settled: int = 0
    """Everything up to this number may be acknowledged."""
    beyond: list[int] = []
    """With `subtree`: further numbers that may be acknowledged, sorted."""
    told: int = 0
    """With `subtree`: up to which number of `beyond` the last acknowledgement went; 0 when it held them all."""
    again: bool = False
    """With `subtree`: below `told` there is something new."""
    linked: int = 0
    """What had been received when the link came up."""
    owed: dict[int, int] = {}
    """With `subtree`: how many acknowledgements a number waits for."""


class EdgesState(msgspec.Struct, Generic[M], array_like=True):
    """All edges of a machine."""

    now: float
    outgoing: list[tuple[Key, Out[M]]]
    incoming: list[tuple[Key, In[M]]]
    own: dict[int, int]
    """With `subtree`: how many acknowledgements this site's own messages wait for, by their numbers."""

    def durable(self) -> object:
        """Return what a replay rebuilds: the numbers given and expected, and what is parked.

        The rest is volatile: what is acknowledged, asked for, told, and when.
        """
        incoming = [(key, edge.expected, edge.early) for key, edge in self.incoming if edge.expected > 1 or edge.early]
        return [(key, out.sent) for key, out in self.outgoing], incoming


def counts_of(out: Out[Any] | None, edge: In[Any] | None) -> Counts:
    """Return what this site knows of a stream to a peer and back."""
    sent, acked = (out.sent, out.linked) if out is not None else (0, 0)
    unsaid = out.sent - out.unsaid + 1 if out is not None and out.unsaid else 0
    received, before = (edge.expected - 1, edge.linked) if edge is not None else (0, 0)
    return Counts(sent, acked, received, before, unsaid)


def resumed(outgoing: dict[Key, Out[Any]], incoming: dict[Key, In[Any]], peer: SiteId) -> list[Resume]:
    """A link came up: return what this site knows of every stream to the peer and back, and remember that."""
    found = []
    for key in sorted({key for key in (*outgoing, *incoming) if key[0] == peer}):
        out, edge = outgoing.get(key), incoming.get(key)
        if out is not None:
            out.linked = out.acked
        if edge is not None:
            edge.linked, edge.asked = edge.expected - 1, False
        counts = counts_of(out, edge)
        found.append(Resume(key[1], counts.sent, counts.acked, counts.received))
    return found


def forget(outgoing: dict[Key, Out[Any]], incoming: dict[Key, In[Any]], peer: SiteId) -> bool:
    """Throw away what waits for messages of a peer that has lost them, and what it will not acknowledge.

    Returns whether there was anything between the two sites.
    """
    edges = [edge for key, edge in incoming.items() if key[0] == peer]
    outs = [out for key, out in outgoing.items() if key[0] == peer]
    for edge in edges:
        edge.early, edge.seen, edge.asked_upto = {}, 0, 0
    for out in outs:
        out.kept, out.because = {}, {}
    return bool(edges or outs)
