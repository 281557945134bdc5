"""Receipts of propagation: every message is placed and, in the end, safe; and never called safe too early."""

import dataclasses
from functools import partial

import pytest

from ordercast.core.edges import Carry, Edges, Null
from ordercast.core.effects import Effect, Safe, Send
from ordercast.protocols.lamport import Ask
from ordercast.sim.scenario import deploy, judge
from ordercast.sim.workload import WORKLOADS, answer
from ordercast.sim.world import World
from ordercast.testing.campaign import MIXES, scenario

Keys = set[tuple[str, int]]


def note(world: World, safe: Keys, early: list[tuple[str, int]], site: str, effect: Effect) -> None:
    if isinstance(effect, Safe):
        safe.add((site, effect.number))
        if world.watch.missing(site, effect.number):
            early.append((site, effect.number))


@pytest.mark.slow
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("causal", [False, True])
def test_safe_means_that_every_member_has_it(mix: str, causal: bool) -> None:
    for seed in range(30):
        case = scenario(("propagation", causal), mix, seed)
        deployment = dataclasses.replace(deploy(case), receipts=True)
        world = World(deployment, seed, case.network, case.tick, durable=any(not c.pause for c in case.crashes))
        orders = WORKLOADS[case.workload](world.chance, deployment.groups, case.messages, case.span)
        world.feed(orders, answer(deployment.groups) if case.workload == "requests" else None)
        for crash in case.crashes:
            world.crash(crash)
        safe: set[tuple[str, int]] = set()
        early: list[tuple[str, int]] = []

        world.receipt = partial(note, world, safe, early)
        verdict = judge(world, 2 * case.span + case.patience)

        assert verdict.ok, (seed, verdict.findings)
        assert early == []
        assert len(safe) == verdict.outcome.sends


def test_a_long_gap_is_filled_without_waiting_for_ticks() -> None:
    """A thousand messages are lost: one null, and the rest is asked for as it arrives."""
    sender, receiver = Edges(), Edges()
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
