"""The fold, piece by piece: strings compared and hashed like bytes, breaks seen where two pieces meet."""

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ordercast.audit import kernels, plain, tables
from ordercast.audit.fold import fold_deliveries
from ordercast.audit.merge import merge
from ordercast.jobs import metagroups


@pytest.fixture(scope="module")
def texts() -> list[bytes]:
    """Strings of all small lengths, many with the same beginning, high bytes among them."""
    chance = random.Random(1)
    begins = [b"", b"\x01" * 8, b"abcdefgh", b"abcdefghabcdefgh"]
    return [chance.choice(begins) + bytes(chance.choices((0, 1, 127, 128, 255), k=chance.randrange(11))) for _ in range(60)]  # fmt: skip # noqa: E501


def test_strings_compare_as_bytes_do(texts: list[bytes]) -> None:
    strings = tables.laid_out(pa.array(texts, pa.binary()))
    for i, one in enumerate(texts):
        for j, other in enumerate(texts):
            assert kernels.compare(strings, i, strings, j) == (one > other) - (one < other), (one, other)


def test_names_are_numbered_and_hashed_alike_by_all_loops(texts: list[bytes]) -> None:
    again = texts + texts[::-1]
    strings = tables.laid_out(pa.array(again, pa.binary()))
    hashed = plain.hash_bytes(strings)
    number, first = metagroups.numbered(*strings, hashed)

    assert hashed.tolist() == kernels.hash_bytes(strings).tolist()
    assert len(set(hashed.tolist())) == len(set(again)) == len(first)
    assert [again[row] for row in first[number].tolist()] == again


def test_runs_of_one_name_are_told_from_names_of_one_length(texts: list[bytes]) -> None:
    together = sorted(texts + texts, key=lambda text: (len(text), text))
    same = metagroups.same_as_before(*tables.laid_out(pa.array(together, pa.binary())))

    assert same.tolist() == [i > 0 and together[i] == together[i - 1] for i in range(len(together))]


def test_sites_with_equal_signatures_are_one_and_go_by_the_first_name() -> None:
    names = ["site-0009", "site-0003", "site-0005", "site-0001"]
    strings = tables.laid_out(pa.array(names, pa.string()))
    h1, h2, k = (np.array(column, np.int64) for column in ([7, 7, -7, 7], [1, 1, 1, 2], [3, 3, 3, 3]))
    first, many = metagroups.alike(*strings, np.arange(4), h1, h2, k)

    assert {(names[row], count) for row, count in zip(first, many.tolist(), strict=True)} == {
        ("site-0003", 2), ("site-0005", 1), ("site-0001", 1),
    }  # fmt: skip


def piece(first: int, numbers: list[int], stamps: list[int], epochs: list[int] | None = None) -> Any:
    """Rows of one site, from a position on."""
    many = len(numbers)
    given = [bytes([stamp]) for stamp in stamps]
    columns = {
        "site": ["a"] * many,
        "position": list(range(first, first + many)),
        "msg_id": [f"c:{number}" for number in numbers],
        "group": ["g"] * many,
        "source": ["c"] * many,
        "source_seq": numbers,
        "epoch": epochs or [1] * many,
        "order_class": ["g"] * many,
        "stamp": pa.array(given, pa.binary()),
    }
    return tables.tidy(pa.table(columns), {**tables.DELIVERIES, **{n: tables.OPTIONAL[n] for n in list(columns)[6:]}})


@pytest.mark.parametrize(
    ("later", "broken"),
    [
        (piece(3, [4, 5], [4, 5]), set()),
        (piece(3, [2, 5], [4, 5]), {"fifo"}),
        (piece(3, [4, 5], [2, 5]), {"stamps"}),
        (piece(3, [4, 5], [4, 5], [0, 0]), {"epochs"}),
    ],
)
def test_a_break_where_two_pieces_meet_is_seen(later: Any, broken: set[str]) -> None:
    """Each piece is in order by itself."""
    found = merge(pa.concat_tables([fold_deliveries(part) for part in (later, piece(0, [1, 2, 3], [1, 2, 3]))]))

    assert {name for name in ("fifo", "stamps", "epochs") if getattr(found, name)} == broken
    assert found.sets["a", "g"][0] == 5
