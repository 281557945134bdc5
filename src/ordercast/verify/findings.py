"""What judges say: one kind of finding for plans, for runs that go on, for records and for logs in files.

A finding names the property that is broken, says how in one sentence, and carries the deliveries that show it. The
sentences stand here, once; who finds a violation, and how fast, is the judges' business.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from ordercast.names import GroupId, SiteId

MsgId = str
NOWHERE = -1
TOLD_WHOLE, TOLD_ENDS = 10, 4  # steps of a cycle in words


class Sent(NamedTuple):
    """A message as it was sent."""

    groups: tuple[GroupId, ...]
    source: SiteId
    number: int
    after: int = 0
    """How many messages its source had delivered by then."""
    body: Hashable = None
    """The body, or a hash of it; None when nothing is known of it."""

    def told(self) -> str:
        """Say how it was sent."""
        return f"to {'+'.join(self.groups)} as number {self.number} of {self.source}"


class Delivery(NamedTuple):
    """A message in a site's log, with what the log tells of it."""

    site: SiteId
    position: int
    """Counts a site's deliveries from 0; NOWHERE when it is not known, or the message was not delivered."""
    msg_id: MsgId
    groups: tuple[GroupId, ...]
    source: SiteId = ""
    number: int = 0
    epoch: int = 0
    order_class: Hashable = None
    stamp: bytes | None = None
    prev_stamp: bytes | None = None
    """The stamp of the previous delivery of its class at its site."""
    body: Hashable = None
    """The body, or a hash of it; None when the log does not tell."""

    def shown(self) -> dict[str, Any]:
        """Return what an example shows."""
        position = None if self.position == NOWHERE else self.position
        return {"site": self.site, "position": position, "msg_id": self.msg_id, "group": "+".join(self.groups)}


class Step(NamedTuple):
    """At a site this message came before that one."""

    site: SiteId
    first: MsgId
    then: MsgId
    how: str = ""
    """In a circle of causes: whether the site delivered or sent the first."""

    def as_json(self) -> dict[str, str]:
        """Return plain values."""
        how = {"how": self.how} if self.how else {}
        return {"site": self.site, **how, "first": self.first, "then": self.then}


class Finding(msgspec.Struct, frozen=True):
    """A violation of a property, in words and as evidence that anyone can check."""

    property: str
    says: str
    kind: str = ""
    """Which way of breaking the property it is, for programs."""
    deliveries: tuple[Delivery, ...] = ()
    facts: Mapping[str, Any] = {}
    """What it is about, for programs: sites and messages, or steps, or groups and classes."""
    count: int = 1
    """How many violations it stands for."""

    def __str__(self) -> str:
        return self.says

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        shown = [delivery.shown() for delivery in self.deliveries]
        return {"says": self.says, "kind": self.kind, **self.facts, "deliveries": shown}


class Answer(msgspec.Struct):
    """How one property stands; `ok` is None when nobody could judge it."""

    ok: bool | None = True
    violations: int = 0
    example: Finding | None = None
    """The first violation that was found."""

    def add(self, finding: Finding) -> None:
        """Count a violation."""
        self.ok = False
        self.violations += finding.count
        self.example = self.example or finding

    @property
    def says(self) -> str:
        """The example in words; empty without one."""
        return "" if self.example is None else self.example.says


def _about(rows: Sequence[Delivery], messages: Sequence[MsgId]) -> dict[str, Any]:
    return {"sites": [row.site for row in rows], "messages": list(messages)}


def _pair(name: str, says: str, kind: str, one: Delivery, other: Delivery) -> Finding:
    """Say that two sites tell something different of one message."""
    return Finding(name, says, kind, (one, other), _about((one, other), [other.msg_id]))


def _order(name: str, says: str, before: Delivery, row: Delivery) -> Finding:
    """Say that a site delivers two messages in a wrong order."""
    steps = [Step(row.site, before.msg_id, row.msg_id).as_json()]
    return Finding(name, says, "order", (before, row), {"steps": steps})


# Creation, duplicate, completeness, body.


def twice(first: Delivery, again: Delivery) -> Finding:
    """A site delivers a message again."""
    says = f"{again.site} delivers {again.msg_id} twice"
    return Finding("duplicate", says, "twice", (first, again), _about([again], [again.msg_id]))


def unsent(row: Delivery) -> Finding:
    """A site delivers what nobody sent."""
    says = f"{row.site} delivers {row.msg_id}, which nobody sent"
    return Finding("creation", says, "unsent", (row,), _about([row], [row.msg_id]))


def otherwise(row: Delivery, sent: Sent) -> Finding:
    """A log tells another destination, source or number of a message than it was sent with."""
    told = Sent(row.groups, row.source, row.number).told()
    says = f"{row.site} delivers {row.msg_id} {told}, but it was sent {sent.told()}"
    return Finding("creation", says, "otherwise", (row,), _about([row], [row.msg_id]))


