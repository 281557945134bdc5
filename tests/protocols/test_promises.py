"""What a deployment promises holds in every combination that is accepted; the rest is refused by name."""

import random
from itertools import product

import msgspec
import pytest
from msgspec.structs import replace

from ordercast import ClassRule, Cluster, Level, Membership, Planner, Request
from ordercast.core.configuration import Configuration
from ordercast.core.effects import Effect, Send
from ordercast.errors import InputError, PlanError
from ordercast.live.config import deploy as deploy_cluster
from ordercast.names import SiteId
from ordercast.planning.planners import plan_forest
from ordercast.protocols.propagation.machine import Propagation
from ordercast.protocols.propagation.messages import Propagate
from ordercast.protocols.registry import MACHINES, Causal, Deployment
from ordercast.sim.explorer import Case, Explorer
from ordercast.sim.network import Network
from ordercast.sim.scenario import Scenario, deploy, judge
from ordercast.sim.world import World
from ordercast.verify import plans
from tests.support.planted import planted

PATH = Membership.of({"A": "ab", "B": "bc", "C": "cd"})
"""Three classes in a row; one component."""


def test_causal_order_is_refused_where_it_would_not_hold() -> None:
    apart = [["A"], ["B"], ["C"]]
    groups = Configuration.of(PATH.as_dict(), apart, "abcd", causal=True)
    for protocol, kind in MACHINES.items():
        if kind.causal is not Causal.ANY:
            with pytest.raises(InputError, match=r"causal order"):
                Deployment(protocol, groups, causal=True)
        with pytest.raises(InputError, match="a class of several parts is for causal order"):
            Deployment(protocol, groups)
    with pytest.raises(InputError, match="it takes one class"):
        Deployment("sequencer", Configuration.of(PATH.as_dict(), apart, "abcd"), causal=True)
    with pytest.raises(InputError, match="two-phase keeps no causal order"):
        deploy(Scenario(PATH, "two-phase", causal=True))
    with pytest.raises(InputError, match="protocol is one of"):
        Deployment("gossip", groups)


def test_a_pipelined_request_is_known_to_what_comes_after_it() -> None:
    """X sends to A and to H without waiting; z delivers the second and writes to B; q, in A and B, has x:1 first.

    A and H have one sequencer, B another. X does not know the number of x:1 when it sends x:2: the sequencer adds it.
    """
    family = Membership.of({"A": "abq", "H": "abz", "B": "qz"})
    case = Scenario(family, "sequencer", level=Level.TOTAL, class_rule=ClassRule.S2, causal=True, senders=0)
    deployment = deploy(case)
    assert len(deployment.groups.orders) == 2

    def broken() -> dict[str, str]:
        groups = replace(deployment.groups, sources=("x", "z"))
        fresh = Deployment("sequencer", groups, level=Level.TOTAL, causal=True)
        return Explorer(Case(fresh, (("x", ("A",)), ("x", ("H",)), ("z", ("B",))))).run().findings

    assert broken() == {}
    with planted("protocols.sequencing.sequencer", ("in earlier.merged(past) if", "in past if")):
        assert list(broken()) == ["causal"]


@pytest.mark.parametrize(("protocol", "level"), list(product(MACHINES, Level)))
def test_classes_too_fine_for_the_level_are_refused(protocol: str, level: Level) -> None:
    """The triangle: its three classes by s2 keep `total`, and not `acyclic`."""
    triangle = Membership.of({"G": "pq", "H": "qr", "I": "rp"})
    case = Scenario(triangle, protocol, level=level, class_rule=ClassRule.S2)
    if level is Level.ACYCLIC:
        with pytest.raises((InputError, PlanError)):
            deploy(case)
    else:
        assert len(deploy(case).groups.classes) == 3


@pytest.mark.slow
def test_errata_73_the_judge_and_the_machine_have_one_model_of_an_edge() -> None:
    """Central plans by s2 over all families of a kind: what the judge accepts no reordering of streams breaks.

    What it refuses breaks: links that reorder stand for a lost packet, after which each class is sent again by itself.
    """
    verdicts = set()
    for seed in range(14):
        chance = random.Random(seed)
        family = Membership.of({name: chance.sample("abcd", chance.choice([2, 2, 3])) for name in "GHI"})
        request = Request(Planner.CENTRAL, Level.ACYCLIC, ClassRule.S2)
        plan = plan_forest(family, request).forest.plan("central", Level.ACYCLIC)
        verdict = plans.judge(plan, family.as_dict())
        groups = Configuration.of(family.as_dict(), plan.classes, "xyz")
        case = Case(
            Deployment("propagation", groups, plan), (("x", ("G",)), ("y", ("H",)), ("z", ("I",))), reorder=True
        )
        explored = Explorer(case).run()

        assert verdict.ok == (not explored.findings), (family.as_dict(), verdict, explored.findings)
        verdicts.add(verdict.ok)

    assert verdicts == {True, False}


def test_a_damaged_plan_in_the_data_folder_is_refused(tmp_path: object) -> None:
    """A plan that lacks an edge made a multicast hang; now the site does not start, and says which file it is."""
    groups = {"A": ["a", "b", "c"], "B": ["b", "c", "d"]}
    sites = {site: f"127.0.0.1:{7400 + index}" for index, site in enumerate("abcd")}
    cluster = Cluster(sites=sites, groups=groups, folder=str(tmp_path))
    plan = deploy_cluster(cluster).plan
    assert plan is not None
    (path,) = cluster.data_folder.glob("plan-*.json")
    path.write_bytes(msgspec.json.encode(replace(plan, edges=plan.edges[1:])))

    with pytest.raises(InputError, match=rf"{path.name}: not a plan for this cluster: PG2 does not hold"):
        deploy_cluster(cluster)
    path.write_bytes(msgspec.json.encode(replace(plan, level=Level.TOTAL)))
    with pytest.raises(InputError, match="is for level total, not acyclic"):
        deploy_cluster(cluster)


class _Headers(World):
    """A world that keeps how long the pasts of messages are."""

    def __init__(self, *given: object, **named: object) -> None:
        super().__init__(*given, **named)  # type: ignore[arg-type]
        self.lengths: list[int] = []

    def _apply(self, site: SiteId, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, Send):
                inner = getattr(effect.message, "message", None)
                if isinstance(inner, Propagate):
                    self.lengths.append(len(inner.past))
        super()._apply(site, effects)


@pytest.mark.slow
def test_causal_headers_name_what_is_under_way() -> None:
    """50 senders, 20 groups, three rounds: the header does not grow with what was sent, and ends empty."""
    chance = random.Random(1)
    sites = [f"s{index:02}" for index in range(50)]
    family = Membership.of({f"g{index:02}": chance.sample(sites, 5) for index in range(20)})
    deployment = deploy(Scenario(family, causal=True, senders=0))
    deployment = replace(deployment, groups=replace(deployment.groups, sources=tuple(sites)))
    world = _Headers(deployment, 1, Network(jitter=1.0), tick=2.0)
    rounds = 3
    for number in range(rounds):
        for index, (site, group) in enumerate(product(sites, family.groups)):
            world.multicast(1000.0 * number + index, site, (group,))
    verdict = judge(world)

    assert verdict.ok, verdict.findings
    longest = [max(world.lengths[: len(world.lengths) // 3]), max(world.lengths)]
    assert longest[1] <= longest[0]
    assert longest[1] < 150  # of 1,000 pairs of a sender and a group
    (class_id,) = deployment.groups.classes
    for machines in world.machines.values():
        machine = machines.machine(class_id)
        assert isinstance(machine, Propagation)
        assert not any(machine.pasts.known.values())
