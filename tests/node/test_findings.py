"""What a hostile hand found in the live half (issue 12, point 7), each in a small world of nodes."""

import pytest

from ordercast.client.values import Gap, Lot, Place, Restored, RolledBack, ViewChanged, said_in, said_lot
from ordercast.errors import HistoryError, LocalError
from ordercast.names import ClassId
from ordercast.node import inputs as io
from ordercast.node.readers import Reader, Readers
from ordercast.node.settings import Limits
from ordercast.sim.faults import run
from ordercast.wire import batch
from tests.support.node_campaign import case
from tests.support.small_worlds import SmallWorld


def test_a_lost_disk_is_noticed_and_refused_by_name() -> None:
    """Issue 12, a lost disk: two sites, safe sends, both stopped, one data folder deleted, both started."""
    world = SmallWorld("ab", x="ab")
    sent = [world.post("a", "x"), world.post("b", "x")]
    world.wait()
    assert all(name in world.answers for name in sent)
    before = world.log("a")
    for site in "ab":
        world[site].feed(io.Drain())
    world.wait()
    assert world["a"].stopped == world["b"].stopped == "drained"

    world["b"].disk.lose()
    world.world.ledger.disk_lost("b")
    for site in "ab":
        world[site].start()
    world.wait()
    refused = world.post("b", "x")
    world.post("a", "x")
    world.wait()

    assert str(world.status("b").lost).startswith("b has lost its history")
    assert "b has lost its history" in world.status("a").refused["b"]
    assert isinstance(world.answers[refused], HistoryError)
    assert world.log("a")[: len(before)] == before
    assert world.log("b")[len(before) :] == [], "the site without a history delivers nothing"


def test_a_swapped_history_does_not_open() -> None:
    """Issue 12 (g): histories hold the name of their site; swapped folders deliver nothing twice."""
    world = SmallWorld("ab", x="ab")
    world.post("a", "x")
    world.wait()
    copies = {site: world[site].disk.backup() for site in "ab"}
    for site in "ab":
        world[site].crash()
    world["a"].disk.restore(copies["b"])

    with pytest.raises(HistoryError, match="history of site b"):
        world["a"].start()


@pytest.mark.parametrize("offline", [0, 3, 40])
def test_an_old_history_is_refused_by_name(offline: int) -> None:
    """Issue 12 (g): a restored backup loses acknowledged messages; the peers know better, also when it sends first."""
    world = SmallWorld("ab", x="ab")
    world.post("b", "x")
    world.wait()
    backup = world["b"].disk.backup()
    lost = [world.post("b", "x") for _ in range(3)]
    world.wait()
    assert all(name in world.answers for name in lost)
    before = world.log("a")
    world["b"].crash()
    world["b"].disk.restore(backup)
    world.world.cut.add(frozenset("ab"))
    world["b"].start()
    for _ in range(offline):
        world.post("b", "x", ack="none")
    world.wait()
    world.world.cut.clear()
    world.wait(5.0)

    assert str(world.status("b").lost).startswith("b has lost part of its history")
    assert world.log("a") == before


def test_a_dead_site_stops_only_its_own_destinations() -> None:
    """Issue 12, one dead site: a client that sends to its group waits, another one of the same site does not."""
    world = SmallWorld("abc", Limits(window_bytes=20), x="ab", y="ac")
    world["c"].crash()
    to_y = [world.post("a", "y", size=30) for _ in range(3)]
    to_x = []
    for _ in range(5):
        to_x.append(world.post("a", "x", size=30))
        world.wait(1.0)

    assert all(name in world.answers for name in to_x)
    assert not any(name in world.answers for name in to_y)
    window = next(window for window in world.status("a").windows if window.to == "y")
    assert (window.envelopes, window.posts_waiting) == (1, 2)


def test_a_paused_reader_holds_up_only_its_classes_and_status_names_it() -> None:
    """Issue 12, a slow site: what waits is visible in the status, with the reader's name."""
    world = SmallWorld("abc", Limits(inbox_bytes=100, window_bytes=50), x="ab", y="ac")
    reader = world.reader("a", "slow", groups=["x"])
    to_x = []
    for _ in range(8):
        to_x.append(world.post("b", "x", size=60))
        world.wait(0.5)
    to_y = world.post("c", "y")
    world.wait()

    said = world.status("a")
    assert to_y in world.answers
    assert to_x[-1] not in world.answers
    assert said.parked > 0
    assert [(one.name, one.holds_up) for one in said.readers] == [("slow", ["x"])]

    while to_x[-1] not in world.answers:
        assert reader.take() is not None
        world["a"].feed(io.Took(reader))
        world.wait(1.0)
    assert world.status("a").parked == 0


