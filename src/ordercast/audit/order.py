"""Order without a certificate: the union of all logs, its cycles, and the shortest of them.

Sites with the same groups and the same sequence are judged once. Nothing is assumed of epochs: all edges are looked at.
"""

from collections.abc import Mapping
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from ordercast.audit import kernels
from ordercast.audit.kernels import Hashes, Longs
from ordercast.types import SiteId
from ordercast.verify.deliveries import Record, shortest_cycle

Cycle = list[tuple[int, SiteId, int]]
"""Steps: at this site, this message before that one; messages by their hash."""
KNOT_AT_MOST = 20_000
SITES_AT_MOST = 200


class Knots:
    """What is wrong with the order: the messages on cycles, and the sites that disagree in pairs."""

    def __init__(self, logs: Mapping[SiteId, tuple[Longs, Hashes]]) -> None:
        self.sites = sorted(logs)
        in_order = [hashes[np.argsort(positions, kind="stable")] for positions, hashes in (logs[s] for s in self.sites)]
        every = np.concatenate(in_order) if in_order else np.empty(0, np.uint64)
        self.messages, code = np.unique(every, return_inverse=True)
        self._logs = []
        at = 0
        for log in in_order:
            own = code[at : at + len(log)].astype(np.int32)
            at += len(log)
            self._logs.append(_first_of_each(own))
        ptr = np.zeros(len(self._logs) + 1, np.int64)
        np.cumsum([len(log) for log in self._logs], out=ptr[1:])
        joined = np.concatenate(self._logs) if self._logs else np.empty(0, np.int32)
        self.component = kernels.knots(ptr, joined, len(self.messages))
        self.count = int((self.component >= 0).sum())

    def _restricted(self, only: int | None) -> dict[SiteId, list[int]]:
        """Return the logs with nothing but messages of one knot, or of all."""
        found = {}
        for site, log in zip(self.sites, self._logs, strict=True):
            inside = self.component[log] == only if only is not None else self.component[log] >= 0
            if inside.sum() > 1:
                found[site] = log[inside].tolist()
        return found

    def shortest_cycle(self) -> Cycle:
        """Return the shortest cycle of the smallest knot."""
        sizes = np.bincount(self.component[self.component >= 0])
        smallest = int(np.argmin(sizes))
        logs = self._restricted(smallest)
        among = set(np.flatnonzero(self.component == smallest).tolist())
        if len(among) > KNOT_AT_MOST:
            logs, among = _window(logs, among)
        record = Record({}, {}, logs)  # type: ignore[arg-type]  # messages are numbers here
        starts = sorted(among)[:50]
        cycle: Any = min((shortest_cycle(record, start, among) for start in starts), key=len)  # type: ignore[arg-type]
        return [(int(self.messages[a]), site, int(self.messages[b])) for a, site, b in cycle]

    def disagreements(self) -> tuple[int, tuple[SiteId, SiteId, int, int] | None]:
        """Count the pairs of sites that deliver some two messages in different orders; return the first such case."""
        logs = self._restricted(None)
        places = {site: {message: place for place, message in enumerate(log)} for site, log in logs.items()}
        pairs, example = 0, None
        for one, other in combinations(sorted(logs)[:SITES_AT_MOST], 2):
            there = places[other]
            common = [message for message in logs[one] if message in there]
            at = np.array([there[message] for message in common])
            wrong = np.flatnonzero(at[1:] < at[:-1])
            if len(wrong):
                pairs += 1
                if example is None:
                    first, then = common[wrong[0]], common[wrong[0] + 1]
                    example = (one, other, int(self.messages[first]), int(self.messages[then]))
        return pairs, example


def _window(logs: dict[SiteId, list[int]], among: set[int]) -> tuple[dict[SiteId, list[int]], set[int]]:
    """A knot of very many messages: look for a cycle among neighbours that some two sites deliver the other way."""
    places = {site: {message: place for place, message in enumerate(log)} for site, log in logs.items()}
    for one, other in combinations(sorted(logs), 2):
        there = places[other]
        common = [message for message in logs[one] if message in there]
        for first, then in pairwise(common):
            if there[first] > there[then]:
                return {one: [first, then], other: [then, first]}, {first, then}
    return logs, among


def _first_of_each(log: Any) -> Any:
    """Drop repeats: a message is ordered by its first delivery."""
    found, first = np.unique(log, return_index=True)
    return log if len(found) == len(log) else log[np.sort(first)]
