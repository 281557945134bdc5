"""The arrow swap (HTW00 §4): follow the arrows to the sink, turning each to where the swap came from."""

from ordercast.errors import PeerError
from ordercast.names import SiteId
from ordercast.protocols.swap.multicast import NOTHING, ArrowState, MsgKey, Swap, Swapped, wrong_object


class Arrow:
    """One site's part in the arrow swap of one class.

    `link` points one hop toward the sink, or at this site when it is the sink. `value` is the last message queued
    here; it means something only at a sink.
    """

    def __init__(self, me: SiteId, toward_root: SiteId | None) -> None:
        self.me = me
        self.link = me if toward_root is None else toward_root  # at first all arrows lead to the root
        self.value: MsgKey | None = None  # None is the paper's ⊥

    def swap(self, came_from: SiteId, swap: Swap) -> Swapped:
        """Flip the arrow and pass on; at the sink the value is the predecessor.

        A second multicast before the first is resolved finds this site its own sink and needs no message (errata 43).
        """
        if came_from == self.link != self.me:  # a tree edge holds an arrow or a swap in flight, never both
            raise PeerError(f"{came_from} sent {swap} against the arrow")
        next_hop, self.link = self.link, came_from  # flip before forwarding: later swaps chase the new sink
        predecessor = self.value
        if came_from == self.me:
            self.value = swap.last
        if next_hop != self.me:
            return Swapped(forward=((next_hop, swap),))
        return Swapped(ordered=((predecessor, swap.envelope),))

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
        return ArrowState(self.link, self.value)

    def restore(self, state: object) -> None:
        """Take over a state."""
        if not isinstance(state, ArrowState):
            raise wrong_object(state)
        self.link, self.value = state.link, state.value
