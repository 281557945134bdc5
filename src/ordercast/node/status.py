"""What a site can say of itself: its status, and where a message is."""

from typing import TYPE_CHECKING, Any

import msgspec

from ordercast.names import ClassId, GroupId, SiteId

if TYPE_CHECKING:
    from ordercast.epochs.participant import Participant
    from ordercast.node.node import Node

HELD_AT_MOST = 100  # shown


class Waiting(msgspec.Struct, frozen=True):
    """Something that is held back in a machine: what, why, and for how long."""

    what: str
    reason: str
    seconds: float


class Window(msgspec.Struct, frozen=True):
    """What this site has sent to one destination and is not known to be safe, and who waits because of it."""

    to: str
    envelopes: int
    bytes: int
    seconds: float
    """Age of the oldest."""
    posts_waiting: int


class ReaderStatus(msgspec.Struct, frozen=True):
    """A reader, and how far it is behind."""

    name: str
    groups: list[GroupId] | None
    bytes: int
    position: int
    policy: str
    holds_up: list[str]
    """Groups whose messages wait because of it."""


class ClassStatus(msgspec.Struct, frozen=True):
    """A class of groups that change."""

    name: str
    groups: list[GroupId]
    members: list[SiteId]
    protocol: str
    policy: str
    delivery: str
    state: str
    """open, closed, opening, or none where this site is no member."""
    ordered_by: list[SiteId] = []
    """Its sequencers, or the entries of its plan."""


class Epochs(msgspec.Struct, frozen=True):
    """Where groups change: the configuration that this site is in, and who leads."""

    number: int
    manager: SiteId | None
    council: list[SiteId]
    suspected: list[SiteId]
    away: dict[SiteId, list[GroupId]]
    """Who was taken out of which groups, because it was suspected."""
    classes: list[ClassStatus]


class Status(msgspec.Struct, frozen=True):
    """All there is to know of a site, as plain values; read by metrics, command line and dashboard."""

    site: SiteId
    cluster: str
    protocol: str
    durable: bool
    phase: str
    failed: str | None
    lost: str | None
    """Why peers say that this site has lost its history."""
    groups: list[GroupId]
    peers: dict[SiteId, bool]
    """Whom this site needs, and whether there is a link."""
    refused: dict[SiteId, str]
    sent: int
    delivered: int
    unsafe_envelopes: int
    unsafe_bytes: int
    under_way: int
    oldest_unsafe_seconds: float
    windows: list[Window]
    posts_waiting: int
    parked: int
    readers: list[ReaderStatus]
    reader_bytes: list[int]
    held: list[Waiting]
    records: int
    counts: dict[str, int]
    commit_seconds: float
    clock: float = 0.0
    """The site's time, in seconds since 1970."""
    epochs: Epochs | None = None
    """None where groups are fixed."""
    link_bytes: dict[SiteId, int] = {}


def status(node: "Node") -> Status:
    """Return what there is to know."""
    now, outbox, peers = node.clock(), node.outbox, node.peers
    held = [Waiting(h.what, h.reason, _age(now, h.since)) for h in node.machines.held()[:HELD_AT_MOST]]
    oldest = min((sent.since for sent in outbox.unsafe.values()), default=now)
    under_way = sum(outbox.under_way.values()) if not node.receipts else len(outbox.unsafe)
    counts = {
        "batches": outbox.batches, "commits": node.pipeline.commits, "records": node.pipeline.written,
        "reconnects": peers.reconnects, "resent": node.intake.resent, "parked": node.intake.waited,
        "extra": node.intake.extra, "checkpoints": node.keeper.checkpoints,
    }  # fmt: skip
    return Status(
        site=node.me, cluster=node.settings.cluster, protocol=node.deployment.protocol, durable=node.settings.durable,
        phase=node.phase.value, failed=str(node.failed) if node.failed is not None else None, lost=peers.lost,
        groups=sorted(node.groups), peers={peer: peer in peers.up for peer in sorted(peers.needed | peers.up)},
        refused=dict(peers.refused), sent=outbox.messages, delivered=node.deliveries.count,
        unsafe_envelopes=len(outbox.unsafe), unsafe_bytes=sum(outbox.unsafe_bytes.values()), under_way=under_way,
        oldest_unsafe_seconds=_age(now, oldest), windows=_windows(node, now), posts_waiting=len(outbox.waiting),
        parked=sum(map(len, node.intake.parked.values())), readers=_readers(node),
        reader_bytes=[reader.bytes for reader in node.readers.all], held=held, records=node.pipeline.written,
        counts=counts, commit_seconds=round(node.keeper.commit_seconds, 3),
        clock=now,
    )  # fmt: skip


