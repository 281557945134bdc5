"""Reading tables: Parquet of any making is taken, or refused by one line that names file, row and column."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ordercast.audit.local import LocalSource
from ordercast.audit.verdict import audit
from ordercast.cli.main import run
from ordercast.errors import InputError
from ordercast.runs import reader
from tests.support.logs import FAULTS, TWINS, Logs, make_logs

TEXTS = ("site", "msg_id", "group", "source", "order_class")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A run with a fault, so that examples are compared, too."""
    logs = make_logs(3_000, TWINS)
    FAULTS["swap_at_one_site"](logs)
    logs.write(tmp_path / "run")
    return tmp_path / "run"


def verdict(folder: Path) -> dict[str, Any]:
    return audit(LocalSource(str(folder)), "acyclic").as_json()


def rewrite(folder: Path, change: Callable[[Any], Any], *, only: str = "*/*.parquet") -> None:
    """Write files again, changed."""
    for path in sorted(folder.glob(only)):
        pq.write_table(change(pq.read_table(path, partitioning=None)), path)


def replaced(table: Any, name: str, column: Any) -> Any:
    return table.set_column(table.column_names.index(name), name, column)


def not_utf8(table: Any, name: str) -> Any:
    """Spoil the third value of a column."""
    values = [value.encode() for value in table.column(name).to_pylist()]
    values[2] = b"\xff" + values[2]
    spoiled = pa.array(values, pa.binary())
    return replaced(table, name, pa.StringArray.from_buffers(len(values), *spoiled.buffers()[1:]))


