"""The verdict on a run: every property, how often it is violated, and an example that anyone can check.

First the fold: what agrees with what was sent, and increases where it must, is done. Only other sites are looked at row
by row. Order comes from the stamps when they hold and the classes suit the level; otherwise from all edges.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from ordercast.audit.merge import Merged, Sums, merge, merge_sends
from ordercast.audit.order import Knots
from ordercast.audit.tables import among, listed, numbered_logs
from ordercast.errors import InputError
from ordercast.membership import Membership
from ordercast.types import ClassRule, GroupId, Level, SiteId

PROPERTIES = (
    "creation", "duplicate", "completeness", "fifo", "total", "acyclic", "epochs", "classes", "stamps", "causal"
)  # fmt: skip
BASIC = ("creation", "duplicate", "completeness", "fifo", "epochs")
NEEDED = {
    "fifo": BASIC,
    "total": (*BASIC, "total", "classes", "stamps"),
    "acyclic": (*BASIC, "total", "acyclic", "classes", "stamps"),
    "causal": (*BASIC, "total", "acyclic", "classes", "stamps", "causal"),
}
LOOK_AT_MOST = 5_000_000  # rows that are looked at one by one
EXAMPLE_AT_MOST = 10
CAUSAL_AT_MOST = 2_000_000


class Source(Protocol):
    """Where rows come from: in process, or Spark."""

    stamped: bool
    context: bool
    """Whether sends say how many deliveries came before them."""
    members: dict[GroupId, list[SiteId]]

    def fold(self) -> tuple[Any, Any]:
        """Return the folds of deliveries and of sends."""
        ...

    def logs(self, sites: Iterable[SiteId]) -> Any:
        """Return all rows of these sites."""
        ...

    def sends(self, groups: Iterable[GroupId] | None) -> Any:
        """Return what was sent to these groups, or all."""
        ...

    def sequences(self, sites: Iterable[SiteId]) -> Any:
        """Return site, position and message of every delivery."""
        ...


@dataclass
class Finding:
    """What is to be said of one property; `ok` is None when it was not judged."""

    ok: bool | None = True
    violations: int = 0
    example: dict[str, Any] | None = None

    def add(self, says: str, deliveries: Sequence[dict[str, Any]] = (), many: int = 1) -> None:
        """Count a violation; the first is the example."""
        self.ok = False
        self.violations += many
        if self.example is None:
            self.example = {"says": says, "deliveries": list(deliveries)[:EXAMPLE_AT_MOST]}


@dataclass
class Verdict:
    """Everything `ordercast audit` has to say."""

    level: str
    deliveries: int
    properties: dict[str, Finding] = field(default_factory=lambda: {name: Finding() for name in PROPERTIES})
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the level holds."""
        return all(self.properties[name].ok is not False for name in NEEDED[self.level])

    def broken(self) -> dict[str, Finding]:
        """Return what the level promises and the log breaks."""
        return {name: self.properties[name] for name in NEEDED[self.level] if self.properties[name].ok is False}

    def word(self, name: str) -> tuple[str, str]:
        """Say how a property stands, and how that is to look."""
        if self.properties[name].ok is False and name not in NEEDED[self.level]:
            return "not promised, not kept", "dim"
        return {True: ("holds", "good"), False: ("broken", "bad"), None: ("not judged", "dim")}[
            self.properties[name].ok
        ]

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        found = {
            name: {"ok": f.ok, "violations": f.violations, "example": f.example} for name, f in self.properties.items()
        }
        return {
            "ok": self.ok,
            "level": self.level,
            "deliveries": self.deliveries,
            "properties": found,
            "notes": self.notes,
        }


def audit(source: Source, level: str, *, running: bool = False) -> Verdict:
    """Judge a run; with `running`, what a site has not come to yet is not missing."""
    folded, folded_sends = source.fold()
    merged, sent = merge(folded), merge_sends(folded_sends)
    if not merged.rows:
        raise InputError("deliveries/: no rows")
    verdict = Verdict(level, merged.rows)
    odd = _odd_sites(merged, sent, source.members)
    look = odd | merged.fifo | merged.epochs | merged.stamps | merged.repeated.keys()
    stamps_differ = _stamps_differ(merged) if source.stamped else set()
    look |= stamps_differ
    if look:
        _look_at(source, merged, sent, look, verdict, running)
    _judge_classes(source, merged, verdict)
    _judge_order(source, merged, verdict)
    _judge_causal(source, merged, verdict)
    return verdict


def destinations(group: GroupId, members: dict[GroupId, list[SiteId]]) -> set[SiteId]:
    """Return who gets a message to a group, or to several: "a+b"."""
    if group in members:
        return set(members[group])
    return {site for name in group.split("+") for site in members.get(name, ())}


