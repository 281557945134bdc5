"""Folds that are shared out by site, then by destination, say the same as folds that are merged in one process."""

import copy
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ordercast.audit import local
from ordercast.audit.facts import SAYS, SETS, Known
from ordercast.audit.fold import fold_deliveries
from ordercast.audit.kernels import Key, fresh_key
from ordercast.audit.local import LocalSource
from ordercast.audit.merge import ShuffledError
from ordercast.audit.order import Knots
from ordercast.audit.search import hashed_logs, on_cycles
from ordercast.audit.spread import (
    FLAGS,
    REDUCED,
    as_destinations,
    compare_groups,
    reduce_folds,
    reduce_sends,
    rows_of_kind,
)
from ordercast.runs import reader
from ordercast.runs.destinations import destination
from tests.audit.shapes import make_run
from tests.audit.test_fold import KEY, piece
from tests.audit.written import write
from tests.support.logs import FAULTS, TWINS, make_logs

TASKS = 3
MANY = 200 if "ORDERCAST_CAMPAIGN" in os.environ else 12


def shares(table: Any, *names: str) -> list[Any]:
    """Deal out rows by the first of these columns that is not null, as a shuffle would."""
    keys = list(zip(*(table.column(name).to_pylist() for name in names), strict=True))
    task = np.array([hash(next(name for name in key if name is not None)) % TASKS for key in keys], np.int64)
    return [own for one in range(TASKS) if len(own := table.filter(pa.array(task == one)))]


def spread_out(source: LocalSource, key: Key) -> dict[str, set[str]]:
    """Return who is suspicious, and why, from shares."""
    folded, sends = source.fold()
    reduced = pa.concat_tables([reduce_folds(share, key) for share in shares(folded, "site", "group")])
    sent = reduce_sends(sends)
    pairs = [(site, group) for group, sites in source.run.members.items() for site in sites]
    belongs = pa.table([list(names) for names in zip(*pairs, strict=True)], names=["site", "group"])
    belongs = as_destinations(belongs, texts=source.run.texts).to_pylist()
    unions = {(r["group"], r["order_class"]) for r in [*reduced.to_pylist(), *sent.to_pylist()] if r["kind"] == "union"}
    belongs += [{"site": r["site"], "group": u} for u, part in unions for r in belongs if r["group"] == part]
    columns = {name: [row[name] for row in belongs] for name in ("site", "group")}
    rows = pa.concat_tables([reduced, sent, rows_of_kind("member", len(belongs), **columns)])
    rows = rows.filter(
        pa.array([kind in ("set", "class", "send", "member") for kind in rows.column("kind").to_pylist()])
    )
    found: dict[str, set[str]] = {why: set() for why in SAYS}
    compared = [compare_groups(share, (), everyone=False) for share in shares(rows, "group")]
    for row in pa.concat_tables([reduced, *compared]).to_pylist():
        for why, flag in FLAGS.items():
            if row["kind"] in ("site", "suspect") and row["flags"] & flag:
                found[why].add(row["site"])
    return found


def in_process(source: LocalSource) -> dict[str, set[str]]:
    return Known(source.run.members, *source.fold()).suspects((), everyone=False).why


@pytest.mark.slow
def test_the_same_sites_are_suspicious_for_the_same_reasons(tmp_path: Path) -> None:
    clean = make_logs(50_000, TWINS)
    for parts, name in enumerate(("", *FAULTS)):
        logs, key = copy.deepcopy(clean), fresh_key()
        if name:
            FAULTS[name](logs)
        logs.write(tmp_path / name, 1 + parts % 3)
        source = LocalSource(str(tmp_path / name), key)
        found = spread_out(source, key)

        assert found == in_process(source), name
        assert bool(name) == any(found.values()) or name == "class_too_fine"


@pytest.mark.slow
def test_runs_of_every_shape_are_spread_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(8_000, 8_000 + MANY):
        run, key = make_run(seed), fresh_key()
        write(run, tmp_path / str(seed), seed)
        if seed % 2:
            monkeypatch.setattr(local, "SHARE_ROWS", 1)
            monkeypatch.setattr(reader, "PIECE_ROWS", 1)
        source = LocalSource(str(tmp_path / str(seed)), key)

        assert spread_out(source, key) == in_process(source), (seed, run.notes)


