"""Judges of a ledger: what must be delivered, in which order, under which numbers, and which receipts were true."""

from ordercast.names import SiteId
from ordercast.sim.ledger import Ledger
from ordercast.verify.deliveries import JUDGES
from ordercast.verify.record import Record


def promised(ledger: Ledger, from_epoch: int = 0) -> set[str]:
    """Return what must be delivered everywhere; where nothing is durable, only what was sent in the last epoch."""
    logs = [*ledger.logs.values(), *ledger.forgotten.values()]
    found = {entry.name for log in logs for entry in log} & ledger.attempts.keys()
    for site, names in ledger.disks.items():
        found |= {name for name in names if name in ledger.attempts and ledger.attempts[name].sent.source == site}
    for name, attempt in ledger.attempts.items():
        whole = attempt.taken and not attempt.failed and attempt.life not in ledger.crashed
        if attempt.acknowledged or whole:
            found.add(name)
    if not ledger.durable:
        last = {name for name in found if ledger.attempts[name].epoch >= from_epoch}
        found = {name for name in last if ledger.attempts[name].life not in ledger.crashed}
    return found


def record(ledger: Ledger, wanted: set[str]) -> Record:
    """Return everything for the judges of `verify.deliveries`."""
    logs: dict[SiteId, list[str]] = {}
    stamps: dict[SiteId, list[tuple[tuple[int, int], bytes]]] = {}
    for (site, life), log in sorted(ledger.logs.items()):  # a site that forgot everything may begin its stamps anew
        logs.setdefault(site, []).extend(entry.name for entry in log)
        places = [((ledger.configuration.order_of(entry.groups), life), entry.stamp) for entry in log]
        stamps.setdefault(site, []).extend(places)
    delivered = {name for log in logs.values() for name in log}
    sends = {name: attempt.sent for name, attempt in ledger.attempts.items() if name in wanted | delivered}
    return Record(ledger.configuration.members, sends, logs, stamps)


def findings(ledger: Ledger, *, whole: bool = True, from_epoch: int = 0) -> list[tuple[str, str]]:
    """Return everything that is wrong; `whole`: the world calmed down, so nothing may be missing."""
    wanted = promised(ledger, from_epoch)
    told = record(ledger, wanted)
    found = list(ledger.problems)
    for name in ("duplicate", "stamps", *sorted(ledger.promises)):
        if (example := JUDGES[name](told)) is not None:
            found.append((name, example.says))
    if whole:
        found += [("completeness", example) for example in _missing(ledger, told, wanted)]
        found += [("receipts", f"nobody answers who sent {names[0]}") for names in ledger.open]
    found += [("numbers", example) for example in _two_of_one_number(ledger)]
    return found + [("receipts", example) for example in _false_receipts(ledger)]


def _missing(ledger: Ledger, told: Record, wanted: set[str]) -> list[str]:
    delivered = {site: set(log) for site, log in told.logs.items()}
    return [
        f"{site} does not deliver {name}"
        for name in sorted(wanted)
        for site in ledger.configuration.union(ledger.attempts[name].sent.groups)
        if name not in delivered.get(site, ())
    ]


def _false_receipts(ledger: Ledger) -> list[str]:
    """Return receipts that tell another number or place than what is delivered."""
    entries = {entry.name: entry for log in ledger.logs.values() for entry in log}
    wrong, ids = [], dict[tuple[SiteId, tuple[int, int], int], str]()
    for name, attempt in ledger.attempts.items():
        entry, receipt = entries.get(name), attempt.receipt
        if entry is None:
            continue
        if attempt.refused:
            wrong.append(f"{name} was refused, and is delivered")
        life = attempt.disk if ledger.durable else (attempt.life[1], 0)
        if ids.setdefault((entry.source, life, entry.number), name) != name:
            wrong.append(f"{entry.source}:{entry.number} is {ids[entry.source, life, entry.number]} and {name}")
        if receipt is not None and receipt.number != entry.number:
            wrong.append(f"{name} was taken as number {receipt.number} and is number {entry.number}")
        if receipt is not None and receipt.stamp not in (None, entry.stamp):
            wrong.append(f"the receipt of {name} tells another place than it is delivered at")
    return wrong


def _two_of_one_number(ledger: Ledger) -> list[str]:
    """Return what one site delivers under one number of one source, though it is two messages."""
    found, known = [], dict[tuple[SiteId, int, SiteId, int], str]()
    for (site, life), log in ledger.logs.items():
        for entry in log:
            key = (site, 0 if ledger.durable and site != entry.source else life, entry.source, entry.number)
            if ledger.durable and known.setdefault(key, entry.name) != entry.name:
                found.append(f"{site} delivers {known[key]} and {entry.name} as {entry.source}:{entry.number}")
    return found
