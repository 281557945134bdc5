"""A history stepped through again delivers what was delivered, whatever acknowledgements did to the first machine."""

import dataclasses

import pytest

from ordercast.core.effects import Deliver
from ordercast.core.events import Event
from ordercast.sim import world as worlds
from ordercast.sim.scenario import Scenario, deploy
from ordercast.sim.workload import WORKLOADS
from ordercast.sim.world import World
from tests.support.campaign import KINDS, Kind, scenario


@pytest.fixture(autouse=True)
def whole_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep no checkpoints: the log of a site is then all it ever wrote."""
    monkeypatch.setattr(worlds, "CHECKPOINTS", 0.0)


def ran(case: Scenario) -> World:
    world = World(deploy(case), case.seed, case.network, case.tick, durable=True)
    groups = world.deployment.groups
    world.feed(WORKLOADS[case.workload](world.chance, groups, case.messages, case.span, case.several))
    world.run()
    return world


def delivered_again(world: World, site: str, log: list[Event]) -> list[tuple[str, bytes]]:
    machine = world.deployment.machines(site)
    effects = [effect for event in log for effect in machine.step(event)]
    return [(effect.envelope.msg_id, effect.stamp) for effect in effects if type(effect) is Deliver]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0] + ("-causal" if kind[1] else ""))
def test_a_replay_delivers_the_same_in_the_same_order(kind: Kind) -> None:
    """Bursts with long pauses: much is acknowledged and forgotten, some is not.

    What is not logged, acknowledgements and ticks, must not decide what is delivered when.
    """
    for seed in range(10):
        mixed = scenario(kind, ("calm", "jitter", "lossy")[seed % 3], seed)
        case = dataclasses.replace(
            mixed, messages=150, span=900.0, several=0.1, workload="bursts", receipts=kind[0] == "propagation"
        )
        world = ran(case)
        assert world.logs is not None
        for site, log in world.logs.items():
            live = [(d.envelope.msg_id, d.stamp) for d in world.outcome.deliveries if d.site == site]
            assert live == delivered_again(world, site, log), f"seed {seed}, {site}"
