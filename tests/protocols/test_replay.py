"""What a restart rebuilds: a frozen machine, a replayed one and the one that never died go on alike (errata 74)."""

import hashlib
import os
import random
import subprocess
import sys

import pytest

from ordercast import Membership
from ordercast.core.effects import Append, Deliver, Effect, Placed
from ordercast.core.events import Event
from ordercast.core.machines import Machines
from ordercast.names import ClassId, SiteId
from ordercast.protocols.registry import MACHINES, Deployment
from ordercast.protocols.sequencing.sequencer import HISTORY_AT_MOST
from ordercast.sim.network import Cut, Network
from ordercast.sim.scenario import Scenario, deploy, judge, run
from ordercast.sim.world import Crash, World
from tests.support.campaign import KINDS, MIXES, Kind, scenario
from tests.support.planted import planted


class Recorder(World):
    """A world that keeps every event of every machine, and how many effects it had."""

    def __init__(self, *given: object, **named: object) -> None:
        super().__init__(*given, **named)  # type: ignore[arg-type]
        self.events: dict[SiteId, list[Event]] = {site: [] for site in self.machines}
        for site, machine in self.machines.items():
            self._tap(site, machine)

    def _tap(self, site: SiteId, machine: Machines) -> None:
        step = type(machine).step

        def noted(event: Event) -> list[Effect]:
            self.events[site].append(event)
            return step(machine, event)

        self.machines[site] = _Tapped(machine, noted)  # type: ignore[assignment]


class _Tapped:
    def __init__(self, machine: Machines, step: object) -> None:
        self._machine, self.step = machine, step

    def __getattr__(self, name: str) -> object:
        return getattr(self._machine, name)


def told(effects: list[Effect]) -> list[Effect]:
    """What an application sees of a step."""
    return [effect for effect in effects if isinstance(effect, Deliver | Placed)]


def recorded(kind: Kind, seed: int) -> tuple[Deployment, dict[SiteId, list[Event]]]:
    case = scenario(kind, "lossy", seed)
    deployment = deploy(case)
    world = Recorder(deployment, seed, case.network, case.tick)
    chance = random.Random(seed)
    for index in range(30):
        group = chance.choice(list(deployment.groups.members))
        world.multicast(index * 0.7, chance.choice(deployment.groups.sources), (group,), b"%d" % index)
    world.run(3000)
    return deployment, world.events


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind[0] + ("-causal" if kind[1] else ""))
def test_three_lives_are_one(kind: Kind) -> None:
    """At random cut points of random runs: frozen and thawed, replayed from the log, and never stopped.

    The replayed one has the same snapshot, up to what is volatile: everything that changes the rest was appended.

    The frozen one asks for exactly the same. The replayed one has forgotten acknowledgements, so it may repeat itself
    on the network; what it delivers, and where it says that messages stand, is the same.
    """
    for seed in range(6):
        deployment, events = recorded(kind, seed)
        chance = random.Random(seed)
        for site in chance.sample(sorted(events), 3):
            cut = chance.randrange(len(events[site]) + 1)
            machine = deployment.machines(site)
            log: list[Event] = []
            for event in events[site][:cut]:
                log += [effect.event for effect in machine.step(event) if isinstance(effect, Append)]
            frozen = deployment.machines(site)
            frozen.restore(deployment.decode(deployment.encode(machine.snapshot())))
            replayed = deployment.machines(site)
            for event in log:
                replayed.step(event)

            for class_id in deployment.groups.classes:  # a machine that only heard what is not logged is a new one
                machine.machine(class_id), frozen.machine(class_id), replayed.machine(class_id)
            assert replayed.snapshot().durable() == machine.snapshot().durable()
            for event in events[site][cut:]:
                effects = machine.step(event)
                assert effects == frozen.step(event)
                assert told(effects) == told(replayed.step(event))
            assert len(machine.held()) == len(frozen.held()) == len(replayed.held())


