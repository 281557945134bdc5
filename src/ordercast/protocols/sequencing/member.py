"""The member's side of the sequencing service: it delivers an ACCEPT when nothing is missing before it (KIN §4.1, §5).

T1   C_m.G = D_p.G + 1            for the destination
T2   C_m.G' = D_p.G'              for p's other groups that have an entry in C_m (errata 30)
CT2  C_past.G' <= D_p.G'          with `causal`, for p's groups among what the sender came after (errata 32, 40)
"""

import msgspec

from ordercast.core.contexts import Numbers
from ordercast.core.effects import Held
from ordercast.core.events import Envelope
from ordercast.names import GroupId, SiteId
from ordercast.protocols.sequencing.messages import Accept

BODIES_AT_MOST = 1024  # of one sender, in one part, without a place; more are dropped, and fetched later

Sender = tuple[int, SiteId, int]
"""A part, a sender to it, and its incarnation."""


class MemberState(msgspec.Struct, array_like=True):
    """The whole state."""

    delivered: dict[GroupId, int]
    reported: dict[GroupId, int]
    waiting: list[tuple[int, Accept, float]]
    """Part, ACCEPT, since when; by place."""
    fetched: list[GroupId]
    ends: dict[int, Numbers] = {}
    bodies: dict[Sender, dict[int, tuple[Envelope, float]]] = {}
    last: dict[Sender, int] = {}

    def durable(self) -> object:
        """Return what a replay rebuilds. Volatile is what was reported and fetched, and when."""
        bodies = {sender: [envelope for envelope, _ in found.values()] for sender, found in self.bodies.items()}
        return self.delivered, [(part, accept) for part, accept, _ in self.waiting], self.ends, bodies, self.last


