"""The registry of protocols, and a whole deployment as data: which protocol on which groups, and each site's machines.

What differs between protocols stands here and nowhere else: ask the registry instead of comparing names.
"""

from collections.abc import Callable, Collection
from enum import Enum
from functools import cached_property
from typing import Any

import msgspec

from ordercast.core.configuration import Configuration, Destination, OrderClass
from ordercast.core.machine import Machine
from ordercast.core.machines import Machines, Snapshot
from ordercast.core.snapshots import decode_snapshot, encode_snapshot
from ordercast.core.source import Source
from ordercast.errors import InputError, LocalError
from ordercast.names import ClassId, ClassRule, GroupId, Level, Shape, SiteId
from ordercast.planning.plan import Plan
from ordercast.planning.routes import Routes, SpanningTree
from ordercast.protocols.propagation.machine import Propagation, PropagationState
from ordercast.protocols.sequencing.machine import Sequencing
from ordercast.protocols.sequencing.parts import SequencingState
from ordercast.protocols.sequencing.placement import place
from ordercast.protocols.swap.arrow import Arrow
from ordercast.protocols.swap.combining import Combining
from ordercast.protocols.swap.counting import (
    ArrowCounter,
    CombiningCounter,
    Counter,
    CountingMulticast,
    CountingState,
)
from ordercast.protocols.swap.hybrid import hybrid
from ordercast.protocols.swap.multicast import SwapMulticast, SwapObject, SwapState
from ordercast.protocols.timestamp import Timestamp, TimestampState
from ordercast.protocols.two_phase import TwoPhase, TwoPhaseState

Promise = frozenset[str]


class Causal(Enum):
    """What a protocol needs for causal order."""

    NEVER = "never"
    """It keeps none."""
    ONE_PART = "one part"
    """All groups in one order."""
    APART = "apart"
    """Parts that share no site: streams of two parts that wait for each other's past can wait in a circle."""
    ANY = "any"
    """Any parts: its contexts cross them."""


Make = Callable[["Deployment", OrderClass, Source], Machine]


class Protocol(msgspec.Struct, frozen=True):
    """One protocol: how a machine is built, what it takes, what it promises."""

    make: Make
    state: type[msgspec.Struct]
    """What its machines give as a snapshot."""
    causal: Causal = Causal.ONE_PART
    plan: bool = False
    """It runs over a plan."""
    closes: bool = False
    """A class can be closed without stopping anybody (GS88 §5.1): its machines take `Finish`, and order an end."""
    names_earlier: bool = False
    """A message may name earlier ones that it comes after: when they are lost, it waits in vain (errata 88)."""
    tree: bool = False
    """It has a swap object or a counter, on a tree of any shape."""
    upper: bool = False
    """An upper part of its tree, of any height, is another one."""
    by_source: bool = False
    """Sources can multicast their messages themselves, or who finds the predecessor does (HTW00 §3, §4)."""
    receipts: bool = False
    """Sources can learn of the place and the safety of their messages."""
    sequencers: bool = False
    """One site per part orders it (`Deployment.sequencers`)."""
    direct: bool = False
    """Large bodies may go another way than the order (`Deployment.direct_bytes`)."""
    groups_alone: bool = False
    """With `causal` a part for each group makes sense: KIN's hybrid."""
    no_causal: str = ""
    """Why it keeps no causal order."""
    waits_for_sources: bool = False
    """A source that fails in the middle holds up the whole class (errata 51, 55), which therefore knows all of them:
    another one is only added by opening the class anew."""


def class_rule(protocol: str, level: Level, *, causal: bool) -> ClassRule | None:
    """Return which groups a protocol orders together for a promise; None for all of them."""
    if not causal:
        return ClassRule.for_level(level)
    return None if MACHINES[protocol].causal is Causal.ONE_PART else ClassRule.S1


