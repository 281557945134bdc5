"""What sites say to each other when they pass messages along a plan."""

from ordercast.core.configuration import Destination
from ordercast.core.events import Control, Envelope, Message
from ordercast.names import SiteId

Past = tuple[tuple[SiteId, Destination, int], ...]
"""For a source and a destination, the highest number of a message that came before."""


class Propagate(Message, frozen=True, gc=False, tag=1):
    """A multicast on its way (GS88 App. I, record `message`); without a stamp on its way to its entry."""

    envelope: Envelope
    stamp: bytes = b""
    past: Past = ()
    receipt: bool = False
    """The source waits to hear of its place."""
    safe: int = 0
    """With `causal`: the source's messages up to this number are at all their destinations."""
    bare: bool = False
    """This is the place of a message only; the body goes past the extra nodes (MGT §4.2)."""

    def __str__(self) -> str:
        return f"Propagate {self.envelope}{' without body' if self.bare else ''}"


class Body(Message, frozen=True, gc=False, tag=5):
    """A message whose place comes down the tree through extra nodes, which need no body."""

    envelope: Envelope

    def __str__(self) -> str:
        return f"Body {self.envelope}"


class Close(Message, frozen=True, gc=False, tag=4):
    """The class ends (GS88 §5.1): ordered like any message, and nothing comes after it on this edge."""

    def __str__(self) -> str:
        return "Close"


class Settled(Control, frozen=True, gc=False, tag=3):
    """With `causal`: my messages up to this number are at all their destinations; name them no more."""

    number: int

    def __str__(self) -> str:
        return f"Settled {self.number}"


class Place(Control, frozen=True, gc=False, tag=2):
    """The entry tells the source where its message stands."""

    number: int
    stamp: bytes

    def __str__(self) -> str:
        return f"Place {self.number}"
