"""What the audit once got wrong, each as a log of a few rows."""

import sys
from collections.abc import Iterable
from itertools import combinations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ordercast.audit import columns as arrow
from ordercast.audit import kernels, local, look, order, plain
from ordercast.audit.fold import fold_deliveries
from ordercast.audit.local import LocalSource
from ordercast.audit.merge import merge
from ordercast.audit.rows import Rows, untouched
from ordercast.audit.verdict import Verdict, audit
from ordercast.cli.main import run as command
from ordercast.errors import InputError
from ordercast.runs import reader, schema
from tests.audit.naive import Delivered, Naive, Run, Sent
from tests.audit.test_against_naive import differences
from tests.audit.written import write


def sent(name: str, groups: str, after: int = 0) -> Sent:
    source, number = name.split(":")
    return Sent(name, frozenset(groups.split("+")), source, int(number), after)


def run_of(members: dict[str, str], sends: list[Sent], logs: dict[str, str], level: str = "acyclic", **how: Any) -> Run:
    """Make a run from logs of ids, without stamps unless it is said how."""
    known = {one.msg_id: one for one in sends}
    rows = [
        Delivered(site, place, name, known[name].groups, known[name].source, known[name].number)
        for site, log in logs.items()
        for place, name in enumerate(log.split())
        if name in known
    ]
    how = {"stamped": False, "has_prev": False, "has_epoch": False, "context": False} | how
    return Run({group: set(sites) for group, sites in members.items()}, sends, rows, level, **how)


def judged(run: Run, folder: Path) -> Verdict:
    """Judge a run in one piece and in many, written in several ways: the verdict is that of the naive judge."""
    write(run, folder, seed=0)
    verdict = audit(LocalSource(str(folder)), run.level, running=run.running)
    assert differences(run, verdict) == []
    for seed in range(4):
        write(run, folder / str(seed), seed)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(local, "SHARE_ROWS", 1)
            patch.setattr(reader, "PIECE_ROWS", 1)
            again = audit(LocalSource(str(folder / str(seed))), run.level, running=run.running)
        assert verdict.as_json() == again.as_json()
    return verdict


def broken(verdict: Verdict) -> set[str]:
    return {name for name, finding in verdict.properties.items() if finding.ok is False}


def stamp_by_class(run: Run, classes: dict[str, str], order: str) -> Run:
    """Stamp messages in this order; the class goes by the destination."""
    number = {name: place.to_bytes(1, "big") for place, name in enumerate(order.split())}
    run.deliveries = [
        Delivered(r.site, r.position, r.msg_id, r.groups, r.source, r.number, 0, classes["+".join(sorted(r.groups))],
                  number[r.msg_id])
        for r in run.deliveries
    ]  # fmt: skip
    run.stamped = True
    return run


@pytest.mark.parametrize("level", ["total", "acyclic", "causal"])
def test_six_rows_where_a_union_is_of_another_class(level: str, tmp_path: Path) -> None:
    """Stamps hold, class by class; but A+D and D share two sites, so their classes prove nothing."""
    sends = [sent("x:1", "A+D"), sent("y:1", "D")]
    run = run_of({"A": "r", "D": "rs"}, sends, {"r": "x:1 y:1", "s": "y:1 x:1"}, level, context=True)
    verdict = judged(stamp_by_class(run, {"A+D": "A", "D": "D"}, "x:1 y:1"), tmp_path)

    assert broken(verdict) == {"total", "acyclic", "classes"}
    assert verdict.properties["stamps"].ok
    assert not verdict.ok


def test_the_command_fails_on_the_six_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sends = [sent("x:1", "A+D"), sent("y:1", "D")]
    run = run_of({"A": "r", "D": "rs"}, sends, {"r": "x:1 y:1", "s": "y:1 x:1"})
    write(stamp_by_class(run, {"A+D": "A", "D": "D"}, "x:1 y:1"), tmp_path, seed=0)

    assert command(["audit", str(tmp_path), "--local", "--level", "total"]) == 1
    assert "does not hold" in capsys.readouterr().out


