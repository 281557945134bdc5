"""The way to a violation, told step by step and filmed: every step takes one unit of time."""

from collections.abc import Callable, Iterator

from ordercast.names import SiteId
from ordercast.sim.film import Film, Mark, flight_of
from ordercast.sim.steps import CARRY, CRASH, DOUBLE, LOSE, MULTICAST, RECONNECT, TICK, Steps

Move = tuple[int, int, int, int]
"""What happens: a kind, a site or a link, which message of the link, and after how many effects the site crashes.

Zero effects: it does not crash.
"""
State = tuple[int, ...]
"""A number for each site, one for each link, then losses, duplicates, reconnects and crashes left, and ticks passed."""


class Retelling:
    """Does the moves again from the start, with the explorer's `do`."""

    def __init__(self, known: Steps, start: State, do: Callable[[State, Move], State]) -> None:
        self.known, self.start, self.do = known, start, do
        self.links_end = known.count + known.count**2

    def tell(self, way: list[Move]) -> tuple[list[str], Film]:
        """Return the way to a state, told step by step and filmed: every step takes one unit of time."""
        state, steps = self.start, []
        film = Film(self.known.sites)
        departed: dict[int, list[float]] = {link: [] for link in range(self.known.count, self.links_end)}
        for time, move in enumerate(way, start=1):
            after = self.do(state, move)
            steps.append("; ".join([self._told(state, move), *self._delivered(state, after)]))
            self._shoot(film, departed, state, move, float(time))
            for link, times in departed.items():
                times.extend([float(time)] * (len(self.known.content[after[link]]) - len(times)))
            for site, message in self._new(state, after):
                film.happens(Mark(site, float(time), "deliver", message))
            state = after
        return steps, film

    def _shoot(self, film: Film, departed: dict[int, list[float]], state: State, move: Move, time: float) -> None:
        """Film one step; keeps up when what is on each link was put there."""
        kind, at, choice, effects = move
        if kind == MULTICAST:
            number = len(self.known.local[state[at]].after)
            text = f"{self.known.sites[at]}:{number + 1} {'+'.join(self.known.orders[at][number])}"
            film.happens(Mark(self.known.sites[at], time, "multicast", text))
        elif kind == CRASH:
            film.happens(Mark(self.known.sites[at], time, "crash"))
            film.happens(Mark(self.known.sites[at], time, "back"))
            for other in range(self.known.count):
                departed[self.known.count * (other + 1) + at].clear()
        elif kind == RECONNECT:
            one, other = divmod(at - self.known.count, self.known.count)
            departed[at].clear()
            departed[self.known.count * (other + 1) + one].clear()
        elif kind != TICK:
            sender, receiver = divmod(at - self.known.count, self.known.count)
            message, _ = self.known.message[self.known.content[state[at]][choice]]
            if effects:
                film.happens(Mark(self.known.sites[receiver], time, "crash"))
            departs = departed[at][choice] if kind == DOUBLE else departed[at].pop(choice)
            ends = (self.known.sites[sender], self.known.sites[receiver])
            film.flies(flight_of(*ends, message, departs, time, lost=kind == LOSE))

    def _told(self, state: State, move: Move) -> str:
        kind, at, choice, effects = move
        broken = f", and crashes after {effects} effects" if effects else ""
        if kind == MULTICAST:
            groups = self.known.orders[at][len(self.known.local[state[at]].after)]
            return f"{self.known.sites[at]} multicasts {'+'.join(groups)}{broken}"
        if kind == CRASH:
            return f"{self.known.sites[at]} crashes and restarts"
        if kind == TICK:
            return f"time passes{f'; {self.known.sites[at]} ticks' if effects else ''}{broken}"
        sender, receiver = divmod(at - self.known.count, self.known.count)
        if kind == RECONNECT:
            return f"the link of {self.known.sites[sender]} and {self.known.sites[receiver]} breaks and is mended"
        message, _ = self.known.message[self.known.content[state[at]][choice]]
        verb = {CARRY: "", LOSE: "lost: ", DOUBLE: "doubled: "}[kind]
        return f"{verb}{self.known.sites[sender]} -> {self.known.sites[receiver]} {message}{broken}"

    def _delivered(self, before: State, after: State) -> Iterator[str]:
        for site, message in self._new(before, after):
            yield f"{site} delivers {message}"

    def _new(self, before: State, after: State) -> Iterator[tuple[SiteId, str]]:
        for site, old, new in zip(self.known.sites, before, after, strict=False):
            for message, *_ in self.known.local[new].log[len(self.known.local[old].log) :]:
                yield site, message
