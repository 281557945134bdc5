"""The judges of a run that goes on: the verdicts of `verify.deliveries`, in memory bounded by what is under way.

A message is *retired* when it stands first at every destination among the messages that are not retired there: this is
Kahn's topological sort of the union of all logs, done while the logs grow. Messages on or behind a cycle are never
retired, so what is left at the end is exactly what is missing or out of order; the judges of `verify.deliveries` read
those remains and find the example. Every other violation is seen at the delivery that commits it.

Receipts are judged too: the place that a source hears must be the stamp that is delivered; a message that is called
safe must have been delivered at every destination; and a source must hear what it was promised to hear.
"""

from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from heapq import heappop, heappush

from ordercast.names import GroupId, SiteId
from ordercast.verify import findings
from ordercast.verify.deliveries import JUDGES
from ordercast.verify.findings import NOWHERE, Delivery, Finding, Sent, Step
from ordercast.verify.record import Record

Key = tuple[SiteId, int]
"""A message: its source, and the number the source gave it."""


class _Open:
    """A message that is not retired."""

    __slots__ = ("body", "destinations", "first_at", "groups", "missing", "past", "stamp", "stamped_at")

    def __init__(
        self, groups: tuple[GroupId, ...], destinations: frozenset[SiteId], past: dict[SiteId, int], body: Hashable
    ) -> None:
        self.groups, self.destinations, self.past, self.body = groups, destinations, past, body
        self.missing = set(destinations)
        self.first_at = 0  # at how many destinations it stands first
        self.stamp: bytes | None = None
        self.stamped_at: SiteId = ""  # who told the stamp first


class _Site:
    """What one site has delivered: the messages that are not retired, and the last of every stream and class."""

    __slots__ = ("fifo", "knows", "lacks", "log", "passed", "stamps")

    def __init__(self) -> None:
        self.log: deque[Key] = deque()
        self.fifo: dict[tuple[SiteId, GroupId], int] = {}
        self.stamps: dict[Hashable, tuple[bytes, Key]] = {}
        self.lacks: dict[Hashable, list[tuple[bytes, Key]]] = {}  # with `prefix`: heaps of what others have
        self.knows: dict[SiteId, int] = {}  # the highest number of each source in this site's past
        self.passed: dict[SiteId, tuple[int, Key]] = {}  # the highest number in the past of what it delivered, of which


