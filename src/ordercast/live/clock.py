"""The time that a node is told: it goes on after a restart, and never back."""

from time import time as _now


class WallClock:
    """The machine's clock; while it is set back, time stands still."""

    def __init__(self) -> None:
        self._last = 0.0

    def __call__(self) -> float:
        """Return the time, in seconds."""
        now = _now()
        if now > self._last:  # noqa: PLR1730 - called for every message, and `max` costs twice as much
            self._last = now
        return self._last
