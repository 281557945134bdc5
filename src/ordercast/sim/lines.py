"""Connections between nodes in virtual time: what `live.links` is on asyncio.

A connection is like TCP: each direction keeps its order, and what is lost is lost with the whole connection. Where the
network loses or doubles, single messages are lost, doubled and overtaken too, which TCP never does: machines must bear
that. The greeting is never touched.
"""

from typing import TYPE_CHECKING

from ordercast.core.events import Control, Message
from ordercast.core.streams import Null
from ordercast.names import ClassId, SiteId
from ordercast.node import inputs as io
from ordercast.wire import codec, peers
from ordercast.wire.frames import Splitter
from ordercast.wire.peers import Hello, Refuse
from ordercast.wire.tags import Code, Tag

if TYPE_CHECKING:
    from ordercast.sim.nodes import Host

Chunk = list[tuple[ClassId, Message]]
"""What was written at one go."""
Written = Hello | Refuse | Chunk | None
"""None is the end of the stream."""


class Line:
    """One connection: two ends, and whether anything passes."""

    def __init__(self, caller: "Host", called: "Host") -> None:
        self.dead = False
        self.ends = (End(self, caller, called.site), End(self, called, None))

    def other(self, end: "End") -> "End":
        """Return the other end."""
        return self.ends[1] if end is self.ends[0] else self.ends[0]

    def reset(self) -> None:
        """Lose all that is under way; the ends notice when they do."""
        self.dead = True
        for end in self.ends:
            end.host.world.after(end.host.world.chance.expovariate(5), end.lost)


class End:
    """One end. `peer` is known once it has greeted, and `up` once messages may pass."""

    def __init__(self, line: Line, host: "Host", wanted: SiteId | None) -> None:
        self.line, self.host, self.wanted, self.life = line, host, wanted, host.life
        self.peer: SiteId | None = None
        self.up = self.closed = False
        self.boot = 0
        self.waiting: Chunk = []
        self._epoch = 0  # in which we have greeted
        self._last = 0.0  # when what was written last arrives
        self._floor = 0.0  # when the last that must not be overtaken arrives

    @property
    def dialler(self) -> SiteId | None:
        """Who made this connection."""
        return self.host.site if self.wanted is not None else self.peer

    # Writing.

    def greet(self, peer: SiteId) -> None:
        """Say who we are."""
        node = self.host.node
        self._epoch = node.peers.epoch
        self._write(node.peers.hello(peer, node.pipeline.written))

    def flush(self) -> None:
        """Write what the node sent in one turn; control first, as a link does whose socket is full."""
        world, chunk = self.host.world, self.waiting
        self.waiting = []
        if not chunk:
            return
        if world.chance.random() < 0.5:
            chunk.sort(key=lambda item: not isinstance(item[1], Control) or type(item[1]) is Null)
        if world.chance.random() < world.wire:
            chunk = passed(chunk)
        network = world.network
        if not (network.loss or network.duplicate):
            self._write(chunk)
            return
        for item in chunk:
            for delay in network.delays(world.chance, self.host.site, self.line.other(self).host.site, world.now):
                at = max(self._floor, world.now + delay)
                self._last = max(self._last, at)
                world.after(at - world.now, self.line.other(self).take, [item])

    def _write(self, what: Written) -> None:
        if self.line.dead:
            return
        world, other = self.host.world, self.line.other(self)
        self._last = max(self._last, world.now + world.delay(self.host.site, other.host.site))
        if not isinstance(what, list):
            self._floor = self._last
        world.after(self._last - world.now, other.take, what)

    def refuse(self, reason: str, code: Code = Code.REFUSED) -> None:
        """Say why, and close."""
        self._write(peers.read(Tag.REFUSE, peers.encode(Refuse(reason, code))))
        self.close()

    def close(self) -> None:
        """Close after what is written has gone."""
        self.up = False
        self._write(None)
        self.host.world.after(0, self.lost)

    def abort(self) -> None:
        """Close now."""
        self.up = False
        self.line.dead = True
        self.host.world.after(0, self.lost)
        other = self.line.other(self)
        self.host.world.after(self.host.world.delay(self.host.site, other.host.site), other.lost)

    # Reading.

    def take(self, what: Written) -> None:
        """Something arrives."""
        if self.host.sleeps(self.take, what) or self.closed or self.line.dead or self.life != self.host.life:
            return
        if what is None:
            self.lost()
        elif isinstance(what, Hello):
            self._greeted(peers.read(Tag.HELLO, peers.encode(what)))
        elif isinstance(what, Refuse):
            peer = self.peer or self.wanted
            if what.code == Code.LOST_HISTORY and what.reason.startswith(f"{self.host.site} has lost "):
                self.host.told_lost = True
            if peer is not None and what.code != Code.BUSY:
                self.host.feed(io.RefusedBy(peer, what.reason, what.code))
            self.close()
        elif self.up and self.peer is not None:
            world = self.host.world  # what is told comes after the meeting is written
            world.met[self.peer, self.host.site] = world.ledger.lost_disks[self.host.site]
            cut = self.host.world.chance.randrange(len(what)) if len(what) > 1 else 0
            for part in (what[:cut], what[cut:]):
                if part and self.up:
                    self.host.feed(io.FromPeer(self.peer, part))

    def _greeted(self, hello: Hello) -> None:
        host, node = self.host, self.host.node
        refusal = node.peers.why_not(hello, self.wanted, node.clock())
        if refusal is not None:
            host.world.note(f"{host.site} refuses {hello.site}: {refusal.reason}")
            self.refuse(refusal.reason, Code(refusal.code))
            return
        met = host.world.met.get((host.site, hello.site))
        settings = host.world.settings
        refused = settings.durable and not settings.changes
        if met is not None and met < host.world.ledger.lost_disks[hello.site] and refused:
            host.world.ledger.problem("lost", f"{host.site} knew {hello.site} before it lost its disk, and talks to it")
        self.peer, self.boot = hello.site, hello.boot
        if not host.prefers(self):
            self.refuse(f"{hello.site} and {host.site} have a link already", Code.BUSY)
            return
        host.feed(io.Greeted(hello))
        if not host.runs:
            return
        if self.wanted is None:
            self.greet(hello.site)
        if not self._epoch == hello.epoch == node.peers.epoch:
            self.close()
            return
        self.up = True
        host.linked(self, hello.site)
        host.feed(io.LinkMade(hello.site))

    def lost(self) -> None:
        """The connection is gone, as far as this end knows."""
        if self.host.sleeps(self.lost) or self.closed:
            return
        self.closed, self.up = True, False
        if self.life == self.host.life:
            self.host.unlinked(self)


def passed(chunk: Chunk) -> Chunk:
    """Return what comes out at the other end of a wire: everything must survive the codec."""
    encoder, splitter = codec.Encoder(), Splitter()
    data = b"".join(part for class_id, message in chunk for part in encoder.frame(message, class_id))
    frames = splitter.feed(data)
    found = [(class_id, codec.decode(tag, stream, number, load)) for tag, class_id, stream, number, load in frames]
    assert found == chunk, "what was decoded is not what was encoded"
    return found
