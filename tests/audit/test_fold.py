"""The fold, piece by piece: strings compared and hashed like bytes, breaks seen where two pieces meet."""

import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from ordercast.audit import columns as arrow
from ordercast.audit import kernels, plain
from ordercast.audit.fold import fold_deliveries
from ordercast.audit.merge import merge
from ordercast.runs import reader, schema

KEY = kernels.fresh_key()


@pytest.fixture(scope="module")
def texts() -> list[bytes]:
    """Strings of all small lengths, many with the same beginning, high bytes among them."""
    chance = random.Random(1)
    begins = [b"", b"\x01" * 8, b"abcdefgh", b"abcdefghabcdefgh"]
    return [chance.choice(begins) + bytes(chance.choices((0, 1, 127, 128, 255), k=chance.randrange(11))) for _ in range(60)]  # fmt: skip # noqa: E501


def test_strings_compare_as_bytes_do(texts: list[bytes]) -> None:
    strings = arrow.laid_out(pa.array(texts, pa.binary()))
    for i, one in enumerate(texts):
        for j, other in enumerate(texts):
            assert kernels.compare(strings, i, strings, j) == (one > other) - (one < other), (one, other)


def test_arrays_compare_strings_as_bytes_do(texts: list[bytes]) -> None:
    """All pairs at once, long ones among them, at any place in memory."""
    texts = [*texts, b"a" * 600, b"a" * 600 + b"b", b"a" * 599 + b"b", b"a" * 600]
    strings = arrow.laid_out(pa.array([b"x", *texts], pa.binary()).slice(1))
    a, b = (at.ravel() for at in np.indices((len(texts), len(texts))))
    found = plain.compare(strings, a, strings, b)

    assert found.tolist() == [(texts[i] > texts[j]) - (texts[i] < texts[j]) for i, j in zip(a, b, strict=True)]


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
    return reader.tidy(
        pa.table(columns), {**schema.DELIVERIES, **{n: schema.DELIVERIES_OPTIONAL[n] for n in list(columns)[6:]}}
    )


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
    found = merge(pa.concat_tables([fold_deliveries(part, KEY) for part in (later, piece(0, [1, 2, 3], [1, 2, 3]))]))

    assert {name for name in ("fifo", "stamps", "epochs") if getattr(found, name)} == broken
    assert found.sets["a", "g"][0] == 5
