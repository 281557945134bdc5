"""What a manager knows: whom it counts on, who wants what, and how far its ballot is."""

from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING

import msgspec

from ordercast.epochs import messages as m
from ordercast.epochs.change import Planned, Wanted, wanted
from ordercast.epochs.requests import Asked
from ordercast.epochs.setup import Setup
from ordercast.names import ClassId, GroupId, SiteId

if TYPE_CHECKING:
    from ordercast.epochs.participant import Participant

WISHES_LAST = 3  # ticks after which a site that has not said again whom it suspects suspects nobody
WAIT_AT_MOST = 8  # ticks a manager waits after a higher ballot than its own


class Phase(IntEnum):
    """What a manager waits for."""

    RESTING = 0
    PREPARING = 1
    PLANNING = 2
    CLOSING = 3
    VOTING = 4


class ManagerState(msgspec.Struct, array_like=True):
    """All that a manager knows; volatile."""

    phase: Phase = Phase.RESTING
    since: float = 0.0
    ballot: m.Ballot = m.NO_BALLOT
    highest: m.Ballot = m.NO_BALLOT
    """Of all ballots heard of for the next number."""
    promises: dict[SiteId, m.Decision | None] = {}
    planned: Planned | None = None
    counted_out: tuple[SiteId, ...] = ()
    """Whom this ballot does not count on."""
    before: tuple[ClassId, ...] = ()
    asked: dict[SiteId, tuple[tuple[ClassId, ...], tuple[ClassId, ...]]] = {}
    """Who must report, on which classes, and on which of those before them."""
    reports: dict[SiteId, m.Report] = {}
    pending: dict[SiteId, tuple[GroupId, ...]] = {}
    """Who is known to wait for the state of groups."""
    decision: m.Decision | None = None
    votes: list[SiteId] = []
    wishes: dict[SiteId, tuple[int, m.Wish]] = {}
    """What others want, and for how many ticks it is to be believed."""
    installed: dict[int, list[SiteId]] = {}
    """For each configuration that is not done: who has installed it."""
    telling: list[SiteId] = []
    """Who may not know of the last decision."""
    wait: int = 0
    """Ticks until the next try."""
    tries: int = 0
    """How often this number was tried in vain: two managers that wait ever longer do not meet for ever."""


class Wishes:
    """What is to be done, as far as this site knows."""

    def __init__(self, site: "Participant") -> None:
        self.site = site
        self.state = ManagerState()

    @property
    def leads(self) -> bool:
        """Whether this site is the first of the council that it does not suspect."""
        site = self.site
        return site.leader == site.me

    @property
    def suspected(self) -> frozenset[SiteId]:
        """Whom this site suspects, or somebody that it does not."""
        own = self.site.suspected
        told = {who for by, (_, wish) in self.state.wishes.items() if by not in own for who in wish.suspected}
        return frozenset(own | (told - {self.site.me}))

    def _asked(self) -> list[Asked]:
        found = {(site, number): (site, number, change) for site, number, change in self.site.asks()}
        for _, wish in self.state.wishes.values():
            found |= {(site, number): (site, number, change) for site, number, change in wish.asked}
        return [found[key] for key in sorted(found)]

    def _touch(self) -> set[ClassId]:
        """Return the classes that stand still, here or elsewhere."""
        told = {class_id for _, wish in self.state.wishes.values() for class_id in wish.touch}
        return told | self.site.stands_still()

    def _lives(self) -> dict[SiteId, int]:
        """Return who came with an empty disk."""
        sites = self.site.setup.sites
        return {who: life for who, life in self.site.fresh.items() if who in self.state.wishes and who in sites}

    def _without(self) -> set[tuple[SiteId, GroupId]]:
        """Return who is known not to have the state of which group."""
        found = {(who, group) for who in self._lives() for group in self.site.setup.groups}
        return found | {(who, group) for who, groups in self.state.pending.items() for group in groups}

    def _wanted(self) -> Wanted | None:
        return wanted(self.site.setup, self._asked(), self.suspected, self._touch(), self._lives(), self.state.pending)

    def _state_may_come(self, closed: Iterable[ClassId], pending: dict[SiteId, tuple[GroupId, ...]]) -> bool:
        """Whether all who are there in a group wait for its state, and somebody can still give it: then wait, too."""
        site, old = self.site, self.site.setup
        for group in [group for class_id in closed for group in old.classes[class_id].groups]:
            there = old.members(group)
            if all(group in pending.get(other, ()) or other in site.fresh for other in there):
                wait = [j for d in site.decisions.values() for j in d.joining if j.group == group and j.site in there]
                last = {joins.site: joins.providers for joins in wait if joins.site not in site.fresh}
                gone = site.fresh.keys() | self.suspected
                if any(provider not in gone for providers in last.values() for provider in providers):
                    return True
        return False

    def _would_lose(self, new: Setup, pending: dict[SiteId, tuple[GroupId, ...]]) -> bool:
        """Whether a group would go on without anybody who has its state, though somebody who has it may come back."""
        old = self.site.setup
        for group in old.class_of:
            whole = {site for site in old.members(group) if group not in pending.get(site, ())}
            now = new.members(group) if group in new.groups else ()
            if now and whole.intersection(new.away) and not whole.difference(new.away):
                return True
        return False

    def _rest(self) -> None:
        state = self.state
        state.phase, state.ballot, state.planned, state.decision = Phase.RESTING, m.NO_BALLOT, None, None
        state.promises, state.asked, state.reports, state.votes = {}, {}, {}, []
        state.before, state.counted_out = (), ()

    def decided(self) -> None:
        """This site is in another configuration now."""
        self._rest()
        self.state.highest, self.state.pending = m.NO_BALLOT, {}
        self.state.wait = self.state.tries = 0

    def knows(self, sender: SiteId) -> None:
        """A site is in our configuration."""
        if sender in self.state.telling:
            self.state.telling.remove(sender)

    def installed(self, sender: SiteId, number: int) -> None:
        """A site has installed a configuration; when all have, everybody is told."""
        site, state = self.site, self.state
        if number == site.setup.number:
            self.knows(sender)
        if number not in site.undone:
            if number <= site.setup.number and sender != site.me:
                site.say(sender, m.Done(number, site.setup.number))
            return
        who = state.installed.setdefault(number, [])
        if sender not in who:
            who.append(sender)
        self._finish(number)

    def _finish(self, number: int) -> None:
        """Tell everybody when all have installed a configuration who can."""
        site, state = self.site, self.state
        decision = site.decisions.get(number)
        if decision is None or not self.leads:
            return
        left = {s for s in decision.installers if s in self.suspected and not site.setup.is_member(s)}
        left |= {s for s in decision.installers if site.setup.lives.get(s, (0, 0))[1] > number}  # it lost what it had
        left |= {s for s in decision.installers if s in site.fresh and s not in site.setup.sites}  # and was removed
        if set(decision.installers) - left <= set(state.installed.get(number, ())):
            state.installed.pop(number, None)
            for other in sorted(site.setup.sites):
                if other != site.me and other not in site.suspected:
                    site.say(other, m.Done(number, site.setup.number))
            site.say(site.me, m.Done(number, site.setup.number))
