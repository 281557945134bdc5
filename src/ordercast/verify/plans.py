"""The judge of plans: does every member get every message exactly once, and in which order? Knows no planner.

The model is that of `protocols.propagation`: a message of group g arrives at g's entry at any time; every site handles
messages in the order in which they arrive and passes each on over the edges that list its group. An edge carries one
FIFO stream per class, and streams take any time at all: two classes on one edge may overtake each other, because each
is numbered and sent again by itself (errata 73).

PG1, PG2 (GS88 §3.1): what a group's messages cross must be a tree from its entry to every member. forest: the edges of
one class form a forest, which is all that the machine can run, and its groups hang together.

total: follow two messages back from a site where both are delivered. While they came over the same stream, their order
was decided further up; the first site where they came over different streams (or one of them entered) is their *merge
point*, and there either may be first. Sites with one merge point agree. Sites with two can disagree: "one first here,
the other first there" is impossible only if each message passes the two merge points in the opposite order, and then
the reverse is possible.

A declared union `A+B` is planned as a group of its own, and judged as one (docs/classes.md).

acyclic: a plan has no cycle of messages when the edges of each class form a forest (messages only flow down, errata 8)
and the graph of classes and their member sites has no cycle (docs/classes.md); a class whose groups do not hang
together counts as several. Where that does not hold, cycles of overlapping groups are tried one after the other,
shortest first.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations

import msgspec

from ordercast.names import GroupId, Level, SiteId
from ordercast.planning.plan import Plan
from ordercast.verify.cycles import CycleSearch
from ordercast.verify.findings import Answer, Finding

SEARCH_STEPS_AT_MOST = 100_000
REQUIRED = ("form", "PG1", "PG2", "forest", "extra")
"""What every plan must keep, whatever its level."""


class Verdict(msgspec.Struct, frozen=True):
    """What the judge found. What is `REQUIRED`, and the level, must hold; the others are told."""

    level: Level
    findings: dict[str, Answer] = {}

    @property
    def ok(self) -> bool:
        """Whether the plan may run: everything is delivered once and in the order its level promises."""
        return self.broken is None

    @property
    def broken(self) -> str | None:
        """The first of the required findings that does not hold, by name."""
        return next((name for name in (*REQUIRED, str(self.level)) if not self.findings[name].ok), None)

    def __str__(self) -> str:
        said = (f"{name}: {'yes' if found.ok else 'no: ' + found.says}" for name, found in self.findings.items())
        return "\n".join(said)


def judge(plan: Plan, membership: Mapping[GroupId, Iterable[SiteId]] | None = None) -> Verdict:
    """Judge a plan by what its edges do, whoever made it; with a membership, also that it plans for that one."""
    routes = Routes(plan)
    says: dict[str, str | None] = {"form": _form(plan, membership), "PG1": _primary_destinations(plan)}
    says["PG2"] = routes.exactly_once() if says["PG1"] is None else "not judged: PG1 fails"
    if says["form"] is None and says["PG2"] is None:
        forests = _forests(plan)
        says["forest"] = _whole(plan, routes.class_of) if forests is None else forests
        says["total"], says["acyclic"] = _order(plan, routes, trees=forests is None)
        says["extra"] = _extra(plan, routes)
        says["cost"] = _cost(plan, routes)
    else:
        fails = "PG2" if says["form"] is None else "form"
        says |= dict.fromkeys(("forest", "total", "acyclic", "extra", "cost"), f"not judged: {fails} fails")
    says["PG3"] = _entries_are_members(plan)
    says["PG4"] = _no_extra_nodes(plan, routes)
    says["MGT rule 1"], says["MGT rule 2"] = _meta_group_rules(plan, routes)
    return Verdict(plan.level, {name: _answer(name, said) for name, said in says.items()})


def _answer(name: str, says: str | None) -> Answer:
    """Return the answer to one question about a plan; None says that it holds."""
    return Answer() if says is None else Answer(False, 1, Finding(name, says))


class Routes:
    """Where the messages of each group go: for every group, the site from which each site gets them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.class_of = plan.class_of()
        self.senders: dict[GroupId, dict[SiteId, list[SiteId]]] = {group: {} for group in plan.groups}
        self.receivers: dict[GroupId, dict[SiteId, list[SiteId]]] = {group: {} for group in plan.groups}
        for group, sender, receiver in plan.crossings():
            if group in self.senders:
                self.senders[group].setdefault(receiver, []).append(sender)
                self.receivers[group].setdefault(sender, []).append(receiver)

    def exactly_once(self) -> str | None:
        """PG2: a unique path from the primary destination to every member, and no edge that nothing crosses."""
        for group, route in self.plan.groups.items():
            senders = self.senders[group]
            reached, todo = {route.entry}, [route.entry]
            while todo:
                for site in self.receivers[group].get(todo.pop(), ()):
                    if site not in reached:
                        reached.add(site)
                        todo.append(site)
            for site in route.members:
                if site not in reached:
                    return f"member {site!r} of {group!r} has no path from the entry {route.entry!r}"
            for site, of_site in sorted(senders.items()):
                if site not in reached:
                    return f"edge {of_site[0]!r} -> {site!r} lists {group!r} but none of its messages reach it"
                if len(of_site) > 1 or site == route.entry:
                    twice = ["outside", *of_site] if site == route.entry else of_site
                    return f"{site!r} gets the messages of {group!r} twice: from {twice[0]!r} and {twice[1]!r}"
        return None

    def sender(self, group: GroupId, site: SiteId) -> SiteId | None:
        """Return the site from which a site gets a group's messages; None at the entry. Needs PG2."""
        of_site = self.senders[group].get(site)
        return of_site[0] if of_site else None

    def reached(self, group: GroupId) -> Iterator[SiteId]:
        """Yield every site that handles a group's messages."""
        yield self.plan.groups[group].entry
        yield from self.senders[group]

    def path(self, group: GroupId, site: SiteId) -> list[SiteId]:
        """Return the path from the entry to a site."""
        path = [site]
        while (above := self.sender(group, path[-1])) is not None:
            path.append(above)
        return path[::-1]

    def merge_point(self, one: GroupId, other: GroupId, site: SiteId) -> SiteId:
        """Return where the order of two groups' messages, as seen by a site that gets both, is decided."""
        if self.class_of[one] != self.class_of[other]:
            return site  # streams of two classes meet at the site itself, even when they come over one edge
        while (above := self.sender(one, site)) is not None and above == self.sender(other, site):
            site = above
        return site


