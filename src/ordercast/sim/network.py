"""Links: delay, jitter, loss, duplication, cuts; the cost models of GS88 §4."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ordercast.names import SiteId


@dataclass(frozen=True)
class Cut:
    """Nothing passes between two sites for a while; one way or both."""

    a: SiteId
    b: SiteId
    begin: float
    end: float
    one_way: bool = False


@dataclass(frozen=True)
class Network:
    """What a link does to a message. Times are in units of the latency L, unless you say otherwise.

    In the point-to-point model (GS88 §4.1) a site puts its messages on the network one after the other, each taking
    `processing`, and each arrives `latency` later. In the broadcast model (§4.2) there is one message on the network
    at a time, it takes `broadcast`, and all sites that are sent the same message by one site get it at once.
    """

    latency: float = 1.0
    jitter: float = 0.0
    processing: float = 0.0
    broadcast: float = 0.0
    loss: float = 0.0
    duplicate: float = 0.0
    cuts: tuple[Cut, ...] = field(default=())
    latencies: Mapping[tuple[SiteId, SiteId], float] = field(default_factory=dict)
    """Of pairs of sites, in any order; others take `latency`."""

    @cached_property
    def plain(self) -> bool:
        """Whether every message arrives once, after the latency."""
        return not (self.jitter or self.loss or self.duplicate or self.cuts or self.latencies)

    def between(self, one: SiteId, other: SiteId) -> float:
        """Return the latency between two sites."""
        return self.latencies.get((one, other), self.latencies.get((other, one), self.latency))

    def delays(self, chance: random.Random, sender: SiteId, receiver: SiteId, now: float) -> list[float]:
        """Return when the copies of a message arrive, counted from its departure; none when it is lost."""
        if self.cuts and any(self._cuts(cut, sender, receiver, now) for cut in self.cuts):
            return []
        if self.loss and chance.random() < self.loss:
            return []
        copies = 2 if self.duplicate and chance.random() < self.duplicate else 1
        latency = self.between(sender, receiver) if self.latencies else self.latency
        if not self.jitter:
            return [latency] * copies
        return [latency + self.jitter * chance.random() for _ in range(copies)]

    def is_cut(self, one: SiteId, other: SiteId, now: float) -> bool:
        """Whether nothing passes between two sites now, at least one way."""
        ends = {one, other}
        return any({cut.a, cut.b} == ends and cut.begin <= now < cut.end for cut in self.cuts)

    @staticmethod
    def _cuts(cut: Cut, sender: SiteId, receiver: SiteId, now: float) -> bool:
        between = (sender, receiver) == (cut.a, cut.b) or (not cut.one_way and (receiver, sender) == (cut.a, cut.b))
        return between and cut.begin <= now < cut.end
