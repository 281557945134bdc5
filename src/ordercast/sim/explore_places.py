"""Every interleaving of swaps with nodes that enter and leave the tree (`protocols.swap.places`), and its verdict.

A state is what each node has become, what is under way on each link, and what the applications have not asked for yet.
Links are FIFO. All nodes tick together.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from ordercast.errors import PeerError
from ordercast.names import SiteId
from ordercast.protocols.swap.multicast import MsgKey
from ordercast.protocols.swap.places import Kind, Message, Place, PlaceState, Sends

TICKS_AT_MOST = 20  # in one run; who does not rest by then never will
_encode = msgspec.msgpack.Encoder().encode


class State(msgspec.Struct, array_like=True):
    """One moment of a run."""

    nodes: dict[SiteId, PlaceState]
    links: dict[str, list[Message]]
    """By `sender receiver`; empty ones are left out."""
    todo: dict[SiteId, list[str]]
    ticks: int


_decode = msgspec.msgpack.Decoder(State).decode


@dataclass(frozen=True)
class Case:
    """A tree, given by the parent of each node, and what applications ask for at each: `swap`, `leave`, `enter x`."""

    kind: Kind
    parents: Mapping[SiteId, SiteId | None]
    todo: Mapping[SiteId, tuple[str, ...]]
    ticks: int = 2
    """So many ticks may come at any moment, and not only when nothing is under way."""


@dataclass
class Explored:
    """What was found."""

    states: int = 0
    ends: int = 0
    found: list[str] = field(default_factory=list)


class World:
    """Nodes and links that can be put into any state."""

    def __init__(self, case: Case) -> None:
        self.case, self.messages = case, 0
        self.nodes = {name: _node(case, name) for name in {*case.parents, *case.todo}}
        self.links: dict[str, deque[Message]] = {}
        self.todo = {name: deque(case.todo.get(name, ())) for name in self.nodes}
        self.ticks = 0

    def freeze(self) -> bytes:
        """Return everything as bytes."""
        nodes = {name: self.nodes[name].snapshot() for name in sorted(self.nodes)}
        links = {name: list(link) for name, link in sorted(self.links.items()) if link}
        todo = {name: list(left) for name, left in sorted(self.todo.items()) if left}
        return _encode(State(nodes, links, todo, self.ticks))

    def thaw(self, data: bytes) -> None:
        """Be what was frozen."""
        state = _decode(data)
        for name, node in state.nodes.items():
            self.nodes[name].restore(node)
        self.links = {name: deque(link) for name, link in state.links.items()}
        self.todo = {name: deque(state.todo.get(name, ())) for name in self.nodes}
        self.ticks = state.ticks

    def moves(self) -> list[str]:
        """Return what may happen next."""
        under_way = [f"arrive {link}" for link, messages in sorted(self.links.items()) if messages]
        asks = [f"ask {name}" for name, left in sorted(self.todo.items()) if left]
        restless = any(node.object.restless for node in self.nodes.values())
        at_most = self.case.ticks if under_way + asks else max(self.case.ticks, TICKS_AT_MOST)
        return under_way + asks + (["tick"] if restless and self.ticks < at_most else [])

    def do(self, move: str) -> None:
        """Let something happen."""
        what, _, where = move.partition(" ")
        if what == "arrive":
            sender, to = where.split()
            self._send(to, self.nodes[to].take(sender, self.links[where].popleft()))
        elif what == "ask":
            self._send(where, self._ask(self.nodes[where], self.todo[where].popleft()))
        else:
            self.ticks += 1
            for name, node in sorted(self.nodes.items()):
                self._send(name, node.tick())

    def _ask(self, node: Place, what: str) -> Sends:
        verb, _, where = what.partition(" ")
        return node.swap() if verb == "swap" else node.leave() if verb == "leave" else node.enter(where)

    def _send(self, sender: SiteId, sends: Sends) -> None:
        for to, message in sends:
            self.messages += 1
            self.links.setdefault(f"{sender} {to}", deque()).append(message)


def _node(case: Case, name: SiteId) -> Place:
    parent = case.parents.get(name)
    children = tuple(other for other, above in case.parents.items() if above == name)
    return Place(name, case.kind, children if parent is None else (parent, *children), parent)


def explore(case: Case, states_at_most: int = 2_000_000) -> Explored:
    """Try everything; stop at the first violation."""
    world, found = World(case), Explored()
    start = world.freeze()
    came: dict[bytes, tuple[bytes, str]] = {start: (b"", "")}
    queue = deque([start])
    while queue and len(came) < states_at_most:
        now = queue.popleft()
        world.thaw(now)
        moves = world.moves()
        if not moves:
            found.ends += 1
            found.found = [*verdict(world)]
        for move in moves:
            world.thaw(now)
            try:
                world.do(move)
            except PeerError as error:
                found.found = [f"{move}: {error}"]
            after = world.freeze()
            if after not in came:
                came[after] = (now, move)
                queue.append(after)
        if found.found:
            found.found += _way(came, now)
            break
    found.states = len(came)
    return found


def _way(came: dict[bytes, tuple[bytes, str]], state: bytes) -> list[str]:
    way: list[str] = []
    while came[state][1]:
        state, move = came[state]
        way.insert(0, move)
    return way


def verdict(world: World) -> Iterator[str]:
    """Yield what is wrong when nothing is under way: all swaps in one chain, and the nodes in one tree."""
    for name, node in sorted(world.nodes.items()):
        if not node.rests:
            yield f"{name} does not rest"
    yield from _chain(world)
    yield from _tree(world)


def _chain(world: World) -> Iterator[str]:
    after: dict[MsgKey | None, MsgKey] = {}
    for name, node in world.nodes.items():
        for number, before in node.found.items():
            if before in after:
                yield f"{name}:{number} and {after[before]} both came after {before}"
            after[before] = (name, 1, number)
    last: MsgKey | None = None
    seen: dict[SiteId, int] = {}
    for _ in range(len(after)):
        if last not in after:
            yield f"nothing came after {last}"
            return
        last = after[last]
        if last[2] < seen.get(last[0], 0):
            yield f"{last} came after a later one of its node"
        seen[last[0]] = last[2]


def _tree(world: World) -> Iterator[str]:
    here = {name: node for name, node in world.nodes.items() if not node.left and (node.neighbours or len(node.found))}
    here |= {name: world.nodes[name] for name in world.case.parents if not world.nodes[name].left}
    edges = {frozenset((name, other)) for name, node in here.items() for other in node.neighbours}
    if any(
        name not in here[other].neighbours for name, node in here.items() for other in node.neighbours if other in here
    ):
        yield "neighbours do not agree"
    if any(not edge <= here.keys() for edge in edges):
        yield "somebody is a neighbour of a node that has left"
        return
    if len(edges) != len(here) - 1:
        yield f"{len(here)} nodes and {len(edges)} edges"
    ends = set()
    for name in here:
        at, steps = name, 0
        while at in here and (ahead := here[at].toward) is not None and steps <= len(here):
            at, steps = ahead, steps + 1
        ends.add(at if at in here and steps <= len(here) else "nowhere")
    if len(ends) != 1 or "nowhere" in ends:
        yield f"the way from different nodes ends at {', '.join(sorted(ends))}"
