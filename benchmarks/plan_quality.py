"""Quality of plans on random instances: greedy against `best`, and `best` against the optimum on small ones.

Run: python -m benchmarks.plan_quality [--seconds 20] [--seeds 10]
"""

import argparse
import random
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import product

import numpy as np
from benchmarks.results import record, table

from ordercast import Budget, ClassRule, Level, Membership, Objective, Planner, Request
from ordercast.planning.best import best
from ordercast.planning.classes import class_labels
from ordercast.planning.forest import ClassGraph, Forest
from ordercast.planning.planners import FIXED, plan_forest

# sites, groups, size, level, Zipf traffic; and the floors for mean depth and max load that we set ourselves
INSTANCES = [
    (200, 40, 5, Level.ACYCLIC, False, 2.5, None),
    (100, 40, 5, Level.ACYCLIC, False, 4.1, None),
    (20, 40, 5, Level.ACYCLIC, False, 3.9, None),
    (200, 40, 10, Level.ACYCLIC, False, 5.2, None),
    (400, 40, 5, Level.ACYCLIC, False, 1.4, None),
    (200, 40, 5, Level.TOTAL, False, 1.02, 13),
    (200, 40, 5, Level.ACYCLIC, True, 1.9, None),
]
TOTAL_LOAD = 13
Row = tuple[float, float, float, float, float, float]


def uniform(sites: int, groups: int, sizes: list[int], seed: int) -> Membership:
    chance = random.Random(seed)
    names = [f"s{i:04}" for i in range(sites)]
    return Membership.of({f"g{i:03}": chance.sample(names, chance.choice(sizes)) for i in range(groups)})


def one(sites: int, groups: int, size: int, level: Level, zipf: bool, seed: int, seconds: float) -> Row:
    """Plan one instance with greedy, with greedy less its intersecter rule, and with `best`."""
    membership = uniform(sites, groups, [size], seed)
    weights = None
    if zipf:
        weights = 1.0 / np.arange(1, groups + 1)
        np.random.default_rng(seed).shuffle(weights)
    graph = ClassGraph.of(membership, class_labels(membership, ClassRule.for_level(level)))
    # At level total greedy's delay is the least there is, so less load has to be asked for.
    cap = TOTAL_LOAD if level is Level.TOTAL else None
    request = Request(level=level, weights=weights, budget=Budget(seconds=seconds), seed=seed, max_load=cap)
    costs = [FIXED[p](graph).cost(weights) for p in (Planner.GREEDY, Planner.ELIMINATION)]
    costs.append(plan_forest(membership, request).forest.cost(weights))
    assert costs[2].max_load <= max(costs[0].max_load, cap or 0)
    depths = [cost.mean_depth if cost.weighted_depth is None else cost.weighted_depth for cost in costs]
    return (*depths, costs[0].max_load, costs[2].max_load, costs[2].mean_extra)  # type: ignore[return-value]


def large(pool: ProcessPoolExecutor, seconds: float, seeds: int) -> list[str]:
    rows: list[list[object]] = []
    for sites, groups, size, level, zipf, depth_floor, load_floor in INSTANCES:
        jobs = [pool.submit(one, sites, groups, size, level, zipf, seed, seconds) for seed in range(seeds)]
        runs = np.array([job.result() for job in jobs])
        mean, spread = runs.mean(axis=0), runs[:, 2].std(ddof=1) if seeds > 1 else 0.0
        name = f"{sites}/{groups}/{size} {level}{', Zipf(1) traffic' if zipf else ''}"
        load = f"{mean[3]:.1f}", f"{mean[4]:.1f}" + (f" (floor {load_floor})" if load_floor else "")
        depth = f"{mean[0]:.2f}", f"{mean[1]:.2f}", f"**{mean[2]:.3f}** ± {spread:.3f}", depth_floor
        rows.append([name, *depth, *load, f"{mean[5]:.2f}"])
        print(rows[-1], flush=True)
    head = [
        "sites/groups/size, level",
        "greedy",
        "elimination",
        "best",
        "floor",
        "greedy load",
        "best load",
        "best extra",
    ]
    told = f"Mean depth (by traffic where it says so) over {seeds} seeds, {seconds:g} s of search each; load is the "
    return [*table(head, rows), "", told + "busiest site's and never above greedy's."]


