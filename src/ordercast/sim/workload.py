"""Who sends what, when: uniform, Zipf, bursts, request and reply.

A workload yields its orders in the order of their times, one by one, so that a run of millions needs no list of them.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations, islice

from ordercast.core.configuration import Configuration
from ordercast.core.events import Envelope
from ordercast.errors import LocalError
from ordercast.names import GroupId, SiteId

REQUEST = b"request"


@dataclass(frozen=True, slots=True)
class Order:
    """Send a body from a site to groups at a time."""

    time: float
    source: SiteId
    groups: tuple[GroupId, ...]
    body: bytes = b"x"


Workload = Callable[[random.Random, Configuration, int, float, float], Iterator[Order]]
"""Chance, groups, how many, in which time, and which share goes to several groups at once."""
Reply = Callable[[SiteId, Envelope], tuple[GroupId, ...] | None]
"""What an application sends when it delivers something, if it does."""
UNIONS_AT_MOST = 50


def unions(groups: Configuration) -> list[tuple[GroupId, ...]]:
    """Return destinations of two and three groups that one message may go to: the declared ones, and some others."""
    found = list(groups.unions)
    for names in groups.orders:
        pairs = (pair for many in (2, 3) for pair in combinations(sorted(names), many))
        found += islice((pair for pair in pairs if _allowed(groups, pair)), UNIONS_AT_MOST)
    return sorted(set(found))


def _allowed(groups: Configuration, union: tuple[GroupId, ...]) -> bool:
    try:
        groups.destination(union)
    except LocalError:
        return False
    return True


def uniform(chance: random.Random, groups: Configuration, count: int, span: float, several: float) -> Iterator[Order]:
    """Any source to any group, at any time."""
    pick = _picker(chance, groups, several, [1.0] * len(groups.members))
    for number, time in enumerate(_times(chance, count, span)):
        yield Order(time, chance.choice(groups.sources), pick(), b"%d" % number)


def zipf(chance: random.Random, groups: Configuration, count: int, span: float, several: float) -> Iterator[Order]:
    """The k-th group gets 1/k of the traffic of the first."""
    pick = _picker(chance, groups, several, [1.0 / rank for rank in range(1, len(groups.members) + 1)])
    for number, time in enumerate(_times(chance, count, span)):
        yield Order(time, chance.choice(groups.sources), pick(), b"%d" % number)


def bursts(chance: random.Random, groups: Configuration, count: int, span: float, several: float) -> Iterator[Order]:
    """A source sends eight at once, then another one does."""
    pick = _picker(chance, groups, several, [1.0] * len(groups.members))
    for time in _times(chance, -(-count // 8), span):
        source = chance.choice(groups.sources)
        for number in range(min(8, count)):
            yield Order(time, source, pick(), b"%d" % (count - number))
        count -= 8


def _picker(
    chance: random.Random, groups: Configuration, several: float, weights: list[float]
) -> Callable[[], tuple[GroupId, ...]]:
    """Return what draws a destination: a group by its weight, or one of the unions that are allowed."""
    names, together = list(groups.members), unions(groups) if several else []

    def pick() -> tuple[GroupId, ...]:
        if together and chance.random() < several:
            return chance.choice(together)
        return tuple(chance.choices(names, weights))

    return pick


def requests(chance: random.Random, groups: Configuration, count: int, span: float, several: float) -> Iterator[Order]:
    """Requests; `answer` is the other half. About as many replies come on top."""
    for order in uniform(chance, groups, count, span, several):
        yield Order(order.time, order.source, order.groups, REQUEST + order.body)


def answer(groups: Configuration) -> Reply:
    """Return how requests are answered: by the first member that may send, to the next group it is in."""
    speaker = {g: min(set(sites) & set(groups.sources), default=None) for g, sites in groups.members.items()}
    own: dict[SiteId, list[GroupId]] = {}
    for group, sites in groups.members.items():
        for site in sites:
            own.setdefault(site, []).append(group)

    def reply(site: SiteId, envelope: Envelope) -> tuple[GroupId, ...] | None:
        group = envelope.groups[0]
        if not envelope.body.startswith(REQUEST) or speaker[group] != site:
            return None
        answer = own[site][(own[site].index(group) + 1) % len(own[site])]
        together = tuple(sorted({group, answer}))  # every other reply goes to both groups, where it may
        return together if envelope.number % 2 and _allowed(groups, together) else (answer,)

    return reply


def _times(chance: random.Random, count: int, span: float) -> Iterator[float]:
    """So many times in the span, one after the other, each about span/count after the one before."""
    time, step = 0.0, span / count
    for _ in range(count):
        time += 2 * step * chance.random()
        yield time


WORKLOADS: dict[str, Workload] = {"uniform": uniform, "zipf": zipf, "bursts": bursts, "requests": requests}
