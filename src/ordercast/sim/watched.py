"""A world of participants that keeps figures: who stops for how long, what is said, how long messages take."""

from collections import Counter
from typing import Any, NamedTuple

from ordercast.core.effects import Deliver, Effect
from ordercast.core.events import Control, Event, Message, Multicast
from ordercast.epochs import events as e
from ordercast.epochs import messages as m
from ordercast.names import ClassId, GroupId, SiteId
from ordercast.sim.changing import Case, Host, World

STABILITY = (m.Have, m.AskHave, m.Stable, m.AskSafe, m.Whereabouts)
FETCHING = (m.Fetch, m.Body, m.AskState, m.State)
KINDS = ("of changes", "of fetching", "of stability", "of links", "of the protocol")


def kind_of(message: Message, class_id: ClassId) -> str:
    """Return what a message is for, one of KINDS."""
    if isinstance(message, STABILITY):
        return "of stability"
    if isinstance(message, FETCHING):
        return "of fetching"
    if class_id == m.CONTROL:
        return "of changes"
    return "of links" if isinstance(message, Control) else "of the protocol"


class View(NamedTuple):
    """A site has told its application who is in a group."""

    time: float
    site: SiteId
    group: GroupId
    members: tuple[SiteId, ...]
    messages: int
    """Sent for changes by then, by all sites."""


class Watched(World):
    """One run; times are the world's, and start at 0."""

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.said = Counter[str]()
        """Messages, by kind."""
        self.sent_at: dict[str, float] = {}
        self.arrived: dict[str, dict[SiteId, float]] = {}
        """When sites handed over a message, the last time; what a site has rolled back stays noted."""
        self.views: list[View] = []
        self.rolled: list[tuple[float, SiteId, int]] = []
        self.died: dict[SiteId, float] = {}
        self.stopped: dict[GroupId, float] = {}
        """When the first member of a group stopped."""
        self.resumed: dict[GroupId, float] = {}
        """When the last one went on."""
        self.stood = 0.0
        """How long members of groups have stood still, together."""
        self._groups_of: dict[SiteId, tuple[int, list[GroupId]]] = {}
        self._standing: dict[tuple[SiteId, GroupId], float] = {}

    def tell(self, host: Host, effect: Effect, told: tuple[Any, ...]) -> None:
        """Tell an application something, and note when."""
        super().tell(host, effect, told)
        match effect:
            case Deliver(envelope, _):
                self.arrived.setdefault(envelope.msg_id, {})[host.site] = self.now
            case e.ViewChanged(group, members):
                self.views.append(View(self.now, host.site, group, members, self.for_changes()))
            case e.RolledBack(many):
                self.rolled.append((self.now, host.site, many))

    def feed(self, host: Host, event: Event) -> None:
        """Take an event, and look whether anything stopped or went on."""
        super().feed(host, event)
        self._look(host)

    def stop(self, host: Host, *, between: bool = True) -> None:
        """End a site's life, and note when."""
        super().stop(host, between=between)
        self.died[host.site] = self.now
        for site, group in list(self._standing):
            if site == host.site:
                self._go_on(site, group)

    def for_changes(self) -> int:
        """Return how many messages were sent for changes, states and bodies that are fetched included."""
        return self.said["of changes"] + self.said["of fetching"]

    def standing(self) -> float:
        """Return how long members have stood still, those that still do included."""
        return self.stood + sum(self.now - since for since in self._standing.values())

    def _logged(self, host: Host, event: Event) -> None:
        super()._logged(host, event)
        if isinstance(event, Multicast):
            self.sent_at.setdefault(self._name(host, host.participant.source.sent), self.now)

    def _look(self, host: Host) -> None:
        participant, site = host.participant, host.site
        for group in self._own_groups(host) if host.up else ():
            class_id, at = participant.setup.class_of[group], (site, group)
            runs = participant.runs(class_id) or bool(participant.installing.ending)  # the old one runs to its end
            if runs and at in self._standing:
                self._go_on(site, group)
            elif not runs and at not in self._standing:
                self._standing[at] = self.now
                self.stopped.setdefault(group, self.now)

    def _own_groups(self, host: Host) -> list[GroupId]:
        """Return the groups of a site in its configuration."""
        setup = host.participant.setup
        number, found = self._groups_of.get(host.site, (-1, []))
        if number != setup.number:
            found = [group for group, of_group in setup.groups.items() if host.site in of_group.members]
            self._groups_of[host.site] = (setup.number, found)
        return found

    def _go_on(self, site: SiteId, group: GroupId) -> None:
        self.stood += self.now - self._standing.pop((site, group))
        self.resumed[group] = self.now

    def _send(self, sender: SiteId, to: SiteId, message: Message, class_id: ClassId) -> None:
        self.said[kind_of(message, class_id)] += 1
        super()._send(sender, to, message, class_id)
