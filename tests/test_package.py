"""The wheel in an environment of its own."""

import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.chaos import Chaos

ROOT = Path(__file__).parent.parent

CLIENT = """
import asyncio, sys, ordercast
async def main():
    async with ordercast.connect(sys.argv[1]) as client:
        await client.join(["g0"], after=-1)
        receipt = await client.multicast("g0", b"from the wheel", ack="safe")
        async for message in client:
            print(ordercast.__file__, receipt.number, message.body.decode())
            return
asyncio.run(main())
"""


def uv() -> str:
    local = ROOT / ".bootstrap" / "bin" / "uv"
    found = str(local) if local.exists() else shutil.which("uv")
    if found is None:
        pytest.fail("no uv: run `make setup`")
    return found


def installed(tmp_path: Path) -> Path:
    """Build the wheel and install it alone into an environment of its own; return that environment's Python."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    python = tmp_path / "empty" / "bin" / "python"
    subprocess.run([uv(), "venv", "--quiet", "--python", sys.executable, str(tmp_path / "empty")], check=True)
    pinned = ["--constraint", str(ROOT / "requirements" / "all.txt")]
    subprocess.run([uv(), "pip", "install", "--quiet", "--python", str(python), *pinned, str(wheel)], check=True)
    return python


@pytest.mark.slow
def test_a_client_from_the_wheel_talks_to_a_cluster(tmp_path: Path) -> None:
    python = installed(tmp_path)
    chaos = Chaos(tmp_path, groups={"g0": ["s0", "s1"]})
    try:
        for site in chaos.sites:
            chaos.start(site, through_proxies=False)
        command = [str(python), "-c", CLIENT, chaos.cluster.clients["s0"]]
        until = time.monotonic() + 30
        while True:
            done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
            if done.returncode == 0 or time.monotonic() > until:
                break
            time.sleep(0.3)
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith(str(tmp_path / "empty"))
        assert done.stdout.endswith("from the wheel\n")
    finally:
        for process in chaos.processes.values():
            process.kill()
            process.wait()


@pytest.mark.slow
def test_a_newcomer_s_path(tmp_path: Path) -> None:
    """The tutorial, block by block, with the wheel in an environment of its own: start, write, lose a site, audit."""
    python = installed(tmp_path)
    here = tmp_path / "here"
    here.mkdir()
    environment = {"PATH": f"{python.parent}:/usr/local/bin:/usr/bin:/bin", "HOME": str(tmp_path), "LANG": "C.UTF-8"}
    text = (ROOT / "docs" / "tutorial.md").read_text("utf-8")
    try:
        for kind, body in re.findall(r"^```(\w+)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
            if kind != "console":
                (here / body.splitlines()[0].removeprefix("# ")).write_text(body)
                continue
            for step in re.split(r"^\$ ", body, flags=re.MULTILINE)[1:]:
                command, *expected = step.splitlines()
                done = subprocess.run(
                    ["bash", "-c", command], cwd=here, env=environment, capture_output=True, text=True, timeout=90,
                    check=False,
                )  # fmt: skip
                assert expected == done.stdout.splitlines()[: len(expected)], (command, done.stdout, done.stderr)
    finally:
        for pid in here.glob("*.pid"):
            subprocess.run(["kill", "-9", pid.read_text().strip()], check=False, capture_output=True)


def test_importing_the_package_is_light() -> None:
    """No planner, no Spark, no pictures before they are asked for."""
    heavy = "numpy numba pyarrow matplotlib pyspark uvloop"
    code = f"import sys, ordercast; ordercast.connect; print([m for m in '{heavy}'.split() if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "[]\n"
