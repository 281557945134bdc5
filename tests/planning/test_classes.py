"""Classes: fast kernels against slow, obvious twins, and `blocks` against every run of independent sequencers."""

from collections.abc import Iterator
from itertools import combinations, combinations_with_replacement, pairwise, permutations, product

import pytest
from hypothesis import given, settings

from ordercast import ClassRule, Membership
from ordercast.planning.classes import classes
from ordercast.testing.strategies import memberships

Family = list[frozenset[int]]
Partition = list[list[int]]


def transitively(groups: list[str], tied: set[tuple[str, str]]) -> list[list[str]]:
    left, found = list(groups), []
    while left:
        part, frontier = {left[0]}, [left[0]]
        while frontier:
            g = frontier.pop()
            near = {h for h in groups if ((g, h) in tied or (h, g) in tied) and h not in part}
            part |= near
            frontier += near
        found.append(sorted(part))
        left = [g for g in left if g not in part]
    return found


def on_a_common_cycle(members: dict[str, set[str]], one: str, other: str) -> bool:
    """Whether a simple cycle of the incidence graph passes both groups, by trying every simple path."""
    stack = [([one], [s]) for s in members[one]]
    while stack:
        groups, sites = stack.pop()
        for g, its_sites in members.items():
            if sites[-1] not in its_sites:
                continue
            if g == one and len(groups) > 1 and other in groups:
                return True
            if g not in groups:
                stack += [([*groups, g], [*sites, s]) for s in its_sites if s not in sites]
    return False


def naive(membership: Membership, rule: ClassRule) -> list[list[str]]:
    members = {group: set(sites) for group, sites in membership.as_dict().items()}
    pairs = combinations(members, 2)
    match rule:
        case ClassRule.S1:
            tied = {(g, h) for g, h in pairs if members[g] & members[h]}
        case ClassRule.S2:
            tied = {(g, h) for g, h in pairs if len(members[g] & members[h]) >= 2}
        case ClassRule.BLOCKS:
            tied = {(g, h) for g, h in pairs if on_a_common_cycle(members, g, h)}
    return transitively(list(members), tied)


@pytest.mark.parametrize("rule", ClassRule)
@given(membership=memberships(max_sites=7, max_groups=6))
@settings(max_examples=150, deadline=None)
def test_kernels_equal_the_definition(rule: ClassRule, membership: Membership) -> None:
    assert naive(membership, rule) == classes(membership, rule)


def test_the_triangle_is_one_block_and_three_s2_classes() -> None:
    """KIN's S2 splits {p,q}, {q,r}, {r,p}; a serial order needs them together (errata 31)."""
    triangle = Membership.of({"G": "pq", "H": "qr", "I": "rp"})

    assert classes(triangle, ClassRule.S2) == [["G"], ["H"], ["I"]]
    assert classes(triangle, ClassRule.BLOCKS) == [["G", "H", "I"]]


def test_a_hub_site_forms_no_pairs() -> None:
    """60,000 groups through one site would be 1.8 billion pairs; only the two that share a second site are tied."""
    groups = {f"g{i:05}": ["hub", f"own{i}"] for i in range(60_000)}
    groups["h"] = ["hub", "own7"]
    found = classes(Membership.of(groups), ClassRule.S2)

    assert len(found) == 60_000
    assert ["g00007", "h"] in found


def test_a_long_ring_needs_no_recursion() -> None:
    """A ring of 50,000 groups is one block class; opened at one group it falls apart into single ones."""
    ring = {f"g{i:05}": [f"s{i}", f"s{(i + 1) % 50_000}"] for i in range(50_000)}

    assert len(classes(Membership.of(ring), ClassRule.BLOCKS)) == 1
    del ring["g00000"]
    assert len(classes(Membership.of(ring), ClassRule.BLOCKS)) == 49_999


# Independent sequencers, every run: docs/classes.md states the model and the theorem.


