"""From a decision to open classes: install the cuts, fetch what is missing, get states, change views (GS88 §5.2.1).

A site finishes everything that its decisions closed before it opens anything that they opened. So at every site all
messages of a class that was closed come before those of a class that was opened then.
"""

from typing import Any

import msgspec

from ordercast.core.effects import Held
from ordercast.epochs import events as e
from ordercast.epochs import messages as m
from ordercast.epochs.closed import Closed
from ordercast.epochs.difference import Gone, together
from ordercast.epochs.recovery import key_of
from ordercast.epochs.track import Track
from ordercast.names import ClassId, GroupId, SiteId

FETCH_AT_MOST = 256  # messages per request


class Opening(Closed):
    """One site's way from one configuration into the next."""

    # Decisions.

    def told(self, sender: SiteId, decision: m.Decision, gone: Gone | None) -> None:
        """Take a decision; where only what is new was told, of what comes after the configuration of this site."""
        site = self.site
        if site.founding.waits:
            return  # it may have begun with this site, which then has everything from the first configuration on
        if gone is None:
            self._decided(sender, decision)
        elif decision.number == site.setup.number + 1:
            self._decided(sender, msgspec.structs.replace(decision, setup=together(site.setup, decision.setup, gone)))
        elif decision.number > site.setup.number:
            site.behind.hears_of(sender, decision.number)
        else:
            site.behind.tell(sender)

    def _decided(self, sender: SiteId, decision: m.Decision) -> None:
        """Take a decision when it is the next one; else ask for those between."""
        site = self.site
        if decision.number == site.setup.number + 1 or (not site.admitted and decision.number > site.setup.number):
            self._adopt(decision)
        elif decision.number > site.setup.number:
            site.behind.hears_of(sender, decision.number)
        if decision.number <= site.setup.number:
            site.behind.tell(sender)  # once for all that came: each answer brings several

    def _adopt(self, decision: m.Decision) -> None:
        site, old, new = self.site, self.site.setup, decision.setup
        site.durable()
        known = site.behind.keep(decision)
        site.ends = {class_id: last for class_id, last in site.ends.items() if class_id in known}
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
        stopped, site.closed = site.closed, site.closed & new.classes.keys()
        site.reported.clear()
        site.retired = {class_id: kept for class_id, kept in site.retired.items() if class_id in decision.cuts}
        for class_id in sorted(open_here):
            site.earlier[class_id] = decision.closed[class_id]
            if class_id in decision.cuts:
                site.draining.discard(class_id)
                site.machines.pop(class_id, None)
        if decision.closed:
            self._supersede(decision)
            site.undone.add(new.number)
            site.repeats.later(("done", new.number))
        joins = {joining.group: joining for joining in decision.joining if joining.site == site.me}
        self._note_views(old, new)
        self._leaves_for_good(old, new)
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
        self._answer(decision)
        if site.me not in new.sites:
            self._removed()
        self._lost_disks(new)
        self._closes_along_trees(decision, stopped)
        self.go_on()
        site.let_in()  # who is no member of a class, and orders it or passes it on, opens nothing
        site.manager.look()

    def _removed(self) -> None:
        """An operator has removed this site: what it has not sent is not sent; it still gives away what it has."""
        site = self.site
        for number, own in list(site.sending.own.items()):
            site.sending.settle(number)
            site.out.append(e.Dropped(number, f"{site.me} was removed", own.groups, own.body))

    def _begin(self, decision: m.Decision) -> None:
        """A site without a history learns of the configuration: it takes part in nothing before it is taken in."""
        site = self.site
        site.setup = decision.setup
        site.decisions, site.behind.state.archive = {decision.number: decision}, {}
        site.installing.states.clear()
        site.earlier.clear()
        site.undone.clear()
        site.closed = {c for c, of_class in decision.setup.classes.items() if site.me in of_class.sites}
        site.earlier.update(decision.closed)
        if decision.closed:
            site.undone.add(decision.number)
        answered = max(decision.setup.answered.get(site.me, (0,)))  # by an earlier life
        site.asked_for = {answered + index: change for index, change in enumerate(site.asked_for.values(), start=1)}
        site.requests = answered + len(site.asked_for)
        for group in decision.setup.groups:
            if site.me in decision.setup.members(group):
                site.installing.states[group] = m.Joining(site.me, group, ())
        if site.me not in decision.setup.sites:
            self._removed()

    def _answer(self, decision: m.Decision) -> None:
        """Tell who asked at this site what became of it."""
        site = self.site
        refused = {number: reason for who, number, reason in decision.refused if who == site.me}
        for request in [r for r in site.asked_for if decision.setup.has_answered(site.me, r)]:
            site.answered(request, refused.get(request, ""))

    def go_on(self) -> None:
        """Deliver what is there of the cuts, in order; open the classes when nothing is missing."""
        site, installing = self.site, self.site.installing
        for class_id in sorted(installing.todo):
            if class_id in site.reported or min(installing.todo).epoch < class_id.epoch:
                break  # what was reported on stays as it is; what was opened later comes later
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
            self.tell_views_up_to(min(self.joined_in.values(), default=0) - 1)
            self._restore()
        if installing.states:
            self._ask_states()
        elif self.numbers:
            self._open()
        else:
            self._tell_views()
        site.send_waiting()

    def _fetch(self) -> None:
        """Ask those who have it for what is missing; of each message the first who is not suspected."""
        site = self.site
        asked: dict[tuple[SiteId, ClassId], list[m.Id]] = {}
        for class_id, todo in site.installing.todo.items():
            for line in todo if class_id not in site.reported else ():
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
                for entry in track.entries if track is not None else site.retired.get(class_id, ()):
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
            case m.State(number, group, count, snapshot, missed, at):
                waits = group in installing.states and self.joined_in.get(group) == number
                if waits and group not in installing.arrived:
                    site.durable()
                    installing.arrived[group] = (count, snapshot, missed)
                    if at == site.setup.number:
                        self.done(number)  # states are given when everybody has installed it
                    self.go_on()

    def _open(self) -> None:
        """Everything of the configurations so far is here: open the classes of the last one."""
        site = self.site
        site.durable()
        numbers, self.numbers = self.numbers, []
        behind = max(numbers) if self._holds_back() else 0
        for class_id, of_class in site.setup.classes.items():
            if class_id.epoch in numbers and site.me in of_class.sites:
                site.tracks.setdefault(class_id, Track()).behind = behind
        for group in [g for g in site.counts if g not in site.setup.groups or not self._stays(g)]:
            site.counts.pop(group)
            site.history.pop(group, None)
        self._tell_views()
        site.send_waiting()
        site.let_in()

    def _stays(self, group: GroupId) -> bool:
        return self.site.me in self.site.setup.groups[group].members

    def _tell_views(self) -> None:
        """Tell the application which groups have changed, unless something that came before is not handed over."""
        site = self.site
        if self.numbers or self._holds_back():
            return
        self.tell_views_up_to(site.setup.number)
        for class_id, track in site.tracks.items():
            if track.behind and class_id in site.setup.classes:
                track.behind = 0
                site.hand_over(class_id)

    def tell_views_up_to(self, number: int) -> None:
        """Tell the views of configurations up to a number."""
        for _, views in [pair for pair in self.views if pair[0] <= number]:
            self.site.out.extend(views)
        self.views = [pair for pair in self.views if pair[0] > number]

    def tick(self) -> None:
        """Ask again for what did not come; say again what the manager may not have heard."""
        site = self.site
        if not site.installing.done:
            self.go_on()
        if site.undone and (site.installing.done or not site.installing.delivered):
            self._tell_installed()

    def held(self) -> list[Held]:
        """What waits here."""
        site, found = self.site, list[Held]()
        for class_id in site.installing.ending:
            found.append(Held(f"class {class_id}", "it closes, and its end has not come down its tree", site.now))
        for class_id, todo in site.installing.todo.items():
            for line in todo:
                holders = ", ".join(line.holders)
                found.append(Held(str(line.id), f"class {class_id} is closed, its body comes from {holders}", site.now))
        for group, joining in site.installing.states.items():
            found.append(Held(f"group {group}", f"its state comes from {', '.join(joining.providers)}", site.now))
        for number in sorted(site.undone):
            found.append(Held(f"configuration {number}", "not everybody is known to have installed it", site.now))
        return found
