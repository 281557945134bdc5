"""Who may be talked to, and in which epoch.

A durable cluster stays in one epoch: a peer that has lost its history is refused. A cluster that is not durable begins
anew as a whole when one of its sites has lost everything. Every site starts in epoch 1. Who sees a peer greet with
another incarnation than before moves to an epoch that is called after the new one, a time in milliseconds; who sees a
larger epoch than its own moves to that; who sees a smaller one answers with its own and hangs up. What was under way is
lost and said to be, positions go on, and stamps still grow, because they start with the epoch.
"""

import time
from dataclasses import replace
from typing import TYPE_CHECKING

import msgspec

from ordercast.errors import LocalError
from ordercast.names import SiteId
from ordercast.protocols.registry import Deployment
from ordercast.wire.links import VERSION, Hello

if TYPE_CHECKING:
    from ordercast.live.site import Site

CLOCKS_DIFFER_MS = 24 * 3600 * 1000  # at most


def in_epoch(deployment: Deployment, epoch: int) -> Deployment:
    """Return the same deployment in another epoch."""
    plan = deployment.plan
    groups = deployment.groups.in_epoch(epoch)
    return replace(deployment, groups=groups, plan=plan and msgspec.structs.replace(plan, epoch=epoch))


class Epochs:
    """One per site: its greetings, the lives of its peers it knows, and the epoch they share."""

    def __init__(self, site: "Site") -> None:
        self.site = site
        self._known: dict[SiteId, int] = {}
        self._restarted: SiteId = ""  # whose restart began this epoch

    @property
    def now(self) -> int:
        """The epoch this site is in."""
        return self.site.deployment.groups.epoch

    def hello(self, wanted: SiteId) -> Hello:
        """Return our greeting to a site."""
        site = self.site
        life = (site.incarnation, self.now, site.plan, self._restarted)
        return Hello(VERSION, site.cluster.name, site.me, wanted, *life)

    def why_not(self, hello: Hello, called: SiteId | None) -> str | None:
        """Return why we do not talk to this one, if so."""
        site, me = self.site, self.site.me
        if site.failed is not None:
            return f"{me} has failed: {site.failed}"
        if hello.version != VERSION:
            return f"{hello.site} speaks version {hello.version}, {me} speaks {VERSION}"
        if hello.cluster != site.cluster.name:
            return f"{hello.site} is of cluster {hello.cluster!r}, this is {site.cluster.name!r}"
        if hello.wanted != me or (called is not None and hello.site != called):
            return f"{hello.site} wants {hello.wanted}; this is {me}, which called {called}"
        if hello.site not in site.cluster.sites or hello.site == me:
            return f"{hello.site!r} is not one of the sites"
        if hello.plan != site.plan:
            return f"{hello.site} has plan {hello.plan}, {me} has {site.plan}: protocol, plan or groups differ"
        latest = time.time_ns() // 1_000_000 + CLOCKS_DIFFER_MS  # nobody is to push the others to the end of time
        if not 0 < hello.epoch <= latest or not 0 < hello.incarnation <= latest:
            return f"{hello.site} is in epoch {hello.epoch}, incarnation {hello.incarnation}: wrong, or its clock is"
        if site.cluster.durable:
            if hello.epoch != self.now:
                return f"{hello.site} is in epoch {hello.epoch}, {me} in {self.now}"
            known = self._known.get(hello.site, hello.incarnation)
            if known != hello.incarnation:
                return f"{hello.site} has lost its history: it was incarnation {known}, now it is {hello.incarnation}"
        return None

    def meet(self, hello: Hello) -> bool:
        """Take note of a peer; begin anew if it says so. Returns whether it was known before."""
        known = self._known.get(hello.site)
        if known not in (None, hello.incarnation):
            self._move(max(hello.incarnation, hello.epoch, self.now + 1), hello.site)
        elif hello.epoch > self.now:
            self._move(hello.epoch, hello.restarted if hello.restarted in self.site.cluster.sites else "a site")
        self._known[hello.site] = hello.incarnation
        return known is not None

    def _move(self, epoch: int, restarted: SiteId) -> None:
        self._known.clear()
        self._restarted = restarted
        lost = LocalError(f"lost: {restarted} was restarted and the cluster is not durable")
        self.site.begin_anew(in_epoch(self.site.deployment, epoch), lost)
