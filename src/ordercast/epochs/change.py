"""Pure functions from a configuration to the next one: requests, suspicions, which classes must close.

Which classes does a change touch? Those whose groups, members or options differ. At level `total` that is all. At level
`acyclic` a class that stays open may have to close too (errata 80): E={s,t} stays open while g={s,u} loses s and later
gets t. A message of E that is under way meanwhile may come before one of the old g at s, that one before one of the
new g at u, and that one before the message of E at t: a circle, though no two classes ever shared two sites. So all
classes that were open since the oldest open one count as if they were there at once: a class that lies in one
biconnected block with any other of them closes with it (docs/classes.md, "Groups that change").
"""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from ordercast.core.configuration import Destination
from ordercast.epochs.requests import (
    AddSite,
    Asked,
    Change,
    Create,
    Move,
    Planned,
    RemoveSite,
    SetLevel,
    Wanted,
    apply,
    check_options,
)  # fmt: skip
from ordercast.epochs.setup import ClassSetup, GroupSetup, Past, Setup, council_of
from ordercast.errors import LocalError
from ordercast.membership.table import Membership
from ordercast.names import ClassId, ClassRule, Delivery, GroupId, Level, Policy, SiteId
from ordercast.planning.classes import classes
from ordercast.planning.make import make_plan
from ordercast.planning.request import Budget, Request
from ordercast.protocols.registry import MACHINES, Causal
from ordercast.protocols.sequencing.placement import place, weight

SEARCH = Budget(steps=20_000)  # for planner `best`: in steps, so that everybody gets the same plan
PAST_AT_MOST = 256  # closed classes that are remembered; beyond, everything is closed once, and they are forgotten


def first_setup(
    sites: Iterable[SiteId],
    groups: Mapping[GroupId, GroupSetup],
    level: Level = Level.ACYCLIC,
    unions: Iterable[Destination] = (),
    *,
    causal: bool = False,
) -> Setup:
    """Return configuration 1."""
    named = dict.fromkeys(sorted({*sites, *(site for group in groups.values() for site in group.members)}), "")
    for name, group in groups.items():
        check_options(group, causal=causal)
        if unknown := sorted(set(group.sequencers) - named.keys()):
            raise LocalError(f"group {name!r}: there is no site {unknown[0]!r}")
    empty = Setup(0, named, dict(sorted(groups.items())), level, causal, tuple(unions), council_of(named, {}), {})
    return plan_change(empty, Wanted(empty, ())).setup


