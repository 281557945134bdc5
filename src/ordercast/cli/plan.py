"""`ordercast plan`: a membership table in, a judged plan out."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter, Token
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from ordercast.errors import InputError, PlanError
from ordercast.membership.files import read_membership, read_weights
from ordercast.membership.table import Membership
from ordercast.names import ClassRule, Level, Objective, Planner
from ordercast.planning.make import Made, make_plan
from ordercast.planning.request import Budget, Request
from ordercast.show.terminal import Screen, compare_table, cost_table, plan_trees

Flag = Parameter(negative="")
SPARK_ROWS = 20_000_000


def whole(_: type, tokens: Sequence[Token]) -> int:
    """Read a whole number; 2.5 is none."""
    text = tokens[0].value
    if not re.fullmatch(r"[+-]?\d{1,18}", text):
        raise ValueError(f"{text[:40]!r} is not a whole number")
    return int(text)


def plan(
    membership: str,
    /,
    *,
    planner: Planner | None = None,
    level: Level = Level.ACYCLIC,
    classes: ClassRule | None = None,
    objective: Objective = Objective.DELAY,
    max_load: Annotated[int | None, Parameter(converter=whole)] = None,
    weights: Path | None = None,
    union: tuple[str, ...] = (),
    budget: str = "2",
    seed: Annotated[int, Parameter(converter=whole)] = 0,
    compare: Annotated[bool, Flag] = False,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
    picture: Path | None = None,
    out: str | None = None,
    master: str | None = None,
    conf: list[str] | None = None,
) -> int:
    """Plan who orders what: an entry per group and a forest of FIFO edges.

    Example: ordercast plan groups.toml --planner best --level total --picture plan.svg

    Parameters
    ----------
    membership
        Who is in which group: .toml with [groups], or .csv / .parquet (a file, a folder, or with --master any address
        that Spark and Arrow read) with columns site and group.
    planner
        greedy (GS88), elimination (greedy, near-linear), metagroup (MGT), central, or best (our search). By default
        best for up to 20,000 memberships; above, and on Spark, elimination, or central where its trees get too deep.
    level
        What is promised: total (two sites agree on what both get) or acyclic (one serial order exists).
    classes
        Which groups are ordered together: s1, s2 or blocks. By default the finest that keeps the level.
    objective
        What best makes small: delay (hops to the farthest member), extra (non-members on the way) or load.
    max_load
        How many messages the busiest site may handle when each group gets one. By default what greedy needs.
    weights
        Traffic per group, for the means: .toml with [weights], or .csv / .parquet with columns group and weight.
    union
        A+B: plan for messages to groups A and B at once; may be given several times. In a .toml file:
        unions = [["A", "B"]].
    budget
        How long best may search: seconds ("20"), or steps ("500000steps"), which give the same plan everywhere.
    seed
        Seed of the search.
    compare
        Show all planners side by side, and the two-phase protocol.
    as_json
        Print the plan (or the comparison) as JSON.
    picture
        Draw the plan to this .svg, .png or .pdf file.
    out
        On Spark: write the tables routes/, groups/ and cost/ to this folder.
    master
        Plan on Spark: local[*], or the address of a cluster. Tables of more than 20 million rows are planned there
        anyway.
    conf
        A setting of Spark, NAME=VALUE; may be given several times.

    """
    if picture is not None and picture.suffix.lower() not in {".svg", ".png", ".pdf"}:
        raise InputError(f"{picture}: a picture ends in .svg, .png or .pdf, not {picture.suffix!r}")
    if max_load is not None and not 1 <= max_load <= 10**9:
        raise InputError(f"--max-load {str(max_load)[:40]}: must be at least 1 and at most a thousand million")
    if compare and (picture is not None or max_load is not None):
        raise InputError("--compare shows all planners as they are: it takes no --picture and no --max-load")
    on_spark = master is not None or out is not None or "://" in membership or _is_large(membership)
    members = None if on_spark else read_membership(membership).with_unions(text.split("+") for text in union)
    if on_spark and (weights is not None or compare or picture is not None or union):
        raise InputError("--weights, --union, --compare and --picture are for plans in process, not on Spark")
    request = Request(
        planner=planner or _default_planner(members, level, classes),
        level=level,
        classes=classes,
        objective=objective,
        max_load=max_load,
        weights=None if weights is None or members is None else read_weights(weights, members),
        budget=parse_budget(budget),
        seed=seed,
    )
    if members is None:
        return _plan_on_spark(membership, request, out, master, conf or [], as_json)
    if compare:
        return _compare(members, request, as_json)
    with progress_bar("searching", request) as progress:
        made = make_plan(members, request, progress)
        made, trade = _trade_off(members, request, made, progress)
    if picture is not None:
        from ordercast.show.plan import draw_plan

        draw_plan(made.plan, picture)
    if as_json:
        print(msgspec.json.format(_as_json(made, request, trade), indent=1).decode())
    else:
        _show(made, request, trade, picture)
    return 0


def _default_planner(members: Membership | None, level: Level, classes: ClassRule | None) -> Planner:
    """By size; on Spark always the same."""
    from ordercast.planning.planners import default_planner

    return Planner.ELIMINATION if members is None else default_planner(members, level, classes)


def _is_large(path: str) -> bool:
    """Whether a Parquet table has more rows than one process should plan."""
    place = Path(path)
    if not (place.is_dir() or place.suffix in (".parquet", ".pq")):
        return False
    import pyarrow as pa
    import pyarrow.parquet as pq

    from ordercast.runs.files import is_data

    try:
        inside = (file for file in place.rglob("*.parquet") if is_data(str(file.relative_to(place)), ""))
        files = list(inside) if place.is_dir() else [place]
        return bool(sum(pq.read_metadata(file).num_rows for file in files) > SPARK_ROWS)
    except (pa.ArrowException, OSError):
        return False  # whoever reads it will say what is wrong


def _plan_on_spark(
    path: str, request: Request, out: str | None, master: str | None, conf: list[str], as_json: bool
) -> int:
    from tempfile import TemporaryDirectory

    from ordercast.spark.planning import csv_to_parquet, plan_tables, write_tables
    from ordercast.spark.session import session

    with session("ordercast plan", master, conf) as spark, TemporaryDirectory(prefix="ordercast-plan-") as folder:
        if path.lower().endswith(".csv"):
            path = csv_to_parquet(spark, path, Path(folder) / "membership")
        elif path.lower().endswith(".toml"):
            raise InputError(f"{path}: on Spark a membership is Parquet or CSV")
        made = plan_tables(spark, path, request)
        if out is not None:
            write_tables(spark, made, path, out)
    figures = {
        "planner": request.planner,
        "level": request.level,
        "memberships": made.memberships,
        "meta_groups": made.many_metas,
        "groups": made.many_groups,
        "classes": made.classes,
        "cost": msgspec.to_builtins(made.cost),
        "tables": out,
    }
    if as_json:
        print(msgspec.json.encode(figures).decode())
    else:
        console = Screen()
        for name, value in figures.items():
            if value is not None:
                console.print(f"{name.replace('_', ' ')}: {value:,}" if isinstance(value, int) else f"{name}: {value}")
    return 0


def parse_budget(text: str) -> Budget:
    """Read "20" or "20s" as seconds and "500000steps" as steps."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(s|steps)?", text.strip())
    if not match or (match[2] == "steps" and "." in match[1]):
        raise InputError(f"--budget {text}: give seconds (20) or steps (500000steps)")
    if len(match[1]) > 12:
        raise InputError(f"--budget {text[:40]}: that is too long")
    return Budget(steps=int(match[1])) if match[2] == "steps" else Budget(seconds=float(match[1]))