def test_a_union_in_the_right_class_is_proven_by_stamps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No search where stamps prove it: a log of a hundred million rows could not be searched for each audit."""
    monkeypatch.setattr(order, "Knots", lambda *_, **__: pytest.fail("searched"))
    sends = [sent("x:1", "A+D"), sent("y:1", "D"), sent("x:2", "A")]
    run = run_of({"A": "rs", "D": "st"}, sends, {"r": "x:1 x:2", "s": "x:1 y:1 x:2", "t": "x:1 y:1"})
    write(stamp_by_class(run, {"A+D": "A", "D": "A", "A": "A"}, "x:1 y:1 x:2"), tmp_path, seed=0)

    assert audit(LocalSource(str(tmp_path)), "acyclic").ok


def test_fifo_holds_between_a_group_and_a_union_with_it(tmp_path: Path) -> None:
    sends = [sent("x:1", "a"), sent("x:2", "a+b")]
    run = run_of({"a": "p", "b": "q"}, sends, {"p": "x:2 x:1", "q": "x:2"})

    assert broken(judged(run, tmp_path)) == {"fifo"}


def test_a_union_is_one_destination_however_it_is_written(tmp_path: Path) -> None:
    """`a+b` here, `b+a` there; or lists, where even a name with a + is no riddle."""
    members = {"a": "p", "b": "q", "a+b": "r"}
    for folder, groups in (("texts", ["a+b", "b+a"]), ("lists", [["a", "b"], ["b", "a", "b"]])):
        run = run_of({name: members[name] for name in ("a", "b")}, [sent("x:1", "a+b")], {"p": "x:1", "q": "x:1"})
        write(run, tmp_path / folder, seed=0)
        for table, written in (("sends", groups[:1]), ("deliveries", groups)):
            old = pq.read_table(tmp_path / folder / table)
            for part in (tmp_path / folder / table).glob("*"):
                part.unlink()
            new = old.set_column(old.column_names.index("group"), "group", pa.array(written))
            pq.write_table(new, tmp_path / folder / table / "all.parquet")
        assert audit(LocalSource(str(tmp_path / folder)), "acyclic").ok
    membership = pa.table({"site": ["p", "q", "r"], "group": ["a", "b", "a+b"]})
    for folder in ("texts", "lists"):
        pq.write_table(membership, tmp_path / folder / "membership" / "m.parquet")
    assert audit(LocalSource(str(tmp_path / "lists")), "acyclic").ok
    with pytest.raises(InputError, match=r"membership/.*: group 'a\+b': a name must not have a '\+'"):
        LocalSource(str(tmp_path / "texts"))


def test_a_doubled_send_does_not_hide_a_doubled_delivery(tmp_path: Path) -> None:
    sends = [sent("x:1", "a"), sent("x:2", "a"), sent("x:2", "a")]
    run = run_of({"a": "pq"}, sends, {"p": "x:1 x:2 x:2", "q": "x:1 x:2 x:2"})
    verdict = judged(run, tmp_path)

    assert broken(verdict) == {"creation", "duplicate"}
    assert verdict.properties["creation"].example is not None
    assert "x:2 is the id of two messages" in verdict.properties["creation"].says


def test_a_ghost_twice_does_not_pass_for_two_messages(tmp_path: Path) -> None:
    """Xor takes a ghost away against itself; a sum does not."""
    sends = [sent("x:1", "a"), sent("x:1", "a")]
    run = run_of({"a": "p"}, sends, {"p": "x:1"})
    made = run.deliveries[0]
    run.deliveries = [Delivered("p", place, "y:1", made.groups, "x", 1) for place in (0, 1)]

    assert broken(judged(run, tmp_path)) == {"creation", "duplicate", "completeness"}


def test_ids_that_are_not_unique_are_told(tmp_path: Path) -> None:
    """Every site has what was sent to it; but two messages go by one name."""
    sends = [Sent("x", frozenset("a"), "c", 1), Sent("x", frozenset("b"), "c", 2)]
    rows = [Delivered("p", 0, "x", frozenset("a"), "c", 1), Delivered("q", 0, "x", frozenset("b"), "c", 2)]
    run = Run({"a": {"p"}, "b": {"q"}}, sends, rows, stamped=False, has_prev=False, has_epoch=False, context=False)

    assert broken(judged(run, tmp_path)) == {"creation"}


def test_a_stranger_takes_part_in_the_order(tmp_path: Path) -> None:
    """Stamps prove the order among members; a stranger of both groups turns it round."""
    sends = [sent("x:1", "a"), sent("y:1", "b")]
    logs = {"p": "x:1 y:1", "q": "x:1", "r": "y:1", "t": "y:1 x:1"}
    run = run_of({"a": "pq", "b": "pr"}, sends, logs)

    assert broken(judged(stamp_by_class(run, {"a": "a", "b": "b"}, "x:1 y:1"), tmp_path)) == {
        "creation", "total", "acyclic",
    }  # fmt: skip


def test_a_message_in_disguise_is_no_proof(tmp_path: Path) -> None:
    """To r, x comes as a message of b: stamps hold class by class, and classes suit what each row says of itself."""
    sends = [sent("y:1", "b"), sent("x:1", "a")]
    run = run_of({"a": "pq", "b": "pr"}, sends, {"p": "x:1 y:1", "q": "x:1", "r": "y:1 x:1"})
    stamp_by_class(run, {"a": "a", "b": "b"}, "y:1 x:1")
    last = run.deliveries[-1]
    run.deliveries[-1] = Delivered("r", 1, "x:1", frozenset("b"), "x", 1, 0, "b", last.stamp)

    assert broken(judged(run, tmp_path)) == {"creation", "total", "acyclic", "classes"}


def test_a_loss_alone_is_no_causal_break(tmp_path: Path) -> None:
    sends = [sent("p:1", "a"), sent("q:1", "a", after=1)]
    run = run_of({"a": "pqr"}, sends, {"p": "p:1 q:1", "q": "p:1 q:1", "r": "q:1"}, "causal", context=True)

    assert broken(judged(run, tmp_path)) == {"completeness"}


def test_a_log_that_begins_late_is_no_circle(tmp_path: Path) -> None:
    """`after` counts from the beginning of time, not of the log that is left."""
    sends = [sent("p:1", "a"), sent("p:2", "a", after=101), sent("p:3", "a", after=102)]
    run = run_of({"a": "pq"}, sends, {"p": "p:1 p:2 p:3", "q": "p:1 p:2 p:3"}, "causal", context=True)
    run.deliveries = [
        Delivered(r.site, r.position + 100, r.msg_id, r.groups, r.source, r.number) for r in run.deliveries
    ]

    assert judged(run, tmp_path).ok


def test_a_circle_of_causes_has_an_example(tmp_path: Path) -> None:
    sends = [sent("p:1", "a", after=2), sent("q:1", "a", after=1)]
    run = run_of({"a": "pq"}, sends, {"p": "p:1 q:1", "q": "p:1 q:1"}, "causal", context=True)
    verdict = judged(run, tmp_path)

    assert broken(verdict) == {"causal"}
    assert verdict.properties["causal"].example is not None
    assert verdict.properties["causal"].says.startswith("messages cause each other in a circle: p delivers")


def test_causal_rows_are_found_whatever_ids_look_like(tmp_path: Path) -> None:
    """Ids with spaces and commas; the rows of the example are those of the sentence."""
    one, other = Sent("a before, b", frozenset("a"), "p", 1), Sent("p", frozenset("a"), "p", 2)
    rows = [
        Delivered(site, place, name.msg_id, name.groups, "p", name.number)
        for site in "pq"
        for place, name in enumerate([other, one] if site == "q" else [one, other])
    ]
    run = Run({"a": {"p", "q"}}, [one, other], rows, "causal", stamped=False, has_prev=False, has_epoch=False)
    example = judged(run, tmp_path).properties["causal"].example

    assert example is not None
    assert [(row["site"], row["msg_id"]) for row in example.as_json()["deliveries"]] == [
        ("q", "p"),
        ("q", "a before, b"),
    ]


def test_under_traffic_a_send_may_come_later(tmp_path: Path) -> None:
    """Sites write at different times: what q delivers of p is not in p's sends yet. What p is past is a ghost."""
    sends = [sent("p:1", "a"), sent("p:2", "a")]
    run = run_of({"a": "pq"}, [*sends, sent("p:3", "a")], {"p": "p:1", "q": "p:1 p:2 p:3"}, running=True)
    run.sends = sends
    assert judged(run, tmp_path / "clean").ok

    run.deliveries[0] = Delivered("p", 0, "p:0", frozenset("a"), "p", 0)
    assert broken(judged(run, tmp_path / "ghost")) == {"creation"}