def _form(plan: Plan, membership: Mapping[GroupId, Iterable[SiteId]] | None) -> str | None:
    if not plan.groups:
        return "the plan has no groups"
    if plan.epoch < 1:
        return f"the epoch is {plan.epoch}; epochs count from 1"
    for group, route in plan.groups.items():
        if not group or "" in (*route.members, *route.extra):
            return f"group {group!r}: a name is empty"
        parts = group.split("+")
        if len(parts) > 1:
            problem = _union_problem(plan, group, parts)
            if problem is not None:
                return problem
    for edge in plan.edges:
        if not edge.parent or not edge.child:
            return f"edge {edge.parent!r} -> {edge.child!r}: a name is empty"
    links = Counter((edge.parent, edge.child) for edge in plan.edges)
    for (parent, child), count in links.items():
        if count > 1:
            return f"the edge {parent!r} -> {child!r} is listed {count} times: one link, one entry"
    in_classes = Counter(group for groups in plan.classes for group in groups)
    for group in plan.groups:
        if in_classes[group] != 1:
            return f"group {group!r} is in {in_classes[group]} classes, not in one"
    for group in in_classes:
        if group not in plan.groups:
            return f"class group {group!r} is not planned"
    for edge in plan.edges:
        for group in edge.groups:
            if group not in plan.groups:
                return f"edge {edge.parent!r} -> {edge.child!r} lists the unknown group {group!r}"
    for group, route in plan.groups.items():
        if not route.members or len(set(route.members)) < len(route.members):
            return f"group {group!r} has no members, or one twice"
    if membership is not None:
        wanted = {group: set(sites) for group, sites in membership.items()}
        for group in wanted.keys() | plan.groups.keys():
            if group not in plan.groups or wanted.get(group) != set(plan.groups[group].members):
                return f"group {group!r} has other members than in the membership"
    return None


