"""The judge of logs in which groups change: what each site delivered of a group while it was in it, by stamps.

A *log* is one life of a site: who loses the disk begins another one, called `site@incarnation`. A *stay* is what a log
has of a group from where the site came in: from the beginning, from the creation of the group, or from a state that
another member gave it. Stamps begin with the configuration in which their class was opened, so all messages of a group
stand in one line. The promise: a stay has everything of that line from its beginning to its end, and the stays of those
who are there at the end go to the end.

Who was away, removed by force or killed for good has a log that ends somewhere; what it had delivered and nobody else
has would be undone when it comes back. That is told, and not judged.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from ordercast.names import GroupId, SiteId
from ordercast.verify import findings
from ordercast.verify.findings import NOWHERE, Delivery, Finding, MsgId, Sent
from ordercast.verify.stays import LIFE, Change, Follower, Log, Stay, site_of

LAST = b"\xff" * 9
"""Larger than all stamps."""

__all__ = ["LIFE", "Change", "Histories", "Log", "site_of"]


@dataclass
class _Run:
    """What the logs of a run say together: who is there at the end, and the one line of messages of each group."""

    logs: Mapping[str, Log]
    sends: Mapping[MsgId, Sent]
    posts: Mapping[MsgId, str] = field(default_factory=dict)
    """What clients call their messages: posted again elsewhere, a message has another id and the same name."""
    dropped: frozenset[MsgId] = frozenset()
    """What its source has said that it will not send."""
    running: bool = False
    notes: list[str] = field(default_factory=list)

    @cached_property
    def followers(self) -> dict[str, Follower]:
        """Every log, gone through; one that may be torn at its end, up to its first hole."""
        return {name: Follower(name, self._whole(name, log)) for name, log in sorted(self.logs.items())}

    def _hole(self, log: Log) -> int | None:
        """Return the first position at which a log has nothing, or more than one thing."""
        positions = sorted([row.position for row in log.rows] + [change.position for change in log.changes])
        return next((at for at, position in enumerate(positions) if at != position), None)

    def _whole(self, name: str, log: Log) -> Log:
        """Return a log without what comes after a hole, where that is no fault: it is still written, or has ended."""
        hole = self._hole(log)
        if hole is None or not (self.running or self._is_gone(name)):
            return log
        rows = [row for row in log.rows if row.position < hole]
        return Log(rows, [change for change in log.changes if change.position < hole], log.begins)

    @cached_property
    def _newest(self) -> dict[SiteId, str]:
        """The last life of each site."""
        found: dict[SiteId, str] = {}
        sources = {row.source for log in self.logs.values() for row in log.rows}
        for name in {*self.logs, *sources, *(sent.source for sent in self.sends.values())}:
            site = site_of(name)
            found[site] = max(found.get(site, name), name, key=lambda log: int(log.partition(LIFE)[2] or 0))
        return found

    @cached_property
    def _there(self) -> dict[GroupId, tuple[SiteId, ...]]:
        """Who is there in each group at the end, as far as anybody knows.

        When all disks of a group are gone and no view of it was told since, it may have been deleted: nobody is there.
        """
        last: dict[GroupId, Change] = {}
        found: dict[GroupId, set[SiteId]] = {}
        going_on: set[GroupId] = set()
        for name, log in self.logs.items():
            for group in log.begins:
                found.setdefault(group, set()).add(site_of(name))
            if not self._is_over(name):
                going_on |= log.begins | {change.group for change in log.changes}
            for change in log.changes:
                if change.kind == "view" and change.epoch >= last.get(change.group, change).epoch:
                    last[change.group] = change
        there = {group: tuple(sorted(sites)) for group, sites in found.items() if group in going_on}
        return there | {group: view.members for group, view in last.items()}

    def _is_over(self, log: str) -> bool:
        """Whether this life has ended with its disk."""
        return self._newest.get(site_of(log), log) != log

    @cached_property
    def _somewhere(self) -> set[SiteId]:
        """Who is in some group at the end."""
        return {site for sites in self._there.values() for site in sites}

    def _is_gone(self, log: str) -> bool:
        """Whether a life has ended: with its disk, or its site was in groups and is in none any more."""
        known = self.logs.get(log)
        was_in = known is not None and bool(known.begins or known.changes or known.rows)
        return self._is_over(log) or (was_in and site_of(log) not in self._somewhere)

    def _goes_on(self, stay: Stay) -> bool:
        """Whether a stay goes to the end: its site is there."""
        site = site_of(stay.log)
        there = self._newest[site] == stay.log and site in self._there.get(stay.group, ())
        return there and not stay.void and self._knows_of_itself(stay)

    def _knows_of_itself(self, stay: Stay) -> bool:
        """Whether a log that is still written tells that its site was away, if others do: it may yet undo something."""
        if not self.running:
            return True
        told = self._told.get(stay.log, {})
        return all(told.get(group, 0) >= epoch for group, epoch in self._was_away.get(site_of(stay.log), {}).items())

    @cached_property
    def _told(self) -> dict[str, dict[GroupId, int]]:
        """The last configuration of each group that a log tells of."""
        found: dict[str, dict[GroupId, int]] = {}
        for name, log in self.logs.items():
            own = found[name] = dict[GroupId, int]()
            for change in log.changes:
                own[change.group] = max(change.epoch, own.get(change.group, 0))
        return found

    @cached_property
    def _was_away(self) -> dict[SiteId, dict[GroupId, int]]:
        """The last configuration in which a site was taken out of each group because it was suspected."""
        found: dict[SiteId, dict[GroupId, int]] = {}
        for log in self.logs.values():
            for change in log.changes:
                for site in change.away:
                    of_site = found.setdefault(site, {})
                    of_site[change.group] = max(change.epoch, of_site.get(change.group, 0))
        return found

    def _is_good(self, stay: Stay) -> bool:
        """Whether what is in a stay is what others have, or had: who has left has undone what they have not."""
        has_left = stay.until is not None and stay.until != self._removed.get(stay.log)
        return not stay.void and (has_left or self._goes_on(stay))

    @cached_property
    def _removed(self) -> dict[str, bytes]:
        """Lives that have ended when their site left all its groups at once, and when: it may have been removed.

        Nobody waits for such a site: what only it has of the classes that were open then is sent again by its sources.
        """
        found = {}
        for name, follower in self.followers.items():
            ends = [stay.until for stay in follower.stays if stay.until is not None]
            if ends and not follower.open and self._is_gone(name):
                found[name] = max(ends)
        return found

    @cached_property
    def lines(self) -> dict[GroupId, dict[bytes, Delivery]]:
        """The messages of each group by their stamps, in order, as those have them who are there or have left."""
        found: dict[GroupId, dict[bytes, Delivery]] = {}
        for stay in self._stays():
            if self._is_good(stay):
                for row in stay.rows:
                    assert row.stamp is not None
                    found.setdefault(stay.group, {}).setdefault(row.stamp, row)
        return {group: dict(sorted(line.items())) for group, line in found.items()}

    def _stays(self) -> Iterator[Stay]:
        for follower in self.followers.values():
            yield from follower.stays

    @cached_property
    def not_judged(self) -> dict[str, set[int]]:
        """The positions of each log that nobody who is there has: they would be undone when the site comes back."""
        known = {(row.msg_id, stamp) for line in self.lines.values() for stamp, row in line.items()}
        found: dict[str, set[int]] = {}
        for stay in self._stays():
            if not self._is_good(stay):
                found.setdefault(stay.log, set()).update(
                    r.position for r in stay.rows if (r.msg_id, r.stamp) not in known
                )
        return {log: positions for log, positions in found.items() if positions}

    def kept(self) -> dict[str, list[Delivery]]:
        """Return what each log has in the end and is judged: its order is compared with others'."""
        return {
            name: [row for row in follower.valid if row.position not in self.not_judged.get(name, ())]
            for name, follower in self.followers.items()
        }