def test_a_reader_that_asked_for_it_is_dropped_and_told() -> None:
    """Issue 12, a slow site: the policy of a reader is stated; who is dropped hears where to read on."""
    world = SmallWorld("ab", Limits(inbox_bytes=100), x="ab")
    reader = world.reader("a", policy="drop")
    sent = []
    for _ in range(8):
        sent.append(world.post("b", "x", size=60))
        world.wait(0.5)

    assert all(name in world.answers for name in sent)
    assert reader.ended is not None
    assert "read on after position" in str(reader.ended)


def test_a_reader_that_prefers_gaps_holds_nobody_up_and_is_told_of_them() -> None:
    """HTW00 6.3, total order with gaps: what waits is skipped and said; what follows comes in order."""
    world = SmallWorld("ab", Limits(inbox_bytes=400), x="ab")
    reader = world.reader("a", policy="gap")
    for _ in range(13):
        sent = world.post("b", "x", size=60)
        world.wait(0.5)
        assert sent in world.answers

    seen: list[int] = []
    gaps = []
    while (lot := reader.take()) is not None:
        said = said_in(lot)
        assert said is None or isinstance(said, Gap)
        gaps += [(said.first, said.last)] if isinstance(said, Gap) else []
        seen += range(said.first, said.last + 1) if isinstance(said, Gap) else [m.position for m in lot.messages()]

    assert reader.ended is None and world.status("a").parked == 0
    assert seen == list(range(13))
    assert len(gaps) == 1 and gaps[0][0] == 0 and gaps[0][1] < 12


def test_a_gap_hides_nothing_that_the_site_says_beside_messages() -> None:
    """A rollback concerns what was read before the gap: it stays in the stream, between two gaps."""
    reader = Reader("r", None, "gap", 0)
    body = batch.pack(1, [b"x"])
    for position in range(6):
        lot = Lot(position, ("g",), "s", 1 + position, b"", body)
        reader.put(said_lot(3, ("g",), RolledBack((0,))) if position == 3 else lot, 1)
    reader.skip()
    reader.put(Lot(6, ("g",), "s", 7, b"", body), 1)
    reader.skip()

    said = [said_in(lot) for lot in iter(reader.take, None)]
    assert said == [Gap(0, 2, 2), RolledBack((0,), 3), Gap(4, 6, 6)]
    assert reader.bytes == 0


def seeking(*log: Lot) -> tuple[Reader, list[str]]:
    """Let a reader of y look in a log for s:2, which went to x and y; return it, and what it gets."""
    readers = Readers(10**6, lambda _: ClassId(1, 0), frozenset("xy"), lambda _: None, "me")
    sought = Place(("x", "y"), "s", 2, b"2")
    reader = readers.open("r", frozenset("y"), "block", sought, 0, len(log))
    while reader.past and reader.ended is None:
        readers.catch_up(reader, [(lot, 1) for lot in log[reader.next :]], len(log))
    return reader, [f"{lot.source}:{lot.first}" for lot in iter(reader.take, None)]


def sent(position: int, groups: str, number: int) -> Lot:
    return Lot(position, tuple(groups), "s", number, b"%d" % number, batch.pack(number, [b"x"]))


def test_a_message_that_came_through_another_group_says_nothing_of_what_was_missed() -> None:
    """Errata 122: the site was in x, and came into y later. It has s:2 to both, and lacks s:3 to y alone."""
    lots = [sent(0, "x", 1), sent(1, "xy", 2), sent(2, "xy", 4)]
    reader, got = seeking(*lots)
    assert reader.ended is None and got == ["s:4"]

    reader, got = seeking(*lots, said_lot(3, ("y",), Restored("y", 4, b"", False)), sent(4, "y", 5))
    assert got == [] and "s:2 is not kept here" in str(reader.ended)
    reader, got = seeking(*lots, said_lot(3, ("y",), ViewChanged("y", ("me",), ("me",), (), 2, ())))
    assert got == [] and "s:2 is not kept here" in str(reader.ended)

    entered = said_lot(0, ("y",), Restored("y", 0, b"", False))
    others = said_lot(2, ("x",), Restored("x", 4, b"", False))
    reader, got = seeking(entered, sent(1, "xy", 2), others, sent(3, "y", 3))
    assert reader.ended is None and got == ["s:3"]