def epochs(here: "Participant") -> Epochs:
    """Return which configuration a site is in, who leads, and what its classes are doing."""
    setup = here.setup
    away = {site: list(groups) for site, groups in setup.away.items()}
    classes = [_class(here, class_id) for class_id in setup.classes]
    return Epochs(setup.number, here.leader, list(setup.council), sorted(here.suspected), away, classes)


def _class(here: "Participant", class_id: ClassId) -> ClassStatus:
    of_class = here.setup.classes[class_id]
    state = "open" if here.runs(class_id) else "closed" if class_id in here.closed else "opening"
    return ClassStatus(
        str(class_id), list(of_class.groups), sorted(of_class.sites), of_class.protocol, str(of_class.policy),
        str(of_class.delivery), state if here.me in of_class.sites else "none",
        sorted({by for group in of_class.groups if (by := of_class.ordered_by(group)) is not None}),
    )  # fmt: skip


def _age(now: float, since: float) -> float:
    return round(max(0.0, now - since), 3)


def _windows(node: "Node", now: float) -> list[Window]:
    """Return one entry for each destination that something is under way to, or waits for."""
    found: dict[tuple[GroupId, ...], list[float]] = {}
    for sent in node.outbox.unsafe.values():
        if not sent.restored:
            found.setdefault(sent.groups, []).append(sent.since)
    waiting: dict[tuple[GroupId, ...], int] = {}
    for post, since in node.outbox.waiting:
        waiting[post.groups] = waiting.get(post.groups, 0) + 1
        found.setdefault(post.groups, []).append(since) if post.groups not in found else None
    return [
        Window("+".join(groups), len(times), node.outbox.unsafe_bytes.get(groups, 0), _age(now, min(times)),
               waiting.get(groups, 0))
        for groups, times in sorted(found.items())
    ]  # fmt: skip


def _readers(node: "Node") -> list[ReaderStatus]:
    waiting = {class_id: node.readers.holds_up(class_id) for class_id in node.intake.parked}
    found = []
    for reader in node.readers.all:
        classes = {class_id for class_id, holder in waiting.items() if holder is reader}
        holds_up = sorted(group for group in node.groups if node.class_of((group,)) in classes) if classes else []
        groups = sorted(reader.groups) if reader.groups is not None else None
        found.append(ReaderStatus(reader.name, groups, reader.bytes, reader.next, reader.policy, holds_up))
    return found


def explain(node: "Node", message: str) -> dict[str, Any]:
    """Return where a message SOURCE:NUMBER is, as far as this site knows, what it waits for, and since when."""
    source, _, number = message.rpartition(":")
    if source not in node.peers.sites or not (number.isascii() and number.isdigit()):
        return {"message": message, "error": "give SOURCE:NUMBER, with the name of a site"}
    now, facts = node.clock(), list[str]()
    if node.peers.lost is not None:
        facts.append(f"peers refuse this site: {node.peers.lost}")
    if source == node.me:
        facts += _explain_own(node, int(number), now)
    last = node.deliveries.last.get(source, 0)
    if int(number) <= last:
        facts.append(f"{node.me} has delivered messages of {source} up to {last}")
    elif node.groups:
        facts.append(f"{node.me} has not delivered it; the last of {source} here is {last}")
    for held in node.machines.held()[:HELD_AT_MOST]:
        if held.what.startswith(f"{source}:") or f" {source}:" in held.what:
            facts.append(f"held here: {held.what}, {held.reason}, for {_age(now, held.since):.1f} s")
    for reader in _readers(node):
        if reader.holds_up:
            groups = ", ".join(reader.holds_up)
            facts.append(f"messages to {groups} wait outside: reader {reader.name} is {reader.bytes} bytes behind")
    missing = sorted(node.peers.needed - node.peers.up)
    if missing:
        facts.append(f"no link to {', '.join(missing)}")
    facts += [f"no link to {peer}: {why}" for peer, why in sorted(node.peers.refused.items())]
    return {"message": message, "site": node.me, "facts": facts}


def _explain_own(node: "Node", number: int, now: float) -> list[str]:
    if number > node.outbox.messages:
        return [f"{node.me} has sent {node.outbox.messages} messages; this one does not exist"]
    for sent in node.outbox.unsafe.values():
        if sent.first <= number < sent.first + sent.many:
            entry = node.deployment.entry(sent.groups)
            place = "ordered" if sent.stamp is not None else f"to be ordered by {entry}"
            safe = "not safe yet" if not sent.restored else "not known to be safe since the restart"
            return [f"sent to {'+'.join(sent.groups)} {_age(now, sent.since):.1f} s ago, {place}; {safe}"]
    return ["sent, and safe: every member has it" if node.receipts else "sent"]
