"""Small families, exhaustively, and random ones; shared by the planners' tests."""

import random
from collections.abc import Iterator
from itertools import combinations

from ordercast import Membership


def all_families(sites: int, most_groups: int) -> Iterator[Membership]:
    """Yield every family of up to so many different groups over so many sites."""
    names = "abcdefgh"[:sites]
    groups = ["".join(c) for size in range(1, sites + 1) for c in combinations(names, size)]
    for count in range(1, most_groups + 1):
        for family in combinations(groups, count):
            yield Membership.of({f"g{index}": group for index, group in enumerate(family)})


def uniform(sites: int, groups: int, size: int, seed: int) -> Membership:
    """Draw groups of one size uniformly, as in GS88 §4.1."""
    chance = random.Random(seed)
    names = [f"s{index:04}" for index in range(sites)]
    return Membership.of({f"g{index:04}": chance.sample(names, size) for index in range(groups)})