class Watch:
    """Judges a run while it goes on. Call `sent`, `delivered` and the others in the order in which things happen."""

    def __init__(
        self,
        members: Mapping[GroupId, Sequence[SiteId]],
        promises: frozenset[str],
        *,
        receipts: bool = False,
        prefix: bool = False,
    ) -> None:
        """With `prefix` the prefix property is judged too: it costs a tenth of a run."""
        self.members, self.promises, self.receipts, self.prefix = members, promises, receipts, prefix
        self.causal = "causal" in promises
        self.all_places = True
        """Whether every place must be heard; a link that loses or reorders may lose the word of a place."""
        self.broken: dict[str, Finding] = {}
        """The first violation of each property so far."""
        self._open: dict[Key, _Open] = {}
        self._sites: dict[SiteId, _Site] = {site: _Site() for sites in members.values() for site in sites}
        self._last: dict[SiteId, int] = {}
        self._destinations: dict[tuple[GroupId, ...], frozenset[SiteId]] = {}
        self._not_placed: dict[Key, bytes | None] = {}  # with `receipts`: the stamp, once it was delivered anywhere
        self._not_safe: dict[Key, None] = {}

    def sent(self, source: SiteId, number: int, groups: tuple[GroupId, ...], body: Hashable = b"") -> None:
        """Note that a source sends a message; its numbers must grow by one."""
        destinations = self.destinations(groups)
        past: dict[SiteId, int] = {}
        if self.causal:
            knows = self._sites.setdefault(source, _Site()).knows
            past = dict(knows)
            knows[source] = number
        if number != self._last.get(source, 0) + 1:
            self.note(Finding("creation", f"{source} sends number {number} after {self._last.get(source, 0)}"))
        self._open[source, number] = _Open(groups, destinations, past, body)
        self._last[source] = number
        if self.receipts:
            self._not_placed[source, number] = None
            self._not_safe[source, number] = None

    def destinations(self, groups: tuple[GroupId, ...]) -> frozenset[SiteId]:
        """Return who gets a message to these groups."""
        found = self._destinations.get(groups)
        if found is None:
            found = self._destinations[groups] = frozenset(site for group in groups for site in self.members[group])
        return found

    def placed(self, source: SiteId, number: int, stamp: bytes) -> None:
        """Note that a source hears the place of its message, which must be the stamp that is delivered."""
        key = (source, number)
        known = self._not_placed.pop(key, None)
        message = self._open.get(key)
        if message is not None:
            if message.stamp is None:
                message.stamp, message.stamped_at = stamp, source
            known = message.stamp
        if known is not None and known != stamp:
            self.note(Finding("receipts", f"{source} hears another place of {_name(key)} than is delivered"))

    def safe(self, source: SiteId, number: int) -> None:
        """Note that a source hears that its message is safe: every destination must have delivered it."""
        self._not_safe.pop((source, number), None)
        missing = self.missing(source, number)
        if missing or number > self._last.get(source, 0):
            lacks = min(missing, default="everybody")
            says = f"{source} hears that {source}:{number} is safe, and {lacks} lacks it"
            self.note(Finding("receipts", says))

    def lost_receipts(self, source: SiteId) -> None:
        """Note that a source has crashed: it need not hear the places of its messages any more."""
        for key in [key for key in self._not_placed if key[0] == source]:
            del self._not_placed[key]

    def differs(self, site: SiteId, source: SiteId, number: int) -> None:
        """Note that a restarted site delivers something else than before it stopped."""
        says = f"{site} delivers {source}:{number} again after a restart, or in another place"
        self.note(Finding("duplicate", says))

    def delivered(
        self, site: SiteId, source: SiteId, number: int, class_id: Hashable, stamp: bytes, body: Hashable = b""
    ) -> None:
        """Note that a site delivers a message, and judge everything that this delivery alone can break."""
        key = (source, number)
        message = self._open.get(key)
        if message is None or site not in message.missing:
            self._stray(site, key, message)
            return
        message.missing.discard(site)
        if body != message.body:
            self.note(findings.other_body(_row(site, key, message)))
        at = self._sites[site]
        for group in message.groups:
            stream = (source, group)
            if at.fifo.get(stream, 0) > number:
                before = _row(site, (source, at.fifo[stream]), message)
                self.note(findings.not_as_sent(before, _row(site, key, message), *stream))
            at.fifo[stream] = number
        if message.stamp is None:
            message.stamp, message.stamped_at = stamp, site
            if key in self._not_placed:
                self._not_placed[key] = stamp
        elif message.stamp != stamp:
            self.note(findings.two_stamps(_row(message.stamped_at, key, message), _row(site, key, message)))
        last = at.stamps.get(class_id)
        if last is not None and last[0] >= stamp:
            self.note(findings.not_larger(_row(site, last[1], message), _row(site, key, message)))
        at.stamps[class_id] = (stamp, key)
        if self.prefix:
            self._judge_prefix(site, at, key, message, class_id, stamp)
        if self.causal:
            self._hear(site, at, key, message)
        at.log.append(key)
        if len(at.log) == 1:
            self._stands_first(message, key)

    def _judge_prefix(
        self, site: SiteId, at: _Site, key: Key, message: _Open, class_id: Hashable, stamp: bytes
    ) -> None:
        """Judge the prefix property at a delivery: recovery stands on it (docs/protocols/epochs.md).

        What a site has delivered is, among the messages that go to it, all that have smaller stamps in their order and
        that anybody has delivered.
        """
        lacks = at.lacks.setdefault(class_id, [])
        while lacks and (lacks[0][1] not in self._open or site not in self._open[lacks[0][1]].missing):
            heappop(lacks)
        if lacks and lacks[0][0] < stamp:
            self.note(findings.not_a_prefix(site, _name(key), _name(lacks[0][1])))
        if len(message.missing) == len(message.destinations) - 1:  # nobody had it before
            for other in sorted(message.missing):
                there = self._sites[other]
                last = there.stamps.get(class_id)
                if last is not None and last[0] > stamp:
                    self.note(findings.not_a_prefix(other, _name(last[1]), _name(key)))
                heappush(there.lacks.setdefault(class_id, []), (stamp, key))

    def _stray(self, site: SiteId, key: Key, message: _Open | None) -> None:
        """Say what is wrong with a delivery that nobody waits for here."""
        row = _row(site, key, message)
        if message is not None and site not in message.destinations:
            self.note(findings.stranger(row))
        elif message is not None or key[1] <= self._last.get(key[0], 0):
            self.note(findings.twice(row, row))
        else:
            self.note(findings.unsent(row))

    def note(self, finding: Finding) -> None:
        """Note a violation; the first of each property counts."""
        self.broken.setdefault(finding.property, finding)

    def _hear(self, site: SiteId, at: _Site, key: Key, message: _Open) -> None:
        """Judge causal order at a delivery, and add the message's past to this site's.

        `passed` is what the past of earlier deliveries covers: a message below it comes too late.
        """
        source, number = key
        upto, of = at.passed.get(source, (0, key))
        if number <= upto:
            self.note(findings.late(Step(site, _name(of), _name(key), "delivers")))
        for other, known in message.past.items():
            if at.passed.get(other, (0, key))[0] < known:
                at.passed[other] = (known, key)
            if at.knows.get(other, 0) < known:
                at.knows[other] = known
        at.knows[source] = max(at.knows.get(source, 0), number)

    def _stands_first(self, message: _Open, key: Key) -> None:
        """Count one more destination where a message stands first; at the last one retire it, and look behind it."""
        ready = [(message, key)]
        while ready:
            message, key = ready.pop()
            message.first_at += 1
            if message.first_at < len(message.destinations):
                continue
            del self._open[key]
            for site in message.destinations:
                log = self._sites[site].log
                log.popleft()
                if log:
                    ready.append((self._open[log[0]], log[0]))

    def missing(self, source: SiteId, number: int) -> set[SiteId]:
        """Return the destinations that have not delivered a message."""
        message = self._open.get((source, number))
        return message.missing if message is not None else set()

    def look_for_losses(self) -> None:
        """Judge messages that a destination has passed over: it has a later one of the same source and group."""
        for (source, number), message in self._open.items():
            for site in message.missing:
                fifo = self._sites[site].fifo
                if any(fifo.get((source, group), 0) > number for group in message.groups):
                    sent = Sent(message.groups, source, number)
                    self.note(findings.missing(site, _name((source, number)), sent))
                    return

    @property
    def under_way(self) -> int:
        """How many messages are not retired."""
        return len(self._open)

    def sent_to(self, source: SiteId, number: int) -> tuple[GroupId, ...] | None:
        """Return the groups of a message that is not retired."""
        message = self._open.get((source, number))
        return message.groups if message is not None else None

    def last_of(self, site: SiteId, class_id: Hashable) -> Delivery | None:
        """Return the last delivery of a class at a site, with its stamp."""
        known = self._sites[site].stamps.get(class_id) if site in self._sites else None
        return _row(site, known[1], None)._replace(stamp=known[0]) if known is not None else None

    def last_sent(self, source: SiteId) -> int:
        """Return the number of the last message that a source has sent."""
        return self._last.get(source, 0)

    def remains(self) -> Record:
        """Return what is not retired, as a record for the judges of `verify.deliveries`."""
        sends = {_name(key): Sent(m.groups, key[0], key[1]) for key, m in self._open.items()}
        logs = {site: [_name(key) for key in at.log] for site, at in self._sites.items()}
        return Record(self.members, sends, logs)

    def findings(self) -> dict[str, Finding | None]:
        """Return the verdict on everything promised; call it when the run is over."""
        names = ("creation", "duplicate", "completeness", "body", "stamps", *(["receipts"] if self.receipts else ()))
        names = (*names, *(["prefix"] if self.prefix else ()))
        if self._not_safe:
            says = f"nobody says that {_name(next(iter(self._not_safe)))} is safe"
            self.note(Finding("receipts", says))
        if self._not_placed and self.all_places:
            says = f"nobody says where {_name(next(iter(self._not_placed)))} stands"
            self.note(Finding("receipts", says))
        found = {name: self.broken.get(name) for name in (*names, *sorted(self.promises))}
        if self._open:
            record = self.remains()
            found |= {name: JUDGES[name](record) for name in ("completeness", "total", "acyclic") if name in found}
        return found


def _name(key: Key) -> str:
    return f"{key[0]}:{key[1]}"


def _row(site: SiteId, key: Key, message: _Open | None) -> Delivery:
    """Return a delivery as evidence."""
    return Delivery(site, NOWHERE, _name(key), message.groups if message is not None else (), *key)