def _odd_sites(merged: Merged, sent: dict[GroupId, Sums], members: dict[GroupId, list[SiteId]]) -> set[SiteId]:
    """Return the sites whose messages of some group are not exactly those that were sent to it."""
    odd = set()
    expected = set()
    for group, sums in sent.items():
        for site in destinations(group, members):
            expected.add((site, group))
            if merged.sets.get((site, group)) != sums:
                odd.add(site)
    return odd | {site for site, group in merged.sets.keys() - expected}


def _stamps_differ(merged: Merged) -> set[SiteId]:
    """Return the sites that gave the same messages of a group other stamps than another member did."""
    first: dict[tuple[GroupId, Sums], tuple[SiteId, int]] = {}
    differ = set()
    for (site, group), stamped in sorted(merged.stamped.items()):
        other, theirs = first.setdefault((group, merged.sets[site, group]), (site, stamped))
        if theirs != stamped:
            differ |= {site, other}
    return differ


# Row by row.


class Row(NamedTuple):
    """One delivery."""

    site: SiteId
    position: int
    msg_id: str
    group: GroupId
    source: SiteId
    source_seq: int
    epoch: int
    order_class: str | None
    stamp: bytes | None
    prev_stamp: bytes | None

    def shown(self) -> dict[str, Any]:
        """Return what an example shows."""
        return {"site": self.site, "position": self.position, "msg_id": self.msg_id, "group": self.group}


class Send(NamedTuple):
    """One message as it was sent."""

    msg_id: str
    group: GroupId
    source: SiteId
    source_seq: int
    after: int


def _tuples(kind: Any, table: Any, defaults: dict[str, Any]) -> list[Any]:
    """Turn a table into rows, column by column: many times faster than row by row."""
    names = table.column_names
    columns = [listed(table.column(n)) if n in names else [defaults.get(n)] * len(table) for n in kind._fields]
    return list(map(kind._make, zip(*columns, strict=True)))


def _rows(table: Any) -> dict[SiteId, list[Row]]:
    found: dict[SiteId, list[Row]] = {}
    for row in _tuples(Row, table, {"epoch": 0}):
        found.setdefault(row.site, []).append(row)
    for own in found.values():
        own.sort(key=lambda row: row.position)
    return found


def _sends(table: Any) -> dict[str, Send]:
    return {sent.msg_id: sent for sent in _tuples(Send, table, {"after": 0})}


def _look_at(
    source: Source, merged: Merged, sent: dict[GroupId, Sums], look: set[SiteId], verdict: Verdict, running: bool
) -> None:
    """Judge the sites that the fold did not clear, and one cleared member of each of their groups beside them."""
    chosen: list[SiteId] = []
    rows = 0
    for site in sorted(look):
        rows += merged.sites.get(site, (0,))[0]
        if chosen and rows > LOOK_AT_MOST:
            break
        chosen.append(site)
    if len(chosen) < len(look):
        verdict.notes.append(f"looked at {len(chosen)} of {len(look)} suspicious sites: there may be more violations")
    groups = {group for site, group in merged.sets if site in set(chosen)}
    groups |= {group for group in sent if destinations(group, source.members) & set(chosen)}
    beside: set[SiteId] = set()
    for group in sorted(groups):
        clean = destinations(group, source.members) - look
        if clean and not clean & beside and source.stamped:
            beside.add(min(clean))
    logs = _rows(source.logs({*chosen, *beside}))
    sends = _sends(source.sends(groups))
    for site in chosen:
        _judge_site(site, logs.get(site, []), sends, source.members, verdict, running)
    if source.stamped:
        _judge_stamps({site: logs.get(site, []) for site in (*sorted(beside), *chosen)}, set(chosen), verdict)


