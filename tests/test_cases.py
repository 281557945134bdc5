"""The conversations in tests/cases say what really happens. `make record` rewrites them."""

import os
from pathlib import Path

import pytest

from ordercast.testing.script import run_file

CASES = sorted(Path(__file__).parent.glob("cases/**/*.txt"))


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_case(path: Path) -> None:
    actual = run_file(path)
    if os.environ.get("ORDERCAST_RECORD"):
        path.write_text(actual, "utf-8")

    assert path.read_text("utf-8") == actual
