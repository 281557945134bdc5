"""What a decision closes: what is rolled back, installed, sent again, and when it is finished everywhere."""

from ordercast.epochs import events as e
from ordercast.epochs import messages as m
from ordercast.epochs.recovery import key_of, lacks, rolled_back
from ordercast.epochs.setup import Setup
from ordercast.epochs.states import States
from ordercast.epochs.track import Entry, Track
from ordercast.names import ClassId, GroupId


class Closed(States):
    """One site's part in the end of classes."""

    def _closed_by_report(self, decision: m.Decision) -> None:
        site = self.site
        alone = {j.group for j in decision.joining if j.site == site.me and not j.providers}  # it goes on as it is
        without = frozenset(site.installing.states.keys() - alone)
        for class_id, cut in decision.cuts.items():
            self._own_messages(class_id, cut)
            if class_id not in site.earlier:
                continue
            track = site.tracks.setdefault(class_id, Track()) if self._was_in(class_id) else None
            if track is not None:
                self._roll_back(rolled_back(track, cut))
                site.installing.todo.pop(class_id, None)
                if site.me in decision.installers:
                    todo = lacks(site.me, site.closed_class(class_id), track, cut, without)
                    if todo:
                        site.installing.todo[class_id] = todo

    def _was_in(self, class_id: ClassId) -> bool:
        return self.site.me in self.site.closed_class(class_id).sites

    def _own_messages(self, class_id: ClassId, cut: m.Cut) -> None:
        """Send again what is not in the history of a class; all others of this site are in it (errata 10, 18)."""
        site = self.site
        life = site.source.incarnation
        last = {groups: end.number for end, groups in cut.last if (end.source, end.incarnation) == (site.me, life)}
        for number, own in sorted(site.sending.own.items()):
            inside = number <= last.get(own.groups, 0)
            if inside and own.class_id is None:
                site.sending.sent(number, class_id)
            elif not inside and own.class_id == class_id:
                site.sending.send_again(number)

    def _roll_back(self, entries: list[Entry]) -> None:
        """Undo deliveries that the others never made; what came after them in other classes is delivered again."""
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
                    site.history[group] = site.new_history([*kept[:at], *later])
                    site.counts[group] -= 1
        handed = [i for i, entry in enumerate(site.handed) if (entry.class_id, key_of(entry.id)) in gone]
        if handed:
            undone, site.handed = site.handed[handed[0] :], site.handed[: handed[0]]
            site.out.append(e.RolledBack(len(undone)))
            for entry in undone:
                if (entry.class_id, key_of(entry.id)) not in gone:
                    site.hand(entry)

    def _joins(self, group: GroupId, joining: m.Joining, number: int) -> None:
        """This site comes into a group: it needs its state, unless nobody is there to have one."""
        site = self.site
        site.installing.arrived.pop(group, None)
        if joining.providers:
            site.installing.states[group] = joining
            self.joined_in[group] = number
        else:
            site.installing.states.pop(group, None)

    def _note_views(self, old: Setup, new: Setup) -> None:
        """Note which groups of this site have other members now."""
        me, found = self.site.me, list[e.ViewChanged]()
        for group in sorted({*old.groups, *new.groups}):
            before = old.members(group) if group in old.groups else ()
            now = new.members(group) if group in new.groups else ()
            if before != now and (me in before or me in now):
                joined, left = tuple(s for s in now if s not in before), tuple(s for s in before if s not in now)
                found.append(e.ViewChanged(group, now, joined, left, new.number, new.class_of.get(group)))
        self.views.append((new.number, found))

    def done(self, number: int) -> None:
        """Everybody has installed a configuration: all that was closed for it is stable."""
        site = self.site
        if number not in site.undone or min(site.undone) < number:
            return  # in their order: what an earlier one has closed comes first; it will be said again
        decision = site.decisions[number]
        site.durable()
        site.undone.discard(number)
        for class_id in sorted(decision.cuts):
            site.retired.pop(class_id, None)
            newer = any(class_id in site.decisions[n].cuts for n in site.undone if n > number)
            if not newer:
                site.installing.todo.pop(class_id, None)  # it was not waited for: it is no member, and gets no more
                self._finish(class_id)
        self._offer()
        self._tell_views()
        self._give_states()
        if not site.installing.done:
            self.go_on()
        site.send_waiting()

    def _finish(self, class_id: ClassId) -> None:
        """Forget a closed class: everybody has everything of it."""
        site = self.site
        track = site.tracks.get(class_id)
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

    # What opening does.

    def go_on(self) -> None:
        """Go on with what is to be installed."""
        raise NotImplementedError
