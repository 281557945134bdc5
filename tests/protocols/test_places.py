"""Nodes enter and leave a swap tree (HTW00 §6.2): every interleaving on four nodes, and rules that must be there."""

import os
import random
from typing import Any

import pytest

from ordercast.protocols.swap.arrow import Arrow
from ordercast.protocols.swap.places import Kind, Place, Sends
from ordercast.sim.explore_places import Case, World, explore, verdict

PATH = {"a": None, "b": "a", "c": "b", "d": "c"}
STAR = {"b": None, "a": "b", "c": "b", "d": "b"}
CAMPAIGN = "ORDERCAST_CAMPAIGN" in os.environ
KINDS: list[Kind] = ["arrow", "combining"]
TODO: dict[str, dict[str, tuple[str, ...]]] = {
    "a leaf leaves": {"d": ("swap", "leave"), "a": ("swap",), "b": ("swap",)},
    "an inner node leaves": {"c": ("leave",), "a": ("swap",), "d": ("swap",), "b": ("swap",)},
    "a node swaps twice and leaves": {"b": ("swap", "swap", "leave"), "d": ("swap",)},
    "a node swaps and leaves": {"b": ("swap", "leave"), "a": ("swap",), "d": ("swap",)},
    "the root of the path leaves": {"a": ("swap", "leave"), "c": ("swap",), "d": ("swap",)},
    "the root leaves while others swap": {"a": ("leave",), "b": ("swap", "swap"), "d": ("swap",)},
    "one enters": {"e": ("enter b", "swap"), "a": ("swap",), "d": ("swap",)},
    "two neighbours leave": {"b": ("leave",), "c": ("leave",), "a": ("swap",), "d": ("swap", "swap")},
    "the root and a neighbour leave": {"a": ("swap", "leave"), "b": ("leave",), "d": ("swap", "swap")},
    "one enters where another leaves": {"e": ("enter b", "swap"), "b": ("leave",), "a": ("swap",), "d": ("swap",)},
}


@pytest.mark.parametrize("what", TODO)
@pytest.mark.parametrize("shape", ["path", "star"] if CAMPAIGN else ["path"])
@pytest.mark.parametrize("kind", KINDS)
def test_all_swaps_are_one_chain_in_every_interleaving(kind: Kind, shape: str, what: str) -> None:
    """In the campaign two ticks may come at any moment; here none before nothing is under way."""
    explored = explore(Case(kind, PATH if shape == "path" else STAR, TODO[what], 2 if CAMPAIGN else 0))

    assert explored.found == []
    assert explored.ends >= 3


def _printed_sink(self: Place, sender: str, told: Any) -> Sends:
    """The paper's words: link(v) = u, where u is the node that has left."""
    sends: Sends = OURS["_splice"](self, sender, told)
    if told.last and told.heir == self.me and isinstance(self.object, Arrow):
        self.object.link = sender
    return sends


OURS = {name: getattr(Place, name) for name in ("_splice", "_around", "_empty", "_holds_still")}
WRONG: dict[str, tuple[Kind, str, Any, str]] = {
    "as printed, a circle through who has left": ("arrow", "_splice", _printed_sink, "the root of the path leaves"),
    "only neighbours are locked": ("arrow", "_around", lambda self: sorted(self.neighbours), "two neighbours leave"),
    "own lock first": (
        "arrow", "_around", lambda self: [self.me, *sorted(self.neighbours)], "two neighbours leave",
    ),
    "what was gathered stays": ("combining", "_empty", lambda self: [], "a node swaps twice and leaves"),
    "who is locked goes on": ("arrow", "_holds_still", lambda self, sender: self.entering, "an inner node leaves"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_errata_45_each_rule_is_needed(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, method, rule, what = WRONG[wrong]
    monkeypatch.setattr(Place, method, rule)

    assert explore(Case(kind, PATH, TODO[what])).found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(20 if CAMPAIGN else 4))
def test_a_large_tree_in_which_many_come_and_go(kind: Kind, seed: int) -> None:
    """Sixty nodes; a third of them leave, twenty others enter, each swaps some times; what happens next is drawn."""
    chance = random.Random(seed)
    names = [f"n{index:02}" for index in range(60)]
    parents = {name: names[chance.randrange(index)] if index else None for index, name in enumerate(names)}
    todo = {name: ("swap",) * chance.randrange(4) + ("leave",) * (chance.random() < 0.3) for name in names}
    todo |= {f"x{index:02}": (f"enter {chance.choice(names)}", "swap", "swap") for index in range(20)}
    world = World(Case(kind, parents, todo, ticks=1000))

    while moves := world.moves():
        world.do(chance.choice(moves))

    assert list(verdict(world)) == []
    assert sum(node.sent for node in world.nodes.values()) > 40
    assert sum(node.left for node in world.nodes.values()) > 8
