"""When to tick: machines acknowledge and repeat at ticks, and an idle site has none."""

TICK_S = 0.005  # while there is much to acknowledge: acknowledgements climb the tree at this pace
HURRY_S = 0.001  # while somebody waits for a receipt
HURRIED_S = 0.1  # how long that lasts
REST_S = 0.1  # while there is little to acknowledge
ACKNOWLEDGE_BYTES = 128 * 2**10


class Pace:
    """The time of the next tick, and why it is near."""

    def __init__(self) -> None:
        self.tick_at: float | None = None
        self.unacknowledged = 0  # bytes taken in since the last tick
        self.active = False  # something happened since the last tick
        self._hurried = 0.0  # until when somebody waits for a receipt

    def rest(self, now: float) -> None:
        """Something happened: tick before long."""
        if self.tick_at is None:
            self.tick_at = now + REST_S

    def took(self, now: float, size: int) -> None:
        """So many bytes came in and are to be acknowledged."""
        self.unacknowledged += size
        if self.unacknowledged > ACKNOWLEDGE_BYTES:
            self._within(now, TICK_S)

    def hurry(self, now: float) -> None:
        """Somebody waits for a receipt: acknowledge soon, and for a while what is acknowledged to us too."""
        self._hurried = max(self._hurried, now + HURRIED_S)
        self._within(now, HURRY_S)

    def acknowledged(self, now: float) -> None:
        """An acknowledgement came: pass it on soon while somebody waits for a receipt."""
        if now < self._hurried:
            self._within(now, HURRY_S)

    def _within(self, now: float, seconds: float) -> None:
        if self.tick_at is None or self.tick_at > now + seconds:
            self.tick_at = now + seconds

    def ticked(self, now: float, *, idle: bool) -> None:
        """A tick was done: plan the next one, unless there is nothing to do."""
        self.unacknowledged = 0
        active, self.active = self.active, False
        self.tick_at = None if idle else now + (REST_S if active else 2 * REST_S)
