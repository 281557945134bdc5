"""Who may be talked to, in which epoch, and whom this site has to call.

Every history has a life of its own, its *incarnation*, and a length. Both are told in the greeting, and a durable site
writes down whom it has met before it takes anything from it. So a peer that comes back with another incarnation, or
with fewer records than it had, has lost what others rely on: it is refused by name.

A cluster that is not durable begins anew as a whole when one of its sites has lost everything. Every site starts in
epoch 1. Who sees a peer greet with another incarnation than before moves to an epoch that is called after the new one,
a time in milliseconds; who sees a larger epoch than its own moves to that; who sees a smaller one answers with its own
and hangs up. What was under way is lost and said to be, positions go on, and stamps still grow, because they start with
the epoch.
"""

import msgspec

from ordercast.core.resume import LOST
from ordercast.names import SiteId
from ordercast.node.settings import Settings
from ordercast.protocols.registry import Deployment
from ordercast.wire.peers import OLDEST, VERSION, Hello
from ordercast.wire.tags import Code

CLOCKS_DIFFER_MS = 24 * 3600 * 1000  # at most


class Life(msgspec.Struct, frozen=True, gc=False):
    """A peer as it was met: its incarnation, how many records its history had, how often it was restarted, and when."""

    incarnation: int
    records: int
    start: int = 0
    boot: int = 0


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """Why there is no link: a reason for people, a code for programs."""

    reason: str
    code: str = "refused"


def neighbours(deployment: Deployment, me: SiteId) -> frozenset[SiteId]:
    """Return whom this site calls from the start: its neighbours in the plan. Others are called when needed."""
    edges = deployment.plan.edges if deployment.plan is not None else []
    pairs = [(edge.parent, edge.child) for edge in edges]
    return frozenset(site for pair in pairs if me in pair for site in pair if site != me)


