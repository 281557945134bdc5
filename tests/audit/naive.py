"""A judge of runs that is slow and obvious: every property straight from docs/guarantees.md and docs/classes.md.

It shares no code with the audit. It also checks examples: the sites and messages that one names do what it says.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any


@dataclass(frozen=True)
class Sent:
    """A row of sends/."""

    msg_id: str
    groups: frozenset[str]
    source: str
    number: int
    after: int = 0
    body: int = 0

    def key(self) -> tuple[Any, ...]:
        """Return what sends of one id are sorted by."""
        return (self.msg_id, "+".join(sorted(self.groups)), self.source, self.number, self.after)


@dataclass(frozen=True)
class Delivered:
    """A row of deliveries/."""

    site: str
    position: int
    msg_id: str
    groups: frozenset[str]
    source: str
    number: int
    epoch: int = 0
    order_class: str = ""
    stamp: bytes = b""
    prev: bytes | None = None
    body: int = 0


@dataclass
class Run:
    """Everything that is in a run directory, and how it is to be judged."""

    members: dict[str, set[str]]
    sends: list[Sent]
    deliveries: list[Delivered]
    level: str = "acyclic"
    running: bool = False
    stamped: bool = True
    has_prev: bool = True
    has_epoch: bool = True
    context: bool = True
    bodies: bool = True
    """Whether deliveries carry a hash of their bodies."""
    sent_bodies: bool = True
    notes: list[str] = field(default_factory=list)

    def sites_of(self, groups: frozenset[str]) -> set[str]:
        """Return the union of the members."""
        return {site for group in groups for site in self.members.get(group, ())}


class Naive:
    """Judges a run; a property is True, False, or None when nothing can be said."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.logs: dict[str, list[Delivered]] = defaultdict(list)
        for row in sorted(run.deliveries, key=lambda row: row.position):
            self.logs[row.site].append(row)
        self.firsts = {site: self._firsts(log) for site, log in self.logs.items()}
        self.sent: dict[str, list[Sent]] = defaultdict(list)
        for sent in run.sends:
            self.sent[sent.msg_id].append(sent)

    def _firsts(self, log: list[Delivered]) -> list[Delivered]:
        seen = set()
        return [row for row in log if not (row.msg_id in seen or seen.add(row.msg_id))]  # type: ignore[func-returns-value]

    def verdict(self) -> dict[str, bool | None]:
        """Judge every property."""
        return {
            "creation": self.creation() == 0,
            "duplicate": self.duplicate() == 0,
            "completeness": self.completeness() == 0,
            "body": not self.other_bodies() if self.run.bodies else None,
            "fifo": self.fifo(),
            "total": not any(len({a, b}) == 2 for a, b in self.opposite_pairs()),
            "acyclic": self.shortest_cycle() is None,
            "epochs": self.epochs() if self.run.has_epoch else None,
            "classes": self.classes() if self.run.stamped else None,
            "stamps": self.stamps() if self.run.stamped else None,
            "causal": self.causal() if self.run.context else None,
        }

    # What was sent.

    def fitting(self, row: Delivered) -> Sent | None:
        """Return the send that a delivery is of, if it is told as it was sent."""
        for sent in self.sent[row.msg_id]:
            if (sent.groups, sent.source, sent.number) == (row.groups, row.source, row.number):
                return sent
        return None

    def not_yet_written(self, row: Delivered) -> bool:
        """While a run goes on, a send may come later, unless its source is known to be past it."""
        if not self.run.running or self.sent[row.msg_id]:
            return False
        return not any(sent.source == row.source and sent.number >= row.number for sent in self.run.sends)

    def wrong(self, row: Delivered) -> str | None:
        """Say what is wrong with the creation of a delivery."""
        if self.fitting(row) is None and not self.not_yet_written(row):
            return "otherwise" if self.sent[row.msg_id] else "unsent"
        return None if row.site in self.run.sites_of(row.groups) else "stranger"

    def creation(self) -> int:
        """Count deliveries that should not be, and ids of two messages."""
        rows = sum(self.wrong(row) is not None for log in self.firsts.values() for row in log)
        return rows + sum(len(every) - 1 for every in self.sent.values() if every)

    def duplicate(self) -> int:
        """Count repeats."""
        return sum(len(log) - len(self.firsts[site]) for site, log in self.logs.items())

    def header(self, row: Delivered) -> tuple[frozenset[str], str, int] | None:
        """How a delivered message was sent; the first of its id when ids are not unique."""
        if self.fitting(row) is not None or self.not_yet_written(row):
            return row.groups, row.source, row.number
        if not self.sent[row.msg_id]:
            return None
        sent = min(self.sent[row.msg_id], key=Sent.key)
        return sent.groups, sent.source, sent.number

    def missing(self, site: str, msg_id: str) -> bool:
        """Whether a site misses a message; while a run goes on, whether something later of its stream is there."""
        if any(row.msg_id == msg_id for row in self.firsts.get(site, ())):
            return False
        for sent in self.sent[msg_id]:
            if site not in self.run.sites_of(sent.groups):
                continue
            if not self.run.running:
                return True
            for row in self.firsts.get(site, ()):
                known = self.header(row)
                if known and known[1] == sent.source and known[0] & sent.groups and known[2] > sent.number:
                    return True
        return False

    def completeness(self) -> int:
        """Count what is missing."""
        every = {site for sites in self.run.members.values() for site in sites}
        ids = {sent.msg_id for sent in self.run.sends}
        return sum(self.missing(site, msg_id) for site in every for msg_id in ids)

    def other_bodies(self) -> set[tuple[str, str]]:
        """Return where a body is not the one sent, or not the one of another site when nobody knows what was sent."""
        found = set()
        for site, log in self.firsts.items():
            for row in log:
                known = {sent.body for sent in self.sent[row.msg_id]} if self.run.sent_bodies else set()
                others = known or self.told("body")[row.msg_id].values()
                if any(row.body != body for body in others) and row.body not in known:
                    found.add((site, row.msg_id))
        return found

    # Order.

    def before(self, site: str) -> Iterator[tuple[Delivered, Delivered]]:
        """Return what comes before what at a site."""
        return combinations(self.firsts.get(site, ()), 2)

    def breaks_fifo(self, one: Delivered, other: Delivered) -> bool:
        """Whether two deliveries, in this order, are not in the order sent."""
        a, b = self.header(one), self.header(other)
        return a is not None and b is not None and a[1] == b[1] and bool(a[0] & b[0]) and a[2] > b[2]

    def fifo(self) -> bool:
        """One source, one group, alone or among several: in the order sent."""
        return not any(self.breaks_fifo(a, b) for site in self.firsts for a, b in self.before(site))

    def pairs(self) -> set[tuple[str, str]]:
        """Return what comes before what anywhere."""
        return {(a.msg_id, b.msg_id) for site in self.firsts for a, b in self.before(site)}

    def opposite_pairs(self) -> set[tuple[str, str]]:
        """Return what comes before what at one site and after it at another."""
        pairs = self.pairs()
        return {(a, b) for a, b in pairs if (b, a) in pairs}

    def shortest_cycle(self) -> int | None:
        """Return how many steps the shortest cycle has."""
        after = defaultdict(set)
        for a, b in self.pairs():
            after[a].add(b)
        best = None
        for start in list(after):
            far, reached, steps = {start}, set[str](), 0
            while far and (best is None or steps < best):
                steps += 1
                far = {b for a in far for b in after[a]} - reached
                reached |= far
                if start in far:
                    best = steps if best is None else min(best, steps)
                    break
        return best

    # What is told of messages.

    def told(self, what: str) -> dict[str, dict[str, Any]]:
        """Return by message and site what a column says."""
        found: dict[str, dict[str, Any]] = defaultdict(dict)
        for site, log in self.firsts.items():
            for row in log:
                found[row.msg_id][site] = getattr(row, what)
        return found

    def one_for_all(self, what: str) -> bool:
        """Whether all sites say the same of every message."""
        return all(len(set(by_site.values())) == 1 for by_site in self.told(what).values())

    def epochs(self) -> bool:
        """Epochs never fall along a log, and a message has one."""
        falls = any(a.epoch > b.epoch for site in self.firsts for a, b in self.before(site))
        return self.one_for_all("epoch") and not falls

    def stamps(self) -> bool:
        """Stamps grow class by class, a message has one, and previous stamps are honest."""
        for site in self.firsts:
            for a, b in self.before(site):
                if a.order_class == b.order_class and a.stamp >= b.stamp:
                    return False
        return self.one_for_all("stamp") and not self.lies()

    def lies(self) -> set[tuple[str, str]]:
        """Return the deliveries whose previous stamp is not the one before in their class, where that is known."""
        found: set[tuple[str, str]] = set()
        if not self.run.has_prev:
            return found
        for site, log in self.logs.items():
            if all(row.prev is None for row in log):  # says nothing of previous stamps
                continue
            positions = [row.position for row in log]
            for index, row in enumerate(log):
                if row.position in positions[:index]:
                    continue
                earlier = [r for r in log[:index] if r.order_class == row.order_class]
                begin = earlier[-1].position if earlier else 0
                if not set(range(begin, row.position)) <= set(positions):
                    continue
                if row.prev != (earlier[-1].stamp if earlier else None):
                    found.add((site, row.msg_id))
        return found

    def class_of(self) -> dict[frozenset[str], set[str]]:
        """Return the classes of each destination."""
        found: dict[frozenset[str], set[str]] = defaultdict(set)
        for row in self.run.deliveries:
            found[row.groups].add(row.order_class)
        return found

    def classes(self) -> bool | None:
        """One class for a destination and a message, and one for all that are tied."""
        if any(len(names) > 1 for names in self.class_of().values()) or not self.one_for_all("order_class"):
            return False
        if self.run.level == "fifo":
            return None
        label = {groups: min(names) for groups, names in self.class_of().items()}
        return all(label[a] == label[b] for a, b in self.tied())

    def tied(self) -> set[tuple[frozenset[str], frozenset[str]]]:
        """Return what must be in one class: for `total` two shared sites tie, else a common cycle of the graph."""
        sites = {groups: self.run.sites_of(groups) for groups in self.class_of()}
        tied = set()
        for a, b in combinations(sites, 2):
            if len(sites[a] & sites[b]) > 1 or (self.run.level != "total" and _on_one_cycle(sites, a, b)):
                tied |= {(a, b), (b, a)}
        while True:
            more = {(a, d) for a, b in tied for c, d in tied if b == c and a != d} - tied
            if not more:
                return tied
            tied |= more

    # Causes.

    def happened_before(self) -> set[tuple[str, str]] | None:
        """All pairs of cause and effect; None when two messages of a source have one number."""
        first = {msg_id: min(every, key=Sent.key) for msg_id, every in self.sent.items() if every}
        if len({(sent.source, sent.number) for sent in first.values()}) < len(first):
            return None
        pairs = set()
        for sent in first.values():
            pairs |= {
                (o.msg_id, sent.msg_id) for o in first.values() if o.source == sent.source and o.number < sent.number
            }
            for row in self.firsts.get(sent.source, ()):
                if row.msg_id in first and row.position < sent.after:
                    pairs.add((row.msg_id, sent.msg_id))
        while True:
            more = {(a, d) for a, b in pairs for c, d in pairs if b == c} - pairs
            if not more:
                return pairs
            pairs |= more

    def causal(self) -> bool | None:
        """Causes come first, wherever both are delivered."""
        causes = self.happened_before()
        if causes is None:
            return None
        circle = any(a == b for a, b in causes)
        return not circle and not any((b, a) in causes for a, b in self.pairs())

    # Examples.

    def is_real(self, name: str, example: dict[str, Any]) -> bool:
        """Whether what an example says of sites and messages is so."""
        kind = example["kind"]
        steps = [(s["site"], s["first"], s["then"]) for s in example.get("steps", ())]
        if not all(self._shown(row) for row in example["deliveries"]):
            return False
        if kind in ("order", "late", "cycle") and not all(self._is_before(*step) for step in steps):
            return False
        if kind == "cycle":
            closed = all(a[2] == b[1] for a, b in zip(steps, [*steps[1:], steps[0]], strict=True))
            told_whole = name != "total" or (len(steps) == 2 and steps[0][0] != steps[1][0])
            return closed and told_whole and len(steps) == self.shortest_cycle()
        if kind == "order":
            ((site, one, other),) = steps
            a, b = self._row(site, one), self._row(site, other)
            return {
                "fifo": self.breaks_fifo(a, b),
                "epochs": a.epoch > b.epoch,
                "stamps": a.order_class == b.order_class and a.stamp >= b.stamp,
            }[name]
        if kind == "late":
            ((_, one, other),) = steps
            return (other, one) in (self.happened_before() or ())
        if kind == "circle":
            return self._is_circle(example["steps"])
        if "groups" in example:
            return self._are_apart(kind, example)
        return self._is_single(kind, name, example["sites"], *example["messages"][-1:])

    def _shown(self, row: dict[str, Any]) -> bool:
        if row["position"] is None:
            return True
        return any(
            (r.position, r.msg_id, "+".join(sorted(r.groups))) == (row["position"], row["msg_id"], row["group"])
            for r in self.logs[row["site"]]
        )

    def _row(self, site: str, msg_id: str) -> Delivered:
        return next(row for row in self.firsts[site] if row.msg_id == msg_id)

    def _is_before(self, site: str, one: str, other: str) -> bool:
        return any((a.msg_id, b.msg_id) == (one, other) for a, b in self.before(site))

    def _is_single(self, kind: str, name: str, sites: list[str], msg_id: str) -> bool:
        match kind:
            case "unsent" | "otherwise" | "stranger":
                return self.wrong(self._row(sites[0], msg_id)) == kind
            case "two sends":
                return len(self.sent[msg_id]) > 1
            case "twice":
                return sum(row.msg_id == msg_id for row in self.logs[sites[0]]) > 1
            case "missing":
                return self.missing(sites[0], msg_id)
            case "previous":
                return (sites[0], msg_id) in self.lies()
            case "other body":
                return (sites[0], msg_id) in self.other_bodies()
            case "two epochs" | "two stamps" | "two classes" | "two bodies":
                what = {"epochs": "epoch", "stamps": "stamp", "classes": "order_class", "body": "body"}[name]
                told = self.told(what)[msg_id]
                return bool(told[sites[0]] != told[sites[1]])
        raise AssertionError(f"{name}: what is {kind!r}?")

    def _are_apart(self, kind: str, example: dict[str, Any]) -> bool:
        groups = [frozenset(name.split("+")) for name in example["groups"]]
        classes = [self.class_of()[one] for one in groups]
        if kind == "two classes of a group":
            return len(classes[0]) > 1 and set(example["classes"]) == classes[0]
        one, other = example["classes"]
        return (groups[0], groups[1]) in self.tied() and one in classes[0] and other in classes[1] and one != other

    def _is_circle(self, steps: list[dict[str, str]]) -> bool:
        for step, later in zip(steps, [*steps[1:], steps[0]], strict=True):
            cause, effect = (min(self.sent[step[name]], key=Sent.key) for name in ("first", "then"))
            if step["how"] == "delivers":
                real = self._row(step["site"], cause.msg_id).position < effect.after
            else:
                real = cause.source == step["site"] and cause.number < effect.number
            if not real or effect.source != step["site"] or later["then"] != step["first"]:
                return False
        return True


def _on_one_cycle(sites: dict[frozenset[str], set[str]], a: frozenset[str], b: frozenset[str]) -> bool:
    """Two groups lie on a common simple cycle when no single other vertex lies on every path between them."""
    vertices = [*(("g", one) for one in sites), *(("s", one) for one in {s for own in sites.values() for s in own})]
    return all(_connected(sites, a, b, without) for without in (None, *vertices) if without not in (("g", a), ("g", b)))


def _connected(sites: dict[frozenset[str], set[str]], a: frozenset[str], b: frozenset[str], without: Any) -> bool:
    reached, more = {a}, [a]
    while more:
        here = {site for site in sites[more.pop()] if ("s", site) != without}
        for group, own in sites.items():
            if group not in reached and own & here and ("g", group) != without:
                reached.add(group)
                more.append(group)
    return b in reached
