"""States for those who come into a group: asked for, taken from the application, given, and taken over."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from ordercast.core.events import Envelope
from ordercast.epochs import events as e
from ordercast.epochs import messages as m
from ordercast.epochs.recovery import Key, key_of
from ordercast.epochs.setup import Setup
from ordercast.epochs.track import Entry, Recent
from ordercast.names import ClassId, GroupId, SiteId

if TYPE_CHECKING:
    from ordercast.epochs.participant import Participant


def views_between(me: SiteId, old: Setup, new: Setup, *, begins: bool) -> list[e.ViewChanged]:
    """Return which groups of a site have other members now; to an application that begins with nothing all are news.

    Who was taken out of a group for a while, and is let out of it for good meanwhile, is told so (errata 123).
    """
    found = list[e.ViewChanged]()
    for group in sorted({*old.groups, *new.groups}):
        before = old.members(group) if group in old.groups else ()
        now = new.members(group) if group in new.groups else ()
        wanted = new.groups[group].members if group in new.groups else ()
        stays_out = me not in wanted and group in old.away.get(me, ())
        if (before != now and (me in before or me in now)) or (begins and me in now) or stays_out:
            joined, left = tuple(s for s in now if s not in before), tuple(s for s in before if s not in now)
            left = (*left, me) if stays_out else left
            away = tuple(site for site in wanted if group in new.away.get(site, ()))
            found.append(e.ViewChanged(group, now, joined, left, new.number, away))
    return found


class States:
    """One site's part, as who gives and as who gets; and what a site keeps on its way into a configuration."""

    def __init__(self, site: "Participant") -> None:
        self.site = site
        self.numbers: list[int] = []  # configurations whose classes this site has not opened yet
        self.joined_in: dict[GroupId, int] = {}  # groups whose state is awaited, and since which configuration
        self.views: list[tuple[int, list[e.ViewChanged]]] = []  # to be told when what came before is handed over
        self.at_open: dict[int, dict[GroupId, int]] = {}  # how many messages groups had when a configuration opened
        self.offers: list[int] = []  # configurations whose states the application was not asked for yet
        self.asked: dict[int, tuple[GroupId, ...]] = {}  # states that it was asked for: it gets nothing newer before
        self.states: dict[int, dict[GroupId, bytes]] = {}  # the application's states then, for joiners
        self.follows: dict[int, int] = {}  # configurations that were superseded before they were done, and by which
        self.wants: dict[SiteId, dict[GroupId, tuple[int, int]]] = {}  # who asks for states, and what they have

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
                joins = site.behind[number].joining
                mine = tuple(sorted({j.group for j in joins if j.providers and j.providers[0] == site.me}))
                if mine:
                    self.asked[number] = mine
                    site.out.append(e.TakeSnapshot(number, mine))
            self.offers = []

    def _not_handed(self) -> bool:
        """Whether the application lacks something of a class that was closed."""
        return any(not entry.handed for class_id in self.site.earlier for entry in self._entries(class_id))

    def _holds_back(self) -> bool:
        """Whether the application must not have anything of the new classes yet."""
        return bool(self.asked) or self._not_handed()

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
        self.asked.pop(number, None)
        self.states[number] = dict(states)
        for old in [n for n in self.states if n <= number - 8]:
            del self.states[old]
            self.at_open.pop(old, None)
        self._give_states()
        self._tell_views()

    def _give_states(self) -> None:
        """Answer who asks for a state, once the configuration is done and the state is there."""
        site = self.site
        for asker, groups in list(self.wants.items()):
            for group, (number, after) in list(groups.items()):
                if self._undone(number) or group not in self.states.get(number, {}):
                    continue
                del groups[group]
                site.say(asker, self._state(number, group, after))
            if not groups:
                del self.wants[asker]

    def _undone(self, number: int) -> bool:
        """Whether somebody may not have installed a configuration, or the one that superseded it."""
        if self.left_out(self.site.me, number):
            return True
        while number in self.follows:
            number = self.follows[number]
        return number in self.site.undone

    def left_out(self, provider: SiteId, number: int) -> bool:
        """Whether a configuration was superseded without asking a site: what it has may not be what others have."""
        while number in self.follows:
            number = self.follows[number]
            if provider not in self.site.behind[number].installers:
                return True
        return False

    def stranded(self) -> set[ClassId]:
        """Return the classes of groups whose state is awaited here from nobody who may give it."""
        site, found = self.site, set[ClassId]()
        for group, joining in site.installing.states.items():
            number = self.joined_in.get(group)
            gone = number is not None and all(self.left_out(provider, number) for provider in joining.providers)
            if gone and joining.providers and group in site.setup.class_of:
                found.add(site.setup.class_of[group])
        return found

    def _state(self, number: int, group: GroupId, after: int) -> m.State:
        count = self.at_open[number][group]
        kept = [(index, entry) for index, entry in self.site.history.get(group, ()) if after < index <= count]
        # With `causal` one source's messages to different groups are ordered too: a list for each group does not tell.
        if after >= 0 and len(kept) == count - after and not self.site.setup.causal:
            missed = tuple(((x.class_id, x.order, x.stamp), x.envelope) for _, x in kept)
            return m.State(number, group, count, None, missed, self.site.setup.number)
        return m.State(number, group, count, self.states[number][group], (), self.site.setup.number)

    def _restore(self) -> None:
        """All states are there: take over what was missed, in order, or the state itself."""
        site, installing = self.site, self.site.installing
        known = {key_of(entry.id) for kept in site.history.values() for _, entry in kept}
        missed: dict[tuple[m.Place, Key], Envelope] = {}  # two messages may have one stamp (errata 130)
        for group, (count, snapshot, entries) in sorted(installing.arrived.items()):
            if group not in installing.states:
                continue
            if snapshot is not None:
                epoch = self.joined_in[group]
                site.out.append(e.Restored(group, count, snapshot, gap=group in site.counts, epoch=epoch))
                site.history.pop(group, None)
            for place, envelope in entries:
                missed[place, (envelope.source, envelope.incarnation, envelope.number)] = envelope
        for (place, _), envelope in sorted(missed.items(), key=lambda item: item[0]):
            entry = Entry(*place, envelope, 0)
            if key_of(entry.id) not in known:
                site.hand(entry)
                for group in envelope.groups:
                    if group in installing.states:
                        site.history.setdefault(group, Recent()).append(0, entry)
        for group, (count, _, _) in installing.arrived.items():
            if group in installing.states:
                site.counts[group] = count
                kept = site.history.get(group)
                if kept:
                    renumbered = [(count - len(kept) + 1 + index, entry) for index, (_, entry) in enumerate(kept)]
                    site.history[group] = Recent(renumbered)
        installing.states, installing.arrived = {}, {}
        self.joined_in.clear()

    def _entries(self, class_id: ClassId) -> Iterable[Entry]:
        track = self.site.tracks.get(class_id)
        return track.entries if track is not None else ()

    # What is different now.

    def enters(self, group: GroupId) -> bool:
        """Whether this site comes into a group, and its application was not told so yet."""
        said = any(view.group == group and self.site.me in view.joined for _, views in self.views for view in views)
        return said or group in self.site.installing.states

    def _note_views(self, old: Setup, new: Setup) -> None:
        """Note which groups of this site have other members now."""
        self.views.append((new.number, views_between(self.site.me, old, new, begins=self.site.since == new.number)))

    def _leaves_for_good(self, old: Setup, new: Setup) -> None:
        """Who has left a group while it was away has nothing of it: who joins again is given a state (errata 126)."""
        for group in old.away.get(self.site.me, ()):
            if group not in new.groups or self.site.me not in new.groups[group].members:
                self.site.counts.pop(group, None)
                self.site.history.pop(group, None)

    # Who has installed what.

    def has_installed(self, number: int) -> bool:
        """Whether everything that was closed for a configuration is delivered here, in this life of the site."""
        site = self.site
        if number in site.decisions and site.reported & site.decisions[number].closed.keys():
            return False  # a ballot may decide otherwise
        return site.remembers(number) and (number not in self.numbers or site.installing.delivered)

    def _tell_installed(self) -> None:
        """Tell the manager that everything that was closed is delivered here; it answers when that is so everywhere.

        Who had nothing to install is not waited for. It hears when all have, and asks if it does not.
        """
        site = self.site
        leader = site.leader
        if leader is None:
            return
        for number in sorted(site.undone):
            installers = site.decisions[number].installers
            if self.has_installed(number) and (site.me in installers or leader == site.me):
                if site.repeats.due(("installed", number, leader)):
                    site.say(leader, m.Installed(number))
                continue
            others = [s for s in installers if s != site.me and s not in site.suspected]
            for other in others[:1] if leader == site.me else [leader]:  # a manager that was away may be told, too
                if site.repeats.due(("done", number)):
                    site.say(other, m.AskDone(number))

    # What opening does.

    def _tell_views(self) -> None:
        raise NotImplementedError
