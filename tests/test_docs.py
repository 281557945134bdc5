"""What the documents show is what happens."""

import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ordercast.runtime.config import read_cluster

ROOT = Path(__file__).parent.parent


def blocks(page: str, language: str) -> list[str]:
    fenced = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return [body for name, body in fenced if name == language]


@pytest.mark.slow
def test_the_readme_s_cluster_runs_and_its_client_too(tmp_path: Path) -> None:
    """The configuration as it stands, `ordercast up`, the client as it stands."""
    (configuration,) = blocks("README.md", "toml")
    (code,) = blocks("README.md", "python")
    assert len([line for line in code.splitlines() if line.strip()]) <= 15
    (tmp_path / "cluster.toml").write_text(configuration)
    up = subprocess.Popen(
        [sys.executable, "-m", "ordercast", "up", "cluster.toml"], cwd=tmp_path, stderr=subprocess.PIPE
    )
    try:
        for _ in range(100):
            done = subprocess.run(
                [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
            )
            if done.returncode == 0:
                break
            time.sleep(0.3)
        assert done.stdout.splitlines() == ["0 transactions main-1 b'credit 17 100'", "1 tables main-1 b'rate 3'"]
    finally:
        up.terminate()
        up.communicate(timeout=20)


def commands() -> list[str]:
    """Every command that a page shows, without its comment."""
    found = []
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]:
        for block in blocks(str(page.relative_to(ROOT)), ""):
            for line in block.splitlines():
                if line.startswith(("$ ordercast ", "ordercast ")):
                    found.append(re.split(r"  +|  #", line.removeprefix("$ "))[0])
    return found


def test_commands_on_the_pages_exist() -> None:
    """Every command and every option that a page shows is one that the program has."""
    from ordercast.cli.main import app

    shown = commands()
    assert len(shown) > 15
    for line in shown:
        words = [word for word in shlex.split(line)[1:] if word != "|"]
        for name in words[0:1] if "|" not in line else [w for w in words if not w.startswith("-")]:
            assert name in app, line
        known = " ".join(str(argument.parameter.name) for argument in app[words[0]].assemble_argument_collection())
        for option in [word for word in words if word.startswith("--")]:
            assert option in known, f"{line}: {option}"


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