@contextmanager
def progress_bar(what: str, request: Request) -> Iterator[Callable[[float], None]]:
    """Show how far the search is, on a terminal, when it takes more than a second."""
    console = Screen(stderr=True)
    if request.planner is not Planner.BEST:
        with console.status(f"{what}: {request.planner}"):
            yield lambda fraction: None
        return
    searching = request.planner is Planner.BEST and (request.budget.steps or request.budget.seconds > 1)
    columns = (TextColumn(what), BarColumn(), TextColumn("{task.percentage:.0f} %"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=not (searching and console.is_terminal)) as bar:
        task = bar.add_task(what, total=1.0)
        yield lambda fraction: bar.update(task, completed=fraction)


def _trade_off(
    members: Membership, request: Request, made: Made, progress: Callable[[float], None]
) -> tuple[Made, list[dict[str, float]]]:
    """Return the best plan and what less load would cost, when the caller allowed more load than greedy needs."""
    needed = made.reference_load
    if needed is None or request.max_load is None or request.max_load <= needed:
        return made, []
    points = [made]
    between = sorted({needed, (needed + request.max_load) // 2} - {request.max_load}, reverse=True)
    for cap in between:
        try:
            points.append(make_plan(members, replace(request, max_load=cap), progress))
        except PlanError:
            break
    costs = [p.plan.cost for p in points]
    seen = sorted({(cost.max_load, cost.mean_depth, cost.mean_extra) for cost in costs})
    chosen = min(points, key=lambda p: _value(p, request.objective))  # a tighter search may have found the better plan
    return chosen, [{"max_load": load, "mean_depth": depth, "mean_extra": extra} for load, depth, extra in seen]


def _value(made: Made, objective: Objective) -> tuple[float, float]:
    cost = made.plan.cost
    depth = cost.mean_depth if cost.weighted_depth is None else cost.weighted_depth
    values = {Objective.DELAY: depth, Objective.EXTRA: cost.mean_extra, Objective.LOAD: float(cost.max_load)}
    return values[objective], depth


def _as_json(made: Made, request: Request, trade: list[dict[str, float]]) -> bytes:
    if request.planner is not Planner.BEST and not trade:
        return msgspec.json.encode(made.plan)  # a large one is not copied first
    document: dict[str, Any] = msgspec.to_builtins(made.plan)
    if request.planner is Planner.BEST:
        document["search"] = {
            "objective": request.objective,
            "seed": request.seed,
            "steps": made.steps,
            "greedy_max_load": made.reference_load,
        }
    if trade:
        document["trade_off"] = trade
    return msgspec.json.encode(document)


def _show(made: Made, request: Request, trade: list[dict[str, float]], picture: Path | None) -> None:
    console = Screen()
    for tree in plan_trees(made.plan):
        console.print(tree)
    console.print(cost_table(made.plan))
    for point in trade:
        console.print(f"trade-off: load {point['max_load']:.0f} gives depth {point['mean_depth']:.2f}")
    told = [name for name, found in made.verdict.findings.items() if found.ok]
    console.print(f"judged by its edges: {', '.join(told)} hold", style="green")
    if made.steps:
        again = f"--seed {request.seed} --budget {made.steps}steps"
        console.print(f"searched {made.steps} steps; the same plan again: {again}", style="dim")
    if picture is not None:
        console.print(f"picture: {picture}")


def _compare(members: Membership, request: Request, as_json: bool) -> int:
    from ordercast.planning.planners import compare

    make_plan(members, replace(request, planner=Planner.ELIMINATION))  # are these classes right for this level at all?
    with progress_bar("comparing", replace(request, planner=Planner.BEST)) as progress:
        rows, advice = compare(members, request, progress)
    if as_json:
        print(msgspec.json.format(msgspec.json.encode({"compare": rows, "advice": advice}), indent=1).decode())
    else:
        console = Screen()
        console.print(compare_table(rows))
        console.print(advice)
    return 0
