"""`format("ordercast")` on a real cluster: sites killed, batches written again, offsets kept."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ordercast.client.sync import connect
from ordercast.client.values import Lot
from ordercast.spark import register
from ordercast.spark.session import Spark
from ordercast.spark.sink import POST_BYTES, POST_ROWS, posts
from ordercast.spark.streams import rows_of
from ordercast.wire import batch
from tests.support.processes import Processes

pytestmark = pytest.mark.slow
GROUPS = {"x": ["a", "b", "c"], "y": ["a", "b"], "z": ["c"]}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Processes]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    with Processes(folder, GROUPS, 'policy = "available"', "suspect_after = 1.0") as running:
        yield running


def send(cluster: Processes, site: str, first: int, many: int) -> None:
    """Send messages in batches, some to both groups."""
    with connect(cluster.clients[site]) as client:
        for number in range(first, first + many, 10):
            group = ("x", "y", ("x", "y"))[number // 10 % 3]
            client.multicast_many(group, [b"%d" % one for one in range(number, number + 10)], ack="safe")


def source(spark: Spark, addresses: str, **options: Any) -> Any:
    return spark.sql.readStream.format("ordercast").options(addresses=addresses, **options)


def run(frame: Any, folder: Path) -> list[int]:
    """Write what is there to files, from where the query was; return the rows of its batches."""
    writer = frame.writeStream.format("json").option("path", str(folder / "rows"))
    query = writer.option("checkpointLocation", str(folder / "offsets")).trigger(availableNow=True).start()
    query.awaitTermination()
    return [told["numInputRows"] for told in query.recentProgress if told["numInputRows"]]


def test_a_stream_goes_on_where_it_was_and_elsewhere_when_its_site_is_gone(
    tmp_path: Path, spark: Spark, cluster: Processes
) -> None:
    """Spark starts again, rates have a limit, a site is killed for good between two batches: nothing lost or twice."""
    register(spark.sql)
    a, b = cluster.clients["a"], cluster.clients["b"]
    send(cluster, "a", 0, 120)
    assert run(source(spark, f"{a},{b}", maxRowsPerBatch=50).load(), tmp_path) == [50, 50, 20]
    send(cluster, "b", 120, 30)
    assert run(source(spark, f"{a},{b}").load(), tmp_path) == [30]
    cluster.kill("a")
    send(cluster, "b", 150, 60)
    run(source(spark, f"{a},{b}").load(), tmp_path)
    rows = spark.sql.read.json(str(tmp_path / "rows")).collect()
    whole = spark.sql.read.format("ordercast").options(addresses=b).load()

    assert Counter(row["msg_id"] for row in rows) == Counter(row["msg_id"] for row in whole.collect())
    assert {row["site"] for row in rows} == {"a", "b"}
    assert [int(row["body"]) for row in whole.orderBy("position").collect()] == list(range(210))
    part = spark.sql.read.format("ordercast").options(addresses=b, begin=100, end=150).load()
    assert sorted(row["position"] for row in part.collect() if row["position"] < 150)[0] >= 100
    only = spark.sql.read.format("ordercast").options(addresses=b, groups="y").load()
    assert {row["group"] for row in only.collect()} == {"y", "x+y"}


def test_a_batch_that_is_written_again_is_delivered_once(tmp_path: Path, spark: Spark, cluster: Processes) -> None:
    """Spark writes its last batch again when it does not know that it was written; a table's rows go once, too."""
    register(spark.sql)
    inputs, offsets = tmp_path / "in", tmp_path / "offsets"
    inputs.mkdir()

    def write(rows: list[str]) -> None:
        (inputs / f"{len(list(inputs.iterdir()))}.txt").write_text("\n".join(rows))
        frame = spark.sql.readStream.text(str(inputs)).selectExpr("value as body", "'x' as `group`")
        query = frame.writeStream.format("ordercast").option("addresses", cluster.clients["a"])
        query.option("checkpointLocation", str(offsets)).trigger(availableNow=True).start().awaitTermination()

    write([f"{number}" for number in range(1200)])
    last = max((offsets / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    write(["more"])
    table = spark.sql.createDataFrame([(b"one", "x"), (b"two", "x+y")], "body binary, `group` string")
    table.write.format("ordercast").mode("append").options(addresses=cluster.clients["b"]).save()
    found = spark.sql.read.format("ordercast").options(addresses=cluster.clients["a"]).load().collect()

    expected = {f"{number}".encode(): 1 for number in range(1200)} | {b"more": 1, b"one": 1, b"two": 1}
    assert Counter(bytes(row["body"]) for row in found) == expected
    assert {bytes(row["body"]): row["group"] for row in found}[b"two"] == "x+y"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "option addresses: name sites"),
        ({"addresses": "nowhere"}, "'nowhere' is not host:port"),
        ({"addresses": "HERE", "begin": "-1"}, "option begin: a number of at least 0, not '-1'"),
        ({"addresses": "HERE", "end": "99"}, "option end: p has delivered 0 messages, not 99"),
        ({"addresses": "HERE", "groups": "b"}, "p is not in group 'b'; it is in a"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(
    tmp_path: Path, spark: Spark, options: dict[str, str], says: str
) -> None:
    register(spark.sql)
    with Processes(tmp_path, {"a": ["p"]}) as cluster:
        told = {name: value.replace("HERE", cluster.clients["p"]) for name, value in options.items()}
        with pytest.raises(Exception, match=says):
            spark.sql.read.format("ordercast").options(patience="1", **told).load().count()


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        (["durable = false"], "p is not durable: its positions are gone when it stops"),
        (['policy = "available"', 'delivery = "agreed"'], "what is delivered to a may be undone"),
    ],
)
def test_positions_that_may_change_are_not_read(tmp_path: Path, spark: Spark, lines: list[str], says: str) -> None:
    register(spark.sql)
    with Processes(tmp_path, {"a": ["p", "q"]}, *lines) as cluster, pytest.raises(Exception, match=says):
        spark.sql.read.format("ordercast").options(addresses=cluster.clients["p"], patience="1").load().count()


def test_where_a_post_ends_depends_on_the_rows_alone() -> None:
    """However rows come in batches: a post with other rows under the same number would be taken for the first one."""
    pairs = [("x" if number % 3 else "y+x", bytes(number % 400)) for number in range(5000)]
    made = list(posts(iter(pairs)))

    assert Counter(groups for groups, _ in made).keys() == {("x",), ("x", "y")}
    assert all(len(bodies) <= POST_ROWS and sum(map(len, bodies)) <= POST_BYTES for _, bodies in made)
    for groups, name in ((("x",), "x"), (("x", "y"), "y+x")):
        assert [b for g, bodies in made if g == groups for b in bodies] == [b for g, b in pairs if g == name]


def test_rows_are_what_lots_hold() -> None:
    lots = [
        Lot(7, ("x", "y"), "s", 3, b"\1", batch.pack(3, [b"a", b""])),
        Lot(9, ("x",), "t", 1, b"", batch.pack(1, [b"c"])),
    ]
    rows = rows_of([("p", lot) for lot in lots]).to_pylist()

    assert [(row["position"], row["msg_id"], row["group"], row["body"]) for row in rows] == [
        (7, "s:3", "x+y", b"a"), (8, "s:4", "x+y", b""), (9, "t:1", "x", b"c")
    ]  # fmt: skip
