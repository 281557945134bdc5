"""Order without a certificate: the union of all logs, its cycles, the sites that disagree, and the shortest cycle.

Sites with the same groups and the same sequence are judged once. Nothing is assumed of epochs: all edges are looked at.
Messages are numbered by their names, never by hashes.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ordercast.audit import kernels
from ordercast.audit.columns import among, numbered_logs
from ordercast.audit.kernels import Hashes, Ints, Longs
from ordercast.audit.rows import Source, rows_of
from ordercast.names import SiteId
from ordercast.verify import findings
from ordercast.verify.findings import Answer, Delivery, MsgId
from ordercast.verify.rings import shortest_ring

Cycle = list[tuple[int, SiteId, int]]
"""Steps: at this site, this message before that one; messages by their number."""
Pair = tuple[SiteId, SiteId, int, int]
"""Two sites, and two messages that the first delivers in this order and the second in the other."""
KNOTS_AT_MOST = 10_000_000  # deliveries that are searched by names, where hashes were searched before
COMPARE_AT_MOST = 4_000_000_000  # places that are compared between pairs of sites


class Knots:
    """The cycles in the union of all logs: the messages on them, and the pairs of sites that disagree."""

    def __init__(self, logs: Mapping[SiteId, tuple[Longs, Hashes]], stands_for: Mapping[SiteId, int]) -> None:
        self.sites = sorted(logs)
        self._stands_for = stands_for
        in_order = [hashes[np.argsort(positions, kind="stable")] for positions, hashes in (logs[s] for s in self.sites)]
        every = np.concatenate(in_order) if in_order else np.empty(0, np.uint64)
        self.messages, code = np.unique(every, return_inverse=True)
        self._logs: list[Ints] = []
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

    def _restricted(self) -> tuple[list[SiteId], list[Ints]]:
        """Return the sites that have two messages on cycles, and their logs with only such messages."""
        sites, logs = [], []
        for site, log in zip(self.sites, self._logs, strict=True):
            inside = log[self.component[log] >= 0]
            if len(inside) > 1:
                sites.append(site)
                logs.append(inside)
        return sites, logs

    def shortest_cycle(self) -> tuple[Cycle, bool]:
        """Return a shortest cycle, and whether it surely is one."""
        sites, logs = self._restricted()
        cycle, surely = shortest_ring({site: log.tolist() for site, log in zip(sites, logs, strict=True)})
        return [(int(self.messages[a]), site, int(self.messages[b])) for a, site, b in cycle], surely

    def disagreements(self) -> tuple[int, Pair | None, bool]:
        """Count the pairs of sites that deliver some two messages in different orders; with the first such case.

        All sites are compared with one at a time, on whole arrays; also returns whether all could be.
        """
        sites, logs = _kinds(*self._restricted(), self._stands_for)
        names = [name for name, _ in sites]
        weight = np.array([many for _, many in sites], np.int64)
        joined = np.concatenate(logs) if logs else np.empty(0, np.int32)
        owner = np.repeat(np.arange(len(logs)), [len(log) for log in logs])
        place = np.full(len(self.messages), -1, np.int32)
        pairs, example, compared = 0, None, 0
        for index, log in enumerate(logs):
            compared += len(joined)
            if compared > COMPARE_AT_MOST:
                return pairs, example, False
            begin = int(np.searchsorted(owner, index, side="right"))
            place[log] = np.arange(len(log), dtype=np.int32)
            there = np.flatnonzero(place[joined[begin:]] >= 0) + begin
            mine, whose = place[joined[there]], owner[there]
            wrong = np.flatnonzero((mine[1:] < mine[:-1]) & (whose[1:] == whose[:-1]))
            place[log] = -1
            if not len(wrong):
                continue
            pairs += int(weight[index]) * int(weight[np.unique(whose[wrong])].sum())
            if example is None:
                then, first = (int(self.messages[joined[there[at]]]) for at in (wrong[0], wrong[0] + 1))
                example = (names[index], names[whose[wrong[0]]], first, then)
        return pairs, example, True


def _kinds(
    sites: Sequence[SiteId], logs: Sequence[Ints], stands_for: Mapping[SiteId, int]
) -> tuple[list[tuple[SiteId, int]], list[Ints]]:
    """Return one site for all that deliver the same of what matters, with how many these are."""
    kinds: dict[bytes, tuple[SiteId, Ints]] = {}
    many: dict[bytes, int] = {}
    for site, log in zip(sites, logs, strict=True):
        key = log.tobytes()
        kinds.setdefault(key, (site, log))
        many[key] = many.get(key, 0) + stands_for.get(site, 1)
    return [(site, many[key]) for key, (site, _) in kinds.items()], [log for _, log in kinds.values()]


def _first_of_each(log: Any) -> Any:
    """Drop repeats: a message is ordered by its first delivery."""
    found, first = np.unique(log, return_index=True)
    return log if len(found) == len(log) else log[np.sort(first)]


def judge_order(source: Source, kinds: Mapping[SiteId, int], total: Answer, acyclic: Answer) -> list[str]:
    """Judge total and acyclic order by the logs of these sites, each of which stands for some; returns notes."""
    sites = None if len(kinds) == sum(kinds.values()) else kinds  # every site is a kind of its own
    suspected = source.on_cycles(sites)
    if suspected is not None and not suspected.rows:
        return []
    if suspected is not None and suspected.rows > KNOTS_AT_MOST:
        total.ok, acyclic.ok = total.ok and None, acyclic.ok and None
        return [f"order: {suspected.rows:,} deliveries may be on cycles, or lie between repeats: too many to look at"]
    logs, names = numbered_logs(source.sequences(sites, suspected and suspected.hashes))
    knots = Knots(logs, kinds)
    if not knots.count:
        return []
    pairs, pair, compared = knots.disagreements()
    surely = True
    cycle: Cycle
    if pair is not None:
        one, other, first, then = pair
        cycle = [(first, one, then), (then, other, first)]
    else:
        cycle, surely = knots.shortest_cycle()
    at = _first_deliveries(source, {site for _, site, _ in cycle}, {names[a] for a, _, _ in cycle})
    steps = [(at[site, names[a]], at[site, names[b]]) for a, site, b in cycle]
    acyclic.add(findings.ring(steps, knots.count))
    if pair is not None:
        total.add(findings.disagreement(steps, pairs))
    notes = [] if surely else ["the cycle shown may not be the shortest: there are too many to try them all"]
    if not compared:
        total.ok = total.ok and None
        notes.append("total order: there are too many sites on cycles to compare them all")
    return notes


def _first_deliveries(source: Source, sites: set[SiteId], named: set[MsgId]) -> dict[tuple[SiteId, MsgId], Delivery]:
    """Return the first delivery of each of these messages at each of these sites."""
    found: dict[tuple[SiteId, MsgId], Delivery] = {}
    for site, log in rows_of(source.logs(sites, lambda table: among(table, "msg_id", named))).items():
        for row in log:
            found.setdefault((site, row.msg_id), row)
    return found
