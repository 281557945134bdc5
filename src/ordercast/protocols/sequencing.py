"""The sequencing service on fixed groups (KIN §4.1, §4.2, §5): sequencers, and the members and senders they serve.

One sequencer per class. A sender sends DO-MULTICAST; the sequencer takes each sender's requests in the order of their
counts (errata 39), counts the group up and multicasts ACCEPT with a *context*: the numbers of all its groups that meet
the destination. A member delivers when its own numbers say that nothing is missing in between:

  T1   C_m.G = D_p.G + 1            for the destination
  T2   C_m.G' = D_p.G'              for p's other groups that have an entry in C_m (errata 30)

ACCEPTs travel unnumbered and may be lost: a member sees from the contexts what it lacks and asks (FETCH-MSGS). The
sequencer keeps a message until all members have it, and tells the latest numbers while somebody lacks some.

With `causal` a request carries what its sender has sent and consumed, C_p, and members also wait for those entries
that are of their own groups (errata 40), by "at least", not "equal" (CT2; errata 32). `causal` with a class for each
group is KIN's hybrid: causal everywhere, total in each group.

KIN §5 lets a sender go on without waiting, its unnumbered messages standing in C_p by their id. Across sequencers that
deadlocks: x sends b1 to G, then a2 to H; y sends b2 to H, then a1 to G; G sequences a1 before b1, H a2 before b2, and
a member of both waits in a circle (T1, CT2, T1, CT2). So requests to one sequencer are pipelined, which takes them in
order anyway, and a request to another waits here until what was sent before has its number. The application never
waits, and every entry of a context is a number.
"""

from ordercast.core.contexts import Numbers, Past
from ordercast.core.effects import Append, Deliver, Effect, Held, Send
from ordercast.core.events import Control, Envelope, Event, Message, Multicast, Received, Tick
from ordercast.core.machine import Groups
from ordercast.errors import LocalError, PeerError
from ordercast.types import GroupId, SiteId

ANSWERS_AT_MOST = 1024  # requests of one sender that may be under way at once
FETCH_AT_MOST = 256  # messages per request; the rest is fetched when these are there
HISTORY_AT_MOST = 1024  # envelopes of a group that not every member has; then requests wait


class DoMulticast(Message, frozen=True, gc=False):
    """DO-MULTICAST: please sequence. `count` is dense per sender and class."""

    envelope: Envelope
    count: int
    past: Numbers = ()

    def __str__(self) -> str:
        return f"DoMulticast {self.envelope} count={self.count}"


class Accept(Message, frozen=True, gc=False):
    """ACCEPT: this is its place. `context` holds the sequencer's numbers, `past` what the sender came after."""

    envelope: Envelope
    place: int
    """Position in the class: the stamp."""
    count: int
    context: Numbers
    past: Numbers = ()

    def __str__(self) -> str:
        return f"Accept {self.envelope} {' '.join(f'{group}:{number}' for group, number in self.context)}"


class Accepted(Message, frozen=True, gc=False):
    """The extra, point-to-point ACCEPT to a sender that is no member, or that asked again."""

    order_class: int
    count: int
    numbers: Numbers

    def __str__(self) -> str:
        return f"Accepted {self.count}"


class FetchMsgs(Control, frozen=True, gc=False):
    """FETCH-MSGS: these numbers of a group again, please."""

    group: GroupId
    first: int
    last: int

    def __str__(self) -> str:
        return f"FetchMsgs {self.group} {self.first}-{self.last}"


class Latest(Control, frozen=True, gc=False):
    """The sequencer's latest numbers of the member's groups: noticed even when the last ACCEPT was lost."""

    numbers: Numbers

    def __str__(self) -> str:
        return f"Latest {' '.join(f'{group}:{number}' for group, number in self.numbers)}"


class Stable(Control, frozen=True, gc=False):
    """A member has delivered everything up to these numbers: the history may forget it."""

    numbers: Numbers

    def __str__(self) -> str:
        return f"Stable {' '.join(f'{group}:{number}' for group, number in self.numbers)}"


