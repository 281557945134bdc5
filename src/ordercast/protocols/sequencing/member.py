"""The member's side of the sequencing service: it delivers an ACCEPT when nothing is missing before it (KIN §4.1, §5).

T1   C_m.G = D_p.G + 1            for the destination
T2   C_m.G' = D_p.G'              for p's other groups that have an entry in C_m (errata 30)
CT2  C_past.G' <= D_p.G'          with `causal`, for p's groups among what the sender came after (errata 32, 40)
"""

import msgspec

from ordercast.core.contexts import Numbers
from ordercast.core.effects import Held
from ordercast.names import GroupId
from ordercast.protocols.sequencing.messages import Accept


class MemberState(msgspec.Struct, array_like=True):
    """The whole state."""

    delivered: dict[GroupId, int]
    reported: dict[GroupId, int]
    waiting: list[tuple[int, Accept, float]]
    """Part, ACCEPT, since when; by place."""
    fetched: list[GroupId]
    ends: dict[int, Numbers] = {}

    def durable(self) -> object:
        """Return what a replay rebuilds. Volatile is what was reported and fetched, and when."""
        return self.delivered, [(part, accept) for part, accept, _ in self.waiting], self.ends


class Member:
    """What a site has delivered of its groups, and what waits for its turn."""

    def __init__(self, own: list[GroupId], elsewhere: list[GroupId]) -> None:
        self.elsewhere = elsewhere  # own groups that another site sequences, which is told what is stable here
        self.delivered = dict.fromkeys(own, 0)  # D_p, for own groups only (errata 36)
        self.reported = dict.fromkeys(own, 0)
        self.waiting: dict[tuple[int, int], tuple[Accept, float]] = {}  # by part and place
        self.fetched: list[GroupId] = []  # since the last tick
        self.ends: dict[int, Numbers] = {}  # of parts that are closed: their last numbers

    def take(self, part: int, accept: Accept, now: float) -> list[Accept]:
        """Take an ACCEPT; return what is delivered now, in order."""
        if not self.waiting and self.missing(accept) is None:
            self._count(accept)
            return [accept]
        if self.has(accept):
            return []
        self.waiting.setdefault((part, accept.place), (accept, now))
        return self._release()

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
                    self._count(accept)
                    ready.append(accept)
                    moved = True
        return ready

    def _count(self, accept: Accept) -> None:
        for group, number in accept.context:
            if group in accept.envelope.groups and group in self.delivered:
                self.delivered[group] = number

    def missing(self, accept: Accept) -> str | None:
        """Return which condition does not hold yet: T1, T2 or CT2."""
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
        return None

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
        return [Held(str(a), self.missing(a) or "nothing", since) for a, since in self.waiting.values()]

    def snapshot(self) -> MemberState:
        """Return the whole state."""
        waiting = [(part, *self.waiting[part, place]) for part, place in sorted(self.waiting)]
        return MemberState(
            self.delivered, self.reported, waiting, sorted(self.fetched), dict(sorted(self.ends.items()))
        )

    def restore(self, state: MemberState) -> None:
        """Take over a state."""
        if state.delivered.keys() != self.delivered.keys() or state.reported.keys() != self.reported.keys():
            raise KeyError("its groups are others")
        self.delivered, self.reported, self.fetched = state.delivered, state.reported, state.fetched
        self.ends = state.ends
        self.waiting = {(part, accept.place): (accept, since) for part, accept, since in state.waiting}
