"""The judge of chaos sees what is planted: a loss, a double, a hole, another order, a false receipt."""

from collections.abc import Callable

import pytest

from ordercast.client.values import Lot
from ordercast.core.configuration import Configuration
from ordercast.wire import batch
from tests.support.promises import Book, body_of

GROUPS = Configuration.of({"g": ["p", "q"]}, [["g"]], ["p", "q"])
LIFE = ("p", 0)


def lot(position: int, name: str, number: int, place: int | None = None, body: bytes | None = None) -> Lot:
    whole = batch.pack(number, [body_of(name) if body is None else body])
    return Lot(position, ("g",), name[0], number, (place or number).to_bytes(8, "big"), whole)


def book(messages: int = 3) -> Book:
    """Return a run of one sender and two readers that went well, up to what both have still to read."""
    made = Book(GROUPS, frozenset({"fifo", "total", "acyclic"}))
    made.sent = {"p": messages}
    for number in range(1, messages + 1):
        made.taken([made.attempt("p", ("g",), LIFE)], number)
    return made


def read(made: Book, orders: dict[str, list[int]]) -> Book:
    for site, numbers in orders.items():
        for position, number in enumerate(numbers):
            made.read(site, lot(position, f"p-{number}", number))
    return made


def test_a_run_that_went_well() -> None:
    found = read(book(), {"p": [1, 2, 3], "q": [1, 2, 3]})

    assert [] == found.missing() + found.doubled() + found.disordered() + found.problems


@pytest.mark.parametrize(
    ("orders", "kind"),
    [
        ({"p": [1, 2, 3], "q": [1, 2]}, Book.missing),
        ({"p": [1, 2], "q": [1, 2]}, Book.missing),
        ({"p": [1, 3], "q": [1, 3]}, Book.missing),
        ({"p": [1, 2, 3, 3], "q": [1, 2, 3]}, Book.doubled),
        ({"p": [1, 2, 3], "q": [2, 1, 3]}, Book.disordered),
        ({"p": [2, 1, 3], "q": [2, 1, 3]}, Book.disordered),
    ],
)
def test_what_is_planted_is_found(orders: dict[str, list[int]], kind: Callable[[Book], list[str]]) -> None:
    assert kind(read(book(), orders))


def test_only_the_end_of_a_life_that_was_killed_is_excused() -> None:
    """The site was killed and never wrote 2 and 3; but 2 is no excuse once 3, which it took later, is anywhere."""
    lost = read(book(), {"p": [1], "q": [1]})
    lost.killed, lost.sent = {LIFE}, {"p": 1}
    assert ([], 2) == (lost.missing(), lost.excused)

    lost = read(book(), {"p": [1, 3], "q": [1, 3]})
    lost.killed, lost.sent = {LIFE}, {"p": 1}
    assert ["p does not deliver p-2", "q does not deliver p-2"] == lost.missing()


def test_a_receipt_is_no_excuse() -> None:
    lost = read(book(), {"p": [1], "q": [1]})
    lost.killed, lost.sent = {LIFE}, {"p": 1}
    lost.acknowledged("p-2", None)

    assert ["p does not deliver p-2", "q does not deliver p-2"] == lost.missing()


def test_a_number_that_a_site_says_it_has_sent_must_be_somewhere() -> None:
    """Nobody was told what became of it, and its place among the numbers stays empty."""
    hole = read(book(2), {"p": [1, 2], "q": [1, 2]})
    hole.sent = {"p": 3}

    assert ["p:3 was sent and is nowhere"] == hole.missing()


def test_one_number_one_message_one_body_one_position() -> None:
    wrong = read(book(), {"p": [1]})
    wrong.read("q", lot(0, "p-2", 1))
    assert wrong.doubled()

    wrong = book()
    wrong.read("p", lot(0, "p-1", 1, body=b"p-1 other"))
    wrong.read("q", lot(1, "p-1", 1))
    assert ["bodies", "positions"] == [kind for kind, _ in wrong.problems]


def test_receipts_tell_the_number_and_the_stamp() -> None:
    wrong = read(book(), {"p": [1, 2, 3], "q": [1, 2, 3]})
    wrong.attempts["p-1"].number = 7
    wrong.acknowledged("p-2", (9).to_bytes(12, "big"))

    assert ["p-1 was taken as number 7 and is number 1", "the receipt of p-2 has another stamp"] == sorted(
        wrong.disordered()
    )