class Histories(_Run):
    """A run in which groups change; `judge` yields what is wrong with it, and then `notes` says what was not judged."""

    def judge(self) -> Iterator[Finding]:
        """Yield everything that is wrong; order between groups is for others to judge, by `kept`."""
        for name, log in sorted(self.logs.items()):
            hole = self._hole(log)
            if hole is not None and not self.running and not self._is_gone(name):
                yield findings.hole(name, hole)
        yield from self._views()
        for stay in self._stays():
            yield from self._one_stay(stay)
        yield from self._lines()
        yield from self._as_sent()
        yield from self._nowhere()
        many = sum(map(len, self.not_judged.values()))
        if many:
            logs = ", ".join(sorted(self.not_judged)[:3])
            self.notes.append(
                f"{many} deliveries of logs that have ended ({logs}) are not judged: nobody else has them"
            )

    def _views(self) -> Iterator[Finding]:
        """Who is in a group is told by all in the same way, and whoever is in it at the end has a log of it."""
        told: dict[tuple[GroupId, int], tuple[str, Change]] = {}
        own: dict[tuple[GroupId, str], Change] = {}
        for name, log in sorted(self.logs.items()):
            for view in sorted(change for change in log.changes if change.kind == "view"):
                own[view.group, name] = view
                other, same = told.setdefault((view.group, view.epoch), (name, view))
                if (same.members, same.away) != (view.members, view.away):
                    both = (other, view.epoch, same.members), (name, view.epoch, view.members)
                    yield findings.two_views(view.group, *both)
        for group, sites in sorted(self._there.items()) if not self.running else ():
            last = max(((view.epoch, name) for (g, name), view in own.items() if g == group), default=None)
            for site in sites:
                log_name = self._newest.get(site, site)
                follower = self.followers.get(log_name)
                theirs = own.get((group, log_name))
                if follower is None or group not in follower.open:
                    yield findings.no_log(site, group)
                elif last is not None and theirs is not None and theirs.members != sites:
                    both = (last[1], last[0], sites), (log_name, theirs.epoch, theirs.members)
                    if not self._ended_before(follower, last[0]):
                        yield findings.two_views(group, *both)
                    else:
                        self.notes.append(f"{log_name} ended before it was told who is in {group} in {last[0]}")

    def _ended_before(self, follower: Follower, epoch: int) -> bool:
        """Whether a log has nothing of a configuration or later ones: sites that stop one by one suspect each other."""
        told = [change.epoch for change in self.logs[follower.name].changes]
        return max(told + [row.epoch for row in follower.valid], default=0) < epoch

    def _one_stay(self, stay: Stay) -> Iterator[Finding]:
        line = self.lines.get(stay.group, {})
        first: dict[MsgId, Delivery] = {}
        posts: dict[str, Delivery] = {}
        good, before = self._is_good(stay), None
        for row in stay.rows:
            assert row.stamp is not None
            if first.setdefault(row.msg_id, row) is not row:
                yield findings.twice(first[row.msg_id], row)
                continue
            if before is not None and before.stamp is not None and row.stamp <= before.stamp:
                yield findings.not_larger(before, row)
            if stay.since and row.stamp < stay.since:
                yield findings.too_early(row, int.from_bytes(stay.since))
            before = row
            there = line.get(row.stamp)
            if there is not None and there.msg_id != row.msg_id:
                yield findings.one_stamp(there, row)
            post = self.posts.get(row.msg_id)
            if post and posts.setdefault(post, row) is not row:
                yield findings.posted_twice(posts[post], row)
            for position, epoch in stay.views if good else ():
                after = row.position > position
                if after == (row.epoch >= epoch):
                    continue
                again = row.position in stay.late or position < self._undone.get(stay.log, NOWHERE)
                if not (after and again):
                    yield findings.beside_view(row, epoch, after=after)
                    break
        if self._has_its_rows(stay):
            yield from self._missing(stay, line)

    def _has_its_rows(self, stay: Stay) -> bool:
        """Whether everything is here that its log has of the group."""
        return True

    def _missing(self, stay: Stay, line: Mapping[bytes, Delivery]) -> Iterator[Finding]:
        """Whoever is in a group has everything from where it came in, to the end or to where it left."""
        have = {row.stamp for row in stay.rows if row.stamp in line}
        # Who leaves may miss the last ones; who is still to get a state gets what comes to its other groups, too.
        own = [row.stamp for row in stay.rows if row.stamp in line and not (stay.void and len(row.groups) > 1)]
        end = max((stamp for stamp in own if stamp is not None), default=b"")
        whole = stay.until is None and self._goes_on(stay) and not self.running
        since = self._since(stay)
        for stamp, row in line.items():
            if stamp >= since and (whole or stamp < end) and stamp not in have and self._is_owed(stay, row):
                yield findings.missing(stay.log, row.msg_id, Sent(row.groups, row.source, row.number))

    def _is_owed(self, stay: Stay, row: Delivery) -> bool:
        """Whether what others have is to be in a stay, too."""
        return True

    def _since(self, stay: Stay) -> bytes:
        """Return from where on a stay has everything. Who was to give a state may have lost it: then it begins anew."""
        if not stay.waits or stay.group not in self._touched:
            return stay.since
        self.notes.append(f"{stay.log} was given no state of {stay.group}: a disk with it is gone")
        return max(stay.since, min((row.stamp for row in stay.rows if row.stamp is not None), default=LAST))

    @cached_property
    def _touched(self) -> set[GroupId]:
        """Groups of which a disk is gone."""
        return {stay.group for stay in self._stays() if self._is_over(stay.log)}

    @cached_property
    def _undone(self) -> dict[str, int]:
        """Where each log undoes something for the last time: what stays of it comes again behind views before that."""
        undone = {name: [c.position for c in log.changes if c.kind == "undone"] for name, log in self.logs.items()}
        return {name: max(positions) for name, positions in undone.items() if positions}

    def _lines(self) -> Iterator[Finding]:
        """One source, one group: in the order sent; a message has one stamp and one body everywhere."""
        known: dict[MsgId, Delivery] = {}
        for group, line in sorted(self.lines.items()):
            last: dict[SiteId, Delivery] = {}
            for row in line.values():
                before = last.get(row.source)
                if before is not None and before.number > row.number:
                    yield findings.not_as_sent(before, row, row.source, group)
                else:
                    last[row.source] = row
        for log in self.kept().values():
            for row in log:
                other = known.setdefault(row.msg_id, row)
                if other.stamp != row.stamp:
                    yield findings.two_stamps(other, row)
                if other.body != row.body:
                    yield findings.two_bodies(other, row)

    def _as_sent(self) -> Iterator[Finding]:
        """Only what was sent is delivered, as it was sent, and only in groups that the site is in."""
        unknown = 0
        for follower in self.followers.values():
            for row in follower.strangers:
                yield findings.stranger(row)
            for row in follower.valid:
                known = self.sends.get(row.msg_id)
                if known is None:
                    written = self._is_written(row)
                    if not written and self._is_gone(row.source):
                        unknown += 1
                    elif written or not self.running:
                        yield findings.unsent(row)
                elif known[:3] != (row.groups, row.source, row.number):
                    yield findings.otherwise(row, known)
                elif known.body is not None and row.body is not None and known.body != row.body:
                    yield findings.other_body(row)
        if unknown:
            self.notes.append(
                f"{unknown} deliveries are of sites that have ended before they had written down what they sent"
            )

    def _is_written(self, row: Delivery) -> bool:
        """Whether its source has written down what it sent, up to this number at least."""
        return row.number <= self._written.get(row.source, 0)

    @cached_property
    def _written(self) -> dict[SiteId, int]:
        """The last number that each source has written down."""
        found: dict[SiteId, int] = {}
        for sent in self.sends.values():
            found[sent.source] = max(found.get(sent.source, 0), sent.number)
        return found

    def _nowhere(self) -> Iterator[Finding]:
        """What was sent to a group comes to it, unless that was said not to be so, or is lost with a disk."""
        if self.running:
            return
        known = self._delivered()
        done = {group: {self.posts.get(message, "") for message in messages} for group, messages in known.items()}
        views = [change for log in self.logs.values() for change in log.changes if change.kind == "view"]
        deleted = {view.group for view in views if not view.members}
        lost, gone, again, excused = 0, 0, 0, set[str]()
        unwritten = {row.msg_id: (row.groups, row.body) for f in self.followers.values() for row in f.valid
                     if row.msg_id not in self.sends and self._is_gone(row.source)}  # fmt: skip
        before = Counter(unwritten.values())  # what an earlier life had sent, and not written down
        for message, sent in sorted(self.sends.items(), key=lambda item: (item[1].source, item[1].number)):
            post = self.posts.get(message)
            has = [g for g in sent.groups if message in known.get(g, ()) or (post and post in done.get(g, ()))]
            missing = [g for g in sent.groups if g not in has] if message not in self.dropped else []
            is_same = post in excused or (sent.body is not None and before[sent.groups, sent.body] > 0)
            if missing and not has and post and is_same:
                before[sent.groups, sent.body] -= post not in excused
                excused.add(post)
                again += 1
                continue
            for group in missing:
                if group in deleted or not self._there.get(group):
                    gone += 1
                elif self._is_gone(sent.source) or group in self._touched:
                    lost += 1
                else:
                    yield findings.nowhere(message, sent, group)
        if lost:
            self.notes.append(f"{lost} messages are in no log; their site, or a disk of their group, is gone")
        if again:
            told = "a site that has ended had sent it, and not written that down"
            self.notes.append(
                f"{again} messages of clients that posted again are taken for one with the same body: {told}"
            )
        if gone:
            self.notes.append(f"{gone} messages are in no log; their group was deleted, or nobody is there")

    def _delivered(self) -> dict[GroupId, set[MsgId]]:
        """Return what has come to each group. What only a log has that has ended counts if it may be in a state."""
        good: dict[GroupId, list[Stay]] = {}
        for stay in self._stays():
            if self._is_good(stay):
                good.setdefault(stay.group, []).append(stay)
        known: dict[GroupId, set[MsgId]] = {}
        for stay in self._stays():
            others = good.get(stay.group, [])
            every = stay.void or not others or self._is_good(stay)
            found = [row.msg_id for row in stay.rows if every or _in_a_state(row.stamp or b"", others)]
            known.setdefault(stay.group, set()).update(found)
        return known


def _in_a_state(stamp: bytes, stays: list[Stay]) -> bool:
    """Whether a message may be in a state that somebody was given: it came before, and nobody was there who has it."""
    there = any(stay.since <= stamp and (stay.until is None or stamp < stay.until) for stay in stays)
    return not there and any(stamp < stay.since for stay in stays)
