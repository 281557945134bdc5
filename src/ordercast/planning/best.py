"""`best`: our search for a plan with little delay, few extra nodes or little load (design §5).

Starts from the known planners and anneals over all trees (see `annealing`), every class at once because a site's load
sums over its classes. Sites outside a class join it as idle hubs; one that ends up unused costs nothing and is dropped.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ordercast.errors import PlanError
from ordercast.membership import Indices
from ordercast.planning import annealing
from ordercast.planning.annealing import DEPTH, EXCESS, EXTRA, SQUARES, State
from ordercast.planning.forest import ClassGraph, Forest, Weights
from ordercast.types import Objective

Progress = Callable[[float], None]
CHUNK = 20_000


@dataclass(frozen=True)
class Budget:
    """How long to search: in seconds, or in steps, which give the same plan on any machine."""

    seconds: float | None = None
    steps: int | None = None


@dataclass(frozen=True)
class Found:
    """The best forest and how many steps the search made (give them as the budget to get the same plan again)."""

    forest: Forest
    steps: int


def best(
    graph: ClassGraph,
    starts: list[Forest],
    cap: int,
    objective: Objective = Objective.DELAY,
    weights: Weights | None = None,
    budget: Budget = Budget(seconds=2),
    seed: int = 0,
    progress: Progress = lambda fraction: None,
) -> Found:
    """Search for a forest that is best on the objective among those whose busiest site handles at most `cap`.

    Never worse than any start that keeps to the cap.
    """
    search = _Search(graph, objective, weights, cap, seed)
    for start in starts:
        search.offer(start)
    return search.run(starts, budget, progress)


class _Search:
    def __init__(self, graph: ClassGraph, objective: Objective, weights: Weights | None, cap: int, seed: int) -> None:
        self.graph, self.objective, self.cap, self.seed = graph, objective, cap, seed
        groups = len(graph.labels)
        self.weight = np.ones(groups) if weights is None else weights * (groups / weights.sum())
        self.hub_site, self.hub_class = _idle_hubs(graph)
        self.found: Forest | None = None
        self.score = (math.inf, math.inf, math.inf)

    def offer(self, forest: Forest) -> None:
        """Keep the forest if it is the best so far."""
        depth = float((forest.depth * self.weight).sum())
        extra = float((forest.extra * self.weight).sum())
        load = int(forest.load.max())
        by_objective = {
            Objective.DELAY: (depth, load, extra),
            Objective.EXTRA: (extra, depth, load),
            Objective.LOAD: (load, depth, extra),
        }
        score = tuple(round(part, 6) for part in by_objective[self.objective])
        if load <= self.cap and score < self.score:
            self.found, self.score = forest, score

    def run(self, starts: list[Forest], budget: Budget, progress: Progress) -> Found:
        """Anneal from the best start, then polish: less load at the same objective."""
        start = self.found or starts[0]
        steps = budget.steps if budget.steps is not None else self._calibrate(start, budget.seconds or 0.0)
        state = self._state(start)
        polish = steps // 5
        done = 0

        def advance(state: State, prices: list[float], goal: list[float], heats: tuple[float, float], count: int, limit: float = math.inf, lower: bool = False) -> None:
            nonlocal done
            best = np.array([math.inf])
            parent, node_at = state.parent.copy(), state.node_at.copy()
            at = 0
            while at < count:
                upto = min(at + CHUNK, count)
                annealing.anneal(state, np.array(prices), np.array(goal), *heats, at, upto, count, best, parent, node_at, lower, limit)
                done += upto - at
                at = upto
                progress(done / max(steps, 1))
            if best[0] < math.inf:
                self.offer(self._forest(parent, node_at))

        advance(state, PRICES[self.objective], GOALS[self.objective], HEATS[self.objective], steps - polish, lower=self.objective is Objective.LOAD)
        if self.found is None:
            raise PlanError(f"no plan with max load {self.cap} found")
        return Found(self.found, done)

    def _calibrate(self, start: Forest, seconds: float) -> int:
        state = self._state(start)
        scrap = (np.array([math.inf]), state.parent.copy(), state.node_at.copy())
        price = np.array(PRICES[self.objective])
        annealing.anneal(state, price, price, 1.0, 0.1, 0, 10, 10, *scrap, False, math.inf)
        begun = time.perf_counter()
        annealing.anneal(state, price, price, 1.0, 0.1, 0, CHUNK, CHUNK, *scrap, False, math.inf)
        return int(CHUNK * seconds / (time.perf_counter() - begun))

    def _state(self, forest: Forest) -> State:
        graph = self.graph
        nodes, hubs = len(graph.node_site), len(self.hub_site)
        places = nodes + hubs
        place_class = np.concatenate([graph.node_class, self.hub_class])
        roots = np.empty(int(graph.labels.max()) + 1, np.int32)
        parent = forest.parent[:nodes].copy()
        top = np.flatnonzero(parent < 0).astype(np.int32)
        roots[graph.node_class[top]] = top
        by_class = np.argsort(place_class, kind="stable").astype(np.int32)
        state = State(
            graph.membership.group_ptr, graph.member_node,
            np.concatenate([graph.node_ptr, np.full(hubs, graph.node_ptr[-1])]), graph.node_groups,
            np.concatenate([[0], np.cumsum(np.bincount(place_class))]), by_class, place_class,
            self.weight, np.array([self.cap]),
            np.full(places, -1, np.int32), *(np.full(places, -1, np.int32) for _ in range(3)), np.zeros(places, np.int32),
            np.arange(places, dtype=np.int32), np.arange(places, dtype=np.int32), np.concatenate([graph.node_site, self.hub_site]),
            np.zeros(len(graph.labels), np.int32), np.zeros(len(graph.membership.sites), np.int64), np.zeros(4),
            np.zeros(places, np.int64), np.zeros(2, np.int64), np.zeros(len(graph.labels), np.int64),
            np.empty(places, np.int32), np.empty(len(graph.labels), np.int32), np.array([self.seed * 2 + 1], np.uint64) * np.uint64(0x9E3779B97F4A7C15),
        )
        for place, above in enumerate(np.concatenate([parent, roots[self.hub_class]])):
            annealing.link(state, place, above)
        for root in roots:
            annealing.settle(state, root)
        for group in range(len(graph.labels)):
            annealing.account(state, group, 1)
        return state

    def _forest(self, place_parent: Indices, node_at: Indices) -> Forest:
        parent = np.full(len(place_parent), -1, np.int32)
        below = place_parent >= 0
        parent[node_at[below]] = node_at[place_parent[below]]
        return Forest.of(self.graph, parent, hub_site=self.hub_site)


def _idle_hubs(graph: ClassGraph) -> tuple[Indices, Indices]:
    degree = np.diff(graph.membership.site_ptr)
    by_degree = np.lexsort((np.arange(len(degree)), degree)).astype(np.int32)
    sites, classes = [], []
    sizes = np.bincount(graph.labels)
    for label in np.flatnonzero(sizes > 1):
        own = graph.node_site[graph.node_class == label]
        wanted = int(sizes[label]) // 2 + 1
        idle = by_degree[~np.isin(by_degree, own)][:wanted]
        sites.append(idle)
        classes.append(np.full(len(idle), label, np.int32))
    if not sites:
        return np.empty(0, np.int32), np.empty(0, np.int32)
    return np.concatenate(sites), np.concatenate(classes)


PRICES = {  # DEPTH, EXTRA, EXCESS, SQUARES
    Objective.DELAY: [1.0, 0.002, 0.6, 0.0003],
    Objective.EXTRA: [0.01, 1.0, 0.6, 0.0003],
    Objective.LOAD: [0.05, 0.002, 1.0, 0.0003],
}
GOALS = {
    Objective.DELAY: [1.0, 1e-6, 0.0, 1e-7],
    Objective.EXTRA: [1e-4, 1.0, 0.0, 1e-7],
    Objective.LOAD: [1e-3, 1e-5, 0.0, 1e-7],
}
HEATS = {Objective.DELAY: (1.0, 0.05), Objective.EXTRA: (1.0, 0.05), Objective.LOAD: (1.0, 0.05)}
