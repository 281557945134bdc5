"""The audit: clean logs pass, logs of other systems too; what cannot be judged is refused by one line."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from ordercast.audit import columns as arrow
from ordercast.audit import fold, kernels, plain
from ordercast.audit.local import LocalSource
from ordercast.audit.verdict import Verdict, audit
from ordercast.cli.main import run
from ordercast.errors import InputError
from tests.support.logs import FAULTS, TWINS, Logs, make_logs


def broken(verdict: Verdict) -> set[str]:
    return {name for name, finding in verdict.properties.items() if finding.ok is False}


def judged(folder: Path, level: str = "acyclic", **how: Any) -> Verdict:
    return audit(LocalSource(str(folder)), level, **how)


@pytest.fixture
def logs() -> Logs:
    return make_logs(60_000, TWINS)


def test_a_clean_log_passes(logs: Logs, tmp_path: Path) -> None:
    logs.write(tmp_path, parts=3)
    verdict = judged(tmp_path)

    assert verdict.ok
    assert broken(verdict) == set()
    assert verdict.deliveries == sum(len(rows["message"]) for rows in logs.sites.values())


@pytest.mark.parametrize("fault", sorted(set(FAULTS) - {"class_too_fine", "forged_stamp"}))
def test_faults_are_found_without_stamps(fault: str, logs: Logs, tmp_path: Path) -> None:
    """A log of another system has no stamps: order comes from the edges alone."""
    expected = FAULTS[fault](logs) - {"stamps"}
    logs.stamped = False
    logs.write(tmp_path)
    verdict = judged(tmp_path)

    assert expected == broken(verdict)
    assert verdict.properties["stamps"].ok is None
    assert verdict.properties["classes"].ok is None


def test_what_a_log_does_not_tell_is_not_said_to_hold(logs: Logs, tmp_path: Path) -> None:
    """A log without epochs can be right, but its epochs were not judged."""
    logs.write(tmp_path)
    for path in (tmp_path / "deliveries").glob("*.parquet"):
        pq.write_table(pq.read_table(path).drop_columns(["epoch"]), path)
    verdict = judged(tmp_path)

    assert verdict.ok
    assert verdict.properties["epochs"].ok is None


def test_rows_in_any_order_say_the_same(logs: Logs, tmp_path: Path) -> None:
    """Files hold rows in no order: the verdict is that of the ordered log."""
    FAULTS["swap_at_one_site"](logs)
    logs.write(tmp_path / "ordered")
    logs.write(tmp_path / "shuffled")
    table = pq.read_table(tmp_path / "shuffled" / "deliveries")
    order = np.random.default_rng(1).permutation(len(table))
    for old in (tmp_path / "shuffled" / "deliveries").glob("*"):
        old.unlink()
    for part in range(3):
        pq.write_table(table.take(order[part::3]), tmp_path / "shuffled" / "deliveries" / f"{part}.parquet")

    assert judged(tmp_path / "ordered").as_json() == judged(tmp_path / "shuffled").as_json()


def test_a_run_in_progress_is_judged_up_to_where_it_is(logs: Logs, tmp_path: Path) -> None:
    """Logs that end at different places miss nothing yet; a hole in one of them is missing all the same."""
    for index, site in enumerate(logs.sites):
        rows = logs.sites[site]
        kept = len(rows["message"]) - 10 * index
        logs.sites[site] = {name: values[:kept] for name, values in rows.items()}
    logs.write(tmp_path)

    assert broken(judged(tmp_path)) == {"completeness"}
    assert judged(tmp_path, running=True).ok
    FAULTS["loss"](logs)
    logs.write(tmp_path)
    found = judged(tmp_path, running=True)
    assert broken(found) == {"completeness"}
    assert found.properties["completeness"].violations == 1


def test_the_level_decides(logs: Logs, tmp_path: Path) -> None:
    """A cycle of three breaks acyclic order and leaves total order whole; fifo asks for neither."""
    FAULTS["cycle_of_three"](logs)
    logs.stamped = False
    logs.write(tmp_path)

    assert not judged(tmp_path, "acyclic").ok
    assert judged(tmp_path, "total").ok
    assert judged(tmp_path, "fifo").ok


def test_causal_order_needs_the_context_of_sends(logs: Logs, tmp_path: Path) -> None:
    logs.write(tmp_path)
    with pytest.raises(InputError, match="'after' is missing"):
        judged(tmp_path, "causal")


def test_simulated_runs_are_judged_causally(tmp_path: Path) -> None:
    """`simulate` logs what a source had delivered: the causal option passes, its absence is seen."""
    groups = tmp_path / "groups.toml"
    groups.write_text('[groups]\na = ["p", "q", "r"]\nb = ["q", "r", "s"]\nc = ["r", "s", "p"]\n')
    out = tmp_path / "run"
    asked = ["simulate", str(groups), "--messages", "400", "--protocol", "arrow", "--out", str(out)]

    assert run(asked) == 0
    page = tmp_path / "page.html"
    assert run(["audit", str(out), "--local", "--level", "causal", "--html", str(page)]) == 0
    assert "level causal holds" in page.read_text("utf-8")
    table = pq.read_table(out / "sends")
    late = table.set_column(
        table.schema.get_field_index("after"), "after", pc.add(table.column("after"), pa.scalar(200, pa.int64()))
    )
    pq.write_table(late, out / "sends" / "part-0.parquet")
    assert run(["audit", str(out), "--local", "--level", "causal"]) == 1


def _drop(column: str) -> Callable[[Any], Any]:
    return lambda table: table.drop_columns([column])


def _null(column: str) -> Callable[[Any], Any]:
    def work(table: Any) -> Any:
        values = table.column(column).to_pylist()
        values[6] = None
        return table.set_column(
            table.column_names.index(column), column, pa.array(values, table.schema.field(column).type)
        )

    return work


def _cast(column: str, kind: Any) -> Callable[[Any], Any]:
    return lambda table: table.set_column(table.column_names.index(column), column, table.column(column).cast(kind))


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_drop("msg_id"), "column 'msg_id' is missing"),
        (_drop("stamp"), "column 'stamp' is in some files of deliveries/ and not in others"),
        (_null("source"), "row 7: source is null"),
        (_cast("position", pa.string()), "column 'position' holds string, not a whole number"),
        (_cast("position", pa.int32()), None),
        (lambda table: table.slice(0, 0), None),
    ],
)
def test_bad_logs_are_refused_by_one_line(
    change: Callable[[Any], Any], says: str | None, logs: Logs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs.write(tmp_path)
    path = tmp_path / "deliveries" / "s04-0.parquet"
    pq.write_table(change(pq.read_table(path)), path)
    code = run(["audit", str(tmp_path), "--local", "--json"])
    said = capsys.readouterr().err

    if says is None:
        assert code in (0, 1)
        assert said == ""
    else:
        assert code == 2
        assert said.count("\n") == 1
        assert says in said
        assert "s04-0.parquet" in said


def test_other_bad_input_is_refused_by_one_line(logs: Logs, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs.write(tmp_path)
    assert run(["audit", str(tmp_path / "nowhere"), "--local"]) == 2
    (tmp_path / "deliveries" / "torn.parquet").write_bytes(b"PAR1 and no more")
    assert run(["audit", str(tmp_path), "--local"]) == 2
    (tmp_path / "deliveries" / "torn.parquet").unlink()
    for path in (tmp_path / "deliveries").glob("*"):
        pq.write_table(pq.read_table(path).slice(0, 0), path)
    assert run(["audit", str(tmp_path), "--local"]) == 2
    said = capsys.readouterr().err.splitlines()

    assert len(said) == 3
    assert "torn.parquet: not readable as Parquet" in said[1]
    assert "no rows" in said[2]


def test_two_messages_at_one_position_are_refused(logs: Logs, tmp_path: Path) -> None:
    rows = logs.sites["s05"]
    rows["position"] = np.arange(len(rows["message"]))
    rows["position"][100] = 99
    logs.write(tmp_path)

    with pytest.raises(InputError, match="site 's05': two messages have position 99"):
        judged(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("fault", [None, *FAULTS])
def test_compiled_and_plain_loops_fold_alike(
    fault: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The twin: arrays and compiled loops give the same sums for every kind of log."""
    logs = make_logs(60_000, TWINS, seed=5)
    for rows in logs.sites.values():
        rows["stamp"] = np.array([s + b"\x07" * (i % 3) for i, s in enumerate(rows["stamp"])], np.object_)
    if fault is not None:
        FAULTS[fault](logs)
    logs.write(tmp_path)
    source = LocalSource(str(tmp_path))
    folds = []
    for loops in (plain, kernels):
        monkeypatch.setattr(fold, "_loops", lambda rows, loops=loops: loops)
        monkeypatch.setattr(arrow, "plainly", lambda rows, loops=loops: loops is plain)
        monkeypatch.setattr(fold, "plainly", lambda rows, loops=loops: loops is plain)
        folds.append(sorted(map(str, source.fold()[0].to_pylist())))

    assert folds[0] == folds[1]


@pytest.mark.slow
def test_a_small_audit_is_quick_and_loads_no_compiler(logs: Logs, tmp_path: Path) -> None:
    """`--local` on a small log loads neither numba nor pandas: that is how it answers within two seconds."""
    import subprocess

    logs.write(tmp_path)
    asked = f"from ordercast.cli.main import run; code = run(['audit', {str(tmp_path)!r}, '--local', '--json'])"
    look = "import sys; print(code, 'numba' in sys.modules, 'pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", f"{asked}; {look}"], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "0 False False"


@pytest.mark.slow
def test_loops_are_chosen_by_the_whole_log(logs: Logs, tmp_path: Path) -> None:
    """Many small files are one large log: compiled loops are loaded although no share of it would need them."""
    import subprocess

    logs.write(tmp_path, parts=3)
    asked = "from ordercast.audit import columns; columns.PLAIN_ROWS = 50_000; from ordercast.cli.main import run"
    look = f"import sys; run(['audit', {str(tmp_path)!r}, '--local']); print('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", f"{asked}; {look}"], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "True"
