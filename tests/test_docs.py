"""What the documents show is what happens."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ordercast.live.config import read_cluster

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
    configuration, changes, security = blocks("docs/live.md", "toml")
    (tmp_path / "cluster.toml").write_text(configuration + security)
    read = read_cluster(tmp_path / "cluster.toml")
    fixed = configuration.replace('export = "run"', "")
    options, _, table = changes.partition("\n[options")
    (tmp_path / "changing.toml").write_text(f"{options}\n{fixed}\n[options{table.replace('audit', 'tables')}")
    assert read_cluster(tmp_path / "changing.toml").options["tables"].policy == "atomic"
    assert list(read.groups) == ["transactions", "tables"] and read.security.certs == "certs"


def test_errata_that_are_cited_are_listed() -> None:
    """The list is complete, and no page or file cites a number that is not in it."""
    listed = [
        int(n) for n in re.findall(r"^(\d+)\. \*\*", (ROOT / "docs" / "errata.md").read_text("utf-8"), re.MULTILINE)
    ]
    assert len(listed) >= 78 and listed == list(range(1, len(listed) + 1))
    folders = ("src", "tests", "docs", "benchmarks", "tools", "examples")
    sources = [path for folder in folders for path in (ROOT / folder).rglob("*.*")]
    for path in sources:
        if path.suffix in (".py", ".md", ".txt"):
            for cited in re.findall(r"[Ee]rrata (\d+(?:(?:, | and |-)\d+)*)", path.read_text("utf-8")):
                assert {int(n) for n in re.findall(r"\d+", cited)} <= set(listed), f"{path} cites {cited}"


def test_the_index_of_the_papers_leads_somewhere() -> None:
    """Every file and every test that the table of all elements names is there."""
    page = (ROOT / "docs" / "papers.md").read_text("utf-8")
    rows = page.partition("## Every numbered element")[2].partition("\n## ")[0]
    named = re.findall(r"`((?:src|tests|benchmarks)/[^`]+|test_\w+)`", rows)
    tests = {name for path in ROOT.glob("tests/**/*.py") for name in re.findall(r"def (test_\w+)", path.read_text())}

    assert len(named) > 90
    assert [name for name in named if not (name in tests if name.startswith("test_") else (ROOT / name).exists())] == []


def test_every_file_the_readme_names_is_in_the_repo() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    named = re.findall(r"[\w./-]+\.(?:toml|py|md|svg)\b", text)

    assert (
        named and [name for name in named if not (ROOT / name).exists() and not (ROOT / "docs" / name).exists()] == []
    )
    (configuration,) = blocks("README.md", "toml")
    assert (ROOT / "examples" / "cluster.toml").read_text("utf-8") == configuration
