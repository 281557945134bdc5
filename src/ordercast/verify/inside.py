"""What is in the window of logs that are still written, as the judge of whole runs sees it (`verify.window`)."""

from collections.abc import Iterator, Mapping
from functools import cached_property

from ordercast.names import GroupId, SiteId
from ordercast.verify.findings import Delivery, MsgId
from ordercast.verify.histories import Histories
from ordercast.verify.numbers import Numbers
from ordercast.verify.stays import Follower, Log, Stay, entered, site_of


class Inside(Histories):
    """What is judged at once: positions that are settled are no holes, and only who is up to date is compared."""

    back: frozenset[str] = frozenset()
    """Logs of which earlier parts are not here: what they have of groups they came into there is nobody's fault."""

    numbers: Mapping[SiteId, Numbers] = {}
    """The numbers of each source of which everything is here that was sent."""

    def _hole(self, log: Log) -> int | None:
        return None

    def _is_written(self, row: Delivery) -> bool:
        return row.source in self.numbers and row.number in self.numbers[row.source]

    def _has_its_rows(self, stay: Stay) -> bool:
        """Of what a site had before it was given a state only that is here which is not yet settled."""
        return self._is_good(stay)

    def _is_owed(self, stay: Stay, row: Delivery) -> bool:
        """Whether somebody who has it is known to have come beyond its configuration, or this stay has not.

        Until then its disk may be lost, and with it what nobody else had while they were away.
        """
        if max((own.epoch for own in stay.rows), default=0) <= row.epoch:
            return True
        has = [s.log for s in self._stays() if s.group == stay.group and any(own.stamp == row.stamp for own in s.rows)]
        told = [max((c.epoch for c in self.logs[log].changes), default=0) for log in has]
        told += [max((own.epoch for own in self.followers[log].valid), default=0) for log in has]
        return max(told, default=0) > row.epoch

    @cached_property
    def followers(self) -> dict[str, Follower]:
        """Every log, gone through."""
        found = super().followers
        for name in self.back & found.keys():
            found[name].strangers = []
            for stay in found[name].stays:
                stay.rows = [row for row in stay.rows if (row.stamp or b"") >= stay.since]
        return found

    @cached_property
    def _told_away(self) -> dict[GroupId, frozenset[SiteId]]:
        """Who is in no hurry to come: the newest view of the group says that it is away."""
        views = [change for log in self.logs.values() for change in log.changes if change.kind == "view"]
        return {view.group: frozenset(view.away) for view in sorted(views, key=lambda view: view.epoch)}

    def must_have(self) -> Iterator[tuple[GroupId, str, Stay | None]]:
        """Yield what each log is to have of each group; None while it does not say that its site is there.

        Who has left has the messages before that; who is away comes back and has them, or is given a state.
        """
        for group, sites in self._there.items():
            for site in sites:
                name = self._newest.get(site, site)
                follower = self.followers.get(name)
                yield group, name, follower.open.get(group) if follower is not None else None
        for name, follower in self.followers.items():
            for group, stay in follower.open.items():
                if site_of(name) not in self._there.get(group, ()) and not self._is_over(name):
                    yield group, name, stay

    @cached_property
    def _sent_to(self) -> dict[GroupId, dict[MsgId, bytes]]:
        """The messages to each group that are anywhere, in order: its own members may have none of them yet."""
        every = {row.msg_id: row for rows in self.kept().values() for row in rows}
        found: dict[GroupId, dict[MsgId, bytes]] = {}
        for row in sorted(every.values(), key=lambda row: row.stamp or b""):
            for group in row.groups:
                found.setdefault(group, {})[row.msg_id] = row.stamp or b""
        return found

    def undecided(self) -> Iterator[list[Delivery]]:
        """Yield the logs that may yet undo something, or may yet be compared with others, all of them."""
        for name, follower in self.followers.items():
            if not self._is_over(name) and not all(map(self._is_good, follower.open.values())):
                yield follower.valid

    def is_there(self, log: str) -> bool:
        """Whether the site of a log is in some group, and not away from another one."""
        site = site_of(log)
        away = any(site in sites for sites in self._told_away.values())
        return not away and site in self._somewhere and not self._is_over(log)

    def lacks(self, group: GroupId, stay: Stay | None) -> list[MsgId]:
        """Return what of a group's line a log is still to have, in order."""
        line = self._sent_to.get(group, {})
        if stay is None:
            return list(line)
        have = {row.msg_id: row.stamp for row in (*stay.rows, *(stay.missed or ()))}  # another stamp: to be undone
        since, known = self._since(stay), self.lines.get(group, {})
        come = max([stamp for stamp in have.values() if stamp], default=b"")  # what nobody has before it does not come
        come = max([come, *(entered(epoch) for _, epoch in stay.views)])
        return [
            message
            for message, stamp in line.items()
            if stamp >= since and have.get(message) != stamp and (stamp > come or stamp in known)
        ]

    def is_gone(self, log: str) -> bool:
        """Whether a life has ended."""
        return self._is_gone(log)
