"""Causal order: what happened before a message was sent is delivered before it, wherever both are delivered.

A message happened before another when its source sent it earlier, or when the other's source had delivered it; and so
on through others. A message that a site never delivers is a loss, not a break of causal order.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from ordercast.names import SiteId
from ordercast.verify import findings
from ordercast.verify.findings import Finding, MsgId, Step
from ordercast.verify.record import Record

Past = dict[SiteId, int]
"""The highest number of each source; with it, all lower ones of that source."""


def causal(record: Record) -> Iterator[Finding]:
    """What happened before a message was sent is delivered before it, where both are delivered."""
    known = _Pasts(record)
    if known.stuck:
        steps = known.circle()
        yield findings.circle(steps, _shown(record, steps))
        return
    many, first = 0, None
    for site, log in sorted(record.logs.items()):
        for message, later in _late(record, known.past, log):
            many += 1
            first = first or Step(site, message, later, "delivers")
    if first is not None:
        yield findings.late(first, _shown(record, [first]), many)


def _shown(record: Record, steps: Sequence[Step]) -> list[findings.Delivery]:
    """Return the deliveries that the steps name, as far as there are any."""
    named = {(step.site, message) for step in steps for message in (step.first, step.then)}
    return [row for site in sorted(record.rows) for row in record.rows[site] if (site, row.msg_id) in named]


def _late(record: Record, past: Mapping[MsgId, Past], log: Sequence[MsgId]) -> list[tuple[MsgId, MsgId]]:
    """Return (message, cause) for every message of a log that comes before one of its causes, in the order of the log.

    The log is read backwards, with the lowest number of each source that comes later.
    """
    found = []
    lowest: dict[SiteId, tuple[int, MsgId]] = {}  # of what is delivered later, by source
    for message in reversed(log):
        if message not in past:
            continue
        for source, number in past[message].items():
            if source in lowest and lowest[source][0] <= number:
                found.append((message, lowest[source][1]))
                break
        sent = record.sends[message]
        if sent.source not in lowest or sent.number < lowest[sent.source][0]:
            lowest[sent.source] = (sent.number, message)
    return found[::-1]


class _Pasts:
    """The causal past of every message. Each source is read up to its next send as soon as what it had seen is known.

    A message whose past is never known is in a circle of causes, or behind one: then `stuck` is true.
    """

    def __init__(self, record: Record) -> None:
        self.record = record
        self.sent_by: dict[SiteId, list[MsgId]] = {}
        for message, sent in sorted(record.sends.items(), key=lambda item: (item[1].number, item[0])):
            self.sent_by.setdefault(sent.source, []).append(message)
        self.knows: dict[SiteId, Past] = {site: {} for site in self.sent_by}
        self.read = dict.fromkeys(self.sent_by, 0)
        self.next = dict.fromkeys(self.sent_by, 0)
        self.past: dict[MsgId, Past] = {}
        moved = True
        while moved:
            moved = False
            for site, own in self.sent_by.items():
                while self.next[site] < len(own) and self._read_up_to(site, own[self.next[site]]) is None:
                    message = own[self.next[site]]
                    self.past[message] = dict(self.knows[site])
                    self._learn(site, site, record.sends[message].number)
                    self.next[site] += 1
                    moved = True
        self.stuck = len(self.past) < len(record.sends)

    def _learn(self, site: SiteId, source: SiteId, number: int) -> None:
        known = self.knows[site]
        known[source] = max(known.get(source, number), number)

    def _read_up_to(self, site: SiteId, message: MsgId) -> MsgId | None:
        """Add to a source's past what it had delivered before a send; returns a message whose past is not known."""
        log = self.record.logs.get(site, ())
        while self.read[site] < min(self.record.sends[message].after, len(log)):
            seen = log[self.read[site]]
            if seen in self.past:
                sent = self.record.sends[seen]
                for source, number in (*self.past[seen].items(), (sent.source, sent.number)):
                    self._learn(site, source, number)
            elif seen in self.record.sends:
                return seen
            self.read[site] += 1
        return None

    def circle(self) -> list[Step]:
        """Return the steps of a circle of causes: follow what each source waits for until a source comes up again."""
        site = next(site for site, own in self.sent_by.items() if self.next[site] < len(own))
        waits: list[tuple[SiteId, MsgId, MsgId]] = []  # this source waits with this message for the past of that one
        while site not in [at for at, _, _ in waits]:
            message = self.sent_by[site][self.next[site]]
            seen = self._read_up_to(site, message)
            assert seen is not None
            waits.append((site, message, seen))
            site = self.record.sends[seen].source
        waits = waits[[at for at, _, _ in waits].index(site) :]
        steps = []
        for (site, message, seen), (other, earlier, _) in pairwise([*waits, waits[0]]):
            steps.append(Step(site, seen, message, "delivers"))
            if earlier != seen:
                steps.append(Step(other, earlier, seen, "sends"))
        return steps
