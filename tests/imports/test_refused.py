"""What cannot be imported is said in one line that names the file and the line, and nothing is written."""

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from ordercast.cli.main import run
from ordercast.imports import lines
from tests.imports.support import json_lines, rows, write

MAPPING = """
sends = "from deliveries"
format = "jsonl"
[deliveries]
files = "log"
site = "site"
msg_id = "id"
group = "group"
source = "source"
source_seq = "n"
"""
GOOD = {"site": "p", "id": "m1", "group": "a", "source": "x", "n": 1}
POSITION = MAPPING + 'position = "at"\n'
CHECKED = MAPPING + 'delivered_at = "time"\nstamp = "stamp"\nbody = { field = "body", encoding = "base64" }\n'
CONSOLE = MAPPING.replace('"jsonl"', '"kafka"\nprinted = ["timestamp", "partition", "headers", "value"]')
NATS, REDIS = MAPPING.replace("jsonl", "nats"), MAPPING.replace("jsonl", "redis")


def second(mapping: str, **fields: Any) -> tuple[str, bytes]:
    """Return a mapping and a log whose second line is wrong."""
    full = {**GOOD, "at": 0, "time": 1.0, "stamp": "00ff", "body": ""}
    row = {name: value for name, value in {**full, **fields}.items() if value is not ...}
    return mapping, json_lines([full, row]).encode()


ROWS: dict[str, tuple[tuple[str, bytes], str]] = {
    "no field": (second(MAPPING, source=...), "log: line 2: source: no field 'source' (there are site, id, group, n"),
    "empty": (second(MAPPING, id=""), "line 2: msg_id: empty"),
    "null": (second(MAPPING, site=None), "line 2: site: null is neither a text nor a whole number"),
    "a list": (second(MAPPING, site=["p"]), "line 2: site: ['p'] is neither a text nor a whole number"),
    "no number": (second(MAPPING, n="one"), "line 2: source_seq: 'one' is not a whole number"),
    "true": (second(MAPPING, n=True), "line 2: source_seq: True is not a whole number"),
    "a fraction": (second(MAPPING, n=1.5), "line 2: source_seq: 1.5 is not a whole number"),
    "large": (second(MAPPING, n=2**63), "line 2: source_seq: 9223372036854775808 takes more than 64 bits"),
    "no group": (second(MAPPING, group=[]), "line 2: group: no group"),
    "plus": (second(MAPPING, group=["a+b"]), "line 2: group: ['a+b']: a group's name must not have a '+'"),
    "negative": (second(POSITION, at=-1), "line 2: position: -1 is negative"),
    "time": (second(CHECKED, time="soon"), "line 2: delivered_at: 'soon' is not a number"),
    "endless": (second(CHECKED, time="inf"), "line 2: delivered_at: 'inf' is not a number"),
    "stamp": (second(CHECKED, stamp="xyz"), "line 2: stamp: 'xyz' is not hex"),
    "body": (second(CHECKED, body="%"), "line 2: body: '%' is not base64"),
    "not an object": ((MAPPING, b"\n\n[1]\n"), "log: line 3: not a JSON object"),
    "not JSON": ((MAPPING, b'{"site": p}\n'), "log: line 1: not JSON: JSON is malformed"),
    "cut": ((MAPPING, json.dumps(GOOD).encode()[:-1]), "log: line 1: not JSON: Input data was truncated"),
    "not UTF-8": ((MAPPING, b'{"site": "\xff"}\n'), "log: line 1: not JSON: "),
    "surrogate": ((MAPPING, b'{"site": "\\ud800"}\n'), "log: line 1: not JSON: "),
    "deep": ((MAPPING, b"[" * 100_000 + b"\n"), "log: line 1: not JSON: "),
    "nothing": ((MAPPING, b"\n"), "log: no row for deliveries/"),
    "gzip": ((MAPPING, gzip.compress(json_lines([GOOD] * 9).encode())[:-9]), "log: after line 0: gzip is damaged"),
    "gzip bytes": ((MAPPING, b"\x1f\x8b\x08rest"), "gzip is damaged"),
    "parts": ((CONSOLE, b"CreateTime:1\tPartition:0\tNO_HEADERS\n"), "line 1: 3 parts between tabs, not 4"),
    "label": ((CONSOLE, b"CreateTime:1\t0\tNO_HEADERS\tx\n"), "line 1: partition is '0', which does not begin with"),
    "header": ((CONSOLE, b"CreateTime:1\tPartition:0\tn\tx\n"), "line 1: headers are 'n', not like name:value"),
    "when": ((CONSOLE, b"soon\tPartition:0\tNO_HEADERS\tx\n"), "line 1: timestamp is 'soon', not like CreateTime:"),
    "bytes": ((CONSOLE, b"\xff\n"), "line 1: not UTF-8 text (byte 0)"),
    "for people": ((NATS, b'[#1] Received on "a"\nhello\n'), "line 1: this is what `nats sub` shows to people"),
    "data": ((NATS, b'{"Subject": "a", "Data": "?"}\n'), "line 1: Data is not base64"),
    "reply": ((NATS, b'{"subject": "a", "reply": "$JS.ACK.x"}\n'), "line 1: reply '$JS.ACK.x' is not one of JetStream"),
    "pairs": ((REDIS, b'[["1-0", ["f"]]]\n'), "line 1: not a list of names and values in turn"),
    "entry": ((REDIS, b'[["1-0", null]]\n'), "line 1: entry '1-0' has no fields"),
    "id": ((REDIS, b'{"g": [["x", ["f", "v"]]]}\n'), "line 1: 'x' is not the id of an entry"),
    "word": ((REDIS, b'["greeting", "a", "b"]\n'), "line 1: 'greeting' is not what a subscriber gets"),
    "number": ((REDIS, b"7\n"), "line 1: neither an answer of XRANGE, XREAD or SUBSCRIBE nor an object"),
    "error": ((REDIS, b'error:"NOGROUP No such key"\n'), "line 1: not JSON"),
    "second entry": (
        (REDIS.replace('"site"', '"fields.site"').replace('"id"\n', '"id"\ndelivered_at = "number"\n'),
         b'{"g": [["1-0", ["site", "p"]], ["2-0", ["f", "v"]]]}\n'),
        "line 1: group: no field 'group'",
    ),
}  # fmt: skip


