"""What a site can say of itself: its status, and where a message is."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ordercast.live.site import Site


def explain(site: "Site", message: str) -> dict[str, Any]:
    """Return where a message SOURCE:NUMBER is, as far as this site knows, what it waits for, and since when."""
    source, _, number = message.rpartition(":")
    if source not in site.cluster.sites or not number.isdigit():
        return {"message": message, "error": "give SOURCE:NUMBER, with the name of a site"}
    now, facts = site.clock(), []
    if source == site.me:
        facts += _explain_own(site, int(number), now)
    last = site.last_delivered.get(source, 0)
    if int(number) <= last:
        facts.append(f"{site.me} has delivered messages of {source} up to {last}")
    elif site.groups:
        facts.append(f"{site.me} has not delivered it; the last of {source} here is {last}")
    for held in site.machine.held()[:100]:
        if held.what.startswith(f"{source}:") or f" {source}:" in held.what:
            facts.append(f"held here: {held.what}, {held.reason}, for {max(0.0, now - held.since):.1f} s")
    if site.parked:
        facts.append(f"{len(site.parked)} envelopes wait outside: a reader is more than the limit behind")
    missing = [peer for peer in site.cluster.sites if peer != site.me and peer not in site.links]
    if missing:
        facts.append(f"no link to {', '.join(missing)}")
    return {"message": message, "site": site.me, "facts": facts}


def _explain_own(site: "Site", number: int, now: float) -> list[str]:
    if number > site.outbox.messages:
        return [f"{site.me} has sent {site.outbox.messages} messages; this one does not exist"]
    for sent in site.outbox.sent.values():
        if sent.first <= number < sent.first + sent.many:
            entry = site.deployment.entry(sent.groups) or "?"
            place = "ordered" if sent.stamp is not None else f"ordered by {entry}"
            safe = "not safe yet" if not sent.restored else "not known to be safe since the restart"
            return [f"sent to {'+'.join(sent.groups)} {now - sent.since:.1f} s ago, {place}; {safe}"]
    return ["sent, and safe: every member has it" if site.deployment.receipts else "sent"]


def status(site: "Site") -> dict[str, Any]:
    """Return what there is to know, as plain values."""
    now = site.clock()
    held = [
        {"what": h.what, "reason": h.reason, "seconds": round(max(0.0, now - h.since), 3)}
        for h in site.machine.held()[:100]
    ]
    oldest = min((sent.since for sent in site.outbox.sent.values()), default=now)
    return {
        "site": site.me,
        "cluster": site.cluster.name,
        "protocol": site.cluster.protocol,
        "durable": site.cluster.durable,
        "failed": str(site.failed) if site.failed is not None else None,
        "groups": sorted(site.groups),
        "peers": {peer: peer in site.links for peer in site.cluster.sites if peer != site.me},
        "sent": site.outbox.messages,
        "delivered": site.delivered,
        "unsafe_envelopes": len(site.outbox.sent),
        "unsafe_bytes": site.outbox.unsafe_bytes,
        "under_way": site.outbox.under_way if not site.deployment.receipts else len(site.outbox.sent),
        "oldest_unsafe_seconds": round(now - oldest, 3),
        "parked": len(site.parked),
        "reader_bytes": [reader.bytes for reader in site.readers],
        "link_bytes": {peer: link.waiting_bytes for peer, link in site.links.items()},
        "held": held,
        "records": site.history.count,
        "counts": site.counts,
        "commit_seconds": round(site.commit_seconds, 3),
    }
