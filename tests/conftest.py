"""What several test modules share: one Spark session per process."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ordercast.spark.session import Spark


@pytest.fixture(scope="session")
def spark() -> "Iterator[Spark]":
    from ordercast.spark.session import session

    with session("tests", "local[2]") as running:
        yield running