def test_what_was_sent_to_another_group_is_not_called_unsent(tmp_path: Path) -> None:
    """Even when the site that delivers it is in none of the groups it was sent to."""
    run = run_of({"a": "p", "b": "q"}, [sent("x:1", "a")], {"p": "x:1", "q": "x:1"})
    run.deliveries[1] = Delivered("q", 0, "x:1", frozenset("b"), "x", 1)
    finding = judged(run, tmp_path).properties["creation"]

    assert finding.example is not None
    assert "q delivers x:1 to b as number 1 of x, but it was sent to a as number 1 of x" == finding.says


def test_a_message_has_one_epoch(tmp_path: Path) -> None:
    run = run_of({"a": "pq"}, [sent("x:1", "a")], {"p": "x:1", "q": "x:1"}, has_epoch=True)
    run.deliveries[1] = Delivered("q", 0, "x:1", frozenset("a"), "x", 1, epoch=2)
    finding = judged(run, tmp_path).properties["epochs"]

    assert finding.example is not None
    assert finding.says == "x:1 is of epoch 0 at p and of epoch 2 at q"


@pytest.mark.slow
@pytest.mark.parametrize("kept", [0, 3])
def test_ids_with_one_hash_are_told_apart(kept: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All hashes are one, or one of four: nothing is concluded from them that names do not confirm."""
    for loops in (plain, kernels):
        real = loops.hash_bytes
        monkeypatch.setattr(loops, "hash_bytes", lambda *given, real=real: real(*given) & kept)
    sends = [sent(f"x:{number}", "a") for number in range(1, 30)]
    clean = " ".join(one.msg_id for one in sends)
    assert judged(run_of({"a": "pq"}, sends, {"p": clean, "q": clean}), tmp_path / "clean").ok
    for one, other in list(combinations(range(3), 2)):
        turned = clean.split()
        turned[one], turned[other] = turned[other], turned[one]
        run = run_of({"a": "pq"}, sends, {"p": clean, "q": " ".join(turned)})
        assert broken(judged(run, tmp_path / f"{one}{other}")) == {"fifo", "total", "acyclic"}


@pytest.mark.slow
def test_very_many_ids_with_one_hash_do_not_stall(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for loops in (plain, kernels):
        real = loops.hash_bytes
        monkeypatch.setattr(loops, "hash_bytes", lambda *given, real=real: real(*given) & 0)
    many = 165_000
    number = pa.array(range(many), pa.int64())
    same = {name: pa.array([value] * many) for name, value in (("site", "p"), ("group", "a"), ("source", "x"))}
    ids = pa.array([f"x:{one}" for one in range(many)])
    tables_of = {
        "membership": {"site": ["p"], "group": ["a"]},
        "sends": {"msg_id": ids, "group": same["group"], "source": same["source"], "source_seq": number},
        "deliveries": {"msg_id": ids, "position": number, **same, "source_seq": number},
    }
    for name, columns in tables_of.items():
        (tmp_path / name).mkdir()
        pq.write_table(pa.table(columns), tmp_path / name / "all.parquet")

    assert audit(LocalSource(str(tmp_path)), "acyclic").ok


def ring(many: int) -> Run:
    """Make every site deliver its message before the next one's: no two sites disagree, and there is one cycle."""
    names = [f"c{number:04d}:1" for number in range(many)]
    members = {f"g{number:04d}": [f"s{number:04d}", f"s{(number + 1) % many:04d}"] for number in range(many)}
    sends = [sent(name, group) for name, group in zip(names, members, strict=True)]
    logs = {f"s{number:04d}": f"{names[number - 1]} {names[number]}" for number in range(many)}
    return run_of(members, sends, logs)  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_ring_of_very_many_is_shown_whole(tmp_path: Path) -> None:
    write(ring(2_000), tmp_path, seed=0)
    verdict = audit(LocalSource(str(tmp_path)), "acyclic")
    example = verdict.properties["acyclic"].example

    assert verdict.properties["total"].ok
    assert example is not None
    steps = example.facts["steps"]
    assert len(steps) == 2_000
    assert all(a["then"] == b["first"] for a, b in zip(steps, [*steps[1:], steps[0]], strict=True))
    assert example.says.startswith("a ring of 2,000 messages, each before the next and the last before the first")


@pytest.mark.slow
def test_two_of_very_many_sites_on_cycles_disagree(tmp_path: Path) -> None:
    """A ring of 300, and among its last sites two that disagree: total is broken, and two steps show it."""
    run = ring(300)
    extra = [sent("y:1", "z"), sent("y2:1", "z")]
    run.members["z"] = {"s0298", "s0299"}
    run.sends += extra
    for site, names in (("s0298", extra), ("s0299", extra[::-1])):
        for place, one in enumerate(names):
            run.deliveries.append(Delivered(site, 2 + place, one.msg_id, one.groups, one.source, one.number))
    write(run, tmp_path, seed=0)
    verdict = audit(LocalSource(str(tmp_path)), "acyclic")

    assert broken(verdict) == {"total", "acyclic"}
    for name in ("total", "acyclic"):
        example = verdict.properties[name].example
        assert example is not None
        assert [(s["site"], s["first"], s["then"]) for s in example.facts["steps"]] == [
            ("s0298", "y:1", "y2:1"),
            ("s0299", "y2:1", "y:1"),
        ]
    assert verdict.properties["total"].violations == 1


def test_total_is_left_open_when_sites_are_too_many_to_compare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "COMPARE_AT_MOST", 3)
    write(ring(5), tmp_path, seed=0)
    verdict = audit(LocalSource(str(tmp_path)), "total")

    assert verdict.properties["total"].ok is None
    assert verdict.open() == ["total"]
    assert not verdict.ok


