"""`ordercast audit`: delivery logs in, a verdict per property out."""

import sys
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from ordercast.errors import InputError
from ordercast.show.terminal import Screen, shown

Flag = Parameter(negative="")
SMALL_ROWS = 1_000_000
STYLES = {"good": "green", "bad": "bold red", "dim": "dim"}


class _NoPandas(MetaPathFinder):
    """Arrow loads pandas, for a second, only to ask whether a list is one of its series."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> None:
        """Say that it is not there."""
        if fullname == "pandas":
            raise ImportError(fullname)


def audit(
    run: str,
    /,
    *,
    level: Literal["fifo", "total", "acyclic", "causal"] = "acyclic",
    local: Annotated[bool, Flag] = False,
    running: Annotated[bool, Flag] = False,
    master: str | None = None,
    conf: list[str] | None = None,
    html: Path | None = None,
    follow: Annotated[bool, Flag] = False,
    state: Path | None = None,
    metrics: int | None = None,
    seconds: float | None = None,
    as_json: Annotated[bool, Parameter(name="--json", negative="")] = False,
) -> int:
    """Judge a run by its logs: what was promised, what was broken, and an example of each break.

    Example: ordercast audit out/run --local

    Parameters
    ----------
    run
        A run directory (deliveries/, sends/, membership/ in Parquet), written by `simulate`, by live sites, or by
        anything else.
    level
        What has to hold: fifo, total, acyclic or causal.
    local
        In this process, whatever the size; a run of less than a million rows is judged in process anyway.
    running
        The run goes on: what a site has not come to yet is not missing.
    master
        Judge on Spark, and where that runs: local[*], or the address of a cluster. Larger runs are judged on Spark
        anyway, on local[*].
    conf
        A setting of Spark, NAME=VALUE; may be given several times.
    html
        Write the verdict to this page too.
    follow
        Keep up with live sites that export: judge what they write as it comes, until Ctrl-C.
    state
        With --follow: a file in which the audit keeps what it knows; who begins again goes on from it.
    metrics
        With --follow: a port of this machine at which Prometheus reads how the audit is.
    seconds
        With --follow: end after so long.
    as_json
        Print JSON.

    """
    source: Any
    if follow:
        given = {"local": local, "running": running, "master": master, "conf": conf, "html": html}
        wrong = next((name for name, value in given.items() if value), None)
        if wrong is not None:
            raise InputError(f"--{wrong} does not go with --follow, which judges in this process, as it comes")
        from ordercast.cli.follow import follow as go_along

        return go_along(run, level, state=state, metrics=metrics, seconds=seconds, as_json=as_json)
    if state is not None or metrics is not None or seconds is not None:
        raise InputError("--state, --metrics and --seconds go with --follow")
    if local or (master is None and not conf and (_is_small(run) or _changes(run))):
        sys.meta_path.insert(0, _NoPandas())
        from ordercast.audit.local import LocalSource
        from ordercast.audit.verdict import audit as judge
        from ordercast.runs.reader import keep_memory

        keep_memory()
        source = LocalSource(run)
        if source.run.changes:
            from ordercast.audit.changing import audit_changing

            verdict = audit_changing(source, level, running=running)
        else:
            verdict = judge(source, level, running=running)
    else:
        from ordercast.audit.verdict import audit as judge
        from ordercast.spark.session import session
        from ordercast.spark.source import SparkSource

        if _changes(run):
            raise InputError(f"{run}: groups change in this run; it is judged in process: --local")
        with session("ordercast audit", master, conf or []) as spark:
            verdict = judge(SparkSource(spark, run), level, running=running)
    if html is not None:
        from ordercast.audit.page import write_page

        write_page(verdict, run, html)
    if as_json:
        print(msgspec.json.format(msgspec.json.encode(verdict.as_json()), indent=1).decode())
    else:
        _show(verdict, run, html)
    return 0 if verdict.ok else 1


def _changes(run: str) -> bool:
    """Whether groups change in a run: such runs are judged in process."""
    from ordercast.runs.reader import has_table

    return has_table(run, "lives")


def _is_small(run: str) -> bool:
    """Whether a run has less than a million rows; what cannot be counted here is left to whoever can read it."""
    if "://" in run:
        return False
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        files = [file for table in ("deliveries", "sends") for file in (Path(run) / table).rglob("*.parquet")]
        return bool(sum(pq.read_metadata(file).num_rows for file in files) < SMALL_ROWS)
    except (pa.ArrowException, OSError):
        return True  # it will say what is wrong


def _show(verdict: Any, run: str, html: Path | None) -> None:
    console = Screen()
    table = Table(title=f"{shown(run)}: {verdict.deliveries:,} deliveries, level {verdict.level} {verdict.outcome}")
    for head in ("property", "verdict", "violations", "for example"):
        table.add_column(head, justify="right" if head == "violations" else "left", overflow="fold")
    for name, finding in verdict.properties.items():
        word, kind = verdict.word(name)
        many = f"{finding.violations:,}" if finding.violations else ""
        table.add_row(name, Text(word, STYLES[kind]), many, shown(finding.says))
    console.print(table)
    for note in verdict.notes:
        console.print(note, style="yellow")
    if html is not None:
        console.print(f"page: {html}")
