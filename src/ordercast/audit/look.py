"""Row by row: the sites that the fold did not clear are judged exactly, by the judges of `verify.deliveries`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise

from ordercast.audit.facts import Facts, Suspects
from ordercast.audit.rows import Sends, Source, rows_of
from ordercast.errors import InputError
from ordercast.names import SiteId
from ordercast.runs.destinations import Destination, destination
from ordercast.verify.deliveries import EVERY
from ordercast.verify.findings import Answer, Delivery
from ordercast.verify.record import Record

LOOK_AT_MOST = 5_000_000  # rows that are looked at one by one


@dataclass
class Looked:
    """What a look at rows left behind."""

    sites: set[SiteId] = field(default_factory=set)
    mixed: bool = False
    """Whether some message was seen under two destinations or in two classes: then stamps certify nothing."""
    left: set[SiteId] = field(default_factory=set)
    """The suspects that were too many to look at."""


def look_at(source: Source, facts: Facts, suspects: Suspects, found: Mapping[str, Answer], *, running: bool) -> Looked:
    """Judge the suspects, and compare them with one cleared member of each of their destinations."""
    run = source.run
    chosen = _affordable(suspects)
    logs = rows_of(source.logs(chosen))
    _check_positions(logs)
    sends, groups = _sends(source, facts, logs, chosen)
    beside = facts.beside(groups) if run.stamped or run.epochs or run.bodies else []
    others = rows_of(source.logs(beside)) if beside else {}
    record = Record.of_rows(
        {group: sorted(sites) for group, sites in facts.members_of(chosen).items()},
        sends.one,
        {site: logs.get(site, []) for site in chosen},
        more_sends=sends.more,
        newest=facts.newest() if running else None,
        beside={site: others.get(site, []) for site in beside},
        only=frozenset(chosen),
    )
    names = ["creation", "duplicate", "completeness", "fifo", "epochs", *(["body"] if run.bodies else [])]
    for name in [*names, *(["stamps", "classes"] if run.stamped else [])]:
        for finding in EVERY[name](record):
            found[name].add(finding)
    return Looked(set(chosen), _is_mixed(record), suspects.rows.keys() - set(chosen))


def _affordable(suspects: Suspects) -> list[SiteId]:
    """Choose suspects, at least one, whose rows are not too many."""
    chosen: list[SiteId] = []
    rows = 0
    for site, many in suspects.rows.items():
        rows += many
        if chosen and rows > LOOK_AT_MOST:
            break
        chosen.append(site)
    return chosen


def _check_positions(logs: Mapping[SiteId, Sequence[Delivery]]) -> None:
    """Refuse a log in which two messages have one position: it has no order to judge."""
    for site, log in sorted(logs.items()):
        for one, other in pairwise(log):
            if one.position == other.position and one.msg_id != other.msg_id:
                raise InputError(f"deliveries/: site {site!r}: two messages have position {other.position}")


def _sends(
    source: Source, facts: Facts, logs: Mapping[SiteId, Sequence[Delivery]], chosen: Sequence[SiteId]
) -> tuple[Sends, set[Destination]]:
    """Read what was sent to these sites, and what they delivered all the same; with the destinations of both."""
    delivered_to = {row.groups for log in logs.values() for row in log}
    groups = set(map(destination, delivered_to)) | facts.sent_to(chosen)
    sends = Sends()
    sends.add(source.sends(groups))
    unknown = {row.msg_id for log in logs.values() for row in log if row.msg_id not in sends.one}
    if unknown:
        sends.add(source.sends_named(unknown))
    return sends, groups | {destination(groups) for groups in {one.groups for one in sends.one.values()}}


def _is_mixed(record: Record) -> bool:
    """Whether some message was seen under two destinations or in two classes."""
    pairs = record.told_differently
    if any(one.groups != other.groups or one.order_class != other.order_class for one, other in pairs):
        return True
    rows = chain.from_iterable((*record.rows.values(), *record.beside.values()))
    return any(row.msg_id in record.sends and record.sends[row.msg_id].groups != row.groups for row in rows)
