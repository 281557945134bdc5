"""Plans as trees and tables for the terminal."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from ordercast.names import GroupId, SiteId
from ordercast.planning.plan import Plan

CLASSES_AT_MOST = 30
PLACES_AT_MOST = 400
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red", "bright_cyan", "bright_magenta", "bright_green")


def shown(name: str) -> str:
    """Return a name without control characters: a terminal would obey them."""
    return "".join(sign if sign.isprintable() else "�" for sign in name)


class Screen(Console):
    """The terminal: names are never markup, and a reader that has enough (`| head`) is no error."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, markup=False, highlight=False, emoji=False)

    def on_broken_pipe(self) -> None:
        """Let the command line end quietly."""
        raise BrokenPipeError


def plan_trees(plan: Plan) -> Iterator[Tree | Text]:
    """Yield a tree per root; a site that a group enters at says so, a child says which groups come over its edge."""
    colour = {group: COLOURS[index % len(COLOURS)] for index, group in enumerate(plan.groups)}
    shown = 0
    for index, groups in enumerate(plan.classes):
        if index >= CLASSES_AT_MOST or shown >= PLACES_AT_MOST:
            yield Text(f"… and {len(plan.classes) - index} more classes (--json and --picture show all)", style="dim")
            return
        for tree, places in _class_trees(plan, groups, colour):
            shown += places
            yield tree


def _class_trees(plan: Plan, groups: list[GroupId], colour: dict[GroupId, str]) -> Iterator[tuple[Tree, int]]:
    own = set(groups)
    children: dict[SiteId, list[tuple[SiteId, list[GroupId]]]] = defaultdict(list)
    for edge in plan.edges:
        carried = [group for group in edge.groups if group in own]
        if carried:
            children[edge.parent].append((edge.child, carried))
    entering: dict[SiteId, list[GroupId]] = defaultdict(list)
    for group in groups:
        entering[plan.groups[group].entry].append(group)
    below = {child for of_site in children.values() for child, _ in of_site}
    for root in sorted((children.keys() | entering.keys()) - below):
        top = Tree(_label(root, [], entering.get(root, []), colour))
        places, stack = 0, [(root, top)]
        while stack:
            site, branch = stack.pop()
            for child, carried in children[site]:
                places += 1
                if places > PLACES_AT_MOST:
                    branch.add(Text("…", style="dim"))
                    break
                stack.append((child, branch.add(_label(child, carried, entering.get(child, []), colour))))
        yield top, places + 1


def _label(site: SiteId, carried: list[GroupId], entering: list[GroupId], colour: dict[GroupId, str]) -> Text:
    label = Text(shown(site), style="bold" if entering else "")
    for sign, groups in ((" ← ", carried), (" ▸ orders ", entering)):
        for index, group in enumerate(groups):
            label.append(sign if not index else " ", style="dim")
            label.append(shown(group), style=colour[group])
    return label


def cost_table(plan: Plan) -> Table:
    """Show the plan's cost in one row."""
    table = Table(title=f"{plan.planner}, level {plan.level}: {len(plan.groups)} groups in {len(plan.classes)} classes")
    cost = plan.cost
    cells = [f"{cost.mean_depth:.2f}", f"{cost.mean_extra:.2f}", str(cost.max_load), str(cost.messages)]
    heads = ["mean depth", "mean extra", "max load", "messages"]
    if cost.weighted_depth is not None:
        heads.insert(1, "by traffic")
        cells.insert(1, f"{cost.weighted_depth:.2f}")
    for head in heads:
        table.add_column(head, justify="right")
    table.add_row(*cells)
    return table


def compare_table(rows: list[dict[str, Any]]) -> Table:
    """Show planners side by side; the least of each column stands out."""
    table = Table(title="one message to each group, from outside")
    columns = ("mean_depth", "mean_extra", "max_load", "messages")
    table.add_column("planner", no_wrap=True)
    for head in ("depth", "extra", "load", "messages", "delay"):
        table.add_column(head, justify="right")
    least = {name: min(row[name] for row in rows) for name in (*columns, "delay")}

    def cell(row: dict[str, Any], name: str, text: str) -> Text:
        return Text(text, "bold green" if row[name] == least[name] else "", no_wrap=True)

    for row in rows:
        texts = [f"{row[name]:.2f}" if name.startswith("mean") else str(row[name]) for name in columns]
        figures = [cell(row, name, text) for name, text in zip(columns, texts, strict=True)]
        table.add_row(row["planner"], *figures, cell(row, "delay", f"{row['latencies']:.2f} L + {row['sends']:.2f} P"))
    return table
