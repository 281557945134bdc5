"""Keeps links to the peers that a node needs: calls, waits for the end, calls again, less and less often."""

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING

from ordercast.errors import OrdercastError
from ordercast.live.links import Link
from ordercast.names import SiteId

if TYPE_CHECKING:
    from ordercast.live.site import Site

log = logging.getLogger("ordercast")
FIRST_S, LAST_S = 0.05, 2.0


class Dialer:
    """One per site."""

    def __init__(self, site: "Site") -> None:
        self._site = site
        self._calling: dict[SiteId, asyncio.Task[None]] = {}

    def dial(self, peer: SiteId) -> None:
        """Keep a link to a peer, from now on."""
        if peer not in self._calling:
            self._calling[peer] = self._site.loop.create_task(self._keep(peer))

    async def _keep(self, peer: SiteId) -> None:
        site, wait = self._site, FIRST_S
        while True:
            known = site.links.up.get(peer)
            link = known if known is not None else await self._call(peer)
            if link is not None:
                await asyncio.shield(link.closed)
                wait = FIRST_S if link.was_useful else min(2 * wait, LAST_S)
            else:
                wait = min(2 * wait, LAST_S)
            await asyncio.sleep(wait)

    async def _call(self, peer: SiteId) -> Link | None:
        """Make one connection; None when it cannot be made: whatever was wrong may be right the next time."""
        site = self._site
        try:
            tls = site.tls(server=False)
            name = peer if tls is not None else None
            address = site.address_of(peer)
            return await site.transport.dial(lambda: Link(site, peer), address, tls, name)  # type: ignore[return-value]
        except (OSError, ssl.SSLError, OrdercastError) as error:
            log.debug("link.failed site=%s peer=%s reason=%r", site.me, peer, str(error))
            return None

    def cancel(self) -> None:
        """Call nobody any more."""
        for task in self._calling.values():
            task.cancel()

    async def stop(self) -> None:
        """Call nobody any more, and wait until all calls have ended."""
        self.cancel()
        await asyncio.gather(*self._calling.values(), return_exceptions=True)
