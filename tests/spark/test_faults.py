"""What goes wrong inside Spark is told in one line, with what to do."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ordercast.spark.faults import reason
from tests.support.logs import TWINS, make_logs

STACK = "\tat java.base/java.lang.Thread.run(Thread.java:840)\n"
SPARK = "org.apache.spark.SparkException"
AWAIT = f"An error occurred while calling o55.getResult.\n: {SPARK}: Exception thrown in awaitResult: \n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            f"{AWAIT}{STACK}Caused by: {SPARK}: Job aborted: java.io.IOException: Cannot run program"
            f' "/opt/py": error=2, No such file or directory\n{STACK}',
            "executors cannot run /opt/py: PYSPARK_PYTHON names their Python",
        ),
        (
            f"{AWAIT}{STACK}Caused by: {SPARK}: EOFException occurred while reading the port number"
            f" from pyspark.daemon's stdout.\n{STACK}",
            "the Python of executors does not run PySpark: PYSPARK_PYTHON names it",
        ),
        (
            f"{AWAIT}{STACK}Caused by: java.lang.OutOfMemoryError: Java heap space\n{STACK}",
            "Java has run out of memory; give",
        ),
        (
            "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
            "  File \"job.py\", line 8, in work\n    import numpy\nModuleNotFoundError: No module named 'numpy'\n",
            "the Python of executors has no module numpy",
        ),
        (
            'Traceback (most recent call last):\n  File "job.py", line 8, in work\n    raise ValueError("no: 7")\n'
            f"ValueError: no: 7\n\n{STACK}",
            "ValueError: no: 7",
        ),
        (
            f"{AWAIT}{STACK}Caused by: {SPARK}: Job 3 cancelled because of you\n{STACK}",
            "Job 3 cancelled because of you",
        ),
        ("", "no reason was given"),
    ],
)
def test_the_reason_is_found_in_the_stack(text: str, says: str) -> None:
    assert reason(text).startswith(says)


@pytest.mark.slow
def test_a_wrong_python_is_told_in_one_line(tmp_path: Path) -> None:
    make_logs(300, TWINS).write(tmp_path)
    command = [sys.executable, "-m", "ordercast", "audit", str(tmp_path), "--master", "local[1]"]
    environment = {**os.environ, "PYSPARK_PYTHON": "/nowhere/python3"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)

    assert done.returncode == 1
    assert done.stderr == (
        "ordercast: Spark: executors cannot run /nowhere/python3: PYSPARK_PYTHON names their Python\n"
    )