def _judge_site(
    site: SiteId,
    log: list[Row],
    sends: dict[str, Send],
    members: dict[GroupId, list[SiteId]],
    verdict: Verdict,
    running: bool,
) -> None:
    """Creation, duplicate, completeness, fifo and epochs at one site."""
    found = verdict.properties
    first: dict[str, Row] = {}
    latest: dict[tuple[SiteId, GroupId], Row] = {}
    before: Row | None = None
    epoch: Row | None = None
    is_for = {group: site in destinations(group, members) for group in {sent.group for sent in sends.values()}}
    for row in log:
        if before is not None and before.position == row.position and before.msg_id != row.msg_id:
            raise InputError(f"deliveries/: site {site!r}: two messages have position {row.position}")
        before = row
        if row.msg_id in first:
            says = f"{site} delivers {row.msg_id} twice"
            found["duplicate"].add(says, [first[row.msg_id].shown(), row.shown()])
            continue
        first[row.msg_id] = row
        if epoch is not None and row.epoch < epoch.epoch:
            says = f"{site} delivers {row.msg_id} of epoch {row.epoch} after {epoch.msg_id} of epoch {epoch.epoch}"
            found["epochs"].add(says, [epoch.shown(), row.shown()])
        epoch = row
        sent = sends.get(row.msg_id)
        _judge_creation(row, sent, is_for, found["creation"])
        for group in row.group.split("+"):
            last = latest.get((row.source, group))
            if last is not None and last.source_seq > row.source_seq:
                says = f"{site} delivers {last.msg_id} before {row.msg_id}, sent earlier by {row.source} to {group}"
                found["fifo"].add(says, [last.shown(), row.shown()])
            latest[row.source, group] = row
    newest: dict[tuple[SiteId, GroupId], int] = {}
    for row in log:
        key = (row.source, row.group)
        newest[key] = max(newest.get(key, row.source_seq), row.source_seq)
    for msg_id, sent in sends.items():
        if is_for[sent.group] and msg_id not in first:
            under_way = sent.source_seq > newest.get((sent.source, sent.group), -(2**63))
            if running and under_way:
                continue
            missing = {"site": site, "position": None, "msg_id": msg_id, "group": sent.group}
            found["completeness"].add(f"{site} does not deliver {msg_id} to {sent.group}", [missing])


def _judge_creation(row: Row, sent: Send | None, is_for: dict[GroupId, bool], found: Finding) -> None:
    if sent is None:
        found.add(f"{row.site} delivers {row.msg_id}, which nobody sent", [row.shown()])
    elif (sent.group, sent.source, sent.source_seq) != (row.group, row.source, row.source_seq):
        says = f"{row.site} delivers {row.msg_id} to {row.group} as number {row.source_seq} of {row.source}, but it was"
        says += f" sent to {sent.group} as number {sent.source_seq} of {sent.source}"
        found.add(says, [row.shown()])
    elif not is_for[sent.group]:
        found.add(f"{row.site} delivers {row.msg_id} to {row.group}, but is not a member", [row.shown()])


def _judge_stamps(logs: dict[SiteId, list[Row]], suspects: set[SiteId], verdict: Verdict) -> None:
    """A message has one stamp; stamps grow along a log, class by class; the previous stamp is the previous one's."""
    found = verdict.properties["stamps"]
    given: dict[str, Row] = {}
    for site, log in logs.items():
        last: dict[str | None, Row] = {}
        for row in {row.msg_id: row for row in reversed(log)}.values() if site in suspects else log:
            other = given.setdefault(row.msg_id, row)
            if other.stamp != row.stamp:
                says = f"{site} delivers {row.msg_id} with another stamp than {other.site}"
                found.add(says, [other.shown(), row.shown()])
        if site not in suspects:
            continue
        seen: set[str] = set()
        for row in log:
            if row.msg_id in seen:  # a repeat is a duplicate; it says nothing of the order
                continue
            seen.add(row.msg_id)
            before = last.get(row.order_class)
            last[row.order_class] = row
            if before is not None and before.stamp is not None and row.stamp is not None and before.stamp >= row.stamp:
                says = f"{site} delivers {before.msg_id} before {row.msg_id}, whose stamp is not larger"
                found.add(says, [before.shown(), row.shown()])
        if any(row.prev_stamp is not None for row in log):
            _judge_previous(site, log, found)


def _judge_previous(site: SiteId, log: list[Row], found: Finding) -> None:
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
            found.add(says, [r.shown() for r in (before, row) if r is not None])


# Order.


def _judge_classes(source: Source, merged: Merged, verdict: Verdict) -> None:
    """Groups that the level wants ordered together are in one class."""
    found = verdict.properties["classes"]
    if not source.stamped:
        found.ok = None
        return
    classes: dict[GroupId, str] = {}
    for group, names in sorted(merged.classes.items()):
        if len(names) > 1:
            found.add(f"messages of group {group} are in classes {' and '.join(sorted(names))}")
        for name in group.split("+"):
            classes.setdefault(name, min(names))
    level = Level.TOTAL if verdict.level == "total" else Level.ACYCLIC
    if verdict.level == "fifo":
        return
    _judge_split(source, classes, ClassRule.for_level(level), level, found)


def _judge_split(source: Source, classes: dict[GroupId, str], rule: ClassRule, level: Level, found: Finding) -> None:
    from ordercast.planning.classes import classes as required

    used = {group: source.members[group] for group in classes if source.members.get(group)}
    if not used:
        return
    for together in required(Membership.of(used), rule):
        names = sorted({classes[group] for group in together})
        if len(names) > 1:
            one = min(group for group in together if classes[group] == names[0])
            other = min(group for group in together if classes[group] == names[1])
            says = f"groups {one} and {other} must be ordered together for level {level}, but are in classes"
            found.add(f"{says} {names[0]} and {names[1]}")