def stranger(row: Delivery) -> Finding:
    """A site delivers a message of groups that it is not in."""
    says = f"{row.site} delivers {row.msg_id} to {'+'.join(row.groups)}, but is not a member"
    return Finding("creation", says, "stranger", (row,), _about([row], [row.msg_id]))


def two_sends(msg_id: MsgId, every: Sequence[Sent]) -> Finding:
    """One id names two messages."""
    one, other = every[0], every[1]
    says = f"{msg_id} is the id of two messages: sent {one.told()}, and {other.told()}"
    shown = tuple(Delivery(sent.source, NOWHERE, msg_id, sent.groups) for sent in (one, other))
    return Finding("creation", says, "two sends", shown, {"sites": [], "messages": [msg_id]}, len(every) - 1)


def missing(site: SiteId, msg_id: MsgId, sent: Sent) -> Finding:
    """A site does not deliver what is for it."""
    row = Delivery(site, NOWHERE, msg_id, sent.groups)
    return Finding("completeness", f"{site} does not deliver {msg_id}", "missing", (row,), _about([row], [msg_id]))


def nowhere(msg_id: MsgId, sent: Sent, group: GroupId) -> Finding:
    """A message comes to no member of a group that it was sent to."""
    row = Delivery(sent.source, NOWHERE, msg_id, sent.groups)
    says = f"no member of {group} delivers {msg_id}"
    return Finding("completeness", says, "nowhere", (row,), {"sites": [], "messages": [msg_id], "groups": [group]})


def hole(log: str, position: int) -> Finding:
    """A log has nothing at a position, and something later."""
    says = f"the log of {log} has nothing at position {position}"
    return Finding("completeness", says, "hole", (), {"sites": [log], "messages": []})


def no_log(site: SiteId, group: GroupId) -> Finding:
    """A site is in a group at the end, and no log of it says anything of that group."""
    says = f"{site} is in {group}, and has no log of it"
    return Finding("completeness", says, "no log", (), {"sites": [site], "messages": [], "groups": [group]})


def posted_twice(first: Delivery, again: Delivery) -> Finding:
    """A client posted a message again, and a site delivers both."""
    says = f"{again.site} delivers {first.msg_id} and {again.msg_id}, which are one post of a client"
    return Finding("duplicate", says, "posted twice", (first, again), _about([again], [first.msg_id, again.msg_id]))


def other_body(row: Delivery) -> Finding:
    """A body is not the one that was sent."""
    says = f"{row.site} delivers {row.msg_id} with another body than was sent"
    return Finding("body", says, "other body", (row,), _about([row], [row.msg_id]))


def two_bodies(one: Delivery, other: Delivery) -> Finding:
    """Two sites deliver different bodies under one id; nobody knows what was sent."""
    says = f"{other.site} delivers {other.msg_id} with another body than {one.site}"
    return _pair("body", says, "two bodies", one, other)


# What is told of a message, and the order of a log.


def two_epochs(one: Delivery, other: Delivery) -> Finding:
    """Two sites put a message into different epochs."""
    says = f"{other.msg_id} is of epoch {one.epoch} at {one.site} and of epoch {other.epoch} at {other.site}"
    return _pair("epochs", says, "two epochs", one, other)


def two_stamps(one: Delivery, other: Delivery) -> Finding:
    """Two sites give a message different stamps."""
    says = f"{other.site} delivers {other.msg_id} with another stamp than {one.site}"
    return _pair("stamps", says, "two stamps", one, other)


def two_classes(one: Delivery, other: Delivery) -> Finding:
    """Two sites put a message into different classes."""
    says = f"{other.msg_id} is in class {one.order_class} at {one.site}, in {other.order_class} at {other.site}"
    return _pair("classes", says, "two classes", one, other)


def not_as_sent(before: Delivery, row: Delivery, source: SiteId, group: GroupId) -> Finding:
    """A site delivers two messages of one source to one group in another order than they were sent."""
    says = f"{row.site} delivers {before.msg_id} before {row.msg_id}, sent earlier by {source} to {group}"
    return _order("fifo", says, before, row)


def epoch_fell(before: Delivery, row: Delivery) -> Finding:
    """A message of an earlier epoch comes after one of a later."""
    after = f"{before.msg_id} of epoch {before.epoch}"
    return _order("epochs", f"{row.site} delivers {row.msg_id} of epoch {row.epoch} after {after}", before, row)


def not_larger(before: Delivery, row: Delivery) -> Finding:
    """A stamp does not grow along a log."""
    says = f"{row.site} delivers {before.msg_id} before {row.msg_id}, whose stamp is not larger"
    return _order("stamps", says, before, row)


def one_stamp(one: Delivery, other: Delivery) -> Finding:
    """Two messages of one group have the same stamp."""
    says = f"{one.site} delivers {one.msg_id} with the stamp that {other.msg_id} has at {other.site}"
    return Finding("stamps", says, "one stamp", (one, other), _about((one, other), [one.msg_id, other.msg_id]))


