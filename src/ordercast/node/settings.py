"""What a node must know of its configuration: plain values, no addresses."""

from typing import Annotated

import msgspec

from ordercast.names import SiteId

Positive = Annotated[int, msgspec.Meta(gt=0)]


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every queue has a bound; what happens when it is reached is in docs/live.md."""

    body_bytes: Positive = 16 * 2**20
    """A longer message is refused."""
    envelope_bytes: Positive = 64 * 2**10
    """A batch is sent when it has so many bytes (or at the next turn of the loop)."""
    envelope_messages: Positive = 1024
    window_bytes: Positive = 2**20
    """A source waits while so many bytes of its own to one destination are not yet safe."""
    window_envelopes: Positive = 1000
    """Where the protocol gives no receipts: a source waits while so many envelopes of a class are under way."""
    inbox_bytes: Positive = 16 * 2**20
    """A reader that is so far behind makes the senders of its classes wait, or is dropped, as it asked for."""
    retain_messages: Positive = 1_000_000
    """A reader may resume from a position at most so far behind."""
    retain_bytes: Positive | None = None
    """The same, in bytes of records, about."""
    retain_seconds: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """The same, in time, about."""
    checkpoint_bytes: Positive = 64 * 2**20
    """A site keeps its whole state after so many bytes of records; a restart steps through what came after."""
    connections: Positive = 1024


class Settings(msgspec.Struct, frozen=True):
    """One cluster, as all its nodes see it."""

    cluster: str
    sites: frozenset[SiteId]
    durable: bool
    plan: str
    """A hash of protocol, plan and groups: sites that differ must not talk."""
    described: bytes
    """What decides on the order, in words, as JSON: kept with the history."""
    limits: Limits = Limits()
    exporting: bool = False
    changes: bool = False
    """Groups change (docs/protocols/epochs.md): a site that has lost its disk is taken in again, not refused."""
    suspect_beats: int = 10
    """Where groups change: a site of which nothing is heard for so many beats is suspected."""
    migrate_at: int = 100
    """Where a sequencer moves to the busiest sender: not for fewer requests."""
    data: str = "the data folder"
    """Where histories are, for people."""
