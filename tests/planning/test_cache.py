"""Plans that are kept on disk: made once, found by whoever asks for the same, and judged each time."""

from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from ordercast import ClassRule, InputError, Level, Planner
from ordercast.planning import cache
from ordercast.planning.cache import Wanted, cached_plan
from ordercast.planning.make import check_plan
from ordercast.planning.plan import read_plan

GROUPS = {"A": ["a", "b", "c"], "B": ["b", "c", "d"], "C": ["d", "e"]}
WANTED = Wanted(GROUPS, [["A", "C"]], Level.ACYCLIC, ClassRule.BLOCKS)


def test_a_plan_is_made_once_and_then_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = cached_plan(tmp_path, WANTED)
    monkeypatch.delattr(cache, "_made")

    assert made == cached_plan(tmp_path, WANTED) == read_plan(WANTED.path(tmp_path))
    assert made.groups["A+C"].members == ["a", "b", "c", "d", "e"]
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


def test_whoever_asks_for_something_else_finds_another_plan(tmp_path: Path) -> None:
    others = [
        replace(WANTED, level=Level.TOTAL), replace(WANTED, rule=ClassRule.S1), replace(WANTED, unions=[]),
        replace(WANTED, planner=Planner.CENTRAL), replace(WANTED, max_load=50),
        replace(WANTED, groups={"A": ["a"]}, unions=[]),
    ]  # fmt: skip

    assert len({wanted.path(tmp_path) for wanted in [WANTED, *others]}) == 7
    assert WANTED.path(tmp_path) == replace(WANTED, groups={g: GROUPS[g][::-1] for g in "CBA"}).path(tmp_path)


def test_a_plan_from_disk_is_judged(tmp_path: Path) -> None:
    """Issue 12, point 5: no way to a plan passes by the judge."""
    plan = cached_plan(tmp_path, WANTED)
    path = WANTED.path(tmp_path)
    path.write_bytes(msgspec.json.encode(replace(plan, edges=plan.edges[1:])))
    with pytest.raises(InputError, match=rf"{path.name}: not a plan for this cluster: PG2 does not hold: .*remove it"):
        cached_plan(tmp_path, WANTED)

    path.write_bytes(msgspec.json.encode(replace(plan, level=Level.TOTAL)))
    with pytest.raises(InputError, match="it is for level total, not acyclic"):
        cached_plan(tmp_path, WANTED)

    path.write_bytes(b"{}")
    with pytest.raises(InputError, match="not a plan"):
        cached_plan(tmp_path, WANTED)


def test_a_plan_for_other_groups_is_refused(tmp_path: Path) -> None:
    plan = cached_plan(tmp_path, WANTED)

    assert check_plan(plan, WANTED.members(), Level.ACYCLIC).ok
    with pytest.raises(InputError, match="the plan cannot run: form does not hold: group 'B' has other members"):
        check_plan(plan, WANTED.members() | {"B": ["b", "c"]})


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")

    with pytest.raises(InputError, match=r"plan-\w+\.json: Not a directory|plan-\w+\.json: File exists"):
        cached_plan(tmp_path / "data", WANTED)
