"""What a client posts again is delivered once: which numbers of a session are known."""

from hypothesis import given
from hypothesis import strategies as st

from ordercast.errors import PeerError
from ordercast.node.sessions import GAPS_AT_MOST, SESSIONS_AT_MOST, Sessions, unwrap, wrap
from ordercast.wire import batch

ONE, TWO = b"1" * 16, b"2" * 16


@given(st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=60))
def test_it_says_what_a_set_says(steps: list[tuple[int, bool]]) -> None:
    """Numbers come in any order, again, and may be undone."""
    sessions, known = Sessions(), set[int]()
    for number, undone in steps:
        assert sessions.is_new(("x",), (ONE, number)) == (number not in known)
        known.add(number)
        if undone:
            sessions.undo(("x",), (ONE, number))
            known.discard(number)


def test_destinations_and_sessions_are_apart() -> None:
    sessions = Sessions()

    assert sessions.is_new(("x",), (ONE, 1))
    assert sessions.is_new(("x", "y"), (ONE, 1))
    assert sessions.is_new(("x",), (TWO, 1))
    assert not sessions.is_new(("x",), (ONE, 1))


def test_both_bounds_hold() -> None:
    sessions = Sessions()
    for index in range(SESSIONS_AT_MOST + 1):
        sessions.is_new(("x",), (index.to_bytes(16, "big"), 1))
    for number in range(1, 4 * GAPS_AT_MOST, 2):
        sessions.is_new(("y",), (ONE, number))

    assert len(sessions.known["x"]) == SESSIONS_AT_MOST
    assert sessions.is_new(("x",), ((0).to_bytes(16, "big"), 1)), "who was heard of first is forgotten first"
    assert len(sessions.known["y"][ONE]) == GAPS_AT_MOST


def test_who_joins_a_group_knows_what_was_posted_to_it() -> None:
    there, here = Sessions(), Sessions()
    there.is_new(("x",), (ONE, 1))
    there.is_new(("x", "y"), (ONE, 1))
    there.is_new(("z",), (ONE, 1))
    here.is_new(("x",), (TWO, 1))
    given = unwrap(wrap(b"state", there.of_group("x")))
    here.take_over("x", given.sessions)

    assert given.state == b"state"
    assert not here.is_new(("x",), (ONE, 1))
    assert not here.is_new(("x", "y"), (ONE, 1))
    assert here.is_new(("z",), (ONE, 1))
    assert here.is_new(("x",), (TWO, 1)), "what it had of the group is void"


def test_a_state_that_is_none_is_a_peer_s_fault() -> None:
    assert unwrap(b"").state == b""
    try:
        unwrap(b"\xc1")
    except PeerError as error:
        assert "a state that is none" in str(error)
    else:
        raise AssertionError("it was taken")


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=5), st.integers(1, 2**40), st.integers(1, 2**40))
def test_a_batch_carries_who_posted_it(bodies: list[bytes], first: int, number: int) -> None:
    packed = batch.pack(first, bodies, (ONE, number))

    assert batch.origin_of(packed) == (ONE, number)
    assert batch.read_head(packed) == (first, len(bodies))
    assert batch.unpack(packed) == bodies
    assert batch.origin_of(batch.pack(first, bodies)) is None
