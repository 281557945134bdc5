"""The judge of logs in which groups change, while they are written.

It keeps a *window*: messages that are not yet at all members, and what comes behind such a message in a log or in the
line of a group. `verify.histories`, the judge of whole runs, judges the window again and again; what is then at all
members is *settled*: only the last message of each group and of each source is remembered of it. A cycle is never
settled in parts: everything before a settled message is settled.

A site that is away is waited for until the window is large; then its log is *given up* until it comes back. What a
site delivers that was given up, or that came late, of what others had settled before is counted, and not judged.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

from ordercast.names import GroupId, SiteId
from ordercast.verify import findings
from ordercast.verify.deliveries import JUDGES
from ordercast.verify.findings import NOWHERE, Delivery, Finding, MsgId, Sent
from ordercast.verify.inside import Inside
from ordercast.verify.numbers import Numbers
from ordercast.verify.record import Record
from ordercast.verify.stays import Change, Follower, Log, entered, site_of

WAITED_FOR = 100_000  # deliveries in the window, while a site that is away is waited for
CHANGES_KEPT = 200  # of a log, behind the settled part, before those that say nothing any more are forgotten


class Last(NamedTuple):
    """The last settled message of a group at a site, or of a source in a group."""

    msg_id: MsgId
    stamp: bytes
    number: int


class Logs:
    """What logs tell, each in order, and what is remembered of what is settled."""

    def __init__(self, promises: frozenset[str], waited_for: int = WAITED_FOR) -> None:
        """`promises`: of `total` and `acyclic`, those that are judged."""
        self.promises, self.waited_for = promises, waited_for
        self.broken: dict[str, Finding] = {}
        self.rows: dict[str, list[Delivery]] = {}
        self.changes: dict[str, list[Change]] = {}
        self.begins: dict[str, frozenset[GroupId]] = {}
        self.sends: dict[MsgId, Sent] = {}
        self.posts: dict[MsgId, str] = {}
        self.drops: set[MsgId] = set()
        self.numbers: dict[SiteId, Numbers] = {}
        """The numbers of each source up to which it is known what was sent."""
        self.ends: dict[GroupId, bytes] = {}
        """Up to where the line of each group is settled."""
        self.had: dict[str, dict[GroupId, Last]] = {}
        """The last settled message of each group that a log has."""
        self.reached: dict[tuple[SiteId, GroupId], Last] = {}
        """The last settled message of each source in each group."""
        self.settled_at: dict[str, int] = {}
        """The last position of each log that is settled."""
        self.founders: set[SiteId] = set()
        """The sites with which the cluster began."""
        self.begun: set[str] = set()
        """The logs that there are; of the founders' it is known that they come."""
        self.member: dict[str, set[GroupId]] = {}
        """The groups that a log says its site is in, as far as it is read."""
        self.known: set[GroupId] = set()
        """Groups of which somebody is known who was in them."""
        self.kept: dict[str, int] = {}
        """How many changes of each log are kept from before what is settled."""
        self.given_up: set[str] = set()
        self.back: set[str] = set()
        """Logs that were given up, or came late, and are judged from somewhere on."""
        self.not_judged = 0
        """How many deliveries were not judged, because their log was given up or came late."""
        self.unsent = 0
        """How many messages were settled, though it is not known what their sources had sent."""
        self.undone: set[str] = set()
        """Logs that have undone what others had, after it was settled."""
        self._open: set[MsgId] = set()
        self._waiting: set[MsgId] = set()
        """The messages in `rows`; those of them that are compared are open."""
        self.waits: dict[str, float] = {}
        """What keeps messages from being settled, beside sites that are away, and since when."""

    def note(self, finding: Finding) -> None:
        """Remember the first violation of each property."""
        if not self.undone:  # what was settled comes again: nothing can be said
            self.broken.setdefault(finding.property, finding)

    def notes(self) -> list[str]:
        """Say what was not judged."""
        found = []
        if self.given_up | self.back:
            logs = ", ".join(sorted(self.given_up | self.back)[:5])
            found.append(
                f"{self.not_judged:,} deliveries were not judged: sites were away for long, or came late ({logs})"
            )
        if self.unsent:
            found.append(f"{self.unsent:,} messages are of sites that ended before they wrote down what they sent")
        if self.undone:
            logs = ", ".join(sorted(self.undone)[:5])
            found.append(f"{logs} has undone what was settled: nothing is judged since; begin anew without the state")
        return found

    @property
    def under_way(self) -> int:
        """How many messages are not settled."""
        return len(self._open)

    # What logs tell.

    def founded(self, members: Mapping[GroupId, Iterable[SiteId]]) -> None:
        """The cluster begins with these members."""
        if self.founders:
            return  # every founder tells this, and it is read again after a restart
        self.founders = {site for sites in members.values() for site in sites}
        for group, sites in members.items():
            self.known.add(group)
            for site in sites:
                self._expect(site, group)

    def _expect(self, log: str, *groups: GroupId) -> None:
        self.rows.setdefault(log, [])
        self.changes.setdefault(log, [])
        self.begins[log] = self.begins.get(log, frozenset()) | {*groups}
        self.member.setdefault(log, set()).update(groups)

    def began(self, log: str) -> None:
        """A life of a site takes part."""
        if log not in self.begun:
            self._expect(log)
            self.begun.add(log)

    def sent(self, msg_id: MsgId, sent: Sent, post: str = "") -> None:
        """A source has sent a message."""
        if msg_id in self.drops:
            self.drops.discard(msg_id)
            return
        if self._is_passed(sent) and msg_id not in self._waiting:
            return
        other = self.sends.setdefault(msg_id, sent)
        if other != sent:
            self.note(findings.two_sends(msg_id, [other, sent]))
        if post:
            self.posts[msg_id] = post

    def dropped(self, msg_id: MsgId) -> None:
        """A source will not send a message that it has taken."""
        source, _, number = msg_id.rpartition(":")
        if int(number) not in self.numbers.get(source, ()):
            self.drops.add(msg_id)  # what it was sent as is still to come
        self.sends.pop(msg_id, None)
        self.posts.pop(msg_id, None)

    def written(self, source: SiteId, first: int, last: int) -> None:
        """Everything that a source has sent of these numbers was told."""
        self.numbers.setdefault(source, Numbers()).add(first, last)

    def _is_passed(self, sent: Sent) -> bool:
        """Whether a message cannot come any more: it or a later one of its source has come to all its groups."""
        reached = [self.reached.get((sent.source, group)) for group in sent.groups]
        return all(last is not None and sent.number <= last.number for last in reached)

    def changed(self, log: str, change: Change) -> None:
        """A site says something in its log beside deliveries."""
        self.began(log)
        self._is_in(log, change)
        if log in self.given_up:
            if change.kind != "state" and not (change.kind == "view" and site_of(log) in change.joined):
                return
            self.given_up.discard(log)
            self.back.add(log)
        if change.kind == "undone" and change.undone_from <= self.settled_at.get(log, NOWHERE):
            self.undone.add(log)
        self.changes[log].append(change)

    def _is_in(self, log: str, change: Change) -> None:
        if change.kind == "state" or site_of(log) in change.members:
            self.member[log].add(change.group)
        elif change.kind == "view" and site_of(log) not in change.away:
            self.member[log].discard(change.group)
        self.known |= {change.group} - {""}

    def delivered(self, row: Delivery) -> None:
        """A site has delivered a message."""
        self.began(row.site)
        if row.site in self.given_up:
            self.not_judged += 1
        elif not self._is_settled(row):
            self.rows[row.site].append(row)
            self._open.add(row.msg_id)
            self._waiting.add(row.msg_id)

    def _is_settled(self, row: Delivery) -> bool:
        """Whether others have settled this part of the line: who has all of it delivers no more there."""
        assert row.stamp is not None
        had = self.had.get(row.site, {})
        for group in self.member[row.site].intersection(row.groups):
            last = had.get(group)
            if last is not None and row.stamp <= last.stamp:
                before = Delivery(row.site, NOWHERE, last.msg_id, row.groups, stamp=last.stamp)
                same = last.msg_id == row.msg_id
                self.note(findings.twice(before, row) if same else findings.not_larger(before, row))
                return True
            if row.stamp <= self.ends.get(group, b"") and row.msg_id not in self._waiting:  # nobody waited for this log
                self.not_judged += 1
                return True
        return False


