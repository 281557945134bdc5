"""A whole deployment as data: which protocol on which groups, and the machine of each site."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ordercast.core.machine import Groups, Machine
from ordercast.errors import InputError
from ordercast.protocols.arrow import Arrow
from ordercast.protocols.combining import Combining
from ordercast.protocols.counting import ArrowCounter, CombiningCounter, CountingMulticast
from ordercast.protocols.hybrid import hybrid
from ordercast.protocols.lamport import Timestamp
from ordercast.protocols.propagation import Propagation
from ordercast.protocols.sequencing import Sequencing
from ordercast.protocols.swap import SwapMulticast, SwapObject
from ordercast.protocols.two_phase import TwoPhase
from ordercast.topology import Plan, Routes, SpanningTrees
from ordercast.types import SiteId

Promise = frozenset[str]


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


def _hybrid(deployment: Deployment) -> Promise:
    """Causal everywhere, total in each group: KIN's hybrid has no order across groups beyond causality."""
    alone = all(len(groups) == 1 for groups in deployment.groups.classes)
    return frozenset({"fifo", "causal"}) if deployment.causal and alone else _with_level(deployment)


def _propagation(deployment: Deployment, me: SiteId) -> Machine:
    d = deployment
    return Propagation(me, d.routes, causal=d.causal, receipts=d.receipts, patience=d.patience)


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
    "two-phase": (lambda d, me: TwoPhase(me, d.groups), lambda d: frozenset({"fifo", "total", "acyclic"})),
    "timestamp": (lambda d, me: Timestamp(me, d.groups), lambda d: frozenset({"fifo", "total", "acyclic"})),
}
