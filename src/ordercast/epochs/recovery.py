"""From reports to a cut, and from a cut to what a site still has to install (GS88 §5.2.1; errata 18, 19, 22).

**The cut is a sort.** In every class, at every moment, a site has delivered, among the messages that go to it, all that
have smaller stamps than one it has delivered and that anybody has delivered: the prefix property, which `verify` judges
in every run. So the union of what the survivors have delivered, sorted by stamp, is the history, and what a survivor
lacks of it comes after everything it has.
"""

from collections.abc import Iterable, Mapping

import msgspec

from ordercast.core.configuration import Destination
from ordercast.core.events import Envelope
from ordercast.epochs.messages import ClassReport, Cut, Decision, Id, Joining, Line, Place
from ordercast.epochs.setup import ClassSetup, Setup
from ordercast.epochs.track import Entry, Track
from ordercast.names import ClassId, GroupId, SiteId

Key = tuple[SiteId, int, int]
"""An `Id` as a key."""


def key_of(message: Id) -> Key:
    """Return an id as a key of a table."""
    return message.source, message.incarnation, message.number


def cut_of(reports: Mapping[SiteId, ClassReport]) -> Cut:
    """Merge the reports of one class."""
    stable: dict[Destination, int] = {}
    last: dict[tuple[SiteId, int, Destination], int] = {}
    holders: dict[Key, tuple[Line, list[SiteId]]] = {}
    for site, report in sorted(reports.items()):
        for groups, count in report.stable:
            stable[groups] = max(stable.get(groups, 0), count)
        for message, groups in report.last:
            stream = (message.source, message.incarnation, groups)
            last[stream] = max(last.get(stream, 0), message.number)
        for line in report.lines:
            holders.setdefault(key_of(line.id), (line, []))[1].append(site)
    lines = [
        msgspec.structs.replace(line, holders=tuple(sites))
        for line, sites in holders.values()
        if line.index > stable.get(line.groups, 0)
    ]
    lines.sort(key=lambda line: (line.order, line.stamp))
    ends = tuple((Id(source, life, number), groups) for (source, life, groups), number in sorted(last.items()))
    return Cut(tuple(sorted(stable.items())), tuple(lines), ends)


def as_reported(cut: Cut, site: SiteId) -> ClassReport:
    """Return what a site has that is not there: it has reported for an earlier cut, and keeps what it has.

    Everything of a source before the first line of its own is stable, and so in the history (errata 111).
    """
    lines = tuple(msgspec.structs.replace(line, holders=()) for line in cut.lines if site in line.holders)
    first: dict[tuple[SiteId, int, Destination], int] = {}
    for line in cut.lines:
        stream = (line.id.source, line.id.incarnation, line.groups)
        first[stream] = min(first.get(stream, line.id.number), line.id.number)
    last = [(line.id, line.groups) for line in lines]
    for end, groups in cut.last:
        stable = first.get((end.source, end.incarnation, groups), end.number + 1) - 1
        if stable:
            last.append((msgspec.structs.replace(end, number=stable), groups))
    return ClassReport(cut.stable, lines, tuple(last))


def cuts_of(reports: Mapping[SiteId, Mapping[ClassId, ClassReport]], wanted: Iterable[ClassId]) -> dict[ClassId, Cut]:
    """Return the cut of every class that was reported on."""
    return {
        class_id: cut_of({site: told[class_id] for site, told in reports.items() if class_id in told})
        for class_id in sorted(wanted)
    }


