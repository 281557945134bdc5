"""What a decision closes: what is rolled back, installed, sent again, and when it is finished everywhere."""

from ordercast.core.events import Finish, Forgot
from ordercast.epochs import events as e
from ordercast.epochs import messages as m
from ordercast.epochs.recovery import key_of, lacks, rolled_back, was_left_out
from ordercast.epochs.setup import Setup
from ordercast.epochs.states import States
from ordercast.epochs.track import Entry, Recent, Track
from ordercast.names import ClassId, GroupId, SiteId


class Closed(States):
    """One site's part in the end of classes."""

    # By report (GS88 §5.2.1).

    def stop(self, sender: SiteId, close: m.Close) -> None:
        """Stop classes for good, and report; once a higher ballot was heard of, lower ones are refused."""
        site = self.site
        if close.number != site.setup.number + 1:
            site.behind.at(sender, close.number - 1)
            return
        if not site.admitted:  # this life has nothing to report; its wish tells the manager so
            site.say(sender, site._its_wish())
            return
        news = site.council.hears(close.ballot)
        if news is None:
            site.say(sender, m.Outvoted(close.number, site.council.promised))
            return
        stop = [c for c in close.classes if c in site.setup.classes and c not in site.closed]
        again = {c for c in close.before if c in site.earlier} - site.reported
        if news or stop or again:
            site.durable()
        for class_id in again:
            site.halt(class_id)
        site.reported |= again  # others may be told to get from here what is in the report
        for class_id in stop:
            site.closed.add(class_id)
            site.machines.pop(class_id, None)
        told, finished = {}, []
        for class_id in (*close.classes, *close.before):
            if class_id in close.before and class_id not in site.earlier:
                finished.append(class_id)
            elif self._was_in(class_id):
                told[class_id] = site.tracks.get(class_id, Track()).report()
        joining = tuple(site.installing.states)
        site.say(
            sender, m.Report(close.number, close.ballot, told, tuple(finished), joining, tuple(sorted(site.closed)))
        )

    def released(self, ballot: m.Ballot) -> None:
        """The ballot that this site has reported to last was given up: nothing is built on its reports."""
        site = self.site
        if site.reported and site.council.promised == ballot and site.council.accepted is None:
            site.durable()
            site.reported.clear()
            self.go_on()

    def _closed_by_report(self, decision: m.Decision) -> None:
        site = self.site
        joins = [joining for joining in decision.joining if joining.site == site.me]
        alone = {joining.group for joining in joins if not joining.providers}  # it goes on as it is
        given = {joining.group for joining in joins if joining.providers}  # with all that is closed here
        without = frozenset((site.installing.states.keys() | given) - alone)
        for class_id, cut in decision.cuts.items():
            site.halted.discard(class_id)
            self._own_messages(class_id, cut)
            if class_id not in site.earlier:
                continue
            track = site.tracks.setdefault(class_id, Track()) if self._was_in(class_id) else None
            if track is not None:
                self._roll_back(rolled_back(track, cut))
                site.installing.todo.pop(class_id, None)
                self._ended(class_id)
                if site.me in decision.installers:
                    of_class = site.closed_class(class_id)
                    left_out = was_left_out(site.me, class_id, site.behind.decided_on(class_id))
                    # Who was left out gets only what it goes on with alone.
                    not_here = without | (set(of_class.groups) - alone if left_out else set())
                    todo = lacks(site.me, of_class, track, cut, not_here)
                    if todo:
                        site.installing.todo[class_id] = todo

    def _roll_back(self, entries: list[Entry]) -> None:
        """Undo deliveries that the others never made (GS88 §5.2.1); what stays of those after them comes again."""
        site = self.site
        if not entries:
            return
        gone = {(entry.class_id, key_of(entry.id)) for entry in entries}
        for entry in reversed(entries):
            site.tracks[entry.class_id].undo(entry)
            for group in entry.envelope.groups:
                kept = list(site.history.get(group, ()))
                if any(known is entry for _, known in kept):
                    at = next(index for index, (_, known) in enumerate(kept) if known is entry)
                    later = [(index - 1, known) for index, known in kept[at + 1 :]]
                    site.history[group] = Recent([*kept[:at], *later])
                    site.counts[group] -= 1
        handed = [i for i, entry in enumerate(site.handed) if (entry.class_id, key_of(entry.id)) in gone]
        if handed:
            undone, site.handed = site.handed[handed[0] :], site.handed[: handed[0]]
            site.out.append(e.RolledBack(len(undone)))
            for entry in undone:
                if (entry.class_id, key_of(entry.id)) not in gone:
                    site.hand(entry)

    def _supersede(self, decision: m.Decision) -> None:
        """Earlier configurations of which nothing is left but what this one installs need not be waited for."""
        site = self.site
        for number in list(site.undone):
            left = site.decisions[number].closed.keys() & site.earlier.keys()
            if left <= decision.cuts.keys():
                site.undone.discard(number)
                self.follows[number] = decision.number
        self.follows = {number: by for number, by in self.follows.items() if number in site.behind}

    def _was_in(self, class_id: ClassId) -> bool:
        """Whether this life of the site was a member."""
        return self.site.me in self.site.closed_class(class_id).sites and class_id.epoch >= self.site.since

    def _own_messages(self, class_id: ClassId, cut: m.Cut) -> None:
        """Send again what is not in the history of a class; all others of this site are in it (errata 10, 18)."""
        site = self.site
        life = site.source.incarnation
        site.sending.unknown.pop(class_id, None)
        last = {groups: end.number for end, groups in cut.last if (end.source, end.incarnation) == (site.me, life)}
        for number, own in sorted(site.sending.own.items()):
            inside = number <= last.get(own.groups, 0)
            if inside and own.class_id is None:
                site.sending.sent(number, class_id)
            elif not inside and own.class_id == class_id:
                site.sending.send_again(number)

    def _lost_disks(self, new: Setup) -> None:
        """Sites that lost their disks are taken in: classes that go on without them wait for nothing of theirs."""
        site = self.site
        for other in [s for s, (_, number) in new.lives.items() if number == new.number and s != site.me]:
            for class_id in [class_id for class_id in site.machines if class_id in new.classes]:
                site.feed(class_id, Forgot(other))

    # Along the tree (GS88 §5.1).

    def _closes_along_trees(self, decision: m.Decision, stopped: set[ClassId]) -> None:
        """The machines of these classes run on: their roots send the end down, and everybody passes on what it has.

        A later ballot may have stopped some here before this decision was found to be made: they are closed by report.
        """
        site = self.site
        for class_id in decision.along_trees:
            if class_id not in site.earlier:
                continue
            of_class = site.earlier[class_id]
            if class_id in stopped:
                site.halted.add(class_id)
            elif class_id.epoch >= site.since:  # else an earlier life of this site was in it
                site.draining.add(class_id)
            site.sending.closes(class_id)
            if site.me in of_class.sites:
                site.installing.ending.append(class_id)
        for class_id in decision.along_trees:
            if class_id in site.draining and site.me in site.earlier[class_id].nodes:
                site.feed(class_id, Finish())
        site.stability.ask_ends()

    def finished(self, class_id: ClassId) -> None:
        """The end of a class has come down its tree: this site has everything of it."""
        site = self.site
        site.durable()
        self._ended(class_id)
        for groups in list(site.sending.unknown.get(class_id, ())):
            if site.me in site.class_setup(class_id).destinations(groups):
                track = site.tracks.get(class_id, Track())
                last = track.last.get((site.me, site.source.incarnation, groups), 0)
                site.sending.closed(class_id, groups, last)
        site.stability.tell_ends(class_id)
        self.go_on()

    def _ended(self, class_id: ClassId) -> None:
        if class_id in self.site.installing.ending:
            self.site.installing.ending.remove(class_id)

    def _joins(self, group: GroupId, joining: m.Joining, number: int) -> None:
        """This site comes into a group: it needs its state, unless nobody is there to have one."""
        site = self.site
        site.installing.arrived.pop(group, None)
        if joining.providers:
            site.installing.states[group] = joining
            self.joined_in[group] = number
        else:
            site.installing.states.pop(group, None)

    def done(self, number: int) -> None:
        """Everybody has installed a configuration: all that was closed for it is stable."""
        site = self.site
        if number not in site.undone or min(site.undone) < number:
            return  # in their order: what an earlier one has closed comes first; it will be said again
        decision = site.decisions[number]
        for class_id in decision.along_trees:
            if class_id in site.installing.ending:
                self._gives_up(class_id)
        if site.sending.unknown.keys() & decision.closed.keys():
            return  # which messages of this site are in it is not known yet; it will be said again
        site.durable()
        site.undone.discard(number)
        for class_id in sorted(decision.closed):
            site.retired.pop(class_id, None)
            newer = any(class_id in site.decisions[n].closed for n in site.undone if n > number)
            if not newer:
                site.installing.todo.pop(class_id, None)  # it was not waited for: it is no member, and gets no more
                self._finish(class_id)
        self._offer()
        self._tell_views()
        self._give_states()
        if self.numbers or not site.installing.done:  # what it gave up was all that it waited for (errata 132)
            self.go_on()
        site.send_waiting()

    def _gives_up(self, class_id: ClassId) -> None:
        """This site was not waited for: it is no member any more, and gets nothing more of a class.

        Of groups that it was alone in nobody else knows the end: what it has is all there is (errata 131).
        """
        site = self.site
        site.durable()
        self._ended(class_id)
        site.draining.discard(class_id)
        site.halted.discard(class_id)
        alone = [group for group, members in site.class_setup(class_id).members.items() if members == (site.me,)]
        if alone:
            track = site.tracks.get(class_id)
            lasts = track.lasts if track is not None else []
            site.ends[class_id] = [*lasts, *((m.NO_MESSAGE, (group,)) for group in alone)]
            site.stability.tell_ends(class_id)

    def _finish(self, class_id: ClassId) -> None:
        """Forget a closed class: everybody has everything of it."""
        site = self.site
        track = site.tracks.get(class_id)
        if class_id in site.draining or class_id in site.halted:
            site.ends[class_id] = track.lasts if track is not None else []
        if track is not None and class_id in site.earlier:
            if class_id in site.reported:  # the next decision may name this site as the one who has it
                site.retired[class_id] = list(track.entries)
            track.behind = 0  # what it waited for was finished before it
            track.settle(tuple(track.counts.items()))
            site.hand_over(class_id)
            del site.tracks[class_id]
        for number in site.sending.in_class(class_id):
            site.safe(number)
        site.earlier.pop(class_id, None)
        site.askers.pop(class_id, None)
        site.draining.discard(class_id)
        site.halted.discard(class_id)
        site.machines.pop(class_id, None)

    # What opening does.

    def go_on(self) -> None:
        """Go on with what is to be installed."""
        raise NotImplementedError
