"""What stands in the way of a change: who must be waited for, what must close too, who would lose a group's state."""

from collections.abc import Collection, Iterable
from enum import IntEnum
from typing import TYPE_CHECKING

import msgspec

from ordercast.epochs import messages as m
from ordercast.epochs.change import waiting
from ordercast.epochs.recovery import as_reported, key_of
from ordercast.epochs.requests import Planned
from ordercast.epochs.setup import Setup
from ordercast.names import ClassId, GroupId, Policy, SiteId

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
    along_trees: tuple[ClassId, ...] = ()
    """Classes that this ballot closes along their tree: nobody stops before it is decided."""
    before: tuple[ClassId, ...] = ()
    asked: dict[SiteId, tuple[tuple[ClassId, ...], tuple[ClassId, ...]]] = {}
    """Who must report, on which classes, and on which of those before them."""
    reports: dict[SiteId, m.Report] = {}
    pending: dict[SiteId, tuple[GroupId, ...]] = {}
    """Who is known to wait for the state of groups."""
    stopped: list[ClassId] = []
    """Classes that somebody has stopped: they cannot close along their tree any more."""
    decision: m.Decision | None = None
    votes: list[SiteId] = []
    wishes: dict[SiteId, tuple[int, m.Wish]] = {}
    """What others want, and for how many ticks it is to be believed."""
    installed: dict[int, list[SiteId]] = {}
    """For each configuration that is not done: who has installed it."""
    telling: list[SiteId] = []
    """Who may not know of the last decision."""
    untold: list[SiteId] = []
    """Who of these was not told: it concerns them little, and some of them are told at each tick."""
    wait: int = 0
    """Ticks until the next try."""
    tries: int = 0
    """How often this number was tried in vain: two managers that wait ever longer do not meet for ever."""