def joining(
    old: Setup,
    new: Setup,
    closed: Iterable[ClassId],
    pending: Mapping[SiteId, Iterable[GroupId]],
    there: frozenset[SiteId],
) -> tuple[Joining, ...]:
    """Return who comes into which group, and who of those who stay can give it the group's state.

    `pending`: who had come into groups before, and still waits for their state. `there`: who has reported.
    """
    found, anew = list[Joining](), set[SiteId]()
    closing = {group for class_id in closed for group in old.classes[class_id].groups}
    waits = {(site, group) for site, groups in pending.items() for group in groups if group in closing}
    empty = {site for site, (_, taken_in) in new.lives.items() if taken_in == new.number}
    waits |= {(site, group) for site in empty for group in new.groups}
    for group in new.groups:
        before = old.members(group) if group in old.groups else ()
        now = new.members(group)
        whole = [site for site in before if (site, group) not in waits and site in there]
        staying = tuple(site for site in whole if site in now) or tuple(whole)  # who leaves can give it, too
        if not staying and group in old.groups:  # who was in it last has lost its disk: go on from what another has
            others = [s for s in now if s not in empty and (s in before or group in old.away.get(s, ()))]
            staying = tuple(others[:1])
            anew.update(now)
        for site in now:
            if site not in before or (site, group) in waits:
                if site in staying:  # it goes on with what it has
                    found.append(Joining(site, group, ()))
                    continue
                back = group in old.away.get(site, ()) and site not in {*old.partly, *empty}
                found.append(Joining(site, group, staying, back))
    # Who goes on with what it has of one group gets no messages of others one by one: some go to both. Nor does anybody
    # in a group that goes on from what one site has: that may lack what others have through other groups (errata 124).
    alone = {joins.site for joins in found if not joins.providers} | anew
    return tuple(Joining(j.site, j.group, j.providers, j.replay and j.site not in alone) for j in found)


def given_states(old: Setup, new: Setup, joins: Iterable[Joining]) -> Setup:
    """Return a configuration in which who is away, and comes back later, is given states where a group goes on anew.

    The group goes on from what one site has; who is away may have something that this one has not (errata 124, 129).
    """
    anew = {joins.group for joins in joins if not joins.providers and joins.group in old.groups}
    partly = {site for site, groups in new.away.items() if anew.intersection(groups)}
    return msgspec.structs.replace(new, partly=tuple(sorted(partly.union(new.partly))))


def rolled_back(track: Track, cut: Cut) -> list[Entry]:
    """Return what a site has delivered in a class and the others never will: it is undone. The rest stays (errata 118).

    Empty for everyone who has reported: its lines are in the cut (errata 22 ii). What stays is, of every group, a
    beginning of what the cut has of it, because the site has delivered everything up to its last stamp (the prefix
    property): what it lacks comes after all it has.
    """
    stable, known = dict(cut.stable), {key_of(line.id) for line in cut.lines}
    unknown = [entry for entry in track.entries if key_of(entry.id) not in known and not track.is_stable(entry)]
    return [entry for entry in unknown if entry.index > stable.get(entry.envelope.groups, 0)]


def lacks(me: SiteId, of_class: ClassSetup, track: Track, cut: Cut, without: frozenset[GroupId]) -> list[Line]:
    """Return what a member has to install, in order; not what goes only to groups whose state it waits for."""
    have = {key_of(entry.id) for entry in track.entries}
    found = []
    for line in cut.lines:
        goes_here = any(me in of_class.members[group] for group in line.groups if group not in without)
        if goes_here and key_of(line.id) not in have and line.index > track.stable.get(line.groups, 0):
            found.append(line)
    return found


def was_left_out(me: SiteId, class_id: ClassId, decisions: Iterable[Decision]) -> bool:
    """Whether a cut of a class was made without this site: what it rolled back leaves a hole in its log (errata 102).

    It installs nothing of the class any more, and is given the states of its groups instead; except of groups that it
    goes on with alone, because nobody is left to give them.
    """
    return any(class_id in decision.cuts and me not in decision.installers for decision in decisions)


class Installing(msgspec.Struct, array_like=True):
    """What stands between a site and the classes of its configuration."""

    todo: dict[ClassId, list[Line]] = {}
    """To be delivered, in order."""
    bodies: dict[Key, Envelope] = {}
    """What came of it."""
    states: dict[GroupId, Joining] = {}
    """Groups whose state is awaited."""
    arrived: dict[GroupId, tuple[int, bytes | None, tuple[tuple[Place, Envelope], ...]]] = {}
    """States that came before everything else was installed."""
    ending: list[ClassId] = []
    """Classes that close along their tree, and whose end has not come down to this site."""

    @property
    def delivered(self) -> bool:
        """Whether everything of the classes that were closed is delivered here."""
        return not self.todo and not self.ending

    @property
    def done(self) -> bool:
        """Whether nothing is missing."""
        return self.delivered and not self.states
