"""The judges of deliveries: they know what was sent and what each site delivered, never how.

Each yields every violation it finds, the first as good an example as any, with as few messages as it takes. All are
linear in the number of deliveries (times sources, for causal); `total` alone may compare pairs of sites, but only after
a cycle was found. The audit asks them about the rows that its fold could not clear.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise

from ordercast.names import SiteId
from ordercast.verify import findings
from ordercast.verify.causes import causal
from ordercast.verify.findings import Delivery, Finding, MsgId, Sent
from ordercast.verify.record import Record, Stream
from ordercast.verify.rings import shortest_ring

Findings = Iterator[Finding]


def duplicate(record: Record) -> Findings:
    """No site delivers a message twice."""
    for site in record.sites:
        first: dict[MsgId, Delivery] = {}
        for row in record.rows.get(site, ()):
            if first.setdefault(row.msg_id, row) is not row:
                yield findings.twice(first[row.msg_id], row)


def creation(record: Record) -> Findings:
    """Only what was sent is delivered, as it was sent, and only at its destinations."""
    for site in record.sites:
        for row in record.firsts[site].values():
            sent = record.sent_as(row)
            if sent is None:
                yield findings.unsent(row)
            elif sent[:3] != (row.groups, row.source, row.number):
                yield findings.otherwise(row, sent)
            elif site not in record.sites_of(row.groups):
                yield findings.stranger(row)


def body(record: Record) -> Findings:
    """A message has the body that was sent at every site; where nobody knows what was sent, it has one body."""
    for site in record.sites:
        for row in record.firsts[site].values():
            known = _sent_bodies(record, row.msg_id)
            if row.body is not None and known and row.body not in known:
                yield findings.other_body(row)
    for one, other in record.told_differently:
        told = one.body != other.body and None not in (one.body, other.body)
        if told and not _sent_bodies(record, other.msg_id):
            yield findings.two_bodies(one, other)


def _sent_bodies(record: Record, message: MsgId) -> set[object]:
    """Return the bodies that were sent under an id; empty when that is not known."""
    known: set[object] = {sent.body for sent in record.every_send(message)}
    return set() if None in known else known


def completeness(record: Record) -> Findings:
    """Every destination delivers everything.

    While a run goes on a message is missing only where a later one of its source and group was delivered.
    """
    for site in record.sites:
        delivered = record.firsts[site]
        reached = None if record.newest is None else record.reached(site)
        lacks: dict[MsgId, Sent] = {}
        for groups, sends in record.sends_by_groups.items():
            if site in record.sites_of(groups):
                for message, sent in sends:
                    if message not in delivered and (reached is None or _overtaken(sent, reached)):
                        lacks.setdefault(message, sent)
        for message, sent in sorted(lacks.items(), key=lambda item: (item[1].source, item[1].number, item[0])):
            yield findings.missing(site, message, sent)


def _overtaken(sent: Sent, reached: dict[Stream, int]) -> bool:
    return any(reached.get((sent.source, group), sent.number) > sent.number for group in sent.groups)


def fifo(record: Record) -> Findings:
    """One source, one group (alone or among several): in the order sent."""
    for site in record.sites:
        highest: dict[Stream, tuple[int, Delivery]] = {}
        for row in record.firsts[site].values():
            sent = record.sent_as(row)
            if sent is None:
                continue
            fell = False
            for group in sent.groups:
                stream = (sent.source, group)
                number, before = highest.get(stream, (sent.number, row))
                if number > sent.number:
                    if not fell:
                        yield findings.not_as_sent(before, row, *stream)
                    fell = True
                else:
                    highest[stream] = (sent.number, row)


def epochs(record: Record) -> Findings:
    """Epochs never fall along a log, and a message has one epoch everywhere."""
    for site in record.sites:
        for before, row in pairwise(record.firsts[site].values()):
            if row.epoch < before.epoch:
                yield findings.epoch_fell(before, row)
    yield from (findings.two_epochs(a, b) for a, b in record.told_differently if a.epoch != b.epoch)


def classes(record: Record) -> Findings:
    """A message is in one class everywhere."""
    yield from (findings.two_classes(a, b) for a, b in record.told_differently if a.order_class != b.order_class)


def stamps(record: Record) -> Findings:
    """A message has one stamp, and stamps grow along every log, class by class: the certificate of acyclic order."""
    yield from (findings.two_stamps(a, b) for a, b in record.told_differently if a.stamp != b.stamp)
    for site in record.sites:
        last: dict[object, Delivery] = {}
        for row in record.firsts[site].values():
            before = last.get(row.order_class)
            last[row.order_class] = row
            if before is not None and before.stamp is not None and row.stamp is not None and before.stamp >= row.stamp:
                yield findings.not_larger(before, row)
        yield from _previous(record, site)


def _previous(record: Record, site: SiteId) -> Findings:
    """The previous stamp is that of the previous delivery of its class, where no position is missing between."""
    log = record.rows.get(site, ())
    if all(row.prev_stamp is None for row in log):  # a log that says nothing of previous stamps
        return
    last: dict[object, Delivery] = {}
    whole_since, at = -1, -2
    for row in log:
        if row.position > at + 1:
            whole_since = row.position
        repeated, at = row.position == at, row.position
        before = last.get(row.order_class)
        last[row.order_class] = row
        known = whole_since == 0 if before is None else before.position >= whole_since
        if known and not repeated and row.prev_stamp != (before.stamp if before is not None else None):
            yield findings.not_previous(before, row)


def total(record: Record) -> Findings:
    """Any two sites deliver their common messages in the same order (GS88 §1, property c)."""
    found = _disagreement(record)
    if found is not None:
        yield findings.disagreement(found)


def _disagreement(record: Record) -> list[tuple[Delivery, Delivery]] | None:
    """Return two steps: two messages as one site delivers them, and as another does, the other way round."""
    logs = {site: [m for m in log if m in record.tangled] for site, log in sorted(record.logs.items())}
    sites = [site for site, log in logs.items() if len(log) > 1]
    at = {site: {message: place for place, message in enumerate(logs[site])} for site in sites}
    for index, one in enumerate(sites):
        for other in sites[index + 1 :]:
            common = [m for m in logs[one] if m in at[other]]
            for a, b in pairwise(common):
                if at[other][a] > at[other][b]:
                    return [(record.row(one, a), record.row(one, b)), (record.row(other, b), record.row(other, a))]
    return None


def acyclic(record: Record) -> Findings:
    """The union of all sites' orders has no cycle: one serial order exists."""
    if not record.tangled:
        return
    steps = _disagreement(record)
    if steps is None:
        logs = {site: [m for m in log if m in record.tangled] for site, log in record.logs.items()}
        steps = [(record.row(site, a), record.row(site, b)) for a, site, b in shortest_ring(logs)[0]]
    yield findings.ring(steps)


EVERY: dict[str, Callable[[Record], Findings]] = {
    judge.__name__: judge
    for judge in (creation, duplicate, completeness, body, fifo, total, acyclic, epochs, classes, stamps, causal)
}
"""The judges by the property they judge: each yields every violation."""


def _first(judge: Callable[[Record], Findings], record: Record) -> Finding | None:
    return next(judge(record), None)


JUDGES: dict[str, Callable[[Record], Finding | None]] = {name: partial(_first, judge) for name, judge in EVERY.items()}
"""The same judges, as far as the first violation: None when there is none."""
ALWAYS = ("creation", "duplicate", "completeness", "stamps")
"""What every protocol promises."""
