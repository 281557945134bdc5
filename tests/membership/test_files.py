"""Reading memberships: three formats, one meaning, and one clear line for everything that can be wrong."""

import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ordercast import InputError, Membership, read_membership
from ordercast.bench.live import read_workload
from ordercast.membership.files import read_latencies, read_weights

GROUPS = {"α 1": ["ü", "b"], "g.2": ["b", "名前", "c"]}


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def parquet(path: Path, **columns: object) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_three_formats_one_meaning(tmp_path: Path) -> None:
    toml = write(tmp_path / "m.toml", '[groups]\n"α 1" = ["ü", "b"]\n"g.2" = ["b", "名前", "c"]\n')
    rows = [(site, group) for group, sites in GROUPS.items() for site in sites]
    csv = write(tmp_path / "m.csv", "site,group\r\n" + "".join(f"{s},{g}\r\n" for s, g in rows))
    table = parquet(tmp_path / "m.parquet", group=[g for _, g in rows], site=[s for s, _ in rows], more=[1] * 5)

    expected = {group: sorted(sites) for group, sites in GROUPS.items()}
    assert [expected] * 3 == [read_membership(path).as_dict() for path in (toml, csv, table)]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_row_order_never_matters(tmp_path: Path, seed: int, ending: str) -> None:
    rows = [(f"s{s}", f"g{g}") for s in range(4) for g in range(3) if (s + g) % 3]
    shuffled = random.Random(seed).sample(rows, len(rows))
    if ending == "csv":
        path = write(tmp_path / "m.csv", "site,group\n" + "".join(f"{s},{g}\n" for s, g in shuffled))
    else:
        path = parquet(tmp_path / "m.parquet", site=[s for s, _ in shuffled], group=[g for _, g in shuffled])
    read = read_membership(path)

    groups: dict[str, list[str]] = {}
    for site, group in rows:
        groups.setdefault(group, []).append(site)
    expected = Membership.of(groups)
    assert (expected.sites, expected.groups) == (read.sites, read.groups)
    assert np.array_equal(expected.group_sites, read.group_sites)
    assert np.array_equal(expected.site_groups, read.site_groups)


def test_a_folder_of_parquet_parts_is_one_table(tmp_path: Path) -> None:
    folder = tmp_path / "table"
    folder.mkdir()
    parquet(folder / "part-0.parquet", site=["b", "a"], group=["g", "g"])
    parquet(folder / "part-1.parquet", site=["c"], group=["g"])
    write(folder / "_SUCCESS", "")

    assert read_membership(folder).as_dict() == {"g": ["a", "b", "c"]}


BAD: list[tuple[str, str | bytes, str]] = [
    ("m.toml", "[groups]\ng = []\n", "group 'g' is empty"),
    ("m.toml", '[groups]\ng = ["a", "b", "a"]\n', "group 'g': member 'a' appears twice"),
    ("m.toml", '[groups]\ng = ["a", 3]\n', "group 'g': member 2 is not a string: 3"),
    ("m.toml", '[groups]\ng = "a"\n', "group 'g': members must be a list of strings"),
    ("m.toml", '[groups]\na.b = ["a"]\n', "group 'a': members must be a list of strings"),
    ("m.toml", '[groups]\ng = [""]\n', "group 'g': member 1 has an empty name"),
    ("m.toml", '[groups]\ng = ["a"]\ng = ["b"]\n', "a name is given twice: Cannot overwrite a value (at line 3"),
    ("m.toml", "[groups]\n", "no [groups] table with at least one group"),
    ("m.toml", 'g = ["a"]\n', "no [groups] table with at least one group"),
    ("m.toml", "site,group\na,g\n", "not TOML"),
    ("m.toml", b"\xff\xfe\x00", "not UTF-8 text"),
    ("m.csv", "site,group\na,g\nb,g\na,g\n", "line 4: 'a' appears twice in group 'g'"),
    ("m.csv", "site,group\na,\n", "line 2: group is empty"),
    ("m.csv", "site,group\na,g\n,g\n", "line 3: site is empty"),
    ("m.csv", "site,group\na\n", "line 2: 1 fields where the header has 2"),
    ("m.csv", "site,team\na,g\n", "column 'group' is missing (columns: site, team)"),
    ("m.csv", "site,group,site\na,g,b\n", "column 'site' is twice"),
    ("m.csv", "site,group\n", "no rows"),
    ("m.csv", "", "column 'site' is missing (columns: none)"),
    ("m.csv", b"PAR1\x15\x04\x15\xff\xfe", "not UTF-8 text"),
    ("m.csv", 'site,group\n"a,g\n', "not valid CSV"),
    ("m.parquet", "site,group\na,g\n", "not readable as Parquet"),
    ("m.txt", "a", "ends in .toml, .csv or .parquet, not '.txt'"),
]


