"""The judges while a run goes on: the same verdicts as `verify.deliveries`, in memory bounded by what is under way.

A message is *retired* once it stands first at every destination among what is not retired there. Messages on or behind
a cycle never are, so what is left in the end is exactly what there is to look at: the judges of `verify.deliveries`
read those remains and find the example. Everything else is seen at the delivery that breaks it.

Bodies are compared too, and receipts: a place must be the stamp that is delivered, safe means that every destination
has delivered, and what a source is promised to hear it must hear.
"""

from collections import deque
from collections.abc import Mapping, Sequence

from ordercast.names import GroupId, SiteId
from ordercast.verify.deliveries import JUDGES, Record, Sent

Key = tuple[SiteId, int]
"""A message: its source, and the number the source gave it."""


class _Open:
    """A message that is not retired."""

    __slots__ = ("body", "destinations", "first_at", "groups", "missing", "past", "stamp")

    def __init__(
        self, groups: tuple[GroupId, ...], destinations: frozenset[SiteId], past: dict[SiteId, int], body: bytes
    ) -> None:
        self.groups, self.destinations, self.past, self.body = groups, destinations, past, body
        self.missing = set(destinations)
        self.first_at = 0  # at how many destinations it stands first
        self.stamp: bytes | None = None


class _Site:
    """What one site has delivered and was not retired, and the last of everything."""

    __slots__ = ("fifo", "knows", "log", "passed", "stamps")

    def __init__(self) -> None:
        self.log: deque[Key] = deque()
        self.fifo: dict[tuple[SiteId, GroupId], int] = {}
        self.stamps: dict[int, tuple[bytes, Key]] = {}
        self.knows: dict[SiteId, int] = {}  # the highest number of each source in this site's past
        self.passed: dict[SiteId, tuple[int, Key]] = {}  # the highest number in the past of what it delivered, of which


