"""Every format, from lines as its own tools print them."""

import base64
import gzip
import json
from pathlib import Path

import pytest

from ordercast.imports.run import import_logs
from ordercast.runs.writer import body_hash
from tests.imports.support import imported, json_lines, rows, write

JSONL = """
format = "jsonl"
[message]
msg_id = "id"
group = "topic"
source = "from.name"
source_seq = "from.n"
[deliveries]
files = "got/*"
site = { field = "@file", match = '([^/]+)\\.jsonl' }
body = "body"
[sends]
files = "sent.jsonl"
"""
SENT = [{"id": f"x{n}", "topic": "a", "from": {"name": "x", "n": n}} for n in (1, 2)]


def test_json_lines(tmp_path: Path) -> None:
    """Positions are the order of lines, file after file; a body is a text or any JSON; gzip is known by itself."""
    got = [{**row, "body": body} for row, body in zip(SENT, ["hello", {"z": 1, "a": None}], strict=True)]
    files: dict[str, str | bytes] = {
        "got/p.jsonl": json_lines(got), "got/q.jsonl": gzip.compress(json_lines(got[::-1]).encode()),
        "sent.jsonl": json_lines(SENT),
    }  # fmt: skip
    found = imported(tmp_path, JSONL, files)

    assert (4, 2, {"p": 2, "q": 2}) == (found.deliveries, found.sends, found.logs)
    assert ["1 members of a group delivered nothing: r"] == found.notes
    first, second = body_hash(b"hello"), body_hash(b'{"a":null,"z":1}')
    same = {"group": "a", "source": "x"}
    assert rows(tmp_path, "deliveries") == [
        {"site": "p", "position": 0, "msg_id": "x1", "source_seq": 1, "body_hash": first, **same},
        {"site": "p", "position": 1, "msg_id": "x2", "source_seq": 2, "body_hash": second, **same},
        {"site": "q", "position": 0, "msg_id": "x2", "source_seq": 2, "body_hash": second, **same},
        {"site": "q", "position": 1, "msg_id": "x1", "source_seq": 1, "body_hash": first, **same},
    ]
    assert rows(tmp_path, "sends") == [
        {"msg_id": "x1", "source_seq": 1, **same}, {"msg_id": "x2", "source_seq": 2, **same}
    ]  # fmt: skip


def test_files_of_one_site_follow_each_other_by_number(tmp_path: Path) -> None:
    one = dict(SENT[0])
    parts = {f"got/{n}/p.jsonl": json_lines([{**one, "id": f"m{n}", "body": ""}]) for n in (10, 9, 1)}
    imported(tmp_path, JSONL.replace("got/*", "got/**/*.jsonl"), {**parts, "sent.jsonl": json_lines(SENT)})

    assert ["m1", "m9", "m10"] == [row["msg_id"] for row in rows(tmp_path, "deliveries")]
    assert [0, 1, 2] == [row["position"] for row in rows(tmp_path, "deliveries")]


def test_one_log_with_sends_and_deliveries_in_it(tmp_path: Path) -> None:
    """Rows that are not for a table are counted; `a+b`, `b+a` and a list are one destination; texts may be numbers."""
    mapping = """
format = "jsonl"
[message]
msg_id = { fields = ["src", "n"], with = "#" }
group = "to"
source = "src"
source_seq = "n"
[deliveries]
files = "all.jsonl"
when = { kind = "deliver", level = ["info", "debug"] }
site = "host"
position = "at"
[sends]
files = "all.jsonl"
when = { kind = "send" }
sent_at = "time"
"""
    log = [
        {"kind": "send", "src": 7, "n": "1", "to": ["b", "a"], "time": 1.5},
        {"kind": "deliver", "level": "info", "host": "q", "at": "5", "src": 7, "n": 1, "to": "a+b"},
        {"kind": "deliver", "level": "debug", "host": "q", "at": 6, "src": 7, "n": 1, "to": "b+a"},
        {"kind": "deliver", "level": "trace"},
        {"kind": "heartbeat"},
    ]
    found = imported(tmp_path, mapping, {"all.jsonl": json_lines(log)})

    assert {"deliveries": 3, "sends": 4} == found.passed_over
    sent = {"msg_id": "7#1", "group": "a+b", "source": "7", "source_seq": 1, "sent_at": 1.5}
    assert [sent] == rows(tmp_path, "sends")
    told = [(row["position"], row["group"], row["msg_id"]) for row in rows(tmp_path, "deliveries")]
    assert [(5, "a+b", "7#1"), (6, "a+b", "7#1")] == told


