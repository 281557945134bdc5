"""All connections of a site to others: which one is the link to a peer, and whether it is alive."""

import asyncio
from typing import TYPE_CHECKING

from ordercast.live.links import BEATS, Link
from ordercast.names import SiteId
from ordercast.node.inputs import Beat, LinkLost
from ordercast.wire.tags import Code

if TYPE_CHECKING:
    from ordercast.live.site import Site

PORT_S = 0.4  # between two beats to clients
BEAT_S = 2.5  # where groups are fixed; otherwise the failure detector's pace


class Links:
    """One per site."""

    def __init__(self, site: "Site") -> None:
        self._site = site
        self.up: dict[SiteId, Link] = {}
        self._all: set[Link] = set()
        self._beating: asyncio.TimerHandle | None = None
        cluster = site.cluster
        self._port_beat = 0.0
        self.beat_s = cluster.suspect_after / BEATS if cluster.changes else BEAT_S

    def connected(self, link: Link) -> None:
        """A connection is there; who it is we know when it has greeted."""
        self._all.add(link)
        most = self._site.limits.connections
        if len(self._all) > most:
            link.refuse(f"{self._site.me} has {most} links, which is the limit", Code.BUSY)

    def prefers(self, link: Link, peer: SiteId) -> bool:
        """Whether a link that has just greeted is better than the one we have: of two, the lower name's call stays."""
        old = self.up.get(peer)
        return old is None or not old.up or old.boot != link.boot or link.dialler == min(self._site.me, peer)

    def linked(self, link: Link, peer: SiteId) -> None:
        """From now on this is the link to a peer."""
        old = self.up.pop(peer, None)
        if old is not None:
            old.abort()
            self._site.feed(LinkLost(peer))
        self.up[peer] = link

    def lost(self, link: Link) -> None:
        """A connection is gone."""
        self._all.discard(link)
        if link.peer is not None and self.up.get(link.peer) is link:
            del self.up[link.peer]
            self._site.feed(LinkLost(link.peer, link.silent))

    def beat(self) -> None:
        """Say that we are alive, give up on who is silent, and again before long."""
        now = self._site.loop.time()
        for link in list(self._all):
            link.beat(now)
        if self._site.port is not None and now - self._port_beat >= PORT_S:
            self._port_beat = now
            self._site.port.beat(now)
        if self._site.started and (self._site.changes is not None or self._site.limits.retain_seconds is not None):
            self._site.feed(Beat())
        self._beating = self._site.loop.call_later(self.beat_s, self.beat)

    def abort(self) -> None:
        """End all links now."""
        for link in list(self._all):
            link.abort()

    def close(self) -> None:
        """End all links, and beat no more."""
        if self._beating is not None:
            self._beating.cancel()
        for link in list(self._all):
            link.close()