def digest() -> str:
    """Everything that all machines deliver in a run with crashes, as one number."""
    lines: list[str] = []
    for kind in KINDS:
        for seed in range(2):
            run(scenario(kind, "faults", seed), trace=lines.append)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


@pytest.mark.slow
def test_hash_seeds_change_nothing() -> None:
    """A run is a function of its seed, and not of the order in which a set of strings happens to be walked."""
    command = [sys.executable, "-c", "from tests.protocols.test_replay import digest; print(digest())"]
    digests = {
        subprocess.run(
            command, env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("0", "1", "4242")
    }

    assert len(digests) == 1


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_a_sequencer_restarted_after_more_than_its_history_goes_on(causal: bool) -> None:
    """2,500 messages, a member away for a while, the sequencer killed in the middle: everything arrives.

    Its history holds 1,024; what it refused meanwhile depends on what members reported, so that is in its log.
    """
    family = Membership.of({"A": "abc", "B": "bcd"})
    deployment = deploy(Scenario(family, "sequencer", causal=causal, senders=4))
    sequencer = deployment.sequencers(ClassId(1, 0))[0]
    away = next(site for site in "abcd" if site != sequencer)
    network = Network(cuts=(Cut(away, sequencer, 100, 900),))
    world = World(deployment, 1, network, durable=True)
    for index in range(2500):
        source = deployment.groups.sources[index % len(deployment.groups.sources)]
        groups = (("A",), ("B",), ("A", "B"))[index % 3]
        world.multicast(index / 3, source, groups, b"%d" % index)
    world.crash(Crash(sequencer, 500, 520))
    world.crash(Crash(sequencer, 950, 960, between=True))
    verdict = judge(world, 100_000)

    assert verdict.ok, verdict.findings
    assert verdict.outcome.sends > 2400


def test_a_full_history_is_sequenced_on_when_a_member_comes_back() -> None:
    """Two classes, causal, the sequencer's own requests wait while a member is away: no tick decides anything."""
    family = Membership.of({"A": "ab", "B": "cd"})
    deployment = deploy(Scenario(family, "sequencer", causal=True, senders=8))
    assert deployment.sequencers(ClassId(1, 0))[0] == "a" in deployment.groups.sources
    world = World(deployment, 1, Network(cuts=(Cut("a", "b", 0, 300),)), durable=True)
    for index in range(HISTORY_AT_MOST + 100):
        world.multicast(index / 20, "a", ("A",), b"%d" % index)
        if index % 50 == 0:
            world.multicast(index / 20, "a", ("B",), b"other %d" % index)
    verdict = judge(world, 100_000)

    assert verdict.ok, verdict.findings


@pytest.mark.slow
@pytest.mark.parametrize("causal", [False, True])
def test_a_sequencer_with_a_short_history_keeps_everything(causal: bool) -> None:
    """The campaign again with a history of six: requests are refused and taken later all the time."""
    with planted("protocols.sequencing.sequencer", ("HISTORY_AT_MOST = 1024", "HISTORY_AT_MOST = 6")):
        for seed in range(25):
            for mix in MIXES:
                verdict = run(scenario(("sequencer", causal), mix, seed))

                assert verdict.ok, (mix, seed, verdict.findings)


@pytest.mark.parametrize("protocol", MACHINES)
def test_a_message_whose_only_destination_is_its_source(protocol: str) -> None:
    """Two-phase decided it while it started it, and again, and again."""
    family = Membership.of({"A": "a", "B": "ab", "C": "b"}).with_unions([("A", "B")])
    deployment = deploy(Scenario(family, protocol, senders=4))
    world = World(deployment)
    for _ in range(700):
        for groups in (("A",), ("A", "B"), ("B",), ("A",)):
            world.multicast(0.0, "a", groups)
    verdict = judge(world)

    assert verdict.ok, verdict.findings
    assert verdict.outcome.sends == 2800
