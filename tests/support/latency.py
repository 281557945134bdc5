"""How long until a message is ordered: the swaps of HTW00 against the counting they truncate, on one tree."""

import random
from heapq import heappop, heappush
from itertools import count

from msgspec.structs import replace

from ordercast.core.effects import Effect, Send
from ordercast.core.streams import Carry
from ordercast.membership.table import Membership
from ordercast.names import Shape, SiteId
from ordercast.planning.routes import SpanningTree
from ordercast.protocols.swap.bitonic import Bitonic, Counter, Node
from ordercast.protocols.swap.counting import Count, Numbered
from ordercast.protocols.swap.multicast import Ordered, Swap
from ordercast.sim.network import Network
from ordercast.sim.scenario import Scenario, deploy
from ordercast.sim.world import World

APART = 200.0  # between rounds: everything is quiet again


class _Clocked(World):
    """Notes when each message is ordered, and how many hops it took on the tree."""

    def watch_orders(self) -> None:
        """Begin."""
        self.ordered: dict[tuple[str, int], float] = {}
        self.hops: dict[tuple[str, int], int] = {}

    def _apply(self, site: SiteId, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Carry):
                inner = effect.message.message
                if isinstance(inner, Ordered | Numbered):
                    self.ordered.setdefault((inner.envelope.source, inner.envelope.number), self.now)
                elif isinstance(inner, Swap | Count) and inner.envelope is not None:
                    key = (inner.envelope.source, inner.envelope.number)
                    self.hops[key] = self.hops.get(key, 0) + 1
        super()._apply(site, effects)


def until_ordered(
    protocol: str, senders: int, at_once: bool, rounds: int = 20, sites: int = 64, shape: Shape = Shape.BALANCED,
    *, towns: int = 0, by_source: bool = False,
) -> tuple[float, float, int]:  # fmt: skip
    """Return mean and worst latency until ordered, and the most hops.

    With `towns` sites are near those of their town (0.1) and far from others (10), whatever their names.
    """
    names = [f"s{index:03}" for index in range(sites)]
    pairs = [(one, other) for one in range(sites) for other in range(one) if towns]
    far = {(names[one], names[other]): 0.1 if one % towns == other % towns else 10.0 for one, other in pairs}
    network = Network(latencies=far)
    case = Scenario(
        Membership.of({"all": names}), protocol, tree=shape, senders=0, network=network, by_source=by_source
    )
    deployment = deploy(case)
    deployment = replace(deployment, groups=replace(deployment.groups, sources=tuple(names)))
    world = _Clocked(deployment, network=network, tick=1.0)
    world.watch_orders()
    chance = random.Random(0)
    begun: dict[tuple[str, int], float] = {}
    sent = dict.fromkeys(names, 0)
    time = 1.0
    for _ in range(rounds):
        for site in chance.sample(names, senders):
            sent[site] += 1
            begun[site, sent[site]] = time
            world.multicast(time, site, ("all",))
            time += 0.0 if at_once else APART
        time += APART
    world.run()
    assert set(begun) == set(world.ordered)
    taken = [world.ordered[key] - begun[key] for key in begun]
    return sum(taken) / len(taken), max(taken), max(world.hops.values(), default=0)


def until_numbered(
    senders: int, rounds: int = 20, sites: int = 64, shape: Shape = Shape.BALANCED, width: int = 16
) -> float:
    """Return the mean latency until a message has its number from a counting network, all senders at once.

    Its nodes are spread evenly over the sites of the tree, and between two nodes a request goes along the tree. Where
    its number is given it is multicast, as by the sink of an arrow.
    """
    names = [f"s{index:03}" for index in range(sites)]
    tree, network, chance = SpanningTree(names, shape), Bitonic(width), random.Random(0)
    above = {site: _way_up(tree, site) for site in names}
    at = {place: names[place * sites // network.nodes] for place in range(network.nodes)}
    taken: list[float] = []
    for _ in range(rounds):
        turn, queue = count(), list[tuple[float, int, SiteId, Node]]()
        for site in chance.sample(names, senders):
            heappush(queue, (0.0, next(turn), site, network.inputs[chance.randrange(width)]))
        while queue:
            now, _, site, node = heappop(queue)
            here = at[node.place]
            if site != here:
                heappush(queue, (now + _hops(above[site], above[here]), next(turn), here, node))
            elif isinstance(node, Counter):
                node.count()
                taken.append(now)
            else:
                heappush(queue, (now, next(turn), here, node.step()))
    return sum(taken) / len(taken)


def _way_up(tree: SpanningTree, site: SiteId) -> list[SiteId]:
    found = [site]
    while (parent := tree.parent(found[-1])) is not None:
        found.append(parent)
    return found


def _hops(one: list[SiteId], other: list[SiteId]) -> int:
    """Return the distance of two sites, from their ways to the root."""
    common = len(set(one) & set(other))
    return len(one) + len(other) - 2 * common
