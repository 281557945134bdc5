"""The judges of deliveries: they know what was sent and what each site delivered, never how.

Each returns None, or an example that shows the violation with as few messages as it takes. All are linear in the number
of deliveries (times sources, for causal); `total` alone may compare pairs of sites, but only after a cycle was found.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from ordercast.names import GroupId, SiteId
from ordercast.verify.causes import causal_break
from ordercast.verify.rings import shortest_ring, tangled

MsgId = str


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
    found = _disagreement(record)
    if found is None:
        return None
    one, other, before, after = found
    return f"{one} delivers {before} before {after}, {other} the other way round"


def _disagreement(record: Record) -> tuple[SiteId, SiteId, MsgId, MsgId] | None:
    """Return two sites and two messages that the first delivers in this order and the second in the other."""
    tangled = record.tangled
    logs = {site: [m for m in log if m in tangled] for site, log in sorted(record.logs.items())}
    sites = [site for site, log in logs.items() if len(log) > 1]
    at = {site: {message: place for place, message in enumerate(logs[site])} for site in sites}
    for index, one in enumerate(sites):
        for other in sites[index + 1 :]:
            common = [m for m in logs[one] if m in at[other]]
            for before, after in pairwise(common):
                if at[other][before] > at[other][after]:
                    return one, other, before, after
    return None


def acyclic(record: Record) -> str | None:
    """The union of all sites' orders has no cycle: one serial order exists."""
    if not record.tangled:
        return None
    logs = {site: [m for m in log if m in record.tangled] for site, log in record.logs.items()}
    pair = _disagreement(record)
    cycle = shortest_ring(logs)[0] if pair is None else [(pair[2], pair[0], pair[3]), (pair[3], pair[1], pair[2])]
    steps = [f"{site} delivers {before} before {after}" for before, site, after in cycle]
    return "; ".join(steps)


def causal(record: Record) -> str | None:
    """What happened before a message was sent is delivered before it, where both are delivered."""
    found = causal_break(record)
    return None if found is None else str(found)


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
