"""A whole deployment as data: which protocol on which groups, and the machine of each site."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ordercast.core.machine import Groups, Machine
from ordercast.errors import InputError
from ordercast.names import ClassRule, Level, SiteId
from ordercast.planning.plan import Plan
from ordercast.planning.routes import Routes, SpanningTrees
from ordercast.protocols.propagation import Propagation
from ordercast.protocols.sequencing import Sequencing
from ordercast.protocols.swap.arrow import Arrow
from ordercast.protocols.swap.combining import Combining
from ordercast.protocols.swap.counting import ArrowCounter, CombiningCounter, CountingMulticast
from ordercast.protocols.swap.hybrid import hybrid
from ordercast.protocols.swap.multicast import SwapMulticast, SwapObject
from ordercast.protocols.timestamp import Timestamp
from ordercast.protocols.two_phase import TwoPhase

Promise = frozenset[str]


def class_rule(protocol: str, level: Level, *, causal: bool) -> ClassRule | None:
    """Return which groups a protocol orders together for a promise; None for all of them."""
    if protocol in ONE_ORDER or (causal and protocol in SWAPS):
        return None
    return ClassRule.S1 if causal else ClassRule.for_level(level)


@dataclass(frozen=True)
class Deployment:
    """The groups, the plan where the protocol needs one, and options."""

    protocol: str
    groups: Groups
    plan: Plan | None = None
    level: str = "acyclic"
    """What the classes are right for: `total` or `acyclic`."""
    causal: bool = False
    receipts: bool = False
    """Sources learn of the place and the safety of their messages (propagation only; for live sites)."""
    patience: float = 0.0

    def __post_init__(self) -> None:
        """Refuse what would be promised and not kept."""
        if self.protocol not in MACHINES:
            raise InputError(f"protocol is one of {', '.join(MACHINES)}, not {self.protocol!r}")
        if self.protocol in ONE_ORDER and len(self.groups.classes) > 1:
            raise InputError(f"protocol {self.protocol} orders all groups together: it takes one class")
        if not self.causal:
            return
        if self.protocol == "two-phase":
            raise InputError("protocol two-phase keeps no causal order (errata 54); timestamp and sequencer do")
        if self.protocol in SWAPS and len(self.groups.classes) > 1:
            raise InputError(f"protocol {self.protocol} keeps causal order inside one class only; here are several")
        if self.protocol == "propagation":
            self._one_class_per_site()

    def _one_class_per_site(self) -> None:
        """Streams of two classes that wait for each other's past can wait in a circle."""
        class_at: dict[SiteId, int] = {}
        for index, groups in enumerate(self.groups.classes):
            for site in self.groups.union(groups):
                if class_at.setdefault(site, index) != index:
                    raise InputError(
                        f"protocol propagation keeps causal order with classes s1: {site} is in two classes"
                    )

    @cached_property
    def routes(self) -> Routes:
        """The plan as the propagation machine reads it."""
        if self.plan is None:
            raise InputError(f"protocol {self.protocol} needs a plan")
        return Routes(self.plan)

    @cached_property
    def trees(self) -> SpanningTrees:
        """The trees of the swap objects."""
        return SpanningTrees(self.groups.members, self.groups.classes)

    @cached_property
    def sequencers(self) -> dict[int, SiteId]:
        """One sequencer per class: the site in most of its groups (ties: the first name)."""
        chosen = {}
        for index, groups in enumerate(self.groups.classes):
            count: dict[SiteId, int] = {}
            for group in groups:
                for site in self.groups.members[group]:
                    count[site] = count.get(site, 0) + 1
            chosen[index] = min(count, key=lambda site: (-count[site], site))
        return chosen

    @property
    def sites(self) -> list[SiteId]:
        """Every site that runs a machine: members, sources, and hubs of the plan."""
        sites = {site for members in self.groups.members.values() for site in members} | set(self.groups.sources)
        if self.plan is not None:
            sites |= {site for edge in self.plan.edges for site in (edge.parent, edge.child)}
        return sorted(sites)

    def _shared(self) -> list[object]:
        """What all machines read and none changes."""
        return [self.groups, self.trees, self.sequencers, *([self.routes] if self.plan is not None else [])]

    def freeze(self, machine: Machine) -> dict[str, Any]:
        """Return what may change of a machine: with `thaw`, all there is to it."""
        shared = self._shared()
        return {k: v for k, v in vars(machine).items() if k != "me" and not any(v is one for one in shared)}

    def thaw(self, me: SiteId, state: dict[str, Any]) -> Machine:
        """Build a machine with this state."""
        machine = self.machine(me)
        vars(machine).update(state)
        return machine

    def machine(self, me: SiteId) -> Machine:
        """Build the machine of one site."""
        return MACHINES[self.protocol][0](self, me)

    @property
    def promises(self) -> Promise:
        """What the protocol declares with these classes and options; tests hold it to exactly that."""
        return MACHINES[self.protocol][1](self)


def _with_level(deployment: Deployment) -> Promise:
    level = {"total"} if deployment.level == "total" else {"total", "acyclic"}
    causal = {"causal"} if deployment.causal else set()
    return frozenset({"fifo", *level, *causal})


def _one_order(deployment: Deployment) -> Promise:
    """All groups in one sequence; causal order comes with it where the option is accepted."""
    return frozenset({"fifo", "total", "acyclic"} | ({"causal"} if deployment.causal else set()))


def _hybrid(deployment: Deployment) -> Promise:
    """Causal everywhere, total in each group: KIN's hybrid has no order across groups beyond causality."""
    alone = all(len(groups) == 1 for groups in deployment.groups.classes)
    return frozenset({"fifo", "causal"}) if deployment.causal and alone else _with_level(deployment)


def _propagation(deployment: Deployment, me: SiteId) -> Machine:
    d = deployment
    return Propagation(me, d.groups, d.routes, causal=d.causal, receipts=d.receipts, patience=d.patience)


def _arrow(me: SiteId, trees: SpanningTrees, order_class: int) -> SwapObject:
    return Arrow(me, trees.parent(order_class, me))


def _combining(me: SiteId, trees: SpanningTrees, order_class: int) -> SwapObject:
    return Combining(me, trees.parent(order_class, me))


MACHINES: dict[str, tuple[Callable[[Deployment, SiteId], Machine], Callable[[Deployment], Promise]]] = {
    "propagation": (_propagation, _with_level),
    "sequencer": (lambda d, me: Sequencing(me, d.groups, d.sequencers, causal=d.causal), _hybrid),
    "arrow": (lambda d, me: SwapMulticast(me, d.groups, d.trees, _arrow), _with_level),
    "combining": (lambda d, me: SwapMulticast(me, d.groups, d.trees, _combining), _with_level),
    "hybrid": (lambda d, me: SwapMulticast(me, d.groups, d.trees, hybrid), _with_level),
    "arrow-counting": (lambda d, me: CountingMulticast(me, d.groups, d.trees, ArrowCounter), _with_level),
    "combining-counting": (lambda d, me: CountingMulticast(me, d.groups, d.trees, CombiningCounter), _with_level),
    "two-phase": (lambda d, me: TwoPhase(me, d.groups), _one_order),
    "timestamp": (lambda d, me: Timestamp(me, d.groups), _one_order),
}
ONE_ORDER = ("two-phase", "timestamp")
"""Machines that put everything into one order: all groups are one class."""
SWAPS = ("arrow", "combining", "hybrid", "arrow-counting", "combining-counting")
"""One object per class: what comes before and after it through another class, it does not see."""
