"""Events to bytes and back: what is damaged is an error, and never anything else."""

import random

import pytest

from ordercast.core.events import Envelope, Event, LinkDown, LinkUp, Multicast, PeerReset, Received, Tick
from ordercast.core.streams import Ack, Carry
from ordercast.errors import HistoryError
from ordercast.history.records import Met, Stored, Told, decode, encode, encode_event, envelope_of
from ordercast.names import ClassId
from ordercast.protocols.propagation.messages import Propagate
from ordercast.wire.codec import Encoder

CLASS = ClassId(3, 1)
ENVELOPE = Envelope(CLASS, ("g", "h"), "q", 7, 3, b"body")
EVENTS: list[Event] = [
    Multicast(("g",), b"body", True),
    Multicast(("g", "h"), b""),
    Received("q", Carry(1, 2, Propagate(ENVELOPE)), CLASS),
    Received("q", Ack(0, 5), CLASS),
    Tick(1.5),
    LinkUp("q"),
    LinkDown("q"),
    PeerReset("q", 8),
]
MET = Met("q", 1_700_000_000_000, 12)


@pytest.mark.parametrize("event", EVENTS, ids=str)
def test_an_event_comes_back_as_it_was(event: Event) -> None:
    assert decode(encode_event(event, Encoder())) == event


def test_a_meeting_comes_back_as_it_was() -> None:
    assert decode(encode(MET)) == MET


def test_the_envelope_of_a_record() -> None:
    found: list[Envelope | None] = [envelope_of(stored) for stored in [*EVENTS, MET]]

    assert found == [None, None, ENVELOPE, *[None] * 6]


def test_damaged_records_are_refused() -> None:
    """Nothing but HistoryError comes out of bytes that nobody wrote, and nothing but a record that can be written."""
    chance = random.Random(0)
    records = [*(encode_event(event, Encoder()) for event in EVENTS), encode(MET)]
    refused = 0
    for _ in range(20_000):
        data = bytearray(chance.choice(records))
        for _ in range(chance.randint(1, 3)):
            at = chance.randrange(len(data) + 1)
            match chance.randrange(3):
                case 0:
                    del data[at:]
                case 1:
                    data[at : at + 1] = chance.randbytes(1)
                case 2:
                    data[at:at] = chance.randbytes(chance.randint(1, 4))
        try:
            stored: Stored = decode(bytes(data))
        except HistoryError:
            refused += 1
        else:
            again = encode(stored) if isinstance(stored, Met | Told) else encode_event(stored, Encoder())
            assert repr(decode(again)) == repr(stored)  # as text: a damaged time may be no number, which equals nothing

    assert refused > 5_000
