"""Planning on Spark gives what planning in process gives, whatever the table looks like."""

import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ordercast.errors import InputError, PlanError
from ordercast.membership.files import read_membership
from ordercast.membership.table import Membership
from ordercast.names import ClassRule, Level, Planner
from ordercast.planning.planners import plan_forest
from ordercast.planning.request import Request
from ordercast.spark import planning as plan
from ordercast.spark.planning import TWIN, csv_to_parquet, overlaps, plan_tables, write_tables
from ordercast.spark.session import Spark
from tests.support.members import write_members

pytestmark = pytest.mark.slow


def write(folder: Path, pairs: list[tuple[str, str]], files: int = 3) -> Path:
    """Write a membership in several files, its rows in no order."""
    folder.mkdir(exist_ok=True)
    order = np.random.default_rng(0).permutation(len(pairs))
    for part in range(files):
        rows = [pairs[index] for index in order[part::files]]
        columns = [pa.array([row[at] for row in rows], pa.string()) for at in (0, 1)]
        table = pa.table(columns, names=["site", "group"])
        pq.write_table(table, folder / f"part-{part}.parquet")
    return folder


def hub() -> list[tuple[str, str]]:
    """One site in every group, one group of every site, and little else."""
    pairs = [("hub", f"g{index:04d}") for index in range(3000)]
    pairs += [(f"s{index:05d}", "everyone") for index in range(20_000)]
    return pairs + [(f"s{index:05d}", f"g{index % 3000:04d}") for index in range(6000)] + [("hub", "everyone")]


def in_process(membership: Membership, request: Request) -> tuple[object, dict[str, str], set[tuple[str, str, str]]]:
    forest = plan_forest(membership, request).forest
    site, names = forest.node_site, membership.sites
    entries = {name: names[site[forest.entry[g]]] for g, name in enumerate(membership.groups)}
    first: dict[int, str] = {}
    for group, label in enumerate(forest.graph.labels.tolist()):
        first.setdefault(label, membership.groups[group])
    edges = {
        (first[int(of)], names[site[node]], names[site[up]] if up >= 0 else "")
        for node, (of, up) in enumerate(zip(forest.graph.node_class, forest.parent, strict=False))
    }
    return forest.cost(), entries, edges


def told(folder: Path) -> tuple[dict[str, str], set[tuple[str, str, str]]]:
    """Return the entries and the edges that were written."""
    routes = pq.read_table(folder / "routes").to_pylist()
    groups = {row["group"]: row["entry"] for row in pq.read_table(folder / "groups").to_pylist()}
    return groups, {(row["order_class"], row["site"], (row["parent"] or "").rstrip(TWIN)) for row in routes}


def tenants() -> list[tuple[str, str]]:
    """A hundred thousand groups with names like one another, two sites each."""
    return [(f"site-{number}", f"tenant{number // 2:06d}") for number in range(200_000)]


