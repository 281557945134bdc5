"""A plan as a layered drawing: one tree per class, entries on the left, a colour per group."""

from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ordercast.names import GroupId, SiteId
from ordercast.planning.plan import Plan
from ordercast.show.look import FAINT, INK, PAPER, colours, picture_path, printable, save

STRANDS_AT_MOST = 6  # past this an edge is one grey band with a number
LEGEND_AT_MOST = 60


@dataclass
class _Tree:
    """One class as laid out: rows from the top, columns by depth."""

    groups: list[GroupId]
    column: dict[SiteId, int]
    row: dict[SiteId, float]
    edges: dict[tuple[SiteId, SiteId], list[GroupId]]
    height: float

    @property
    def width(self) -> int:
        """Columns taken."""
        return max(self.column.values()) + 1


def draw_plan(plan: Plan, path: str | Path) -> None:
    """Write the picture; the ending (.svg, .png or .pdf) says in which format."""
    path = picture_path(path)
    trees = [_lay_out(plan, groups) for groups in plan.classes]
    sites = sum(len(tree.row) for tree in trees)
    unit = 0.42 if sites <= 40 else 0.26
    font = 10 if sites <= 40 else 7
    blocks = _pack(trees, sites)
    longest = max(len(site) for tree in trees for site in tree.row)
    column_width = max(1.5, 0.09 * longest * font / 10 + 0.9)
    wide = max(x + tree.width * column_width + 1.2 for x, _, tree in _positions(blocks, column_width)) + 0.3
    tall = max(sum(tree.height + 1 for tree in block) for block in blocks) * unit
    legend_rows = _legend_rows(plan, wide)
    figure = Figure(figsize=(wide, tall + 0.7 + 0.24 * legend_rows), facecolor=PAPER)
    axes = figure.add_axes((0, 0, 1, 1))
    total = tall + 0.7 + 0.24 * legend_rows
    axes.set_xlim(0, wide)
    axes.set_ylim(-total, 0)
    axes.axis("off")
    _title(axes, plan, sites)
    paint = colours(list(plan.groups))
    for x, top, tree in _positions(blocks, column_width):
        _draw_tree(axes, plan, tree, (x, -0.8 - top * unit), (column_width, unit), font, paint)
    _legend(axes, plan, paint, -total + 0.24 * legend_rows, wide)
    save(figure, path)


def _lay_out(plan: Plan, groups: list[GroupId]) -> _Tree:
    own = set(groups)
    edges: dict[tuple[SiteId, SiteId], list[GroupId]] = {}
    children: dict[SiteId, list[SiteId]] = defaultdict(list)
    below = set()
    for edge in plan.edges:
        carried = [group for group in edge.groups if group in own]
        if carried:
            edges[edge.parent, edge.child] = carried
            children[edge.parent].append(edge.child)
            below.add(edge.child)
    entries = {plan.groups[group].entry for group in groups}
    column: dict[SiteId, int] = {}
    row: dict[SiteId, float] = {}
    line = 0.0
    for root in sorted((entries | children.keys()) - below):
        order, stack = [], [(root, 0)]
        while stack:
            site, depth = stack.pop()
            column[site] = depth
            order.append(site)
            # Leaves first: a subtree then never lies between a site and its own leaves.
            inner = sorted(children[site], key=lambda child: (bool(children.get(child)), child), reverse=True)
            stack += [(child, depth + 1) for child in inner]
        for site in order:
            if not children.get(site):
                row[site] = line
                line += 1
        for site in reversed(order):
            if children.get(site):
                rows = [row[child] for child in children[site]]
                row[site] = (min(rows) + max(rows)) / 2
    return _Tree(groups, column, row, edges, max(line, 1.0))


def _pack(trees: list[_Tree], sites: int) -> list[list[_Tree]]:
    """Stack trees in columns of about equal height, the tallest tree setting the least."""
    least = 14.0 if sites <= 40 else (sites * 3.0) ** 0.5
    target = max(least, *(tree.height for tree in trees))
    blocks: list[list[_Tree]] = [[]]
    used = 0.0
    for tree in sorted(trees, key=lambda tree: -tree.height):
        if blocks[-1] and used + tree.height + 1 > target + 1:
            blocks.append([])
            used = 0.0
        blocks[-1].append(tree)
        used += tree.height + 1
    return blocks


def _positions(blocks: list[list[_Tree]], column_width: float) -> list[tuple[float, float, _Tree]]:
    placed = []
    x = 0.4
    for block in blocks:
        top = 0.5
        for tree in block:
            placed.append((x, top, tree))
            top += tree.height + 1
        x += max(tree.width for tree in block) * column_width + 0.9
    return placed