def test_pieces_that_overlap_are_told_and_not_merged() -> None:
    overlapping = [piece(0, [1, 2, 4], [1, 2, 4]), piece(1, [3], [3])]
    reduced = reduce_folds(pa.concat_tables([fold_deliveries(one, KEY) for one in overlapping]), KEY)

    assert reduced.column("kind").to_pylist() == ["shuffled"]


def test_a_member_that_delivers_nothing_is_suspicious() -> None:
    """And it counts as a site of the destination's class."""
    sums: dict[str, Any] = {"n": [2], "x1": [5], "x2": [6]}
    parts = [
        rows_of_kind("send", 1, group=["g"], **sums),
        rows_of_kind("member", 3, site=["a", "b", "b"], group=["g", "g", "silent"]),
        rows_of_kind("set", 1, site=["a"], group=["g"], told=[0], **sums),
        rows_of_kind("class", 1, group=["g"], order_class=["c"]),
    ]
    found = compare_groups(pa.concat_tables(parts), (), everyone=False).to_pylist()

    assert [(r["kind"], r["site"], r["flags"], r["order_class"]) for r in found] == [
        ("suspect", "b", FLAGS[SETS], None),
        ("edge", "b", None, "c"),
    ]


def test_a_group_whose_name_has_a_plus_is_no_union() -> None:
    table = pa.table({"site": ["s"], "group": ["a+b"]})

    assert as_destinations(table, texts=False).column("group").to_pylist() == [destination(["a+b"])] == ["a\\+b"]
    assert as_destinations(table, texts=False).schema.names == [n for n in REDUCED.names if n in ("site", "group")]


def logs_of(seed: int, messages: int) -> dict[str, list[str]]:
    """Make logs of some sites that mostly agree."""
    chance = np.random.default_rng(seed)
    logs = {}
    for site in range(4):
        own = np.sort(chance.permutation(messages)[: messages // 2])
        if chance.random() < 0.5:
            at = int(chance.integers(len(own) - 1))
            own[[at, at + 1]] = own[[at + 1, at]]
        logs[f"s{site}"] = [f"m{message}" for message in own]
    return logs


def table_of(logs: dict[str, list[str]]) -> Any:
    rows = [(site, at, message) for site, log in logs.items() for at, message in enumerate(log)]
    table = pa.table([list(column) for column in zip(*rows, strict=True)], names=["site", "position", "msg_id"])
    return reader.tidy(table, {"site": "string", "position": "whole number", "msg_id": "string"})


@pytest.mark.slow
@pytest.mark.parametrize("bits", [64, 4])
def test_a_search_by_hashes_misses_no_cycle(bits: int) -> None:
    """With good hashes it finds what a search by names finds; when names collide, at least that."""
    cycles = 0
    for seed in range(60):
        logs, key = logs_of(seed, 24), fresh_key(bits)
        table = table_of(logs)
        pieces = [hashed_logs(table.slice(at, 7), key) for at in range(0, len(table), 7)]
        found = on_cycles(pa.concat_tables(pieces[::-1]))
        numbers = {site: np.array([int(name[1:]) for name in log], np.uint64) for site, log in logs.items()}
        knots = Knots({site: (np.arange(len(own)), own) for site, own in numbers.items()}, {})
        on_cycle = {f"m{number}" for number in knots.messages[knots.component >= 0]}
        hashed = {name: hashed_logs(table_of({"s": [name]}), key).column("hashes")[0].as_py() for name in on_cycle}
        there = {one.tobytes() for one in found.hashes}
        cycles += bool(on_cycle)

        assert set(hashed.values()) <= there
        assert bits < 64 or len(there) == len(on_cycle), seed
    assert 5 < cycles < 60


def test_two_messages_of_one_hash_in_a_row_are_searched_by_names() -> None:
    """One log has them in this order, another in the other: among hashes there is no edge between them."""
    key = fresh_key(0)
    found = on_cycles(hashed_logs(table_of({"p": ["a", "b"], "q": ["b", "a"]}), key))

    assert found.rows == 4


def test_a_search_in_pieces_that_overlap_is_refused() -> None:
    table = table_of({"p": ["a", "b", "c"]})
    pieces = [hashed_logs(table.take([0, 2]), fresh_key()), hashed_logs(table.take([1]), fresh_key())]

    with pytest.raises(ShuffledError, match="p"):
        on_cycles(pa.concat_tables(pieces))
