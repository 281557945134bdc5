"""`--follow` where groups change: files come in any order, the audit has several lives, and bad files are refused."""

import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ordercast.audit.changing import audit_changing
from ordercast.audit.following import Follower
from ordercast.audit.local import LocalSource
from ordercast.errors import InputError
from ordercast.runs.writer import RunWriter
from ordercast.wire import batch

ROUNDS = 6


def written(folder: Path) -> Path:
    """Sites p and q begin in x, and r joins half way; p sends in each round, and each site writes a part of it."""
    writers = {site: RunWriter(folder, site, batch.unpack, life) for life, site in enumerate("pqr", start=7)}
    writers["r"].site = "r@9"
    at = dict.fromkeys("pqr", 0)
    for number in range(1, ROUNDS + 1):
        epoch = 1 if number <= ROUNDS // 2 else 2
        stamp = epoch.to_bytes(8, "big") + number.to_bytes(8, "big")
        body = batch.pack(number, [b"%d" % number])
        for site, out in writers.items():
            if epoch == 1 and site == "r":
                continue
            if number == 1 or (site == "r" and number == ROUNDS // 2 + 1):
                out.lives()
                if site != "r":
                    out.members({"x": ["p", "q"]})
            if number == ROUNDS // 2 + 1:
                if site == "r":
                    out.changed(at[site], kind="state", epoch=2, group="x")
                    at[site] += 1
                out.changed(at[site], kind="view", epoch=2, group="x", members=("p", "q", "r"), joined=("r",))
                at[site] += 1
            if site == "p":
                out.sent(number, 1, ("x",), 0, body, "")
            out.delivered(at[site], number, 1, ("x",), "p", epoch, f"{epoch}.0 x", stamp, None, body)
            at[site] += 1
            out.write(out.take())
    return folder


def followed(folder: Path, state: Path | None = None) -> Follower:
    follower = Follower(folder, state=state)
    follower.search_s = 0.0
    follower.look()
    return follower


def rows(follower: Follower) -> tuple[int, int, list[Any], list[str]]:
    return follower.deliveries, follower.under_way, sorted(follower.broken), [held.reason for held in follower.held()]


WHOLE = 2 * ROUNDS + ROUNDS // 2


def test_a_right_run_is_right(tmp_path: Path) -> None:
    assert rows(followed(written(tmp_path))) == (WHOLE, 0, [], [])


@pytest.mark.parametrize("seed", range(30))
def test_files_come_in_any_order(tmp_path: Path, seed: int) -> None:
    """One by one, and the audit looks after each; in every other case it is another life of it each time."""
    whole, run, chance = written(tmp_path / "whole"), tmp_path / "run", random.Random(seed)
    run.mkdir()
    files = sorted(whole.rglob("*.parquet"))
    chance.shuffle(files)
    state = tmp_path / "state" if seed % 2 else None
    follower = followed(run, state)
    for path in files:
        to = run / path.relative_to(whole)
        to.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, to)
        follower.save()
        follower = followed(run, state) if state else follower
        follower.look()
        assert follower.broken == {}, (seed, path.name)

    assert rows(follower) == (WHOLE, 0, [], [])


@pytest.mark.parametrize("missing", ["deliveries/q@8-2", "changes/q@8", "sends/p@7-3", "membership"])
def test_what_is_missing_is_told_in_every_life(tmp_path: Path, missing: str) -> None:
    """And since when: a life that is short hides nothing."""
    run, state = written(tmp_path / "run"), tmp_path / "state"
    for path in [path for path in run.rglob("*.parquet") if str(path.relative_to(run)).startswith(missing)]:
        path.unlink()
    first = followed(run, state)
    first.save()
    again = followed(run, state)

    told = {held.reason: held.seconds for held in first.held()}
    assert told and first.broken == {}
    assert {held.reason for held in again.held()} == told.keys()
    assert all(held.seconds >= told[held.reason] for held in again.held())


def change(folder: Path, name: str, **values: Any) -> None:
    """Write other values into the first row of a part."""
    path = next(folder.glob(f"{name}*.parquet"))
    old = pq.read_table(path)
    first, *others = old.to_pylist()
    kinds = {"null": pa.null()}
    fields = [
        pa.field(field.name, kinds.get(str(values.get(field.name)), field.type) if len(others) == 0 else field.type)
        for field in old.schema
    ]
    rows = [first | {key: None if value == "null" else value for key, value in values.items()}, *others]
    for index, field in enumerate(fields):
        if pa.types.is_null(field.type):
            fields[index] = pa.field(field.name, old.schema.field(field.name).type)
        elif isinstance(values.get(field.name), str) and pa.types.is_integer(field.type):
            fields[index] = pa.field(field.name, pa.string())
            rows = [row | {field.name: str(row[field.name])} for row in rows]
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema(fields, old.schema.metadata)), path)


