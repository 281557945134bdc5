"""The judges of deliveries: they know what was sent and what each site delivered, never how.

Each returns None, or an example that shows the violation with as few messages as it takes. All are linear in the number
of deliveries (times sources, for causal); `total` alone may compare pairs of sites, but only after a cycle was found.
"""

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TypeVar

from ordercast.types import GroupId, SiteId

MsgId = str
Key = TypeVar("Key", bound=Hashable)


@dataclass(frozen=True, slots=True)
class Sent:
    """A message as it was sent."""

    groups: tuple[GroupId, ...]
    source: SiteId
    number: int
    after: int = 0
    """How many messages its source had delivered by then."""


@dataclass(frozen=True)
class Record:
    """Everything there is to judge: who is where, what was sent, what was delivered in which order."""

    members: Mapping[GroupId, Sequence[SiteId]]
    sends: Mapping[MsgId, Sent]
    logs: Mapping[SiteId, Sequence[MsgId]]
    stamps: Mapping[SiteId, Sequence[tuple[int, bytes]]] | None = None
    """The class and the stamp of each delivery, beside the logs."""

    @cached_property
    def tangled(self) -> set[MsgId]:
        """The messages on or behind cycles of the union of all orders; empty when one serial order exists."""
        return tangled(self.logs)

    def destinations(self, message: MsgId) -> set[SiteId]:
        """Return the sites a message is for."""
        return {site for group in self.sends[message].groups for site in self.members[group]}


Judge = Callable[[Record], str | None]


def duplicate(record: Record) -> str | None:
    """No site delivers a message twice."""
    for site, log in sorted(record.logs.items()):
        seen = set()
        for message in log:
            if message in seen:
                return f"{site} delivers {message} twice"
            seen.add(message)
    return None


def creation(record: Record) -> str | None:
    """Only what was sent is delivered, and only at its destinations."""
    destinations: dict[tuple[GroupId, ...], set[SiteId]] = {}
    for site, log in sorted(record.logs.items()):
        for message in log:
            sent = record.sends.get(message)
            if sent is None:
                return f"{site} delivers {message}, which nobody sent"
            if sent.groups not in destinations:
                destinations[sent.groups] = record.destinations(message)
            if site not in destinations[sent.groups]:
                return f"{site} delivers {message} to {'+'.join(sent.groups)}, but is not a member"
    return None


def completeness(record: Record) -> str | None:
    """Everything sent is delivered at every destination."""
    delivered = {site: set(log) for site, log in record.logs.items()}
    for message in record.sends:
        for site in sorted(record.destinations(message)):
            if message not in delivered.get(site, ()):
                return f"{site} does not deliver {message}"
    return None


def fifo(record: Record) -> str | None:
    """One source, one group: sent order."""
    for site, log in sorted(record.logs.items()):
        last: dict[tuple[SiteId, GroupId], tuple[int, MsgId]] = {}
        for message in log:
            sent = record.sends.get(message)
            if sent is None:
                continue
            for group in sent.groups:
                before = last.get((sent.source, group), (0, ""))
                if before[0] > sent.number:
                    return f"{site} delivers {before[1]} before {message}, sent later by {sent.source} to {group}"
                last[sent.source, group] = (sent.number, message)
    return None


def total(record: Record) -> str | None:
    """Any two sites deliver their common messages in the same order (GS88 §1, property c)."""
    tangled = record.tangled
    logs = {site: [m for m in log if m in tangled] for site, log in sorted(record.logs.items())}
    sites = [site for site, log in logs.items() if len(log) > 1]
    at = {site: {message: place for place, message in enumerate(logs[site])} for site in sites}
    for index, one in enumerate(sites):
        for other in sites[index + 1 :]:
            common = [m for m in logs[one] if m in at[other]]
            for before, after in pairwise(common):
                if at[other][before] > at[other][after]:
                    return f"{one} delivers {before} before {after}, {other} the other way round"
    return None


def acyclic(record: Record) -> str | None:
    """The union of all sites' orders has no cycle: one serial order exists."""
    tangled = record.tangled
    if not tangled:
        return None
    cycle = min((shortest_cycle(record, start, tangled) for start in sorted(tangled)[:50]), key=len)
    steps = [f"{site} delivers {before} before {after}" for before, site, after in cycle]
    return "; ".join(steps)


