"""Components of a membership, found in pieces: who is connected comes into one share, whatever the hashes are."""

import numpy as np
import pyarrow as pa
import pytest

from ordercast.audit.kernels import fresh_key
from ordercast.spark.components import dealt, forest_of, gathered

SHARE = 40


def components(metas: list[list[str]]) -> list[set[str]]:
    """Find them the slow way."""
    found: list[set[str]] = []
    for groups in metas:
        touched = [one for one in found if one & set(groups)]
        found = [one for one in found if one not in touched] + [set(groups).union(*touched)]
    return found


def forest(metas: list[list[str]], sites: list[int], bits: int) -> pa.Table:
    key = fresh_key(bits)
    parts = []
    for at in range(0, len(metas), 7):
        some = metas[at : at + 7]
        offsets = np.cumsum([0, *map(len, some)])
        groups = pa.array([group for one in some for group in one])
        parts.append(forest_of(offsets, groups, np.array(sites[at : at + 7]), key))
    rounds = gathered(gathered(parts[begin::3]) for begin in range(3))
    names = pa.array(sorted({group for one in metas for group in one}))
    hashed = forest_of(np.arange(len(names) + 1), names, np.zeros(len(names), np.int64), key)
    number = dict(zip(hashed.column("group").to_pylist(), range(len(hashed)), strict=True))
    assert set(rounds.column("group").to_pylist()) == set(number)
    return rounds


@pytest.mark.parametrize("seed", range(12))
def test_who_is_connected_is_planned_together(seed: int) -> None:
    random = np.random.default_rng(seed)
    many = int(random.integers(2, 90))
    metas = [sorted({f"g{g}" for g in random.integers(many, size=random.integers(1, 4))}) for _ in range(60)]
    sites = random.integers(1, 4, size=60).tolist()
    found = forest(metas, sites, 64)
    roots = found.column("root").to_pylist()
    shares = dealt(found, SHARE).column("share").to_pylist()
    own = dict(zip(roots, shares, strict=True))
    memberships: dict[int, int] = dict.fromkeys(shares, 0)
    for share, n in zip(shares, found.column("n").to_pylist(), strict=True):
        memberships[share] += n
    large = [s for s in memberships if memberships[s] >= 2 * SHARE]

    assert len(components(metas)) == len(set(roots))
    assert all(own[root] == share for root, share in zip(roots, shares, strict=True))
    assert sum(memberships.values()) == sum(len(g) * min(n, 2) for g, n in zip(metas, sites, strict=True))
    assert all(list(own.values()).count(share) == 1 for share in large)


def test_hashes_that_collide_join_components_and_part_none() -> None:
    """With six bits most names collide; with none there is one component."""
    metas = [[f"a{n}", f"b{n}"] for n in range(200)]
    few, one = (len(set(forest(metas, [1] * 200, bits).column("root").to_pylist())) for bits in (6, 0))

    assert one == 1
    assert few < 64
