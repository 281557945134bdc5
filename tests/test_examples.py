"""Examples are short, and run."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from ordercast.live.ports import free_ports

EXAMPLES = sorted((Path(__file__).parent.parent / "examples").glob("*.py"))


def free_base(count: int = 10) -> int:
    """Return the first of some ports in a row that are free, and given to nobody else."""
    while True:
        ports = free_ports(count)
        if ports[-1] - ports[0] == count - 1:
            return ports[0]


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short_and_runs(path: Path) -> None:
    """Less than a hundred lines; what it asserts holds."""
    assert len(path.read_text("utf-8").splitlines()) < 100
    assert ast.get_docstring(ast.parse(path.read_text("utf-8")))
    command = [sys.executable, str(path), str(free_base())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
    assert done.stdout
