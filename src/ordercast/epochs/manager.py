"""The manager: leads the council to the next configuration (GS88 §5.1, §5.2.1; errata 20, 21).

The first member of the council that is not suspected is the manager, those who have lost their disks last (errata
113); when two think so, ballots decide. What a manager knows is not durable: one that dies at any step is followed by
another, which asks everybody again. A ballot fixes whom it counts on; when somebody is suspected meanwhile, the manager
begins again in a higher one.

    PREPARING   a majority of the council must promise; if one has accepted a decision, that is the decision
    PLANNING    the host makes the classes
    CLOSING     everybody who stays must report on the classes that close
    VOTING      a majority of the council must accept
"""

import msgspec

from ordercast.core.effects import Held
from ordercast.epochs import messages as m
from ordercast.epochs.change import waiting
from ordercast.epochs.events import Plan
from ordercast.epochs.obstacles import WAIT_AT_MOST, WISHES_LAST, Phase
from ordercast.epochs.recovery import cuts_of, given_states, joining
from ordercast.epochs.requests import Planned
from ordercast.epochs.wishes import Wishes
from ordercast.names import SiteId


class Manager(Wishes):
    """One site's part as a manager; most sites never have one."""

    def wish(self, sender: SiteId, wish: m.Wish) -> None:
        """Somebody wants something, or suspects somebody."""
        life, taken_in = self.site.setup.lives.get(sender, (0, 0))
        if wish.life == life and wish.life and wish.number < taken_in:
            return  # it was said before the site was taken in
        self.state.wishes[sender] = (WISHES_LAST, wish)
        if wish.life:
            news = self.site.fresh.get(sender) != wish.life
            self.site.fresh[sender] = wish.life
            news |= sender in self.state.asked and sender not in self.state.reports
            if news and self.state.phase in (Phase.PLANNING, Phase.CLOSING) and self.leads:
                self._begin()  # it cannot report
        self.look()

    def look(self) -> None:
        """Begin, or begin again, when there is something to do."""
        state = self.state
        if not self.leads:
            self._rest()
            return
        if state.phase is Phase.RESTING:
            if state.wait == 0 and self._business():
                self._begin()
        elif state.phase in (Phase.PLANNING, Phase.CLOSING) and set(self.suspected) - set(state.counted_out):
            self._begin()  # somebody it counts on is suspected now

    def _business(self) -> bool:
        """Whether anything is to be decided."""
        return self.site.council.accepted is not None or bool(self._undecided()) or self._wanted() is not None

    def _begin(self) -> None:
        """Open a higher ballot than any heard of."""
        site, state = self.site, self.state
        highest = max(state.highest, site.council.promised)
        self._rest()
        state.phase, state.since = Phase.PREPARING, site.now
        state.ballot = state.highest = (highest[0] + 1, site.me)
        self._resend()

    def outvoted(self, told: m.Outvoted) -> None:
        """A higher ballot is under way: leave it some time."""
        state = self.state
        state.highest = max(state.highest, told.ballot)
        if state.phase is not Phase.RESTING and told.ballot > state.ballot:
            self._rest()
            state.tries += 1
            state.wait = 2 ** min(state.tries, 5) * (1 + self.site.setup.council.index(self.site.me))

    # Phases.

    def _resend(self) -> None:
        """Say again what the phase waits for, to those who have not answered."""
        site, state = self.site, self.state
        number = site.setup.number + 1
        match state.phase:
            case Phase.PREPARING:
                for other in site.setup.council:
                    if other not in state.promises:
                        site.say(other, m.Prepare(number, state.ballot))
            case Phase.CLOSING:
                for other, (classes, before) in state.asked.items():
                    if other not in state.reports:
                        site.say(other, m.Close(number, state.ballot, classes, before))
            case Phase.VOTING:
                assert state.decision is not None
                for other in site.setup.council:
                    if other not in state.votes:
                        site.say(other, m.Accept(state.decision))

    def promised(self, sender: SiteId, told: m.Promise) -> None:
        """A member of the council follows this ballot."""
        site, state = self.site, self.state
        if state.phase is Phase.RESTING or told.ballot != state.ballot or sender not in site.setup.council:
            return
        state.promises[sender] = told.accepted
        if state.phase is not Phase.PREPARING or len(state.promises) < site.setup.majority:
            return
        accepted = [decision for decision in state.promises.values() if decision is not None]
        if accepted:
            highest = max(accepted, key=lambda decision: decision.ballot)
            self._vote(msgspec.structs.replace(highest, ballot=state.ballot))
            return
        asked = self._wanted()
        if asked is None and self._undecided() - state.promises.keys():
            return  # what they have accepted may be the decision
        if asked is None:
            self._rest()
            state.wait = WAIT_AT_MOST if state.pending else 0
            return
        same = msgspec.structs.replace(asked.setup, answered=site.setup.answered) == site.setup
        if same and not asked.touch and not asked.finish:  # nothing but answers: they need no configuration
            reasons = {(to, request): reason for to, request, reason in asked.refused}
            for to, request, _ in self._asked():
                if asked.setup.has_answered(to, request):
                    site.say(to, m.Answer(request, reasons.get((to, request), "")))
            self._rest()
            return
        state.phase, state.counted_out = Phase.PLANNING, tuple(sorted(self.suspected))
        site.out.append(Plan(site.setup, msgspec.structs.replace(asked, ballot=state.ballot)))

    def plan(self, planned: Planned) -> None:
        """The classes are made: ask for reports on those that close, and on earlier ones that may not be installed."""
        site, state = self.site, self.state
        if state.phase is not Phase.PLANNING or planned.ballot != state.ballot:
            return
        state.planned, state.phase = planned, Phase.CLOSING
        out = set(state.counted_out)
        stays = frozenset(who for who in out if who in planned.setup.sites)
        empty = {who for who in self._lives() if planned.setup.lives.get(who, (0, 0))[1] != planned.setup.number}
        cannot = {c for c in planned.closed if site.setup.classes[c].sites & empty & planned.setup.sites.keys()}
        waits = waiting(site.setup, stays, self._without()).intersection(planned.closed)
        if cannot or waits or self._nobody_reports(planned):
            self._rest()  # a class that must close too needs a site that is not there
            state.wait = WAIT_AT_MOST
            return
        state.before = site.before(planned.closed, self._lives(), self._held_up())
        still_open = self._opened_since() - set(planned.closed)
        if still_open or any(self._may_not_go_on(class_id, stays) for class_id in state.before):
            self._rest()
            state.wait = WAIT_AT_MOST
            return
        state.along_trees = self._trees(planned)
        empty = {who for who, (_, number) in planned.setup.lives.items() if number == planned.setup.number}
        empty |= site.fresh.keys() - planned.setup.sites.keys()  # who is or was removed, and has lost its disk
        holders = {other for c in state.before for other in site.earlier[c].sites}  # also who was removed since
        for other in sorted((holders | set(site.setup.sites)) - empty):
            classes = tuple(c for c in planned.closed if other in site.setup.classes[c].sites)
            before = tuple(c for c in state.before if other in site.earlier[c].sites)
            if (classes or before) and (other not in out or self._must_stay(other, classes, planned)):
                state.asked[other] = (tuple(c for c in classes if c not in state.along_trees), state.before)
        self._resend()
        self._all_reported()

    def reported(self, sender: SiteId, report: m.Report) -> None:
        """A site has stopped, and says what it has."""
        state = self.state
        if state.phase is Phase.CLOSING and report.ballot == state.ballot and sender in state.asked:
            state.reports[sender] = report
            self._all_reported()

    def _all_reported(self) -> None:
        site, state = self.site, self.state
        if state.phase is not Phase.CLOSING or any(other not in state.reports for other in state.asked):
            return
        planned = state.planned
        assert planned is not None
        finished = {class_id for report in state.reports.values() for class_id in report.finished}
        finished |= {class_id for class_id in state.before if class_id not in site.earlier}
        self._finished(finished)
        closing = [c for c in (*planned.closed, *state.before) if c not in finished and c not in state.along_trees]
        absent = self._absent(planned.setup, closing)
        reports = {other: report.classes for other, report in state.reports.items()}
        cuts = cuts_of({**reports, **absent}, closing)
        pending = {other: report.joining for other, report in state.reports.items()}
        pending = {other: groups for other, groups in pending.items() if groups}
        stopped = {class_id for report in state.reports.values() for class_id in report.stopped}
        waits = self._state_may_come(planned.closed, pending) or self._may_have_more(cuts, absent)
        if waits:
            self._release()
        removed = site.setup.sites.keys() - planned.setup.sites.keys()
        lost = self._would_lose(planned.setup, pending) or self._stranded(pending) - set(planned.closed) or waits
        if self._cannot_use_trees(pending, stopped) or (
            pending != state.pending and (lost or self._still_give(removed, pending))
        ):
            state.pending, state.stopped = pending, sorted(stopped)  # what must wait is left out (errata 106)
            self._begin()
            return
        if waits:
            self._rest()
            state.wait = WAIT_AT_MOST
            return
        joins = joining(site.setup, planned.setup, planned.closed, pending, frozenset(state.reports))
        installers = {other for other, report in state.reports.items() if any(c in cuts for c in report.classes)}
        installers |= absent.keys()
        installers |= {other for class_id in state.along_trees for other in site.setup.classes[class_id].sites}
        setup = given_states(site.setup, planned.setup, joins)
        decision = m.Decision(
            setup, state.ballot, cuts, joins, tuple(sorted(installers)), planned.refused,
            {class_id: site.closed_class(class_id) for class_id in sorted((*cuts, *state.along_trees))},
        )  # fmt: skip
        self._vote(decision)

    def _vote(self, decision: m.Decision) -> None:
        self.state.phase, self.state.decision = Phase.VOTING, decision
        self._resend()

    def accepted(self, sender: SiteId, told: m.Accepted) -> None:
        """A member of the council has voted; with a majority the decision is made."""
        site, state = self.site, self.state
        if state.phase is not Phase.VOTING or told.ballot != state.ballot or sender not in site.setup.council:
            return
        if sender not in state.votes:
            state.votes.append(sender)
        if len(state.votes) >= site.setup.majority:
            decision = state.decision
            assert decision is not None
            self._rest()
            self._tell(decision)

    # After a decision.

    def tick(self) -> None:
        """Say again what was not answered; forget old suspicions; look for something to do."""
        site, state = self.site, self.state
        state.wishes = {who: (left - 1, wish) for who, (left, wish) in state.wishes.items() if left > 1}
        if state.wait:
            state.wait -= 1
        elif state.phase is Phase.RESTING:
            state.pending = {}  # it was so when somebody reported; the next reports will tell
        self._resend()
        self._tell_more()
        for other in [other for other in state.telling if other not in state.untold]:
            if other in site.suspected or other not in site.setup.sites:
                state.telling.remove(other)
            elif site.repeats.due(("knows", site.setup.number, other)):
                site.say(other, m.AskInstalled(site.setup.number))
        for number in sorted(site.undone) if self.leads else ():
            for other in site.decisions[number].installers:
                there = other not in state.installed.get(number, ()) and other not in site.suspected
                if there and site.repeats.due(("installs", number, other)):
                    site.say(other, m.AskInstalled(number))
            self._finish(number)
        self.look()

    @property
    def idle(self) -> bool:
        """Whether a tick would change nothing."""
        state = self.state
        return not (state.phase or state.wishes or state.telling or state.wait or state.pending)

    def held(self) -> list[Held]:
        """What waits here."""
        site, state = self.site, self.state
        stay = sorted(self._still_give(self._removals(), state.pending)) if self.leads else []
        waits_for = "somebody waits for the state of a group, which only this site can give"
        removals = [Held(f"removal of {other}", waits_for, site.now) for other in stay]
        if state.phase is Phase.RESTING:
            return removals
        missing = {
            Phase.PREPARING: [other for other in site.setup.council if other not in state.promises],
            Phase.CLOSING: [other for other in state.asked if other not in state.reports],
            Phase.VOTING: [other for other in site.setup.council if other not in state.votes],
        }.get(state.phase, [])
        waits = f"{state.phase.name.lower()}: no answer yet from {', '.join(missing) or 'the planner'}"
        return [*removals, Held(f"configuration {site.setup.number + 1}", waits, state.since)]
