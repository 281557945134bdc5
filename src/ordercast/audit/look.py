"""Row by row: the sites that the fold did not clear are judged exactly, by the judges of `verify.deliveries`."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from ordercast.audit.columns import among, codes
from ordercast.audit.facts import Facts, Suspects
from ordercast.audit.rows import Sends, Source, rows_of
from ordercast.errors import InputError
from ordercast.names import SiteId
from ordercast.runs.destinations import Destination, destination
from ordercast.verify.deliveries import EVERY
from ordercast.verify.findings import Answer, Delivery, MsgId
from ordercast.verify.record import Record

LOOK_AT_MOST = 5_000_000  # rows that are looked at one by one, and messages that were sent to those who have them
ONE_AT_MOST = 10_000_000  # of a site alone


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
    chosen = _affordable(facts, suspects)
    if not chosen:
        return Looked(left=set(suspects.rows))
    logs = rows_of(source.logs(chosen))
    _check_positions(logs)
    sends, sent_to = _sends(source, facts, logs, chosen)
    others: Mapping[SiteId, Sequence[Delivery]] = {}
    if run.stamped or run.epochs or run.bodies:
        others = _rows_beside(source, facts, sends, logs, sent_to)
    record = Record.of_rows(
        {group: sorted(sites) for group, sites in facts.members_of(chosen).items()},
        sends.one,
        {site: logs.get(site, []) for site in chosen},
        more_sends=sends.more,
        newest=facts.newest() if running else None,
        beside=others,
        only=frozenset(chosen),
    )
    names = ["creation", "duplicate", "completeness", "fifo", "epochs", *(["body"] if run.bodies else [])]
    for name in [*names, *(["stamps", "classes"] if run.stamped else [])]:
        for finding in EVERY[name](record):
            found[name].add(finding)
    return Looked(set(chosen), _is_mixed(record), suspects.rows.keys() - set(chosen))


def _affordable(facts: Facts, suspects: Suspects) -> list[SiteId]:
    """Choose suspects whose rows, and what was sent to them, are not too many; of one alone more is taken."""
    chosen: list[SiteId] = []
    rows = 0
    for site, many in suspects.rows.items():
        if many > ONE_AT_MOST:
            continue
        rows += many
        if chosen and rows > LOOK_AT_MOST:
            break
        chosen.append(site)
    while chosen and facts.reach(chosen) > (LOOK_AT_MOST if len(chosen) > 1 else ONE_AT_MOST):
        chosen = chosen[: len(chosen) // 2]
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
    """Read what was sent to these sites, and what they delivered all the same; with the destinations of the former."""
    sent_to = facts.sent_to(chosen)
    sends = Sends()
    sends.add(source.sends(sent_to))
    unknown = {row.msg_id for log in logs.values() for row in log if not _is_as_sent(row, sends)}
    if unknown:
        named = source.sends_named(unknown)
        sends.add(among(named, "group", set(codes(named, "group")[1]) - sent_to))
    return sends, sent_to


def _is_as_sent(row: Delivery, sends: Sends) -> bool:
    sent = sends.one.get(row.msg_id)
    return sent is not None and sent[:3] == (row.groups, row.source, row.number)


def _rows_beside(
    source: Source,
    facts: Facts,
    sends: Sends,
    logs: Mapping[SiteId, Sequence[Delivery]],
    sent_to: set[Destination],
) -> Mapping[SiteId, Sequence[Delivery]]:
    """Read what a cleared site tells of each message that was sent to these sites, or that they delivered all the same.

    A message is read at one site, so there are no more rows than messages.
    """
    strange = {row.msg_id for log in logs.values() for row in log if destination(row.groups) not in sent_to}
    strange |= {msg_id for msg_id, one in sends.one.items() if destination(one.groups) not in sent_to}
    delivered_to = {row.groups for log in logs.values() for row in log} | {one.groups for one in sends.one.values()}
    beside = facts.beside(sent_to | {destination(groups) for groups in delivered_to})
    if not beside:
        return {}
    found = rows_of(source.logs(beside, lambda table: _of_sites(table, beside, sent_to, strange)))
    return {site: found.get(site, []) for site in beside}


def _of_sites(
    table: Any, of: Mapping[SiteId, set[Destination]], whole: Collection[Destination], ids: Collection[MsgId]
) -> Any:
    """Return each site's rows of its destinations; those of some destinations all, those of others by name."""
    at_site, sites = codes(table, "site")
    at_group, groups = codes(table, "group")
    number = {group: index for index, group in enumerate(groups)}
    pairs = [at * len(groups) + number[g] for at, s in enumerate(sites) for g in of.get(s, ()) if g in number]
    own = table.filter(pa.array(np.isin(at_site.astype(np.int64) * len(groups) + at_group, pairs)))
    odd = set(groups) - set(whole)
    if not odd:
        return own
    named = among(among(own, "group", odd), "msg_id", ids)
    return pa.concat_tables([among(own, "group", set(groups) & set(whole)), named], promote_options="permissive")


def _is_mixed(record: Record) -> bool:
    """Whether some message was seen under two destinations or in two classes."""
    pairs = record.told_differently
    if any(one.groups != other.groups or one.order_class != other.order_class for one, other in pairs):
        return True
    rows = chain.from_iterable((*record.rows.values(), *record.beside.values()))
    return any(row.msg_id in record.sends and record.sends[row.msg_id].groups != row.groups for row in rows)
