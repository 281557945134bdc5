"""What clients of a cluster under trouble tried, what they were promised, what they read; and whether it was kept.

A message is **promised** when

- its sender has a receipt for it (`ordered` or `safe`), or
- any member has delivered it, or
- the site had taken it (`multicast_many` or `flush` returned) and that life of the site did not end with kill -9: a
  site that is told to stop writes what it has taken, or
- the site had taken it before something that was delivered was sent: a history is written in order.

What a site had taken when it was killed, and nothing later of that life is anywhere, may be lost: `taken` says that the
site has it, not that it is on disk (docs/live.md). It is counted (`excused`). Everything promised must be delivered at
every destination, once, under one number of its source, with the body it was sent with, in the order the protocol
declares. Beside that, every number that a site says it has sent must be delivered: a hole is a loss, whoever sent it.
"""

import random
from collections import Counter
from dataclasses import dataclass, field

from ordercast.client.values import Lot
from ordercast.core.configuration import Configuration
from ordercast.names import GroupId, SiteId
from ordercast.verify.deliveries import JUDGES
from ordercast.verify.findings import Sent
from ordercast.verify.record import Record

Life = tuple[SiteId, int]
"""A site, and how often it was started before."""


@dataclass(slots=True)
class Attempt:
    """A message that a client sent, and what it was told about it."""

    sent: Sent
    life: Life
    taken: int | None = None
    """The site has taken it, and gives larger numbers to what the client began to send after this number."""
    acknowledged: bool = False
    number: int | None = None
    """Its number at its source, if the sender was told."""
    stamp: bytes | None = None


def body_of(name: str) -> bytes:
    """Return the body of a message: its name, and bytes that only this message has; few are long."""
    chance = random.Random(name)
    size = chance.choice([0, 10, 10, 100, 100, 1000, 5000])
    return name.encode() + b" " + chance.randbytes(size)


