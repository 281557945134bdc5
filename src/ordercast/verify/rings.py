"""The shortest cycle of messages in the union of several logs: what an example of broken order shows."""

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from itertools import pairwise
from typing import Generic, TypeVar

from ordercast.names import SiteId

Key = TypeVar("Key", bound=Hashable)
LOOKS_AT_MOST = 3_000_000
AGAIN_AFTER = 16  # searches; then messages that are on no cycle any more are removed


def tangled(logs: Mapping[SiteId, Sequence[Key]]) -> set[Key]:
    """Run Kahn's algorithm on the union of all logs: return the messages that it cannot put into one serial order.

    These are the messages on a cycle and those behind one. Empty when a serial order exists.
    """
    after: dict[Key, list[Key]] = {}
    earlier: dict[Key, int] = {}
    for log in logs.values():
        for message in log:
            earlier.setdefault(message, 0)
        for one, other in pairwise(log):
            after.setdefault(one, []).append(other)
            earlier[other] += 1
    free = [message for message, count in earlier.items() if not count]
    left = len(earlier)
    while free:
        left -= 1
        for message in after.get(free.pop(), ()):
            earlier[message] -= 1
            if not earlier[message]:
                free.append(message)
    return {message for message, count in earlier.items() if count} if left else set()


def shortest_ring(
    logs: Mapping[SiteId, Sequence[Key]], looks_at_most: int = LOOKS_AT_MOST
) -> tuple[list[tuple[Key, SiteId, Key]], bool]:
    """Return a shortest cycle, as steps (message, site, later message), and whether it is surely a shortest one.

    A breadth-first search from a message finds the shortest cycle through it. The message is then removed, because the
    cycles still to be found do not need it. The search gives up after `looks_at_most` looks at a log, once it has found
    some cycle.
    """
    search = _Search(logs)
    best: list[tuple[Key, SiteId, Key]] = []
    while search.untangle():
        for start in search.first(AGAIN_AFTER):
            found = search.through(start, len(best))
            if found:
                best = found
            if len(best) == 2:
                return best, True
            if search.looks > looks_at_most and best:
                return best, False
    return best, True


class _Search(Generic[Key]):
    """The breadth-first searches, one message at a time, over logs that shrink as messages are removed."""

    def __init__(self, logs: Mapping[SiteId, Sequence[Key]]) -> None:
        self.logs: dict[SiteId, list[Key]] = {site: list(log) for site, log in sorted(logs.items())}
        self.gone: set[Key] = set()
        self.looks = 0

    def untangle(self) -> bool:
        """Remove what is on no cycle and between no two cycles; return whether something is left."""
        kept = {site: [m for m in log if m not in self.gone] for site, log in self.logs.items()}
        behind = tangled(kept)
        kept = {site: [m for m in log if m in behind] for site, log in kept.items()}
        on = tangled({site: log[::-1] for site, log in kept.items()})
        self.logs = {site: [m for m in log if m in on] for site, log in kept.items()}
        self.places: dict[Key, list[tuple[SiteId, int]]] = {}
        for site, log in self.logs.items():
            self.looks += len(log)
            for place, message in enumerate(log):
                self.places.setdefault(message, []).append((site, place))
        return bool(self.places)

    def first(self, many: int) -> list[Key]:
        """Return some messages to search from."""
        return sorted(self.places)[:many]  # type: ignore[type-var]  # ids or numbers: they have an order

    def through(self, start: Key, shorter_than: int) -> list[tuple[Key, SiteId, Key]]:
        """Return the shortest cycle through a message, if it has less than so many steps (0: any), and remove it."""
        unseen_from = {site: len(log) for site, log in self.logs.items()}  # all from this place on was reached
        came: dict[Key, tuple[Key, SiteId]] = {}
        steps = {start: 0}
        queue = deque([start])
        found: list[tuple[Key, SiteId, Key]] = []
        while queue and not found:
            message = queue.popleft()
            if shorter_than and steps[message] + 1 >= shorter_than:
                break
            for site, place in self.places[message]:
                self.looks += 1
                for later in self.logs[site][place + 1 : unseen_from[site]]:
                    self.looks += 1
                    if later == start:
                        found = _steps_back(came, message, site, start)
                        break
                    if later not in steps and later not in self.gone:
                        steps[later] = steps[message] + 1
                        came[later] = (message, site)
                        queue.append(later)
                unseen_from[site] = min(unseen_from[site], place + 1)
                if found:
                    break
        self.gone.add(start)
        return found


def _steps_back(
    came: dict[Key, tuple[Key, SiteId]], last: Key, site: SiteId, start: Key
) -> list[tuple[Key, SiteId, Key]]:
    steps = [(last, site, start)]
    while last != start:
        before, at = came[last]
        steps.append((before, at, last))
        last = before
    return steps[::-1]
