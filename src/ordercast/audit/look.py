"""Row by row: the sites that the fold did not clear, judged exactly."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ordercast.audit.destinations import Destination, Members, groups_of, shown
from ordercast.audit.merge import Merged, MergedSends
from ordercast.audit.rows import Finding, Row, Send, Sends, Source, firsts, rows_of, step
from ordercast.errors import InputError
from ordercast.names import GroupId, SiteId

LOOK_AT_MOST = 5_000_000  # rows that are looked at one by one


@dataclass
class Looked:
    """What a look at rows left behind."""

    sites: set[SiteId] = field(default_factory=set)
    mixed: bool = False
    """Whether some message was seen under two destinations or in two classes: then stamps certify nothing."""
    left: set[SiteId] = field(default_factory=set)
    """The suspects that were too many to look at."""


def look_at(
    source: Source,
    merged: Merged,
    sent: MergedSends,
    suspects: set[SiteId],
    found: Mapping[str, Finding],
    *,
    running: bool,
) -> Looked:
    """Judge the suspects, and one cleared member of each of their destinations beside them."""
    chosen = _affordable(merged, suspects)
    members = Members(source.members)
    logs = rows_of(source.logs(chosen))
    sends, groups = _sends(source, members, sent, logs, set(chosen))
    beside = _beside(merged, members, groups, suspects) if source.stamped or source.epochs else []
    looked = Looked(set(chosen), left=suspects - set(chosen))
    by_group = sends.by_group()
    for site in chosen:
        judge = _Site(site, sends, members, sent.newest if running else None, found)
        judge.deliveries(logs.get(site, []))
        judge.completeness(one for group in by_group if site in members.of(group) for one in by_group[group])
    others = rows_of(source.logs(beside)) if beside else {}
    in_turn = {site: others.get(site, []) for site in beside} | {site: logs.get(site, []) for site in chosen}
    looked.mixed = _judge_told(in_turn, sends, found, stamped=source.stamped)
    if source.stamped:
        for site in chosen:
            _judge_growth(site, logs.get(site, []), found["stamps"])
    return looked


def _affordable(merged: Merged, suspects: set[SiteId]) -> list[SiteId]:
    """Choose suspects, at least one, whose rows are not too many."""
    chosen: list[SiteId] = []
    rows = 0
    for site in sorted(suspects):
        rows += merged.sites.get(site, (0,))[0]
        if chosen and rows > LOOK_AT_MOST:
            break
        chosen.append(site)
    return chosen


def _sends(
    source: Source, members: Members, sent: MergedSends, logs: dict[SiteId, list[Row]], chosen: set[SiteId]
) -> tuple[Sends, set[Destination]]:
    """Read what was sent to these sites, and what they delivered all the same; with the destinations of both."""
    groups = {row.group for log in logs.values() for row in log}
    groups |= {group for group in sent.sets if members.of(group) & chosen}
    sends = Sends()
    sends.add(source.sends(groups))
    unknown = {row.msg_id for log in logs.values() for row in log if row.msg_id not in sends.one}
    if unknown:
        sends.add(source.sends_named(unknown))
    return sends, groups | {one.group for one in sends.one.values()}


def _beside(merged: Merged, members: Members, groups: set[Destination], suspects: set[SiteId]) -> list[SiteId]:
    """Return for each destination a site that was cleared: all cleared ones were told the same of its messages."""
    beside: set[SiteId] = set()
    for group in sorted(groups):
        clean = {site for site in members.of(group) - suspects if (site, group) in merged.sets}
        if clean and not clean & beside:
            beside.add(min(clean))
    return sorted(beside)


class _Site:
    """Creation, duplicate, completeness, fifo and epochs at one site."""

    def __init__(
        self,
        site: SiteId,
        sends: Sends,
        members: Members,
        newest: Mapping[SiteId, int] | None,
        found: Mapping[str, Finding],
    ) -> None:
        self.site, self.sends, self.members, self.found = site, sends, members, found
        self.newest = newest
        """While a run goes on: the highest number of each source that is known to be sent."""
        self.delivered: set[str] = set()
        self.reached: dict[tuple[SiteId, GroupId], int] = {}

    def deliveries(self, log: Sequence[Row]) -> None:
        """Judge what was delivered; a repeat is a duplicate and says nothing else."""
        first: dict[str, Row] = {}
        latest: dict[tuple[SiteId, GroupId], Row] = {}
        before: Row | None = None
        epoch: Row | None = None
        for row in log:
            if before is not None and before.position == row.position and before.msg_id != row.msg_id:
                raise InputError(f"deliveries/: site {self.site!r}: two messages have position {row.position}")
            before = row
            if row.msg_id in first:
                says = f"{self.site} delivers {row.msg_id} twice"
                pair = [first[row.msg_id].shown(), row.shown()]
                self.found["duplicate"].add(says, "twice", pair, sites=[self.site], messages=[row.msg_id])
                continue
            first[row.msg_id] = row
            if epoch is not None and row.epoch < epoch.epoch:
                says = f"{self.site} delivers {row.msg_id} of epoch {row.epoch} after {epoch.msg_id} of epoch"
                self._fell("epochs", f"{says} {epoch.epoch}", epoch, row)
            epoch = row
            sent = self._creation(row)
            if sent is not None:
                self._fifo(row, sent, latest)
        self.delivered = set(first)

    def _fell(self, name: str, says: str, before: Row, row: Row) -> None:
        steps = [step(self.site, before.msg_id, row.msg_id)]
        self.found[name].add(says, "order", [before.shown(), row.shown()], steps=steps)

    def _creation(self, row: Row) -> Send | None:
        """Judge one delivery; returns how it was sent, as far as it is known to be."""
        sent = self.sends.get(row)
        if (
            sent is not None
            and sent.source_seq == row.source_seq
            and sent.source == row.source
            and sent.group == row.group
            and row.site in self.members.of(row.group)
        ):
            return sent
        here: dict[str, Any] = {"sites": [row.site], "messages": [row.msg_id]}
        found = self.found["creation"]
        itself = Send(row.msg_id, row.group, row.source, row.source_seq, 0)
        if sent is None:
            known = None if self.newest is None else self.newest.get(row.source)
            not_yet = self.newest is not None and (known is None or known < row.source_seq)
            if not not_yet:
                found.add(f"{row.site} delivers {row.msg_id}, which nobody sent", "unsent", [row.shown()], **here)
                return None
            sent = itself
        if (sent.group, sent.source, sent.source_seq) != (row.group, row.source, row.source_seq):
            says = f"{row.site} delivers {row.msg_id} {itself.told()}, but it was sent {sent.told()}"
            found.add(says, "otherwise", [row.shown()], **here)
        elif row.site not in self.members.of(row.group):
            says = f"{row.site} delivers {row.msg_id} to {shown(row.group)}, but is not a member"
            found.add(says, "stranger", [row.shown()], **here)
        return sent

    def _fifo(self, row: Row, sent: Send, latest: dict[tuple[SiteId, GroupId], Row]) -> None:
        fell = False
        for group in groups_of(sent.group):
            stream = (sent.source, group)
            number = self.reached.get(stream)
            if number is not None and number > sent.source_seq:
                if not fell:
                    last = latest[stream]
                    says = f"{self.site} delivers {last.msg_id} before {row.msg_id}, sent earlier by {sent.source}"
                    self._fell("fifo", f"{says} to {group}", last, row)
                fell = True
            else:
                self.reached[stream] = sent.source_seq
                latest[stream] = row

    def completeness(self, expected: Iterable[Send]) -> None:
        """Judge what was not delivered; while a run goes on, only where something later of its stream was."""
        missing: dict[str, Send] = {}
        for sent in expected:
            if sent.msg_id in self.delivered or sent.msg_id in missing:
                continue
            streams = ((sent.source, group) for group in groups_of(sent.group))
            passed = any(self.reached.get(stream, sent.source_seq) > sent.source_seq for stream in streams)
            if self.newest is None or passed:
                missing[sent.msg_id] = sent
        for sent in sorted(missing.values(), key=lambda sent: (sent.source, sent.source_seq, sent)):
            says = f"{self.site} does not deliver {sent.msg_id} to {shown(sent.group)}"
            here: dict[str, Any] = {"sites": [self.site], "messages": [sent.msg_id]}
            self.found["completeness"].add(says, "missing", [sent.shown(self.site)], **here)


# What is told of a message.


def _judge_told(logs: Mapping[SiteId, list[Row]], sends: Sends, found: Mapping[str, Finding], *, stamped: bool) -> bool:
    """A message has one stamp, class and epoch; returns whether its destination or class is told in two ways."""
    given: dict[str, Row] = {}
    mixed = False
    for site, log in logs.items():
        for row in firsts(log):
            other = given.setdefault(row.msg_id, row)
            sent = sends.one.get(row.msg_id)
            mixed |= sent is not None and sent.group != row.group
            if _same(other, row):
                continue
            mixed |= other.group != row.group or other.order_class != row.order_class
            facts: dict[str, Any] = {"sites": [other.site, site], "messages": [row.msg_id]}
            pair = [other.shown(), row.shown()]
            if other.epoch != row.epoch:
                says = f"{row.msg_id} is of epoch {other.epoch} at {other.site} and of epoch {row.epoch} at {site}"
                found["epochs"].add(says, "two epochs", pair, **facts)
            if stamped and other.stamp != row.stamp:
                says = f"{site} delivers {row.msg_id} with another stamp than {other.site}"
                found["stamps"].add(says, "two stamps", pair, **facts)
            if stamped and other.order_class != row.order_class:
                says = f"{row.msg_id} is in class {other.order_class} at {other.site}, in {row.order_class} at {site}"
                found["classes"].add(says, "two classes", pair, **facts)
    return mixed


def _same(one: Row, other: Row) -> bool:
    told = one.epoch == other.epoch and one.stamp == other.stamp
    return told and one.order_class == other.order_class and one.group == other.group


def _judge_growth(site: SiteId, log: Sequence[Row], found: Finding) -> None:
    """Stamps grow along a log, class by class; the previous stamp is that of the previous delivery."""
    last: dict[str | None, Row] = {}
    for row in firsts(log):  # a repeat is a duplicate; it says nothing of the order
        before = last.get(row.order_class)
        last[row.order_class] = row
        if before is not None and before.stamp is not None and row.stamp is not None and before.stamp >= row.stamp:
            says = f"{site} delivers {before.msg_id} before {row.msg_id}, whose stamp is not larger"
            steps = [step(site, before.msg_id, row.msg_id)]
            found.add(says, "order", [before.shown(), row.shown()], steps=steps)
    if any(row.prev_stamp is not None for row in log):
        _judge_previous(site, log, found)


def _judge_previous(site: SiteId, log: Sequence[Row], found: Finding) -> None:
    """The previous stamp is that of the previous delivery of its class, where no position is missing between."""
    last: dict[str | None, Row] = {}
    whole_since, at = -1, -2
    for row in log:
        if row.position > at + 1:
            whole_since = row.position
        repeated, at = row.position == at, row.position
        before = last.get(row.order_class)
        last[row.order_class] = row
        known = whole_since == 0 if before is None else before.position >= whole_since
        if known and not repeated and row.prev_stamp != (before.stamp if before is not None else None):
            told = f"that of {before.msg_id}" if before is not None else "none, it is the first of its class"
            says = f"{site} delivers {row.msg_id} with a previous stamp that is not {told}"
            here = [r for r in (before, row) if r is not None]
            facts: dict[str, Any] = {"sites": [site], "messages": [r.msg_id for r in here]}
            found.add(says, "previous", [r.shown() for r in here], **facts)
