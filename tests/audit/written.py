"""Run directories written in many ways: lists or texts, one file or many, row groups of a row, rows in any order."""

import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.audit.naive import Run


def write(run: Run, folder: Path, seed: int) -> None:
    """Write a run directory: lists or texts, one file or many, rows in order or not."""
    chance = random.Random(seed)
    lists = chance.random() < 0.3
    pairs = [(site, group) for group, own in sorted(run.members.items()) for site in sorted(own)]
    _table(folder / "membership", "m", {"site": [s for s, _ in pairs], "group": [g for _, g in pairs]})
    sends: dict[str, Any] = {
        "msg_id": [s.msg_id for s in run.sends],
        "group": [_group(chance, s.groups, lists) for s in run.sends],
        "source": [s.source for s in run.sends],
        "source_seq": [s.number for s in run.sends],
    }
    if run.context:
        sends["after"] = [s.after for s in run.sends]
    if run.sent_bodies:
        sends["body_hash"] = [s.body for s in run.sends]
    _parts(chance, folder / "sends", sends, [len(run.sends)], lists)
    rows = list(run.deliveries)
    if chance.random() < 0.3:
        chance.shuffle(rows)
    cuts = sorted(chance.choices(range(len(rows) + 1), k=chance.choice([0, 1, 3])))
    columns: dict[str, Any] = {
        "site": [r.site for r in rows],
        "position": [r.position for r in rows],
        "msg_id": [r.msg_id for r in rows],
        "group": [_group(chance, r.groups, lists) for r in rows],
        "source": [r.source for r in rows],
        "source_seq": [r.number for r in rows],
    }
    if run.has_epoch:
        columns["epoch"] = [r.epoch for r in rows]
    if run.stamped:
        columns |= {"order_class": [r.order_class for r in rows], "stamp": [r.stamp for r in rows]}
        if run.has_prev:
            columns["prev_stamp"] = [r.prev for r in rows]
    if run.bodies:
        columns["body_hash"] = [r.body for r in rows]
    _parts(chance, folder / "deliveries", columns, [*cuts, len(rows)], lists)


def _group(chance: random.Random, groups: frozenset[str], lists: bool) -> Any:
    """Write the groups of a message in any order."""
    names = chance.sample(sorted(groups), len(groups))
    return names if lists else "+".join(names)


def _parts(chance: random.Random, folder: Path, columns: dict[str, Any], ends: list[int], lists: bool) -> None:
    for part, (begin, end) in enumerate(pairwise([0, *ends])):
        if end > begin or end == ends[-1]:
            own = {name: values[begin:end] for name, values in columns.items()}
            small = chance.choice([1, 2, 3, 100])
            _table(folder, f"{part}", own, lists=lists, row_group=small if end - begin < 1_000 else 100_000)


def _table(folder: Path, name: str, columns: dict[str, Any], *, lists: bool = False, row_group: int = 100) -> None:
    kinds: dict[str, Any] = dict.fromkeys(("position", "source_seq", "epoch", "after", "body_hash"), pa.int64())
    kinds |= {"stamp": pa.binary(), "prev_stamp": pa.binary()}
    if lists:
        kinds["group"] = pa.list_(pa.string())
    arrays = [pa.array(values, kinds.get(column, pa.string())) for column, values in columns.items()]
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(arrays, names=list(columns)), folder / f"{name}.parquet", row_group_size=row_group)
