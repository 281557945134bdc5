"""Causal order of a run: what a source had delivered, and sent, before it sent a message."""

from bisect import bisect_left

from ordercast.audit.destinations import groups_of
from ordercast.audit.merge import Merged
from ordercast.audit.rows import Finding, Row, Sends, Source, firsts, rows_of
from ordercast.errors import InputError
from ordercast.names import SiteId
from ordercast.verify.causes import causal_break
from ordercast.verify.deliveries import Record, Sent

CAUSAL_AT_MOST = 2_000_000


def judge_causal(source: Source, merged: Merged, level: str, found: Finding) -> list[str]:
    """Judge where both are delivered; needs `after` in sends. Returns what is to be noted."""
    if not source.context:
        found.ok = None
        if level == "causal":
            raise InputError("sends/: column 'after' is missing: causal order needs what a source had delivered before")
        return []
    if merged.rows > CAUSAL_AT_MOST:
        found.ok = None
        return [f"causal order is judged up to {CAUSAL_AT_MOST:,} deliveries"]
    logs = {site: firsts(log) for site, log in rows_of(source.logs(merged.sites)).items()}
    sends = Sends()
    sends.add(source.sends(None))
    twice = _same_number(sends)
    if twice is not None:
        found.ok = None
        return [f"causal order is not judged: {twice}"]
    plain = {site: [row.msg_id for row in log] for site, log in logs.items()}
    said = causal_break(Record({}, _counted(sends, logs), plain))
    if said is None:
        return []
    named = {(step.site, message) for step in said.steps for message in (step.first, step.then)}
    shown = [row.shown() for site, log in sorted(logs.items()) for row in log if (site, row.msg_id) in named]
    steps = [{"site": s.site, "how": s.how, "first": s.first, "then": s.then} for s in said.steps]
    found.add(str(said), "circle" if said.circle else "late", shown, many=said.many, steps=steps)
    return []


def _counted(sends: Sends, logs: dict[SiteId, list[Row]]) -> dict[str, Sent]:
    """Return the sends; `after` as a place in the log that there is, which may begin late and have gaps."""
    positions = {site: [row.position for row in log] for site, log in logs.items()}
    return {
        one.msg_id: Sent(
            groups_of(one.group), one.source, one.source_seq, bisect_left(positions.get(one.source, []), one.after)
        )
        for one in sends.one.values()
    }


def _same_number(sends: Sends) -> str | None:
    """Say which two messages of a source have one number: then nobody knows which was sent first."""
    seen: dict[tuple[SiteId, int], str] = {}
    for one in sorted(sends.one.values()):
        other = seen.setdefault((one.source, one.source_seq), one.msg_id)
        if other != one.msg_id:
            return f"{other} and {one.msg_id} are both number {one.source_seq} of {one.source}"
    return None
