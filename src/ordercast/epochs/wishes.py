"""What a manager is asked for, how each class is closed, and when everybody has everything."""

from ordercast.epochs import messages as m
from ordercast.epochs.behind import news_of
from ordercast.epochs.change import wanted
from ordercast.epochs.obstacles import Obstacles, Phase
from ordercast.epochs.requests import Asked, Planned, RemoveSite, Wanted
from ordercast.names import ClassId, SiteId
from ordercast.protocols.registry import MACHINES

TOLD_AT_LEAST = 8  # at each tick


class Wishes(Obstacles):
    """What is to be done, as far as this site knows."""

    @property
    def leads(self) -> bool:
        """Whether this site is the manager, as far as it knows."""
        site = self.site
        return site.leader == site.me

    def _asked(self) -> list[Asked]:
        found = {(site, number): (site, number, change) for site, number, change in self.site.asks()}
        for _, wish in self.state.wishes.values():
            found |= {(site, number): (site, number, change) for site, number, change in wish.asked}
        return [found[key] for key in sorted(found)]

    def _undecided(self) -> set[SiteId]:
        """Return who has accepted a decision on the next number, and does not know what became of it."""
        site = self.site
        told = {
            who for who, (_, wish) in self.state.wishes.items() if wish.accepted and wish.number == site.setup.number
        }
        return told & set(site.setup.council) - site.suspected

    def _wanted(self) -> Wanted | None:
        lives, stay = self._lives(), self._still_give(self._removals(), self.state.pending)
        asked = [one for one in self._asked() if not (isinstance(one[2], RemoveSite) and one[2].site in stay)]
        touch, finish = self._touch() | self._opened_since(), bool(self._held_up())
        pending = self.state.pending
        leave = {c for c in self.site.setup.classes if pending and self._state_may_come([c], pending)}
        return wanted(self.site.setup, asked, self.suspected, touch, lives, pending, leave, finish=finish)

    def _removals(self) -> set[SiteId]:
        """Return whom somebody wants to be removed."""
        return {change.site for _, _, change in self._asked() if isinstance(change, RemoveSite)}

    def _finished(self, classes: set[ClassId]) -> None:
        """Somebody knows that everybody has everything of these classes: so it is for the configurations of them."""
        site = self.site
        for number in sorted(site.undone):
            left = site.decisions[number].closed.keys() & site.earlier.keys()
            if left and left <= classes:
                site.say(site.me, m.Done(number, site.setup.number))

    def _trees(self, planned: Planned) -> tuple[ClassId, ...]:
        """Return which classes close along their tree: everybody is there, and they were opened everywhere."""
        site, state = self.site, self.state
        if self.suspected or site.fresh or site.setup.sites.keys() - planned.setup.sites.keys():
            return ()
        touch, pending = self._touch(), {group for groups in state.pending.values() for group in groups}
        return tuple(
            class_id
            for class_id in planned.closed
            if MACHINES[site.setup.classes[class_id].protocol].closes
            and class_id not in touch
            and class_id not in state.stopped
            and class_id.epoch not in site.undone
            and pending.isdisjoint(site.setup.classes[class_id].groups)
        )

    def _release(self) -> None:
        """Let those who have reported go on, when no decision can be built on what they have reported (errata 94)."""
        site, state = self.site, self.state
        missing = set(site.setup.council) - state.promises.keys() - site.fresh.keys()
        if not missing and not any(state.promises.values()):
            for other in state.asked:
                site.say(other, m.Released(site.setup.number + 1, state.ballot))

    def _rest(self) -> None:
        state = self.state
        state.phase, state.ballot, state.planned, state.decision = Phase.RESTING, m.NO_BALLOT, None, None
        state.promises, state.asked, state.reports, state.votes = {}, {}, {}, []
        state.before, state.along_trees, state.counted_out = (), (), ()

    def decided(self) -> None:
        """This site is in another configuration now."""
        self._rest()
        self.state.highest, self.state.pending, self.state.stopped = m.NO_BALLOT, {}, []
        self.state.wait = self.state.tries = 0

    # Telling.

    def _tell(self, decision: m.Decision) -> None:
        """Tell whom a decision concerns; all others hear of it soon (`_tell_more`), without one great rush."""
        site, state, new = self.site, self.state, decision.setup
        state.telling = sorted((set(site.setup.sites) | set(new.sites)) - {site.me})
        opened = [of_class for class_id, of_class in new.classes.items() if class_id.epoch == new.number]
        concerned = {*site.setup.council, *new.council, *decision.installers, *(site.setup.sites.keys() ^ new.sites)}
        concerned |= {j.site for j in decision.joining} | {who for who, _, _ in self._asked()}
        concerned |= {node for of_class in (*decision.closed.values(), *opened) for node in of_class.nodes}
        late = [other for other in state.untold if other in state.telling and other not in concerned]
        state.untold = [*late, *(other for other in state.telling if other not in concerned and other not in late)]
        news = news_of(site.setup, decision)
        for other in (*(who for who in state.telling if who in concerned), site.me):
            site.say(other, news)
            site.repeats.later(("knows", decision.number, other))

    def _tell_more(self) -> None:
        """Tell some more of those whom the last decision concerns little."""
        site, state = self.site, self.state
        number, some = site.setup.number, max(TOLD_AT_LEAST, len(site.setup.sites) // 24)
        for other in state.untold[:some]:
            site.say(other, site.behind.told(number))
            site.repeats.later(("knows", number, other))
            if number not in site.undone:
                site.say(other, m.Done(number, number))
        del state.untold[:some]

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
            if number <= site.setup.number and sender != site.me and site.remembers(number):
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
        asked = set(state.before) | (state.decision.closed.keys() if state.decision is not None else set())
        if state.phase in (Phase.CLOSING, Phase.VOTING) and asked & decision.closed.keys():
            return  # this ballot asks again what everybody has of it, and may decide otherwise
        left = {s for s in decision.installers if s in self.suspected and not site.setup.is_member(s)}
        left |= {s for s in decision.installers if site.setup.lives.get(s, (0, 0))[1] > number}  # it lost what it had
        # Who has lost its disk, and is to be taken in, may have been the only one who had a message: the configuration
        # that takes it in asks the others, and until then nothing is called safe (errata 109).
        left |= {s for s in decision.installers if s in site.fresh and s not in site.setup.sites}
        if set(decision.installers) - left <= set(state.installed.get(number, ())):
            state.installed.pop(number, None)
            for other in sorted(site.setup.sites.keys() - set(state.untold)):
                if other != site.me and other not in site.suspected:
                    site.say(other, m.Done(number, site.setup.number))
            site.say(site.me, m.Done(number, site.setup.number))
