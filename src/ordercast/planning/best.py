"""`best`: our search for a plan with little delay, few extra nodes or little load.

Starts from the known planners and anneals over all trees (see `annealing`), every class at once because a site's load
sums over its classes. Sites outside a class join it as idle hubs; one that stays idle costs nothing and is in no route.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ordercast.errors import PlanError
from ordercast.membership.table import Indices
from ordercast.names import Objective
from ordercast.planning import annealing
from ordercast.planning.annealing import EXCESS, State
from ordercast.planning.forest import ClassGraph, Forest
from ordercast.planning.request import Budget, Weights

Progress = Callable[[float], None]

# What the sums (DEPTH, EXTRA, EXCESS, SQUARES) cost while annealing. One hop of one group is 1 for `delay`; the squares
# of the loads break ties toward even load. Measured on the instances of benchmarks/plan_quality.py: halving or doubling
# a price or a heat moves the mean depth by less than 5 %.
PRICES = {
    Objective.DELAY: np.array([1.0, 0.002, 0.3, 0.0003]),
    Objective.EXTRA: np.array([0.01, 1.0, 0.3, 0.0003]),
    Objective.LOAD: np.array([0.05, 0.002, 0.3, 0.0003]),
}
# What counts when a tree is kept: the objective, then the other means, then even load.
GOALS = {
    Objective.DELAY: np.array([1.0, 1e-5, 0.0, 1e-8]),
    Objective.EXTRA: np.array([1e-4, 1.0, 0.0, 1e-8]),
    Objective.LOAD: np.array([1e-3, 1e-5, 0.0, 1e-8]),
}
HOT, COLD, WARM = 1.0, 0.1, 0.3
# The price of excess load follows the search: up while there is some, down while there is none.
DEARER, CHEAPER = 1.15, 0.9
CHUNKS = 200
HUB_CLASSES_AT_MOST = 32
STEPS_TO_CALIBRATE = 20_000
TWO_SECONDS = Budget()


@dataclass(frozen=True)
class Found:
    """The best forest and the steps the search made: as a budget they give the same forest again."""

    forest: Forest
    steps: int


def best(
    graph: ClassGraph,
    starts: list[Forest],
    cap: int,
    objective: Objective = Objective.DELAY,
    weights: Weights | None = None,
    budget: Budget = TWO_SECONDS,
    seed: int = 0,
    progress: Progress = lambda fraction: None,
) -> Found:
    """Search for a forest that is best on the objective among those whose busiest site handles at most `cap`.

    Never worse than a start that keeps to the cap. The same seed and steps give the same forest.
    """
    return _Search(graph, objective, weights, cap, seed, progress).run(starts, budget)


class _Search:
    def __init__(
        self,
        graph: ClassGraph,
        objective: Objective,
        weights: Weights | None,
        cap: int,
        seed: int,
        progress: Progress,
    ) -> None:
        self.graph, self.objective, self.cap, self.seed, self.progress = graph, objective, cap, seed, progress
        groups = len(graph.labels)
        self.weight = np.ones(groups) if weights is None else weights * (groups / weights.sum())
        self.hub_site, self.hub_class = _idle_hubs(graph)
        self.found: Forest | None = None
        self.score: tuple[float, ...] = (math.inf,)
        self.lowest_load = math.inf
        self.steps = self.total = 0

    def run(self, starts: list[Forest], budget: Budget) -> Found:
        """Anneal from the best start; then polish: less load for the same objective, or less delay for the load."""
        for start in starts:
            self._offer(start)
        start = self.found or starts[0]
        self.total = budget.steps if budget.steps is not None else self._affordable(start, budget.seconds)
        polish = self.total // 5
        lowering = self.objective is Objective.LOAD
        self._offer(self._anneal(start, self.cap, self.objective, HOT, self.total - polish, lower_cap=lowering))
        if self.found is None:
            raise PlanError(f"no plan found with a load of at most {self.cap} (lowest tried: {self.lowest_load})")
        if lowering:
            self._offer(self._anneal(self.found, int(self.score[0]), Objective.DELAY, WARM, polish))
        else:  # less load for nothing
            load = int(self.found.load.max())
            self._offer(self._anneal(self.found, load - 1, self.objective, WARM, polish, self.score[0], lower_cap=True))
        return Found(self.found, self.total)

    def _offer(self, forest: Forest | None) -> None:
        """Keep a forest if it is within the cap and the best so far."""
        if forest is None:
            return
        depth, extra, load = self._sum(forest.depth), self._sum(forest.extra), int(forest.load.max())
        by_objective = {
            Objective.DELAY: (depth, load, extra),
            Objective.EXTRA: (extra, load, depth),
            Objective.LOAD: (load, depth, extra),
        }
        score = tuple(round(part, 6) for part in by_objective[self.objective])
        self.lowest_load = min(self.lowest_load, load)
        if load <= self.cap and score < self.score:
            self.found, self.score = forest, score

    def _sum(self, per_group: NDArray[np.integer]) -> float:
        return float((per_group * self.weight).sum())

    def _anneal(
        self,
        start: Forest,
        cap: int,
        objective: Objective,
        hot: float,
        steps: int,
        limit: float = math.inf,
        *,
        lower_cap: bool = False,
    ) -> Forest | None:
        """Return the best forest without excess that a run of the annealing met, if it met one."""
        state = self._state(start, cap)
        price, goal = PRICES[objective].copy(), GOALS[objective]
        best, parent, node_at = np.array([math.inf]), state.parent.copy(), state.node_at.copy()
        chunk = max(steps // CHUNKS, 1)
        for at in range(0, steps, chunk):
            upto = min(at + chunk, steps)
            span = (at, upto, steps)
            annealing.anneal(state, price, goal, hot, COLD, *span, best, parent, node_at, lower_cap, limit + 0.01)
            price[EXCESS] *= DEARER if state.sums[EXCESS] else CHEAPER
            price[EXCESS] = min(max(price[EXCESS], 0.01), 100.0)
            self.steps += upto - at
            self.progress(self.steps / self.total)
        return self._forest(parent, node_at) if best[0] < math.inf else None

    def _affordable(self, start: Forest, seconds: float) -> int:
        """Measure how many steps fit: on a scrap copy, so that the search itself depends on the steps alone."""
        state = self._state(start, self.cap)
        price = PRICES[self.objective]
        scrap = (np.array([math.inf]), state.parent.copy(), state.node_at.copy(), False, 0.0)
        annealing.anneal(state, price, price, HOT, COLD, 0, 1, 1, *scrap)
        for steps in (STEPS_TO_CALIBRATE // 100, STEPS_TO_CALIBRATE):
            begun = time.perf_counter()
            annealing.anneal(state, price, price, HOT, COLD, 0, steps, steps, *scrap)
            took = time.perf_counter() - begun
            if took > 0.01 * seconds:  # not compiled: a few steps are measure enough
                break
        return max(int(steps * seconds / took), 1)

    def _state(self, forest: Forest, cap: int) -> State:
        graph = self.graph
        nodes, hubs, groups = len(graph.node_site), len(self.hub_site), len(graph.labels)
        places = nodes + hubs
        place_class = np.concatenate([graph.node_class, self.hub_class])
        parent = np.concatenate([forest.parent[:nodes], np.full(hubs, -1, np.int32)])
        if len(forest.parent) == places and np.array_equal(forest.hub_site, self.hub_site):
            parent = forest.parent.copy()
        else:  # the start knows nothing of our hubs: they wait below the root of their class
            roots = np.empty(int(graph.labels.max()) + 1, np.int32)
            tops = np.flatnonzero(parent[:nodes] < 0).astype(np.int32)
            roots[graph.node_class[tops]] = tops
            parent[nodes:] = roots[self.hub_class]
        own_places = np.arange(places, dtype=np.int32)
        state = State(
            group_ptr=graph.membership.group_ptr,
            member_node=graph.member_node,
            node_ptr=np.concatenate([graph.node_ptr, np.full(hubs, graph.node_ptr[-1])]),
            node_groups=graph.node_groups,
            class_ptr=np.concatenate([[0], np.cumsum(np.bincount(place_class))]),
            class_places=np.argsort(place_class, kind="stable").astype(np.int32),
            place_class=place_class,
            weight=self.weight,
            cap=np.array([cap]),
            parent=np.full(places, -1, np.int32),
            first_child=np.full(places, -1, np.int32),
            next_sibling=np.full(places, -1, np.int32),
            previous_sibling=np.full(places, -1, np.int32),
            depth=np.zeros(places, np.int32),
            node_at=own_places.copy(),
            place_of=own_places.copy(),
            site_at=np.concatenate([graph.node_site, self.hub_site]),
            entry=np.zeros(groups, np.int32),
            load=np.zeros(len(graph.membership.sites), np.int64),
            sums=np.zeros(4),
            stamp=np.zeros(places, np.int64),
            clock=np.zeros(2, np.int64),
            group_stamp=np.zeros(groups, np.int64),
            queue=np.empty(places, np.int32),
            touched=np.empty(groups, np.int32),
            chance=np.array([(2 * self.seed + 1) * 0x9E3779B97F4A7C15 % 2**64], np.uint64),
        )
        annealing.prepare(state, parent)
        return state

    def _forest(self, place_parent: Indices, node_at: Indices) -> Forest:
        parent = np.full(len(place_parent), -1, np.int32)
        below = place_parent >= 0
        parent[node_at[below]] = node_at[place_parent[below]]
        return Forest.of(self.graph, parent, hub_site=self.hub_site)


def _idle_hubs(graph: ClassGraph) -> tuple[Indices, Indices]:
    """Offer each of the larger classes the least busy sites outside it, one for every two of its groups."""
    degree = np.diff(graph.membership.site_ptr)
    by_degree = np.lexsort((np.arange(len(degree)), degree)).astype(np.int32)
    sizes = np.bincount(graph.labels)
    largest = np.argsort(-sizes, kind="stable")[:HUB_CLASSES_AT_MOST]
    sites, classes = [np.empty(0, np.int32)], [np.empty(0, np.int32)]
    for label in largest[sizes[largest] > 1]:
        inside = np.zeros(len(degree), bool)
        inside[graph.node_site[graph.node_class == label]] = True
        idle = by_degree[~inside[by_degree]][: sizes[label] // 2 + 1]
        sites.append(idle)
        classes.append(np.full(len(idle), label, np.int32))
    return np.concatenate(sites), np.concatenate(classes)