class Peers:
    """One per node: its greetings, the lives of its peers it knows, and the epoch they share."""

    def __init__(self, me: SiteId, settings: Settings, needed: frozenset[SiteId], incarnation: int, boot: int) -> None:
        self.me, self.settings, self.incarnation, self.boot = me, settings, incarnation, boot
        self.sites = set(settings.sites)  # all there are, as far as this site knows
        self.needed = set(needed)  # whom this site calls, or is called by
        self.linked: set[SiteId] = set()  # whom there is a link to
        self.up: set[SiteId] = set()  # of these: to whom messages may pass
        self.met: dict[SiteId, Life] = {}
        self._boots: dict[
            SiteId, int
        ] = {}  # the process of each peer that was met last: while it runs it loses nothing
        self.refused: dict[SiteId, str] = {}  # who does not talk to us, or we to it, and why
        self.failed: str | None = None  # why this site talks to nobody any more
        self.lost: str | None = None  # a peer says that this site has lost its history
        self.restarted: SiteId = ""  # whose restart began this epoch
        self.epoch = 1
        self.reconnects = 0
        self.newest, self.oldest = VERSION, VERSION if settings.changes else OLDEST
        self.speaks: dict[SiteId, int] = {}  # peers that speak an older version, as long as they may

    def hello(self, wanted: SiteId, records: int) -> Hello:
        """Return our greeting to a site."""
        settings = self.settings
        start = self.met[self.me].start if self.me in self.met else 0
        return Hello(
            version=self.speaks.get(wanted, self.newest), cluster=settings.cluster, site=self.me, wanted=wanted,
            incarnation=self.incarnation, epoch=self.epoch, plan=settings.plan, restarted=self.restarted,
            records=records, boot=self.boot, start=start,
        )  # fmt: skip

    def why_not(self, hello: Hello, called: SiteId | None, now: float) -> Refusal | None:
        """Return why we do not talk to this one, if so."""
        refusal = self._who(hello, called) or self._life(hello, now)
        if refusal is None and self.lost is not None:  # nobody is to build on what we forgot, though it never met us
            refusal = Refusal(self.lost, LOST)
        if refusal is not None and hello.site in self.sites and hello.site not in self.up:
            self.refused[hello.site] = refusal.reason
        return refusal

    def _who(self, hello: Hello, called: SiteId | None) -> Refusal | None:
        me, settings, site = self.me, self.settings, hello.site
        if self.failed is not None:
            return Refusal(f"{me} has failed: {self.failed}", "failed")
        if not self.oldest <= hello.version <= self.newest:  # a newer site calls again, and speaks as this one does
            mine = f"{self.newest}" if self.oldest == self.newest else f"{self.oldest} to {self.newest}"
            return Refusal(f"{site} speaks version {hello.version}, {me} speaks {mine}", Code.VERSION)
        if hello.cluster != settings.cluster:
            return Refusal(f"{site} is of cluster {hello.cluster!r}, this is {settings.cluster!r}")
        if hello.wanted != me or (called is not None and site != called):
            return Refusal(f"{site} wants {hello.wanted}; this is {me}, which called {called}")
        if site not in self.sites or site == me:
            return Refusal(f"{site!r} is not one of the sites")
        if hello.plan != settings.plan:
            return Refusal(
                f"{site} has plan {hello.plan}, {me} has {settings.plan}: protocol, plan or groups differ", "plan"
            )
        return None

    def _life(self, hello: Hello, now: float) -> Refusal | None:
        site = hello.site
        latest = int(now * 1000) + CLOCKS_DIFFER_MS  # nobody is to push the others to the end of time
        if not 0 < hello.epoch <= latest or not 0 < hello.incarnation <= latest or hello.records < 0:
            return Refusal(f"{site} is in epoch {hello.epoch}, incarnation {hello.incarnation}: wrong, or its clock is")
        if not self.settings.durable:
            return None
        if hello.epoch != self.epoch:
            return Refusal(f"{site} is in epoch {hello.epoch}, {self.me} in {self.epoch}")
        known = self.met.get(site)
        if known is None:
            return None
        if self.settings.changes and hello.incarnation > known.incarnation:
            return None  # its disk was lost: it is taken in by a change of the configuration
        if known.incarnation != hello.incarnation:
            before, after = known.incarnation, hello.incarnation
            return Refusal(f"{site} has lost its history: it was incarnation {before}, now it is {after}", LOST)
        if hello.records < known.records and self._boots.get(site) != hello.boot:  # greetings may overtake each other
            before, after = known.records, hello.records
            return Refusal(f"{site} has lost part of its history: it had {before} records, now it has {after}", LOST)
        if 0 < hello.start <= known.start and hello.boot != known.boot:
            told = f"it was restarted {known.start} times before, and knows of {hello.start - 1}"
            return Refusal(f"{site} has lost part of its history: {told}", LOST)
        return None

    def meet(self, hello: Hello) -> tuple[bool, int | None]:
        """Take note of a peer; returns whether that is news to be written, and an epoch to move to, if any."""
        site, known = hello.site, self.met.get(hello.site)
        same = known is not None and known.incarnation == hello.incarnation
        start, boot = (hello.start, hello.boot) if hello.start else (0, 0)
        if known is not None and same and known.start >= start:
            start, boot = known.start, known.boot
        records = max(hello.records, known.records) if known is not None and same else hello.records
        life = Life(hello.incarnation, records, start, boot)
        move: int | None = None
        if not self.settings.durable:
            if known is not None and known.incarnation != life.incarnation:
                move, self.restarted = max(hello.incarnation, hello.epoch, self.epoch + 1), site
            elif hello.epoch > self.epoch:
                move = hello.epoch
                self.restarted = hello.restarted if hello.restarted in self.sites else "a site"
        if move is not None:
            self.met.clear()
            self.epoch = move
        self.reconnects += site in self._boots
        self.speaks |= {site: hello.version} if hello.version < self.newest else {}
        self.met[site], self._boots[site] = life, hello.boot
        self.refused.pop(site, None)
        return known != life, move

    def doubts(self, source: SiteId, incarnation: int) -> str | None:
        """Return why an envelope is not taken: it is of another life of its source than the one we know.

        Its source has lost its history, and met the peer that passes the envelope on before it met us.
        """
        life = self.met.get(source)
        known = self.incarnation if source == self.me else incarnation if life is None else life.incarnation
        if known == incarnation or not self.settings.durable or self.settings.changes:
            return None
        if source == self.me:
            return f"{source} has lost its history: it is incarnation {known}, and was {incarnation}"
        return f"{source} has lost its history: it was incarnation {known}, now it is {incarnation}"

    def heard_of(self, source: SiteId, incarnation: int) -> None:
        """Remember the life of a source whose envelope is written: the record itself brings it back."""
        if source not in self.met:
            self.met[source] = Life(incarnation, 0)

    def refused_by(self, peer: SiteId, reason: str, code: str) -> bool:
        """A peer does not talk to us; returns whether it says that this site has lost its history."""
        self.refused[peer] = reason
        if code == Code.VERSION and self.speaks.get(peer, self.newest) > self.oldest:
            self.speaks[peer] = self.speaks.get(peer, self.newest) - 1  # the next call is in the version before
        if code == LOST and reason.startswith(f"{self.me} has lost ") and self.lost is None:
            self.lost = reason
            return True
        return False
