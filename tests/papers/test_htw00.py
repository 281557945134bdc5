"""HTW00's claims, measured in the simulator."""

import itertools
import random
from collections.abc import Collection

import pytest

from ordercast.core.effects import Effect, Send
from ordercast.core.streams import Carry
from ordercast.errors import InputError
from ordercast.membership.table import Membership
from ordercast.names import Shape, SiteId
from ordercast.planning.routes import SpanningTree
from ordercast.protocols.registry import MACHINES
from ordercast.protocols.swap.multicast import Found, Swap
from ordercast.sim.network import Network
from ordercast.sim.scenario import Scenario, deploy, judge, run
from ordercast.sim.world import World
from tests.support.latency import until_ordered


@pytest.mark.slow
@pytest.mark.parametrize("senders", [1, 4, 16, 64])
def test_swap_is_as_fast_as_counting_when_alone_and_faster_in_a_crowd(senders: int) -> None:
    """§4, §5: a swap quits early; the arrow never takes more hops than the tree is wide (§4)."""
    for swap, counting in (("arrow", "arrow-counting"), ("combining", "combining-counting")):
        mean, _, hops = until_ordered(swap, senders, at_once=True, rounds=5)
        counted, _, _ = until_ordered(counting, senders, at_once=True, rounds=5)

        assert mean < counted if senders > 1 or swap == "combining" else mean == counted
        assert hops <= 11


@pytest.mark.slow
def test_one_after_the_other_the_arrow_and_its_counting_version_are_the_same() -> None:
    """§4."""
    assert until_ordered("arrow-counting", 8, at_once=False, rounds=4) == until_ordered(
        "arrow", 8, at_once=False, rounds=4
    )


@pytest.mark.parametrize("shape", list(Shape))
@pytest.mark.parametrize("protocol", [name for name, kind in MACHINES.items() if kind.tree])
def test_any_tree_will_do(protocol: str, shape: Shape) -> None:
    """HTW00 §4 takes any spanning tree: the shape changes the way of a swap, and nothing that is promised."""
    members = Membership.of({"A": "abcd", "B": "bcde", "C": "efa"})
    verdict = run(Scenario(members, protocol, tree=shape, network=Network(jitter=3.0, loss=0.1), seed=5))

    assert verdict.ok, verdict.findings


@pytest.mark.parametrize("shape", list(Shape))
@pytest.mark.parametrize("levels", [0, 2, 9])
def test_the_hybrid_on_any_upper_part_of_the_tree(levels: int, shape: Shape) -> None:
    """§6.1: with no level all combine, with all of them it is the arrow, and in between both."""
    members = Membership.of({"A": "abcdefgh", "B": "bcde", "C": "efa"})
    options = {"tree": shape, "network": Network(jitter=3.0, loss=0.1), "seed": 5, "messages": 60}
    hybrid = run(Scenario(members, "hybrid", upper=levels, **options))  # type: ignore[arg-type]

    assert hybrid.ok, hybrid.findings
    if levels == 9:
        arrow = run(Scenario(members, "arrow", **options))  # type: ignore[arg-type]
        assert hybrid.record.logs == arrow.record.logs


def test_an_upper_part_is_the_hybrid_s() -> None:
    with pytest.raises(InputError, match="--upper is for hybrid"):
        deploy(Scenario(Membership.of({"A": "ab"}), "arrow", upper=2))


def test_a_shape_without_a_tree_is_refused() -> None:
    with pytest.raises(InputError, match="protocol sequencer has no tree of a swap object"):
        deploy(Scenario(Membership.of({"A": "ab"}), "sequencer", tree=Shape.PATH))


def test_a_tree_by_latency_is_a_minimum_spanning_tree_below_the_nearest_site() -> None:
    """Beside a slow twin: every tree over five sites is tried."""
    sites, chance = "abcde", random.Random(3)
    pairs = list(itertools.combinations(sites, 2))
    for _ in range(20):
        latencies = {pair: float(chance.randint(1, 9)) for pair in pairs}
        tree = SpanningTree(sites, Shape.LATENCY, latencies)
        edges = {tuple(sorted((site, parent))) for site in sites if (parent := tree.parent(site)) is not None}
        least = min(sum(latencies[edge] for edge in some) for some in itertools.combinations(pairs, 4) if joins(some))
        sums = {site: sum(latency for pair, latency in latencies.items() if site in pair) for site in sites}

        assert joins(edges) and tree.parent(tree.root) is None
        assert sum(latencies[one, other] for one, other in edges) == least
        assert sums[tree.root] == min(sums.values())


def joins(edges: Collection[tuple[str, ...]]) -> bool:
    """Whether four edges join five sites."""
    found = {"a"}
    for _ in range(4):
        found |= {site for edge in edges if found.intersection(edge) for site in edge}
    return found == set("abcde")


def test_a_tree_by_latency_is_faster_between_towns() -> None:
    """Four towns: by name neighbours in the tree live in different ones, by latency in the same."""
    for protocol in ("arrow", "combining"):
        taken = {shape: until_ordered(protocol, 8, True, 3, 32, shape, towns=4)[0] for shape in Shape}
        assert min(taken, key=lambda shape: taken[shape]) in (Shape.LATENCY, Shape.STAR)
        assert taken[Shape.LATENCY] < taken[Shape.BALANCED] / 2 and taken[Shape.LATENCY] < taken[Shape.PATH] / 2


@pytest.mark.parametrize("protocol", ["arrow", "combining", "hybrid"])
def test_sources_multicast_or_who_finds_the_predecessor_does(protocol: str) -> None:
    """§3 and §4: the same order; §3 takes one hop more, and no body travels along the tree."""
    members = Membership.of({"A": "abcdefgh", "B": "bcde", "C": "efa"})
    orders, bodies = [], []
    for by_source in (False, True):
        seen: list[Effect] = []

        class Watching(World):
            def _apply(self, site: SiteId, effects: list[Effect], seen: list[Effect] = seen) -> None:
                seen += effects
                super()._apply(site, effects)

        world = Watching(deploy(Scenario(members, protocol, by_source=by_source, senders=3)), seed=1)
        for at in range(12):
            world.multicast(30.0 * at, world.deployment.groups.sources[at % 3], ("ABC"[at % 3],), b"body %d" % at)
        verdict = judge(world)

        assert verdict.ok, verdict.findings
        sent = [e.message.message for e in seen if isinstance(e, Send) and isinstance(e.message, Carry)]
        bodies.append(
            [bool(one.envelope.body) for one in sent if isinstance(one, Swap) and one.envelope.source in members.sites]
        )
        orders.append(verdict.record.logs)
        assert any(isinstance(one, Found) for one in sent) == by_source

    assert orders[0] == orders[1]
    assert all(bodies[0]) and bodies[0] and not any(bodies[1])


def test_sources_multicast_where_there_is_a_swap_object() -> None:
    with pytest.raises(InputError, match="protocol timestamp has no swap object"):
        deploy(Scenario(Membership.of({"A": "ab"}), "timestamp", by_source=True))


def test_a_star_is_two_hops_deep_and_a_path_is_long() -> None:
    """A lone swap goes to the sink: the root at first, then the last who swapped."""
    hops = {shape: until_ordered("arrow", 1, False, 20, 32, shape)[2] for shape in Shape}

    assert hops[Shape.STAR] == 2 < hops[Shape.BALANCED] <= 10 < hops[Shape.PATH] <= 31