class Deployment(msgspec.Struct, frozen=True, dict=True):
    """The groups, the plan where the protocol needs one, and options."""

    protocol: str
    groups: Configuration
    plan: Plan | None = None
    """Its classes are the orders of the configuration, in the same sequence."""
    level: str = "acyclic"
    """What the classes are right for: `total` or `acyclic`."""
    causal: bool = False
    receipts: bool = False
    """Sources learn of the place and the safety of their messages; where the protocol can tell."""
    patience: float = 0.0
    shape: Shape = Shape.BALANCED
    """The tree of a swap object, where the protocol has one."""
    upper: int = 1
    """With hybrid: so many levels below the root run the arrow."""
    by_source: bool = False
    """With a swap object: sources multicast their messages themselves (HTW00 §3)."""
    latencies: dict[tuple[SiteId, SiteId], float] = {}
    """For a tree by latency: of pairs of sites, in any order; others take 1."""
    direct_bytes: int = 0
    """Bodies of so many bytes or more go another way; 0: none. With sequencer from their senders to the members, with
    propagation past extra nodes."""
    placed: dict[ClassId, tuple[SiteId, ...]] = {}
    """The sequencer of each part of a class, where that was chosen: else it is the site in most groups."""

    def __post_init__(self) -> None:
        """Refuse what would be promised and not kept."""
        if self.protocol not in MACHINES:
            raise InputError(f"protocol is one of {', '.join(MACHINES)}, not {self.protocol!r}")
        if self.receipts and not self.kind.receipts:
            raise InputError(f"protocol {self.protocol} gives no receipts")
        if self.shape is not Shape.BALANCED and not self.kind.tree:
            raise InputError(f"protocol {self.protocol} has no tree of a swap object: --tree is for arrow and the like")
        if self.upper < 0 or (self.upper != 1 and not self.kind.upper):
            raise InputError(f"--upper is for hybrid, and at least 0; not {self.upper} for {self.protocol}")
        if self.by_source and not self.kind.by_source:
            raise InputError(
                f"protocol {self.protocol} has no swap object: --by-source is for arrow, combining, hybrid"
            )
        if self.direct_bytes < 0 or (self.direct_bytes and not self.kind.direct):
            able = ", ".join(name for name, kind in MACHINES.items() if kind.direct)
            raise InputError(f"direct_bytes is for {able}, and at least 0: not {self.direct_bytes}, {self.protocol}")
        if self.causal:
            self._check_causal()
        elif any(len(parts) > 1 for parts in self.groups.classes.values()):
            raise InputError("a class of several parts is for causal order")

    @property
    def kind(self) -> Protocol:
        """The protocol's entry in the registry."""
        return MACHINES[self.protocol]

    def _check_causal(self) -> None:
        if self.kind.causal is Causal.NEVER:
            raise InputError(f"protocol {self.protocol} keeps no causal order ({self.kind.no_causal})")
        if len(self.groups.classes) > 1:
            raise InputError("causal order binds all groups together: it takes one class")
        if self.kind.causal is Causal.ONE_PART and len(self.groups.orders) > 1:
            raise InputError(f"protocol {self.protocol} keeps causal order inside one part only; here are several")
        if self.kind.causal is Causal.APART:
            self._one_part_per_site()

    def _one_part_per_site(self) -> None:
        part_at: dict[SiteId, int] = {}
        for index, groups in enumerate(self.groups.orders):
            for site in self.groups.union(groups):
                if part_at.setdefault(site, index) != index:
                    raise InputError(
                        f"protocol {self.protocol} keeps causal order with classes s1: {site} is in two parts"
                    )

    def routes(self, class_id: ClassId) -> Routes:
        """Return the plan as a machine of the class reads it."""
        if self.plan is None:
            raise InputError(f"protocol {self.protocol} needs a plan")
        if class_id not in self._routes:
            self._routes[class_id] = Routes(self.plan, self.groups.orders_in(class_id))
        return self._routes[class_id]

    @cached_property
    def _routes(self) -> dict[ClassId, Routes]:
        return {}

    def tree(self, class_id: ClassId) -> SpanningTree:
        """Return the tree of the swap object of a class."""
        if class_id not in self._trees:
            self._trees[class_id] = SpanningTree(
                tuple(self.groups.order_class(class_id).sites), self.shape, self.latencies
            )
        return self._trees[class_id]

    @cached_property
    def _trees(self) -> dict[ClassId, SpanningTree]:
        return {}

    def sequencers(self, class_id: ClassId) -> tuple[SiteId, ...]:
        """Return the sequencer of each part: as chosen, or the site in most of its groups (ties: the first name)."""
        if class_id in self.placed:
            return self.placed[class_id]
        chosen = []
        for groups in self.groups.classes[class_id]:
            count: dict[SiteId, int] = {}
            for group in groups:
                for site in self.groups.members[group]:
                    count[site] = count.get(site, 0) + 1
            chosen.append(min(count, key=lambda site: (-count[site], site)))
        return tuple(chosen)

    def entry(self, groups: Destination) -> SiteId | None:
        """Return where messages to these groups enter the plan, None where there is none."""
        if self.plan is None:
            return None
        return self.routes(self.groups.destination(groups)).entry(groups)

    def orders(self, group: GroupId) -> SiteId | None:
        """Return the one site that orders a group: its sequencer, or its entry into the plan; None where none does."""
        if not self.kind.sequencers:
            return self.entry((group,))
        class_id = self.groups.destination((group,))
        part = next(index for index, groups in enumerate(self.groups.classes[class_id]) if group in groups)
        return self.sequencers(class_id)[part]

    def check(self, source: SiteId, groups: Destination) -> ClassId:
        """Return the class of a message of a site; raises LocalError when it may not be sent."""
        class_id = self.groups.origin(source, groups)
        self.entry(groups)
        return class_id

    @cached_property
    def sites(self) -> list[SiteId]:
        """Every site that runs machines: members, sources, and hubs of the plan."""
        sites = set(self.groups.everybody) | set(self.groups.sources)
        sites |= {site for chosen in self.placed.values() for site in chosen}
        if self.plan is not None:
            sites |= {site for edge in self.plan.edges for site in (edge.parent, edge.child)}
        return sorted(sites)

    def machines(self, me: SiteId, incarnation: int = 1) -> Machines:
        """Build the machines of one site."""
        if me not in self.sites:
            raise LocalError(f"{me!r} has no part in this: {', '.join(self.sites)}")
        return Machines(
            me, self.groups, lambda order_class, source: self.kind.make(self, order_class, source), incarnation
        )

    def encode(self, snapshot: Snapshot[Any]) -> bytes:
        """Return the snapshot of a site's machines as bytes."""
        return encode_snapshot(snapshot)

    def decode(self, data: bytes) -> Snapshot[Any]:
        """Return a snapshot from bytes; raises HistoryError when they are none of this protocol."""
        return decode_snapshot(data, self._decoder)

    @cached_property
    def _decoder(self) -> "msgspec.msgpack.Decoder[Snapshot[Any]]":
        kind: Any = Snapshot[self.kind.state]  # type: ignore[name-defined]
        return msgspec.msgpack.Decoder(kind)

    @property
    def promises(self) -> Promise:
        """What the protocol declares with these classes and options; tests hold it to exactly that.

        With a part for each group there is no order across groups beyond causality: KIN's hybrid.
        """
        if self.causal and self.kind.groups_alone and all(len(groups) == 1 for groups in self.groups.orders):
            return frozenset({"fifo", "causal"})
        level = {"total"} if self.level == "total" else {"total", "acyclic"}
        return frozenset({"fifo", *level, *(["causal"] if self.causal else [])})


