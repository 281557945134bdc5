"""The audits of real runs that docs/import.md shows are what happens."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PAGE = (ROOT / "docs" / "import.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.slow
@pytest.mark.parametrize("block", blocks("console"), ids=["nats", "one server", "two servers"])
def test_the_page_shows_what_is_printed(block: str, tmp_path: Path) -> None:
    """Shortened lines end early, `...` stands for others; all of them are there, in this order."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    environment = {**os.environ, "COLUMNS": "100"}
    for step in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
        command, *expected = step.splitlines()
        done = subprocess.run(
            [sys.executable, "-m", *command.split()], cwd=tmp_path, env=environment, capture_output=True, text=True,
            timeout=60, check=False,
        )  # fmt: skip
        rest = words(done.stdout)
        for line in expected:
            if line != "...":
                _, found, rest = rest.partition(words(line))
                assert found, (line, done.stdout, done.stderr)
        assert done.returncode == (1 if "does not hold" in block and "audit" in command else 0)


def test_the_mapping_on_the_page_is_the_example_s() -> None:
    (shown,) = blocks("toml")
    example = (ROOT / "examples" / "import" / "nats" / "mapping.toml").read_text("utf-8")

    assert tomllib.loads(example) == tomllib.loads(shown)
    for site, message, line in (("s1", 7, 39), ("s1", 35, 48), ("s2", 35, 62), ("s2", 7, 63)):
        log = (ROOT / "examples" / "import" / "nats" / "received" / f"{site}.jsonl").read_text("utf-8").splitlines()
        assert f'"source": "sender-3", "n": {message}}}' in log[line - 1]
