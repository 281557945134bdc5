"""The combining swap (HTW00 §5): messages climb a tree and combine where they meet.

When swaps [a..b] and [c..d] meet, b is c's predecessor and [a..d] climbs on: the body of a travels up, c is multicast
where they met. They combine in the order of arrival, so that two messages of one source keep their order (errata 48).
To meet they must wait: a site sends the first at once and gathers what comes until the next tick. So a lone message
never waits, and a crowd climbs as one.
"""

from itertools import pairwise

from ordercast.names import SiteId
from ordercast.protocols.swap.multicast import NOTHING, CombiningState, MsgKey, Swap, Swapped, wrong_object


class Combining:
    """One site's part in the combining tree of one class; the root holds the value."""

    def __init__(self, me: SiteId, parent: SiteId | None) -> None:
        self.me, self.parent = me, parent
        self.value: MsgKey | None = None  # at the root: the last message of all
        self.gathered: list[Swap] = []
        self.busy = False  # something was sent up since the last tick

    def swap(self, came_from: SiteId, swap: Swap) -> Swapped:
        """At the root: answer. Elsewhere: climb on, or gather while the way up is busy."""
        if self.parent is None:
            predecessor, self.value = self.value, swap.last
            return Swapped(ordered=((predecessor, swap.envelope),))
        if self.busy:
            self.gathered.append(swap)
            return NOTHING
        self.busy = True
        return Swapped(forward=((self.parent, swap),))

    def tick(self) -> Swapped:
        """Combine what was gathered: each is the predecessor of the next, and one message climbs on."""
        self.busy = bool(self.gathered)
        if not self.gathered or self.parent is None:
            return NOTHING
        gathered, self.gathered = self.gathered, []
        combined = Swap(gathered[0].envelope, gathered[-1].last, gathered[0].bare)
        ordered = tuple((before.last, after.envelope) for before, after in pairwise(gathered))
        return Swapped(forward=((self.parent, combined),), ordered=ordered)

    @property
    def restless(self) -> bool:
        """Whether the way up is busy."""
        return self.busy

    @property
    def waiting(self) -> list[Swap]:
        """What was gathered since the last tick."""
        return self.gathered

    def snapshot(self) -> CombiningState:
        """Return the state."""
        return CombiningState(self.value, self.gathered, self.busy)

    def restore(self, state: object) -> None:
        """Take over a state."""
        if not isinstance(state, CombiningState):
            raise wrong_object(state)
        self.value, self.gathered, self.busy = state.value, state.gathered, state.busy