@pytest.mark.parametrize("name", ["site", "msg_id", "group"])
@pytest.mark.parametrize("where", ["deliveries", "sends", "membership"])
def test_text_that_is_not_utf8_is_refused(
    where: str, name: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = sorted((folder / where).glob("*"))[0]
    table = pq.read_table(path)
    if name not in table.column_names:
        pytest.skip("no such column")
    pq.write_table(not_utf8(table, name), path)

    assert run(["audit", str(folder), "--local"]) == 2
    assert capsys.readouterr().err == f"ordercast: {path}: row 3: {name} is not UTF-8 text\n"


@pytest.mark.parametrize("name", ["position", "source_seq", "epoch"])
def test_numbers_beyond_64_bits_are_refused(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sorted((folder / "deliveries").glob("*"))[0]
    table = pq.read_table(path)
    values = table.column(name).to_numpy().astype(np.uint64)
    values[4] = 2**63
    pq.write_table(replaced(table, name, pa.array(values)), path)

    assert run(["audit", str(folder), "--local"]) == 2
    assert capsys.readouterr().err == f"ordercast: {path}: row 5: {name} 9223372036854775808 is above 2^63 - 1\n"


def test_rows_are_counted_from_the_beginning_of_the_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large file is read in pieces; a row is named as whoever opens the file would count it."""
    monkeypatch.setattr(reader, "PIECE_ROWS", 10)
    path = sorted((folder / "deliveries").glob("*"))[0]
    table = pq.read_table(path)
    values = table.column("source").to_pylist()
    values[37] = None
    pq.write_table(replaced(table, "source", pa.array(values, pa.string())), path, row_group_size=10)

    with pytest.raises(InputError, match="row 38: source is null"):
        verdict(folder)


def test_unsigned_numbers_are_taken(folder: Path) -> None:
    expected = verdict(folder)
    kinds = {"position": pa.uint64(), "source_seq": pa.uint32(), "epoch": pa.uint8()}

    def change(table: Any) -> Any:
        for name, kind in kinds.items():
            table = replaced(table, name, table.column(name).cast(kind))
        return table

    rewrite(folder, change, only="deliveries/*")
    assert expected == verdict(folder)


KINDS = [
    pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()),
    pa.dictionary(pa.int64(), pa.large_string()),
]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_text_of_every_type_is_taken(kind: Any, folder: Path) -> None:
    expected = verdict(folder)

    def change(table: Any) -> Any:
        for name in TEXTS:
            if name in table.column_names and (name != "msg_id" or not pa.types.is_dictionary(kind)):
                column = table.column(name)
                is_coded = pa.types.is_dictionary(kind)
                table = replaced(table, name, column.dictionary_encode().cast(kind) if is_coded else column.cast(kind))
        return table

    rewrite(folder, change)
    assert expected == verdict(folder)


@pytest.mark.parametrize("kind", [pa.binary_view(), pa.large_binary(), pa.binary(16)], ids=str)
def test_stamps_of_every_type_are_taken(kind: Any, folder: Path) -> None:
    expected = verdict(folder)

    def change(table: Any) -> Any:
        for name in ("stamp", "prev_stamp"):
            table = replaced(table, name, table.column(name).cast(kind))
        return table

    rewrite(folder, change, only="deliveries/*")
    assert expected == verdict(folder)


@pytest.mark.parametrize("names", [("msg_id",), ("site", "group", "source", "order_class", "msg_id")])
def test_whole_numbers_are_names_too(names: tuple[str, ...], folder: Path) -> None:
    """Numbers in place of names: the verdict is that of their decimal text."""
    known: dict[str, int] = {}

    def change(table: Any, kind: Any) -> Any:
        for name in names:
            if name in table.column_names:
                values = [known.setdefault(value, len(known)) for value in table.column(name).to_pylist()]
                table = replaced(table, name, pa.array(values, pa.int64()).cast(kind))
        return table

    as_text = folder.parent / "text"
    shutil.copytree(folder, as_text)
    rewrite(as_text, lambda table: change(table, pa.string()))
    rewrite(folder, lambda table: change(table, pa.int64()))

    assert verdict(as_text) == verdict(folder)


@pytest.mark.parametrize("kind", [pa.string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_lists_of_groups_are_taken(kind: Any, folder: Path) -> None:
    """A list of one name is that name; `A+D` and ["A", "D"] are one destination."""
    expected = verdict(folder)

    def change(table: Any) -> Any:
        names = table.column("group").combine_chunks()
        names = names.dictionary_encode().cast(kind) if pa.types.is_dictionary(kind) else names.cast(kind)
        lists = pa.ListArray.from_arrays(pa.array(range(len(names) + 1), pa.int32()), names)
        return replaced(table, "group", lists)

    rewrite(folder, change, only="deliveries/*")
    rewrite(folder, change, only="sends/*")
    assert expected == verdict(folder)


@pytest.mark.parametrize(
    ("value", "says"),
    [([], "is an empty list"), ([None], "has a name that is null"), (["g", ""], "null, empty"), (None, "is null")],
)
def test_lists_that_name_no_group_are_refused(
    value: Any, says: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def change(table: Any) -> Any:
        lists = [[name] for name in table.column("group").to_pylist()]
        return replaced(table, "group", pa.array([*lists[:3], value, *lists[4:]], pa.list_(pa.string())))

    rewrite(folder, change, only="deliveries/*")
    path = sorted((folder / "deliveries").glob("*"))[0]

    assert run(["audit", str(folder), "--local"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"ordercast: {path}: row 4: group ")
    assert says in said
    assert said.count("\n") == 1


def test_what_begins_with_a_dot_or_an_underline_is_no_data(folder: Path) -> None:
    """Leftovers of writers: Spark's, Delta's, an editor's; torn or whole, they are not rows of the table."""
    expected = verdict(folder)
    whole = sorted((folder / "deliveries").glob("*"))[0]
    for place in ("_temporary/0/a.parquet", ".hidden/a.parquet", "_delta_log/a.checkpoint.parquet", ".a.parquet"):
        for table in ("deliveries", "sends", "membership"):
            path = folder / table / place
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(whole, path)
    (folder / "deliveries" / "_SUCCESS").write_text("")
    (folder / "deliveries" / "_b.parquet").write_bytes(b"torn")

    assert expected == verdict(folder)


def test_a_hidden_folder_above_does_not_hide_a_run(folder: Path) -> None:
    expected = verdict(folder)
    folder.rename(folder.parent / ".run")

    assert expected == verdict(folder.parent / ".run")


def test_columns_in_the_names_of_folders_are_read(tmp_path: Path) -> None:
    """`site=...` as Hive and Spark write it, characters that a path cannot have written as %XX."""
    members = {"g / 1": ["007", "s é"], "g=2": ["s é", "007", "c"]}
    make_logs(600, members).write(tmp_path / "flat")
    expected = verdict(tmp_path / "flat")
    for table, names in {"deliveries": ["site", "epoch"], "sends": ["group"], "membership": ["group", "site"]}.items():
        whole = pq.read_table(tmp_path / "flat" / table)
        keys = list(zip(*(whole.column(name).to_pylist() for name in names), strict=True))
        for key in sorted(set(keys)):
            path = tmp_path / "hive" / table
            for name, value in zip(names, key, strict=True):
                path /= f"{name}={quote(str(value), safe='')}"
            path.mkdir(parents=True)
            rows = whole.filter(pa.array([one == key for one in keys])).drop_columns(names)
            pq.write_table(rows if rows.num_columns else rows.append_column("more", pa.array([1])), path / "a.parquet")

    assert expected == verdict(tmp_path / "hive")


def test_folders_say_what_cannot_be(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = sorted((folder / "deliveries").glob("*"))[0]
    for name, value, says in (
        ("site", "__HIVE_DEFAULT_PARTITION__", "site is null"),
        ("epoch", "one", "epoch 'one' is not a whole number"),
    ):
        place = folder / "deliveries" / f"{name}={value}" / "a.parquet"
        place.parent.mkdir()
        pq.write_table(pq.read_table(path).drop_columns([name]), place)
        assert run(["audit", str(folder), "--local"]) == 2
        assert capsys.readouterr().err == f"ordercast: {place}: {says}\n"
        shutil.rmtree(place.parent)


def _longer(logs: Logs, name: str, make: Callable[[Any], Any]) -> None:
    """Give message 5 another value, wherever it is."""
    for rows in (logs.sends, *logs.sites.values()):
        at = np.flatnonzero(rows["message"] == 5)
        values = rows[name].astype(np.object_)
        values[at] = [make(values[row]) for row in at]
        rows[name] = values


@pytest.mark.parametrize(("name", "make"), [
    ("msg_id", lambda old: old + "x" * 2_000_000),
    ("stamp", lambda old: old + b"x" * 1_000_000),
])  # fmt: skip
def test_one_long_value_is_judged_like_others(name: str, make: Callable[[Any], Any], tmp_path: Path) -> None:
    """A table as wide as its longest value would need gigabytes, a loop over its bytes minutes."""
    logs = make_logs(3_000, TWINS)
    _longer(logs, name, make)
    logs.write(tmp_path)

    assert verdict(tmp_path)["ok"]


def test_long_stamps_are_compared_to_the_last_byte(tmp_path: Path) -> None:
    """Two stamps of a million bytes that differ in the last: one order holds, the other does not."""
    for last, holds in ((b"y", True), (b"x", False), (b"a", False)):
        logs = make_logs(600, {"g": ["a", "b"]})
        for rows in (logs.sends, *logs.sites.values()):
            rows["stamp"][5:7] = [rows["stamp"][4] + b"x" * 1_000_000, rows["stamp"][4] + b"x" * 999_999 + last]
        logs.write(tmp_path)

        assert verdict(tmp_path)["properties"]["stamps"]["ok"] is holds


@pytest.mark.parametrize("name", ["a+b", "+"])
def test_a_group_with_a_plus_is_refused(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "membership" / "part-9.parquet"
    pq.write_table(pa.table({"site": ["s"], "group": [name]}), path)

    assert run(["audit", str(folder), "--local"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"ordercast: {path}: group {name!r}: a name must not have a '+'")
    assert said.count("\n") == 1


def test_many_small_files_share_folds() -> None:
    from ordercast.audit.local import _shares

    pieces = [reader.Piece(str(index), 0, 1, 30_000) for index in range(10)]

    assert [len(share) for share in _shares(pieces)] == [4, 4, 2]
