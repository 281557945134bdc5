"""What happens to links: greetings, ends, refusals, and who has lost its history."""

from typing import TYPE_CHECKING

import msgspec

from ordercast.core.effects import Refuse
from ordercast.core.events import LinkDown, LinkUp
from ordercast.core.resume import LOST
from ordercast.errors import LostError
from ordercast.history import records
from ordercast.names import SiteId
from ordercast.node import inputs as io
from ordercast.node.intake import Checker

if TYPE_CHECKING:
    from ordercast.node.node import Node


class Links:
    """One per node; who may be talked to, `Peers` knows."""

    def __init__(self, node: "Node") -> None:
        self.node = node

    def begin(self) -> None:
        """There are no links yet: what gets its number from now on is sent to nobody."""
        for peer in sorted(self.node.peers.sites - {self.node.me}):
            self.node.step(LinkDown(peer, whole=True))

    def greeted(self, given: io.Greeted) -> None:
        """Write down whom we meet, before anything is taken from it; or begin anew where nothing is durable."""
        node, site = self.node, given.hello.site
        news, move = node.peers.meet(given.hello)
        if move is not None:
            self._begin_anew(move)
        elif news and node.settings.durable:
            life = node.peers.met[site]
            node.pipeline.log(records.encode(records.Met(site, life.incarnation, life.records, life.start, life.boot)))

    def made(self, given: io.LinkMade) -> None:
        """Messages may pass."""
        node = self.node
        node.peers.linked.add(given.peer)
        node.pipeline.put([given])  # what was sent before the link was there is not sent on it (errata 99)
        node.note("link.up", peer=given.peer)
        node.step(LinkUp(given.peer))
        node.pace.rest(node.clock())

    def passes(self, given: io.LinkMade) -> None:
        """From here on what is sent to a peer is for its link, if that is still there."""
        if given.peer in self.node.peers.linked:
            self.node.peers.up.add(given.peer)

    def lost(self, given: io.LinkLost) -> None:
        """A link is gone; what was under way is said again when it is back."""
        self.node.peers.linked.discard(given.peer)
        self.node.peers.up.discard(given.peer)
        self.node.peers.speaks.pop(given.peer, None)  # it may come back with a newer version
        self.node.note("link.down", peer=given.peer)
        self.node.step(LinkDown(given.peer, whole=True))

    def refused_by(self, given: io.RefusedBy) -> None:
        """A peer does not talk to us."""
        self.node.note("link.refused", peer=given.peer, reason=given.reason)
        self._heard(given.peer, given.reason, given.code)

    def refuse(self, effect: Refuse) -> None:
        """A machine will not talk to a peer: it broke the protocol, or the counts show that one of us lost history."""
        if effect.code == LOST:
            self.lost_history(effect.peer, effect.reason)
        else:
            self.node.tell(io.Hangup(effect.peer, effect.reason, effect.code))

    def lost_history(self, peer: SiteId, reason: str) -> None:
        """What a peer says shows that somebody has lost history: there is no link to this peer, whoever it was."""
        self.node.tell(io.Hangup(peer, reason, LOST))
        self._heard(peer, reason, LOST)

    def _heard(self, peer: SiteId, reason: str, code: str) -> None:
        """There is no link to a peer, for a reason; a site that has lost its history talks to nobody any more."""
        if self.node.peers.refused_by(peer, reason, code):
            self.node.note("history.lost", reason=reason)
            for other in sorted(self.node.peers.up - {peer}):
                self.node.tell(io.Hangup(other, reason, code))

    def _begin_anew(self, epoch: int) -> None:
        """Throw away what the machines know and go on in another epoch; only where nothing is durable."""
        node = self.node
        lost = LostError(f"lost: {node.peers.restarted} was restarted and the cluster is not durable")
        node.note("cluster.began_anew", epoch=epoch, reason=str(lost))
        node.deployment = msgspec.structs.replace(node.deployment, groups=node.configuration.in_epoch(epoch))
        node.configuration = node.deployment.groups
        node.intake.checker = Checker(node.me, node.configuration, node.peers.doubts)
        sent = node.machines.sent  # a source's numbers never restart within its incarnation
        node.machines = node.deployment.machines(node.me, node.incarnation)
        node.machines.source.sent = sent
        node.intake.parked.clear()
        node.deliveries.last.clear()
        node.peers.linked.clear()
        node.peers.up.clear()
        node.outbox.lose(lost)
        node.tell(io.Anew(epoch))
