"""A configuration as a value: sites, groups, the council, and the classes that are open in it.

A class never changes: it is closed, and others are opened. So a class carries everything that its machines are built
with, and a configuration carries its classes. `epochs.change` makes the next configuration of one.
"""

import hashlib
from functools import cached_property

import msgspec

from ordercast.core.configuration import Configuration, Destination, Members, OrderClass, sites_of
from ordercast.core.machine import Machine
from ordercast.core.source import Source
from ordercast.errors import LocalError
from ordercast.names import ClassId, Delivery, GroupId, Level, Planner, Policy, SiteId
from ordercast.planning.plan import Plan
from ordercast.protocols.registry import MACHINES, Deployment

COUNCIL = 5  # sites that vote, at most
COPIES = 2  # with delivery `copied`: so many members have a message before an application gets it


class GroupSetup(msgspec.Struct, frozen=True, array_like=True):
    """One group as its operator wants it."""

    members: tuple[SiteId, ...]
    protocol: str = "propagation"
    planner: Planner = Planner.ELIMINATION
    policy: Policy = Policy.ATOMIC
    delivery: Delivery = Delivery.AGREED
    sequencers: tuple[SiteId, ...] = ()
    """Who may sequence it, where its protocol has sequencers; without any, a member does."""
    migrate: bool = False
    """Its sequencer asks to be moved to the site that sends most."""
    direct_bytes: int = 0
    """With sequencer: bodies of so many bytes or more go from their senders to the members directly; 0: none."""
    copies: int = COPIES
    """With delivery `copied`: so many members have a message before an application gets it."""


class ClassSetup(msgspec.Struct, frozen=True, array_like=True, dict=True):
    """One class: the groups that are ordered together, who is in them, and how."""

    id: ClassId
    parts: tuple[tuple[GroupId, ...], ...]
    members: Members
    """Who is in the groups now: those who were taken out for a while are not."""
    named: str
    """All sites there were when the class was opened, one a line: as many strings would be most of a configuration."""
    unions: tuple[Destination, ...]
    protocol: str
    planner: Planner
    level: Level
    causal: bool
    policy: Policy
    delivery: Delivery
    plan: Plan | None = None
    sequencers: tuple[SiteId, ...] = ()
    """Who sequences each part, where the protocol has sequencers."""
    direct_bytes: int = 0
    copies: int = COPIES

    def __hash__(self) -> int:
        return hash(self.id)

    @cached_property
    def sources(self) -> tuple[SiteId, ...]:
        """Who may send: all sites there were when the class was opened."""
        return tuple(self.named.split("\n")) if self.named else ()

    @cached_property
    def groups(self) -> tuple[GroupId, ...]:
        """All groups of the class."""
        return tuple(group for part in self.parts for group in part)

    @cached_property
    def sites(self) -> frozenset[SiteId]:
        """Every member of every group."""
        return frozenset(sites_of(self.members, self.members))

    @cached_property
    def nodes(self) -> frozenset[SiteId]:
        """Members, extra nodes of the plan, and sequencers: whoever passes on what is sent."""
        edges = self.plan.edges if self.plan is not None else []
        entries = [group.entry for group in self.plan.groups.values()] if self.plan is not None else []
        extra = {site for edge in edges for site in (edge.parent, edge.child)}
        return self.sites | extra | set(entries) | set(self.sequencers)

    @cached_property
    def needed(self) -> frozenset[SiteId]:
        """Whose failure stops the class: its nodes, and every source where one that is silent holds up all others."""
        waits = MACHINES[self.protocol].waits_for_sources
        return self.nodes | (set(self.sources) if waits else set())

    @cached_property
    def remembered(self) -> frozenset[SiteId]:
        """Whose lost disk stops the class: those it needs, and sources whose messages name earlier ones (errata 88).

        An earlier one that was under way, and is lost with the disk of its source, is waited for in vain.
        """
        names = MACHINES[self.protocol].names_earlier and len(self.groups) > 1
        return self.needed | (set(self.sources) if names and (self.unions or self.level is Level.ACYCLIC) else set())

    @cached_property
    def open(self) -> bool:
        """Whether any site may send, also one that was added later."""
        return not MACHINES[self.protocol].waits_for_sources

    def ordered_by(self, group: GroupId) -> SiteId | None:
        """Return the one site that orders a group, None where none does."""
        return self.deployment.orders(group)

    def destinations(self, groups: Destination) -> tuple[SiteId, ...]:
        """Return who gets a message to these groups."""
        return self.order_class.union(groups)

    @cached_property
    def order_class(self) -> OrderClass:
        """The class as its machines take it."""
        return OrderClass(self.id, self.parts, self.members, self.sources, self.unions, open=self.open)

    @cached_property
    def deployment(self) -> Deployment:
        """What machines of this class are built from."""
        table = Configuration(self.members, {self.id: self.parts}, self.sources, self.id.epoch, self.unions)
        receipts = self.causal and MACHINES[self.protocol].receipts
        placed = {self.id: self.sequencers} if self.sequencers else {}
        return Deployment(
            self.protocol, table, self.plan, self.level, self.causal, receipts,
            direct_bytes=self.direct_bytes, placed=placed,
        )  # fmt: skip

    def machine(self, source: Source) -> Machine:
        """Build a site's machine."""
        return self.deployment.kind.make(self.deployment, self.order_class, source)

    def check(self, source: SiteId, groups: Destination) -> None:
        """Raise LocalError with the reason when a message of a site cannot be sent to these groups in this class."""
        self.order_class.origin(source, groups)
        if len(groups) > 1 and self.level is Level.TOTAL and groups not in self.unions:
            # A class that opens later may share two sites with the union while the message is under way (errata 79).
            raise LocalError(f"groups that change, level total: declare the union {'+'.join(groups)}")
        self.deployment.entry(groups)


