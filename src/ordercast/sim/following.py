"""What an application keeps of the one stream of its site, and what the judge sees of it."""

from ordercast.client.values import Lot, Restored, RolledBack, ViewChanged, said_in
from ordercast.names import GroupId, SiteId
from ordercast.verify.changes import Changes


class Following:
    """One application: the groups it is in, the position that comes next, and the positions of what it has."""

    def __init__(self, site: SiteId, groups: set[GroupId]) -> None:
        self.site = site
        self.begin(groups)

    def begin(self, groups: set[GroupId]) -> None:
        """Begin with nothing."""
        self.groups, self.next = groups, 0
        self.positions: list[int] = []

    def take(self, lot: Lot, judge: Changes, *, safe: bool) -> None:
        """Apply what was read, and let the judge see it; `safe`: nothing that was delivered may be undone."""
        site = self.site
        if lot.position != self.next:
            judge.problem("positions", f"{site} reads position {lot.position}, not {self.next}")
        self.next = lot.last + 1
        match said_in(lot):
            case None:
                for index, message in enumerate(lot.messages()):
                    own = {group for group in lot.groups if group in self.groups}
                    judge.delivered(site, name_in(message.body), lot.groups, lot.stamp + index.to_bytes(4, "big"), own)
                    self.positions.append(message.position)
            case RolledBack(positions):
                if tuple(self.positions[len(self.positions) - len(positions) :]) != positions:
                    judge.problem("positions", f"{site} is to undo {positions}, and the last are others")
                del self.positions[len(self.positions) - len(positions) :]
                judge.rolled(site, len(positions), safe=safe)
            case Restored(group, _, state, _):
                judge.restored(site, group, [line for line in state.decode().split("\n") if line])
                self.groups.add(group)
            case ViewChanged(group, members, _, left, _, away):
                if site in members:
                    self.groups.add(group)
                elif site in left and site not in away:
                    self.groups.discard(group)
                judge.viewed(site, group, members, left, away)


def name_in(body: bytes) -> str:
    """Return the name that a message was given by its sender: it stands first in its body."""
    return body.partition(b" ")[0].decode(errors="replace")
