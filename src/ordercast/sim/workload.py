"""Who sends what, when: uniform, Zipf, bursts, request and reply."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from ordercast.types import GroupId, SiteId


@dataclass(frozen=True, slots=True)
class Order:
    """Send a body from a site to groups at a time."""

    time: float
    source: SiteId
    groups: tuple[GroupId, ...]


Workload = Callable[[random.Random, list[SiteId], list[GroupId], int, float], list[Order]]


def uniform(
    chance: random.Random, sources: list[SiteId], groups: list[GroupId], count: int, span: float
) -> list[Order]:
    """Any source to any group, at any time of the span."""
    return [Order(chance.random() * span, chance.choice(sources), (chance.choice(groups),)) for _ in range(count)]


def zipf(chance: random.Random, sources: list[SiteId], groups: list[GroupId], count: int, span: float) -> list[Order]:
    """The k-th group gets 1/k of the traffic of the first."""
    weights = [1.0 / rank for rank in range(1, len(groups) + 1)]
    drawn = chance.choices(groups, weights, k=count)
    return [Order(chance.random() * span, chance.choice(sources), (group,)) for group in drawn]


def bursts(chance: random.Random, sources: list[SiteId], groups: list[GroupId], count: int, span: float) -> list[Order]:
    """A source sends eight at once, then another one does."""
    orders: list[Order] = []
    while len(orders) < count:
        time, source = chance.random() * span, chance.choice(sources)
        orders += [Order(time, source, (chance.choice(groups),)) for _ in range(min(8, count - len(orders)))]
    return orders


WORKLOADS: dict[str, Workload] = {"uniform": uniform, "zipf": zipf, "bursts": bursts}