def refused(folder: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """Import what is in a folder; returns the one line that says why not."""
    before = sorted(folder.rglob("*"))
    said = None
    for out in ("run", "new/place/run"):
        code = run(["import", str(folder / "mapping.toml"), "--out", str(folder / out), *options])
        said = said or capsys.readouterr()
        assert (2, "") == (code, said.out)

    assert said is not None and 1 == len(said.err.strip().splitlines())
    assert before == sorted(folder.rglob("*"))
    return said.err


@pytest.mark.parametrize("name", ROWS)
def test_a_row_that_cannot_be_used(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (mapping, log), message = ROWS[name]
    write(tmp_path, mapping, {"log": log})

    assert message in refused(tmp_path, capsys)


def test_a_row_of_an_answer_is_named_by_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mapping = """
sends = "from deliveries"
format = "redis"
[deliveries]
files = "log"
site = { value = "p" }
msg_id = "fields.id"
group = "stream"
source = { value = "x" }
source_seq = "number"
"""
    answer = {"a": [["1-0", ["id", "m"]], ["2-0", ["id", "n"]], ["3-0", ["ID", "o"]]]}
    write(tmp_path, mapping, {"log": json_lines([answer])})

    assert "log: line 1, entry 3: msg_id: no field 'fields.id'" in refused(tmp_path, capsys)


MAPPINGS = {
    "no format": (MAPPING.replace('format = "jsonl"', ""), "[deliveries] format is one of jsonl, kafka, nats, redis"),
    "other format": (MAPPING.replace("jsonl", "csv"), "format is one of jsonl, kafka, nats, redis, not 'csv'"),
    "no sends": (
        MAPPING.replace("sends =", "#"),
        "no sends: give a table [sends], or, when nobody recorded them, sends",
    ),
    "sends": (MAPPING.replace("from deliveries", "guess"), 'sends = "guess": give a table [sends]'),
    "key": (MAPPING.replace("sends =", "send = 1\nsends ="), "unknown key 'send' (there are format, printed,"),
    "column": (MAPPING + 'sight = "s"\n', "[deliveries]: unknown key 'sight' (there are body, body_hash,"),
    "missing": (MAPPING.replace('source = "source"', ""), "[deliveries] does not say what source is"),
    "files": (MAPPING.replace('files = "log"', 'files = ["log", "more/*"]'), "nothing is called 'more/*' in "),
    "no files": (MAPPING.replace('files = "log"', ""), "[deliveries] does not say which files"),
    "match": (MAPPING.replace('"site"', '{ field = "site", match = "(" }'), "site: match is not a regular expression"),
    "groups": (MAPPING.replace('"site"', '{ field = "site", match = "x" }'), "site: match 'x' needs one group"),
    "two": (MAPPING.replace('"site"', '{ field = "site", value = "x" }'), "site: give one of field, fields and value"),
    "spec": (MAPPING.replace('"site"', '{ feild = "site" }'), "site: unknown key 'feild' (there are field, fields,"),
    "constant": (MAPPING.replace('"n"', '{ value = "x" }'), "source_seq: 'x' is not a whole number"),
    "at": (MAPPING.replace('"site"', '"@host"'), "site: field '@host': with '@' there are @file and @line"),
    "encoding": (MAPPING.replace('"site"', '{ field = "s", encoding = "hex" }'), "encoding is for bodies and stamps"),
    "bodies": (MAPPING + 'body = "b"\nbody_hash = "h"\n', "[deliveries]: give body or body_hash, not both"),
    "printed": (MAPPING.replace("format", "printed = []\nformat"), "printed is for format kafka"),
    "order": (CONSOLE.replace('"timestamp", "partition"', '"partition", "timestamp"'), "printed is for format kafka"),
    "data": (MAPPING.replace("format", 'data = "text"\nformat'), "data is for format nats"),
    "when": (MAPPING + "when = 1\n", "[deliveries] when is a table"),
    "when what": (MAPPING + "when = { kind = [] }\n", "when: 'kind' is a text, a whole number, or a list of them"),
    "both": (MAPPING.replace("format", 'membership = "m.csv"\nformat'), "say who is in which group"),
}


@pytest.mark.parametrize("name", MAPPINGS)
def test_a_mapping_that_cannot_be_used(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mapping, message = MAPPINGS[name]
    write(tmp_path, mapping, {"log": json_lines([GOOD])})
    said = refused(tmp_path, capsys)

    assert message in said and "mapping.toml: " in said


def test_what_is_there_already_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder with something in it, a file, and a place that cannot be written; an empty folder is taken."""
    write(tmp_path, MAPPING, {"log": json_lines([GOOD]), "run/notes": "mine"})
    assert 2 == run(["import", str(tmp_path / "mapping.toml"), "--out", str(tmp_path / "run")])
    assert "run: there is something already" in capsys.readouterr().err
    assert "mine" == (tmp_path / "run" / "notes").read_text()
    (tmp_path / "run" / "notes").unlink()
    assert 0 == run(["import", str(tmp_path / "mapping.toml"), "--out", str(tmp_path / "run")])
    assert 1 == len(rows(tmp_path, "deliveries"))
    capsys.readouterr()
    assert 2 == run(["import", str(tmp_path / "mapping.toml"), "--out", str(tmp_path / "log" / "run")])
    assert "log" in capsys.readouterr().err


def test_a_line_has_a_limit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "LINE_BYTES_AT_MOST", 2**20)
    write(tmp_path, MAPPING, {"log": json_lines([GOOD]) + "x" * 2**22})

    assert "log: line 2: more than 1 MiB" in refused(tmp_path, capsys)


def test_a_row_of_bytes_is_no_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Data of NATS may be any bytes: a body, but no name of anything."""
    row = {"Subject": "a", "Data": base64.b64encode(b"\xff").decode()}
    mapping = NATS.replace('"site"', '"data"')
    write(tmp_path, mapping, {"log": json_lines([row])})

    assert "line 1: site: not UTF-8 text" in refused(tmp_path, capsys)
