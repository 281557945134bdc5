"""Frames: whatever way the bytes are cut they come out whole, and a flipped bit never comes out at all."""

import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ordercast.core.events import Envelope
from ordercast.core.streams import Ack, Carry
from ordercast.errors import LocalError, PeerError
from ordercast.names import ClassId
from ordercast.protocols.propagation.messages import Propagate
from ordercast.wire import batch, clients
from ordercast.wire.codec import Encoder, decode
from ordercast.wire.frames import GREETING_AT_MOST, HEAD_BYTES, Splitter, frame
from ordercast.wire.tags import Tag

CLASS = ClassId(2**40, 7)
Said = tuple[int, int, int, bytes]


def taken(splitter: Splitter, data: bytes) -> list[Said]:
    return [(tag, stream, number, bytes(payload)) for tag, _, stream, number, payload in splitter.feed(data)]


@given(st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=300))), st.integers(1, 97), st.integers())
def test_frames_come_out_whole_however_the_bytes_are_cut(
    said: list[tuple[int, bytes]], at_most: int, seed: int
) -> None:
    frames = [(tag, number, 7 * number, payload) for number, (tag, payload) in enumerate(said)]
    data = b"".join(part for one in frames for part in frame(*one))
    chance, splitter, got, at = random.Random(seed), Splitter(), [], 0
    while at < len(data):
        size = chance.randint(1, at_most)
        got += taken(splitter, data[at : at + size])
        at += size

    assert frames == got


def test_a_flipped_bit_is_noticed() -> None:
    """Issue 12 (i): on plain TCP 18 flipped bits became 20 altered deliveries. Here every bit of a frame is flipped."""
    whole = b"".join(frame(1, 2, 3, b"forty-two pounds for account 17"))
    after = b"".join(frame(Tag.HEARTBEAT, 0, 0, b""))
    for bit in range(8 * len(whole)):
        changed = bytearray(whole)
        changed[bit // 8] ^= 1 << bit % 8
        with pytest.raises(PeerError, match="wrong checksum"):
            taken(Splitter(), bytes(changed) + after)


def test_a_flipped_bit_in_a_length_is_noticed_before_anybody_waits_for_the_bytes() -> None:
    """Issue 12 (i): a link that waits for megabytes that were never sent looks alive and carries nothing."""
    head = bytearray(frame(1, 0, 0, b"x")[0])
    head[1] ^= 1

    with pytest.raises(PeerError, match="head has a wrong checksum"):
        taken(Splitter(), bytes(head))


def test_what_goes_to_many_pays_for_its_checksum_once(monkeypatch: pytest.MonkeyPatch) -> None:
    reckoned: list[int] = []

    def count(data: bytes) -> int:
        reckoned.append(len(data))
        return 0

    monkeypatch.setattr("ordercast.wire.codec.crc32", count)
    message, encoder = Propagate(Envelope(CLASS, ("g",), "p", 1, 1, b"body")), Encoder()
    for number in range(1, 9):
        encoder.frame(Carry(2, number, message), CLASS)

    assert len(reckoned) == 1


def test_a_framed_message_is_read_as_it_was() -> None:
    encoder, splitter = Encoder(), Splitter()
    message = Carry(2, 9, Propagate(Envelope(CLASS, ("g",), "p", 1, 1, batch.pack(1, [b"body"]))))
    for sent in (message, Ack(2, 7), message):
        ((tag, class_id, stream, number, payload),) = splitter.feed(b"".join(encoder.frame(sent, CLASS)))
        assert class_id == CLASS
        assert decode(tag, stream, number, payload) == sent


def test_small_frames_until_the_other_side_is_known() -> None:
    """Issue 12, security: 40 unfinished frames of 24 MiB before login took 704 MiB. The head is enough to say no."""
    splitter = Splitter(GREETING_AT_MOST)
    head, payload = frame(Tag.LOGIN, 0, 0, bytes(GREETING_AT_MOST + 1))
    with pytest.raises(PeerError, match="at most 65536 are allowed"):
        taken(splitter, head)

    splitter = Splitter(GREETING_AT_MOST)
    hello = b"".join(frame(Tag.HELLO, 0, 0, b"I am p"))
    frames = splitter.feed(hello + head + payload)
    assert next(frames)[0] == Tag.HELLO
    splitter.at_most *= 2  # it has said who it is, in the same bytes
    assert next(frames)[0] == Tag.LOGIN


def test_an_unfinished_frame_takes_as_much_memory_as_has_come_of_it() -> None:
    """One byte at a time, each an object of its own, would take forty times as much."""
    head, _ = frame(1, 0, 0, bytes(20 * 2**20))
    splitter = Splitter()
    tracemalloc.start()
    try:
        assert taken(splitter, head) == []
        assert splitter.announced == 20 * 2**20
        before = tracemalloc.get_traced_memory()[0]
        assert before < 10_000
        for at in range(200_000):
            assert taken(splitter, bytes([at % 256])) == []
        assert tracemalloc.get_traced_memory()[0] < 300_000
    finally:
        tracemalloc.stop()


def test_twelve_million_empty_messages_are_refused_by_name() -> None:
    """Issue 12 (a): they are no bytes, so they passed every limit; their envelope was too long for any frame."""
    with pytest.raises(LocalError, match="12000000 messages at once; at most 65536 are allowed"):
        batch.check([b""] * 12_000_000, 16 * 2**20)
    post = b"".join([b"\x94\x01\x91\xa1a\xa4none\xdd", (12_000_000).to_bytes(4, "big"), b"\xc4\x00" * 12_000_000])
    tracemalloc.start()
    try:
        with pytest.raises(PeerError, match=r"not a Post: .*length <= 65536"):
            clients.from_client(Tag.POST, post)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


def test_the_largest_batch_fits_a_frame() -> None:
    """What `batch.check` lets through is never too long for the frames it travels in, with room for names."""
    bodies = [b""] * (batch.MESSAGES_AT_MOST - 1) + [bytes(20 * 2**20)]
    batch.check(bodies, 20 * 2**20)
    packed = batch.pack(1, bodies)

    assert len(packed) <= batch.packed_bytes(bodies)
    assert HEAD_BYTES + batch.packed_bytes(bodies) < Splitter().at_most - 2**20
