"""The demo, short: real processes, a kill -9, two audits, one page that a browser shows without complaint."""

import re
import shutil
import struct
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest


def browser() -> str | None:
    return next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
    )


@pytest.fixture(scope="session")
def shown(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The demo's folder and what it said, without a terminal."""
    out = tmp_path_factory.mktemp("demo") / "out"
    command = [sys.executable, "-m", "ordercast", "demo", "--short", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return out, re.sub(r"\s+", " ", done.stdout)


@pytest.mark.slow
def test_the_demo_tells_its_story(shown: tuple[Path, str]) -> None:
    out, said = shown
    assert (out / "plan.svg").exists()
    assert "▸ orders" in said
    assert "kill -9 dev-1" in said
    assert "Balances of 20 accounts at the two main computers: identical" in said
    assert "level acyclic holds" in said
    assert re.search(r"total: main-1 delivers \S+ before \S+, main-2 the other way round", said)


@pytest.mark.slow
def test_plain_multicast_carries_the_same_traffic(shown: tuple[Path, str]) -> None:
    """As many orders of each sender to each group as ordercast had, from senders at the same rate."""
    import pyarrow.parquet as pq

    counts = []
    for run in ("run", "unordered"):
        rows = pq.read_table(shown[0] / run / "sends", columns=["source", "group"]).to_pylist()
        counts.append(Counter((row["source"], row["group"]) for row in rows))
    assert counts[0] == counts[1]
    assert sum(counts[0].values()) == 4 * 300
    deliveries = [pq.read_table(shown[0] / run / "deliveries").num_rows for run in ("run", "unordered")]
    assert deliveries[0] == deliveries[1]


@pytest.mark.slow
def test_a_folder_that_is_not_the_demo_s_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("keep")
    command = [sys.executable, "-m", "ordercast", "demo", "--short", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert (tmp_path / "mine.txt").read_text() == "keep"


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 400])
def test_a_browser_shows_the_report(shown: tuple[Path, str], width: int, tmp_path: Path) -> None:
    """No console message, all pictures there, nothing wider than the window but what scrolls by itself."""
    chromium = browser()
    if chromium is None:
        pytest.fail("no Chromium: run `make setup`")
    page = tmp_path / "page.html"
    probe = (
        "<script>window.onload=()=>{const wide=document.documentElement.scrollWidth>innerWidth+1;"
        "const broken=[...document.images].filter(i=>!i.complete||!i.naturalWidth).length;"
        "document.title=`wide=${wide} broken=${broken} images=${document.images.length}`}</script>"
    )
    page.write_text((shown[0] / "report.html").read_text("utf-8").replace("</body>", probe + "</body>"), "utf-8")
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", f"--window-size={width},3000"]
    shot = tmp_path / "shot.png"
    look = [chromium, *flags, f"--screenshot={shot}", "--hide-scrollbars", page.as_uri()]
    done = subprocess.run(look, capture_output=True, text=True, timeout=90, check=True, cwd=tmp_path)
    dom = subprocess.run(
        [chromium, *flags, "--virtual-time-budget=3000", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=90, check=True, cwd=tmp_path,
    )  # fmt: skip

    assert "CONSOLE" not in done.stderr
    assert "<title>wide=false broken=0 images=3</title>" in dom.stdout
    assert struct.unpack(">II", shot.read_bytes()[16:24])[0] == width
