"""How long until a message is ordered: the swaps of HTW00 against the counting they truncate, on one tree."""

import random

from msgspec.structs import replace

from ordercast.core.effects import Effect, Send
from ordercast.core.streams import Carry
from ordercast.membership.table import Membership
from ordercast.names import Shape, SiteId
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
    protocol: str, senders: int, at_once: bool, rounds: int = 20, sites: int = 64, shape: Shape = Shape.BALANCED
) -> tuple[float, float, int]:
    """Return mean and worst latency until ordered, and the most hops."""
    names = [f"s{index:03}" for index in range(sites)]
    deployment = deploy(Scenario(Membership.of({"all": names}), protocol, tree=shape, senders=0))
    deployment = replace(deployment, groups=replace(deployment.groups, sources=tuple(names)))
    world = _Clocked(deployment, network=Network(), tick=1.0)
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
