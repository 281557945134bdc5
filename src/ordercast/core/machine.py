"""The interface of a protocol: one site's part in one class, a pure machine with one door."""

from typing import Any, Protocol

import msgspec

from ordercast.core.effects import Effect, Held
from ordercast.core.events import Event
from ordercast.names import SiteId


class Machine(Protocol):
    """One site's part in the order of one class. `step` touches no socket, disk, clock or random source."""

    me: SiteId

    def step(self, event: Event) -> list[Effect]:
        """Take one event to completion and return what is to be done, in order."""
        ...

    def held(self) -> list[Held]:
        """Return everything that waits here, why, and since when."""
        ...

    @property
    def idle(self) -> bool:
        """Whether nothing waits and nothing is unacknowledged: no tick would change anything."""
        ...

    @property
    def under_way(self) -> int:
        """How many messages are not where they should be: what the slowest peer lacks, or what is held here."""
        ...

    def snapshot(self) -> msgspec.Struct:
        """Return the whole state. It shares values with the machine: encode it before the next step."""
        ...

    def restore(self, state: Any) -> None:
        """Take over a state that a machine of the same site and class has given."""
        ...
