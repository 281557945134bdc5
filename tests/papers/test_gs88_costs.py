"""GS88 §4: N and D of Tables 1 and 2, measured in the simulator, message by message."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from ordercast import Planner
from ordercast.planning.cost import Terms, broadcast, point_to_point
from ordercast.planning.plan import GroupPlan
from ordercast.protocols.registry import Deployment
from ordercast.sim.network import Network
from ordercast.sim.scenario import Scenario, deploy
from ordercast.sim.world import World
from tests.planning.families import uniform

L, P, T = 10.0, 1.0, 7.0
POINT_TO_POINT = Network(latency=L, processing=P)
BROADCAST = Network(latency=0.0, broadcast=T)


def measure(deployment: Deployment, group: str, network: Network) -> tuple[int, float]:
    """Send one message to a group from outside; return N, and D: until the last member delivers."""
    outside = replace(deployment, groups=replace(deployment.groups, sources=("outside",)))
    world = World(outside, network=network, tick=1e6)
    world.multicast(0.0, "outside", (group,))
    outcome = world.run(until=1e5)
    assert len(outcome.deliveries) == len(deployment.groups.members[group])
    return outcome.messages, max(delivery.time for delivery in outcome.deliveries)


def planned(planner: Planner) -> Iterator[tuple[Deployment, str, GroupPlan]]:
    for seed in range(8):
        deployment = deploy(Scenario(uniform(20, 10, 5, seed), planner=planner, senders=0))
        assert deployment.plan is not None
        for group, route in deployment.plan.groups.items():
            yield deployment, group, route


@pytest.mark.slow
@pytest.mark.parametrize("planner", [Planner.GREEDY, Planner.ELIMINATION, Planner.METAGROUP])
def test_propagation(planner: Planner) -> None:
    """N is n + ε exactly, D never above (d+1)L + (n+ε)P."""
    for deployment, group, route in planned(planner):
        expected = point_to_point(len(route.members), route.depth, len(route.extra))["propagation"]
        messages, delay = measure(deployment, group, POINT_TO_POINT)

        assert expected.messages == messages
        assert delay <= expected.delay(L, P) + 1e-9


@pytest.mark.slow
def test_central() -> None:
    """N is n and D is 2L + nP, where the central site is a member; one message and one P more where it is not."""
    for deployment, group, route in planned(Planner.CENTRAL):
        sent = len(route.members) + len(route.extra)
        expected = point_to_point(sent, route.depth, 0)["centralized"]

        assert (expected.messages, expected.delay(L, P)) == measure(deployment, group, POINT_TO_POINT)
        assert (2, 2 * T) == measure(deployment, group, BROADCAST)


@pytest.mark.slow
def test_two_phase() -> None:
    """N is 3n and D is 3L + (2n+1)P; on a broadcast network n+2 messages of T each."""
    for seed in range(8):
        deployment = deploy(Scenario(uniform(20, 10, 5, seed), "two-phase", senders=0))
        for group, members in deployment.groups.members.items():
            expected = point_to_point(len(members), 0, 0)["two-phase"]
            shared: Terms = broadcast(len(members), 0)["two-phase"]

            assert (expected.messages, expected.delay(L, P)) == measure(deployment, group, POINT_TO_POINT)
            assert (shared.messages, shared.delay(broadcast=T)) == measure(deployment, group, BROADCAST)


@pytest.mark.slow
def test_propagation_on_a_broadcast_network() -> None:
    """Table 2 says d+1: true where each level has one site that passes on; every further one is a message more."""
    levels_shared = 0
    for deployment, group, route in planned(Planner.ELIMINATION):
        assert deployment.plan is not None
        senders = {edge.parent for edge in deployment.plan.edges if group in edge.groups}
        messages, delay = measure(deployment, group, BROADCAST)

        assert 1 + len(senders) == messages
        assert messages * T == delay
        assert messages >= broadcast(len(route.members), route.depth)["propagation"].messages
        levels_shared += messages > route.depth + 1
    assert levels_shared
