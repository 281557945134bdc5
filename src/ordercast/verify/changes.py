"""The judge of runs in which groups change and sites fail: what applications saw, configuration by configuration.

Every application keeps, for each group, the list of messages it has seen of it, or was given as a state. The promises
(docs/guarantees.md, "Groups that change"): all members of a group end with one and the same list; nothing is in it
twice; one source's messages are in it as they were sent; everything that its source sent, and did not lose or was told
to be dropped, is in it; nothing that was called safe is undone; the orders of all sites together keep the level; and a
number names one configuration.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from ordercast.names import GroupId, SiteId
from ordercast.verify.deliveries import JUDGES
from ordercast.verify.findings import Finding, Sent
from ordercast.verify.record import Record

EPOCH = 8  # bytes of a stamp that name the configuration its class was opened in
Message = str
Sites = Sequence[SiteId]


def differ_at(one: Sequence[Message], other: Sequence[Message]) -> int:
    """Return where two lists begin to differ."""
    short = min(len(one), len(other))
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), short)


class Application:
    """What one site's application has: its log, and a list per group."""

    def __init__(self) -> None:
        self.log: list[tuple[Message, tuple[GroupId, ...], bytes]] = []
        self.groups: dict[GroupId, list[Message]] = {}
        self.inherited: dict[GroupId, list[Message]] = {}
        """What the site was given as the state of a group."""

    def copy(self) -> "Application":
        """Return another one that has seen the same."""
        other = Application()
        other.log = list(self.log)
        other.groups = {group: list(known) for group, known in self.groups.items()}
        other.inherited = dict(self.inherited)
        return other


Views = Mapping[tuple[SiteId, GroupId], tuple[tuple[SiteId, ...], tuple[SiteId, ...]]]
"""For each site and group, the members and who was away, as its application was told last."""


def wrong_views(views: Views, members: Mapping[GroupId, Sequence[SiteId]], there: frozenset[SiteId]) -> list[str]:
    """Return where the last view of a group that an application was told is not what is the case."""
    found = []
    for (site, group), (told, away) in sorted(views.items()):
        now = tuple(members.get(group, ()))
        if site in there and (site in told or site in now) and told != now:
            found.append(f"{site} was told that {', '.join(told)} are in {group}; {', '.join(now)} are")
        elif site in there and site in away and site not in now:
            found.append(f"{site} was never told that it has left {group}")
    return found


def as_source(message: Message, sent: Sent, life: int) -> Sent:
    """Return a message as its source's present life sent it, or as another source did."""
    name = message.rpartition(":")[0]
    own = sent.source if life == 1 else f"{sent.source}/{life}"
    return sent if name == own else sent._replace(source=name + "?")