class _Sequencer:
    """What the sequencer of one class keeps."""

    def __init__(self, groups: Groups, order_class: int) -> None:
        own = groups.classes[order_class]
        self.members = {group: groups.members[group] for group in own}
        sites = {group: set(groups.members[group]) for group in own}
        self.meets = {g: tuple(h for h in own if sites[g] & sites[h]) for g in own}
        self.numbers = dict.fromkeys(own, 0)  # C: seq#(G) for each group
        self.place = 0
        self.taken: dict[tuple[SiteId, int], int] = {}  # the last count taken of each sender (and incarnation)
        self.early: dict[tuple[SiteId, int], dict[int, DoMulticast]] = {}
        self.answers: dict[tuple[SiteId, int], dict[int, Numbers]] = {}  # for requests that come again
        self.history: dict[GroupId, dict[int, Accept]] = {group: {} for group in own}
        self.stable = {group: dict.fromkeys(self.members[group], 0) for group in own}
        self.told: dict[SiteId, Numbers] = {}

    def accept(self, request: DoMulticast) -> Accept:
        """Give a request its place and its context."""
        envelope = request.envelope
        for group in envelope.groups:
            self.numbers[group] += 1
        self.place += 1
        meets = sorted({other for group in envelope.groups for other in self.meets[group]})
        context = tuple((group, self.numbers[group]) for group in meets)
        accept = Accept(envelope, self.place, request.count, context, request.past)
        answers = self.answers.setdefault((envelope.source, envelope.incarnation), {})
        answers[request.count] = tuple((group, self.numbers[group]) for group in envelope.groups)
        answers.pop(request.count - ANSWERS_AT_MOST, None)
        for group in envelope.groups:
            self.history[group][self.numbers[group]] = accept
        return accept

    def full(self, groups: tuple[GroupId, ...]) -> bool:
        """Whether a history is as long as it may be: a member is away, or slow (KIN §4 bounds nothing)."""
        return any(len(self.history[group]) >= HISTORY_AT_MOST for group in groups if group in self.history)

    def forget(self, group: GroupId) -> None:
        """Drop what every member has (group-stable, KIN §4)."""
        everywhere = min(self.stable[group].values())
        history = self.history[group]
        for number in [number for number in history if number <= everywhere]:
            del history[number]


class _Waiting:
    """An ACCEPT in the hold-back queue."""

    __slots__ = ("accept", "since")

    def __init__(self, accept: Accept, since: float) -> None:
        self.accept, self.since = accept, since