BAD = [
    *(("deliveries/q@8-1", {name: "null"}, f"{name} is null")
      for name in ("msg_id", "group", "source", "source_seq", "site", "position", "epoch", "order_class", "stamp")),
    *(("sends/p@7-2", {name: "null"}, f"{name} is null") for name in ("msg_id", "group", "source", "source_seq")),
    *(("changes/q@8", {name: "null"}, f"{name} is null")
      for name in ("site", "position", "kind", "group", "epoch", "members", "undone_from")),
    ("changes/q@8", {"kind": "_init__"}, "kind '_init__' is not one of view, state, undone"),
    ("changes/q@8", {"epoch": -1}, "epoch -1 is negative"),
    ("changes/q@8", {"members": ["p", None]}, "null"),
    ("changes/q@8", {"site": "z"}, "site 'z' is not who has written it"),
    ("deliveries/q@8-1", {"site": "p"}, "site 'p' is not who has written it"),
    ("deliveries/q@8-1", {"position": 7}, "its rows are not from 1 to 1"),
    ("deliveries/q@8-1", {"position": "1"}, "column 'position' holds string"),
    ("lives/p@7", {"site": "@7"}, "'@7' is not a site, nor site@incarnation"),
    ("lives/p@7", {"site": "null"}, "site is null"),
    ("membership/p@7", {"group": "null"}, "group is null"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "values", "says"), BAD, ids=str)
def test_bad_files_are_refused_in_one_line(tmp_path: Path, name: str, values: dict[str, Any], says: str) -> None:
    run = written(tmp_path / "run")
    table, _, part = name.partition("/")
    change(run / table, part, **values)
    with pytest.raises(InputError) as error:
        followed(run)
    assert says in str(error.value) and str(run / table) in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["z-9-1", "q@8-\u0661-\u0662", "q@8", "x"])
@pytest.mark.parametrize("table", ["deliveries", "sends", "changes"])
def test_a_file_that_is_no_part_is_refused(tmp_path: Path, table: str, name: str) -> None:
    run = written(tmp_path / "run")
    shutil.copyfile(next((run / table).glob("*.parquet")), run / table / f"{name}.parquet")
    with pytest.raises(InputError, match="not a part that a live site writes"):
        followed(run)


def test_a_broken_file_and_one_position_twice_are_refused(tmp_path: Path) -> None:
    for table in ("sends", "deliveries", "changes", "lives", "membership"):
        run = written(tmp_path / table)
        next((run / table).glob("*.parquet")).write_bytes(b"PAR1 no")
        with pytest.raises(InputError, match="Parquet"):
            followed(run)
    run = written(tmp_path / "twice")
    at = int(next((run / "changes").glob("q@8-*")).stem.split("-")[1])
    row = pq.read_table(next((run / "deliveries").glob("q@8-0-*")))
    again = row.set_column(row.column_names.index("position"), "position", pa.array([at]))
    pq.write_table(again, run / "deliveries" / f"q@8-{at}-{at}.parquet")
    with pytest.raises(InputError, match=f"position {at} is there twice"):
        followed(run)


def test_dropped_messages_are_forgotten(tmp_path: Path) -> None:
    run = written(tmp_path / "run")
    out = RunWriter(run, "p", batch.unpack, 7)
    out.sent(ROUNDS + 1, 1, ("y",), 0, batch.pack(ROUNDS + 1, [b"never"]), "")
    out.dropped([ROUNDS + 1])
    out.write(out.take())
    follower: Any = followed(run)

    assert rows(follower) == (WHOLE, 0, [], [])
    assert follower._judge.window.sends == {}


def test_the_whole_log_of_a_founder_is_missing(tmp_path: Path) -> None:
    """Every founder tells who was there: the whole judge finds that nothing of q is there; who follows waits for it."""
    run = written(tmp_path)
    assert audit_changing(LocalSource(str(run)), "acyclic").ok
    for path in run.rglob("q@8*"):
        path.unlink()
    verdict = audit_changing(LocalSource(str(run)), "acyclic")

    assert [*verdict.broken()] == ["completeness"]
    assert verdict.properties["completeness"].violations == ROUNDS
    follower = followed(run)
    assert follower.broken == {} and "q has not begun" in [held.reason for held in follower.held()]
