"""What every member has: members tell the first of them, which tells everybody (errata 58; see `epochs.track`)."""

from typing import TYPE_CHECKING, Any

from ordercast.core.configuration import Destination
from ordercast.core.effects import Held
from ordercast.core.events import Control
from ordercast.epochs import events as e
from ordercast.epochs import messages as m
from ordercast.epochs.copies import Copies
from ordercast.epochs.track import Entry, Track
from ordercast.names import ClassId, Delivery, SiteId

if TYPE_CHECKING:
    from ordercast.epochs.participant import Participant

NOBODY_KNOWS = -1  # which message was the last in a class
PATIENCE = 4  # ticks after which something that is not stable is told or asked for again


class Stability:
    """One site's part; it keeps nothing of its own."""

    def __init__(self, site: "Participant") -> None:
        self.site, self.copies = site, Copies(site)

    def _first(self, class_id: ClassId, groups: Destination) -> SiteId:
        return self.site.class_setup(class_id).destinations(groups)[0]

    def _tracks(self) -> list[tuple[ClassId, Track]]:
        """Return the classes whose members still compare: the open ones."""
        return [(c, track) for c, track in self.site.tracks.items() if c in self.site.setup.classes]

    def alone(self, class_id: ClassId, groups: Destination) -> None:
        """The only member of a destination has delivered: that is stable."""
        self._settle(class_id, ((groups, self.site.tracks[class_id].counts[groups]),))

    def tick(self) -> None:
        """Tell the first member what is new here; what is not stable after some ticks is told, or asked for, again."""
        for class_id, track in self._tracks():
            have: dict[SiteId, list[tuple[Destination, int]]] = {}
            for groups in track.unstable:
                count, first, again = track.counts[groups], self._first(class_id, groups), False
                if track.told.get(groups) == count:
                    track.waited[groups] = track.waited.get(groups, 0) + 1
                    again = track.waited[groups] >= PATIENCE
                    if not again:
                        continue
                track.told[groups], track.waited[groups] = count, 0
                if first != self.site.me:
                    have.setdefault(first, []).append((groups, count))
                elif again:
                    self._ask(class_id, track, groups)
            for first, counts in have.items():
                self._say(first, m.Have(tuple(counts)), class_id)
        self._ask_safe()
        self.ask_ends()

    @property
    def news(self) -> bool:
        """Whether something was delivered here that the first member was not told."""
        return any(
            track.told.get(groups) != track.counts[groups] and self._first(class_id, groups) != self.site.me
            for class_id, track in self._tracks()
            for groups in track.unstable
        )

    def tell(self) -> None:
        """Tell the first member what is new here, now."""
        for class_id, track in self._tracks():
            have: dict[SiteId, list[tuple[Destination, int]]] = {}
            for groups in track.unstable:
                first, count = self._first(class_id, groups), track.counts[groups]
                if track.told.get(groups) != count and first != self.site.me:
                    track.told[groups], track.waited[groups] = count, 0
                    have.setdefault(first, []).append((groups, count))
            for first, counts in have.items():
                self._say(first, m.Have(tuple(counts)), class_id)

    def _ask(self, class_id: ClassId, track: Track, groups: Destination) -> None:
        """Ask who has not said that it has everything; a checkpoint may know that all have (errata 112)."""
        heard, count = track.heard.get(groups, {}), track.counts[groups]
        others = [o for o in self.site.class_setup(class_id).destinations(groups) if o != self.site.me]
        lack = [other for other in others if heard.get(other, 0) < count]
        for other in lack:
            self._say(other, m.AskHave((groups,)), class_id)
        if not lack:
            self._tell_stable(class_id, [(groups, count)])

    def _ask_safe(self) -> None:
        """As a source from outside: ask the first members what became of this site's messages."""
        site = self.site
        asked: dict[tuple[ClassId, Destination], int] = {}
        for number, own in site.sending.own.items():
            if own.class_id in site.setup.classes:
                assert own.class_id is not None
                if site.me not in site.class_setup(own.class_id).destinations(own.groups):
                    asked.setdefault((own.class_id, own.groups), number)
        for (class_id, groups), number in asked.items():
            self._say(self._first(class_id, groups), m.AskSafe(groups, number), class_id)

    # Classes that close along their tree.

    def ask_ends(self) -> None:
        """As a source: ask a member of each destination which message of this site was the last in a class."""
        site = self.site
        for class_id, unknown in site.sending.unknown.items():
            for groups in unknown:
                members = site.class_setup(class_id).destinations(groups)
                if site.me in members and class_id in site.installing.ending:
                    continue  # it sees the end itself
                lives = site.setup.lives  # who has lost its disk since does not know
                others = [s for s in members if s != site.me and lives.get(s, (0, 0))[1] <= class_id.epoch]
                others = [s for s in others if s in site.setup.sites]
                there = [other for other in others if other not in site.suspected] or others
                if there:  # all of them: who has left and was not waited for does not know
                    for other in there:
                        self._say(other, m.AskSafe(groups, 0), class_id)
                else:  # it is the only member, and was not waited for; or nobody is left who knows
                    last = self._last_of(class_id, site.me, groups)
                    if site.me not in members and self._goes_on(class_id, groups):
                        last = NOBODY_KNOWS
                    site.say(site.me, m.Whereabouts(groups, 0, (), last), class_id)

    def _goes_on(self, class_id: ClassId, groups: Destination) -> bool:
        """Whether a group may have what it had in a closed class: somebody is in it who has kept its disk since."""
        setup = self.site.setup
        there = {site for group in groups if group in setup.groups for site in setup.members(group)}
        return any(setup.lives.get(site, (0, 0))[1] <= class_id.epoch for site in there)

    def tell_ends(self, class_id: ClassId) -> None:
        """The end of a class has come here: answer the sources that have asked."""
        for asker, groups in self.site.askers.pop(class_id, []):
            self._tell_end(asker, class_id, groups)

    def _tell_end(self, asker: SiteId, class_id: ClassId, groups: Destination) -> None:
        """Say which message of a source was the last in a class, or keep the question until its end is here."""
        site = self.site
        known = {to[0] for end, to in site.ends.get(class_id, ()) if end == m.NO_MESSAGE}  # empty: of all groups
        if known and not known.issuperset(groups):
            return
        if class_id in site.ends or (class_id in site.draining and class_id not in site.installing.ending):
            self._say(asker, m.Whereabouts(groups, 0, (), self._last_of(class_id, asker, groups)), class_id)
        elif class_id in site.installing.ending:
            asked = site.askers.setdefault(class_id, [])
            if (asker, groups) not in asked:
                asked.append((asker, groups))

    def _last_of(self, class_id: ClassId, source: SiteId, groups: Destination) -> int:
        track = self.site.tracks.get(class_id)
        lasts = self.site.ends.get(class_id, []) if track is None else track.lasts
        return max((end.number for end, to in lasts if end.source == source and to == groups), default=0)

    def _say(self, to: SiteId, message: Control, class_id: ClassId) -> None:
        self.site.say(to, message, class_id)

    def take(self, sender: SiteId, class_id: ClassId, message: Any) -> None:
        """Take what members and sources say of a class."""
        site = self.site
        track = site.tracks.get(class_id)
        if class_id not in site.setup.classes:
            self._of_closed(sender, class_id, message)
            return
        match message:
            case m.Have(counts) if track is not None:
                self._have(sender, class_id, track, counts)
            case m.Stable(counts, copied) if track is not None:
                if copied:
                    self.copies.told(class_id, track, copied)
                if counts:
                    self._settle(class_id, counts)
            case m.AskHave(asked) if track is not None:
                self._say(sender, m.Have(tuple((g, track.counts.get(g, 0)) for g in asked)), class_id)
            case m.AskSafe(groups, _) if track is not None and self._first(class_id, groups) == site.me:
                safe, placed = track.whereabouts(sender, self._life(track, sender, groups), groups)
                if safe or placed:
                    self._say(sender, m.Whereabouts(groups, safe, placed), class_id)
            case m.Whereabouts(groups, safe, placed, _):
                for number, stamp in placed:
                    site.placed(number, stamp)
                for number in [n for n, own in site.sending.own.items() if own.groups == groups and n <= safe]:
                    if site.sending.own[number].class_id == class_id:
                        site.safe(number)
                site.send_waiting()

    def _of_closed(self, sender: SiteId, class_id: ClassId, message: Any) -> None:
        site = self.site
        match message:
            case m.AskSafe(groups, _):
                self._tell_end(sender, class_id, groups)
            case m.Whereabouts(groups, _, _, last) if last is not None and groups in site.sending.unknown.get(
                class_id, ()
            ):
                site.durable()
                site.sending.closed(class_id, groups, last if last >= 0 else site.source.sent)
                for number in site.sending.in_class(class_id) if last < 0 else ():
                    own = site.sending.own[number]
                    if own.groups == groups:  # sent again, it might come twice (errata 133)
                        site.drop(number, own, e.MAY_BE_DELIVERED)
                site.send_waiting()

    @staticmethod
    def _life(track: Track, source: SiteId, groups: Destination) -> int:
        """Return the latest life of a source that sent to a destination."""
        return max((life for who, life, to in track.last if (who, to) == (source, groups)), default=0)

    def _have(self, sender: SiteId, class_id: ClassId, track: Track, counts: m.Counts) -> None:
        site, news, again = self.site, list[tuple[Destination, int]](), list[tuple[Destination, int]]()
        for groups, count in counts:
            members = site.class_setup(class_id).destinations(groups)
            if members[0] != site.me or sender not in members:
                continue
            others = tuple(other for other in members if other != site.me)
            everywhere = track.heard_from(groups, sender, count, others)
            if everywhere > track.stable.get(groups, 0):
                news.append((groups, everywhere))
            elif 0 < count <= track.stable.get(groups, 0):
                again.append((groups, track.stable[groups]))
            self.copies.count(class_id, groups, asked_by=sender)
        if again:
            self._say(sender, m.Stable(tuple(again)), class_id)
        if news:
            self._tell_stable(class_id, news)

    def _tell_stable(self, class_id: ClassId, news: list[tuple[Destination, int]]) -> None:
        """Tell all members how many messages everybody has."""
        site, told = self.site, m.Stable(tuple(news))
        site.say(site.me, told, class_id)
        for other in sorted({o for groups, _ in news for o in site.class_setup(class_id).destinations(groups)}):
            if other != site.me:
                self._say(other, told, class_id)

    def _settle(self, class_id: ClassId, counts: m.Counts) -> None:
        """So many messages every member has: hand over what waited for it; own messages are safe."""
        site = self.site
        track = site.tracks[class_id]
        news: list[Entry] = track.settle(counts)
        if news and site.class_setup(class_id).delivery is not Delivery.AGREED:
            site.durable()
        outside = set[tuple[SiteId, Destination]]()
        for entry in news:
            envelope = entry.envelope
            if envelope.source == site.me and envelope.incarnation == site.source.incarnation:
                site.safe(envelope.number)
            elif self._first(class_id, envelope.groups) == site.me:
                outside.add((envelope.source, envelope.groups))
        for source, groups in sorted(outside):
            if source not in site.class_setup(class_id).destinations(groups):  # it would ask at its next tick
                safe, placed = track.whereabouts(source, self._life(track, source, groups), groups)
                self._say(source, m.Whereabouts(groups, safe, placed), class_id)
        site.hand_over(class_id)
        site.send_waiting()

    @property
    def idle(self) -> bool:
        """Whether everything is stable."""
        return not any(track.unstable for _, track in self._tracks())

    def held(self) -> list[Held]:
        """What is delivered here and not handed over."""
        return [
            Held(str(entry.envelope), self.copies.missing(class_id), self.site.now)
            for class_id, track in self._tracks()
            for entry in track.entries
            if not entry.handed
        ]
