"""The front door of planning: membership in, judged plan out. Which planner, which classes, which budget."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from ordercast.errors import PlanError
from ordercast.membership.table import Membership
from ordercast.names import ClassRule, Level, Planner
from ordercast.planning.best import Progress, best
from ordercast.planning.central import central
from ordercast.planning.classes import class_labels
from ordercast.planning.cost import Terms, mean_terms, two_phase_load
from ordercast.planning.forest import ClassGraph, Forest
from ordercast.planning.metagroup_tree import metagroup
from ordercast.planning.propagation_graph import greedy, literal_greedy
from ordercast.planning.request import Request

# App. I is about quadratic. Past this much work (groups times memberships; some five seconds) `best` measures itself
# against the near-linear greedy instead.
LITERAL_WORK_AT_MOST = 20_000_000
BEST_ROWS = 20_000  # memberships; beyond, `best` would search for minutes
CROSSINGS_AT_MOST = 1_000_000  # of groups over edges: what a plan writes down, and the judge looks at


FIXED: dict[Planner, Callable[[ClassGraph], Forest]] = {
    Planner.GREEDY: literal_greedy,
    Planner.ELIMINATION: greedy,
    Planner.METAGROUP: metagroup,
    Planner.CENTRAL: central,
}


@dataclass(frozen=True)
class Planned:
    """A forest, and for `best` the steps it took and the load it was allowed."""

    forest: Forest
    steps: int = 0
    cap: int | None = None
    reference_load: int | None = None
    """The busiest site's load under the greedy plan."""


def plan_forest(membership: Membership, request: Request, progress: Progress = lambda fraction: None) -> Planned:
    """Run the planner that the request names, per class."""
    graph = ClassGraph.of(membership, class_labels(membership, request.class_rule))
    if request.planner is not Planner.BEST:
        forest = FIXED[request.planner](graph)
        load = int(forest.load.max())
        if request.max_load is not None and load > request.max_load:
            raise PlanError(f"planner {request.planner} loads its busiest site with {load}, above {request.max_load}")
        return Planned(forest)
    literal = len(membership) * len(membership.groups) <= LITERAL_WORK_AT_MOST
    reference = literal_greedy(graph) if literal else greedy(graph)
    reference_load = int(reference.load.max())
    cap = reference_load if request.max_load is None else request.max_load
    starts = [reference, greedy(graph), metagroup(graph), central(graph)]
    found = best(graph, starts, cap, request.objective, request.weights, request.budget, request.seed, progress)
    return Planned(found.forest, found.steps, cap, reference_load)


def default_planner(membership: Membership, level: Level, classes: ClassRule | None = None) -> Planner:
    """Choose by size: `best` searches well in small tables; in one large class deep trees are long to write down."""
    forest = plan_forest(membership, Request(Planner.ELIMINATION, level, classes)).forest
    if forest.cost().messages > max(CROSSINGS_AT_MOST, 10 * len(membership)):
        return Planner.CENTRAL
    return Planner.BEST if len(membership) <= BEST_ROWS else Planner.ELIMINATION


def compare(
    membership: Membership, request: Request, progress: Progress = lambda fraction: None
) -> tuple[list[dict[str, Any]], str]:
    """Put all planners, and the two-phase protocol, side by side; and say which machine is the faster one."""
    rows = []
    for planner in Planner:
        forest = plan_forest(membership, replace(request, planner=planner, max_load=None), progress).forest
        spent = forest.cost()
        terms = mean_terms(forest)["propagation"]
        rows.append(_row(planner, spent.mean_depth, spent.mean_extra, spent.max_load, spent.messages, terms))
    two_phase = mean_terms(forest)["two-phase"]
    memberships, load = len(membership), int(two_phase_load(membership).max())
    rows.append(_row("two-phase", 1.0, 0.0, load, 3 * memberships, two_phase))
    fastest = min(rows[:-1], key=lambda row: row["delay"])
    if fastest["delay"] <= rows[-1]["delay"]:
        advice = f"Fastest: propagation over the {fastest['planner']} plan. The two-phase protocol would be slower."
    else:
        advice = "Fastest: the two-phase protocol, which needs 3 L whatever the depth, at three messages per member."
    return rows, advice


def _row(name: str, depth: float, extra: float, load: int, messages: int, terms: Terms) -> dict[str, Any]:
    return {
        "planner": name,
        "mean_depth": depth,
        "mean_extra": extra,
        "max_load": load,
        "messages": messages,
        "latencies": terms.latencies,
        "sends": terms.sends,
        "delay": terms.delay(latency=1.0, processing=0.1),
    }
