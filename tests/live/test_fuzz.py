"""Bytes that no honest peer gives: refused by name, or taken for exactly what they are."""

import asyncio
from pathlib import Path

import pytest

from tests.support.fuzz import fuzz_clients, fuzz_frames
from tests.support.live import GROUPS, cluster


@pytest.mark.slow
def test_mutated_frames_close_the_link_or_are_taken(tmp_path: Path) -> None:
    done = asyncio.run(fuzz_frames(tmp_path, 20_000))

    assert done["refused"] > 5_000
    assert done["delivered"] > 0


@pytest.mark.slow
def test_mutated_frames_of_clients_are_refused_or_taken(tmp_path: Path) -> None:
    config = cluster(tmp_path, GROUPS)
    done = asyncio.run(fuzz_clients(config, 20_000))

    assert done["refused"] > 2_000