@pytest.mark.parametrize(("name", "content", "message"), BAD, ids=[f"{n}-{m[:25]}" for n, _, m in BAD])
def test_bad_files_get_one_clear_line(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    path = write(tmp_path / name, content)

    with pytest.raises(InputError) as raised:
        read_membership(path)

    assert message in str(raised.value)
    assert str(raised.value).startswith(str(path))
    assert "\n" not in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nowhere\.toml: no such file"):
        read_membership(tmp_path / "nowhere.toml")


def test_bad_parquet_columns_name_column_and_row(tmp_path: Path) -> None:
    (tmp_path / "mixed").mkdir()
    parquet(tmp_path / "mixed" / "a.parquet", site=["a"], group=["g"])
    mixed = parquet(tmp_path / "mixed" / "b.parquet", site=[1], group=["g"])
    cases = {
        "column 'site' holds double, not a string": parquet(tmp_path / "a.parquet", site=[1.5], group=["g"]),
        "row 2: group is null": parquet(tmp_path / "b.parquet", site=["a", "b"], group=["g", None]),
        "row 3: 'a' appears twice in group 'g'": parquet(tmp_path / "c.parquet", site=list("aba"), group=list("ggg")),
        "row 1: site has an empty name": parquet(tmp_path / "d.parquet", site=["", "b"], group=["g", "g"]),
        "holds int64 in one part and string in another": mixed.parent,
        "column 'group' is missing (columns: site)": parquet(tmp_path / "e.parquet", site=["a"]),
    }
    for message, path in cases.items():
        with pytest.raises(InputError) as raised:
            read_membership(path)
        assert message in str(raised.value)


def test_text_and_whole_numbers_of_every_type_are_names(tmp_path: Path) -> None:
    """As Arrow, Spark or a database wrote them."""
    site, group = pa.array(["1", "2", "1"]), pa.array(["g", "g", "h"])
    expected = {"g": ["1", "2"], "h": ["1"]}
    for kind in (pa.string_view(), pa.large_string(), pa.int32(), pa.uint64()):
        path = parquet(tmp_path / "a.parquet", site=site.cast(kind), group=group)
        assert read_membership(path).as_dict() == expected
    path = parquet(tmp_path / "b.parquet", site=site.dictionary_encode(), group=group.cast(pa.string_view()))
    assert read_membership(path).as_dict() == expected


def test_groups_in_the_names_of_folders_are_read_and_hidden_ones_are_not(tmp_path: Path) -> None:
    """`group=007` stays text; what writers leave beside the table is no row of it."""
    for place, sites in {"group=007": ["a", "b"], "group=g%2F1": ["b"], "_temporary/0": ["x"], ".old": ["y"]}.items():
        (tmp_path / "m" / place).mkdir(parents=True)
        parquet(tmp_path / "m" / place / "part-0.parquet", site=sites)

    assert read_membership(tmp_path / "m").as_dict() == {"007": ["a", "b"], "g/1": ["b"]}


def test_names_that_are_not_utf8_are_refused(tmp_path: Path) -> None:
    spoiled = pa.StringArray.from_buffers(2, *pa.array([b"a", b"\xff"], pa.binary()).buffers()[1:])
    path = parquet(tmp_path / "m.parquet", site=spoiled, group=["g", "g"])

    with pytest.raises(InputError, match=r"m\.parquet: .*UTF8[^\n]*$"):
        read_membership(path)


def test_a_group_name_with_a_plus_is_refused(tmp_path: Path) -> None:
    """`A+D` is a message to A and D, everywhere; a group of that name would be taken for it."""
    paths = [
        write(tmp_path / "m.toml", '[groups]\n"A+D" = ["a"]\n'),
        write(tmp_path / "m.csv", "site,group\na,A+D\n"),
        parquet(tmp_path / "m.parquet", site=["a"], group=["A+D"]),
    ]
    for path in paths:
        with pytest.raises(InputError) as raised:
            read_membership(path)
        assert str(raised.value).startswith(f"{path}: group 'A+D': a name must not have a '+'")
    with pytest.raises(InputError, match=r"group 'A\+D': a name must not have"):
        Membership.of({"A+D": ["a"]})


def test_weights_name_every_group_once(tmp_path: Path) -> None:
    members = Membership.of({"a": ["x"], "b": ["y"]})
    good = write(tmp_path / "w.toml", "[weights]\nb = 3\na = 0.5\n")

    assert read_weights(good, members).tolist() == [0.5, 3.0]
    assert read_weights(parquet(tmp_path / "w.parquet", group=["b", "a"], weight=[3, 0.5]), members).tolist() == [
        0.5,
        3.0,
    ]
    bad = {
        "[weights]\na = 1\n": "group 'b' has no weight",
        "[weights]\na = 1\nb = 2\nc = 3\n": "group 'c' is not in the membership",
        "[weights]\na = 1\nb = -2\n": "weight of group 'b' must be 0 or from 1e-12 to 1e15, a number, not -2",
        "[weights]\na = 1\nb = nan\n": "weight of group 'b' must be 0 or from",
        "[weights]\na = 0\nb = 0\n": "every weight is 0",
    }
    for content, message in bad.items():
        with pytest.raises(InputError) as raised:
            read_weights(write(tmp_path / "bad.toml", content), members)
        assert message in str(raised.value)
    with pytest.raises(InputError, match="line 3: group 'a' appears twice"):
        read_weights(write(tmp_path / "w.csv", "group,weight\na,1\na,2\n"), members)


TOML_PROBLEMS = [
    '[groups]\ng = ["a", "b", "a"]\n', "[groups]\ng = []\n", '[groups]\n"a+b" = ["a"]\n', "groups = 3\n", "[groups\n",
    '[groups]\ng = "a"\n', '[groups]\ng = [1]\n', '[groups]\n"" = ["a"]\n',
]  # fmt: skip


@pytest.mark.parametrize("content", TOML_PROBLEMS)
def test_a_workload_is_refused_by_the_line_that_refuses_a_membership(content: str, tmp_path: Path) -> None:
    """Issue 12, point 5: one reader of memberships, also for what has a table of groups among others."""
    path = write(tmp_path / "w.toml", content)
    with pytest.raises(InputError) as membership:
        read_membership(path)
    with pytest.raises(InputError) as workload:
        read_workload(path)

    assert str(membership.value) == str(workload.value)
    assert str(workload.value).startswith(f"{path}: ")


def test_the_table_of_groups_is_read_without_arrays() -> None:
    """Sites read it when they start."""
    asked = "import sys; from ordercast.membership import toml; print({'numpy', 'pyarrow'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True)

    assert done.stdout == "set()\n"


def test_latencies_of_pairs(tmp_path: Path) -> None:
    path = write(tmp_path / "far.csv", "site,other,latency\na,b,0.5\nc,a,3\n")

    assert {("a", "b"): 0.5, ("c", "a"): 3.0} == read_latencies(path)


@pytest.mark.parametrize(
    ("rows", "why"),
    [
        ("a,b,0", "line 2: latency '0' is not a number above 0"),
        ("a,b,soon", "line 2: latency 'soon' is not a number above 0"),
        ("a,b,nan", "line 2: latency 'nan' is not a number above 0"),
        ("a,a,1", "line 2: a site and itself"),
        ("a,b,1\nb,a,2", "line 3: b, a appear twice"),
        ("a,b", "line 2: 2 fields where the header has 3"),
    ],
)
def test_wrong_latencies(tmp_path: Path, rows: str, why: str) -> None:
    with pytest.raises(InputError) as error:
        read_latencies(write(tmp_path / "far.csv", f"site,other,latency\n{rows}\n"))
    assert str(error.value).endswith(why)
