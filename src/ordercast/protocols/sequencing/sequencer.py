"""The sequencer of one part: it numbers requests, keeps what not every member has, and remembers its answers."""

import msgspec

from ordercast.core.configuration import OrderClass
from ordercast.core.contexts import Numbers, Past
from ordercast.core.effects import Held
from ordercast.errors import PeerError
from ordercast.names import GroupId, SiteId
from ordercast.protocols.sequencing.messages import Accept, DoMulticast

UNDER_WAY_AT_MOST = 1024  # requests of one sender to one sequencer without a number; further ones wait at the sender
HISTORY_AT_MOST = 1024  # envelopes of a group that not every member has; then requests wait

Client = tuple[SiteId, int]
"""A sender and its incarnation."""


class SequencerState(msgspec.Struct, array_like=True):
    """The whole state."""

    numbers: dict[GroupId, int]
    place: int
    taken: dict[Client, int]
    early: dict[Client, dict[int, DoMulticast]]
    answers: dict[Client, dict[int, Numbers]]
    history: dict[GroupId, dict[int, Accept]]
    stable: dict[GroupId, dict[SiteId, int]]
    told: dict[SiteId, Numbers]
    sent_by: dict[Client, Numbers]
    closed: bool = False


class Sequencer:
    """What the sequencer of one part keeps."""

    def __init__(self, groups: OrderClass, part: int, *, causal: bool) -> None:
        self.causal = causal
        own = groups.parts[part]
        self.members = {group: groups.members[group] for group in own}
        sites = {group: set(groups.members[group]) for group in own}
        self.meets = {g: tuple(h for h in own if sites[g] & sites[h]) for g in own}
        self.numbers = dict.fromkeys(own, 0)  # C: seq#(G) for each group
        self.place = 0
        self.taken: dict[Client, int] = {}  # the last count taken
        self.early: dict[Client, dict[int, DoMulticast]] = {}
        self.answers: dict[Client, dict[int, Numbers]] = {}  # for requests that come again
        self.history: dict[GroupId, dict[int, Accept]] = {group: {} for group in own}
        self.stable = {group: dict.fromkeys(self.members[group], 0) for group in own}
        self.told: dict[SiteId, Numbers] = {}
        self.closed = False  # nothing more is sequenced
        self.sent_by: dict[Client, Past] = {}  # with `causal`: the numbers of a sender's requests so far

    def refusal(self, request: DoMulticast) -> str | None:
        """Return why a request leaves no trace: it was taken, waits, is early or too late, or a history is full."""
        envelope, count = request.envelope, request.count
        client = (envelope.source, envelope.incarnation)
        taken = self.taken.get(client, 0)
        if count <= taken:
            return "taken"
        if self.closed:
            return "closed"
        if count > taken + UNDER_WAY_AT_MOST:
            return "early"
        if count in self.early.get(client, ()):
            return "waits"
        return "full" if self.full(envelope.groups) else None

    def take(self, request: DoMulticast) -> list[Accept]:
        """Take a request in the order of its sender's counts (errata 39); return what now has its place."""
        client = (request.envelope.source, request.envelope.incarnation)
        early = self.early.setdefault(client, {})
        early[request.count] = request
        accepted = []
        taken = self.taken.get(client, 0)
        while taken + 1 in early:
            taken += 1
            self.taken[client] = taken
            accepted.append(self._accept(early.pop(taken)))
        if not early:
            del self.early[client]
        return accepted

    def close(self) -> None:
        """Sequence nothing more: what waits for earlier requests stays its sender's."""
        self.closed = True
        self.early.clear()

    def forget(self, source: SiteId) -> None:
        """Throw away requests that wait for earlier ones of a source that has lost them."""
        self.early = {client: early for client, early in self.early.items() if client[0] != source}

    def _accept(self, request: DoMulticast) -> Accept:
        """Give a request its place and its context."""
        envelope = request.envelope
        for group in envelope.groups:
            self.numbers[group] += 1
        self.place += 1
        meets = sorted({other for group in envelope.groups for other in self.meets[group]})
        context = tuple((group, self.numbers[group]) for group in meets)
        client = (envelope.source, envelope.incarnation)
        numbers = tuple((group, self.numbers[group]) for group in envelope.groups)
        past = request.past
        if self.causal:
            earlier = self.sent_by.setdefault(client, Past())
            past = tuple(entry for entry in earlier.merged(past) if not self._is_stable(*entry))
            earlier.merge(numbers)
        accept = Accept(envelope, self.place, request.count, context, past, request.direct)
        answers = self.answers.setdefault(client, {})
        answers[request.count] = numbers
        answers.pop(request.count - UNDER_WAY_AT_MOST, None)
        for group in envelope.groups:
            self.history[group][self.numbers[group]] = accept
        return accept

    def _is_stable(self, group: GroupId, number: int) -> bool:
        """Whether every member of a group has a number: nobody has to wait for it, and contexts go without it."""
        return group in self.stable and number <= min(self.stable[group].values())

    def answer(self, request: DoMulticast) -> Numbers | None:
        """Return the numbers of a request that was taken; None for an old one, whose sender has had its answer."""
        client = (request.envelope.source, request.envelope.incarnation)
        return self.answers[client].get(request.count)

    def full(self, groups: tuple[GroupId, ...]) -> bool:
        """Whether nothing more is taken for now: a member is away, or slow (KIN §4 bounds nothing); or for good."""
        return self.closed or any(
            len(self.history[group]) >= HISTORY_AT_MOST for group in groups if group in self.history
        )

    def fetch(self, group: GroupId, first: int, last: int) -> list[Accept]:
        """Return what is kept of these numbers."""
        history = self.history[group]
        return [history[number] for number in range(first, last + 1) if number in history]

    def is_news(self, group: GroupId, site: SiteId, number: int) -> bool:
        """Whether a report says more than the last one; raises PeerError when it speaks of what does not exist."""
        if number > self.numbers[group]:
            raise PeerError(
                f"{site} says it has {number} messages of {group}, and {self.numbers[group]} were sequenced"
            )
        return number > self.stable[group][site]

    def report(self, group: GroupId, site: SiteId, number: int) -> None:
        """A member has everything up to a number; drop what every member has (group-stable, KIN §4)."""
        if number <= self.stable[group][site]:
            return
        self.stable[group][site] = number
        everywhere = min(self.stable[group].values())
        history = self.history[group]
        for place in [place for place in history if place <= everywhere]:
            del history[place]

    def latest(self, me: SiteId) -> list[tuple[SiteId, Numbers]]:
        """Return whom to tell the latest numbers: nothing new for a whole tick, and still not reported."""
        lacking: dict[SiteId, list[tuple[GroupId, int]]] = {}
        for group, history in self.history.items():
            if history:
                for site, number in self.stable[group].items():
                    if number < self.numbers[group] and site != me:
                        lacking.setdefault(site, []).append((group, self.numbers[group]))
        now = {site: tuple(numbers) for site, numbers in lacking.items()}
        tell = [(site, numbers) for site, numbers in now.items() if self.told.get(site) == numbers]
        self.told |= now
        return tell

    def taken_by(self) -> dict[SiteId, int]:
        """Return how many requests of each site were taken, in all its lives."""
        found: dict[SiteId, int] = {}
        for (source, _), count in self.taken.items():
            found[source] = found.get(source, 0) + count
        return found

    def taken_of(self, site: SiteId) -> int:
        """Return how many requests of a site's latest life were taken."""
        return max(((life, count) for (source, life), count in self.taken.items() if source == site), default=(0, 0))[1]

    def held(self, now: float) -> list[Held]:
        """What waits here."""
        return [
            Held(str(request), "an earlier request of its sender is missing", now)
            for requests in self.early.values()
            for request in requests.values()
        ]

    @property
    def idle(self) -> bool:
        """Whether every member has everything, and no request waits for an earlier one."""
        return not self.early and not any(self.history.values())

    def snapshot(self) -> SequencerState:
        """Return the whole state."""
        early = {client: dict(sorted(requests.items())) for client, requests in sorted(self.early.items())}
        sent_by = {client: past.frozen() for client, past in sorted(self.sent_by.items())}
        return SequencerState(
            self.numbers,
            self.place,
            dict(sorted(self.taken.items())),
            early,
            dict(sorted(self.answers.items())),
            self.history,
            self.stable,
            dict(sorted(self.told.items())),
            sent_by,
            self.closed,
        )

    def restore(self, state: SequencerState) -> None:
        """Take over a state."""
        self.numbers, self.place, self.taken, self.early = state.numbers, state.place, state.taken, state.early
        self.answers, self.history, self.stable, self.told = state.answers, state.history, state.stable, state.told
        self.closed = state.closed
        self.sent_by = {client: Past() for client in state.sent_by}
        for client, numbers in state.sent_by.items():
            self.sent_by[client].merge(numbers)