def wanted(
    setup: Setup,
    asked: Iterable[Asked],
    suspected: frozenset[SiteId],
    touch: Iterable[ClassId] = (),
    lives: Mapping[SiteId, int] | None = None,
    pending: Mapping[SiteId, Iterable[GroupId]] | None = None,
    leave: Collection[ClassId] = (),
    *,
    finish: bool = False,
) -> Wanted | None:
    """Return the next configuration, but for its classes; None when nothing is to be done.

    `lives`: sites that came with an empty disk, and their incarnation; their classes are opened anew for them.
    `pending`: who came into groups before, and is known to wait for their state still.
    `leave`: classes that are left as they are: everybody in them waits for a state, and somebody can still give it.
    `finish`: something that was closed is held up.

    What cannot be done is refused with its reason; what must wait, because a site that its class needs is suspected
    and may not be taken out, is left for later.
    """
    without = {(site, group) for site in lives or {} for group in setup.groups}
    without |= {(site, group) for site, groups in (pending or {}).items() for group in groups}
    waits = waiting(setup, suspected, without) | frozenset(leave)
    new = {
        site: (life, setup.number + 1)
        for site, life in (lives or {}).items()
        if site in setup.sites and not any(site in setup.classes[c].needed for c in waits)
    }
    empty = frozenset(lives or ()) - new.keys()  # they cannot report, and are not taken in now
    waits |= {class_id for class_id, of_class in setup.classes.items() if of_class.sites & empty}
    asked = list(asked)
    removed = {change.site for _, _, change in asked if isinstance(change, RemoveSite)}
    left = without | {(site, group) for site in removed for group in setup.groups}
    hold = {c for c in waiting(setup, suspected - removed, left) if setup.classes[c].remembered & removed}
    draft, refused, moved = setup, list[tuple[SiteId, int, str]](), set[ClassId]()
    for site, number, change in asked:
        if draft.has_answered(site, number) or _must_wait(setup, draft, change, waits, hold):
            continue
        try:
            after = apply(draft, change)
            if isinstance(change, Move):
                moved |= _moved(setup, change, suspected | empty | setup.away.keys())
        except LocalError as error:
            refused.append((site, number, str(error)))
        else:
            if _orphans(setup, after, suspected, without):
                continue
            draft = after
        draft = draft.answering(site, number)
    taken_in = {site: life for site, life in new.items() if site in draft.sites}
    lost = any(site in setup.lives or site in setup.founders for site in taken_in)
    draft = msgspec.structs.replace(
        draft, lives={**draft.lives, **taken_in}, disks=setup.number + 1 if lost else draft.disks
    )
    other = new.keys() | (setup.sites.keys() - draft.sites.keys())  # with an empty disk, or removed (errata 97)
    again_for = {c for c, of_class in setup.classes.items() if of_class.remembered & other}
    away = _away(setup, draft, suspected, waits)
    draft = msgspec.structs.replace(draft, away=away, council=council_of(draft.sites, away))
    broken = {
        class_id
        for class_id, of_class in setup.classes.items()
        if class_id not in waits
        and of_class.policy is Policy.AVAILABLE
        and (of_class.needed & suspected or empty.intersection(of_class.sequencers))
    }
    closing = (*touch, *broken, *again_for, *moved)
    again = {class_id for class_id in closing if class_id in setup.classes and class_id not in waits}
    if draft == setup and not again and not finish:
        return None
    out = tuple(sorted(suspected)), tuple(sorted(empty))
    return Wanted(draft, tuple(sorted(again)), tuple(refused), finish, *out)


def _moved(setup: Setup, change: Move, out: Collection[SiteId]) -> set[ClassId]:
    """Return the class that closes for a transfer, if any; raises LocalError when nobody is there to take it."""
    class_id = setup.class_of.get(change.group)
    there = [site for site in change.sequencers if site not in out]
    if change.sequencers and not there:
        raise LocalError(f"{' and '.join(change.sequencers)} cannot sequence group {change.group!r}: not there now")
    if class_id is None:
        return set()
    of_class = setup.classes[class_id]
    return set() if of_class.ordered_by(change.group) in (there or of_class.sites) else {class_id}


def waiting(
    setup: Setup, suspected: frozenset[SiteId], without: Collection[tuple[SiteId, GroupId]] = ()
) -> frozenset[ClassId]:
    """Return the classes that nothing can be done about: a member is suspected, and may not be taken out.

    Under `atomic` nobody may. Under `available` a group keeps the last of those who have its state: nobody else knows
    what was delivered. `without`: who has not the state of which group.
    """
    found = set[ClassId]()
    for class_id, of_class in setup.classes.items():
        out = of_class.sites & suspected
        for group, members in of_class.members.items() if out else ():
            whole = [site for site in members if (site, group) not in without]
            if of_class.policy is Policy.ATOMIC or (whole and out.issuperset(whole)):
                found.add(class_id)
    return frozenset(found)


def _orphans(
    setup: Setup, after: Setup, suspected: frozenset[SiteId], without: Collection[tuple[SiteId, GroupId]]
) -> bool:
    """Whether a group would lose the last of those who are there and have its state: others must come back first."""
    for group in setup.class_of:
        there = {s for s in setup.members(group) if s not in suspected and (s, group) not in without}
        if there and group in after.groups and there.isdisjoint(after.groups[group].members):
            return True
    return False


