"""What was said and is not answered yet: it is said again after one tick, then after two, four, and so on.

Links lose nothing while they last, so an answer that does not come is mostly under way. In a cluster of hundreds of
sites, those who say everything again at every tick keep each other busy with nothing else.
"""

from collections.abc import Hashable

TICKS_AT_MOST = 8  # between two times


class Repeats:
    """One per site. It is volatile: after a restart everything is said at once."""

    def __init__(self) -> None:
        self._said: dict[Hashable, tuple[int, int]] = {}  # ticks still to wait, and how many were to be waited

    def due(self, what: Hashable) -> bool:
        """Whether something is to be said now; who asks says it."""
        left, waited = self._said.get(what, (0, 0))
        if left > 0:
            return False
        wait = min(2 * waited, TICKS_AT_MOST) or 1
        self._said[what] = (wait, wait)
        return True

    def later(self, what: Hashable) -> None:
        """Something is expected to come by itself before long."""
        self._said.setdefault(what, (TICKS_AT_MOST // 2, 1))

    def tick(self) -> None:
        """Time passes; what nobody wanted to say for long is forgotten."""
        self._said = {w: (left - 1, waited) for w, (left, waited) in self._said.items() if left > -TICKS_AT_MOST}

    def again(self) -> None:
        """A link is there that was not: what was said may be lost."""
        self._said.clear()
