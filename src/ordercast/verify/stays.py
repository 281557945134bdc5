"""What a log has of each group where groups change: one stay from where its site came in to where it left."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ordercast.names import GroupId, SiteId
from ordercast.verify.findings import Delivery

EPOCH_BYTES = 8
LIFE = "@"
"""Between the name of a site and its incarnation, where it is not the one in which it began with the cluster."""


class Change(NamedTuple):
    """What a site says in its log beside deliveries."""

    position: int
    kind: str
    """`view`: the members of a group have changed; `state`: this site was given the state of a group; `undone`: what
    was delivered since a position did not happen."""
    group: GroupId = ""
    epoch: int = 0
    members: tuple[SiteId, ...] = ()
    joined: tuple[SiteId, ...] = ()
    left: tuple[SiteId, ...] = ()
    away: tuple[SiteId, ...] = ()
    """Who was taken out because it is suspected, and comes back."""
    undone_from: int = -1


@dataclass
class Log:
    """One life of a site."""

    rows: Sequence[Delivery] = ()
    changes: Sequence[Change] = ()
    begins: frozenset[GroupId] = frozenset()
    """The groups it was in when the cluster began."""


@dataclass(eq=False)
class Stay:
    """What a log has of a group, from one stamp on, and up to another when the site has left."""

    log: str
    group: GroupId
    since: bytes
    until: bytes | None = None
    rows: list[Delivery] = field(default_factory=list)
    missed: list[Delivery] | None = None
    """While the site is out of the group because it was suspected: what comes meanwhile. It counts if the site comes
    back: what came to another of its groups, and to this one too, is in the state that it is given then."""
    void: bool = False
    """Whether a state has taken the place of what is here, or what is here was given up with the site."""
    waits: bool = False
    """Whether the site has joined others, who are to give it a state: until then it gets what comes to its other
    groups, and nothing that comes to this one alone."""
    views: list[tuple[int, int]] = field(default_factory=list)
    """Where the log says that the members have changed, and in which configuration."""
    late: set[int] = field(default_factory=set)
    """The positions of what came while the site was away: it may be older than views in which it was there."""


def site_of(log: str) -> SiteId:
    """Return the site whose log this is."""
    return log.partition(LIFE)[0]


def entered(epoch: int) -> bytes:
    """Return a stamp before all messages of a configuration, and after those of earlier ones."""
    return epoch.to_bytes(EPOCH_BYTES, "big")


class Follower:
    """Goes through one log in the order of its positions."""

    def __init__(self, name: str, log: Log) -> None:
        self.name, self.me = name, site_of(name)
        self.open = {group: Stay(name, group, b"") for group in sorted(log.begins)}
        self.stays = list(self.open.values())
        self.strangers: list[Delivery] = []
        self.valid: list[Delivery] = []
        """Everything that was delivered and not undone."""
        items: list[Delivery | Change] = [*log.rows, *log.changes]
        for item in sorted(items, key=lambda item: item.position):
            if isinstance(item, Delivery):
                self._delivered(item)
            else:
                getattr(self, f"_{item.kind}")(item)

    def _delivered(self, row: Delivery) -> None:
        self.valid.append(row)
        stays = [self.open[group] for group in row.groups if group in self.open]
        for stay in stays:
            (stay.rows if stay.missed is None else stay.missed).append(row)
        if not stays:
            self.strangers.append(row)

    def _undone(self, change: Change) -> None:
        kept = [row for row in self.valid if row.position < change.undone_from]
        gone = {row.position for row in self.valid[len(kept) :]}
        self.valid = kept
        self.strangers = [row for row in self.strangers if row.position not in gone]
        for stay in self.stays:
            stay.rows = [row for row in stay.rows if row.position not in gone]
            if stay.missed is not None:
                stay.missed = [row for row in stay.missed if row.position not in gone]

    def _enters(self, group: GroupId, epoch: int) -> None:
        stay = self.open[group] = Stay(self.name, group, entered(epoch))
        self.stays.append(stay)

    def _state(self, change: Change) -> None:
        """What this site had of the group before, if anything, is void."""
        old = self.open.pop(change.group, None)
        if old is not None:
            old.void = True
        self._enters(change.group, change.epoch)

    def _view(self, change: Change) -> None:
        stay = self.open.get(change.group)
        if self.me in change.members:
            if stay is None:
                self._enters(change.group, change.epoch)
                self.open[change.group].waits = set(change.members) > set(change.joined)
            elif stay.missed is not None:
                stay.late |= {row.position for row in stay.missed}
                stay.rows, stay.missed = stay.rows + stay.missed, None
            self.open[change.group].views.append((change.position, change.epoch))
        elif stay is not None and self.me in change.away:
            stay.missed = stay.missed or []
        elif stay is not None and self.me in change.left:
            self.open.pop(change.group).until = entered(change.epoch)
            by_force = change.away and not change.members  # what only it has is lost
            stay.void = bool(by_force) or stay.waits
