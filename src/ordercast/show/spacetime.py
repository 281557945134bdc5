"""A run as a space-time diagram: a line per site, time to the right, messages as arrows, deliveries as dots."""

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ordercast.names import SiteId
from ordercast.show.look import FAINT, INK, PAPER, colours, picture_path, printable, save
from ordercast.sim.film import Film, Flight

INCH_PER_ROW = 0.75
HEAD_ROWS, FOOT_ROWS = 1.0, 1.0
RIGHT_INCH = 0.8  # half a label
BEHIND = {"facecolor": PAPER, "edgecolor": "none", "pad": 0.4, "alpha": 0.85}  # arrows pass below a label


class _Labels:
    """Texts that keep out of each other's way: what finds no room is left out; colour and legend say it too."""

    def __init__(self, axes: Any, inch_per_unit: float) -> None:
        self.axes, self.inch_per_unit = axes, inch_per_unit
        self.taken: list[tuple[float, float, float, float]] = []

    def put(self, x: float, ys: list[float], text: str, size: float, **style: Any) -> None:
        """Write at the first of these heights where nothing stands yet."""
        wide, high = 0.0085 * size * len(text), 0.017 * size
        for y in ys:
            left, middle = x * self.inch_per_unit - wide / 2, y * INCH_PER_ROW
            box = (left, middle - high / 2, left + wide, middle + high / 2)
            if all(box[2] < b[0] or b[2] < box[0] or box[3] < b[1] or b[3] < box[1] for b in self.taken):
                self.taken.append(box)
                self.axes.text(x, y, printable(text), fontsize=size, ha="center", va="center", bbox=BEHIND, **style)
                return


def draw_spacetime(film: Film, path: str | Path, title: str) -> None:
    """Write the picture; the ending (.svg, .png or .pdf) says in which format."""
    path = picture_path(path)
    rows = {site: -index for index, site in enumerate(film.sites)}
    end = max([flight.arrives for flight in film.flights] + [mark.time for mark in film.marks], default=1.0) or 1.0
    moments = len({round(flight.departs, 6) for flight in film.flights} | {round(m.time, 6) for m in film.marks})
    wide = min(max(7.0, 0.42 * moments + 2.0), 26.0)
    left = 0.09 * max(len(site) for site in rows) + 0.25
    inch_per_unit = (wide - left - RIGHT_INCH) / end
    messages = sorted({flight.message for flight in film.flights if flight.message})
    multicasts = sorted({m.text for m in film.marks if m.kind == "multicast"})
    colour = colours(messages if len(messages) <= 10 else [text.split(" ")[0] for text in multicasts])
    height = HEAD_ROWS + len(rows) - 1 + FOOT_ROWS
    figure = Figure(figsize=(wide, INCH_PER_ROW * height), facecolor=PAPER)
    axes = figure.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set_xlim(-left / inch_per_unit, end + RIGHT_INCH / inch_per_unit)
    axes.set_ylim(-len(rows) + 1 - FOOT_ROWS, HEAD_ROWS)
    axes.axis("off")
    cut = f" (the first {film.at_most} messages)" if film.full else ""
    axes.text(-left / inch_per_unit + 0.1 / inch_per_unit, 0.62, title + cut, color=INK, fontsize=11, weight="bold")
    _site_lines(axes, film, rows, end)
    labels = _Labels(axes, inch_per_unit)
    _marks(axes, film, rows, colour, labels)
    _flights(axes, film, rows, colour, labels)
    _legend(axes, multicasts, colour, -len(rows) + 1 - FOOT_ROWS + 0.2, inch_per_unit)
    save(figure, path)