def _title(axes: mpl.axes.Axes, plan: Plan, nodes: int) -> None:
    cost = plan.cost
    axes.text(0.4, -0.3, f"{plan.planner} plan, level {plan.level}", size=13, weight="bold", color=INK, va="center")
    text = f"groups {len(plan.groups)} · classes {len(plan.classes)} · places {nodes} · depth {cost.mean_depth:.2f} · "
    text += f"extra {cost.mean_extra:.2f} · busiest site {cost.max_load}"
    axes.text(0.4, -0.56, text, size=8.5, color=INK, va="center")


def _draw_tree(
    axes: mpl.axes.Axes,
    plan: Plan,
    tree: _Tree,
    origin: tuple[float, float],
    unit: tuple[float, float],
    font: float,
    colours: dict[GroupId, str],
) -> None:
    at = {site: (origin[0] + tree.column[site] * unit[0], origin[1] - tree.row[site] * unit[1]) for site in tree.row}
    strands, tints, widths = [], [], []
    for (parent, child), groups in tree.edges.items():
        (x0, y0), (x1, y1) = at[parent], at[child]
        bend = x1 - 0.42
        if len(groups) > STRANDS_AT_MOST:
            strands.append([(x0, y0), (bend, y1), (x1, y1)])
            tints.append(FAINT)
            widths.append(5.0)
            axes.text(bend + 0.2, y1, str(len(groups)), size=6, color=INK, ha="center", va="center", zorder=3)
            continue
        for index, group in enumerate(groups):
            shift = (index - (len(groups) - 1) / 2) * 0.027
            strands.append([(x0, y0 + shift), (bend, y1 + shift), (x1, y1 + shift)])
            tints.append(colours[group])
            widths.append(1.5)
    axes.add_collection(LineCollection(strands, colors=tints, linewidths=widths, capstyle="round", zorder=1))
    members = {site for group in tree.groups for site in plan.groups[group].members}
    entering: dict[SiteId, list[GroupId]] = defaultdict(list)
    for group in tree.groups:
        entering[plan.groups[group].entry].append(group)
    inner_sites = {parent for parent, _ in tree.edges}
    for site, (x, y) in at.items():
        entry = entering.get(site, [])
        shape = "o" if site in members else "D"
        face = INK if entry else PAPER
        axes.plot(x, y, shape, markersize=9 if entry else 6, color=face, markeredgecolor=INK, zorder=4)
        box = {"boxstyle": "round,pad=0.12", "facecolor": PAPER, "edgecolor": "none", "alpha": 0.85}
        bold = "bold" if entry else "normal"
        inner = site in inner_sites
        if inner and unit[1] > 0.3:  # there is room below, and lines leave to the right
            axes.text(
                x,
                y - 0.19,
                printable(site),
                size=font,
                weight=bold,
                color=INK,
                ha="left",
                va="center",
                bbox=box,
                zorder=5,
            )
        else:
            axes.text(x + 0.1, y, printable(site), size=font, weight=bold, color=INK, va="center", bbox=box, zorder=5)
        step = 0.075
        for index, group in enumerate(entry[:12]):  # a dot per group that enters here
            axes.plot(x - 0.06 + index * step, y + 0.13, "o", markersize=3.6, color=colours[group], zorder=6)


def _legend_columns(plan: Plan, wide: float) -> int:
    longest = max(len(group) for group in plan.groups)
    return max(1, int((wide - 0.6) / (0.45 + 0.085 * longest)))


def _legend_rows(plan: Plan, wide: float) -> int:
    if len(plan.groups) > LEGEND_AT_MOST:
        return 1
    return -(-len(plan.groups) // _legend_columns(plan, wide)) + 1


def _legend(axes: mpl.axes.Axes, plan: Plan, colours: dict[GroupId, str], top: float, wide: float) -> None:
    keys = [("o", INK, "a group enters here"), ("o", PAPER, "member"), ("D", PAPER, "hub, no member")]
    x = 0.45
    for shape, face, text in keys:
        axes.add_line(Line2D([x], [top], marker=shape, color=face, markeredgecolor=INK, markersize=6, linestyle=""))
        axes.text(x + 0.12, top, text, size=7.5, color=INK, va="center")
        x += 0.4 + 0.075 * len(text)
    if len(plan.groups) > LEGEND_AT_MOST:
        return
    columns = _legend_columns(plan, wide)
    pitch = (wide - 0.6) / columns
    for index, group in enumerate(plan.groups):
        x, y = 0.4 + index % columns * pitch, top - 0.24 * (index // columns + 1)
        axes.plot([x, x + 0.22], [y, y], color=colours[group], linewidth=3, solid_capstyle="round")
        axes.text(x + 0.29, y, printable(group), size=8, color=INK, va="center")
