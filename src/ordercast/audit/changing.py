"""The verdict on a run in which groups change: each log row by row, in process (`verify.histories`)."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pyarrow as pa

from ordercast.audit.columns import among, codes, listed
from ordercast.audit.local import SEQUENCE, LocalSource
from ordercast.audit.order import judge_order
from ordercast.audit.rows import Rows, Sends, rows_of, untouched
from ordercast.audit.verdict import Verdict, judge_bodies
from ordercast.errors import InputError, bounded
from ordercast.names import SiteId
from ordercast.runs import schema
from ordercast.runs.reader import read_rows
from ordercast.verify import findings
from ordercast.verify.histories import LIFE, Change, Histories, Log

ROWS_AT_MOST = 5_000_000
LISTS = ("members", "joined", "left", "away")
KINDS = ("view", "state", "undone")


class Kept:
    """What is left of the logs when everything that was undone is taken out, as the search for cycles wants it."""

    def __init__(self, source: LocalSource, kept: dict[str, set[int]]) -> None:
        table = source.logs(kept)
        site, names = codes(table, "site")
        position = table.column("position").to_numpy()
        wanted = [kept.get(name, set()) for name in names]
        inside = [int(at) in wanted[number] for number, at in zip(site.tolist(), position.tolist(), strict=True)]
        self.run, self.table = source.run, table.filter(pa.array(np.array(inside, np.bool_)))

    def logs(self, sites: Iterable[SiteId] | None, keep: Rows = untouched) -> Any:
        """Return the rows of these sites, or of all, or what `keep` leaves of them."""
        return keep(self.table if sites is None else among(self.table, "site", sites))

    def on_cycles(self, sites: Iterable[SiteId] | None) -> None:
        """Search nothing by hashes: all names are here."""

    def sequences(self, sites: Iterable[SiteId] | None, only: Any = None) -> Any:
        """Return site, position and message of every delivery."""
        return self.logs(sites).select(SEQUENCE)


def audit_changing(source: LocalSource, level: str, *, running: bool = False) -> Verdict:
    """Judge a run in which groups change; with `running`, what a site has not come to yet is not missing."""
    folder, run = source.run.folder, source.run
    if not run.stamped:
        raise InputError(f"{folder}: groups change in this run; deliveries/ needs the columns stamp and order_class")
    if run.deliveries.rows > ROWS_AT_MOST:
        raise InputError(f"{folder}: groups change in this run; of such, at most {ROWS_AT_MOST:,} rows are judged")
    verdict = Verdict(level, run.deliveries.rows)
    names = [row["site"] for row in read_rows(folder, "lives", schema.LIVES)]
    verdict.notes += judge_bodies(source, verdict.properties["body"])
    rows = rows_of(source.logs(None))
    changes: dict[str, list[Change]] = {}
    for told in read_rows(folder, "changes", schema.CHANGES):
        site, change = as_change(f"{folder}: changes/", told)
        changes.setdefault(site, []).append(change)
    begins: dict[str, set[str]] = {}
    for group, sites in run.members.items():
        for site in sites:
            begins.setdefault(site, set()).add(group)
    logs = {
        name: Log(rows.get(name, []), changes.get(name, []), frozenset(begins.get(name, ())))
        for name in sorted({*names, *rows, *changes, *begins})
    }
    _check_logs(folder, logs)
    sends, posts = Sends(), {}
    table = source.sends(None)
    sends.add(table)
    for message, every in sends.more.items():
        verdict.properties["creation"].add(findings.two_sends(message, every))
    if "post" in table.column_names:
        posts = dict(zip(listed(table.column("msg_id")), listed(table.column("post")), strict=True))
    dropped = frozenset(row["msg_id"] for row in read_rows(folder, "drops", schema.DROPS))
    histories = Histories(logs, sends.one, posts, dropped, running)
    for finding in histories.judge():
        verdict.properties[finding.property].add(finding)
    verdict.notes += histories.notes
    _judge_order(source, histories, verdict)
    return verdict


def as_change(where: str, told: dict[str, Any]) -> tuple[SiteId, Change]:
    """Return a row of `changes/`; raises InputError for one that no site writes."""
    where = f"{where}: site {told['site']!r}, position {told['position']}"
    if told["kind"] not in KINDS:
        raise InputError(f"{where}: kind {bounded(str(told['kind']))!r} is not one of {', '.join(KINDS)}")
    if told["epoch"] < 0:
        raise InputError(f"{where}: epoch {told['epoch']} is negative")
    if any(name is None for column in LISTS for name in told[column]):
        raise InputError(f"{where}: a name in a list is null")
    values: dict[str, Any] = {name: tuple(value) if name in LISTS else value for name, value in told.items()}
    return values.pop("site"), Change(**values)


def check_log_name(where: str, name: str) -> None:
    """Raise InputError for what is not the name of a log."""
    site, at, life = name.partition(LIFE)
    if at and not (site and life.isdecimal() and life.isascii()):
        raise InputError(f"{where}: {bounded(name)!r} is not a site, nor site{LIFE}incarnation")


def _check_logs(folder: str, logs: dict[str, Log]) -> None:
    """Raise InputError for logs that cannot be judged: a name that is none, or a beginning that is not there."""
    for name, log in logs.items():
        check_log_name(folder, name)
        first = min([row.position for row in log.rows] + [change.position for change in log.changes], default=0)
        if first > 0:
            why = "export was switched on later, or parts are gone"
            raise InputError(f"{folder}: the log of {name} begins at position {first}: {why}")


def _judge_order(source: LocalSource, histories: Histories, verdict: Verdict) -> None:
    """Judge the order by all logs as they are in the end: classes come and go, so stamps prove it for a group only."""
    found = verdict.properties
    found["classes"].ok = None
    found["causal"].ok = None
    if verdict.level == "causal":
        verdict.notes.append("causal order is not judged where groups change")
    if verdict.level == "fifo":
        found["total"].ok = found["acyclic"].ok = None
        return
    kept = {name: {row.position for row in rows} for name, rows in histories.kept().items()}
    left: Any = Kept(source, kept)
    sites = codes(left.table, "site")[1]
    verdict.notes += judge_order(left, dict.fromkeys(sorted(sites), 1), found["total"], found["acyclic"])
