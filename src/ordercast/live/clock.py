"""The time that a node is told: it goes on after a restart, and never back."""

import time


class WallClock:
    """The machine's clock; while it is set back, time stands still."""

    def __init__(self) -> None:
        self._last = 0.0

    def __call__(self) -> float:
        """Return the time, in seconds."""
        now = time.time()
        self._last = max(self._last, now)
        return self._last
