"""Everything there is to judge of a run: who is where, what was sent, what each site delivered in which order."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ordercast.names import GroupId, SiteId
from ordercast.verify.findings import Delivery, MsgId, Sent
from ordercast.verify.rings import tangled

Stream = tuple[SiteId, GroupId]
"""One source, one group."""


@dataclass(frozen=True)
class Record:
    """A run, whole or as far as it has come. Logs are ids in the order of delivery; `rows` say more, if anyone can."""

    members: Mapping[GroupId, Sequence[SiteId]]
    sends: Mapping[MsgId, Sent]
    logs: Mapping[SiteId, Sequence[MsgId]]
    stamps: Mapping[SiteId, Sequence[tuple[Any, bytes]]] | None = None
    """The class and the stamp of each delivery, beside the logs."""
    told: Mapping[SiteId, Sequence[Delivery]] | None = None
    """The rows of the logs, where a log tells more than ids."""
    more_sends: Mapping[MsgId, Sequence[Sent]] = field(default_factory=dict)
    """All messages of an id that several messages have; `sends` has the first of them."""
    newest: Mapping[SiteId, int] | None = None
    """While a run goes on: the highest number of each source that is known to be sent. None: the run is over."""
    beside: Mapping[SiteId, Sequence[Delivery]] = field(default_factory=dict)
    """Rows of sites that are not judged, to compare with what they tell of the same messages."""
    only: frozenset[SiteId] | None = None
    """Judge these sites, not all."""

    @classmethod
    def of_rows(
        cls,
        members: Mapping[GroupId, Sequence[SiteId]],
        sends: Mapping[MsgId, Sent],
        rows: Mapping[SiteId, Sequence[Delivery]],
        **more: Any,
    ) -> "Record":
        """Build from rows; a site's rows are in the order of its log."""
        return cls(members, sends, {s: [row.msg_id for row in log] for s, log in rows.items()}, told=rows, **more)

    @cached_property
    def tangled(self) -> set[MsgId]:
        """The messages on or behind cycles of the union of all orders; empty when one serial order exists."""
        return tangled(self.logs)

    @cached_property
    def sites(self) -> list[SiteId]:
        """The sites that are judged, in order: all members and all that delivered something, or those asked for."""
        if self.only is not None:
            return sorted(self.only)
        return sorted({site for sites in self.members.values() for site in sites} | self.logs.keys())

    @cached_property
    def rows(self) -> Mapping[SiteId, Sequence[Delivery]]:
        """The log of each site as deliveries; what the log does not tell is as it was sent."""
        if self.told is not None:
            return self.told
        found = {}
        for site, log in self.logs.items():
            given = (self.stamps or {}).get(site, [(None, None)] * len(log))
            found[site] = [self._row(site, *row) for row in zip(range(len(log)), log, given, strict=False)]
        return found

    def _row(self, site: SiteId, position: int, message: MsgId, given: tuple[Any, bytes | None]) -> Delivery:
        groups, source, number, *_ = self.sends.get(message, Sent((), "", 0))
        return Delivery(site, position, message, groups, source, number, 0, *given)

    @cached_property
    def firsts(self) -> dict[SiteId, dict[MsgId, Delivery]]:
        """The first delivery of each message at each judged site, in the order of the log; a repeat is no order."""
        return {site: first_of_each(self.rows.get(site, ())) for site in self.sites}

    def row(self, site: SiteId, message: MsgId) -> Delivery:
        """Return the first delivery of a message at a site."""
        return next(row for row in self.rows[site] if row.msg_id == message)

    @cached_property
    def _sites_of(self) -> dict[tuple[GroupId, ...], frozenset[SiteId]]:
        return {}

    def sites_of(self, groups: tuple[GroupId, ...]) -> frozenset[SiteId]:
        """Return the sites that a message to these groups is for."""
        known = self._sites_of.get(groups)
        if known is None:
            known = frozenset(site for group in groups for site in self.members.get(group, ()))
            self._sites_of[groups] = known
        return known

    def destinations(self, message: MsgId) -> frozenset[SiteId]:
        """Return the sites that a message is for."""
        return self.sites_of(self.sends[message].groups)

    def every_send(self, message: MsgId) -> Sequence[Sent]:
        """Return the sends of an id: none, one, or several when the id is not unique."""
        if message in self.more_sends:
            return self.more_sends[message]
        return [self.sends[message]] if message in self.sends else []

    def sent_as(self, row: Delivery) -> Sent | None:
        """Return how a delivered message was sent: what fits the row, or the first send of its id.

        While a run goes on, a send that is not yet written may be as the row tells. None: nobody sent it.
        """
        header = (row.groups, row.source, row.number)
        every = self.every_send(row.msg_id)
        for sent in every:
            if sent[:3] == header:
                return sent
        if every:
            return self.sends[row.msg_id]
        if self.newest is None or self.newest.get(row.source, row.number - 1) >= row.number:
            return None
        return Sent(*header)

    def reached(self, site: SiteId) -> dict[Stream, int]:
        """Return the highest number of each source and group that a site has delivered."""
        found: dict[Stream, int] = {}
        for row in self.firsts[site].values():
            sent = self.sent_as(row)
            if sent is not None:
                for stream in ((sent.source, group) for group in sent.groups):
                    found[stream] = max(found.get(stream, sent.number), sent.number)
        return found

    @cached_property
    def sends_by_groups(self) -> dict[tuple[GroupId, ...], list[tuple[MsgId, Sent]]]:
        """The sends of each destination."""
        found: dict[tuple[GroupId, ...], list[tuple[MsgId, Sent]]] = {}
        for message in self.sends:
            for sent in self.every_send(message):
                found.setdefault(sent.groups, []).append((message, sent))
        return found

    @cached_property
    def told_differently(self) -> list[tuple[Delivery, Delivery]]:
        """Pairs of deliveries of one message of which two sites tell different things."""
        return [
            (one, other)
            for one, other in self._seen_before()
            if one.stamp != other.stamp
            or one.epoch != other.epoch
            or one.order_class != other.order_class
            or one.groups != other.groups
            or one.body != other.body
        ]

    def _seen_before(self) -> Iterator[tuple[Delivery, Delivery]]:
        """Yield every delivery beside the first one of its message anywhere, sites beside those judged first."""
        given: dict[MsgId, Delivery] = {}
        for log in [*map(first_of_each, self.beside.values()), *self.firsts.values()]:
            for row in log.values():
                yield given.setdefault(row.msg_id, row), row


def first_of_each(log: Sequence[Delivery]) -> dict[MsgId, Delivery]:
    """Return the first delivery of each message."""
    found: dict[MsgId, Delivery] = {}
    for row in log:
        found.setdefault(row.msg_id, row)
    return found