def _site_lines(axes: Any, film: Film, rows: dict[SiteId, int], end: float) -> None:
    """Draw each site's life: solid while it is up, dotted while it is down."""

    def line(begin: float, end: float, row: int, *, up: bool) -> None:
        axes.plot([begin, end], [row, row], color=INK if up else FAINT, lw=1.1, ls="-" if up else ":", zorder=1)

    for site, row in rows.items():
        axes.annotate(
            printable(site), (0, row), (-6, 0), textcoords="offset points", color=INK, ha="right", va="center"
        )
        up, since = True, 0.0
        for mark in [m for m in film.marks if m.site == site and m.kind in ("crash", "back")]:
            line(since, mark.time, row, up=up)
            up, since = mark.kind == "back", mark.time
        line(since, end, row, up=up)


def _flights(axes: Any, film: Film, rows: dict[SiteId, int], colour: dict[str, str], labels: _Labels) -> None:
    for flight in film.flights:
        tip: tuple[float, float] = (flight.arrives, rows[flight.receiver])
        if flight.lost:  # it ends on the way
            tip = ((flight.departs + flight.arrives) / 2, (rows[flight.sender] + rows[flight.receiver]) / 2)
            axes.plot(*tip, marker="x", color="#c0392b", ms=7, mew=1.8, zorder=4)
        paint = colour.get(flight.message, FAINT)
        line = "-" if flight.message else (0, (2, 2))
        arrow = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 3, "linestyle": line, "color": paint}
        arrow["lw"] = 1.4 if flight.message else 0.8
        axes.annotate("", tip, (flight.departs, rows[flight.sender]), arrowprops=arrow, zorder=2)
    told: set[tuple[str, float, SiteId]] = set()
    for flight in film.flights:
        about = (flight.text, flight.departs, flight.sender)
        if flight.message and about not in told:  # one label for what goes to many
            told.add(about)
            _label_flight(flight, rows, colour, labels)


def _label_flight(flight: Flight, rows: dict[SiteId, int], colour: dict[str, str], labels: _Labels) -> None:
    """Say what kind of message it is, on its way; which one it is, its colour says."""
    x = flight.departs + 0.45 * (flight.arrives - flight.departs)
    y = rows[flight.sender] + 0.45 * (rows[flight.receiver] - rows[flight.sender])
    kind = flight.text.removesuffix(f" {flight.message}")
    labels.put(x, [y], kind, 6.5, color=colour.get(flight.message, INK), zorder=3)


def _marks(axes: Any, film: Film, rows: dict[SiteId, int], colour: dict[str, str], labels: _Labels) -> None:
    for mark in film.marks:
        row = rows[mark.site]
        paint = colour.get(mark.text.split(" ")[0], INK)
        if mark.kind == "deliver":  # named below the line; several at one moment stand in a column
            axes.plot(mark.time, row, marker="o", color=paint, ms=6, zorder=5)
            labels.put(mark.time, [row - 0.2, row - 0.36, row - 0.52], mark.text, 7.5, color=paint, zorder=4)
        elif mark.kind == "multicast":
            axes.plot(mark.time, row, marker="^", color=paint, ms=8, mec=INK, mew=0.6, zorder=5)
            heights = [row + 0.22, row + 0.38, row - 0.22]
            labels.put(mark.time, heights, mark.text, 7.5, color=paint, weight="bold", zorder=4)
        else:
            axes.plot(mark.time, row, marker="X" if mark.kind == "crash" else "P", color="#c0392b", ms=9, zorder=6)


def _legend(axes: Any, multicasts: list[str], colour: dict[str, str], y: float, inch_per_unit: float) -> None:
    """Name the messages and their groups by colour, as far as the line goes."""
    x, room = 0.0, axes.get_xlim()[1]
    for text in [*multicasts, "▲ multicast", "● delivered", "✕ lost", "dashed: repair", "time →"]:
        wide = (0.075 * len(text) + 0.25) / inch_per_unit
        if x + wide > room:
            return
        paint = colour.get(text.split(" ")[0], FAINT)
        axes.text(
            x, y, printable(text.replace(" ", " to ", 1) if text in multicasts else text), color=paint, fontsize=8
        )
        x += wide + (0.1 / inch_per_unit)
