"""What a run of experiments was: its date, command, seed and versions, for its page, its tables and `run.json`."""

import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from ordercast.errors import InputError

PACKAGES = ("ordercast", "pyspark", "numpy")
KEY = b"ordercast"
"""Under which a table's metadata says what run it is of."""


class About(msgspec.Struct, frozen=True):
    """What somebody needs to run it again."""

    date: str
    command: str
    seed: int
    versions: dict[str, str]

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        return f"{self.date}, seed {self.seed}, {versions}: {self.command}"

    def write(self, path: Path) -> None:
        """Write `run.json`."""
        try:
            path.write_bytes(msgspec.json.format(msgspec.json.encode(self)) + b"\n")
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from None

    def write_table(self, table: Any, path: Path) -> None:
        """Write a Parquet file that says what run it is of."""
        pq.write_table(table.replace_schema_metadata({KEY: msgspec.json.encode(self)}), path)

    def write_rows(self, rows: list[dict[str, Any]], path: Path) -> None:
        """Write rows as Parquet."""
        self.write_table(pa.Table.from_pylist(rows), path)


def about(command: str, seed: int) -> About:
    """Return what a run is that begins now."""
    versions = {"Python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:  # shipped to where it is not installed
            versions[name] = "unknown"
    return About(f"{datetime.now(UTC):%Y-%m-%d %H:%M UTC}", command, seed, versions)
