"""The sequencing service on fixed groups (KIN §4.1, §4.2, §5): sequencers, and the members and senders they serve.

One sequencer per class. A sender sends DO-MULTICAST; the sequencer takes each sender's requests in the order of their
counts (errata 39), counts the group up and multicasts ACCEPT with a *context*: the numbers of all its groups that meet
the destination. A member delivers when its own numbers say that nothing is missing in between:

  T1   C_m.G = D_p.G + 1            for the destination
  T2   C_m.G' = D_p.G'              for p's other groups that have an entry in C_m (errata 30)

ACCEPTs travel unnumbered and may be lost: a member sees from the contexts what it lacks and asks (FETCH-MSGS). The
sequencer keeps a message until all members have it, and tells the latest numbers while somebody lacks some. While a
history is full, requests are refused and leave no trace; what members report as stable is logged, because what is
refused depends on it (errata 74). Ticks only repeat and remind: nothing is decided in them.

With `causal` a request carries what its sender has sent and consumed, C_p, and members also wait for those entries
that are of their own groups (errata 40), by "at least", not "equal" (CT2; errata 32). `causal` with a class for each
group is KIN's hybrid: causal everywhere, total in each group.

KIN §5 lets a sender go on without waiting, its unnumbered messages standing in C_p by their id. Across sequencers that
deadlocks: x sends b1 to G, then a2 to H; y sends b2 to H, then a1 to G; G sequences a1 before b1, H a2 before b2, and
a member of both waits in a circle (T1, CT2, T1, CT2). So requests to one sequencer are pipelined, which takes them in
order anyway, and a request to another waits here until what was sent before has its number. The application never
waits, and every entry of a context is a number. What a pipelined request came after, the sequencer adds: the numbers of
its sender's earlier requests, which the sender did not know yet.
"""

from collections import deque

from ordercast.core.contexts import Numbers, Past
from ordercast.core.effects import Append, Deliver, Effect, Held, Send
from ordercast.core.events import Control, Envelope, Event, Message, Multicast, Received, Tick
from ordercast.core.machine import NUMBER_AT_MOST, Groups
from ordercast.errors import PeerError
from ordercast.names import GroupId, SiteId