def tangled(logs: Mapping[SiteId, Sequence[Key]]) -> set[Key]:
    """Return the messages left when those that come after nothing are taken away, again and again.

    Empty when one serial order exists; otherwise what is on or behind a cycle.
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


def shortest_cycle(record: Record, start: MsgId, among: set[MsgId]) -> list[tuple[MsgId, SiteId, MsgId]]:
    """Return the fewest steps "at this site, this before that" that lead from a message back to itself."""
    logs = {site: [m for m in log if m in among] for site, log in sorted(record.logs.items())}
    places: dict[MsgId, list[tuple[SiteId, int]]] = {}
    for site, log in logs.items():
        for place, message in enumerate(log):
            places.setdefault(message, []).append((site, place))
    unseen_from = {site: len(log) for site, log in logs.items()}  # everything at or past this place was reached
    came: dict[MsgId, tuple[MsgId, SiteId]] = {}
    queue = deque([start])
    while queue:
        message = queue.popleft()
        for site, place in places[message]:
            for later in logs[site][place + 1 : unseen_from[site]]:
                if later == start:
                    return _steps_back(came, message, site, start)
                if later not in came:
                    came[later] = (message, site)
                    queue.append(later)
            unseen_from[site] = min(unseen_from[site], place + 1)
    return [(start, "?", start)] * (len(among) + 1)  # `start` only hangs behind a cycle; another one will do


def _steps_back(
    came: dict[MsgId, tuple[MsgId, SiteId]], last: MsgId, site: SiteId, start: MsgId
) -> list[tuple[MsgId, SiteId, MsgId]]:
    steps = [(last, site, start)]
    while last != start:
        before, at = came[last]
        steps.append((before, at, last))
        last = before
    return steps[::-1]


def causal(record: Record) -> str | None:
    """What happened before a message was sent is delivered before it, where both are delivered."""
    past, order = _pasts(record)
    if past is None:
        return "messages cause each other in a circle"
    addressed: dict[SiteId, dict[SiteId, list[MsgId]]] = {}
    for message in order:
        for site in record.destinations(message):
            addressed.setdefault(site, {}).setdefault(record.sends[message].source, []).append(message)
    for site, log in sorted(record.logs.items()):
        delivered: set[MsgId] = set()
        first_missing = dict.fromkeys(addressed.get(site, {}), 0)
        for message in log:
            if message not in past:
                continue
            for source, number in past[message].items():
                waiting = addressed.get(site, {}).get(source, [])
                at = first_missing.get(source, 0)
                while at < len(waiting) and waiting[at] in delivered:
                    at += 1
                first_missing[source] = at
                if at < len(waiting) and record.sends[waiting[at]].number <= number and waiting[at] != message:
                    return f"{site} delivers {message} before {waiting[at]}, which happened before it was sent"
            delivered.add(message)
    return None


def _pasts(record: Record) -> tuple[dict[MsgId, dict[SiteId, int]] | None, list[MsgId]]:
    """Return for each message the highest number of each source in its past, and an order that respects the pasts."""
    sent_by: dict[SiteId, list[MsgId]] = {}
    for message, sent in sorted(record.sends.items(), key=lambda item: item[1].number):
        sent_by.setdefault(sent.source, []).append(message)
    knows: dict[SiteId, dict[SiteId, int]] = {site: {} for site in sent_by}
    read = dict.fromkeys(sent_by, 0)
    next_send = dict.fromkeys(sent_by, 0)
    past: dict[MsgId, dict[SiteId, int]] = {}
    order: list[MsgId] = []
    moved = True
    while moved:
        moved = False
        for site, own in sent_by.items():
            while next_send[site] < len(own) and _read_up_to(record, site, own[next_send[site]], read, knows, past):
                message = own[next_send[site]]
                past[message] = dict(knows[site])
                knows[site][site] = record.sends[message].number
                order.append(message)
                next_send[site] += 1
                moved = True
    return (past if len(past) == len(record.sends) else None), order


def _read_up_to(
    record: Record,
    site: SiteId,
    message: MsgId,
    read: dict[SiteId, int],
    knows: dict[SiteId, dict[SiteId, int]],
    past: dict[MsgId, dict[SiteId, int]],
) -> bool:
    """Let a source learn what it had delivered before it sent; False while a past is not known yet."""
    log = record.logs.get(site, ())
    known = knows[site]
    while read[site] < min(record.sends[message].after, len(log)):
        seen = log[read[site]]
        if seen not in past:
            if seen in record.sends:
                return False
            read[site] += 1
            continue
        sent = record.sends[seen]
        for source, number in (*past[seen].items(), (sent.source, sent.number)):
            known[source] = max(known.get(source, 0), number)
        read[site] += 1
    return True


def stamps(record: Record) -> str | None:
    """A message has one stamp, and stamps grow along every log, class by class: the certificate of acyclic order."""
    given: dict[MsgId, tuple[bytes, SiteId]] = {}
    for site, log in sorted(record.logs.items()):
        last: dict[int, tuple[bytes, MsgId]] = {}
        for message, (order_class, stamp) in zip(log, (record.stamps or {}).get(site, ()), strict=False):
            if given.setdefault(message, (stamp, site))[0] != stamp:
                return f"{site} delivers {message} with another stamp than {given[message][1]}"
            before = last.get(order_class)
            if before is not None and before[0] >= stamp:
                return f"{site} delivers {before[1]} before {message}, whose stamp is not larger"
            last[order_class] = (stamp, message)
    return None


JUDGES: dict[str, Judge] = {
    "creation": creation,
    "duplicate": duplicate,
    "completeness": completeness,
    "fifo": fifo,
    "total": total,
    "acyclic": acyclic,
    "causal": causal,
    "stamps": stamps,
}
ALWAYS = ("creation", "duplicate", "completeness", "stamps")
