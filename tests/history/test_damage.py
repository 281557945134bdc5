"""Damaged histories: refused by name, or all that was acknowledged is there."""

import random
import shutil
from pathlib import Path

import pytest

from tests.support.damage import fuzz_history, judge, moments


@pytest.mark.slow
def test_whatever_kill_9_leaves_can_be_opened(tmp_path: Path) -> None:
    """A crash is no damage: also between a commit and its mark, nothing is refused and nothing is missing."""
    for moment in moments(tmp_path):
        assert judge(moment, moment.folder), moment.folder.name


@pytest.mark.slow
def test_damaged_histories_are_refused_or_unharmed(tmp_path: Path) -> None:
    """Issue 12 (h): 14 of 1,300 damaged histories had lost their last record without a word."""
    done = fuzz_history(tmp_path, 1_300)

    assert done["files"] == 1_300
    assert done["refused"] > 800
    assert done["unharmed"] > 50


@pytest.mark.slow
def test_a_cut_at_any_byte_of_the_last_commit_is_found(tmp_path: Path) -> None:
    """Issue 12 (h): the end of the log is cut off behind a history that was killed, opened again, and killed again."""
    chance = random.Random(1)
    moment = next(each for each in moments(tmp_path) if each.folder.name == "moment-9-again")
    log = (moment.folder / "history.db-wal").read_bytes()
    for _ in range(20):
        victim = tmp_path / "victim"
        shutil.copytree(moment.folder, victim)
        (victim / "history.db-wal").write_bytes(log[: len(log) - chance.randint(1, 24 + 16384)])
        assert not judge(moment, victim)
        shutil.rmtree(victim)
