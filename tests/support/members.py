"""Membership tables by the million, made from nothing: sites follow profiles, a few deviate."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FILE_ROWS = 4_000_000


def write_members(folder: Path, rows: int, *, seed: int = 0, per_site: int = 20, deviate: float = 0.02) -> None:
    """Write about so many rows, site after site, in files of some millions.

    There is a profile (a set of groups) for every 40 sites; two in a hundred sites have a group more.
    """
    random = np.random.default_rng(seed)
    sites = rows // per_site
    profiles = max(1, sites // 40)
    groups = max(50, profiles // 4)
    size = random.integers(per_site // 2, per_site * 3 // 2, size=profiles)
    begin = np.concatenate([[0], np.cumsum(size)])
    of_profile = np.concatenate([_some(random, groups, int(many)) for many in size])
    folder.mkdir(parents=True, exist_ok=True)
    names = pa.array([f"g{group:06d}" for group in range(groups + 1)])
    per_file = max(1, FILE_ROWS // per_site)
    for number, first in enumerate(range(0, sites, per_file)):
        here = np.arange(first, min(sites, first + per_file))
        profile = random.integers(profiles, size=len(here))
        many = size[profile]
        at = np.repeat(np.cumsum(many) - many, many)
        group = of_profile[np.repeat(begin[profile], many) + np.arange(many.sum()) - at]
        site = np.repeat(here, many)
        odd = here[random.random(len(here)) < deviate]
        site, group = np.concatenate([site, odd]), np.concatenate([group, np.full(len(odd), groups)])
        order = np.argsort(site, kind="stable")
        text = np.char.add("site-", np.char.zfill(here.astype(str), 8))
        column = pa.array(text).take(pa.array(site[order] - first))
        table = pa.table({"site": column.cast(pa.string()), "group": names.take(pa.array(group[order]))})
        pq.write_table(table, folder / f"part-{number:04d}.parquet", use_dictionary=["group"], row_group_size=1_000_000)


def _some(random: np.random.Generator, groups: int, many: int) -> np.ndarray:
    """Choose different groups near each other: who shares one shares more."""
    start = int(random.integers(groups))
    near = (start + random.permutation(min(groups, 4 * many))[:many]) % groups
    return np.unique(near) if len(np.unique(near)) == many else near
