"""Receipts of propagation: every message is placed and, in the end, safe; and never called safe too early."""

import dataclasses

import pytest

from ordercast.core.edges import Carry, Edges, Null
from ordercast.core.effects import Send
from ordercast.names import ClassId
from ordercast.protocols.timestamp import Ask
from ordercast.sim.scenario import run
from tests.support.campaign import MIXES, scenario


@pytest.mark.slow
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("causal", [False, True])
def test_safe_means_that_every_member_has_it(mix: str, causal: bool) -> None:
    """The judges compare every place with what is delivered, and every `safe` with who has it."""
    for seed in range(30):
        verdict = run(dataclasses.replace(scenario(("propagation", causal), mix, seed), receipts=True))

        assert verdict.ok, (seed, verdict.findings)
        assert "receipts" in verdict.findings


def test_a_long_gap_is_filled_without_waiting_for_ticks() -> None:
    """A thousand messages are lost: one null, and the rest is asked for as it arrives."""
    sender, receiver = (Edges(site, ClassId(1, 0), streams=1) for site in "ab")
    kept = [sender.send("b", 0, Ask(number)).message for number in range(1000)]
    assert len(kept) == 1000
    asked = receiver.control("a", Null(0, 1000))
    taken, rounds = 0, 0
    while asked:
        rounds += 1
        (request,) = asked
        assert isinstance(request, Send)
        asked = []
        for effect in sender.control("b", request.message):
            assert isinstance(effect, Send) and isinstance(effect.message, Carry)
            taken += len(receiver.receive("a", effect.message, asked))

    assert (taken, rounds) == (1000, 4)