class Changes:
    """Judges a run. Call the methods in the order in which things happen."""

    def __init__(self, promises: frozenset[str]) -> None:
        self.promises = promises
        self.sends: dict[Message, Sent] = {}
        self.applications: dict[SiteId, Application] = {}
        self.safe: set[Message] = set()
        self.dropped: set[Message] = set()
        self.lost: set[Message] = set()
        """Whose source lost its disk: they may be delivered or not."""
        self.found: list[tuple[str, str]] = []
        self._decisions: dict[int, object] = {}
        self.rolled_back = 0
        self.lives: dict[SiteId, int] = {}
        self._nobody_in: dict[SiteId, set[GroupId]] = {}  # groups whose only member has lost its disk
        self._alone_in: dict[SiteId, set[GroupId]] = {}  # groups whose only member an operator has removed
        self._of_deleted: set[tuple[GroupId, Message]] = set()
        self._safe_at: dict[Message, frozenset[bytes]] = {}
        self._undone: dict[tuple[SiteId, Message], bytes] = {}
        self._views: dict[tuple[SiteId, GroupId], tuple[tuple[SiteId, ...], tuple[SiteId, ...]]] = {}

    def copy(self) -> "Changes":
        """Return a judge that has seen the same, and may see something else from now on."""
        other = Changes(self.promises)
        other.sends, other.safe, other.dropped, other.lost = (
            dict(self.sends), set(self.safe), set(self.dropped), set(self.lost),
        )  # fmt: skip
        other.applications = {site: application.copy() for site, application in self.applications.items()}
        other.found, other._decisions = list(self.found), dict(self._decisions)
        other.rolled_back, other.lives = self.rolled_back, dict(self.lives)
        other._nobody_in, other._of_deleted = dict(self._nobody_in), set(self._of_deleted)
        other._alone_in, other._views = dict(self._alone_in), dict(self._views)
        other._safe_at, other._undone = dict(self._safe_at), dict(self._undone)
        return other

    def at(self, site: SiteId) -> Application:
        """Return the application of a site."""
        return self.applications.setdefault(site, Application())

    def problem(self, name: str, says: str) -> None:
        """Note a violation."""
        self.found.append((name, says))

    # What happens.

    def decided(self, site: SiteId, number: int, decision: object) -> bool:
        """A site is in a configuration now; return whether it is the first one there."""
        first = number not in self._decisions
        if self._decisions.setdefault(number, decision) != decision:
            self.problem("configurations", f"{site} has another configuration {number} than others")
        return first

    def sent(self, message: Message, source: SiteId, number: int, groups: tuple[GroupId, ...]) -> None:
        """A source sends."""
        self.sends[message] = Sent(groups, source, number, len(self.at(source).log))
        without = [*self._nobody_in.values(), self._alone_in.get(source, set())]
        if any(not gone.isdisjoint(groups) for gone in without):
            self.lost.add(message)

    def delivered(
        self, site: SiteId, message: Message, groups: tuple[GroupId, ...], stamp: bytes, own: set[str]
    ) -> None:
        """A site's application gets a message; `own`: the groups that the site is in."""
        application = self.at(site)
        sent = self.sends.get(message)
        if sent is None or sent.groups != groups:
            self.problem("creation", f"{site} delivers {message} to {'+'.join(groups)}, which was not sent so")
        application.log.append((message, groups, stamp))
        if self._undone.get((site, message)) == stamp:
            del self._undone[site, message]
        for group in groups:
            if group in own:
                known = application.groups.setdefault(group, [])
                if message in known:
                    self.problem("duplicate", f"{site} delivers {message} twice")
                known.append(message)

    def rolled(self, site: SiteId, many: int, *, safe: bool) -> None:
        """A site undoes its last deliveries."""
        application = self.at(site)
        self.rolled_back += many
        for message, groups, _ in reversed(application.log[len(application.log) - many :]):
            for group in groups:
                if application.groups.get(group, [None])[-1] == message:
                    application.groups[group].pop()
        gone = application.log[len(application.log) - many :]
        del application.log[len(application.log) - many :]
        undone = [message for message, _, _ in gone]
        for message, _, stamp in gone:
            if message in self.safe and stamp in self._safe_at.get(message, ()):
                self._undone[site, message] = stamp  # with what came before it; it must come again, in its place
        self._clamp(site)
        if safe:
            self.problem("safe", f"{site} undoes {', '.join(undone)} though it delivers only what is safe")

    def restored(self, site: SiteId, group: GroupId, state: Sequence[Message]) -> None:
        """A site is given the state of a group."""
        application = self.at(site)
        application.groups[group] = list(state)
        application.inherited[group] = list(state)
        for message in state:
            self._undone.pop((site, message), None)

    def viewed(self, site: SiteId, group: GroupId, members: Sites, left: Sites, away: Sites) -> None:
        """A site's application is told who is in a group now, who has left it, and who of these is to come back."""
        self._views[site, group] = (tuple(members), tuple(away))
        if site in left and site not in away:
            for message in self.at(site).groups.pop(group, ()):
                self._undone.pop((site, message), None)

    def forgot(self, site: SiteId, members: Mapping[GroupId, Sequence[SiteId]]) -> None:
        """A site has lost its disk, and its application everything; what no other member has is lost with it.

        `members`: who is there in each group. Who was taken out of a group is not asked for what it has of it.
        """
        gone = self.at(site)
        self.applications[site] = Application()
        self._undone = {at: stamp for at, stamp in self._undone.items() if at[0] != site}
        self._views = {at: view for at, view in self._views.items() if at[0] != site}
        self.lives[site] = self.lives.get(site, 1) + 1
        alone = {group for group, sites in members.items() if set(sites) <= {site}}
        for group, known in gone.groups.items():
            there = [self.at(other) for other in members.get(group, ())]
            left = {message for other in there for message in other.groups.get(group, ())}
            self.lost |= set(known) - left
            self.safe -= set(known) - left
        self.nobody_in(site, alone)
        self._clamp(site)
        self.lost |= {
            message for message, sent in self.sends.items() if sent.source == site and message not in self.safe
        }

    def nobody_in(self, site: SiteId, alone: set[GroupId]) -> None:
        """Nobody but a site that has lost its disk is in these groups: what was sent to them is lost, or may be."""
        self._nobody_in[site] = alone
        self.removed(alone)

    def removed(self, alone: set[GroupId]) -> None:
        """An operator has removed the only one who was there in these groups, and with it what they had."""
        only_here = {message for message, sent in self.sends.items() if alone.intersection(sent.groups)}
        self.lost |= only_here
        self.safe -= only_here

    def sent_away(self, site: SiteId, alone: set[GroupId]) -> None:
        """An operator has removed a site; it was alone in some groups, and is so until it hears of it."""
        self._alone_in[site] = alone
        self.removed(alone)

    def added(self, site: SiteId) -> None:
        """An operator has added a site."""
        self._alone_in.pop(site, None)

    @property
    def without_a_disk(self) -> set[SiteId]:
        """Who has lost its disk, and is no member again."""
        return set(self._nobody_in)

    def deleted(self, group: GroupId) -> None:
        """A group is no more; another of its name begins empty."""
        self._of_deleted |= {(group, message) for message, sent in self.sends.items() if group in sent.groups}

    def unknown(self, group: GroupId) -> None:
        """Whether a group was deleted, or created again since, nobody can say."""
        self.deleted(group)
        self._views = {at: view for at, view in self._views.items() if at[1] != group}

    def taken_in(self, site: SiteId) -> None:
        """A site that had lost its disk is a member again."""
        self._nobody_in.pop(site, None)

    def _clamp(self, site: SiteId) -> None:
        """A site has forgotten deliveries: what it sent came after no more than it has left."""
        left = len(self.at(site).log)
        for message, sent in self.sends.items():
            if sent.source == site and sent.after > left:
                self.sends[message] = sent._replace(after=left)

    def called_safe(self, message: Message, members: Iterable[SiteId]) -> None:
        """A source is told that its message is safe; `members`: who is there in its groups, and has it in its place."""
        if message not in self.lost:
            self.safe.add(message)
            logs = [self.at(site).log for site in members]
            stamps = [stamp for log in logs for known, _, stamp in log if known == message]
            if not all(any(known == message for known, _, _ in log) for log in logs):
                return  # some application has not read it yet: where its place is, is not known
            last = max((stamp[:EPOCH] for stamp in stamps), default=b"")  # who was away may have it in an earlier class
            self._safe_at[message] = frozenset(stamp for stamp in stamps if stamp.startswith(last))

    # The verdict.

    def findings(self, members: Mapping[GroupId, Sequence[SiteId]], there: frozenset[SiteId]) -> list[tuple[str, str]]:
        """Return everything that is wrong at the end; `there`: sites that run and know the last configuration."""
        found = list(self.found)
        for site, message in self._undone:
            if message in self.safe and site in there:
                found.append(("safe", f"{site} undoes {message}, which was called safe"))
        for group, sites in sorted(members.items()):
            found += self._group(group, [site for site in sites if site in there])
        found += self._order(there)
        return found + [("views", says) for says in wrong_views(self._views, members, there)]

    def _group(self, group: GroupId, sites: list[SiteId]) -> list[tuple[str, str]]:
        if not sites:
            return []
        first = self.at(sites[0]).groups.get(group, [])
        found = []
        for site in sites[1:]:
            here = self.at(site).groups.get(group, [])
            if here != first:
                where = differ_at(first, here)
                told = f"{sites[0]} has {first[where : where + 2]}, {site} has {here[where : where + 2]}"
                found.append(("agreement", f"group {group}, message {where}: {told}"))
        twice = [message for message, many in Counter(first).items() if many > 1]
        if twice:
            found.append(("duplicate", f"group {group} has {twice[0]} twice"))
        last: dict[SiteId, int] = {}
        for message in first:
            sent = self.sends.get(message)
            if sent is not None:
                source = message.rpartition(":")[0]  # a source that has lost its disk is another one
                if sent.number < last.get(source, 0):
                    found.append(("fifo", f"group {group} has {message} after {source}:{last[source]}"))
                last[source] = max(sent.number, last.get(source, 0))
        return found + self._missing(group, set(first))

    def _missing(self, group: GroupId, known: set[Message]) -> list[tuple[str, str]]:
        found = []
        for message, sent in self.sends.items():
            if group in sent.groups and message not in known and (group, message) not in self._of_deleted:
                if message in self.safe:
                    found.append(("safe", f"group {group} has lost {message}, which was called safe"))
                elif message not in self.dropped and message not in self.lost:
                    found.append(("completeness", f"group {group} does not get {message}"))
        return found

    def _order(self, there: frozenset[SiteId]) -> list[tuple[str, str]]:
        logs = {site: [message for message, _, _ in self.at(site).log] for site in sorted(there)}
        everyone: dict[GroupId, list[SiteId]] = {}
        sends = {
            message: as_source(message, sent, self.lives.get(sent.source, 1)) for message, sent in self.sends.items()
        }
        record = Record(everyone, sends, logs)
        found: list[tuple[str, str]] = []
        for name in ("total", "acyclic", "causal"):
            if name in self.promises:
                finding: Finding | None = JUDGES[name](record)
                if finding is not None:
                    found.append((name, finding.says))
        return found