def _must_wait(
    setup: Setup, draft: Setup, change: Change, waits: Collection[ClassId], hold: Collection[ClassId]
) -> bool:
    """Whether a request is left for a later configuration."""
    if isinstance(change, RemoveSite):  # a class that it is in, and that must close too, waits for another (errata 103)
        return any(change.site in setup.classes[class_id].remembered for class_id in hold)
    if isinstance(
        change, Create
    ):  # a group of this name is deleted now: nobody is to take it for the same (errata 105)
        return change.group in setup.groups and change.group not in draft.groups
    return bool(_touches(draft, change) & set(waits))


def _touches(setup: Setup, change: Change) -> set[ClassId]:
    """Return the classes that a request speaks of; an operator may always remove a site."""
    if isinstance(change, Create | AddSite | RemoveSite):
        return set()
    groups = setup.groups if isinstance(change, SetLevel) else [change.group]
    return {setup.class_of[group] for group in groups if group in setup.class_of}


def _away(
    old: Setup, draft: Setup, suspected: frozenset[SiteId], waits: frozenset[ClassId]
) -> dict[SiteId, tuple[GroupId, ...]]:
    """Return who is taken out of which groups: suspected members, where the policy of their class allows it."""
    away: dict[SiteId, list[GroupId]] = {}
    for name, group in draft.groups.items():
        waits_now = old.class_of.get(name) in waits  # then nobody goes and nobody comes back
        for site in group.members:
            was = name in old.away.get(site, ())
            goes = site in suspected and _policy(old, draft, name) is Policy.AVAILABLE
            if was if waits_now else goes or (was and site in suspected):
                away.setdefault(site, []).append(name)
    return {site: tuple(names) for site, names in sorted(away.items())}


def _policy(old: Setup, draft: Setup, group: GroupId) -> Policy:
    """Return the policy of a group's class: the strictest of its groups."""
    class_id = old.class_of.get(group)
    return old.classes[class_id].policy if class_id is not None else draft.groups[group].policy


# The classes of the next configuration.


def plan_change(old: Setup, asked: Wanted) -> Planned:
    """Make the classes of the next configuration, and say which old ones close for it. It may take long."""
    number = old.number + 1
    draft = msgspec.structs.replace(asked.setup, number=number)
    made = {of_class.groups: of_class for of_class in _classes(draft)}
    alike = {class_id: made[c.groups] for class_id, c in old.classes.items() if _same(c, made.get(c.groups))}
    carried = {class_id for class_id in alike if class_id not in asked.touch}
    past = old.past
    if draft.level is Level.ACYCLIC and not draft.causal:
        if len(past) > PAST_AT_MOST:
            carried.clear()
        carried = _stay_open(old, made, past, carried)
    closed = tuple(sorted(class_id for class_id in old.classes if class_id not in carried))
    kept = {old.classes[class_id].groups: old.classes[class_id] for class_id in carried}
    opened: dict[ClassId, ClassSetup] = {}
    sequencers = _sequencers({groups: c for groups, c in made.items() if groups not in kept}, kept.values(), asked)
    for index, groups in enumerate(sorted(made)):
        of_class = kept.get(groups) or _finished(made[groups], ClassId(number, index), sequencers[groups], asked)
        opened[of_class.id] = of_class
    gone = [Past(tuple(sorted(old.classes[c].sites)), c.epoch, number) for c in closed]
    oldest = min((class_id.epoch for class_id in opened), default=number)
    remembered = tuple(_relevant(_merged((*past, *gone)), oldest))
    setup = msgspec.structs.replace(draft, classes=dict(sorted(opened.items())), past=remembered)
    partly = tuple(
        s for s in draft.away if s in old.partly or setup.is_member(s) or _begins_anew(old, draft, draft.away[s])
    )
    setup = msgspec.structs.replace(setup, partly=partly)
    return Planned(setup, closed, asked.refused, asked.ballot)


def _begins_anew(old: Setup, draft: Setup, groups: Iterable[GroupId]) -> bool:
    """Whether one of these groups may have nobody but sites with an empty disk: what it had is lost, it counts anew."""
    for group in groups:
        empty = {
            site
            for site, (_, number) in draft.lives.items()
            if number == draft.number or group in old.away.get(site, ())
        }
        if draft.members(group) and empty.issuperset(draft.members(group)):
            return True
    return False