def test_the_shortest_cycle_is_shown(tmp_path: Path) -> None:
    """A cycle of four goes through the first message; the example is the one of three elsewhere."""
    logs = {
        "p": "a:1 b:1",
        "q": "b:1 c:1",
        "r": "c:1 d:1",
        "s": "d:1 a:1",
        "t": "x:1 y:1",
        "u": "y:1 z:1",
        "v": "z:1 x:1",
    }
    names = sorted({name for log in logs.values() for name in log.split()})
    members = {name[0].upper(): [s for s, log in logs.items() if name in log] for name in names}
    run = run_of(members, [sent(name, name[0].upper()) for name in names], logs)  # type: ignore[arg-type]
    example = judged(run, tmp_path).properties["acyclic"].example

    assert example is not None
    assert len(example.facts["steps"]) == 3


def test_past_what_can_be_looked_at_nothing_is_called_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Three sites lost a message, rows for one may be looked at: what is known is told, and the exit is 1."""
    monkeypatch.setattr(look, "LOOK_AT_MOST", 2)
    sends = [sent("x:1", "a"), sent("x:2", "a"), sent("x:3", "a")]
    run = run_of({"a": "pqr"}, sends, {"p": "x:1 x:2", "q": "x:1 x:3", "r": "x:2 x:3"}, running=False)
    write(run, tmp_path, seed=0)
    verdict = audit(LocalSource(str(tmp_path)), "fifo")

    assert broken(verdict) == {"completeness"}
    assert verdict.properties["creation"].ok is verdict.properties["fifo"].ok is None
    assert verdict.notes[0] == "looked at 1 of 3 suspicious sites: there may be more violations"
    assert "of the others 2 deliver other messages than were sent to them: q, r" in verdict.notes
    run = run_of({"a": "pqr"}, sends, {"p": "x:1 x:2", "q": "x:1 x:3", "r": "x:2 x:3"}, running=True)
    write(run, tmp_path, seed=0)
    assert command(["audit", str(tmp_path), "--local", "--running", "--level", "fifo"]) == 1
    assert "was not judged completely" in " ".join(capsys.readouterr().out.split())


def test_when_even_one_suspect_is_too_many_nothing_is_called_fine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rows are few, but what was sent to it is too many; or its rows are."""
    sends = [sent("x:1", "a"), sent("x:2", "a"), sent("x:3", "a")]
    write(run_of({"a": "pq"}, sends, {"p": "x:1", "q": "x:1 x:2 x:3"}, running=False), tmp_path, seed=0)
    for bound in (0, 2):
        monkeypatch.setattr(look, "ONE_AT_MOST", bound)
        verdict = audit(LocalSource(str(tmp_path)), "fifo")

        assert not verdict.ok
        assert {"creation", "duplicate", "completeness", "fifo"} <= set(verdict.open())
        assert verdict.notes[-2:] == [
            "looked at 0 of 1 suspicious sites: there may be more violations",
            "of the others 1 deliver other messages than were sent to them: p",
        ]
    monkeypatch.setattr(look, "ONE_AT_MOST", 3)

    assert broken(audit(LocalSource(str(tmp_path)), "fifo")) == {"completeness"}