class Member:
    """What a site has delivered of its groups, and what waits for its turn."""

    def __init__(self, own: list[GroupId], elsewhere: list[GroupId]) -> None:
        self.elsewhere = elsewhere  # own groups that another site sequences, which is told what is stable here
        self.delivered = dict.fromkeys(own, 0)  # D_p, for own groups only (errata 36)
        self.reported = dict.fromkeys(own, 0)
        self.waiting: dict[tuple[int, int], tuple[Accept, float]] = {}  # by part and place
        self.fetched: list[GroupId] = []  # since the last tick
        self.ends: dict[int, Numbers] = {}  # of parts that are closed: their last numbers
        self.bodies: dict[Sender, dict[int, tuple[Envelope, float]]] = {}  # sent directly, without a place; by number
        self.last: dict[Sender, int] = {}  # number of the last message that was delivered, where bodies come directly

    def take(self, part: int, accept: Accept, now: float) -> list[Accept]:
        """Take an ACCEPT; return what is delivered now, in order."""
        if accept.bare:
            envelope = accept.envelope
            found = self.bodies.get((part, envelope.source, envelope.incarnation), {}).get(envelope.number)
            accept = accept if found is None else accept.with_body(found[0].body)
        if not self.waiting and self.missing(accept) is None:
            self._count(part, accept)
            return [accept]
        if self.has(accept) or self.waits(part, accept):
            return []
        _, since = self.waiting.get((part, accept.place), (accept, now))
        self.waiting[part, accept.place] = (accept, since)
        return self._release()

    def waits(self, part: int, accept: Accept) -> bool:
        """Whether an ACCEPT waits here, with its body if this one has it."""
        waiting = self.waiting.get((part, accept.place))
        return waiting is not None and (accept.bare or not waiting[0].bare)

    # Bodies that come directly from their senders.

    def lacks_body(self, part: int, envelope: Envelope) -> bool:
        """Whether a body is news, and there is room for it."""
        sender = (part, envelope.source, envelope.incarnation)
        bodies = self.bodies.get(sender, {})
        is_new = envelope.number > self.last.get(sender, 0) and envelope.number not in bodies
        return is_new and len(bodies) < BODIES_AT_MOST

    def take_body(self, part: int, envelope: Envelope, now: float) -> list[Accept]:
        """Take a body; return what is delivered now, in order. A body without a place waits for it."""
        if not self.lacks_body(part, envelope):
            return []
        self.bodies.setdefault((part, envelope.source, envelope.incarnation), {})[envelope.number] = (envelope, now)
        identity = (envelope.source, envelope.incarnation, envelope.number)
        for key, (accept, since) in self.waiting.items():
            known = accept.envelope
            if accept.bare and key[0] == part and (known.source, known.incarnation, known.number) == identity:
                self.waiting[key] = (accept.with_body(envelope.body), since)
                return self._release()
        return []

    def forget(self, source: SiteId) -> None:
        """Throw away the bodies of a source that has lost them."""
        self.bodies = {sender: found for sender, found in self.bodies.items() if sender[1] != source}

    def has(self, accept: Accept) -> bool:
        """Whether an ACCEPT was delivered."""
        destination, delivered = accept.envelope.groups, self.delivered
        for group, number in accept.context:
            if group in destination and group in delivered and delivered[group] < number:
                return False
        return True

    def _release(self) -> list[Accept]:
        ready = []
        moved = True
        while moved:
            moved = False
            for key in sorted(self.waiting):
                accept, _ = self.waiting[key]
                if self.missing(accept) is None:
                    del self.waiting[key]
                    self._count(key[0], accept)
                    ready.append(accept)
                    moved = True
        return ready

    def _count(self, part: int, accept: Accept) -> None:
        if accept.direct:
            self._placed(part, accept.envelope)
        for group, number in accept.context:
            if group in accept.envelope.groups and group in self.delivered:
                self.delivered[group] = number

    def _placed(self, part: int, envelope: Envelope) -> None:
        """Forget bodies up to one that is delivered: a sequencer takes each sender's requests in their order."""
        sender = (part, envelope.source, envelope.incarnation)
        self.last[sender] = envelope.number
        left = {number: body for number, body in self.bodies.pop(sender, {}).items() if number > envelope.number}
        if left:
            self.bodies[sender] = left

    def missing(self, accept: Accept) -> str | None:
        """Return which condition does not hold yet: T1, T2, CT2, or that the body is there."""
        destination = accept.envelope.groups
        for group, number in accept.context:
            if group not in self.delivered:
                continue
            if group in destination and self.delivered[group] + 1 != number:
                return f"T1: {group} is at {self.delivered[group]}, this is {number}"
            if group not in destination and self.delivered[group] != number:
                return f"T2: {group} is at {self.delivered[group]}, must be at {number}"
        for group, number in accept.past:
            if group not in self.delivered:
                continue  # entries of other groups mean nothing here (errata 40)
            if self.delivered[group] < number:
                return f"CT2: {group} is at {self.delivered[group]}, must have reached {number}"
        return "its body has not come from its sender" if accept.bare else None

    def ended(self, part: int) -> bool:
        """Whether everything of a part is delivered that this site will ever get."""
        return part in self.ends and all(self.delivered.get(g, n) >= n for g, n in self.ends[part])

    def lacks(self, group: GroupId, upto: int) -> int | None:
        """Return the first number to fetch when a number of a group is known to exist; once per tick."""
        if self.delivered.get(group, upto) < upto and group not in self.fetched:
            self.fetched.append(group)
            return self.delivered[group] + 1
        return None

    def reports(self) -> Numbers:
        """Return what is delivered and was not reported."""
        return tuple((g, self.delivered[g]) for g in self.elsewhere if self.delivered[g] > self.reported[g])

    def held(self) -> list[Held]:
        """What waits here."""
        accepts = [Held(str(a), self.missing(a) or "nothing", since) for a, since in self.waiting.values()]
        bodies = [body for found in self.bodies.values() for body in found.values()]
        return accepts + [
            Held(str(envelope), "its sequencer has not given it a place", since) for envelope, since in bodies
        ]

    def snapshot(self) -> MemberState:
        """Return the whole state."""
        waiting = [(part, *self.waiting[part, place]) for part, place in sorted(self.waiting)]
        bodies = {sender: dict(sorted(found.items())) for sender, found in sorted(self.bodies.items())}
        return MemberState(
            self.delivered, self.reported, waiting, sorted(self.fetched), dict(sorted(self.ends.items())), bodies,
            dict(sorted(self.last.items())),
        )  # fmt: skip

    def restore(self, state: MemberState) -> None:
        """Take over a state."""
        if state.delivered.keys() != self.delivered.keys() or state.reported.keys() != self.reported.keys():
            raise KeyError("its groups are others")
        self.delivered, self.reported, self.fetched = state.delivered, state.reported, state.fetched
        self.ends, self.bodies, self.last = state.ends, state.bodies, state.last
        self.waiting = {(part, accept.place): (accept, since) for part, accept, since in state.waiting}