KAFKA = """
sends = "from deliveries"
format = "kafka"
[message]
msg_id = { fields = ["topic", "partition", "offset"] }
group = { field = "key", match = '^([a-z])-' }
source = "headers.producer"
source_seq = "headers.n"
[deliveries]
files = "*.log"
site = { field = "@file", match = '(.)\\.log$' }
body = "payload"
"""


@pytest.mark.parametrize("as_map", [False, True])
def test_kcat(tmp_path: Path, as_map: bool) -> None:
    headers = {"producer": ["p0", "p1"], "n": ["7"]} if as_map else ["producer", "p0", "producer", "p1", "n", "7"]
    record = {
        "topic": "orders", "partition": 3, "offset": 12, "tstype": "create", "ts": 1692629576966, "broker": 1,
        "headers": headers, "key": "a-17", "payload": '{"x":1}',
    }  # fmt: skip
    found = imported(tmp_path, KAFKA, {"p.log": json_lines([record])})

    assert 1 == found.sends
    (row,) = rows(tmp_path, "deliveries")
    assert ("p", "orders:3:12", "a", "p1", 7) == tuple(
        row[name] for name in ("site", "msg_id", "group", "source", "source_seq")
    )
    assert body_hash(b'{"x":1}') == row["body_hash"]


def test_the_console_consumer(tmp_path: Path) -> None:
    """A value may have tabs in it; a topic is not printed, so the mapping says it."""
    printed = 'printed = ["timestamp", "partition", "offset", "headers", "key", "value"]'
    mapping = KAFKA.replace('format = "kafka"', f'format = "kafka"\n{printed}').replace('"payload"', '"value"')
    mapping = mapping.replace('["topic", "partition"', '["partition"')
    line = "CreateTime:1692629576966\tPartition:0\tOffset:5\tproducer:p1,n:8\ta-1\tone\ttwo\n"
    imported(tmp_path, mapping, {"q.log": line})

    (row,) = rows(tmp_path, "deliveries")
    assert ("0:5", "a", "p1", 8, body_hash(b"one\ttwo")) == tuple(
        row[name] for name in ("msg_id", "group", "source", "source_seq", "body_hash")
    )


NATS = """
sends = "from deliveries"
format = "nats"
[deliveries]
files = "p.*"
site = { value = "p" }
msg_id = "headers.Nats-Msg-Id"
group = { field = "subject", match = '^w\\.(.+)$' }
source = { value = "log" }
source_seq = "seq"
body = "data"
"""
ACK = "$JS.ACK.ORDERS.reader.1.41.7.1692629576966000000.0"
ACK_2 = "$JS.ACK._.hash.ORDERS.reader.1.41.7.1692629576966000000.0.x9"
WIRE = "NATS/1.0\r\nNats-Msg-Id: m1\r\n\r\n"


def coded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("", {"Subject": "w.a", "Reply": ACK, "Header": {"Nats-Msg-Id": ["m1"]}, "Data": coded("hello"), "Sub": None}),
        ("", {"Subject": "w.a", "Reply": ACK_2, "Header": {"Nats-Msg-Id": ["m1"]}, "Data": coded("hello")}),
        ("", {"subject": "w.a", "seq": 41, "headers": {"Nats-Msg-Id": "m1"}, "data": "hello"}),
        ('data = "base64"\n', {"subject": "w.a", "seq": 41, "hdrs": coded(WIRE), "data": coded("hello")}),
    ],
)
def test_nats(tmp_path: Path, how: str, message: dict[str, object]) -> None:
    """`nats sub --dump -` (a zero byte after each message), JSON lines of a receiver, and `nats stream get --json`."""
    text = json.dumps(message)
    imported(tmp_path, how + NATS, {"p.dump": f"{text}\0{text}\0"})

    first, second = rows(tmp_path, "deliveries")
    assert (0, 1) == (first["position"], second["position"])
    assert ("m1", "a", 41, body_hash(b"hello")) == tuple(
        first[name] for name in ("msg_id", "group", "source_seq", "body_hash")
    )
    assert 1 == len(rows(tmp_path, "sends"))