def every_pick(graph: ClassGraph) -> Iterator[Forest]:
    """Yield the forest of every way to pick roots, part by part: all that the greedy rule could have chosen."""
    members = [frozenset(graph.nodes_of(g).tolist()) for g in range(len(graph.labels))]

    def parts(groups: frozenset[int]) -> list[frozenset[int]]:
        found, left = [], set(groups)
        while left:
            part, frontier = set[int](), [left.pop()]
            while frontier:
                g = frontier.pop()
                part.add(g)
                near = [h for h in left if members[g] & members[h]]
                left.difference_update(near)
                frontier += near
            found.append(frozenset(part))
        return found

    known: dict[frozenset[int], list[tuple[int, dict[int, int]]]] = {}

    def trees(part: frozenset[int]) -> list[tuple[int, dict[int, int]]]:
        """All (root, child -> parent) of a connected part."""
        if part in known:
            return known[part]
        sites = frozenset().union(*(members[g] for g in part))
        found = []
        for root in sorted(sites):
            rest = frozenset(g for g in part if root not in members[g])
            below = parts(rest)
            inside = frozenset().union(*(members[g] for g in rest)) if rest else frozenset()
            leaves = dict.fromkeys(sites - inside - {root}, root)
            for combination in product(*(trees(p) for p in below)):
                tree = dict(leaves)
                for child, edges in combination:
                    tree[child] = root
                    tree |= edges
                found.append((root, tree))
        known[part] = found
        return found

    for combination in product(*(trees(p) for p in parts(frozenset(range(len(members)))))):
        parent = np.full(len(graph.node_site), -1, np.int32)
        for _, edges in combination:
            for child, above in edges.items():
                parent[child] = above
        yield Forest.of(graph, parent)


def small_one(seed: int) -> tuple[int, list[float]]:
    """Compare `best` with the optimum over all root picks within greedy's load, on each objective."""
    membership = uniform(12, 8, [3, 4, 5], seed)
    graph = ClassGraph.of(membership, class_labels(membership, ClassRule.BLOCKS))
    greedy = FIXED[Planner.GREEDY](graph)
    cap = greedy.cost().max_load
    optimum = dict.fromkeys(Objective, float("inf"))
    tried = 0
    for forest in every_pick(graph):
        tried += 1
        cost = forest.cost()
        if cost.max_load <= cap:
            values = {Objective.DELAY: cost.mean_depth, Objective.EXTRA: cost.mean_extra, Objective.LOAD: cost.max_load}
            optimum = {name: min(optimum[name], values[name]) for name in Objective}
    ratios = []
    for objective in Objective:
        cost = best(graph, [greedy], cap, objective, budget=Budget(seconds=2), seed=seed).forest.cost()
        value = {Objective.DELAY: cost.mean_depth, Objective.EXTRA: cost.mean_extra, Objective.LOAD: cost.max_load}[
            objective
        ]
        ratios.append(value / optimum[objective] if optimum[objective] else 1.0 + value)
    return tried, ratios


def small(pool: ProcessPoolExecutor, seeds: int) -> list[str]:
    results = list(pool.map(small_one, range(seeds)))
    ratios = np.array([ratio for _, ratio in results])
    rows: list[list[object]] = [
        [name, f"{ratios[:, i].mean():.3f}", f"{ratios[:, i].max():.3f}"] for i, name in enumerate(Objective)
    ]
    told = f"{seeds} instances of 8 groups, 12 sites, size 3-5; {min(t for t, _ in results):,} to "
    told += (
        f"{max(t for t, _ in results):,} forests tried on each. Below 1: `best` also hangs sites where no pick would."
    )
    return [*table(["objective", "best / optimum, mean", "worst"], rows), "", told]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--seeds", type=int, default=10)
    asked = parser.parse_args()
    command = f"python -m benchmarks.plan_quality --seconds {asked.seconds:g} --seeds {asked.seeds}"
    with ProcessPoolExecutor(2) as pool:
        lines = small(pool, asked.seeds)
        record("Plan quality: against the optimum over all root picks, small instances", command, lines)
        record("Plan quality: mean depth on random instances", command, large(pool, asked.seconds, asked.seeds))


if __name__ == "__main__":
    main()