class Window(Logs):
    """Give it what logs tell (`began`, `changed`, `sent`, `delivered`), each log in order, and `judge` now and then."""

    def judge(self, now: float = 0.0) -> None:
        """Judge what is in the window, and settle what is everywhere; what waits does so since now."""
        logs = {name: Log(rows, self.changes[name], self.begins[name]) for name, rows in self.rows.items()}
        window = Inside(logs, self.sends, self.posts, running=True)
        window.back, window.numbers = frozenset(self.back), self.numbers
        for finding in window.judge():
            self.note(finding)
        kept = window.kept()
        record = Record.of_rows({}, self.sends, kept)
        for name in sorted(self.promises & {"total", "acyclic"} - self.broken.keys()):
            order = JUDGES[name](record)
            if order is not None:
                self.note(order)
        self._settle(window, kept, now)
        if sum(map(len, self.rows.values())) > self.waited_for:
            self._give_up(window)

    def _settle(self, window: Inside, kept: dict[str, list[Delivery]], now: float) -> None:
        settled = self._everywhere(window, kept, now)
        sequences = [[row.msg_id for row in rows] for rows in kept.values()]
        self._open = {message for sequence in sequences for message in sequence}
        sequences += [[row.msg_id for row in line.values()] for line in window.lines.values()]
        sequences += [[row.msg_id for row in rows] for rows in window.undecided()]
        _close(settled, sequences)
        self._open -= settled
        for group, line in window.lines.items():
            for row in line.values():
                if row.msg_id not in settled:
                    break
                self._reach(row, group)
        for rows in kept.values():
            for row in rows:
                for group in row.groups if row.msg_id in settled else ():
                    self.ends[group] = max(self.ends.get(group, b""), row.stamp or b"")
        for name, rows in kept.items():
            had = self.had.setdefault(name, {})
            for row in rows:
                if row.msg_id in settled:
                    self._has(row, had)
            at = self.settled_at.get(name, NOWHERE)
            valid = window.followers[name].valid
            self.rows[name] = [row for row in valid if row.msg_id not in settled and row.position > at]
            self._cut(name)
        for message in settled:
            self.unsent += self.sends.pop(message, None) is None
            self.posts.pop(message, None)
        self._waiting = {row.msg_id for rows in self.rows.values() for row in rows}
        for message in [m for m, sent in self.sends.items() if m not in self._waiting and self._is_passed(sent)]:
            del self.sends[message]
            self.posts.pop(message, None)

    def _has(self, row: Delivery, had: dict[GroupId, Last]) -> None:
        """Note that a log has a message that is settled now."""
        assert row.stamp is not None
        for group in row.groups:
            if group in self.ends:
                had[group] = Last(row.msg_id, row.stamp, row.number)
        self.settled_at[row.site] = row.position

    def _everywhere(self, window: Inside, kept: dict[str, list[Delivery]], now: float) -> set[MsgId]:
        """Return the messages that all members have, and of which it is known who sent them."""
        rows = {row.msg_id: row for rows in kept.values() for row in rows}
        found, waits = set(rows), set()
        unsent: dict[SiteId, Delivery] = {}
        for message, row in rows.items():
            unknown = [group for group in row.groups if group not in self.known]
            if unknown:
                waits.add(f"nobody is known who is in {unknown[0]}")
                found.discard(message)
            if message in self.sends or row.source in self.given_up or window.is_gone(row.source):
                continue
            if row.number in self.numbers.get(row.source, ()):
                self.note(findings.unsent(row))
            else:
                first = min(unsent.get(row.source, row), row, key=lambda row: row.number)
                unsent[row.source] = first
                found.discard(message)
        for group, name, stay in window.must_have():
            lacks = window.lacks(group, stay) if name not in self.given_up else []
            found.difference_update(lacks)
            if lacks and window.is_there(name):
                waits.add(f"{lacks[0]} has not come to {name} in {group}")
        waits |= {f"what {source} has sent as {row.msg_id} is not there" for source, row in unsent.items()}
        for name in self.rows.keys() - self.begun - self.given_up:
            waits.add(f"{name} has not begun")
            found.clear()
        self.waits = {reason: self.waits.get(reason, now) for reason in sorted(waits)}
        return found

    def _give_up(self, window: Inside) -> None:
        """Wait no longer for logs whose sites are away, have left, or have lost their disks."""
        for name in self.rows:
            if name not in self.given_up and not (window.is_there(name) and name in self.begun):
                self.given_up.add(name)
                self.back.discard(name)
                self.not_judged += len(self.rows[name])
                self.rows[name], self.changes[name], self.begins[name] = [], [], frozenset()
                self.had.pop(name, None)

    def _cut(self, name: str) -> None:
        """Forget changes behind what is settled that say nothing any more.

        Kept are: how the site came into the groups that it is in, and the newest view of each group, and the newest
        one in which a site is away.
        """
        at, changes = self.settled_at.get(name, NOWHERE), self.changes[name]
        old = [change for change in changes if change.position <= at]
        if len(old) <= self.kept.get(name, 0) + CHANGES_KEPT:
            return
        log = Follower(name, Log((), old, self.begins[name]))
        since = {(group, stay.since) for group, stay in log.open.items()}
        waiting = {group for group, stay in log.open.items() if stay.missed is not None or stay.waits}
        last: dict[tuple[GroupId, SiteId], Change] = {}
        for change in old:
            for site in (*change.away, ""):
                last[change.group, site] = change
        said = {id(change) for change in last.values()}
        kept = [
            change
            for change in old
            if change.kind != "undone"
            and (id(change) in said or change.group in waiting or (change.group, entered(change.epoch)) in since)
        ]
        self.begins[name] = frozenset(g for g in self.begins[name] if g in log.open and not log.open[g].since)
        self.changes[name] = [*kept, *(change for change in changes if change.position > at)]
        self.kept[name] = len(kept)

    def _reach(self, row: Delivery, group: GroupId) -> None:
        """One source, one group: in the order sent, also across what is settled."""
        assert row.stamp is not None
        last = self.reached.get((row.source, group))
        if last is not None and row.number <= last.number:
            first = Delivery(row.site, NOWHERE, last.msg_id, row.groups, row.source, last.number)
            same = last.msg_id == row.msg_id
            self.note(findings.twice(first, row) if same else findings.not_as_sent(first, row, row.source, group))
        self.reached[row.source, group] = Last(row.msg_id, row.stamp, row.number)


def _close(settled: set[MsgId], sequences: list[list[MsgId]]) -> None:
    """Take out of a set what comes behind something in a sequence that is not in it, until nothing does."""
    places: dict[MsgId, list[tuple[int, int]]] = {}
    ends = [len(sequence) for sequence in sequences]
    for index, sequence in enumerate(sequences):
        for at, message in enumerate(sequence):
            places.setdefault(message, []).append((index, at))
    out = [message for message in places if message not in settled]
    while out:
        for index, at in places[out.pop()]:
            if at < ends[index]:
                gone = settled.intersection(islice(sequences[index], at, ends[index]))
                settled -= gone
                out.extend(gone)
                ends[index] = at