REDIS = """
sends = "from deliveries"
format = "redis"
[deliveries]
files = "*.log"
site = { value = "q" }
msg_id = { fields = ["stream", "id"], with = "/" }
group = "stream"
source = "stream"
source_seq = "number"
body = "fields.body"
"""
G0 = [["1795032552036-0", ["body", "x"]], ["1795032552036-1", ["body", "y"]]]
G1 = [["1795032552054-0", ["body", 'b"é']]]


@pytest.mark.parametrize(
    "answer",
    [{"a": G0, "b": G1}, [["a", G0], ["b", G1]]],
    ids=["as RESP 3 has it", "as RESP 2 has it"],
)
def test_redis_streams(tmp_path: Path, answer: object) -> None:
    """An answer of XREAD is one line with many rows; nothing came in time is null."""
    imported(tmp_path, REDIS, {"q.log": json_lines([None, answer])})

    told = [(row["position"], row["msg_id"], row["group"]) for row in rows(tmp_path, "deliveries")]
    ids = ["a/1795032552036-0", "a/1795032552036-1", "b/1795032552054-0"]
    assert list(zip(range(3), ids, "aab", strict=True)) == told
    numbers = [row["source_seq"] for row in rows(tmp_path, "deliveries")]
    assert [1795032552036 << 20, (1795032552036 << 20) + 1, 1795032552054 << 20] == numbers


def test_redis_ranges_and_rows_of_a_reader(tmp_path: Path) -> None:
    """XRANGE does not say which stream it is; a reader's own lines do."""
    mapping = REDIS.replace('group = "stream"', """group = { field = "@file", match = '(.)\\.log' }""")
    mapping = mapping.replace('["stream", "id"]', '["id"]').replace('source = "stream"', 'source = "@file"')
    imported(
        tmp_path, mapping, {"a.log": json_lines([G0]), "b.log": json_lines([{"id": G1[0][0], "fields": G1[0][1]}])}
    )

    assert ["a", "a", "b"] == [row["group"] for row in rows(tmp_path, "deliveries")]
    assert body_hash('b"é'.encode()) == rows(tmp_path, "deliveries")[2]["body_hash"]


def test_redis_channels(tmp_path: Path) -> None:
    """What redis-cli says beside messages is passed over; a path goes on into a text that is JSON."""
    mapping = """
sends = "from deliveries"
format = "redis"
[deliveries]
files = "q.log"
site = { value = "q" }
msg_id = { fields = ["data.by", "data.n"] }
group = "channel"
source = "data.by"
source_seq = "data.n"
body = "data.text"
"""
    message = json.dumps({"by": "x", "n": 3, "text": "hi"})
    lines = [["subscribe", "a", 1], ["message", "a", message], ["pmessage", "*", "b", message]]
    own = {"channel": "b", "data": message}
    text = "Reading messages... (press Ctrl-C to quit)\n" + json_lines([*lines, own])
    imported(tmp_path, mapping, {"q.log": text})

    told = [(row["msg_id"], row["group"], row["source_seq"]) for row in rows(tmp_path, "deliveries")]
    assert [("x:3", "a", 3), ("x:3", "b", 3), ("x:3", "b", 3)] == told


def test_members_from_a_file_of_their_own(tmp_path: Path) -> None:
    """Seen from the mapping's folder; who is in no group is told before the audit."""
    row = {"id": "m", "topic": "c", "from": {"name": "x", "n": 1}, "body": ""}
    path = write(tmp_path, "", {"got/p.jsonl": json_lines([row]), "sent.jsonl": json_lines([row])})
    (tmp_path / "members.csv").write_text("site,group\nq,a\n")
    path.write_text('membership = "members.csv"' + JSONL)
    found = import_logs(path, tmp_path / "run")

    assert [{"site": "q", "group": "a"}] == rows(tmp_path, "membership")
    assert [
        "1 members of a group delivered nothing: q",
        "1 sites delivered something and are in no group: p",
        "1 groups have deliveries and are not in the membership: c",
    ] == found.notes
