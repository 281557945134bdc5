"""The hybrid swap (HTW00 §6.1): a combining tree whose root is several sites that run the arrow among themselves.

Below, messages climb and combine. A batch [a..b] that reaches the virtual root is a swap there: it looks for the
predecessor of a and leaves b as the value (errata 49). A lone sender in the virtual root needs no message at all, and
no single site carries all the traffic. The virtual root may be any upper part of the tree: with no level below the root
all combine, with all levels it is the arrow.
"""

from ordercast.names import SiteId
from ordercast.planning.routes import SpanningTree
from ordercast.protocols.swap.arrow import Arrow
from ordercast.protocols.swap.combining import Combining
from ordercast.protocols.swap.multicast import NOTHING, ArrowState, Swap, SwapObject, Swapped


class VirtualRoot:
    """A site of the virtual root: what comes from below is a swap of its own."""

    def __init__(self, me: SiteId, toward_root: SiteId | None, fellows: frozenset[SiteId]) -> None:
        self.me, self.fellows = me, fellows
        self.arrow = Arrow(me, toward_root)

    def swap(self, came_from: SiteId, swap: Swap) -> Swapped:
        """Follow the arrows among the fellows."""
        return self.arrow.swap(came_from if came_from in self.fellows else self.me, swap)

    def tick(self) -> Swapped:
        """Nothing ever waits in an arrow."""
        return NOTHING

    @property
    def restless(self) -> bool:
        """An arrow does nothing at ticks."""
        return False

    @property
    def waiting(self) -> list[Swap]:
        """An arrow holds nothing back."""
        return []

    def snapshot(self) -> ArrowState:
        """Return the state."""
        return self.arrow.snapshot()

    def restore(self, state: object) -> None:
        """Take over a state."""
        self.arrow.restore(state)


def hybrid(me: SiteId, tree: SpanningTree, levels: int = 1) -> SwapObject:
    """Build one site's part: the root of the tree and so many levels below it are the virtual root."""
    parent, fellows = tree.parent(me), tree.upper(levels)
    return VirtualRoot(me, parent, fellows) if me in fellows else Combining(me, parent)