class Past(msgspec.Struct, frozen=True, array_like=True):
    """A class that was closed: its sites, and the configurations in which it was opened and closed."""

    sites: tuple[SiteId, ...]
    opened: int
    closed: int


class Setup(msgspec.Struct, frozen=True, array_like=True, dict=True):
    """Configuration number `number`. The council of each decides on the next."""

    number: int
    sites: dict[SiteId, str]
    """With their addresses."""
    groups: dict[GroupId, GroupSetup]
    level: Level
    causal: bool
    unions: tuple[Destination, ...]
    council: tuple[SiteId, ...]
    classes: dict[ClassId, ClassSetup]
    away: dict[SiteId, tuple[GroupId, ...]] = {}
    """Sites that were taken out of groups because they were suspected; they come back when they are trusted again."""
    partly: tuple[SiteId, ...] = ()
    """Sites that were taken out of some of their groups and were members of others meanwhile: what they missed of the
    first comes too late among what they have seen of the others, so they are given states (errata 82)."""
    past: tuple[Past, ...] = ()
    """Closed classes whose messages may still be under way beside those of a class that is open since then."""
    lives: dict[SiteId, tuple[int, int]] = {}
    """Sites that came with an empty disk: their incarnation, and the number of the configuration that took them in."""
    answered: dict[SiteId, tuple[int, ...]] = {}
    """For each site which of its requests were answered: all up to the first number, and the others by name."""
    founders: dict[SiteId, int] = {}
    """The sites of the first configuration, and the incarnation in which each of them began."""
    disks: int = 0
    """The configuration that last took in a site whose disk was lost; one that was added, and is new, has lost none."""

    def members(self, group: GroupId) -> tuple[SiteId, ...]:
        """Return who is in a group now."""
        wanted = self.groups[group].members
        if not self.away:
            return wanted
        return tuple(site for site in wanted if group not in self.away.get(site, ()))

    @cached_property
    def class_of(self) -> dict[GroupId, ClassId]:
        """The class of each group; a group that nobody is in has none."""
        return {group: class_id for class_id, setup in self.classes.items() for group in setup.groups}

    def may_undo(self, group: GroupId) -> bool:
        """Whether what was delivered to a group may be rolled back."""
        of_group = self.groups[group]
        return of_group.policy is Policy.AVAILABLE and of_group.delivery is not Delivery.SAFE

    def classes_at(self, site: SiteId) -> list[ClassId]:
        """Return the classes in which a site is a member, sorted."""
        return sorted(class_id for class_id, setup in self.classes.items() if site in setup.sites)

    def destination(self, source: SiteId, groups: Destination) -> ClassId | None:
        """Return the class of a message; None while nobody is there to get it. Raises LocalError when it cannot be."""
        for group in groups:
            if group not in self.groups:
                raise LocalError(f"there is no group {group!r}")
        if source not in self.sites:
            raise LocalError(f"{source} is not one of the sites")
        found = {self.class_of.get(group) for group in groups}
        if None in found:
            return None
        if len(found) > 1:
            raise LocalError(f"groups {', '.join(groups)} are ordered apart: declare the union {'+'.join(groups)}")
        class_id = found.pop()
        assert class_id is not None
        if self.classes[class_id].order_class.is_source(source):
            self.classes[class_id].check(source, groups)
        return class_id

    def is_member(self, site: SiteId) -> bool:
        """Whether a site is in any group now."""
        return any(site in of_class.sites for of_class in self.classes.values())

    def has_answered(self, site: SiteId, request: int) -> bool:
        """Whether a request of a site was answered, in this configuration or in an earlier one."""
        upto, *beyond = self.answered.get(site, (0,))
        return request <= upto or request in beyond

    def answering(self, site: SiteId, request: int) -> "Setup":
        """Return the configuration with one more request answered; earlier ones may wait still (errata 104)."""
        upto, *beyond = self.answered.get(site, (0,))
        left = sorted({*beyond, request})
        while left and left[0] == upto + 1:
            upto = left.pop(0)
        return msgspec.structs.replace(self, answered={**self.answered, site: (upto, *left)})

    @cached_property
    def digest(self) -> str:
        """A hash of everything: sites that begin a cluster together must have been told the same."""
        return hashlib.sha256(msgspec.msgpack.encode(self)).hexdigest()[:16]

    @property
    def majority(self) -> int:
        """How many of the council must agree."""
        return len(self.council) // 2 + 1


def nothing(causal: bool = False) -> Setup:
    """Return what a site without a history knows: no configuration at all."""
    return Setup(0, {}, {}, Level.ACYCLIC, causal, (), (), {})


def council_of(sites: dict[SiteId, str], away: dict[SiteId, tuple[GroupId, ...]]) -> tuple[SiteId, ...]:
    """Return who votes: all sites up to five, else five, those who are there first."""
    return tuple(sorted(sorted(sites, key=lambda site: (site in away, site))[:COUNCIL]))