def _union_problem(plan: Plan, union: GroupId, parts: list[GroupId]) -> str | None:
    """A declared union has the members of its groups and is in their class, or say what is wrong."""
    if sorted(set(parts)) != parts or any(part not in plan.groups for part in parts):
        return f"union {union!r} must name planned groups, each once and sorted"
    if {site for part in parts for site in plan.groups[part].members} != set(plan.groups[union].members):
        return f"union {union!r} has other members than its groups"
    class_of = plan.class_of()
    if len({class_of.get(name) for name in (union, *parts)}) > 1:
        return f"union {union!r} is in another class than its groups"
    return None


def _primary_destinations(plan: Plan) -> str | None:
    for group, route in plan.groups.items():
        if not route.entry:
            return f"group {group!r} has no entry"
    return None


def _entries_are_members(plan: Plan) -> str | None:
    for group, route in plan.groups.items():
        if route.entry not in route.members:
            return f"the entry {route.entry!r} of {group!r} is not a member"
    return None


def _no_extra_nodes(plan: Plan, routes: Routes) -> str | None:
    for group, route in plan.groups.items():
        extra = sorted(set(routes.reached(group)).difference(route.members))
        if extra:
            return f"{extra[0]!r} is an extra node of {group!r}"
    return None


def _meta_group_rules(plan: Plan, routes: Routes) -> tuple[str | None, str | None]:
    """Rule 1: a group enters at one of its meta-groups. Rule 2: its messages come into each of them at one site."""
    groups_of: dict[SiteId, list[GroupId]] = defaultdict(list)
    for group in sorted(plan.groups):
        for site in plan.groups[group].members:
            groups_of[site].append(group)
    meta_of = {site: tuple(groups) for site, groups in groups_of.items()}
    rule_2: str | None = None
    for group, route in plan.groups.items():
        doors: dict[tuple[GroupId, ...], SiteId] = {}
        for site in route.members:
            sender = routes.sender(group, site)
            if sender is not None and meta_of.get(sender) == meta_of[site]:
                continue
            first = doors.setdefault(meta_of[site], site)
            if first != site and rule_2 is None:
                where = f"<{' '.join(meta_of[site])}>"
                rule_2 = f"messages of {group!r} come into {where} at {first!r} and {site!r}"
    return _entries_are_members(plan), rule_2


def _order(plan: Plan, routes: Routes, *, trees: bool) -> tuple[str | None, str | None]:
    if trees and _parts_meet_without_cycle(plan, _connected(plan, routes.class_of)):
        return None, None
    total = _total(plan, routes, routes.class_of if trees else {})
    if total is not None:
        return total, total
    search = CycleSearch(plan, routes.merge_point, routes.sender, SEARCH_STEPS_AT_MOST)
    cycle = search.find()
    if cycle is not None:
        steps = [
            f"{site!r} delivers {first!r} before {then!r} (they meet at {routes.merge_point(first, then, site)!r})"
            for first, then, site in cycle
        ]
        return total, "one message each to these groups can form a cycle: " + ", ".join(steps)
    if search.gave_up:
        return total, f"not proven: no cycle in {SEARCH_STEPS_AT_MOST} steps, and more to search"
    return total, None


def _forests(plan: Plan) -> str | None:
    """Tell whether the edges of every class form a forest: one parent per site, and no way back to it."""
    class_of = plan.class_of()
    parent: dict[tuple[int, SiteId], SiteId] = {}
    for group, sender, receiver in plan.crossings():
        first = parent.setdefault((class_of[group], receiver), sender)
        if first != sender:
            return f"{receiver!r} has two parents in the class of {group!r}: {first!r} and {sender!r}"
    rooted: set[tuple[int, SiteId]] = set()
    for start in parent:
        path: dict[tuple[int, SiteId], None] = {}
        node: tuple[int, SiteId] | None = start
        while node is not None and node not in rooted:
            if node in path:
                return f"{node[1]!r} is above itself in class {node[0]}"
            path[node] = None
            above = parent.get(node)
            node = None if above is None else (node[0], above)
        rooted.update(path)
    return None


def _whole(plan: Plan, class_of: Mapping[GroupId, int]) -> str | None:
    """Tell whether the groups of every class hang together: a message to several of them may tie what does not."""
    part_of = _connected(plan, class_of)
    first: dict[int, GroupId] = {}
    for group, index in class_of.items():
        other = first.setdefault(index, group)
        if part_of[group] != part_of[other]:
            return f"groups {other!r} and {group!r} are in one class and share no site, over no others"
    return None


