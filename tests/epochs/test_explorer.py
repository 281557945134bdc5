"""Every interleaving of a change, and every single fault in every moment of it: samples here, all in `make sim`."""

import importlib
import os

import pytest

from ordercast.names import Delivery, Planner, Policy
from ordercast.sim.explore_changes import FAULTS, Explorer
from tests.support.change_cases import CHANGES, MARKERS, PROTOCOLS, marker, race, small
from tests.support.planted import planted


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_change_ends_in_every_interleaving(protocol: str, change: str) -> None:
    explored = Explorer(small(change, protocol), later=True).run()

    assert explored.whole and explored.found == []
    assert explored.ends >= 1


@pytest.mark.slow
@pytest.mark.parametrize(("name", "sends"), [("transfer", 1), ("two transfers", 0), ("transfer and leave", 0)])
def test_races_of_sequencers(name: str, sends: int) -> None:
    """Three groups at two sequencers, two changes at once; `make sim` meets every moment of all of them."""
    case = race(name, sends)
    assert len({site for of_class in case.setup.classes.values() for site in of_class.sequencers}) >= 2

    explored = Explorer(case).run()

    assert explored.whole and explored.found == []


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_one_fault_in_any_moment(change: str) -> None:
    """Each change with another protocol, policy and delivery; three messages are sent meanwhile."""
    index = list(CHANGES).index(change)
    policy, delivery = list(Policy)[index % 2], list(Delivery)[index // 2 % 3]
    case = small(change, PROTOCOLS[index % 4], 3, policy, delivery)
    explored = Explorer(case, later=True).run(FAULTS, every=797 if change == "remove" else 97)

    assert explored.whole and explored.found == [], explored.found[:3]
    assert set(explored.faults) >= set(FAULTS) - {"overtake"}  # few moments have two messages on one link


@pytest.mark.slow
def test_a_message_is_overtaken_in_any_moment() -> None:
    explored = Explorer(small("split", "sequencer", 3), later=True).run(("overtake",), every=5)

    assert explored.whole and explored.found == [], explored.found[:3]
    assert explored.faults["overtake"] > 10


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize("delivery", list(Delivery))
def test_a_message_beside_a_change(policy: Policy, delivery: Delivery) -> None:
    """Every moment of this change; `make sim` has all changes and protocols."""
    explored = Explorer(small("join", "propagation", 1, policy, delivery)).run()

    assert explored.whole and explored.found == []


@pytest.mark.slow
@pytest.mark.parametrize("how", MARKERS)
def test_a_site_goes_to_another_metagroup_in_every_interleaving(how: str) -> None:
    """Beside one message here, beside three in `make sim`."""
    explored = Explorer(marker(how, 1, Planner.METAGROUP, Policy.AVAILABLE, Delivery.SAFE)).run()

    assert explored.whole and explored.found == []


CLOSED = "            site.closed.add(class_id)\n            site.machines.pop(class_id, None)"
BUGS = [
    ("a class goes on after it was closed", "two-phase", CLOSED, "            pass"),
    ("done is not heard", "propagation", "                self._finish(class_id)\n", "                pass\n"),
]


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS if "ORDERCAST_CAMPAIGN" in os.environ else BUGS[:1], ids=lambda bug: bug[0])
def test_the_explorer_sees_what_is_wrong(bug: tuple[str, str, str, str]) -> None:
    _, protocol, line, wrong = bug
    with planted("epochs", (line, wrong)):
        explorer = importlib.import_module("ordercast.sim.explore_changes")
        cases = importlib.import_module("tests.support.change_cases")
        later = explorer.Explorer(cases.small("leave", protocol, 3), later=True).run(("crash", "suspect"), every=9)
        beside = explorer.Explorer(cases.small("leave", protocol, 1), limit=1500).run()

    assert later.found or beside.found
