"""The time that a node is told: about the time of day when it starts, and from then on it goes its even way."""

from time import monotonic, time


class WallClock:
    """The machine's clock as it was at the start, and the seconds since: who sets the clock changes nothing here.

    Ticks, and with them acknowledgements and changes, hang on it: they must not stop when the clock is set back.
    """

    def __init__(self) -> None:
        self._began = time() - monotonic()

    def __call__(self) -> float:
        """Return the time, in seconds."""
        return monotonic() + self._began
