"""What happens in a world, and what a run leaves behind. Data only."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from ordercast.core.effects import Held
from ordercast.core.events import Envelope, Event, Received
from ordercast.names import SiteId

Trace = Callable[[str], None]


@dataclass(frozen=True)
class Crash:
    """A site stops at a time; with `back` it restarts then, from its log. A pause keeps all that comes in."""

    site: SiteId
    at: float
    back: float | None = None
    pause: bool = False
    between: bool = False
    """Stop in the middle of the next step after that time, between two of its effects."""


class Link(NamedTuple):
    """The link between two sites comes up, or goes down."""

    one: SiteId
    other: SiteId
    up: bool


class Resumed(NamedTuple):
    """What was told when a link came up, and which link that was."""

    event: Received
    ends: frozenset[SiteId]
    session: int


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One delivery, as it happened."""

    site: SiteId
    envelope: Envelope
    stamp: bytes
    time: float


@dataclass
class Outcome:
    """What a run left behind."""

    sent: list[tuple[Envelope, float, int]] = field(default_factory=list)
    """Envelope, time, and how many messages its source had delivered by then; empty when nothing is kept."""
    deliveries: list[Delivery] = field(default_factory=list)
    sends: int = 0
    delivered: int = 0
    held: dict[SiteId, list[Held]] = field(default_factory=dict)
    messages: int = 0
    """Network messages that the papers count."""
    control: int = 0
    events: int = 0
    time: float = 0.0
    load: dict[SiteId, int] = field(default_factory=dict)
    """Counted messages sent plus received, per site."""


MULTICAST, ORDER, ARRIVE, TICK, FAULT, LINK, RESUME = range(7)
"""Kinds of what happens; `Happening` holds the rest."""
Happening = Event | Crash | Link | Resumed | None