def alike() -> list[tuple[str, str]]:
    """Sites whose sets of groups differ in one of twenty, names of 12 bytes that differ in bytes 8 and 12."""
    names = [f"0000000{one}abc{other}" for one in "0123456789" for other in "0123456789"]
    return [(f"s{s:04d}", names[g]) for s in range(2_000) for g in {*range(s % 7, 100, 5), s // 7 % 100, s % 100}]


PLANS = [
    ("profiles", Level.ACYCLIC, Planner.ELIMINATION),
    ("profiles", Level.TOTAL, Planner.ELIMINATION),
    ("profiles", Level.ACYCLIC, Planner.METAGROUP),
    ("profiles", Level.ACYCLIC, Planner.CENTRAL),
    ("hub", Level.ACYCLIC, Planner.ELIMINATION),
    ("hub", Level.ACYCLIC, Planner.CENTRAL),
    ("tenants", Level.TOTAL, Planner.ELIMINATION),
    ("alike", Level.ACYCLIC, Planner.CENTRAL),
]
PLANS = PLANS if "ORDERCAST_CAMPAIGN" in os.environ else PLANS[date.today().toordinal() % 3 :: 3]  # all in `make sim`


@pytest.mark.parametrize(("shape", "level", "planner"), PLANS)
def test_the_plan_is_that_of_the_process(
    shape: str, level: Level, planner: Planner, tmp_path: Path, spark: Spark
) -> None:
    """Cost, entry of every group, and the parent of every site in every class."""
    folder = tmp_path / "members"
    if shape != "profiles":
        write(folder, {"hub": hub, "tenants": tenants, "alike": alike}[shape]())
    else:
        write_members(folder, 20_000, per_site=8)
    request = Request(planner=planner, level=level)
    made = plan_tables(spark, str(folder), request)
    write_tables(spark, made, str(folder), str(tmp_path / "plan"))
    cost, entries, edges = in_process(read_membership(folder), request)

    assert cost == made.cost
    assert (entries, edges) == told(tmp_path / "plan")


def test_overlaps_are_counted_among_metagroups(tmp_path: Path, spark: Spark) -> None:
    """How many sites two groups share, against counting them one by one."""
    folder = tmp_path / "members"
    write_members(folder, 4_000, per_site=6)
    sites = {group: set(members) for group, members in read_membership(folder).as_dict().items()}
    expected = {
        (one, other): len(sites[one] & sites[other])
        for one in sites
        for other in sites
        if one < other and sites[one] & sites[other]
    }
    found = {(row["one"], row["other"]): row["shared"] for row in overlaps(spark, str(folder)).collect()}

    assert expected == found


def test_a_row_twice_is_refused(tmp_path: Path, spark: Spark) -> None:
    folder = write(tmp_path / "members", [("a", "g"), ("b", "g"), ("b", "h"), ("c", "h"), ("b", "g")])
    with pytest.raises(InputError, match="'b' appears twice in group 'g'"):
        plan_tables(spark, str(folder), Request(planner=Planner.ELIMINATION))


def test_a_row_twice_is_refused_wherever_it_stands(tmp_path: Path, spark: Spark) -> None:
    """In one file, in two runs of one file, in two files."""
    apart = [("b", f"h{number}") for number in range(3)]
    runs = [*[("b", f"g{number}") for number in range(4)], *[("a", f"g{number}") for number in range(4)], ("b", "g0")]
    cases = {"one": [[("b", "g"), ("b", "g")]], "runs": [runs], "two": [[("b", "g"), *apart], [("c", "g"), ("b", "g")]]}
    for name, files in cases.items():
        folder = tmp_path / name
        folder.mkdir()
        for part, rows in enumerate(files):
            columns = {"site": [site for site, _ in rows], "group": [group for _, group in rows]}
            pq.write_table(pa.table(columns), folder / f"{part}.parquet")
        with pytest.raises(InputError, match="'b' appears twice in group 'g"):
            plan_tables(spark, str(folder), Request(planner=Planner.ELIMINATION))


def test_what_cannot_be_planned_is_refused(tmp_path: Path, spark: Spark) -> None:
    folder = write(tmp_path / "members", [("a", "g"), ("b", "g")])
    with pytest.raises(InputError, match="searches in process"):
        plan_tables(spark, str(folder), Request())
    with pytest.raises(PlanError, match="above 1"):
        plan_tables(spark, str(folder), Request(planner=Planner.ELIMINATION, max_load=1))
    with pytest.raises(InputError, match="no such file"):
        plan_tables(spark, str(tmp_path / "nowhere"), Request(planner=Planner.ELIMINATION))
    pq.write_table(pa.table({"site": ["a", None], "group": ["g", "g"]}), folder / "part-9.parquet")
    with pytest.raises(InputError, match=r"part-9\.parquet: row 2: site is null"):
        plan_tables(spark, str(folder), Request(planner=Planner.ELIMINATION))


def test_classes_too_fine_for_the_level_are_refused(tmp_path: Path, spark: Spark) -> None:
    """The triangle by s2 keeps no serial order; no plan leaves Spark that was not judged."""
    folder = write(
        tmp_path / "triangle", [(s, g) for g, sites in (("G", "pq"), ("H", "qr"), ("I", "rp")) for s in sites]
    )
    request = Request(Planner.CENTRAL, Level.ACYCLIC, ClassRule.S2)

    with pytest.raises(PlanError, match="classes s2, level acyclic: acyclic does not hold: the classes are too fine"):
        plan_tables(spark, str(folder), request)


def test_a_group_with_a_plus_is_refused_by_file_and_name(tmp_path: Path, spark: Spark) -> None:
    folder = write(tmp_path / "members", [("a", "g"), ("b", "g")])
    pq.write_table(pa.table({"site": ["a"], "group": ["g+h"]}), folder / "part-9.parquet")
    says = r"group 'g\+h': a name must not have a '\+'"
    with pytest.raises(InputError, match=rf"^{folder}/part-9\.parquet: {says}"):
        plan_tables(spark, str(folder), Request(planner=Planner.ELIMINATION))
    path = tmp_path / "members.csv"
    path.write_text("group,site\ng+h,a\ng,b\n")
    with pytest.raises(InputError, match=f"^{path}: {says}"):
        csv_to_parquet(spark, str(path), tmp_path / "parquet")


def test_tables_of_any_making_are_planned(tmp_path: Path, spark: Spark) -> None:
    """Folders as columns, numbers as names, text that is viewed, and leftovers beside them: as in process."""
    for place, sites in {"group=007": ["1", "2"], "group=g%2F1": ["2"], "_temporary/0": ["x"], ".old": ["y"]}.items():
        (tmp_path / "m" / place).mkdir(parents=True)
        pq.write_table(pa.table({"site": pa.array(sites, pa.string_view())}), tmp_path / "m" / place / "a.parquet")
    (tmp_path / "n").mkdir()
    pq.write_table(pa.table({"site": [1, 2, 2], "group": [7, 7, 8]}), tmp_path / "n" / "a.parquet")
    request = Request(planner=Planner.ELIMINATION)
    for folder in (tmp_path / "m", tmp_path / "n"):
        made = plan_tables(spark, str(folder), request)
        cost, entries, _ = in_process(read_membership(folder), request)

        assert (cost, entries) == (made.cost, {row["group"]: row["entry"] for row in made.groups.to_pylist()})


def test_the_largest_tables_are_planned_by_spark_alone(
    tmp_path: Path, spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond what the driver takes, Spark brings sets together: the same meta-groups, the same plan."""
    folder = write(tmp_path / "members", alike(), files=5)
    request = Request(planner=Planner.METAGROUP)
    on_driver = plan_tables(spark, str(folder), request)
    monkeypatch.setattr(plan, "DRIVER_ROWS", 0)
    on_spark = plan_tables(spark, str(folder), request)

    for name in ("meta", "n", "groups"):
        assert on_driver.metas.column(name).to_pylist() == on_spark.metas.column(name).to_pylist()
    assert on_driver.cost == on_spark.cost


def test_a_site_that_would_be_taken_for_a_twin_is_refused(tmp_path: Path, spark: Spark) -> None:
    folder = write(tmp_path / "members", [("a", "g"), ("b", "g"), ("a\0", "h")])
    with pytest.raises(InputError, match="ends in a null character"):
        plan_tables(spark, str(folder), Request(planner=Planner.ELIMINATION))


WITHOUT_NUMBA = """
import sys
from importlib.machinery import PathFinder
found = PathFinder.find_spec
PathFinder.find_spec = classmethod(lambda cls, name, *rest: None if name == "numba" else found(name, *rest))
from ordercast.spark.metagroups import merged, sites_and_sets
from ordercast.spark.pieces import _reader
from ordercast.spark import planning as plan
from ordercast.spark.planning import find_membership
path, found_table = find_membership(sys.argv[1])
read = _reader(path, found_table.columns, sites_and_sets)
metas = merged(path, [read([piece]) for piece in found_table.pieces])
print(len(metas), sum(metas.column("n").to_pylist()), "numba" in sys.modules)
"""


def test_meta_groups_need_no_compiler(tmp_path: Path) -> None:
    """A worker without numba reads pieces that are large enough to be worth compiling for."""
    folder = tmp_path / "members"
    folder.mkdir()
    number = np.arange(120_000)
    columns = {"site": pa.array(number // 2).cast(pa.string()), "group": pa.array(number % 6).cast(pa.string())}
    pq.write_table(pa.table(columns), folder / "a.parquet")
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_NUMBA, str(folder)], capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == ["3", "60000", "False"]


def test_csv_is_read_by_spark(tmp_path: Path, spark: Spark) -> None:
    path = tmp_path / "members.csv"
    path.write_text("group,site\ng,a\ng,b\nh,b\nh,a\n")
    folder = csv_to_parquet(spark, str(path), tmp_path / "parquet")
    made = plan_tables(spark, folder, Request(planner=Planner.ELIMINATION))

    assert (made.memberships, made.classes, len(made.metas)) == (4, 1, 1)
    path.write_text("team,site\ng,a\n")
    with pytest.raises(InputError, match="column 'group' is missing"):
        csv_to_parquet(spark, str(path), tmp_path / "parquet")


def islands() -> list[tuple[str, str]]:
    """Fifty clusters that have nothing in common, one of them large; sites in none, one or several groups."""
    random = np.random.default_rng(1)
    pairs = set()
    for island in range(50):
        sites, groups = (400, 120) if island == 7 else (12, 6)
        members = random.integers([sites, groups], size=(4 * sites, 2)).tolist()
        pairs |= {(f"s{island}-{s}", f"g{g}-{island}") for s, g in members}
    return sorted(pairs)


@pytest.mark.parametrize("planner", [Planner.ELIMINATION, Planner.METAGROUP, Planner.CENTRAL])
@pytest.mark.parametrize("share", [1, 500, 10**9])
def test_components_are_planned_on_executors(
    planner: Planner, share: int, tmp_path: Path, spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each alone, some together, all together: the plan of the process, site by site."""
    folder = write(tmp_path / "members", islands(), files=5)
    monkeypatch.setattr(plan, "DRIVER_MEMBERSHIPS", 0)
    monkeypatch.setattr(plan, "SHARE", share)
    request = Request(planner=planner, level=Level.TOTAL if share == 500 else Level.ACYCLIC)
    made = plan_tables(spark, str(folder), request)
    write_tables(spark, made, str(folder), str(tmp_path / "plan"))
    shares = made.kept[1].select("share").distinct().count()
    made.close()

    assert (shares > 40) == (share == 1)
    assert (shares > 1) == (share <= 500)
    assert told(tmp_path / "plan") == in_process(read_membership(folder), request)[1:]
    assert made.cost == in_process(read_membership(folder), request)[0]


@pytest.mark.parametrize("by", ["site", "group"])
def test_what_shrinks_is_planned_on_the_driver_however_its_rows_come(
    by: str, tmp_path: Path, spark: Spark, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thousands of sites with forty sets of groups shrink; as many with sets of their own do not."""
    folder = tmp_path / "members"
    random = np.random.default_rng(3)
    alike_pairs = [(f"s{site:05d}", f"g{site % 40}-{one}") for site in range(4000) for one in range(5)]
    own = [
        (f"s{site:05d}", f"g{one:03d}") for site in range(4000) for one in set(random.integers(400, size=5).tolist())
    ]
    monkeypatch.setattr(plan, "DRIVER_MEMBERSHIPS", 5000)
    for number, (pairs, on_driver) in enumerate(((alike_pairs, True), (own, False))):
        pairs.sort(key=lambda pair: pair if by == "site" else pair[::-1])
        where = folder / str(number)
        where.mkdir(parents=True)
        for part in range(20):
            some = pairs[part * len(pairs) // 20 : (part + 1) * len(pairs) // 20]
            table = pa.table({"site": [site for site, _ in some], "group": [group for _, group in some]})
            pq.write_table(table, where / f"{part:02d}.parquet")
        request = Request(planner=Planner.ELIMINATION)
        made = plan_tables(spark, str(where), request)
        made.close()

        assert (made.kept == ()) == on_driver
        assert made.cost == in_process(read_membership(where), request)[0]
