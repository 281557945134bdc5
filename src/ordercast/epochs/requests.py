"""Requests: what operators and applications ask for, and what a configuration is after one was carried out."""

import msgspec

from ordercast.epochs.setup import COPIES, GroupSetup, Setup
from ordercast.errors import LocalError
from ordercast.names import ClassId, Delivery, GroupId, Level, Planner, Policy, SiteId
from ordercast.protocols.registry import MACHINES, Causal


class Create(msgspec.Struct, frozen=True, array_like=True, tag="create"):
    """A group is created; options that are not given are those of the first group there is."""

    group: GroupId
    members: tuple[SiteId, ...]
    policy: Policy | None = None
    delivery: Delivery | None = None

    def __str__(self) -> str:
        return f"create {self.group} {','.join(self.members)}"


class Delete(msgspec.Struct, frozen=True, array_like=True, tag="delete"):
    """A group is deleted; what was sent to it and is not delivered is refused."""

    group: GroupId

    def __str__(self) -> str:
        return f"delete {self.group}"


class Join(msgspec.Struct, frozen=True, array_like=True, tag="join"):
    """A site becomes a member."""

    group: GroupId
    site: SiteId

    def __str__(self) -> str:
        return f"join {self.group} {self.site}"


class Leave(msgspec.Struct, frozen=True, array_like=True, tag="leave"):
    """A site is a member no more."""

    group: GroupId
    site: SiteId

    def __str__(self) -> str:
        return f"leave {self.group} {self.site}"


class AddSite(msgspec.Struct, frozen=True, array_like=True, tag="add"):
    """A site is added, or has another address now."""

    site: SiteId
    address: str = ""

    def __str__(self) -> str:
        return f"add {self.site}"


class RemoveSite(msgspec.Struct, frozen=True, array_like=True, tag="remove"):
    """A site is removed for good, from its groups too."""

    site: SiteId

    def __str__(self) -> str:
        return f"remove {self.site}"


class Set(msgspec.Struct, frozen=True, array_like=True, tag="set"):
    """Options of a group, and with it of its class, are changed."""

    group: GroupId
    protocol: str | None = None
    planner: Planner | None = None
    policy: Policy | None = None
    delivery: Delivery | None = None
    migrate: bool | None = None
    direct_bytes: int | None = None
    copies: int | None = None

    def __str__(self) -> str:
        migrate = {None: None, True: "migrate", False: "stay"}[self.migrate]
        direct = None if self.direct_bytes is None else f"direct={self.direct_bytes}"
        copies = None if self.copies is None else f"copies={self.copies}"
        given = (self.protocol, self.planner, self.policy, self.delivery, migrate, direct, copies)
        return f"set {self.group} {','.join(option for option in given if option)}"


class Move(msgspec.Struct, frozen=True, array_like=True, tag="move"):
    """The groups that are ordered with a group are sequenced by one of these sites; by a member when none is named."""

    group: GroupId
    sequencers: tuple[SiteId, ...]

    def __str__(self) -> str:
        return f"move {self.group} {','.join(self.sequencers)}"


class SetLevel(msgspec.Struct, frozen=True, array_like=True, tag="level"):
    """The level of the whole cluster is changed: all classes are made anew."""

    level: Level

    def __str__(self) -> str:
        return f"level {self.level}"


Change = Create | Delete | Join | Leave | AddSite | RemoveSite | Set | SetLevel | Move
Asked = tuple[SiteId, int, Change]
"""Who asks, its number for it, and what."""
Refusals = tuple[tuple[SiteId, int, str], ...]


KINDS: dict[str, type[Change]] = {
    "create": Create, "delete": Delete, "join": Join, "leave": Leave, "add": AddSite, "remove": RemoveSite, "set": Set,
    "level": SetLevel, "move": Move,
}  # fmt: skip


