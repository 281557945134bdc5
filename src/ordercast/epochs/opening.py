"""From a decision to open classes: install the cuts, fetch what is missing, get states, change views (GS88 §5.2.1).

A site finishes everything that its decisions closed before it opens anything that they opened. So at every site all
messages of a class that was closed come before those of a class that was opened then.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ordercast.core.effects import Held
from ordercast.core.events import Envelope
from ordercast.epochs import events as e
from ordercast.epochs import messages as m
from ordercast.epochs.recovery import key_of, lacks, rolled_back
from ordercast.epochs.setup import Setup
from ordercast.epochs.track import Entry, Track
from ordercast.names import ClassId, GroupId, SiteId

if TYPE_CHECKING:
    from ordercast.epochs.participant import Participant

FETCH_AT_MOST = 256  # messages per request


class Opening:
    """One site's way from one configuration into the next."""

    def __init__(self, site: "Participant") -> None:
        self.site = site
        self.numbers: list[int] = []  # configurations whose classes this site has not opened yet
        self.joined_in: dict[GroupId, int] = {}  # groups whose state is awaited, and since which configuration
        self.views: list[tuple[int, list[e.ViewChanged]]] = []  # to be told when what came before is handed over
        self.at_open: dict[int, dict[GroupId, int]] = {}  # how many messages groups had when a configuration opened
        self.offers: list[int] = []  # configurations whose states the application was not asked for yet
        self.states: dict[int, dict[GroupId, bytes]] = {}  # the application's states then, for joiners
        self.wants: dict[SiteId, dict[GroupId, tuple[int, int]]] = {}  # who asks for states, and what they have

    # Decisions.

    def decided(self, sender: SiteId, decision: m.Decision) -> None:
        """Take a decision when it is the next one; else ask for those between."""
        site = self.site
        if decision.number == site.setup.number + 1 or (not site.admitted and decision.number > site.setup.number):
            self._adopt(decision)
        elif decision.number > site.setup.number:
            site.say(sender, m.At(site.setup.number))
        if decision.number <= site.setup.number and sender != site.me:
            site.say(sender, m.At(site.setup.number))

    def _adopt(self, decision: m.Decision) -> None:
        site, old, new = self.site, self.site.setup, decision.setup
        site.durable()
        site.decisions[new.number] = decision
        for number in [n for n in site.decisions if n <= new.number - 64 and n not in site.undone]:
            del site.decisions[number]
        taken_in = new.lives.get(site.me) == (site.source.incarnation, new.number)
        if not site.admitted and (not taken_in or decision.number != old.number + 1):
            self._begin(decision)
            return
        # What this site knows to be finished, the manager did not know to be: there is nothing to do about it.
        open_here = {c for c in decision.closed if c in old.classes or c in site.earlier}
        site.setup = new
        if not site.admitted:
            site.admitted, site.since = True, new.number
        site.fresh = {who: life for who, life in site.fresh.items() if new.lives.get(who) != (life, new.number)}
        site.council.decided()
        site.closed &= set(new.classes)
        for class_id in sorted(open_here):
            site.earlier[class_id] = decision.closed[class_id]
            site.machines.pop(class_id, None)
        if decision.closed:
            self._supersede(decision)
            site.undone.add(new.number)
        joins = {joining.group: joining for joining in decision.joining if joining.site == site.me}
        self._note_views(old, new)
        self._closed_by_report(decision)
        for group in [g for g in site.installing.states if g not in new.groups or site.me not in new.members(g)]:
            del site.installing.states[group]
            site.installing.arrived.pop(group, None)
        for group, joining in joins.items():
            self._joins(group, joining, new.number)
        for group in new.groups:
            if site.me in new.members(group) and group not in site.installing.states:
                site.counts.setdefault(group, 0)
        if (
            any(site.me in of_class.sites for c, of_class in new.classes.items() if c.epoch == new.number)
            or site.me in decision.installers
        ):
            self.numbers.append(new.number)
        site.manager.decided()
        self._answer(old, decision)
        if site.me not in new.sites:
            self._removed()
        self.go_on()
        site.manager.look()

    def _removed(self) -> None:
        """An operator has removed this site: what it has not sent is not sent; it still gives away what it has."""
        site = self.site
        for number in list(site.sending.own):
            site.sending.settle(number)
            site.out.append(e.Dropped(number, f"{site.me} was removed"))

    def _begin(self, decision: m.Decision) -> None:
        """A site without a history learns of the configuration: it takes part in nothing before it is taken in."""
        site = self.site
        site.setup = decision.setup
        site.decisions = {decision.number: decision}
        site.installing.states.clear()
        site.earlier.clear()
        site.undone.clear()
        site.closed = {c for c, of_class in decision.setup.classes.items() if site.me in of_class.sites}
        site.earlier.update(decision.closed)
        if decision.closed:
            site.undone.add(decision.number)
        answered = decision.setup.answered.get(site.me, 0)  # by an earlier life
        site.asked_for = {answered + index: change for index, change in enumerate(site.asked_for.values(), start=1)}
        site.requests = answered + len(site.asked_for)
        for group in decision.setup.groups:
            if site.me in decision.setup.members(group):
                site.installing.states[group] = m.Joining(site.me, group, ())

    def _supersede(self, decision: m.Decision) -> None:
        """Earlier configurations of which nothing is left but what this one installs need not be waited for."""
        site = self.site
        for number in list(site.undone):
            left = site.decisions[number].cuts.keys() & site.earlier.keys()
            if left <= decision.cuts.keys():
                site.undone.discard(number)

    def _answer(self, old: Setup, decision: m.Decision) -> None:
        """Tell who asked at this site what became of it."""
        site = self.site
        refused = {number: reason for who, number, reason in decision.refused if who == site.me}
        for request in [r for r in site.asked_for if r <= decision.setup.answered.get(site.me, 0)]:
            site.answered(request, refused.get(request, ""))

    def _closed_by_report(self, decision: m.Decision) -> None:
        site = self.site
        without = frozenset(site.installing.states)
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

    # Installing.

    def go_on(self) -> None:
        """Deliver what is there of the cuts, in order; open the classes when nothing is missing."""
        site, installing = self.site, self.site.installing
        for class_id in sorted(installing.todo):
            todo = installing.todo[class_id]
            while todo and key_of(todo[0].id) in installing.bodies:
                line = todo.pop(0)
                site.delivered(class_id, line.order, line.stamp, installing.bodies.pop(key_of(line.id)))
            if not todo:
                del installing.todo[class_id]
        if not installing.delivered:
            self._fetch()
            return
        self._tell_installed()
        self._offer()
        whole = {group for group, (_, snapshot, _) in installing.arrived.items() if snapshot is not None}
        if whole and len(whole) < len(installing.arrived):
            installing.arrived = {group: state for group, state in installing.arrived.items() if group in whole}
        here = installing.states.keys() <= installing.arrived.keys()
        if installing.states and here and not self._not_handed():  # a state comes after all that was closed
            self._emit_views(upto=min(self.joined_in.values(), default=0) - 1)
            self._restore()
        if installing.states:
            self._ask_states()
        elif self.numbers:
            self._open()
        else:
            self._tell_views()
        site.send_waiting()

    def has_installed(self, number: int) -> bool:
        """Whether everything that was closed for a configuration is delivered here, in this life of the site."""
        site = self.site
        return site.admitted and number >= site.since and (number not in self.numbers or site.installing.delivered)

    def _tell_installed(self) -> None:
        """Tell the manager that everything that was closed is delivered here; it answers when that is so everywhere."""
        site = self.site
        leader = site.leader
        for number in sorted(site.undone) if leader is not None else ():
            site.say(leader, m.Installed(number) if self.has_installed(number) else m.AskDone(number))

    def _fetch(self) -> None:
        """Ask those who have it for what is missing; of each message the first who is not suspected."""
        site = self.site
        asked: dict[tuple[SiteId, ClassId], list[m.Id]] = {}
        for class_id, todo in site.installing.todo.items():
            for line in todo:
                if key_of(line.id) not in site.installing.bodies:
                    holders = [s for s in line.holders if s not in site.suspected] or list(line.holders)
                    asked.setdefault((holders[0], class_id), []).append(line.id)
        for (holder, class_id), ids in asked.items():
            site.say(holder, m.Fetch(class_id, tuple(ids[:FETCH_AT_MOST])))

    def take(self, sender: SiteId, message: Any) -> None:
        """Take what sites that install say to each other."""
        site, installing = self.site, self.site.installing
        match message:
            case m.Fetch(class_id, ids):
                wanted = {key_of(message_id) for message_id in ids}
                track = site.tracks.get(class_id)
                for entry in track.entries if track is not None else ():
                    if key_of(entry.id) in wanted:
                        site.say(sender, m.Body(class_id, entry.id, entry.envelope))
            case m.Body(class_id, message_id, envelope):
                key = key_of(message_id)
                todo = installing.todo.get(class_id, ())
                if key not in installing.bodies and any(key_of(line.id) == key for line in todo):
                    site.durable()
                    installing.bodies[key] = envelope
                    self.go_on()
            case m.AskState(number, group, after):
                self.wants.setdefault(sender, {})[group] = (number, after)
                self._give_states()
            case m.State(number, group, count, snapshot, missed):
                waits = group in installing.states and self.joined_in.get(group) == number
                if waits and group not in installing.arrived:
                    site.durable()
                    installing.arrived[group] = (count, snapshot, missed)
                    self.go_on()

    def _open(self) -> None:
        """Everything of the configurations so far is here: open the classes of the last one."""
        site = self.site
        site.durable()
        numbers, self.numbers = self.numbers, []
        behind = max(numbers) if self._not_handed() else 0
        for class_id, of_class in site.setup.classes.items():
            if class_id.epoch in numbers and site.me in of_class.sites:
                site.tracks.setdefault(class_id, Track()).behind = behind
        for group in [g for g in site.counts if g not in site.setup.groups or not self._stays(g)]:
            site.counts.pop(group)
            site.history.pop(group, None)
        self._tell_views()
        site.send_waiting()
        site.let_in()

    def _offer(self) -> None:
        """Ask the application for the states that others need, when it has all that was closed and nothing since."""
        site = self.site
        for number in self.numbers:
            if number not in self.at_open:
                site.durable()
                self.at_open[number] = dict(site.counts)
                self.offers.append(number)
        if self.offers and not self._not_handed():
            site.durable()
            for number in self.offers:
                joins = site.decisions[number].joining
                mine = tuple(sorted({j.group for j in joins if j.providers and j.providers[0] == site.me}))
                if mine:
                    site.out.append(e.TakeSnapshot(number, mine))
            self.offers = []

    def _not_handed(self) -> bool:
        """Whether the application lacks something of a class that was closed."""
        return any(not entry.handed for class_id in self.site.earlier for entry in self._entries(class_id))

    def _stays(self, group: GroupId) -> bool:
        return self.site.me in self.site.setup.groups[group].members

    def _entries(self, class_id: ClassId) -> Iterable[Entry]:
        track = self.site.tracks.get(class_id)
        return track.entries if track is not None else ()

    def _tell_views(self) -> None:
        """Tell the application which groups have changed, unless something that came before is not handed over."""
        site = self.site
        if self.numbers or self._not_handed():
            return
        self._emit_views(upto=site.setup.number)
        for class_id, track in site.tracks.items():
            if track.behind and class_id in site.setup.classes:
                track.behind = 0
                site.hand_over(class_id)

    def _emit_views(self, upto: int) -> None:
        for number, views in self.views:
            if number <= upto:
                self.site.out.extend(views)
        self.views = [(number, views) for number, views in self.views if number > upto]

    def done(self, number: int) -> None:
        """Everybody has installed a configuration: all that was closed for it is stable."""
        site = self.site
        if number not in site.undone:
            return
        site.durable()
        site.undone.discard(number)
        decision = site.decisions[number]
        for class_id in sorted(decision.cuts):
            newer = any(class_id in site.decisions[n].cuts for n in site.undone if n > number)
            if not newer:
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
            track.behind = 0  # what it waited for was finished before it
            track.settle(tuple(track.counts.items()))
            site.hand_over(class_id)
            del site.tracks[class_id]
        for number in site.sending.in_class(class_id):
            site.safe(number)
        site.earlier.pop(class_id, None)

    # States for those who come in.

    def _ask_states(self) -> None:
        """Ask for what was missed; where one group's state must be whole, all must: a message may go to several."""
        site, installing = self.site, self.site.installing
        whole = any(group not in site.counts or not j.replay for group, j in installing.states.items())
        whole = whole or any(snapshot is not None for _, snapshot, _ in installing.arrived.values())
        for group, joining in installing.states.items():
            if group not in installing.arrived and joining.providers:
                after = -1 if whole else site.counts[group]
                site.say(joining.providers[0], m.AskState(self.joined_in[group], group, after))

    def snapshotted(self, number: int, states: tuple[tuple[GroupId, bytes], ...]) -> None:
        """The application has given its state of groups, as it was when a configuration opened."""
        self.site.durable()
        self.states[number] = dict(states)
        for old in [n for n in self.states if n <= number - 8]:
            del self.states[old]
            self.at_open.pop(old, None)
        self._give_states()

    def _give_states(self) -> None:
        """Answer who asks for a state, once the configuration is done and the state is there."""
        site = self.site
        for asker, groups in list(self.wants.items()):
            for group, (number, after) in list(groups.items()):
                if number in site.undone or group not in self.states.get(number, {}):
                    continue
                del groups[group]
                site.say(asker, self._state(number, group, after))
            if not groups:
                del self.wants[asker]

    def _state(self, number: int, group: GroupId, after: int) -> m.State:
        count = self.at_open[number][group]
        kept = [(index, entry) for index, entry in self.site.history.get(group, ()) if after < index <= count]
        # With `causal` one source's messages to different groups are ordered too: a list for each group does not tell.
        if after >= 0 and len(kept) == count - after and not self.site.setup.causal:
            missed = tuple(((x.class_id, x.order, x.stamp), x.envelope) for _, x in kept)
            return m.State(number, group, count, None, missed)
        return m.State(number, group, count, self.states[number][group])

    def _restore(self) -> None:
        """All states are there: take over what was missed, in order, or the state itself."""
        site, installing = self.site, self.site.installing
        known = {key_of(entry.id) for kept in site.history.values() for _, entry in kept}
        missed: dict[tuple[m.Place, int], Envelope] = {}
        for group, (count, snapshot, entries) in sorted(installing.arrived.items()):
            if group not in installing.states:
                continue
            if snapshot is not None:
                site.out.append(e.Restored(group, count, snapshot, gap=group in site.counts))
                site.history.pop(group, None)
            for place, envelope in entries:
                missed[place, envelope.number] = envelope
        for (place, _), envelope in sorted(missed.items(), key=lambda item: item[0]):
            entry = Entry(*place, envelope, 0)
            if key_of(entry.id) not in known:
                site.hand(entry)
                for group in envelope.groups:
                    if group in installing.states:
                        site.history.setdefault(group, site.new_history()).append((0, entry))
        for group, (count, _, _) in installing.arrived.items():
            if group in installing.states:
                site.counts[group] = count
                kept = site.history.get(group)
                if kept:
                    renumbered = [(count - len(kept) + 1 + index, entry) for index, (_, entry) in enumerate(kept)]
                    site.history[group] = site.new_history(renumbered)
        installing.states, installing.arrived = {}, {}
        self.joined_in.clear()

    # Time.

    def tick(self) -> None:
        """Ask again for what did not come; say again what the manager may not have heard."""
        site = self.site
        if not site.installing.done:
            self.go_on()
        elif site.undone:
            self._tell_installed()

    def held(self) -> list[Held]:
        """What waits here."""
        site, found = self.site, list[Held]()
        for class_id, todo in site.installing.todo.items():
            for line in todo:
                holders = ", ".join(line.holders)
                found.append(Held(str(line.id), f"class {class_id} is closed, its body comes from {holders}", site.now))
        for group, joining in site.installing.states.items():
            found.append(Held(f"group {group}", f"its state comes from {', '.join(joining.providers)}", site.now))
        for number in sorted(site.undone):
            found.append(Held(f"configuration {number}", "not everybody is known to have installed it", site.now))
        return found
