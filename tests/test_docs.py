"""What the documents show is what happens."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from ordercast.runtime.config import read_cluster

ROOT = Path(__file__).parent.parent


def blocks(page: str, language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [body for name, body in fenced if name == language]


@pytest.mark.slow
def test_the_readme_s_python_runs(tmp_path: Path) -> None:
    (code,) = blocks("README.md", "python")
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "True"


@pytest.mark.slow
def test_the_readme_s_command_prints_what_it_shows(tmp_path: Path) -> None:
    (membership,) = blocks("README.md", "toml")
    (tmp_path / "groups.toml").write_text(membership)
    (shown,) = [block for block in blocks("README.md", "") if block.startswith("$")]
    command, *expected = shown.splitlines()
    words = [sys.executable, "-m", *command.removeprefix("$ ").split()]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)

    assert expected == done.stdout.splitlines()[: len(expected)]


def test_links_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


@pytest.mark.slow
def test_the_live_page_s_python_runs_and_its_configuration_is_read(tmp_path: Path) -> None:
    (code,) = blocks("docs/live.md", "python")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines() == ["0 orders p b'buy 7'", "1 alerts p b'look'"]
    (configuration,) = blocks("docs/live.md", "toml")
    (tmp_path / "cluster.toml").write_text(configuration)
    assert list(read_cluster(tmp_path / "cluster.toml").groups) == ["transactions", "tables"]
