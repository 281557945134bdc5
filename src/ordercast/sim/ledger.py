"""What the clients of a world of nodes tried, were told and read, what its disks held, and whether promises were kept.

The ledger knows nothing of nodes. A message carries its name in its body. It is **promised** when its sender has a
receipt for it, when any member has delivered it, when a disk of its source held it, or when its site took it and that
life of the site did not end with a crash or a failure. Everything promised must be delivered at every destination,
once, in the order that the deployment declares; a position of a site is one message for ever.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from ordercast.client.values import AckLevel, Gap, Lot, Receipt
from ordercast.core.configuration import Configuration
from ordercast.errors import LocalError, OrdercastError
from ordercast.names import GroupId, SiteId
from ordercast.verify.findings import Sent

Life = tuple[SiteId, int]
"""A site, and how often it was started before."""


class Entry(NamedTuple):
    """What a site delivered at one position."""

    name: str
    source: SiteId
    number: int
    groups: tuple[GroupId, ...]
    stamp: bytes


@dataclass(slots=True)
class Attempt:
    """A message that a client sent, and what it was told of it."""

    sent: Sent
    life: Life
    body: bytes
    ack: AckLevel
    epoch: int
    taken: bool = False
    """Its site did not refuse it."""
    acknowledged: bool = False
    failed: bool = False
    """Its sender was told that it may be lost, or has withdrawn it."""
    refused: bool = False
    """Its sender was told that nothing was sent."""
    added: bool = False
    """It is in a batch: who flushes waits for it."""
    disk: tuple[int, int] = (0, 0)
    """How many disks its source had lost by then, and how often it had gone back to an old copy."""
    receipt: Receipt | None = None
    origin: tuple[bytes, int] | None = None
    """Its client's session and number, and all that was posted with it, where clients may post again."""
    bodies: list[bytes] = field(default_factory=list)
    disks: int = 0
    """What its site knew of lost disks."""


@dataclass(slots=True)
class Reading:
    """One reader, as its application sees it: what it wants, and the position it reads next."""

    site: Life
    name: str
    groups: frozenset[GroupId] | None
    next: int

    def wants(self, groups: Iterable[GroupId]) -> bool:
        """Whether a message to these groups is for this reader."""
        return self.groups is None or not self.groups.isdisjoint(groups)


