"""Readers that move: each reads a group from its beginning, now at one member, now at another, and gets the one list.

A reader keeps nothing but the last message it has read, as a client does that survives its site (`client.bookmark`).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ordercast.client.bookmark import Bookmark
from ordercast.client.values import Lot, Restored, said_in
from ordercast.errors import LocalError
from ordercast.names import GroupId
from ordercast.node import inputs as io
from ordercast.node.readers import Reader
from ordercast.sim.following import name_in
from ordercast.verify.changes import differ_at
from ordercast.wire import clients as wire

if TYPE_CHECKING:
    from ordercast.sim.changing_nodes import ChangingHost, ChangingWorld

STAYS_S = 1.0  # at one site, about
SEEKS_S = 2.0  # so long a site may look for the message


class Mover:
    """One reader of one group."""

    def __init__(self, world: "ChangingWorld", group: GroupId) -> None:
        self.world, self.group = world, group
        self.names: list[str] = []
        self.calm = False
        self.moves = 0
        self._bookmark: Bookmark | None = None
        self._host: ChangingHost | None = None
        self._reader: Reader | None = None
        self._join: wire.Join | None = None  # how it was opened, until it has begun to read
        self._life = 0  # of the site, when it was opened
        self._since = 0.0
        self._tries = 0  # when all is calm, one site after the other
        self._last: Lot | None = None  # what it has read last, if it was a batch
        world.after(world.chance.expovariate(1), self._look)

    def _look(self) -> None:
        """Stay, go on, or go elsewhere."""
        chance, host = self.world.chance, self._host
        lost = host is None or not host.runs or host.life != self._life or self._reader is None
        seeks = self._reader is not None and self._reader.place is not None
        stuck = seeks and self.world.now - self._since > SEEKS_S
        if lost or stuck or (not self.calm and chance.random() < 0.3):
            self._leave()
            self._forget_some()
            hosts = [one for one in self.world.hosts.values() if one.runs and one.asleep is None]
            if hosts:
                self._tries += 1
                self._open(hosts[self._tries % len(hosts)] if self.calm else chance.choice(hosts))
        self.world.after(chance.expovariate(1 / STAYS_S), self._look)

    def _leave(self) -> None:
        host, reader = self._host, self._reader
        self._host = self._reader = None
        if host is not None and reader is not None and host.runs and host.life == self._life:
            host.on_more.pop(reader, None)
            host.feed(io.Leave(reader))

    def _forget_some(self) -> None:
        """An application may have stopped in the middle of a batch: it has the place of a message, and no position."""
        lot, bookmark = self._last, self._bookmark
        if lot is None or lot.count < 2 or bookmark is None or self.world.chance.random() < 0.5:
            return
        done = self.world.chance.randrange(1, lot.count)
        del self.names[len(self.names) - lot.count + done :]
        bookmark.place = wire.Place(lot.groups, lot.source, lot.first + done - 1, lot.stamp)
        bookmark.life, self._last = ("", 0), None

    def _open(self, host: "ChangingHost") -> None:
        node, life = host.node, (host.site, host.node.incarnation)
        if self.group not in node.groups:
            return
        bookmark = self._begins(host)
        groups = sorted(node.groups)
        if bookmark.wrong(wire.Welcome(host.site, groups, groups, 0, 0, 0, incarnation=life[1])) is not None:
            return
        opened = self._reader_at(host, bookmark)
        if opened is None:
            return
        self._bookmark, self._host, self._life, self._since = bookmark, host, host.life, self.world.now
        self._reader, self._join = reader, _ = opened
        host.on_more[reader] = lambda: self._more(reader)
        host.carry(node.turn())
        if host.runs:
            self._more(reader)

    def _begin(self, reader: Reader) -> None:
        """The message was found after which it reads: positions are of this site from now on."""
        host, bookmark = self._host, self._bookmark
        assert host is not None and bookmark is not None
        if self._join is not None and reader.place is None:
            life = (host.site, host.node.incarnation)
            self.moves += life != bookmark.life
            bookmark.joined(self._join, reader.lots[0].position if reader.lots else reader.next, life)
            self._join = None

    def _more(self, reader: Reader) -> None:
        if self._host is not None and reader is self._reader:
            self._host.later(0.0, self._take, reader)

    def _take(self, reader: Reader) -> None:
        while reader is self._reader and self._host is not None and self._host.runs:
            self._begin(reader)
            lot = reader.take()
            if lot is None:
                if reader.ended is not None:
                    self._host = self._reader = None
                return
            self._read(lot)
            if self._bookmark is not None and self._bookmark.left:
                self._leave()
                return
            if reader.past or self._host.node.intake.parked:
                self._host.feed(io.Took(reader))

    def _read(self, lot: Lot) -> None:
        assert self._bookmark is not None
        fields = (lot.position, lot.groups, lot.source, lot.first, lot.stamp, lot.body)
        self._bookmark.read(wire.LotFrame(*fields))
        said = said_in(lot)
        self._last = lot if said is None else None
        if said is None:
            self.names += [name_in(message.body) for message in lot.messages()]
        elif isinstance(said, Restored) and said.group == self.group:
            self.names = [line for line in said.state.decode().split("\n") if line]

    @property
    def reads(self) -> bool:
        """Whether it has found its place, and gets what comes."""
        return self._reader is not None and self._reader.place is None

    def _is_kept(self) -> bool:
        """Whether it could read on: a member of the group lets it, and has the message after which it reads."""
        place = self._bookmark.place if self._bookmark is not None else None
        hosts = [host for host in self.world.hosts.values() if host.runs and self.group in host.node.groups]
        hosts = [host for host in hosts if self._may_read_at(host)]
        if place is None:
            return (self._bookmark is None or self._bookmark.fresh) and bool(hosts)
        kept = [host.disk.kept.entries for host in hosts if host.disk.kept is not None]
        return any(entry.stamp == place.stamp for entries in kept for entry in entries)

    def _may_read_at(self, host: "ChangingHost") -> bool:
        opened = self._reader_at(host, self._begins(host))
        if opened is not None:
            host.feed(io.Leave(opened[0]))
        return opened is not None

    def _begins(self, host: "ChangingHost") -> Bookmark:
        return self._bookmark or Bookmark(
            wire.Join(0, [self.group], None, begin=True), 0, (host.site, host.node.incarnation), []
        )

    def _reader_at(self, host: "ChangingHost", bookmark: Bookmark) -> tuple[Reader, wire.Join] | None:
        """Open a reader; None where the site refuses: it keeps the beginning no more, or what is read may be undone."""
        join = bookmark.again((host.site, host.node.incarnation))
        after = -1 if join.begin else join.after
        try:
            return host.node.reader("mover", [self.group], join.place or after, "block"), join
        except LocalError:
            return None

    def calm_down(self) -> None:
        """Move no more, unless its site is gone."""
        self.calm = True

    def wrong(self, there: Callable[[GroupId], list[str] | None]) -> list[tuple[str, str]]:
        """Return what is wrong: it must have what the members have; or the first of it, when nobody has the rest.

        Who has left takes with it what others have only in a state: then reading cannot go on, and a client is told.
        """
        wanted = there(self.group)
        if wanted is None or self.names == wanted:
            return []
        if self.names == wanted[: len(self.names)] and not self.reads and not self._is_kept():
            return []
        where = differ_at(self.names, wanted)
        told = f"{self.names[where : where + 2]}, members have {wanted[where : where + 2]}"
        return [("moving", f"who reads {self.group} and moves has at {where}: {told}")]
