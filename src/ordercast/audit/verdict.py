"""The verdict on a run: every property, how often it is violated, and an example that anyone can check.

The fold clears every site whose sums agree with what was sent and whose numbers, epochs and stamps grow. The other
sites are judged row by row. Order is proved by stamps where these hold and the classes suit the level; otherwise the
cycles of all logs are searched.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ordercast.audit.causal import judge_causal
from ordercast.audit.classes import judge_classes, stamps_prove
from ordercast.audit.facts import SAYS, Facts, Suspects
from ordercast.audit.look import Looked, look_at
from ordercast.audit.order import judge_order
from ordercast.audit.rows import Sends, Source
from ordercast.errors import InputError
from ordercast.names import ClassRule
from ordercast.runs.destinations import Destination, destination
from ordercast.verify import findings
from ordercast.verify.findings import Answer

PROPERTIES = (
    "creation", "duplicate", "completeness", "body", "fifo", "total", "acyclic", "epochs", "classes", "stamps", "causal"
)  # fmt: skip
BASIC = ("creation", "duplicate", "completeness", "body", "fifo", "epochs")
NEEDED = {
    "fifo": BASIC,
    "total": (*BASIC, "total", "classes", "stamps"),
    "acyclic": (*BASIC, "total", "acyclic", "classes", "stamps"),
    "causal": (*BASIC, "total", "acyclic", "classes", "stamps", "causal"),
}
FROM_SENDS = ("creation", "completeness")
DERIVED_SENDS = (
    "sends/ was made of what sites delivered: whether that was sent at all, and what was sent and delivered by nobody, "
    "is not known"
)
IF_TOLD = ("classes", "stamps", "body", "epochs")
"""Judged where a log tells of them. Without stamps the order is judged by all edges."""


@dataclass
class Verdict:
    """Everything `ordercast audit` has to say."""

    level: str
    deliveries: int
    properties: dict[str, Answer] = field(default_factory=lambda: {name: Answer() for name in PROPERTIES})
    notes: list[str] = field(default_factory=list)
    unsure: set[str] = field(default_factory=set)
    """What was judged in part only."""

    @property
    def ok(self) -> bool:
        """Whether the level holds: everything it needs was judged, and holds."""
        return not self.broken() and not self.open()

    def broken(self) -> dict[str, Answer]:
        """Return what the level promises and the log breaks."""
        return {name: self.properties[name] for name in NEEDED[self.level] if self.properties[name].ok is False}

    def open(self) -> list[str]:
        """Return what the level promises and nobody could judge; what a log need not tell is not asked for."""
        needed = [name for name in NEEDED[self.level] if self.properties[name].ok is None]
        return [name for name in needed if name not in IF_TOLD or name in self.unsure]

    @property
    def outcome(self) -> str:
        """Say in words how the level stands."""
        if self.broken():
            return "does not hold"
        return "was not judged completely" if self.open() else "holds"

    def word(self, name: str) -> tuple[str, str]:
        """Say how a property stands, and how that is to look."""
        if self.properties[name].ok is False and name not in NEEDED[self.level]:
            return "not promised, not kept", "dim"
        return {True: ("holds", "good"), False: ("broken", "bad"), None: ("not judged", "dim")}[
            self.properties[name].ok
        ]

    def leave_open(self, names: Iterable[str]) -> None:
        """Say of properties that were looked at in part that they are not judged, unless they are broken already."""
        for name in names:
            self.unsure.add(name)
            if self.properties[name].ok:
                self.properties[name].ok = None

    def as_json(self) -> dict[str, Any]:
        """Return plain values."""
        found = {
            name: {"ok": f.ok, "violations": f.violations, "example": f.example and f.example.as_json()}
            for name, f in self.properties.items()
        }
        return {
            "ok": self.ok,
            "level": self.level,
            "deliveries": self.deliveries,
            "properties": found,
            "notes": self.notes,
        }


def audit(source: Source, level: str, *, running: bool = False) -> Verdict:
    """Judge a run; with `running`, what a site has not come to yet is not missing, nor what is not yet written."""
    facts = source.facts()
    try:
        return _judged(source, facts, level, running=running)
    finally:
        facts.close()


def _judged(source: Source, facts: Facts, level: str, *, running: bool) -> Verdict:
    if not facts.rows:
        raise InputError("deliveries/: no rows")
    verdict = Verdict(level, facts.rows)
    verdict.notes += judge_bodies(source, verdict.properties["body"])
    if not source.run.epochs:
        verdict.properties["epochs"].ok = None
    ids, collide = _judge_ids(source, verdict)
    suspects = facts.suspects(ids, everyone=collide)  # where hashes collide, equal sums say nothing
    looked = Looked()
    if suspects.rows:
        looked = look_at(source, facts, suspects, verdict.properties, running=running)
    if looked.left or suspects.more:
        _tell_what_is_left(looked, suspects, verdict)
    if not judge_classes(source, facts, level, verdict.properties["classes"]):
        verdict.notes.append("classes: there are too many sites and groups to judge whether they suit the level")
        verdict.leave_open(["classes"])
    _judge_order(source, facts, verdict, looked, collide=collide)
    verdict.notes += judge_causal(source, facts, level, verdict.properties["causal"])
    if source.run.sends.derived:
        verdict.leave_open(FROM_SENDS)
        verdict.notes.append(DERIVED_SENDS)
    return verdict


def judge_bodies(source: Source, found: Answer) -> list[str]:
    """Leave bodies open where the log tells nothing of them; returns what is to be noted."""
    if not source.run.bodies:
        found.ok = None
        return ["bodies were not compared: deliveries/ has no column body_hash"]
    if not source.run.sent_bodies:
        return ["bodies were compared between sites, not with what was sent: sends/ has no column body_hash"]
    return []


def _judge_ids(source: Source, verdict: Verdict) -> tuple[set[Destination], bool]:
    """An id names one message; returns the destinations of those that do not, and whether hashes of ids collide."""
    alike, hashes, more = source.sends_alike()
    sends = Sends()
    sends.add(alike)
    if more:
        verdict.notes.append(f"ids: {hashes:,} that may not be unique were looked at, and there are more")
        verdict.leave_open(("creation",))
    groups: set[Destination] = set()
    for msg_id, every in sorted(sends.more.items()):
        verdict.properties["creation"].add(findings.two_sends(msg_id, every))
        groups |= {destination(sent.groups) for sent in every}
    return groups, len(sends.one) > hashes


def _tell_what_is_left(looked: Looked, suspects: Suspects, verdict: Verdict) -> None:
    """Note what the fold knows of the suspects that were too many to look at, and leave their properties open."""
    many = len(suspects.rows) + suspects.more
    verdict.notes.append(f"looked at {len(looked.sites)} of {many} suspicious sites: there may be more violations")
    for why, says in SAYS.items():
        left = sorted(suspects.why[why] & looked.left)
        more = len(left) + suspects.more_why.get(why, 0)
        if more:
            example = f": {', '.join(left[:3])}{' ...' * (more > 3)}" if left else ""
            verdict.notes.append(f"of the others {more} {says}{example}")
    verdict.leave_open((*BASIC, "stamps", "classes"))


def _judge_order(source: Source, facts: Facts, verdict: Verdict, looked: Looked, *, collide: bool) -> None:
    """Judge the order: nothing is left to search when stamps hold and classes suit; otherwise all logs are searched."""
    found = verdict.properties
    if not source.run.stamped:
        found["stamps"].ok = None
    certified = source.run.stamped and bool(found["stamps"].ok) and not looked.mixed and not collide
    if certified and stamps_prove(facts, ClassRule.BLOCKS):
        return
    if verdict.level == "fifo":
        found["total"].ok = found["acyclic"].ok = None
        return
    if certified and verdict.level == "total" and stamps_prove(facts, ClassRule.S2):
        found["acyclic"].ok = None
        return
    kinds = facts.kinds(collide=collide)
    if kinds is None:
        verdict.notes.append("order: there are too many deliveries to search them for cycles")
        verdict.leave_open(("total", "acyclic"))
        return
    verdict.notes += judge_order(source, kinds, found["total"], found["acyclic"])