@dataclass
class Book:
    """One run, as its clients saw it."""

    groups: Configuration
    judges: frozenset[str]
    """The orders that the protocol declares."""
    attempts: dict[str, Attempt] = field(default_factory=dict)
    logs: dict[SiteId, list[str]] = field(default_factory=dict)
    places: dict[SiteId, list[tuple[int, bytes, int]]] = field(default_factory=dict)
    """Beside the logs: the class, the stamp of the batch, and the number at its source."""
    ids: dict[tuple[SiteId, int], str] = field(default_factory=dict)
    """Source and number of everything that was delivered."""
    killed: set[Life] = field(default_factory=set)
    sent: dict[SiteId, int] = field(default_factory=dict)
    """How many messages each site says it has sent, at the end."""
    problems: list[tuple[str, str]] = field(default_factory=list)
    """What was wrong the moment it was seen: the promise, and an example."""
    begun: dict[SiteId, int] = field(default_factory=dict)

    # Sending.

    def attempt(self, site: SiteId, groups: tuple[GroupId, ...], life: Life) -> str:
        """Note a message before it is sent; return its name."""
        number = self.begun[site] = self.begun.get(site, 0) + 1
        name = f"{site}-{number}"
        after = len(self.logs.get(site, ()))  # its site has delivered at least what was read from it
        self.attempts[name] = Attempt(Sent(groups, site, number, after), life)
        return name

    def taken(self, names: list[str], first: int | None = None) -> None:
        """The site has taken what was sent in one go, as one batch when it told the number of the first."""
        for index, name in enumerate(names):
            attempt = self.attempts[name]
            attempt.taken = self.attempts[names[-1]].sent.number
            attempt.number = None if first is None else first + index

    def acknowledged(self, name: str, stamp: bytes | None) -> None:
        """A receipt is there; without a stamp when a link broke meanwhile."""
        self.attempts[name].acknowledged, self.attempts[name].stamp = True, stamp

    # Reading.

    def read(self, site: SiteId, lot: Lot, most: int | None = None) -> None:
        """Note what a reader got: the next of its site's log, or a problem."""
        log, places = self.logs.setdefault(site, []), self.places.setdefault(site, [])
        for message in lot.messages()[:most]:
            if message.position != len(log):
                self.problems.append(("positions", f"{site}: position {message.position} after {len(log) - 1}"))
                return
            name = message.body.partition(b" ")[0].decode(errors="replace")
            attempt = self.attempts.get(name)
            if attempt is None or body_of(name) != message.body:
                self.problems.append(("bodies", f"{site} delivers {message.body[:40]!r}, which nobody sent"))
            elif (message.source, message.group) != (attempt.sent.source, "+".join(attempt.sent.groups)):
                self.problems.append(("bodies", f"{site} delivers {name} from {message.source} to {message.group}"))
            known = self.ids.setdefault((message.source, message.number), name)
            if known != name:
                self.problems.append(("ids", f"{message.source}:{message.number} is {known} and {name}"))
            log.append(name)
            places.append((self.groups.order_of(lot.groups), lot.stamp, message.number))

    # Judging.

    @property
    def delivered(self) -> set[str]:
        """What any member has delivered."""
        return {name for log in self.logs.values() for name in log}

    def promised(self) -> set[str]:
        """Return what must be delivered."""
        delivered = self.delivered & self.attempts.keys()
        last: dict[Life, int] = {}
        for name in delivered:
            attempt = self.attempts[name]
            last[attempt.life] = max(last.get(attempt.life, 0), attempt.sent.number)
        found = set(delivered)
        for name, attempt in self.attempts.items():
            covered = attempt.life not in self.killed or (attempt.taken or 0) < last.get(attempt.life, 0)
            if attempt.acknowledged or (attempt.taken is not None and covered):
                found.add(name)
        return found

    @property
    def excused(self) -> int:
        """How many messages a site had taken, and lost when it was killed before it wrote them."""
        return sum(1 for name in self.attempts.keys() - self.promised() if self.attempts[name].taken is not None)

    def missing(self) -> list[str]:
        """Return what is promised and not there."""
        logs = {site: set(log) for site, log in self.logs.items()}
        lost = [
            f"{site} does not deliver {name}"
            for name in sorted(self.promised())
            for site in self.groups.union(self.attempts[name].sent.groups)
            if name not in logs.get(site, ())
        ]
        return lost + [
            f"{site}:{number} was sent and is nowhere"
            for site, many in sorted(self.sent.items())
            for number in range(1, many + 1)
            if (site, number) not in self.ids
        ]

    def doubled(self) -> list[str]:
        """Return what is there twice, at one site or under two numbers."""
        twice = [
            f"{site} delivers {name} twice"
            for site, log in sorted(self.logs.items())
            for name, many in sorted(Counter(log).items())
            if many > 1
        ]
        seen: dict[str, tuple[SiteId, int]] = {}
        for id_, name in sorted(self.ids.items()):
            if seen.setdefault(name, id_) != id_:
                twice.append(f"{name} is {seen[name]} and {id_}")
        return twice + [example for kind, example in self.problems if kind == "ids"]

    def disordered(self) -> list[str]:
        """Return what is not in order, or has another place than its sender was told."""
        sends = {name: self.attempts[name].sent for name in sorted(self.promised())}
        record = Record(self.groups.members, sends, self.logs, self._stamps())
        names = sorted(self.judges | {"creation", "stamps"})
        found = [f"{name}: {example}" for name in names if (example := JUDGES[name](record)) is not None]
        found += [example for kind, example in self.problems if kind == "positions"]
        return found + self._false_receipts()

    def _stamps(self) -> dict[SiteId, list[tuple[int, bytes]]]:
        """Return the class and the stamp of each delivery: that of its batch, and where it stands in it.

        A reader that comes back in the middle of a batch gets the rest: a batch begins where any reader saw it begin.
        """
        first: dict[tuple[int, bytes], int] = {}
        for places in self.places.values():
            for order_class, stamp, number in places:
                first[order_class, stamp] = min(number, first.get((order_class, stamp), number))
        return {
            site: [(of, stamp + (number - first[of, stamp]).to_bytes(4, "big")) for of, stamp, number in places]
            for site, places in self.places.items()
        }

    def _false_receipts(self) -> list[str]:
        numbers = {name: number for (_, number), name in self.ids.items()}
        stamps = {
            name: stamp
            for site, found in self._stamps().items()
            for name, (_, stamp) in zip(self.logs[site], found, strict=True)
        }
        wrong = []
        for name in self.delivered & self.attempts.keys():
            attempt = self.attempts[name]
            if attempt.number not in (None, numbers[name]):
                wrong.append(f"{name} was taken as number {attempt.number} and is number {numbers[name]}")
            if attempt.stamp not in (None, stamps[name]):
                wrong.append(f"the receipt of {name} has another stamp")
        return wrong
