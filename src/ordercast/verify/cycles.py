"""Search for a cycle of messages in a plan whose edges do not form one tree per class.

In a shortest cycle every message is of another group, neighbours share a member site, and no others do (a shared site
would order the two and cut the cycle short); three groups may share pairwise. So the search goes over chordless cycles
of the graph of overlapping groups, and asks of each whether some timing of the messages makes it real.
"""

from collections.abc import Callable, Iterator

from ordercast.names import GroupId, SiteId
from ordercast.planning.plan import Plan

MergePoint = Callable[[GroupId, GroupId, SiteId], SiteId]
Sender = Callable[[GroupId, SiteId], SiteId | None]
Step = tuple[GroupId, GroupId, SiteId]
Event = tuple[int, SiteId]
Shared = tuple[int, int, list[SiteId]]


class CycleSearch:
    """Tries chordless cycles of groups, shortest first; `gave_up` when there are more than it may try."""

    def __init__(self, plan: Plan, merge_point: MergePoint, sender: Sender, at_most: int) -> None:
        self.merge_point, self.sender, self.left = merge_point, sender, at_most
        self.members = {group: set(route.members) for group, route in plan.groups.items()}
        self.reached = {group: {plan.groups[group].entry} for group in plan.groups}
        for group, _, receiver in plan.crossings():
            self.reached[group].add(receiver)
        self._longest = len(plan.groups)  # of the chordless paths seen; no cycle is longer than one more
        self.near = {
            one: sorted(other for other, sites in self.members.items() if other != one and sites & self.members[one])
            for one in sorted(self.members)
        }

    @property
    def gave_up(self) -> bool:
        """Whether the search ended before everything was tried."""
        return self.left <= 0

    def find(self) -> list[Step] | None:
        """Return the steps (first, then, site) of a shortest cycle of messages, or None."""
        length = 3
        while self._longest >= length - 1 and not self.gave_up:
            for groups in self._chordless(length):
                for way in (groups, groups[::-1]):
                    steps = self._realise(way)
                    if steps is not None:
                        return steps
            length += 1
        return None

    def _chordless(self, length: int) -> Iterator[list[GroupId]]:
        """Yield every chordless cycle of groups of this length once, starting at its first name."""
        self._longest = 0
        for first in self.near:
            stack = [[first]]
            while stack:
                self.left -= 1
                if self.gave_up:
                    return
                path = stack.pop()
                if len(path) == length:
                    if path[1] < path[-1]:
                        yield path
                    continue
                closing = len(path) == length - 1
                for group in self.near[path[-1]]:
                    if group <= first or group in path:
                        continue
                    chords = [other for other in path[:-1] if other in self.near[group]]
                    if not chords:
                        self._longest = max(self._longest, len(path) + 1)
                    if chords == ([first] if closing else []):
                        stack.append([*path, group])

    def _realise(self, groups: list[GroupId]) -> list[Step] | None:
        """Return the cycle's steps if the messages can be timed so that each comes before the next."""
        count = len(groups)
        steps = []
        before: dict[Event, set[Event]] = {}
        for i, group in enumerate(groups):
            for site in self.reached[group]:
                above = self.sender(group, site)
                before[i, site] = set() if above is None else {(i, above)}
        for i, group in enumerate(groups):
            j = (i + 1) % count
            site = min(self.members[group] & self.members[groups[j]])
            merge = self.merge_point(group, groups[j], site)
            steps.append((group, groups[j], site))
            before[j, merge].add((i, merge))
        shared = _entangled(before, self._shared(groups), {(i, self._merge(steps[i])) for i in range(count)})
        return steps if self._has_cyclefree_signs(before, shared) else None

    def _merge(self, step: Step) -> SiteId:
        return self.merge_point(*step)

    def _has_cyclefree_signs(self, before: dict[Event, set[Event]], shared: list[Shared]) -> bool:
        """Decide whether the messages can be ordered wherever two meet, without an event before itself.

        Backtracking over the meetings, depth first, on a stack of its own; every choice counts as a step of the search.
        """
        stack = [(before, 0)]
        while stack:
            order, at = stack.pop()
            self.left -= 1 + len(order) // 20
            if self.gave_up:
                return False
            reach = _closure(order)
            if reach is None:
                continue
            if at == len(shared):
                return True
            i, j, sites = shared[at]
            i_first = any((i, site) in reach[j, site] for site in sites)
            j_first = any((j, site) in reach[i, site] for site in sites)
            for first, then, wanted in ((j, i, not i_first), (i, j, not j_first)):
                if wanted:
                    bound = {event: set(earlier) for event, earlier in order.items()}
                    for site in sites:
                        bound[then, site].add((first, site))
                    stack.append((bound, at + 1))
        return False

    def _shared(self, groups: list[GroupId]) -> list[Shared]:
        """List, for every two messages, the sets of sites that see them in one order: those with one merge point."""
        shared = []
        for i, one in enumerate(groups):
            for j in range(i + 1, len(groups)):
                other = groups[j]
                by_merge: dict[SiteId, list[SiteId]] = {}
                for site in self.reached[one] & self.reached[other]:
                    by_merge.setdefault(self.merge_point(one, other, site), []).append(site)
                shared += [(i, j, sites) for sites in by_merge.values()]
        return shared


def _entangled(before: dict[Event, set[Event]], shared: list[Shared], bound: set[Event]) -> list[Shared]:
    """Drop the meetings that cannot matter: no event that must come first depends on both of their messages."""
    matters, todo = set(bound), list(bound)
    while todo:
        new = before[todo.pop()] - matters
        matters |= new
        todo += new
    return [
        (i, j, sites)
        for i, j, sites in shared
        if any((i, site) in matters for site in sites) and any((j, site) in matters for site in sites)
    ]


def _closure(before: dict[Event, set[Event]]) -> dict[Event, set[Event]] | None:
    """Return the transitive closure: all events before each event; None when an event is before itself."""
    reach: dict[Event, set[Event]] = {}
    open_events: set[Event] = set()
    for start in before:
        stack = [start]
        while stack:
            event = stack[-1]
            if event in reach:
                stack.pop()
                continue
            open_events.add(event)
            todo = [earlier for earlier in before[event] if earlier not in reach]
            if any(earlier in open_events for earlier in todo):
                return None
            if todo:
                stack.append(todo[0])
                continue
            reach[event] = set().union(before[event], *(reach[earlier] for earlier in before[event]))
            open_events.discard(event)
            stack.pop()
    return reach