def _classes(draft: Setup) -> list[ClassSetup]:
    """Return the classes as values; their ids and plans come later."""
    present = {group: draft.members(group) for group in draft.groups if draft.members(group)}
    if not present:
        return []
    unions = [union for union in draft.unions if all(group in present for group in union)]
    if draft.causal:  # the first group's protocol is everybody's: they are one class
        whole = MACHINES[draft.groups[next(iter(present))].protocol].causal is Causal.ONE_PART
        split = [(tuple(present),) if whole else tuple(_connected(present, unions))]
    else:
        split = [(groups,) for together in _together(draft) for groups in _connected(_only(present, together), unions)]
    return [_one(draft, parts, present, unions) for parts in split]


def _together(draft: Setup) -> list[list[GroupId]]:
    """Return which groups are ordered together: by all their members, also those who were taken out for a while.

    They come back and are given what they missed; others have seen it in an order that must be theirs too (errata 82).
    """
    table = Membership.of({group: setup.members for group, setup in draft.groups.items()}).with_unions(draft.unions)
    return classes(table, ClassRule.for_level(draft.level))


def _only(present: dict[GroupId, tuple[SiteId, ...]], groups: Iterable[GroupId]) -> dict[GroupId, tuple[SiteId, ...]]:
    return {group: present[group] for group in groups if group in present}


def _connected(present: dict[GroupId, tuple[SiteId, ...]], unions: Iterable[Destination]) -> list[tuple[GroupId, ...]]:
    """Return the groups that hang together through those who are there: only they need one order."""
    with_it = {group: [group] for group in present}  # the groups of its part
    at: dict[SiteId, GroupId] = {}
    pairs = [(group, at.setdefault(site, group)) for group in present for site in present[group]]
    pairs += [(union[0], other) for union in unions if present.keys() >= set(union) for other in union[1:]]
    for one, other in pairs:
        small, large = sorted((with_it[one], with_it[other]), key=len)
        if small is not large:
            large += small
            with_it |= dict.fromkeys(small, large)
    return sorted({tuple(sorted(part)) for part in with_it.values()})


def _one(
    draft: Setup,
    parts: tuple[tuple[GroupId, ...], ...],
    present: dict[GroupId, tuple[SiteId, ...]],
    unions: list[Destination],
) -> ClassSetup:
    groups = [group for part in parts for group in part]
    options = [draft.groups[group] for group in groups]
    return ClassSetup(
        id=ClassId(0, 0),
        parts=parts,
        members={group: present[group] for group in groups},
        named="",
        unions=tuple(union for union in unions if union[0] in groups),
        protocol=options[0].protocol,
        planner=options[0].planner,
        level=draft.level,
        causal=draft.causal,
        policy=Policy.ATOMIC if any(o.policy is Policy.ATOMIC for o in options) else Policy.AVAILABLE,
        delivery=max((o.delivery for o in options), key=list(Delivery).index),  # the strictest of its groups
        direct_bytes=max(o.direct_bytes for o in options) if all(o.direct_bytes for o in options) else 0,
        copies=max(o.copies for o in options),
    )


def _same(old: ClassSetup, new: ClassSetup | None) -> bool:
    """Whether nothing changes for a class: it keeps its id, its machines and its traffic."""
    if new is None:
        return False
    bare = msgspec.structs.replace(old, id=new.id, named="", plan=None, sequencers=())
    return bare == new