class Counting(LocalSource):
    """Remembers the rows that were asked for."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.read: list[Any] = []

    def logs(self, sites: Iterable[str] | None, keep: Rows = untouched) -> Any:
        """Return these rows, and remember them."""
        self.read.append(super().logs(sites, keep))
        return self.read[-1]


def test_a_suspect_is_compared_with_one_row_of_each_message(tmp_path: Path) -> None:
    """Three clean sites deliver what p lost a message of, one of them much more: only the former is read, once."""
    sends = [*(sent(f"a:{n}", "a") for n in (1, 2, 3)), *(sent(f"b:{n}", "b") for n in range(1, 9))]
    many = "a:1 a:2 a:3 " + " ".join(f"b:{n}" for n in range(1, 9))
    logs = {"p": "a:1 b:4 a:3", "q": many, "r": "a:1 a:2 a:3", "s": "a:1 a:2 a:3"}
    write(run_of({"a": "pqrs", "b": "q"}, sends, logs, running=False, has_epoch=True), tmp_path, seed=0)
    source = Counting(str(tmp_path))
    verdict = audit(source, "fifo")
    own, beside = (table.column("msg_id").to_pylist() for table in source.read[:2])

    assert broken(verdict) == {"creation", "completeness"}
    assert sorted(own) == ["a:1", "a:3", "b:4"]
    assert sorted(beside) == ["a:1", "a:2", "a:3", "b:4"]


def test_a_null_previous_stamp_is_judged_alike_in_one_piece_and_in_two() -> None:
    rows = {
        "site": ["p"] * 4, "position": [0, 1, 2, 3], "msg_id": list("wxyz"), "group": ["a"] * 4, "source": ["c"] * 4,
        "source_seq": [1, 2, 3, 4], "epoch": [0] * 4, "order_class": ["a"] * 4,
        "stamp": [b"1", b"2", b"3", b"4"], "prev_stamp": [None, b"1", None, b"3"],
    }  # fmt: skip
    every = {**schema.DELIVERIES, **schema.DELIVERIES_OPTIONAL}
    columns = {name: every[name] for name in rows}
    table = reader.tidy(pa.table(rows), columns)
    key = kernels.fresh_key()
    pieces = [fold_deliveries(reader.tidy(table.slice(at, 2), columns), key) for at in (0, 2)]

    assert merge(fold_deliveries(table, key)).stamps == merge(pa.concat_tables(pieces)).stamps == {"p"}


def test_loops_are_chosen_by_the_whole_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every piece is small; all of them together are worth the compiler."""
    pytest.importorskip("numba")
    write(ring(10), tmp_path, seed=3)
    monkeypatch.setattr(arrow, "PLAIN_ROWS", 10)
    monkeypatch.delitem(sys.modules, "numba")
    assert arrow.plainly(5)
    LocalSource(str(tmp_path))

    assert not arrow.plainly(5)


def test_an_example_is_facts_beside_the_sentence(tmp_path: Path) -> None:
    run = run_of({"a": "pq"}, [sent("x:1", "a"), sent("y:1", "a")], {"p": "x:1 y:1", "q": "y:1 x:1"})
    example = judged(run, tmp_path).as_json()["properties"]["total"]["example"]

    assert example["steps"] == [
        {"site": "p", "first": "x:1", "then": "y:1"},
        {"site": "q", "first": "y:1", "then": "x:1"},
    ]
    assert Naive(run).is_real("total", example)
