"""Migration to the busiest sender (KIN §7): who is asked to sequence, and when nobody is."""

from ordercast.epochs.change import first_setup
from ordercast.epochs.setup import GroupSetup
from ordercast.names import Delivery, Policy
from ordercast.node.migration import Migration
from ordercast.sim.changing import Case, World
from ordercast.sim.network import Network


def moves(policy: Policy, *windows: str, migrate: bool = True, at_least: int = 10) -> list[list[str]]:
    """Let these sites send to a group of a and b, and return what a, which sequences, asks for after each window."""
    group = GroupSetup(("a", "b"), "sequencer", policy=policy, delivery=Delivery.SAFE, migrate=migrate)
    world = World(Case(first_setup("abz", {"G": group}), frozenset(), Network(latency=0.1), 1))
    migration, found = Migration(10, at_least), list[list[str]]()
    for window in windows:
        for site in window:
            world._multicast(site, ("G",))
            world.run(world.now + 1.0)
        found.append([str(move) for move in migration._moves(world.hosts["a"].participant)])
    return found


def test_who_sends_more_than_half_in_a_window_is_asked() -> None:
    move, stay = ["move G z"], list[str]()
    assert moves(Policy.AVAILABLE, "a", "z" * 8 + "ab" * 3, "z" * 8 + "ab" * 4, "a" * 20) == [stay, move, stay, stay]
    assert moves(Policy.AVAILABLE, "a", "z" * 9) == [stay, stay], "too few"
    assert moves(Policy.AVAILABLE, "a", "z" * 20, migrate=False) == [stay, stay]


def test_what_was_sent_before_a_window_does_not_count() -> None:
    """A node that was restarted knows all requests since its class was opened, not when they came."""
    assert moves(Policy.AVAILABLE, "z" * 20, "", "z" * 20) == [[], [], ["move G z"]]


def test_a_group_that_waits_for_who_fails_is_given_to_members_only() -> None:
    assert moves(Policy.ATOMIC, "a", "z" * 20, "b" * 20) == [[], [], ["move G b"]]
