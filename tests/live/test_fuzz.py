"""Bytes that no honest peer gives: refused by name, or taken for exactly what they are."""

import asyncio
from pathlib import Path

import pytest

from tests.support.fuzz import fuzz_frames


@pytest.mark.slow
def test_mutated_frames_close_the_link_or_are_taken(tmp_path: Path) -> None:
    done = asyncio.run(fuzz_frames(tmp_path, 20_000))

    assert done["refused"] > 5_000
    assert done["delivered"] > 0