def read_change(what: str, group: GroupId, sites: tuple[SiteId, ...], options: dict[str, str]) -> Change:
    """Return a request that was made in words; raises LocalError for what is none."""
    kind, given = KINDS[what], dict[str, object](options)
    fields = {field.name: field.default for field in msgspec.structs.fields(kind)}
    if "group" in fields:
        given["group"] = group
    for several in ("members", "sequencers"):
        if several in fields:
            given[several] = sites
    if "site" in fields:
        _check(len(sites) == 1, f"{what} takes one site")
        given["site"] = sites[0]
    unknown = sorted(given.keys() - fields.keys())
    _check(not unknown, f"{what} takes no {', '.join(unknown)}")
    try:
        return msgspec.convert(
            [what, *(given.get(name, default) for name, default in fields.items())], kind, strict=False
        )
    except msgspec.ValidationError as error:
        raise LocalError(f"{what}: {error}") from None


class Wanted(msgspec.Struct, frozen=True, array_like=True):
    """What the next configuration is to be, before its classes are made; a manager asks its host to plan it."""

    setup: Setup
    """The next one, but for its classes."""
    touch: tuple[ClassId, ...]
    """Classes to be closed and opened anew, though nothing else of them changes."""
    refused: Refusals = ()
    finish: bool = False
    """Classes that close along their tree, and are held up, are closed by report."""
    silent: tuple[SiteId, ...] = ()
    """Who is suspected: classes that can go on without them are opened without them as sources (errata 115)."""
    empty: tuple[SiteId, ...] = ()
    """Who has an empty disk, and cannot be taken in now: nothing is sequenced there."""
    ballot: tuple[int, SiteId] = (0, "")
    """Whose plan it is: one that was begun before somebody was suspected comes too late (errata 127)."""


class Planned(msgspec.Struct, frozen=True, array_like=True):
    """The next configuration with its classes, and which classes of the one before are closed for it."""

    setup: Setup
    closed: tuple[ClassId, ...]
    refused: Refusals = ()
    ballot: tuple[int, SiteId] = (0, "")


def apply(setup: Setup, change: Change) -> Setup:
    """Return the configuration with one request carried out, its classes as they were; raises LocalError."""
    groups, sites = dict(setup.groups), dict(setup.sites)
    match change:
        case Create(group, members, policy, delivery):
            _check(group not in groups, f"there is a group {group!r} already")
            like = next(iter(groups.values()), GroupSetup(()))
            options: dict[str, object] = {"policy": policy or like.policy, "delivery": delivery or like.delivery}
            if len({of_group.sequencers for of_group in groups.values()}) > 1:
                options["sequencers"] = ()  # they were moved apart: nobody has said who is to sequence this one
            groups[group] = msgspec.structs.replace(like, members=tuple(sorted(set(members))), **options)
        case Delete(group):
            _check(group in groups, f"there is no group {group!r}")
            _check(not any(group in union for union in setup.unions), f"group {group!r} is in a declared union")
            del groups[group]
        case Join(group, site):
            _check(group in groups, f"there is no group {group!r}")
            _check(site not in groups[group].members, f"{site} is in {group} already")
            groups[group] = _with(groups[group], *groups[group].members, site)
        case Leave(group, site):
            _check(group in groups and site in groups[group].members, f"{site} is not in group {group!r}")
            there = [other for other in setup.members(group) if other != site]
            _check(bool(there), f"{site} is the last who is there in group {group!r}: what it has would be lost")
            groups[group] = _with(groups[group], *(other for other in groups[group].members if other != site))
        case AddSite(site, address):
            sites[site] = address
        case RemoveSite(site):
            _check(site in sites, f"there is no site {site!r}")
            del sites[site]
            _check(bool(sites), "the last site cannot be removed")
            groups = {n: _without(g, site) for n, g in groups.items()}
        case Set():
            groups = _set(setup, change)
        case Move(group, sequencers):
            groups = _move(setup, group, sequencers)
        case SetLevel(level):
            return msgspec.structs.replace(setup, level=level)
    for name, group_setup in groups.items():
        _check(bool(group_setup.members), f"group {name!r} would have no members")
        named = (*group_setup.members, *group_setup.sequencers)
        unknown = next((site for site in named if site not in sites), None)
        _check(unknown is None, f"group {name!r}: there is no site {unknown!r}")
        check_options(group_setup, causal=setup.causal)
    return msgspec.structs.replace(setup, sites=dict(sorted(sites.items())), groups=dict(sorted(groups.items())))