class Obstacles:
    """What a manager has to look at before it decides; it changes nothing."""

    def __init__(self, site: "Participant") -> None:
        self.site = site
        self.state = ManagerState()

    @property
    def suspected(self) -> frozenset[SiteId]:
        """Whom this site suspects, or somebody that it does not."""
        own = self.site.suspected
        told = {who for by, (_, wish) in self.state.wishes.items() if by not in own for who in wish.suspected}
        return frozenset(own | (told - {self.site.me}))

    def _touch(self) -> set[ClassId]:
        """Return the classes that stand still, here or elsewhere."""
        here = [wish for _, wish in self.state.wishes.values() if wish.number == self.site.setup.number]
        told = {class_id for wish in here for class_id in wish.touch}  # who is behind speaks of what was decided since
        return told | self.site.stands_still() | self._stranded(self.state.pending)

    def _lives(self) -> dict[SiteId, int]:
        """Return who came with an empty disk."""
        sites = self.site.setup.sites
        return {who: life for who, life in self.site.fresh.items() if who in self.state.wishes and who in sites}

    def _without(self) -> set[tuple[SiteId, GroupId]]:
        """Return who is known not to have the state of which group."""
        found = {(who, group) for who in self._lives() for group in self.site.setup.groups}
        return found | {(who, group) for who, groups in self.state.pending.items() for group in groups}

    def _held_up(self) -> set[ClassId]:
        """Return classes that close along their tree, and cannot without somebody who is not there, or has stopped.

        Where nobody may be taken out, they wait for a member that is suspected.
        """
        site, out = self.site, self.suspected | self.site.fresh.keys()
        touch = self._touch()
        found = {class_id for class_id in touch if class_id in site.earlier and not self._may_not_go_on(class_id, out)}
        for class_id in [c for number in site.undone for c in site.decisions[number].along_trees if c in site.earlier]:
            of_class = site.earlier[class_id]
            if self._may_not_go_on(class_id, self.suspected):
                continue
            if out & (of_class.nodes | set(of_class.sources)):
                found.add(class_id)
        gone = {other for other in out if not site.setup.is_member(other)}  # nobody waits for them
        for number in site.undone:
            for class_id, cut in site.decisions[number].cuts.items():
                if class_id in site.earlier and any(gone.issuperset(line.holders) for line in cut.lines):
                    found.add(class_id)
        return found

    def _opened_since(self) -> set[ClassId]:
        """Return the open classes that come after one that is reported on again: they close with it (errata 91).

        What is dropped from its history is sent again, and must not come after what its source sent in them.
        """
        site, held_up, lives = self.site, self._held_up(), self._lives().keys()
        numbers = {
            number
            for number in site.undone
            if held_up & site.decisions[number].closed.keys() or lives & set(site.decisions[number].installers)
        }
        for number in sorted(site.undone):
            if any(class_id.epoch in numbers for class_id in site.decisions[number].closed):
                numbers.add(number)
        return {class_id for class_id in site.setup.classes if class_id.epoch in numbers}

    def _may_not_go_on(self, class_id: ClassId, out: frozenset[SiteId]) -> bool:
        """Whether a class that closes along its tree needs the report of somebody who is not there and stays."""
        site, of_class = self.site, self.site.earlier[class_id]
        missing = of_class.sites & out & site.setup.sites.keys()
        if not missing or not any(class_id in site.decisions[number].along_trees for number in site.undone):
            return False
        waits = [site.setup.classes[c] for c in waiting(site.setup, out, self._without())]
        return of_class.policy is Policy.ATOMIC or any(missing & of_waiting.sites for of_waiting in waits)

    def _nobody_reports(self, planned: Planned) -> bool:
        """Whether nobody is there of those who have a group's state, and one of them stays: then it is waited for."""
        out, without = set(self.state.counted_out), self._without()
        for group, members in [pair for c in planned.closed for pair in self.site.setup.classes[c].members.items()]:
            whole = {site for site in members if (site, group) not in without}
            stays = planned.setup.groups[group].members if group in planned.setup.groups else ()
            if whole and whole <= out and whole.intersection(stays):
                return True
        return False

    def _state_may_come(self, closed: Iterable[ClassId], pending: dict[SiteId, tuple[GroupId, ...]]) -> bool:
        """Whether all who are there in a group wait for its state, and somebody can still give it: then wait, too."""
        site, old = self.site, self.site.setup
        for group in [group for class_id in closed for group in old.classes[class_id].groups]:
            there = old.members(group)
            if all(group in pending.get(other, ()) or other in site.fresh for other in there):
                last = dict[SiteId, set[SiteId]]()
                for number, joins in site.behind.joins():
                    if joins.group == group and joins.site in there and joins.site not in site.fresh:
                        last[joins.site] = {s for s in joins.providers if not self._forgot(s, number)}
                gone = site.fresh.keys() | self.suspected
                if any(providers - gone for providers in last.values()):
                    return True
        return False

    def _would_lose(self, new: Setup, pending: dict[SiteId, tuple[GroupId, ...]]) -> bool:
        """Whether a group would go on without anybody who has its state, though somebody who has it may come back."""
        old = self.site.setup
        empty = self.site.fresh.keys() | {site for site, (_, number) in new.lives.items() if number == new.number}
        for group in old.class_of:
            whole = {s for s in old.members(group) if group not in pending.get(s, ()) and s not in empty}
            now = new.members(group) if group in new.groups else ()
            if now and whole.intersection(new.away) and not whole.difference(new.away):
                return True
        return False

    def _joining(self, pending: dict[SiteId, tuple[GroupId, ...]]) -> dict[SiteId, set[GroupId]]:
        """Return who waits for the state of groups: who says so, or has reported it."""
        site, found = self.site, {who: set(groups) for who, groups in pending.items()}
        told = {who: wish.joining for who, (_, wish) in self.state.wishes.items() if wish.number == site.setup.number}
        for who, groups in {**told, site.me: tuple(site.installing.states)}.items():
            found.setdefault(who, set()).update(groups)
        return found

    def _still_give(self, leaving: Collection[SiteId], pending: dict[SiteId, tuple[GroupId, ...]]) -> set[SiteId]:
        """Return who of these is to give a state that nobody else can give: it is not removed now (errata 114).

        Who removes a site may switch it off as soon as it is done. Who is not there gives nothing: the manager suspects
        it, and so does who waits for it. That one of them does is no reason to give up what it has (errata 119, 128).
        """
        site, found = self.site, set[SiteId]()
        there = set(leaving) - site.fresh.keys()
        for who, groups in self._joining(pending).items() if there else ():
            named = {j.group: (number, j.providers) for number, j in site.behind.joins() if j.site == who}  # the last
            for number, providers in [named[group] for group in groups if group in named and who not in leaving]:
                if all(other in leaving or self._gone(other, number) for other in providers):
                    found |= {s for s in there.intersection(providers) if not self._both_suspect(who, s)}
        return found

    def _both_suspect(self, who: SiteId, other: SiteId) -> bool:
        """Whether this site suspects another one, and somebody else says that it does."""
        _, wish = self.state.wishes.get(who, (0, None))
        own = self.site.suspected
        return other in own and (who == self.site.me or (wish is not None and other in wish.suspected))

    def _forgot(self, provider: SiteId, number: int) -> bool:
        """Whether who was to give a state when a configuration opened has lost it, or was left out since."""
        return self.site.setup.lives.get(provider, (0, 0))[1] > number or self.site.opening.left_out(provider, number)

    def _gone(self, provider: SiteId, number: int) -> bool:
        """Whether who was to give a state when a configuration opened will not: it is not there, or has forgotten."""
        site = self.site
        if self._forgot(provider, number) or provider in site.fresh:
            return True
        return provider in self.suspected and not site.setup.is_member(provider)

    def _stranded(self, pending: dict[SiteId, tuple[GroupId, ...]]) -> set[ClassId]:
        """Return the classes of groups whose state somebody waits for, and those who were to give it are gone."""
        site, found = self.site, set[ClassId]()
        for who, groups in pending.items():
            for group in [group for group in groups if group in site.setup.class_of]:
                named = [(n, j) for n, j in site.behind.joins() if (j.site, j.group) == (who, group)]
                if named and all(self._gone(provider, named[-1][0]) for provider in named[-1][1].providers):
                    found.add(site.setup.class_of[group])
        return found

    def _absent(self, new: Setup, closing: list[ClassId]) -> dict[SiteId, dict[ClassId, m.ClassReport]]:
        """Return what members have that are not there and stay, in classes that were closed before: the cuts know."""
        site, found = self.site, dict[SiteId, dict[ClassId, m.ClassReport]]()
        for number in sorted(site.undone):
            for class_id, cut in site.decisions[number].cuts.items():
                of_class = site.earlier.get(class_id)
                if class_id not in closing or of_class is None:
                    continue
                for other in of_class.sites - self.state.asked.keys() & new.sites.keys():
                    groups = [g for g, members in of_class.members.items() if other in members and g in new.groups]
                    if other in self.state.counted_out and any(other in new.members(group) for group in groups):
                        found.setdefault(other, {})[class_id] = as_reported(cut, other)
        return found

    def _may_have_more(self, cuts: dict[ClassId, m.Cut], absent: dict[SiteId, dict[ClassId, m.ClassReport]]) -> bool:
        """Whether a cut drops what was in an earlier one, and somebody may have it who stays, and is not there."""
        site = self.site
        for number in site.undone:
            for class_id, cut in site.decisions[number].cuts.items():
                if class_id not in cuts or class_id not in site.earlier:
                    continue
                kept, stable = {key_of(line.id) for line in cuts[class_id].lines}, dict(cuts[class_id].stable)
                there = {other for other, told in absent.items() if class_id in told}
                for line in cut.lines:
                    dropped = key_of(line.id) not in kept and line.index > stable.get(line.groups, 0)
                    if dropped and there.intersection(site.earlier[class_id].destinations(line.groups)):
                        return True
        return False

    def _cannot_use_trees(self, pending: dict[SiteId, tuple[GroupId, ...]], stopped: set[ClassId]) -> bool:
        """Whether a class that is to close along its tree was stopped, or somebody waits for a state to open it."""
        waits = {group for groups in pending.values() for group in groups}
        setup = self.site.setup
        return any(c in stopped or waits.intersection(setup.classes[c].groups) for c in self.state.along_trees)

    def _must_stay(self, other: SiteId, classes: tuple[ClassId, ...], planned: Planned) -> bool:
        """Whether nobody may go on without this site, though it is suspected: it stays a member under `atomic`."""
        if other not in planned.setup.sites:
            return False
        return any(self.site.setup.classes[class_id].policy is Policy.ATOMIC for class_id in classes)
