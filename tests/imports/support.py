"""A folder with a mapping and logs, imported and read back."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from ordercast.imports.run import Imported, import_logs

GROUPS = '\n[groups]\na = ["p", "q"]\nb = ["q", "r"]\n'


def json_lines(rows: Iterable[Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def write(folder: Path, mapping: str, files: dict[str, str | bytes]) -> Path:
    """Write logs and their mapping; groups are added."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
    (folder / "mapping.toml").write_text(mapping + GROUPS)
    return folder / "mapping.toml"


def imported(folder: Path, mapping: str, files: dict[str, str | bytes]) -> Imported:
    return import_logs(write(folder, mapping, files), folder / "run")


def rows(folder: Path, table: str) -> list[dict[str, Any]]:
    """Return the rows of a table of the run, as they were written."""
    found: list[dict[str, Any]] = pq.read_table(folder / "run" / table, partitioning=None).to_pylist()
    return found
