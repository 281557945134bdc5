"""Who sends what, when: uniform, Zipf, bursts, request and reply.

A workload yields its orders in the order of their times, one by one, so that a run of millions needs no list of them.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ordercast.core.events import Envelope
from ordercast.core.machine import Groups
from ordercast.types import GroupId, SiteId

REQUEST = b"request"


@dataclass(frozen=True, slots=True)
class Order:
    """Send a body from a site to groups at a time."""

    time: float
    source: SiteId
    groups: tuple[GroupId, ...]
    body: bytes = b""


Workload = Callable[[random.Random, Groups, int, float], Iterator[Order]]
Reply = Callable[[SiteId, Envelope], tuple[GroupId, ...] | None]
"""What an application sends when it delivers something, if it does."""


def uniform(chance: random.Random, groups: Groups, count: int, span: float) -> Iterator[Order]:
    """Any source to any group, at any time."""
    names = list(groups.members)
    for time in _times(chance, count, span):
        yield Order(time, chance.choice(groups.sources), (chance.choice(names),))


def zipf(chance: random.Random, groups: Groups, count: int, span: float) -> Iterator[Order]:
    """The k-th group gets 1/k of the traffic of the first."""
    names = list(groups.members)
    weights = [1.0 / rank for rank in range(1, len(names) + 1)]
    for time in _times(chance, count, span):
        yield Order(time, chance.choice(groups.sources), tuple(chance.choices(names, weights)))


def bursts(chance: random.Random, groups: Groups, count: int, span: float) -> Iterator[Order]:
    """A source sends eight at once, then another one does."""
    names = list(groups.members)
    for time in _times(chance, -(-count // 8), span):
        source = chance.choice(groups.sources)
        for _ in range(min(8, count)):
            yield Order(time, source, (chance.choice(names),))
        count -= 8


def requests(chance: random.Random, groups: Groups, count: int, span: float) -> Iterator[Order]:
    """Requests; `answer` is the other half. About as many replies come on top."""
    for order in uniform(chance, groups, count, span):
        yield Order(order.time, order.source, order.groups, REQUEST)


def answer(groups: Groups) -> Reply:
    """Return how requests are answered: by the first member that may send, to the next group it is in."""
    speaker = {g: min(set(sites) & set(groups.sources), default=None) for g, sites in groups.members.items()}
    own: dict[SiteId, list[GroupId]] = {}
    for group, sites in groups.members.items():
        for site in sites:
            own.setdefault(site, []).append(group)

    def reply(site: SiteId, envelope: Envelope) -> tuple[GroupId, ...] | None:
        group = envelope.groups[0]
        if envelope.body != REQUEST or speaker[group] != site:
            return None
        return (own[site][(own[site].index(group) + 1) % len(own[site])],)

    return reply


def _times(chance: random.Random, count: int, span: float) -> Iterator[float]:
    """So many times in the span, one after the other, each about span/count after the one before."""
    time, step = 0.0, span / count
    for _ in range(count):
        time += 2 * step * chance.random()
        yield time


WORKLOADS: dict[str, Workload] = {"uniform": uniform, "zipf": zipf, "bursts": bursts, "requests": requests}
