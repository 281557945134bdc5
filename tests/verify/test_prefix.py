"""The prefix property: recovery stands on it, so every machine is held to it, and wrong ones are caught."""

import pytest

from ordercast.core.configuration import Configuration
from ordercast.membership.table import Membership
from ordercast.protocols.registry import Deployment
from ordercast.sim.explorer import Case, Explorer
from ordercast.sim.scenario import Scenario, deploy, run
from ordercast.verify.online import Watch
from tests.support.campaign import KINDS, MIXES, scenario
from tests.support.planted import planted


def watch(*deliveries: tuple[str, str, int, bytes]) -> Watch:
    judge = Watch({"A": "pq"}, frozenset({"fifo"}), prefix=True)
    for source, number in (("x", 1), ("y", 1)):
        judge.sent(source, number, ("A",))
    for site, source, number, stamp in deliveries:
        judge.delivered(site, source, number, 0, stamp)
    return judge


def test_a_site_that_lacks_an_earlier_message_is_told() -> None:
    """P has both; q begins with the second."""
    judge = watch(("p", "x", 1, b"1"), ("p", "y", 1, b"2"), ("q", "y", 1, b"2"))

    found = judge.findings()["prefix"]
    assert found is not None and found.says == (
        "q has delivered y:1 and lacks x:1, which comes before it and was delivered elsewhere"
    )


def test_a_message_that_appears_before_what_others_have_is_told() -> None:
    """Q has the second already when p delivers the first: the first is new, and too late for q."""
    judge = watch(("q", "y", 1, b"2"), ("p", "x", 1, b"1"))

    assert judge.findings()["prefix"] is not None


def test_prefixes_are_fine() -> None:
    judge = watch(("p", "x", 1, b"1"), ("q", "x", 1, b"1"), ("q", "y", 1, b"2"))

    assert judge.findings()["prefix"] is None


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_machine_keeps_it(kind: tuple[str, bool]) -> None:
    """Under every mix of faults; the campaign (`make sim`) judges it in every run."""
    for seed in range(6):
        verdict = run(scenario(kind, MIXES[seed % len(MIXES)], 7_000 + seed))

        assert verdict.findings["prefix"] is None, (kind, seed, verdict.findings["prefix"])


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["propagation", "sequencer", "arrow", "combining", "two-phase", "timestamp"])
def test_every_interleaving_keeps_it(protocol: str) -> None:
    """In every state of a small case, not only at its ends."""
    membership = Membership.of({"A": "abc", "B": "bc"})
    deployed = deploy(Scenario(membership, protocol, senders=0))
    groups = Configuration.of(membership.as_dict(), deployed.groups.orders, ("a", "b"))
    case = Case(
        Deployment(protocol, groups, deployed.plan), (("a", ("A",)), ("b", ("B",)), ("a", ("A", "B"))), prefix=True
    )

    explored = Explorer(case).run()

    assert explored.complete and not explored.findings, explored.findings


BUGS = [
    ("timestamp", "protocols.timestamp", "            silent = self._silent(time, source)\n", "            silent = []\n"),
    ("two-phase", "protocols.two_phase", "        self.counter = max(self.counter, priority[0])\n", ""),
    ("sequencer", "protocols.sequencing", "            if group not in destination and self.delivered[group] != number:", "            if False:"),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("protocol", "module", "text", "bug"), BUGS, ids=[bug[0] for bug in BUGS])
def test_planted_bugs_that_break_it_are_caught(protocol: str, module: str, text: str, bug: str) -> None:
    """A machine that does not wait for what comes before."""
    caught = []
    with planted(module, (text, bug)):
        for seed in range(60):
            try:
                verdict = run(scenario((protocol, False), "jitter", seed))
            except (AssertionError, KeyError, ValueError) as error:
                caught.append(type(error).__name__)
                continue
            if verdict.findings["prefix"] is not None:
                caught.append("prefix")
                break

    assert "prefix" in caught, caught