def _set(setup: Setup, change: Set) -> dict[GroupId, GroupSetup]:
    """Return the groups with the options of one class changed: groups that are ordered together share them."""
    _check(change.group in setup.groups, f"there is no group {change.group!r}")
    class_id = setup.class_of.get(change.group)
    together = setup.classes[class_id].groups if class_id is not None else (change.group,)
    if setup.causal:  # all groups are one class, also those that nobody is in now
        together = tuple(setup.groups)
    given = {
        "protocol": change.protocol,
        "planner": change.planner,
        "policy": change.policy,
        "delivery": change.delivery,
        "migrate": change.migrate,
        "direct_bytes": change.direct_bytes,
        "copies": change.copies,
    }
    options: dict[str, object] = {name: option for name, option in given.items() if option is not None}
    if change.protocol is not None:
        _check(change.protocol in MACHINES, f"there is no protocol {change.protocol!r}")
        if not MACHINES[change.protocol].sequencers:
            options |= {"sequencers": (), "migrate": False}
        if not MACHINES[change.protocol].direct:
            options |= {"direct_bytes": 0}
    return {n: msgspec.structs.replace(g, **options) if n in together else g for n, g in setup.groups.items()}


def _move(setup: Setup, group: GroupId, sequencers: tuple[SiteId, ...]) -> dict[GroupId, GroupSetup]:
    """Return the groups with those that are in one order with this one sequenced elsewhere."""
    _check(group in setup.groups, f"there is no group {group!r}")
    class_id = setup.class_of.get(group)
    protocol = setup.groups[group].protocol if class_id is None else setup.classes[class_id].protocol
    _check(MACHINES[protocol].sequencers, f"group {group!r}: protocol {protocol} has no sequencers")
    parts = setup.classes[class_id].parts if class_id is not None else ((group,),)
    together = next(part for part in parts if group in part)
    left = [name for name in together if name in setup.groups]  # others are deleted at the same time
    own = [name for name in left if MACHINES[setup.groups[name].protocol].sequencers]
    named = tuple(sorted(set(sequencers)))
    return {n: msgspec.structs.replace(g, sequencers=named) if n in own else g for n, g in setup.groups.items()}


def _without(group: GroupSetup, site: SiteId) -> GroupSetup:
    left = tuple(other for other in group.sequencers if other != site)
    return _with(msgspec.structs.replace(group, sequencers=left), *(other for other in group.members if other != site))


def _with(group: GroupSetup, *members: SiteId) -> GroupSetup:
    return msgspec.structs.replace(group, members=tuple(sorted(members)))


def _check(holds: bool, otherwise: str) -> None:
    if not holds:
        raise LocalError(otherwise)


def check_options(group: GroupSetup, *, causal: bool) -> None:
    """Refuse what would be promised and not kept."""
    if group.direct_bytes < 0:
        raise LocalError(f"direct_bytes is at least 0, not {group.direct_bytes}")
    if group.copies < COPIES:
        raise LocalError(f"copies is at least {COPIES}, not {group.copies}: one copy is delivery agreed")
    if (group.sequencers or group.migrate) and not MACHINES[group.protocol].sequencers:
        raise LocalError(f"protocol {group.protocol} has no sequencers")
    if group.direct_bytes and not MACHINES[group.protocol].direct:
        raise LocalError(f"direct_bytes: with protocol {group.protocol} bodies go the way of the order")
    if causal and MACHINES[group.protocol].causal is Causal.NEVER:
        raise LocalError(f"protocol {group.protocol} keeps no causal order ({MACHINES[group.protocol].no_causal})")
    if causal and group.policy is Policy.AVAILABLE and group.delivery is not Delivery.SAFE:
        # What is rolled back may have caused messages that stay (errata 22 iv).
        raise LocalError("causal order with policy available takes delivery safe")