def placed(groups: Configuration, named: Collection[SiteId]) -> dict[ClassId, tuple[SiteId, ...]]:
    """Share the parts of all classes out among the sites that may sequence; nothing when nobody is named."""
    if not named:
        return {}
    orders = [(class_id, part) for class_id, parts in groups.classes.items() for part in parts]
    chosen = place([({group: groups.members[group] for group in part}, named) for _, part in orders])
    found: dict[ClassId, tuple[SiteId, ...]] = {}
    for (class_id, _), site in zip(orders, chosen, strict=True):
        found[class_id] = (*found.get(class_id, ()), site)
    return found


def _propagation(d: Deployment, order_class: OrderClass, source: Source) -> Machine:
    return Propagation(
        order_class, source, d.routes(order_class.id),
        causal=d.causal, receipts=d.receipts, patience=d.patience, direct_bytes=d.direct_bytes,
    )  # fmt: skip


def _sequencing(d: Deployment, order_class: OrderClass, source: Source) -> Machine:
    sequencers = d.sequencers(order_class.id)
    return Sequencing(
        order_class, source, sequencers, causal=d.causal, patience=d.patience, direct_bytes=d.direct_bytes
    )


def _swap(make: Callable[[SiteId, SpanningTree], SwapObject]) -> Make:
    def machine(d: Deployment, order_class: OrderClass, source: Source) -> Machine:
        tree = d.tree(order_class.id)
        swap_object = make(source.me, tree) if source.me in tree else None
        return SwapMulticast(order_class, source, tree, swap_object, by_source=d.by_source)

    return machine


def _hybrid(d: Deployment, order_class: OrderClass, source: Source) -> Machine:
    return _swap(lambda me, tree: hybrid(me, tree, d.upper))(d, order_class, source)


def _counting(make: Callable[[SiteId, SiteId | None], Counter]) -> Make:
    def machine(d: Deployment, order_class: OrderClass, source: Source) -> Machine:
        tree = d.tree(order_class.id)
        counter = make(source.me, tree.parent(source.me)) if source.me in tree else None
        return CountingMulticast(order_class, source, tree, counter)

    return machine


MACHINES: dict[str, Protocol] = {
    "propagation": Protocol(
        _propagation,
        PropagationState,
        Causal.APART,
        plan=True,
        closes=True,
        names_earlier=True,
        receipts=True,
        direct=True,
    ),
    "sequencer": Protocol(
        _sequencing, SequencingState, Causal.ANY, closes=True, sequencers=True, direct=True, groups_alone=True
    ),
    "arrow": Protocol(
        _swap(lambda me, tree: Arrow(me, tree.parent(me))), SwapState, tree=True, closes=True, by_source=True
    ),
    "combining": Protocol(
        _swap(lambda me, tree: Combining(me, tree.parent(me))), SwapState, tree=True, closes=True, by_source=True
    ),
    "hybrid": Protocol(_hybrid, SwapState, tree=True, closes=True, upper=True, by_source=True),
    "arrow-counting": Protocol(_counting(ArrowCounter), CountingState, tree=True),
    "combining-counting": Protocol(_counting(CombiningCounter), CountingState, tree=True),
    "two-phase": Protocol(
        lambda _, order_class, source: TwoPhase(order_class, source),
        TwoPhaseState,
        Causal.NEVER,
        no_causal="errata 54; timestamp and sequencer do",
        waits_for_sources=True,
    ),
    "timestamp": Protocol(
        lambda _, order_class, source: Timestamp(order_class, source),
        TimestampState,
        waits_for_sources=True,
    ),
}