def _connected(plan: Plan, class_of: Mapping[GroupId, int]) -> dict[GroupId, int]:
    """Put groups of one class with a common member into one part, transitively."""
    part_of: dict[GroupId, int] = {}
    groups_at: dict[tuple[int, SiteId], list[GroupId]] = defaultdict(list)
    for group, route in plan.groups.items():
        for site in route.members:
            groups_at[class_of[group], site].append(group)
    for number, first in enumerate(plan.groups):
        todo = [first]
        while todo:
            group = todo.pop()
            if group not in part_of:
                part_of[group] = number
                own = class_of[group]
                todo += [other for site in plan.groups[group].members for other in groups_at.pop((own, site), ())]
    return part_of


def _parts_meet_without_cycle(plan: Plan, part_of: dict[GroupId, int]) -> bool:
    """Tell whether the graph of parts and member sites is a forest."""
    leader: dict[object, object] = {}

    def find(x: object) -> object:
        while leader.setdefault(x, x) != x:
            leader[x] = leader[leader[x]]
            x = leader[x]
        return x

    for part, site in {(part_of[group], site) for group, route in plan.groups.items() for site in route.members}:
        a, b = find(("part", part)), find(("site", site))
        if a == b:
            return False
        leader[a] = b
    return True


def _total(plan: Plan, routes: Routes, part_of: Mapping[GroupId, int]) -> str | None:
    """Compare the merge points of every two groups with two common members; one tree needs no comparing."""
    groups_at: dict[SiteId, list[GroupId]] = defaultdict(list)
    for group, route in sorted(plan.groups.items()):
        for site in route.members:
            groups_at[site].append(group)
    decided: dict[tuple[GroupId, GroupId], tuple[SiteId, SiteId]] = {}
    for site, groups in sorted(groups_at.items()):
        for one, other in combinations(groups, 2):
            if part_of and part_of[one] == part_of[other]:
                continue
            merge = routes.merge_point(one, other, site)
            first_site, first_merge = decided.setdefault((one, other), (site, merge))
            if merge != first_merge:
                return _disagreement(routes, one, other, (first_site, first_merge), (site, merge))
    return None


def _disagreement(
    routes: Routes, one: GroupId, other: GroupId, a: tuple[SiteId, SiteId], b: tuple[SiteId, SiteId]
) -> str:
    def ways(at: tuple[SiteId, SiteId]) -> str:
        paths = (f"{group!r} by {' -> '.join(routes.path(group, at[0]))}" for group in (one, other))
        return f"{at[0]!r} gets {' and '.join(paths)}, ordered at {at[1]!r}"

    return f"a message to {one!r} and one to {other!r} can differ in order: {ways(a)}; {ways(b)}"


def _extra(plan: Plan, routes: Routes) -> str | None:
    for group, route in plan.groups.items():
        extra = sorted(set(routes.reached(group)).difference(route.members))
        if extra != sorted(route.extra):
            return f"group {group!r} has the extra nodes {extra}, the plan says {route.extra}"
    return None


def _cost(plan: Plan, routes: Routes) -> str | None:
    """Recompute depth and cost by their definitions and compare with what the plan says of itself."""
    load: Counter[SiteId] = Counter()
    depths, extras, messages = [], [], 0
    for group, route in plan.groups.items():
        reached = set(routes.reached(group))
        depth = max(len(routes.path(group, site)) - 1 for site in route.members)
        extra = reached.difference(route.members)
        if depth != route.depth:
            return f"group {group!r} has depth {depth}, not {route.depth}"
        depths.append(depth)
        extras.append(len(extra))
        messages += len(reached)
        load.update(reached)
        load.update({sender: len(to) for sender, to in routes.receivers[group].items()})
    count = len(plan.groups)
    expected = (sum(depths) / count, sum(extras) / count, max(load.values()), messages)
    said = (plan.cost.mean_depth, plan.cost.mean_extra, plan.cost.max_load, plan.cost.messages)
    if any(abs(a - b) > 1e-6 * max(1.0, abs(a)) for a, b in zip(expected, said, strict=True)):
        return f"mean depth, mean extra, max load, messages are {expected}, the plan says {said}"
    return None