@dataclass
class Ledger:
    """One run."""

    configuration: Configuration
    promises: frozenset[str]
    durable: bool
    attempts: dict[str, Attempt] = field(default_factory=dict)
    open: dict[tuple[str, ...], AckLevel] = field(default_factory=dict)
    """Posts whose sender waits for an answer."""
    logs: dict[Life, list[Entry]] = field(default_factory=dict)
    """What was delivered; a durable site has one log over all its lives, until it loses its disk."""
    disks: dict[SiteId, set[str]] = field(default_factory=dict)
    """Names of what stands in the records of each disk, now."""
    away: set[tuple[str, ...]] = field(default_factory=set)
    """Posts whose sender has gone away: an answer may come, or not."""
    crashed: set[Life] = field(default_factory=set)
    places_known: bool = True
    """No link broke and no site stopped: every receipt tells the place."""
    problems: list[tuple[str, str]] = field(default_factory=list)
    """What was wrong the moment it was seen: the promise, and an example."""
    lost_disks: Counter[SiteId] = field(default_factory=Counter)
    """How many disks each site has lost."""
    forgotten: dict[SiteId, list[Entry]] = field(default_factory=dict)
    """What sites had delivered and forgot when an old copy of their disk was restored."""
    _begun: Counter[SiteId] = field(default_factory=Counter)
    _restored: Counter[SiteId] = field(default_factory=Counter)
    _lost: dict[SiteId, set[str]] = field(default_factory=dict)
    """What stood on disks that are gone: who was told of it before was told the truth."""

    def problem(self, promise: str, example: str) -> None:
        """Note what is wrong."""
        self.problems.append((promise, example))

    def log_of(self, life: Life) -> list[Entry]:
        """Return the log that a life of a site writes to."""
        return self.logs.setdefault((life[0], self.lost_disks[life[0]]) if self.durable else life, [])

    # Sending.

    def attempt(self, life: Life, groups: tuple[GroupId, ...], ack: AckLevel, size: int, epoch: int) -> str:
        """Note a message before it is sent; returns its name."""
        site = life[0]
        self._begun[site] += 1
        number = self._begun[site]
        name = f"{site}-{number}"
        after = sum(len(log) for (of, _), log in self.logs.items() if of == site)
        body = name.encode() + b" " + bytes(size)
        sent = Sent(groups, site, number, after)
        self.attempts[name] = Attempt(sent, life, body, ack, epoch, disk=(self.lost_disks[site], self._restored[site]))
        return name

    def took(self, names: Iterable[str]) -> None:
        """The site has not refused these."""
        for name in names:
            self.attempts[name].taken = True

    def flush(self, life: Life) -> tuple[str, ...]:
        """Return what a flush waits for: all that this life has put into batches; a name for the flush comes first."""
        added = [name for name, attempt in self.attempts.items() if attempt.added and attempt.life == life]
        return ("flush", *added)

    def flushed(self, names: tuple[str, ...], error: OrdercastError | None) -> None:
        """A flush has returned: everything is on disk, or somebody says why not."""
        site = self.attempts[names[1]].sent.source
        missing = set(names[1:]) - self.disks.get(site, set())
        if self.durable and error is None and missing:
            self.problem("durability", f"{site} has flushed {min(missing)}, which is not on its disk")

    def waits(self, names: tuple[str, ...], ack: AckLevel) -> None:
        """Somebody waits for an answer to these."""
        self.open[names] = ack

    def gone(self, life: Life) -> None:
        """A life ended without a word: nobody waits there any more."""
        self.crashed.add(life)
        self.open = {names: ack for names, ack in self.open.items() if self.attempts[names[0]].life != life}

    def withdrawn(self, names: tuple[str, ...]) -> None:
        """Who waited does not wait any more."""
        self.away.add(names)
        self._may_be_lost(names)

    def _may_be_lost(self, names: tuple[str, ...]) -> None:
        self.open.pop(names, None)
        for name in names:
            self.attempts[name].failed = True

    def refused(self, names: tuple[str, ...]) -> None:
        """The site says that it has not sent these, and will not."""
        self.open.pop(names, None)
        for name in names:
            self.attempts[name].failed = self.attempts[name].refused = True

    def answered(self, names: tuple[str, ...], receipts: list[Receipt], error: OrdercastError | None) -> None:
        """An answer is there, which must be true now."""
        if names in self.away:
            self.away.discard(names)
            return
        if names not in self.open:
            self.problem("receipts", f"a second answer, or one that nobody waits for: {names[0]}")
            return
        if isinstance(error, LocalError):
            self.refused(names)
            return
        if error is not None:
            self._may_be_lost(names)
            return
        ack = self.open.pop(names)
        if len(receipts) != len(names):
            self.problem("receipts", f"{len(receipts)} receipts for {len(names)} messages from {names[0]} on")
        for name, receipt in zip(names, receipts, strict=False):
            self._acknowledged(name, receipt, ack)

    def _acknowledged(self, name: str, receipt: Receipt, ack: AckLevel) -> None:
        attempt = self.attempts[name]
        attempt.acknowledged, attempt.receipt = True, receipt
        source = attempt.sent.source
        if self.durable and name not in self.disks.get(source, ()):
            self.problem("durability", f"{name} is acknowledged, and is not on the disk of {source}")
        if ack == "ordered" and receipt.stamp is None and self.places_known:
            self.problem("receipts", f"{name} is said to be ordered, and nobody says where")
        if ack == "safe":
            for site in self.configuration.union(attempt.sent.groups):
                has = self.disks.get(site, set()) | self._lost.get(site, set())
                if name not in (has if self.durable else self._delivered_at(site)):
                    self.problem("safety", f"{name} is said to be safe, and {site} lacks it")

    def _delivered_at(self, site: SiteId) -> set[str]:
        return {entry.name for (of, _), log in self.logs.items() if of == site for entry in log}

    # Disks, deliveries, readers.

    def stored(self, site: SiteId, names: Iterable[str]) -> None:
        """These are in a record on the disk of a site, for good."""
        self.disks.setdefault(site, set()).update(names)

    def disk_lost(self, site: SiteId) -> None:
        """A site begins with an empty disk."""
        self.lost_disks[site] += 1
        self._change_disk(site, set())

    def _change_disk(self, site: SiteId, names: set[str]) -> None:
        self._lost.setdefault(site, set()).update(self.disks.get(site, ()))
        self.disks[site] = names

    def disk_restored(self, site: SiteId, names: set[str], delivered: int) -> None:
        """A site goes back to an old copy of its disk, that held these messages and so many deliveries.

        What it has delivered since, it forgets. Until its peers tell it so, it may go on in its own way; alone.
        """
        self._change_disk(site, names)
        self._restored[site] += 1
        log = self.log_of((site, 0))
        for attempt in self.attempts.values():
            if attempt.sent.source == site:
                attempt.sent = attempt.sent._replace(after=min(attempt.sent.after, delivered))
        self.forgotten[site] = log[delivered:]
        del log[delivered:]

    def delivered(self, life: Life, lot: Lot, before: bytes | None) -> None:
        """A site delivers; after a restart perhaps again. `before`: the stamp of what came before it in its order."""
        log = self.log_of(life)
        order = self.configuration.order_of(lot.groups)
        earlier = (e.stamp for e in reversed(log[: lot.position]) if self.configuration.order_of(e.groups) == order)
        if before != next(earlier, None):
            self.problem("stamps", f"{life[0]}: position {lot.position} is said to follow another stamp than it does")
        for index, message in enumerate(lot.messages()):
            name = self._name(life[0], message.body, lot.source, lot.groups)
            entry = Entry(name, lot.source, message.number, lot.groups, lot.stamp + index.to_bytes(4, "big"))
            if message.position == len(log):
                log.append(entry)
            elif message.position > len(log):
                self.problem("positions", f"{life[0]} delivers position {message.position} after {len(log) - 1}")
                return
            elif log[message.position] != entry:
                was = log[message.position]
                self.problem("positions", f"{life[0]}: position {message.position} was {was}, now it is {entry}")

    def _name(self, site: SiteId, body: bytes, source: SiteId, groups: tuple[GroupId, ...]) -> str:
        name = body.partition(b" ")[0].decode(errors="replace")
        attempt = self.attempts.get(name)
        if attempt is None or attempt.body != body or (attempt.sent.source, attempt.sent.groups) != (source, groups):
            self.problem("creation", f"{site} delivers {name} of {source} to {'+'.join(groups)}, which was not sent so")
        return name

    def read(self, reading: Reading, lot: Lot) -> None:
        """An application reads: the next message it wants, at the position where its site delivered it."""
        log = self.log_of(reading.site)
        where = f"reader {reading.name} of {reading.site[0]}"
        for position in range(reading.next, min(lot.position, len(log))):
            if reading.wants(log[position].groups):
                self.problem("readers", f"{where} misses position {position}, {log[position].name}")
        if lot.position < reading.next:
            self.problem("readers", f"{where} reads position {lot.position} again")
        for message in lot.messages():
            entry = log[message.position] if message.position < len(log) else None
            name = message.body.partition(b" ")[0].decode(errors="replace")
            if entry is None or (entry.name, entry.number, entry.stamp[:-4]) != (name, message.number, lot.stamp):
                self.problem("readers", f"{where} reads {name} at position {message.position}, not {entry}")
            elif not reading.wants(entry.groups):
                self.problem("readers", f"{where} reads {name} to {'+'.join(entry.groups)}, unasked")
            reading.next = message.position + 1

    def skipped(self, reading: Reading, gap: Gap, *, asked: bool) -> None:
        """An application is told of a gap: it begins with what comes next, and ends with what was delivered here."""
        where = f"reader {reading.name} of {reading.site[0]}"
        log = self.log_of(reading.site)
        before = [e.name for e in log[reading.next : gap.first] if reading.wants(e.groups)]
        wanted = [e.name for e in log[gap.first : gap.last + 1] if reading.wants(e.groups)]
        if not asked or before or not wanted or not reading.next <= gap.first <= gap.last < len(log):
            self.problem("readers", f"{where} is at {reading.next} and is told of a gap, {gap.first} to {gap.last}")
        reading.next = gap.last + 1

    def unread(self, reading: Reading) -> str | None:
        """Return what a reader has not read and should have, at the end."""
        log = self.log_of(reading.site)
        for position in range(reading.next, len(log)):
            if reading.wants(log[position].groups):
                return f"reader {reading.name} of {reading.site[0]} never reads position {position}"
        return None