class Watch:
    """Told of every send and every delivery, in the order they happen."""

    def __init__(
        self, members: Mapping[GroupId, Sequence[SiteId]], promises: frozenset[str], *, receipts: bool = False
    ) -> None:
        self.members, self.promises, self.receipts = members, promises, receipts
        self.causal = "causal" in promises
        self.all_places = True  # on links that lose or reorder, the word of a place may be lost, or come too late
        self.broken: dict[str, str] = {}
        self._open: dict[Key, _Open] = {}
        self._sites: dict[SiteId, _Site] = {site: _Site() for sites in members.values() for site in sites}
        self._last: dict[SiteId, int] = {}
        self._destinations: dict[tuple[GroupId, ...], frozenset[SiteId]] = {}
        self._not_placed: dict[Key, bytes | None] = {}  # with `receipts`: the stamp, once it was delivered anywhere
        self._not_safe: dict[Key, None] = {}

    def sent(self, source: SiteId, number: int, groups: tuple[GroupId, ...], body: bytes = b"") -> None:
        """A source sends; its numbers grow."""
        destinations = self._destinations.get(groups)
        if destinations is None:
            destinations = frozenset(site for group in groups for site in self.members[group])
            self._destinations[groups] = destinations
        past: dict[SiteId, int] = {}
        if self.causal:
            knows = self._sites.setdefault(source, _Site()).knows
            past = dict(knows)
            knows[source] = number
        if number != self._last.get(source, 0) + 1:
            self._break("creation", f"{source} sends number {number} after {self._last.get(source, 0)}")
        self._open[source, number] = _Open(groups, destinations, past, body)
        self._last[source] = number
        if self.receipts:
            self._not_placed[source, number] = None
            self._not_safe[source, number] = None

    def placed(self, source: SiteId, number: int, stamp: bytes) -> None:
        """A source hears of the place of its message."""
        key = (source, number)
        known = self._not_placed.pop(key, None)
        message = self._open.get(key)
        if message is not None:
            known = message.stamp = message.stamp or stamp
        if known is not None and known != stamp:
            self._break("receipts", f"{source} hears another place of {_name(key)} than is delivered")

    def safe(self, source: SiteId, number: int) -> None:
        """A source hears that its message is at every destination."""
        self._not_safe.pop((source, number), None)
        missing = self.missing(source, number)
        if missing or number > self._last.get(source, 0):
            lacks = min(missing, default="everybody")
            self._break("receipts", f"{source} hears that {source}:{number} is safe, and {lacks} lacks it")

    def lost_receipts(self, source: SiteId) -> None:
        """A source has crashed: nobody waits there any more to hear of a place."""
        for key in [key for key in self._not_placed if key[0] == source]:
            del self._not_placed[key]

    def differs(self, site: SiteId, source: SiteId, number: int) -> None:
        """A restarted site delivers something else than before."""
        self._break("duplicate", f"{site} delivers {source}:{number} again after a restart, or in another place")

    def delivered(self, site: SiteId, source: SiteId, number: int, order: int, stamp: bytes, body: bytes = b"") -> None:
        """A site delivers."""
        key = (source, number)
        message = self._open.get(key)
        if message is None or site not in message.missing:
            self._stray(site, key, message)
            return
        message.missing.discard(site)
        if body != message.body:
            self._break("creation", f"{site} delivers {_name(key)} with another body than was sent")
        at = self._sites[site]
        for group in message.groups:
            stream = (source, group)
            if at.fifo.get(stream, 0) > number:
                self._break(
                    "fifo", f"{site} delivers {_name((source, at.fifo[stream]))} before {_name(key)} of {group}"
                )
            at.fifo[stream] = number
        if message.stamp is None:
            message.stamp = stamp
            if key in self._not_placed:
                self._not_placed[key] = stamp
        elif message.stamp != stamp:
            self._break("stamps", f"{site} delivers {_name(key)} with another stamp than a site before it")
        last = at.stamps.get(order)
        if last is not None and last[0] >= stamp:
            self._break("stamps", f"{site} delivers {_name(last[1])} before {_name(key)}, whose stamp is not larger")
        at.stamps[order] = (stamp, key)
        if self.causal:
            self._hear(site, at, key, message)
        at.log.append(key)
        if len(at.log) == 1:
            self._stands_first(message, key)

    def _stray(self, site: SiteId, key: Key, message: _Open | None) -> None:
        if message is not None and site not in message.destinations:
            groups = "+".join(message.groups)
            self._break("creation", f"{site} delivers {_name(key)} to {groups}, but is not a member")
        elif message is not None or key[1] <= self._last.get(key[0], 0):
            self._break("duplicate", f"{site} delivers {_name(key)} twice")
        else:
            self._break("creation", f"{site} delivers {_name(key)}, which nobody sent")

    def _break(self, name: str, example: str) -> None:
        self.broken.setdefault(name, example)

    def _hear(self, site: SiteId, at: _Site, key: Key, message: _Open) -> None:
        """What is in the past of a message that was delivered here comes too late now; its past is this site's too."""
        source, number = key
        upto, of = at.passed.get(source, (0, key))
        if number <= upto:
            name = _name(of)
            self._break("causal", f"{site} delivers {name} before {_name(key)}, which happened before it was sent")
        for other, known in message.past.items():
            if at.passed.get(other, (0, key))[0] < known:
                at.passed[other] = (known, key)
            if at.knows.get(other, 0) < known:
                at.knows[other] = known
        at.knows[source] = max(at.knows.get(source, 0), number)

    def _stands_first(self, message: _Open, key: Key) -> None:
        """Count where a message stands first; everywhere: retire it, and look at those behind it."""
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
        """Where a message is still to be delivered."""
        message = self._open.get((source, number))
        return message.missing if message is not None else set()

    def remains(self) -> Record:
        """What was not retired, as a record for the judges of `verify.deliveries`."""
        sends = {_name(key): Sent(m.groups, key[0], key[1]) for key, m in self._open.items()}
        logs = {site: [_name(key) for key in at.log] for site, at in self._sites.items()}
        return Record(self.members, sends, logs)

    def findings(self) -> dict[str, str | None]:
        """Return the verdict on everything promised; call it when the run is over."""
        names = ("creation", "duplicate", "completeness", "stamps", *(["receipts"] if self.receipts else ()))
        found = dict.fromkeys((*names, *sorted(self.promises)))
        if self._not_safe:
            self._break("receipts", f"nobody says that {_name(next(iter(self._not_safe)))} is safe")
        if self._not_placed and self.all_places:
            self._break("receipts", f"nobody says where {_name(next(iter(self._not_placed)))} stands")
        record = self.remains() if self._open else None
        for name in found:
            found[name] = self.broken.get(name)
            if record is not None and name in ("completeness", "total", "acyclic"):
                found[name] = JUDGES[name](record)
        return found


def _name(key: Key) -> str:
    return f"{key[0]}:{key[1]}"
