"""What a client that moves keeps of its reading (`client.bookmark`)."""

import msgspec
import pytest

from ordercast.client.bookmark import Bookmark
from ordercast.client.values import Restored, Said, ViewChanged, said_lot
from ordercast.wire import batch
from ordercast.wire import clients as wire

HERE, THERE = ("p", 1), ("q", 1)
WELCOME = wire.Welcome("q", ["x"], ["x"], 0, 0, 0, incarnation=1)
LEAVES = ViewChanged("x", ("q",), (), ("p",), 2, ())
MESSAGE = wire.LotFrame(0, ("x",), "s", 1, b"stamp", batch.pack(0, [b"one"]))


def reading(join: wire.Join) -> Bookmark:
    return Bookmark(join, 0, HERE, ["x"])


def said(position: int, what: Said) -> wire.LotFrame:
    lot = said_lot(position, ("x",), what)
    return wire.LotFrame(lot.position, lot.groups, lot.source, lot.first, lot.stamp, lot.body)


def test_who_reads_from_the_beginning_and_has_nothing_yet_begins_anew_where_the_group_is() -> None:
    """Its site leaves the group before the first message: what comes to it later through other groups has holes."""
    mark = reading(wire.Join(1, ["x"], None, begin=True))

    mark.read(said(0, LEAVES))

    assert mark.left and mark.wrong(WELCOME) is None
    again = mark.again(THERE)
    assert again.begin and again.place is None and again.after is None
    mark.joined(again, 7, THERE)
    assert not mark.left and mark.again(THERE).after == 6


def test_who_has_read_goes_on_after_the_last_message() -> None:
    mark = reading(wire.Join(1, ["x"], None, begin=True))

    mark.read(MESSAGE)
    mark.read(said(1, LEAVES))

    assert mark.left
    assert msgspec.structs.asdict(mark.again(THERE)) | {"id": 0, "groups": 0} == msgspec.structs.asdict(
        wire.Join(0, 0, None, place=wire.Place(("x",), "s", 1, b"stamp"))  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("join", [wire.Join(1, ["x"], None), wire.Join(1, ["x"], 3)])
def test_who_reads_from_now_on_or_after_a_position_cannot_begin_anew(join: wire.Join) -> None:
    mark = reading(join)

    mark.read(said(0, LEAVES))

    assert not mark.left and mark.wrong(WELCOME) is not None


def test_who_was_given_a_state_cannot_begin_anew() -> None:
    """Nobody else knows how much is in the state."""
    mark = reading(wire.Join(1, ["x"], None, begin=True))

    mark.read(said(0, Restored("x", 5, b"state", False)))
    mark.read(said(1, LEAVES))

    assert not mark.left and mark.wrong(WELCOME) is not None