def _sequencers(
    made: Mapping[tuple[GroupId, ...], ClassSetup], kept: Iterable[ClassSetup], asked: Wanted
) -> dict[tuple[GroupId, ...], tuple[SiteId, ...]]:
    """Share the parts of new classes out among those who may sequence them and are there, beside what others have."""
    load: dict[SiteId, int] = {}
    for of_class in kept:
        sequencers = of_class.deployment.sequencers(of_class.id) if MACHINES[of_class.protocol].sequencers else ()
        for groups, site in zip(of_class.parts, sequencers, strict=False):
            load[site] = load.get(site, 0) + weight(_only(of_class.members, groups))
    out = {*asked.setup.away, *asked.silent, *asked.empty}
    named = {group: of_group.sequencers for group, of_group in asked.setup.groups.items()}
    parts = [
        (names, _only(of_class.members, part), sorted({s for group in part for s in named[group]} - out))
        for names, of_class in sorted(made.items())
        for part in (of_class.parts if MACHINES[of_class.protocol].sequencers else ())
    ]
    chosen = place([(members, named) for _, members, named in parts], load)
    found: dict[tuple[GroupId, ...], tuple[SiteId, ...]] = dict.fromkeys(made, ())
    for (names, _, _), site in zip(parts, chosen, strict=True):
        found[names] = (*found[names], site)
    return found


def _finished(made: ClassSetup, class_id: ClassId, sequencers: tuple[SiteId, ...], asked: Wanted) -> ClassSetup:
    """Give a class its id, its sources, its sequencers and, where its protocol needs one, its plan."""
    out = {*asked.setup.away, *(asked.silent if made.policy is Policy.AVAILABLE else ())} - made.sites
    named = "\n".join(sorted(asked.setup.sites.keys() - out))
    plan = None
    if MACHINES[made.protocol].plan:
        table = Membership.of(made.members).with_unions(made.unions)
        plan = make_plan(table, Request(made.planner, made.level, ClassRule.S1, budget=SEARCH)).plan
    return msgspec.structs.replace(made, id=class_id, named=named, plan=plan, sequencers=sequencers)


def _relevant(past: Iterable[Past], since: int) -> list[Past]:
    """Return the closed classes whose messages may be under way beside those of a class that is open since then.

    Beside them, or beside others that are: a class that was closed before all these were opened comes before them at
    every site.
    """
    while True:
        found = [one for one in past if one.closed > since]
        lower = min((one.opened for one in found), default=since)
        if lower >= since:
            return found
        since = lower


def _merged(past: Iterable[Past]) -> tuple[Past, ...]:
    """Return closed classes with the same sites as one."""
    by_sites: dict[tuple[SiteId, ...], Past] = {}
    for one in past:
        known = by_sites.get(one.sites, one)
        by_sites[one.sites] = Past(one.sites, min(known.opened, one.opened), max(known.closed, one.closed))
    return tuple(by_sites[sites] for sites in sorted(by_sites))


def _stay_open(
    old: Setup, made: dict[tuple[GroupId, ...], ClassSetup], past: tuple[Past, ...], carried: set[ClassId]
) -> set[ClassId]:
    """Return which classes may stay open: not those in a block with one that closes, opens or was closed meanwhile.

    A circle is found at the oldest of the classes in it that stay open.
    """
    while carried:
        closing = [tuple(c.sites) for class_id, c in old.classes.items() if class_id not in carried]
        staying = {old.classes[class_id].groups for class_id in carried}
        opening = [tuple(c.sites) for groups, c in made.items() if groups not in staying]
        touched = set[ClassId]()
        for epoch in {class_id.epoch for class_id in carried}:
            others = [*closing, *opening, *(one.sites for one in _relevant(past, epoch))]
            touched |= _entangled(old, others, {class_id for class_id in carried if class_id.epoch >= epoch}, epoch)
        if not touched:
            break
        carried = carried - touched
    return carried


def _entangled(old: Setup, others: list[tuple[SiteId, ...]], staying: set[ClassId], epoch: int) -> set[ClassId]:
    """Return the classes of an epoch that lie in one block with any of the others."""
    table = {f"other{index}": tuple(sorted(sites)) for index, sites in enumerate(others)}
    names = {f"class{class_id.epoch}-{class_id.index}": class_id for class_id in staying}
    table |= {name: tuple(old.classes[class_id].sites) for name, class_id in names.items()}
    return {
        names[name]
        for block in classes(Membership.of(table), ClassRule.BLOCKS)
        if any(name not in names for name in block)
        for name in block
        if name in names and names[name].epoch == epoch
    }
