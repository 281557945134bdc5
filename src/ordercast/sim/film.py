"""What a space-time diagram shows: messages on their way between sites, and what happened at a site."""

from dataclasses import dataclass, field

from ordercast.core.events import Control, Envelope, Message
from ordercast.names import SiteId


@dataclass(frozen=True, slots=True)
class Flight:
    """A message on its way."""

    sender: SiteId
    receiver: SiteId
    departs: float
    arrives: float
    text: str
    message: str = ""
    """The multicast it is about; it gives the colour. Empty for what only repairs and acknowledges."""
    lost: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at a site: `multicast`, `deliver`, `crash` or `back`."""

    site: SiteId
    time: float
    kind: str
    text: str = ""


@dataclass
class Film:
    """A run as pictures need it; stops after so many flights."""

    sites: list[SiteId]
    at_most: int = 60
    flights: list[Flight] = field(default_factory=list)
    marks: list[Mark] = field(default_factory=list)

    @property
    def full(self) -> bool:
        """Whether more happened than can be drawn."""
        return len(self.flights) >= self.at_most

    def flies(self, flight: Flight) -> None:
        """Add a message, unless the film is full."""
        if not self.full:
            self.flights.append(flight)

    def happens(self, mark: Mark) -> None:
        """Add a mark, unless the film is full."""
        if not self.full:
            self.marks.append(mark)


def flight_of(
    sender: SiteId, to: SiteId, message: Message, departs: float, arrives: float, *, lost: bool = False
) -> Flight:
    """Return a message as a picture shows it."""
    inner: Message = getattr(message, "message", message)
    envelope: Envelope | None = getattr(inner, "envelope", None)
    if isinstance(message, Control):
        return Flight(sender, to, departs, arrives, str(message), lost=lost)
    name = envelope.msg_id if envelope is not None else str(inner)
    return Flight(sender, to, departs, arrives, f"{type(inner).__name__} {name}" if envelope else name, name, lost)
