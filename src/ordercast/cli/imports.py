"""`ordercast import`: logs of other systems in, a run directory out."""

from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import Parameter

from ordercast.show.terminal import Screen, shown


def import_(
    mapping: Path,
    /,
    *,
    out: Path,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Turn delivery logs of other systems into a run directory, which `ordercast audit` judges.

    JSON lines of any kind, and what Kafka's, NATS's and Redis's own tools print; plain or gzip.

    Example: ordercast import examples/import/nats/mapping.toml --out out/nats

    Parameters
    ----------
    mapping
        A TOML file: which files, in which format, and which field of a row is what (docs/import.md).
    out
        Where to; a folder that is new or empty.
    as_json
        Print JSON.

    """
    from rich.progress import Progress

    from ordercast.imports.run import import_logs, size_of

    console = Screen(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task("importing", total=size_of(mapping))
        found = import_logs(mapping, out, lambda many: progress.advance(task, many))
    if as_json:
        told = {
            "out": str(out), "deliveries": found.deliveries, "sends": found.sends, "sites": found.logs,
            "passed_over": found.passed_over, "notes": found.notes,
        }  # fmt: skip
        print(msgspec.json.encode(told).decode())
        return 0
    screen = Screen()
    screen.print(
        f"{shown(str(out))}: {found.deliveries:,} deliveries of {len(found.logs)} sites, {found.sends:,} sends"
    )
    for table, rows in found.passed_over.items():
        screen.print(f"{rows:,} rows are not for {table}/: the mapping says when", style="dim")
    for note in found.notes:
        screen.print(shown(note), style="yellow")
    return 0
