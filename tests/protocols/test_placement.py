"""Which site sequences which part: by load, on members or on sites of their own (KIN §4.2)."""

import pytest

from ordercast import Membership
from ordercast.errors import InputError
from ordercast.protocols.sequencing.placement import place, weight
from ordercast.sim.happenings import Crash
from ordercast.sim.network import Network
from ordercast.sim.scenario import Scenario, deploy, run

GROUPS = {f"g{index}": [f"s{2 * index}", f"s{2 * index + 1}"] for index in range(8)}
"""Eight groups that share no site: eight classes."""


def test_the_heaviest_part_goes_first_to_the_least_loaded() -> None:
    parts = [({"x": "ab"}, "pq"), ({"y": "abcde"}, "pq"), ({"z": "abc"}, "pq")]

    assert place(parts) == ["q", "p", "q"]
    assert place(parts, {"p": 6}) == ["p", "q", "q"], "q has nothing, then 5, then 8"


def test_without_names_it_is_a_member_in_most_groups() -> None:
    assert place([({"x": "abc", "y": "bcd"}, ()), ({"z": "bc"}, ())]) == ["b", "c"], "b has the first part already"


@pytest.mark.parametrize("sequencers", [1, 2, 4, 8])
def test_several_sequencers_share_what_the_classes_permit(sequencers: int) -> None:
    names = tuple(f"q{index}" for index in range(sequencers))
    deployment = deploy(Scenario(Membership.of(GROUPS), "sequencer", sequencers=names))

    load: dict[str, int] = {}
    for group, members in GROUPS.items():
        site = deployment.orders(group)
        assert site is not None
        load[site] = load.get(site, 0) + weight({group: members})
    assert load == dict.fromkeys(names, 16 // sequencers)


@pytest.mark.parametrize("causal", [False, True])
def test_sequencers_in_no_group_keep_every_promise(causal: bool) -> None:
    """One of them dies and comes back; links lose, double and reorder."""
    groups = Membership.of({"A": "abc", "B": "bcd", "C": "ef", "D": "fg"})
    network = Network(jitter=2.0, loss=0.1, duplicate=0.1)
    options = {"sequencers": ("p", "q"), "causal": causal, "network": network, "crashes": (Crash("p", 10.0, 30.0),)}
    for seed in range(5):
        verdict = run(Scenario(groups, "sequencer", seed=seed, **options))  # type: ignore[arg-type]
        assert verdict.ok, verdict.findings
        assert {verdict.deployment.orders(group) for group in "ABCD"} == {"p", "q"}


def test_a_protocol_without_sequencers_takes_none() -> None:
    with pytest.raises(InputError, match="protocol arrow has no sequencers"):
        deploy(Scenario(Membership.of(GROUPS), "arrow", sequencers=("q",)))