def test_nothing_is_read_at_a_site_that_has_stopped() -> None:
    """Found by the chaos: a client joined while its site stopped, and the closed disk was asked."""
    world = SmallWorld("ab", x="ab")
    world["a"].feed(io.Drain())
    world.wait()
    assert world["a"].stopped == "drained"
    with pytest.raises(LocalError, match="the site is stopped"):
        world["a"].node.reader("late", None, -1, "block")


def test_messages_of_one_sender_keep_their_order() -> None:
    """Issue 12 (c): x, x+y, x of one sender do not overtake each other in batches."""
    world = SmallWorld("ab", x="ab", y="ab")
    host, ledger = world["a"], world.world.ledger
    host.node.outbox.add(("x",), b"none", "none", None)  # a site that was idle sends the first one at once
    names = []
    for groups in (("x",), ("x", "y"), ("x",), ("y",), ("x", "y")):
        name = ledger.attempt(host.me, groups, "none", 0, 1)
        assert host.node.outbox.add(groups, ledger.attempts[name].body, "none", None)
        names.append(name)
    host.carry(host.node.turn())
    world.wait()

    for site in "ab":
        assert [name for name in world.log(site) if name != "none"] == names


def test_safe_does_not_wait_for_members_of_other_groups() -> None:
    """Issue 12 (d): with a member of y dead, a safe send to x returns when all of x have it."""
    world = SmallWorld("abc", x="ab", y="bc")
    world["c"].crash()
    to_y = world.post("a", "y")
    to_x = world.post("a", "x")
    world.wait(5.0)

    assert to_x in world.answers
    assert to_y not in world.answers


def test_resuming_readers_are_fed_in_slices() -> None:
    """Issue 12 (e): a reader in the past is fed as fast as it reads, a slice at a time, never all at once."""
    world = SmallWorld("ab", Limits(inbox_bytes=2000), x="ab")
    for _ in range(199):
        world.post("a", "x", size=100)
    world.wait(5.0)
    world.post("a", "x")  # what was delivered is in the index with the next commit
    world.wait(5.0)
    assert len(world.log("b")) == 200

    reader = world.reader("b", after=-1)
    world.wait(1.0)
    most, read = reader.bytes, 0
    while (lot := reader.take()) is not None:
        assert lot.position == read
        read += lot.count
        world["b"].feed(io.Took(reader))
        world.wait(0.5)
        most = max(most, reader.bytes)

    assert read == 200
    assert most < 2000 + 64 * 250, "a slice waits, and what was there before"


def test_a_site_that_is_restarted_often_still_takes_checkpoints() -> None:
    """Issue 12 (f): what earlier lives wrote since the last checkpoint counts."""
    world = SmallWorld("ab", Limits(checkpoint_bytes=2000), x="ab")
    for _ in range(12):
        world.post("a", "x", size=150)  # a tenth of what brings on a checkpoint
        world.wait(1.0)
        world["a"].crash()
        world["a"].start()
        world.wait(1.0)

    kept = world["a"].disk.kept
    assert kept is not None and kept.checkpoint is not None
    assert kept.checkpoint.records > 0
    assert kept.count - kept.checkpoint.records < 30, "a restart steps through little"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "mix", "seed"),
    [
        (("sequencer", False), "readers", 1171),
        (("timestamp", False), "readers", 404),
        (("hybrid", True), "lossy", 1651),
        (("sequencer", True), "crashes", 298),
    ],
    ids=str,
)
def test_an_open_batch_is_not_joined_past_a_post_that_waits(kind: tuple[str, bool], mix: str, seed: int) -> None:
    """Seeds of the campaign: a message to D joined a batch that was opened before a post to D and E had to wait."""
    verdict = run(case(kind, mix, seed))

    assert verdict.ok, verdict.findings[:3]
