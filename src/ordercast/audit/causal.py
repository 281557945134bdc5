"""Causal order of a run: what a source had delivered, and sent, before it sent a message."""

from bisect import bisect_left

from ordercast.audit.facts import Facts
from ordercast.audit.rows import Sends, Source, rows_of
from ordercast.errors import InputError
from ordercast.names import SiteId
from ordercast.verify.causes import causal
from ordercast.verify.findings import Answer, Delivery, MsgId, Sent
from ordercast.verify.record import Record, first_of_each

CAUSAL_AT_MOST = 2_000_000


def judge_causal(source: Source, facts: Facts, level: str, found: Answer) -> list[str]:
    """Judge causal order, if sends have the column `after`; returns notes for the verdict."""
    if not source.run.context:
        found.ok = None
        if level == "causal":
            raise InputError("sends/: column 'after' is missing: causal order needs what a source had delivered before")
        return []
    if facts.rows > CAUSAL_AT_MOST:
        found.ok = None
        return [f"causal order is judged up to {CAUSAL_AT_MOST:,} deliveries"]
    logs = {site: list(first_of_each(log).values()) for site, log in rows_of(source.logs(facts.sites())).items()}
    sends = Sends()
    sends.add(source.sends(None))
    twice = _same_number(sends)
    if twice is not None:
        found.ok = None
        return [f"causal order is not judged: {twice}"]
    for finding in causal(Record.of_rows({}, _counted(sends, logs), logs)):
        found.add(finding)
    return []


def _counted(sends: Sends, logs: dict[SiteId, list[Delivery]]) -> dict[MsgId, Sent]:
    """Return the sends with `after` as an index into the log, which may begin late and lack positions."""
    positions = {site: [row.position for row in log] for site, log in logs.items()}
    return {
        msg_id: one._replace(after=bisect_left(positions.get(one.source, []), one.after))
        for msg_id, one in sends.one.items()
    }


def _same_number(sends: Sends) -> str | None:
    """Say which two messages of a source have one number: then nobody knows which was sent first."""
    seen: dict[tuple[SiteId, int], MsgId] = {}
    for msg_id, one in sorted(sends.one.items()):
        other = seen.setdefault((one.source, one.number), msg_id)
        if other != msg_id:
            return f"{other} and {msg_id} are both number {one.number} of {one.source}"
    return None