def _suits(source: Source, merged: Merged, rule: ClassRule) -> bool:
    classes = {name: min(names) for group, names in merged.classes.items() for name in group.split("+")}
    found = Finding()
    _judge_split(source, classes, rule, Level.ACYCLIC, found)
    return bool(found.ok) and all(len(names) == 1 for names in merged.classes.values())


def _judge_order(source: Source, merged: Merged, verdict: Verdict) -> None:
    """With stamps that hold and classes that suit there is nothing to search; otherwise all edges are looked at."""
    found = verdict.properties
    if not source.stamped:
        found["stamps"].ok = None
    certified = source.stamped and bool(found["stamps"].ok) and not merged.stamps and not verdict.notes
    if certified and _suits(source, merged, ClassRule.BLOCKS):
        return
    if verdict.level == "fifo":
        found["total"].ok = found["acyclic"].ok = None
        return
    if certified and verdict.level == "total" and _suits(source, merged, ClassRule.S2):
        found["acyclic"].ok = None
        return
    knots, names = _knots(source, merged)
    if not knots.count:
        return
    cycle = [(names[a], site, names[b]) for a, site, b in knots.shortest_cycle()]
    pairs, found_pair = knots.disagreements()
    pair = None if found_pair is None else (*found_pair[:2], names[found_pair[2]], names[found_pair[3]])
    sites = {site for _, site, _ in cycle} | (set(pair[:2]) if pair is not None else set())
    named = {message for a, _, b in cycle for message in (a, b)} | (set(pair[2:]) if pair is not None else set())
    rows = _by_name(source, sites, named)
    steps = [(rows[site, a], rows[site, b]) for a, site, b in cycle]
    says = "; ".join(f"{a.site} delivers {a.msg_id} before {b.msg_id}" for a, b in steps[:EXAMPLE_AT_MOST])
    shown = [row.shown() for step in steps for row in step]
    found["acyclic"].add(says, [], many=knots.count)
    assert found["acyclic"].example is not None
    found["acyclic"].example["deliveries"] = shown[: 2 * EXAMPLE_AT_MOST]
    if pair is not None:
        one, other, first, then = pair
        a, b = rows[one, first], rows[one, then]
        says = f"{one} delivers {a.msg_id} before {b.msg_id}, {other} the other way round"
        found["total"].add(says, [r.shown() for r in (a, b, rows[other, then], rows[other, first])], many=pairs)


def _knots(source: Source, merged: Merged) -> tuple[Knots, list[str]]:
    """Search among one site of each kind: same groups, same sequence; messages are numbered by their names."""
    groups_of: dict[SiteId, set[GroupId]] = {}
    for site, group in merged.sets:
        groups_of.setdefault(site, set()).add(group)
    kinds: dict[Any, SiteId] = {}
    for site in sorted(merged.sites):
        kinds.setdefault((frozenset(groups_of[site]), merged.sites[site]), site)
    logs, names = numbered_logs(source.sequences(kinds.values()))
    return Knots(logs), names


def _by_name(source: Source, sites: set[SiteId], named: set[str]) -> dict[tuple[SiteId, str], Row]:
    """Return the first delivery of each of these messages at each of these sites."""
    found: dict[tuple[SiteId, str], Row] = {}
    for made in _tuples(Row, among(source.logs(sites), "msg_id", named), {"epoch": 0}):
        kept = found.setdefault((made.site, made.msg_id), made)
        if made.position < kept.position:
            found[made.site, made.msg_id] = made
    return found


def _judge_causal(source: Source, merged: Merged, verdict: Verdict) -> None:
    """What happened before a message was sent is delivered before it; needs `after` in sends."""
    found = verdict.properties["causal"]
    if not source.context:
        found.ok = None
        if verdict.level == "causal":
            raise InputError("sends/: column 'after' is missing: causal order needs what a source had delivered before")
        return
    if merged.rows > CAUSAL_AT_MOST:
        found.ok = None
        verdict.notes.append(f"causal order is judged up to {CAUSAL_AT_MOST:,} deliveries")
        return
    from ordercast.verify.deliveries import Record, Sent, causal

    logs = _rows(source.logs(merged.sites))
    sends = {
        sent.msg_id: Sent(tuple(sent.group.split("+")), sent.source, sent.source_seq, sent.after)
        for sent in _sends(source.sends(None)).values()
    }
    members = {group: source.members.get(group, []) for sent in sends.values() for group in sent.groups}
    plain = {site: list(dict.fromkeys(row.msg_id for row in log)) for site, log in logs.items()}
    said = causal(Record(members, sends, plain))
    if said is not None:
        words = said.replace(",", " ").split(" ")
        found.add(said, [row.shown() for row in logs.get(words[0], []) if row.msg_id in words])