UNDER_WAY_AT_MOST = 1024  # requests of one sender to one sequencer without a number; further ones wait at the sender
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

    def __init__(self, groups: Groups, order_class: int, *, causal: bool) -> None:
        self.causal = causal
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
        self.sent_by: dict[tuple[SiteId, int], Past] = {}  # with `causal`: the numbers of a sender's requests so far

    def accept(self, request: DoMulticast) -> Accept:
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
            past = earlier.merged(past)
            earlier.merge(numbers)
        accept = Accept(envelope, self.place, request.count, context, past)
        answers = self.answers.setdefault(client, {})
        answers[request.count] = numbers
        answers.pop(request.count - UNDER_WAY_AT_MOST, None)
        for group in envelope.groups:
            self.history[group][self.numbers[group]] = accept
        return accept

    def full(self, groups: tuple[GroupId, ...]) -> bool:
        """Whether a history is as long as it may be: a member is away, or slow (KIN §4 bounds nothing)."""
        return any(len(self.history[group]) >= HISTORY_AT_MOST for group in groups if group in self.history)

    def report(self, group: GroupId, site: SiteId, number: int) -> bool:
        """A member has everything up to a number; drop what every member has (group-stable, KIN §4)."""
        if number <= self.stable[group][site]:
            return False
        self.stable[group][site] = number
        everywhere = min(self.stable[group].values())
        history = self.history[group]
        for place in [place for place in history if place <= everywhere]:
            del history[place]
        return True


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
        self.sequencing = {c: _Sequencer(groups, c, causal=causal) for c, site in sequencers.items() if site == me}
        self.sent = 0
        self.counted: dict[int, int] = {}  # requests per class
        self.unsent: deque[tuple[Multicast, int, float]] = deque()  # with the number they have, waiting for their turn
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
            self._check(event.sender, event.message)
            if self._matters(event.message, event.sender):
                effects.append(Append(event))
            self._take(event.sender, event.message, effects)
            self._sequence_own(effects)
        elif isinstance(event, Multicast):
            self.groups.origin(self.me, event.groups)
            effects.append(Append(event))
            self.sent += 1
            self.unsent.append((event, self.sent, self.now))
            self._request(effects)
            self._sequence_own(effects)
        else:
            assert isinstance(event, Tick)
            self._tick(event.now, effects)
        return effects

    def _to(self, site: SiteId, message: Message, effects: list[Effect]) -> None:
        if site == self.me:
            self._take(site, message, effects)
        else:
            effects.append(Send(site, message))

    def _check(self, sender: SiteId, message: Message) -> None:
        """Refuse what no honest peer sends, before anything changes (errata 62)."""
        match message:
            case DoMulticast(envelope, _, past):
                self.groups.check(sender, envelope)
                right = envelope.source == sender and envelope.order_class in self.sequencing and message.count > 0
                right = right and self._are_numbers(past)
            case Accept(envelope, place, _, context, past):
                self.groups.check(sender, envelope)
                right = self.sequencers[envelope.order_class] == sender and place > 0
                right = right and self.me in self.groups.union(envelope.groups)
                right = right and self._are_numbers(context) and self._are_numbers(past)
                right = right and {group for group, _ in context}.issuperset(envelope.groups)
            case Accepted(order_class, _, numbers):
                right = self.sequencers.get(order_class) == sender and self._are_numbers(numbers)
            case Latest(numbers):
                right = self._are_numbers(numbers) and all(
                    self._sequencer_site(group) == sender for group, _ in numbers
                )
            case Stable(numbers):
                right = self._are_numbers(numbers) and all(self._serves(sender, group) for group, _ in numbers)
                right = right and all(number <= self._sequencer_of(group).numbers[group] for group, number in numbers)
            case FetchMsgs(group, first, _):
                right = self._are_numbers(((group, first),)) and self._serves(sender, group)
            case _:
                right = False
        if not right:
            raise PeerError(f"{sender} sent {self.me} what is not for sequencing, or not its to send: {message}")

    def _are_numbers(self, numbers: Numbers) -> bool:
        return all(group in self.groups.members and 0 <= number <= NUMBER_AT_MOST for group, number in numbers)

    def _serves(self, member: SiteId, group: GroupId) -> bool:
        """Whether this site sequences a group for a member."""
        return self._sequencer_site(group) == self.me and member in self.groups.members[group]

    def _sequencer_site(self, group: GroupId) -> SiteId:
        return self.sequencers[self.groups.class_of(group)]

    def _sequencer_of(self, group: GroupId) -> _Sequencer:
        return self.sequencing[self.groups.class_of(group)]

    def _matters(self, message: Message, sender: SiteId) -> bool:
        """Whether a message changes what must survive a crash; requests that are repeated or refused do not."""
        match message:
            case DoMulticast(envelope, count):
                return self._refusal(self.sequencing[envelope.order_class], envelope, count) is None
            case Stable(numbers):
                return any(number > self._sequencer_of(group).stable[group][sender] for group, number in numbers)
            case Accepted(order_class, count):
                return count in self.asking.get(order_class, ())
            case Accept(envelope, place, count):
                own = envelope.source == self.me and count in self.asking.get(envelope.order_class, ())
                waits = (envelope.order_class, place) in self.waiting
                return own or not (waits or self._was_delivered(message))
        return False

    def _take(self, sender: SiteId, message: Message, effects: list[Effect]) -> None:
        match message:
            case DoMulticast():
                self._sequence(sender, message, effects)
            case Accept():
                self._receive(message, effects)
            case Accepted(order_class, count, numbers):
                self._accepted(order_class, count, numbers, effects)
            case FetchMsgs(group, first, last):
                history = self._sequencer_of(group).history[group]
                for number in range(first, min(last + 1, first + FETCH_AT_MOST)):
                    if number in history:
                        self._to(sender, history[number], effects)
            case Latest(numbers):
                for group, number in numbers:
                    if self.delivered.get(group, -1) >= number:
                        self.reported[group] = 0  # our report was lost: the next tick sends it again
                    self._fetch(group, number, effects)
            case Stable(numbers):
                for group, number in numbers:
                    self._sequencer_of(group).report(group, sender, number)

    # The sender.

    def _request(self, effects: list[Effect]) -> None:
        """Send what may go: with `causal`, not while a request to another sequencer has no number yet."""
        while self.unsent:
            multicast, number, _ = self.unsent[0]
            order_class = self.groups.class_of(multicast.groups[0])
            if self.causal and any(asking for other, asking in self.asking.items() if other != order_class):
                return
            asking = self.asking.setdefault(order_class, {})
            count = self.counted.get(order_class, 0) + 1
            if count - next(iter(asking), count) >= UNDER_WAY_AT_MOST:
                return  # the sequencer keeps so many answers: the oldest request may still have to be repeated
            self.unsent.popleft()
            self.counted[order_class] = count
            envelope = self.groups.envelope(multicast.groups, self.me, self.incarnation, number, multicast.body)
            request = DoMulticast(envelope, count, self.past.frozen() if self.causal else ())
            asking[count] = (request, self.now)
            if self.sequencers[order_class] != self.me:  # its own requests a sequencer takes when it has room
                effects.append(Send(self.sequencers[order_class], request))

    def _accepted(self, order_class: int, count: int, numbers: Numbers, effects: list[Effect]) -> None:
        """Rule 2: our message has its numbers; they can only raise C_p (errata 33)."""
        if self.asking.get(order_class, {}).pop(count, None) is not None:
            self.past.merge(numbers)
            self._request(effects)

    def _sequence_own(self, effects: list[Effect]) -> None:
        """Sequence this site's own requests, as far as its histories have room."""
        moved = True
        while moved:
            moved = False
            for order_class, sequencer in self.sequencing.items():
                asking = self.asking.get(order_class)
                while asking:
                    request, _ = next(iter(asking.values()))
                    if sequencer.full(request.envelope.groups):
                        break
                    self._sequence(self.me, request, effects)
                    moved = True

    # The sequencer.

    def _refusal(self, sequencer: _Sequencer, envelope: Envelope, count: int) -> str | None:
        """Return why a request leaves no trace: it was taken before, is too early, or a history is full."""
        taken = sequencer.taken.get((envelope.source, envelope.incarnation), 0)
        if count <= taken:
            return "taken"
        if count > taken + UNDER_WAY_AT_MOST:
            return "early"
        return "full" if sequencer.full(envelope.groups) else None

    def _sequence(self, sender: SiteId, request: DoMulticast, effects: list[Effect]) -> None:
        envelope = request.envelope
        sequencer = self.sequencing[envelope.order_class]
        client = (envelope.source, envelope.incarnation)
        refusal = self._refusal(sequencer, envelope, request.count)
        if refusal == "taken":  # a repeated request; known by sender, incarnation and count, not by id (errata 34)
            numbers = sequencer.answers[client].get(request.count)
            if numbers is not None:  # older ones are answered: their sender would not have gone on without
                self._to(sender, Accepted(envelope.order_class, request.count, numbers), effects)
        if refusal is not None:
            return  # it comes again, and its sender holds back meanwhile
        early = sequencer.early.setdefault(client, {})
        early[request.count] = request
        taken = sequencer.taken.get(client, 0)
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
        if self._was_delivered(accept):
            return
        own = [(group, number) for group, number in accept.context if group in self.delivered]
        self.waiting.setdefault((envelope.order_class, accept.place), _Waiting(accept, self.now))
        self._deliver(effects)
        for group, number in own:
            self._fetch(group, number if group not in envelope.groups else number - 1, effects)

    def _was_delivered(self, accept: Accept) -> bool:
        own = ((g, number) for g, number in accept.context if g in accept.envelope.groups and g in self.delivered)
        return all(number <= self.delivered[group] for group, number in own)

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
                if envelope.order_class in self.sequencing:
                    self.sequencing[envelope.order_class].report(group, self.me, number)
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
            self._to(
                self._sequencer_site(group), FetchMsgs(group, first, min(upto, first + FETCH_AT_MOST - 1)), effects
            )

    def _tick(self, now: float, effects: list[Effect]) -> None:
        """Ask again for what was not accepted, report what is stable here, tell the latest numbers."""
        self.now = now
        self.fetched.clear()
        for order_class, asking in self.asking.items():
            if order_class not in self.sequencing:
                for request, since in list(asking.values())[:FETCH_AT_MOST]:
                    if since < now:
                        effects.append(Send(self.sequencers[order_class], request))
        reports: dict[SiteId, list[tuple[GroupId, int]]] = {}
        for group in self.own:
            sequencer = self._sequencer_site(group)
            if self.delivered[group] > self.reported[group] and sequencer != self.me:
                self.reported[group] = self.delivered[group]
                reports.setdefault(sequencer, []).append((group, self.delivered[group]))
        for site, numbers in reports.items():
            effects.append(Send(site, Stable(tuple(numbers))))
        for sequencing in self.sequencing.values():
            self._tell_latest(sequencing, effects)

    def _tell_latest(self, sequencing: _Sequencer, effects: list[Effect]) -> None:
        lacking: dict[SiteId, list[tuple[GroupId, int]]] = {}
        for group, history in sequencing.history.items():
            if history:
                for site, number in sequencing.stable[group].items():
                    if number < sequencing.numbers[group] and site != self.me:
                        lacking.setdefault(site, []).append((group, sequencing.numbers[group]))
        for site, numbers in lacking.items():
            if sequencing.told.get(site) == tuple(numbers):  # nothing new for a whole tick, and still not reported
                effects.append(Send(site, Latest(tuple(numbers))))
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
            Held(str(m), "earlier requests of this site have no number yet", since) for m, _, since in self.unsent
        ]
        return waits + asks + early

    @property
    def idle(self) -> bool:
        """Whether nothing waits, nothing is unaccepted and every history is empty."""
        busy = self.waiting or self.unsent or any(self.asking.values())
        busy = busy or any(any(sequencing.history.values()) for sequencing in self.sequencing.values())
        reports = any(
            self.delivered[group] > self.reported[group] for group in self.own if self._sequencer_site(group) != self.me
        )
        return not busy and not reports and not any(any(s.early.values()) for s in self.sequencing.values())
