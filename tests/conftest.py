"""What several test modules share: one Spark session per process, and which tests share a process."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from ordercast.spark.session import Spark

COMMANDS = "commands"  # each starts a Spark of its own: one after the other
TOGETHER = {
    "tests/spark/test_spark.py::test_the_command_is_quiet": COMMANDS,
    "tests/spark/test_spark.py::test_a_missing_java_is_told_in_one_line": COMMANDS,
    "tests/spark/test_spark.py::test_a_cluster_runs_the_same_jobs": COMMANDS,
    "tests/test_shown.py::test_it_does_what_it_says_on_spark": COMMANDS,
    "tests/spark/": "a session for tests of jobs",
    "tests/audit/test_faults.py": "a session for tests of audits",
    "tests/audit/test_collisions.py": "a session for tests of audits",
    "tests/audit/test_against_naive.py": "a session for tests of audits",
    "tests/test_demo.py": "one demo",
}
"""Tests that run in one process, one after the other: they share something that takes long to make."""


class Together(LoadScopeScheduling):  # type: ignore[misc]
    """Gives each test to whichever process is free, those of a group all to one."""

    def _split_scope(self, nodeid: str) -> str:
        return next((group for start, group in TOGETHER.items() if nodeid.startswith(start)), nodeid)


class Groups:
    """Makes the scheduler; a mark in the tests would be read by each process, this is read by the one that gives."""

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Together:
        """Return the scheduler."""
        return Together(config, log)


def pytest_configure(config: pytest.Config) -> None:
    """Use the groups when there are several processes."""
    if config.pluginmanager.hasplugin("xdist"):
        config.pluginmanager.register(Groups())


@pytest.fixture(scope="session")
def spark() -> "Iterator[Spark]":
    from ordercast.spark.session import session

    with session("tests", "local[2]") as running:
        yield running
