"""What a client reads, and how far it is: enough to read on after its connection, at the same site or at another."""

import msgspec

from ordercast.client.values import Lot, Restored, Said, ViewChanged, said_in
from ordercast.errors import LocalError, LostError, OrdercastError
from ordercast.wire import batch
from ordercast.wire import clients as wire

Life = tuple[str, int]
"""A site and its incarnation: positions are of one life of one site."""


class Bookmark:
    """One per join."""

    def __init__(self, join: wire.Join, first: int, life: Life, groups: list[str]) -> None:
        """`groups`: those of the site; they are read when none were named."""
        self.join, self.next, self.life = join, first, life
        self.place = join.place  # the message that was read last
        self.fresh = join.begin  # it reads from the beginning, and nothing has come yet
        self.left = False  # the site is not in a group that is read here: others are
        named = join.groups if join.groups is not None else [group for group in groups if "+" not in group]
        self.groups = set(named)

    def read(self, lot: wire.LotFrame) -> None:
        """The next one has come."""
        many = batch.count(lot.body)
        self.next = lot.position + many
        if lot.source:
            self.fresh = False
            self.place = wire.Place(lot.groups, lot.source, lot.first + many - 1, lot.stamp)
        else:
            self._said(said_in(Lot(lot.position, lot.groups, lot.source, lot.first, lot.stamp, lot.body)))

    def _said(self, said: Said | None) -> None:
        """The site's groups change, or the application was given a state."""
        if isinstance(said, Restored):
            self.place, self.fresh = None, False  # nobody else knows how much the state has
        elif isinstance(said, ViewChanged) and self.join.groups is None:
            self.groups = self.groups | {said.group} if self.life[0] in said.members else self.groups - {said.group}
        elif isinstance(said, ViewChanged) and said.group in self.groups:
            self.left = self.life[0] in said.left and self.life[0] not in said.away and self.may_move

    def wrong(self, welcome: wire.Welcome) -> OrdercastError | None:
        """Return why reading cannot go on at a site; with a LostError another one may do."""
        site, mine = welcome.site, self.life[0]
        if (site, welcome.incarnation) == self.life:
            return None
        if not self.may_move:
            if site == mine:
                return LocalError(f"{site} has lost its disk: positions of its earlier life mean nothing any more")
            return LostError(f"positions of {mine} mean nothing at {site}")
        missing = sorted(self.groups.difference(welcome.groups))
        return LostError(f"{site} is not in {', '.join(missing)}") if missing else None

    @property
    def may_move(self) -> bool:
        """Whether reading may go on elsewhere: the last message is known, or none has come; nobody counts positions."""
        return (self.place is not None or self.fresh) and self.join.after is None

    def again(self, life: Life) -> wire.Join:
        """Return how to join there: after the next position; in another life after the last message, or anew."""
        if life == self.life:
            return msgspec.structs.replace(self.join, after=self.next - 1, place=None, begin=False)
        groups = sorted(self.groups)
        return msgspec.structs.replace(self.join, groups=groups, place=self.place, begin=self.fresh)

    def joined(self, join: wire.Join, first: int, life: Life) -> None:
        """Reading goes on there."""
        self.next, self.life, self.left = first, life, False
        if join.place is not None:
            self.join = join
