"""How a cluster begins: with its first configuration, once, and never again by sites that have lost their disks.

A site that starts with an empty disk cannot know whether it is new or has forgotten everything. So the founder, the
first site by name, waits until every site of the first configuration has said `Ready`, writes down their incarnations,
and tells everybody that the cluster has begun. A site takes part when its own incarnation is in that list. Whoever
comes in another one had a disk and has lost it: it learns the configuration of today and is taken in as such.

There is one founder, so there is one list. A founder that loses its disk does not make a second one: it needs a `Ready`
from everybody, and a site that has begun does not say it again.
"""

from typing import TYPE_CHECKING

import msgspec

from ordercast.core.effects import Held
from ordercast.epochs import messages as m
from ordercast.epochs.setup import Setup
from ordercast.names import SiteId

if TYPE_CHECKING:
    from ordercast.epochs.participant import Participant


class FoundingState(msgspec.Struct, array_like=True):
    """What a site knows of the beginning; `first` is durable."""

    first: Setup | None = None
    """The first configuration, as this site was started with it; None once it is in force, or known to be over."""
    ready: dict[SiteId, int] = {}
    """At the founder: who has said so, and in which incarnation."""


class Founding:
    """One site's part."""

    def __init__(self, site: "Participant") -> None:
        self.site, self.state = site, FoundingState()

    @property
    def waits(self) -> bool:
        """Whether this site does not know yet if the cluster has begun, and with it or with an earlier life of it."""
        return self.state.first is not None

    def begin(self, first: Setup) -> None:
        """The host says which configuration the cluster begins with."""
        site = self.site
        if site.setup.number or site.decisions:
            return
        if self.state.first != first:
            site.durable()
        self.state = FoundingState(first)  # who was ready when this site last ran may be in another life now
        self._count(site.me, site.source.incarnation)

    def greet(self, peer: SiteId) -> None:
        """A link is there: who has begun will say so."""
        if self.state.first is not None:
            self.site.say(peer, m.Ready(self.state.first.digest, self.site.source.incarnation))

    def tick(self) -> None:
        """Say it again: to the founder, who may have been restarted, and to others, who may know that it is over."""
        first = self.state.first
        for other in sorted({*first.council, min(first.sites)} - {self.site.me}) if first is not None else ():
            if self.site.repeats.due(("ready", other)):
                self.greet(other)

    def take(self, sender: SiteId, message: m.Ready | m.Began) -> None:
        """Take what sites that begin say to each other."""
        if isinstance(message, m.Ready):
            self._ready(sender, message)
        else:
            self._began(message.setup)

    def _ready(self, sender: SiteId, said: m.Ready) -> None:
        """A site has an empty disk, and wants to begin."""
        site, first = self.site, self.state.first
        if first is None:
            begun = site.decisions.get(1)
            if site.admitted:
                site.say(sender, m.Began(begun.setup if begun is not None else None))
        elif said.first == first.digest and sender in first.sites:
            self._count(sender, said.life)

    def _count(self, sender: SiteId, life: int) -> None:
        first, ready = self.state.first, self.state.ready
        assert first is not None
        ready[sender] = life
        if min(first.sites) == self.site.me and ready.keys() == first.sites.keys():
            founders = dict(sorted(ready.items()))
            self.site.say(self.site.me, m.Began(msgspec.structs.replace(first, founders=founders)))

    def _began(self, setup: Setup | None) -> None:
        """The cluster has begun: with this life of the site, or without it."""
        site = self.site
        if self.state.first is None:
            return
        site.durable()
        self.state = FoundingState()
        if setup is None or setup.founders.get(site.me) != site.source.incarnation:
            return  # the configuration of today comes by itself, and takes this site in with an empty disk
        site.setup, site.admitted = setup, True
        site.decisions = {setup.number: m.Decision(setup, m.NO_BALLOT, {})}
        site.counts = {group: 0 for group in setup.groups if site.me in setup.members(group)}
        if min(setup.sites) == site.me:
            for other in setup.sites:
                if other != site.me:
                    site.say(other, m.Began(setup))
        site.let_in()
        site.manager.look()

    def held(self) -> list[Held]:
        """What waits here."""
        first = self.state.first
        if first is None:
            return []
        founder = min(first.sites)
        missing = [site for site in first.sites if site not in self.state.ready]
        reason = f"a cluster begins when all its sites are there; no word yet from {', '.join(missing)}"
        if founder != self.site.me:
            reason = f"a cluster begins when all its sites are there; {founder} has not said so yet"
        return [Held("configuration 1", reason, self.site.now)]