def partitions(items: list[int]) -> Iterator[Partition]:
    if not items:
        yield []
        return
    for rest in partitions(items[1:]):
        yield [[items[0]], *rest]
        for i in range(len(rest)):
            yield [*rest[:i], [items[0], *rest[i]], *rest[i + 1 :]]


def orders_at(groups: list[int], sequence_of: dict[int, tuple[int, int]]) -> set[frozenset[tuple[int, int]]]:
    """Every order one site can see: the messages of a class in its sequence, classes merged in any way."""
    seen = set()
    for order in permutations(groups):
        per_class: dict[int, list[int]] = {}
        for message in order:
            part, place = sequence_of[message]
            per_class.setdefault(part, []).append(place)
        if all(places == sorted(places) for places in per_class.values()):
            seen.add(frozenset(pairwise(order)))
    return seen


def has_cycle(before: frozenset[tuple[int, int]], count: int) -> bool:
    left = set(range(count))
    while left:
        free = [m for m in left if not any(b == m and a in left for a, b in before)]
        if not free:
            return True
        left -= set(free)
    return False


def can_go_wrong(family: Family, parts: Partition) -> bool:
    """Whether some run with one message per group makes the union of all sites' orders cyclic."""
    sites = sorted(set().union(*family))
    for sequences in product(*(permutations(part) for part in parts)):
        sequence_of = {m: (c, at) for c, sequence in enumerate(sequences) for at, m in enumerate(sequence)}
        unions = {frozenset[tuple[int, int]]()}
        for site in sites:
            here = orders_at([m for m, group in enumerate(family) if site in group], sequence_of)
            unions = {union | order for union in unions for order in here}
        if any(has_cycle(union, len(family)) for union in unions):
            return True
    return False


def canonical(family: Family, sites: int) -> tuple[tuple[int, ...], ...]:
    return min(
        tuple(sorted(tuple(sorted(name[s] for s in group)) for group in family)) for name in permutations(range(sites))
    )


def small_families(sites: int, most_groups: int) -> list[Family]:
    """All families of groups of at least two sites, up to renaming (a group of one site never disagrees)."""
    groups = [frozenset(c) for size in range(2, sites + 1) for c in combinations(range(sites), size)]
    every = (f for count in range(1, most_groups + 1) for f in combinations_with_replacement(groups, count))
    return [[frozenset(g) for g in key] for key in sorted({canonical(list(f), sites) for f in every})]


@pytest.mark.slow
@pytest.mark.parametrize(("sites", "most_groups"), [(3, 4), (4, 4), (5, 3)])
def test_blocks_is_the_finest_partition_that_is_safe(sites: int, most_groups: int) -> None:
    """On all small families: `blocks` is safe, and every partition it does not refine goes wrong in some run."""
    for family in small_families(sites, most_groups):
        named = {f"g{i}": [str(s) for s in group] for i, group in enumerate(family)}
        block_of = {int(g[1:]): i for i, c in enumerate(classes(Membership.of(named), ClassRule.BLOCKS)) for g in c}
        for parts in partitions(list(range(len(family)))):
            part_of = {g: i for i, part in enumerate(parts) for g in part}
            coarser = all(part_of[a] == part_of[b] for a, b in combinations(block_of, 2) if block_of[a] == block_of[b])
            assert can_go_wrong(family, parts) != coarser, (family, parts)


def test_squares_of_four_groups_are_one_block() -> None:
    """The shortest chordless cycle of groups: four of them around four sites."""
    square = [frozenset({0, 1}), frozenset({1, 2}), frozenset({2, 3}), frozenset({3, 0})]

    assert can_go_wrong(square, [[0, 1], [2, 3]])
    assert not can_go_wrong(square, [[0, 1, 2, 3]])
    named = {f"g{i}": [str(s) for s in group] for i, group in enumerate(square)}
    assert classes(Membership.of(named), ClassRule.BLOCKS) == [["g0", "g1", "g2", "g3"]]