class Sequencing:
    """One site's part: sequencer of some classes, member of some groups, sender to any."""

    def __init__(
        self, me: SiteId, groups: Groups, sequencers: dict[int, SiteId], *, incarnation: int = 1, causal: bool = False
    ) -> None:
        self.me, self.groups, self.sequencers, self.incarnation, self.causal = (
            me,
            groups,
            sequencers,
            incarnation,
            causal,
        )
        self.now = 0.0
        self.sequencing = {c: _Sequencer(groups, c) for c, site in sequencers.items() if site == me}
        self.sent = 0
        self.counted: dict[int, int] = {}  # requests per class
        self.unsent: list[tuple[Multicast, int, float]] = []  # with the number they have, waiting for another sequencer
        self.asking: dict[int, dict[int, tuple[DoMulticast, float]]] = {}  # not yet ACCEPTed, per class
        self.own = [group for group, members in groups.members.items() if me in members]
        self.delivered = dict.fromkeys(self.own, 0)  # D_p, for own groups only (errata 36)
        self.reported = dict.fromkeys(self.own, 0)
        self.past = Past()  # C_p
        self.waiting: dict[tuple[int, int], _Waiting] = {}  # by (class, place)
        self.fetched: set[GroupId] = set()  # since the last tick

    def step(self, event: Event) -> list[Effect]:
        """Take one event to completion."""
        effects: list[Effect] = []
        if isinstance(event, Received):
            if not isinstance(event.message, Control):
                effects.append(Append(event))
            self._take(event.sender, event.message, effects)
        elif isinstance(event, Multicast):
            effects.append(Append(event))
            self._originate(event, effects)
        else:
            assert isinstance(event, Tick)
            self._tick(event.now, effects)
        return effects

    def _to(self, site: SiteId, message: Message, effects: list[Effect]) -> None:
        if site == self.me:
            self._take(site, message, effects)
        else:
            effects.append(Send(site, message))

    def _take(self, sender: SiteId, message: Message, effects: list[Effect]) -> None:
        match message:
            case DoMulticast():
                self._sequence(sender, message, effects)
            case Accept():
                self._receive(message, effects)
            case Accepted(order_class, count, numbers):
                self._accepted(order_class, count, numbers, effects)
            case FetchMsgs(group, first, last):
                history = self._sequencer_of(group, sender).history[group]
                for number in range(first, min(last, first + FETCH_AT_MOST) + 1):
                    if number in history:
                        self._to(sender, history[number], effects)
            case Latest(numbers):
                for group, number in numbers:
                    if self.delivered.get(group, -1) >= number:
                        self.reported[group] = 0  # our report was lost: the next tick sends it again
                    self._fetch(group, number, effects)
            case Stable(numbers):
                for group, number in numbers:
                    sequencer = self._sequencer_of(group, sender)
                    if sender in sequencer.stable[group] and number <= sequencer.numbers[group]:
                        sequencer.stable[group][sender] = max(sequencer.stable[group][sender], number)
                        sequencer.forget(group)
            case _:
                raise PeerError(f"{sender} sent what is not for sequencing: {message}")

    def _sequencer_of(self, group: GroupId, sender: SiteId) -> _Sequencer:
        for sequencer in self.sequencing.values():
            if group in sequencer.numbers:
                return sequencer
        raise PeerError(f"{sender} takes {self.me} for the sequencer of {group}")

    # The sender.

    def _originate(self, multicast: Multicast, effects: list[Effect]) -> None:
        classes = {self.groups.class_of(group) for group in multicast.groups}
        if len(classes) > 1:
            raise LocalError(f"groups {', '.join(multicast.groups)} have different sequencers")
        self.sent += 1
        self.unsent.append((multicast, self.sent, self.now))
        self._request(effects)

    def _request(self, effects: list[Effect]) -> None:
        """Send what may go: with `causal`, not while a request to another sequencer has no number yet."""
        while self.unsent:
            multicast, number, _ = self.unsent[0]
            order_class = self.groups.class_of(multicast.groups[0])
            if self.causal and any(asking for other, asking in self.asking.items() if other != order_class):
                return
            del self.unsent[0]
            count = self.counted[order_class] = self.counted.get(order_class, 0) + 1
            epoch, groups = self.groups.epoch, multicast.groups
            envelope = Envelope(order_class, epoch, groups, self.me, self.incarnation, number, multicast.body)
            request = DoMulticast(envelope, count, self.past.frozen() if self.causal else ())
            self.asking.setdefault(order_class, {})[count] = (request, self.now)
            self._to(self.sequencers[order_class], request, effects)

    def _accepted(self, order_class: int, count: int, numbers: Numbers, effects: list[Effect]) -> None:
        """Rule 2: our message has its numbers; they can only raise C_p (errata 33)."""
        if self.asking.get(order_class, {}).pop(count, None) is not None:
            self.past.merge(numbers)
            self._request(effects)

    # The sequencer.

    def _sequence(self, sender: SiteId, request: DoMulticast, effects: list[Effect]) -> None:
        envelope = request.envelope
        sequencer = self.sequencing.get(envelope.order_class)
        if sequencer is None or envelope.source != sender:
            raise PeerError(f"{sender} sent {request} to {self.me}")
        client = (envelope.source, envelope.incarnation)
        taken = sequencer.taken.get(client, 0)
        if request.count <= taken:  # a repeated request; known by sender, incarnation and count, not by id (errata 34)
            numbers = sequencer.answers[client].get(request.count, ())
            self._to(sender, Accepted(envelope.order_class, request.count, numbers), effects)
            return
        if sequencer.full(envelope.groups):
            return  # it comes again, and its sender holds back meanwhile
        early = sequencer.early.setdefault(client, {})
        early[request.count] = request
        while taken + 1 in early:
            taken += 1
            sequencer.taken[client] = taken
            self._multicast_accept(sequencer, early.pop(taken), effects)

    def _multicast_accept(self, sequencer: _Sequencer, request: DoMulticast, effects: list[Effect]) -> None:
        accept = sequencer.accept(request)
        members = self.groups.union(request.envelope.groups)
        for site in members:
            self._to(site, accept, effects)
        if request.envelope.source not in members:
            numbers = tuple((group, sequencer.numbers[group]) for group in request.envelope.groups)
            accepted = Accepted(request.envelope.order_class, request.count, numbers)
            self._to(request.envelope.source, accepted, effects)

    # The member.

    def _receive(self, accept: Accept, effects: list[Effect]) -> None:
        envelope = accept.envelope
        if envelope.source == self.me:
            numbers = tuple((group, number) for group, number in accept.context if group in envelope.groups)
            self._accepted(envelope.order_class, accept.count, numbers, effects)
        if not self.waiting and self._missing(accept) is None:
            self._consume(accept, effects)
            return
        own = [(group, number) for group, number in accept.context if group in self.delivered]
        if all(number <= self.delivered[group] for group, number in own if group in envelope.groups):
            return  # delivered before
        self.waiting.setdefault((envelope.order_class, accept.place), _Waiting(accept, self.now))
        self._deliver(effects)
        for group, number in own:
            self._fetch(group, number if group not in envelope.groups else number - 1, effects)

    def _deliver(self, effects: list[Effect]) -> None:
        moved = True
        while moved:
            moved = False
            for key in sorted(self.waiting):
                accept = self.waiting[key].accept
                if self._missing(accept) is None:
                    del self.waiting[key]
                    self._consume(accept, effects)
                    moved = True

    def _missing(self, accept: Accept) -> str | None:
        """Return which condition does not hold yet: T1, T2 or CT2."""
        destination = accept.envelope.groups
        for group, number in accept.context:
            if group not in self.delivered:
                continue
            if group in destination and self.delivered[group] + 1 != number:
                return f"T1: {group} is at {self.delivered[group]}, this is {number}"
            if group not in destination and self.delivered[group] != number:
                return f"T2: {group} is at {self.delivered[group]}, must be at {number}"
        for group, number in accept.past:
            if group not in self.delivered:
                continue  # entries of other groups mean nothing here (errata 40)
            if self.delivered[group] < number:
                return f"CT2: {group} is at {self.delivered[group]}, must have reached {number}"
        return None

    def _consume(self, accept: Accept, effects: list[Effect]) -> None:
        envelope = accept.envelope
        for group, number in accept.context:
            if group in envelope.groups and group in self.delivered:
                self.delivered[group] = number
        if self.causal:  # rule 4
            self.past.merge(accept.past)
            self.past.merge(tuple((group, number) for group, number in accept.context if group in envelope.groups))
        stamp = self.groups.epoch.to_bytes(8, "big") + accept.place.to_bytes(8, "big")
        effects.append(Deliver(envelope, stamp))

    def _fetch(self, group: GroupId, upto: int, effects: list[Effect]) -> None:
        """Ask once per tick for what a context says is there and we do not have."""
        if self.delivered.get(group, upto) < upto and group not in self.fetched:
            self.fetched.add(group)
            first = self.delivered[group] + 1
            sequencer = self.sequencers[self.groups.class_of(group)]
            self._to(sequencer, FetchMsgs(group, first, min(upto, first + FETCH_AT_MOST)), effects)

    def _tick(self, now: float, effects: list[Effect]) -> None:
        """Ask again for what was not accepted, report what is stable here, tell the latest numbers."""
        self.now = now
        self.fetched.clear()
        for order_class, asking in self.asking.items():
            for request, since in list(asking.values())[:FETCH_AT_MOST]:
                if since < now:
                    self._to(self.sequencers[order_class], request, effects)
        reports: dict[SiteId, list[tuple[GroupId, int]]] = {}
        for group in self.own:
            if self.delivered[group] > self.reported[group]:
                self.reported[group] = self.delivered[group]
                sequencer = self.sequencers[self.groups.class_of(group)]
                reports.setdefault(sequencer, []).append((group, self.delivered[group]))
        for site, numbers in reports.items():
            self._to(site, Stable(tuple(numbers)), effects)
        for sequencing in self.sequencing.values():
            self._tell_latest(sequencing, effects)

    def _tell_latest(self, sequencing: _Sequencer, effects: list[Effect]) -> None:
        lacking: dict[SiteId, list[tuple[GroupId, int]]] = {}
        for group, history in sequencing.history.items():
            if history:
                for site, number in sequencing.stable[group].items():
                    if number < sequencing.numbers[group]:
                        lacking.setdefault(site, []).append((group, sequencing.numbers[group]))
        for site, numbers in lacking.items():
            if sequencing.told.get(site) == tuple(numbers):  # nothing new for a whole tick, and still not reported
                self._to(site, Latest(tuple(numbers)), effects)
            sequencing.told[site] = tuple(numbers)

    def held(self) -> list[Held]:
        """Everything that waits here."""
        waits = [Held(str(w.accept), self._missing(w.accept) or "nothing", w.since) for w in self.waiting.values()]
        asks = [
            Held(str(request), "not accepted yet", since)
            for asking in self.asking.values()
            for request, since in asking.values()
        ]
        early = [
            Held(str(request), "an earlier request of its sender is missing", self.now)
            for sequencing in self.sequencing.values()
            for requests in sequencing.early.values()
            for request in requests.values()
        ]
        waits += [
            Held(str(m), "an earlier request to another sequencer has no number", since) for m, _, since in self.unsent
        ]
        return waits + asks + early

    @property
    def idle(self) -> bool:
        """Whether nothing waits, nothing is unaccepted and every history is empty."""
        busy = self.waiting or self.unsent or any(self.asking.values())
        busy = busy or any(any(sequencing.history.values()) for sequencing in self.sequencing.values())
        reports = any(self.delivered[group] > self.reported[group] for group in self.own)
        return not busy and not reports and not any(any(s.early.values()) for s in self.sequencing.values())