def too_early(row: Delivery, epoch: int) -> Finding:
    """A site delivers a message that is in the state that it was given, or is older than its stay in the group."""
    says = f"{row.site} delivers {row.msg_id} of epoch {row.epoch}, but came into its group with epoch {epoch}"
    return Finding("epochs", says, "too early", (row,), _about([row], [row.msg_id]))


def two_views(
    group: GroupId, one: tuple[str, int, Sequence[SiteId]], other: tuple[str, int, Sequence[SiteId]]
) -> Finding:
    """Two logs tell different members of a group."""
    told = [f"{', '.join(members) or 'nobody'} in {epoch} by {log}" for log, epoch, members in (one, other)]
    says = f"the members of {group} are {told[0]}, and {told[1]}"
    return Finding("epochs", says, "two views", (), {"sites": [one[0], other[0]], "messages": [], "groups": [group]})


def beside_view(row: Delivery, epoch: int, *, after: bool) -> Finding:
    """A site delivers a message on the wrong side of a view of its group."""
    side = "after" if after else "before"
    says = f"{row.site} delivers {row.msg_id} of epoch {row.epoch} {side} the view of epoch {epoch}"
    return Finding("epochs", says, "beside a view", (row,), _about([row], [row.msg_id]))


def not_a_prefix(site: str, message: str, lacks: str) -> Finding:
    """A site has delivered a message and lacks an earlier one of the same order that another has delivered."""
    says = f"{site} has delivered {message} and lacks {lacks}, which comes before it and was delivered elsewhere"
    return Finding("prefix", says)


def not_previous(before: Delivery | None, row: Delivery) -> Finding:
    """A previous stamp is not that of the previous delivery of its class."""
    told = f"that of {before.msg_id}" if before is not None else "none, it is the first of its class"
    says = f"{row.site} delivers {row.msg_id} with a previous stamp that is not {told}"
    rows = (row,) if before is None else (before, row)
    facts = {"sites": [row.site], "messages": [one.msg_id for one in rows]}
    return Finding("stamps", says, "previous", rows, facts)


# Order between sites.


def ring(steps: Sequence[tuple[Delivery, Delivery]], count: int = 1) -> Finding:
    """The orders of several sites form a cycle; a long one is told by its beginning and its end."""
    words = [f"{a.site} delivers {a.msg_id} before {b.msg_id}" for a, b in steps]
    says = "; ".join(words)
    if len(words) > TOLD_WHOLE:
        left_out = f"and so on through {len(words) - 2 * TOLD_ENDS:,} more"
        begins = f"a ring of {len(words):,} messages, each before the next and the last before the first"
        says = f"{begins}: {'; '.join([*words[:TOLD_ENDS], left_out, *words[-TOLD_ENDS:]])}"
    return Finding("acyclic", says, "cycle", *_steps(steps), count)


def disagreement(steps: Sequence[tuple[Delivery, Delivery]], count: int = 1) -> Finding:
    """Two sites deliver two messages in opposite orders."""
    (a, b), (c, _) = steps
    says = f"{a.site} delivers {a.msg_id} before {b.msg_id}, {c.site} the other way round"
    return Finding("total", says, "cycle", *_steps(steps), count)


def _steps(steps: Sequence[tuple[Delivery, Delivery]]) -> tuple[tuple[Delivery, ...], dict[str, Any]]:
    shown = tuple(row for step in steps for row in step)
    return shown, {"steps": [Step(a.site, a.msg_id, b.msg_id).as_json() for a, b in steps]}


def late(step: Step, shown: Sequence[Delivery] = (), count: int = 1) -> Finding:
    """A site delivers a message before one that happened before it was sent."""
    says = f"{step.site} delivers {step.first} before {step.then}, which happened before it was sent"
    return Finding("causal", says, "late", tuple(shown), {"steps": [step.as_json()]}, count)


def circle(steps: Sequence[Step], shown: Sequence[Delivery] = ()) -> Finding:
    """Messages are causes of each other, which no clock allows: the log is wrong."""
    told = "; ".join(f"{s.site} {s.how} {s.first} before it sends {s.then}" for s in steps)
    says = f"messages cause each other in a circle: {told}"
    return Finding("causal", says, "circle", tuple(shown), {"steps": [step.as_json() for step in steps]})


# Classes.


def several_classes(group: str, names: Sequence[str]) -> Finding:
    """One destination is in several classes."""
    says = f"messages of group {group} are in classes {' and '.join(names)}"
    return Finding("classes", says, "two classes of a group", (), {"groups": [group], "classes": list(names)})


def apart(groups: tuple[str, str], classes: tuple[str, str], level: str) -> Finding:
    """Two destinations that the level wants ordered together are in two classes."""
    says = f"groups {groups[0]} and {groups[1]} must be ordered together for level {level}, but are in classes"
    facts = {"groups": list(groups), "classes": list(classes)}
    return Finding("classes", f"{says} {classes[0]} and {classes[1]}", "apart", (), facts)
