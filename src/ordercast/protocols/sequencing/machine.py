"""The sequencing service on fixed groups (KIN §4.1, §4.2, §5): sequencers, and the members and senders they serve.

One sequencer per part. A sender sends DO-MULTICAST; the sequencer takes each sender's requests in the order of their
counts (errata 39), counts the group up and multicasts ACCEPT with a *context*: the numbers of all its groups that meet
the destination. A member delivers when its own numbers say that nothing is missing in between:

  T1   C_m.G = D_p.G + 1            for the destination
  T2   C_m.G' = D_p.G'              for p's other groups that have an entry in C_m (errata 30)

ACCEPTs travel unnumbered and may be lost: a member sees from the contexts what it lacks and asks (FETCH-MSGS). The
sequencer keeps a message until all members have it, and tells the latest numbers while somebody lacks some. While a
history is full, requests are refused and leave no trace; what members report as stable is logged, because what is
refused depends on it (errata 74). Ticks only repeat and remind: nothing is decided in them. When a link comes up, both
ends compare their counts (`core.resume`): requests and numbers, for each sequencer between them.

With `causal` a request carries what its sender has sent and consumed, C_p, and members also wait for those entries
that are of their own groups (errata 40), by "at least", not "equal" (CT2; errata 32). `causal` with a part for each
group is KIN's hybrid: causal everywhere, total in each group.

KIN §5 lets a sender go on without waiting, its unnumbered messages standing in C_p by their id. Across sequencers that
deadlocks: x sends b1 to G, then a2 to H; y sends b2 to H, then a1 to G; G sequences a1 before b1, H a2 before b2, and
a member of both waits in a circle (T1, CT2, T1, CT2). So requests to one sequencer are pipelined, which takes them in
order anyway, and a request to another waits here until what was sent before has its number. The application never
waits, and every entry of a context is a number. What a pipelined request came after, the sequencer adds: the numbers of
its sender's earlier requests, which the sender did not know yet.
"""

from collections import deque

import msgspec

from ordercast.core import stamps
from ordercast.core.configuration import NUMBER_AT_MOST, OrderClass
from ordercast.core.contexts import Numbers, Past
from ordercast.core.effects import Append, Deliver, Effect, Held, Refuse, Send
from ordercast.core.events import Envelope, Event, LinkDown, LinkUp, Message, Multicast, PeerReset, Received, Tick
from ordercast.core.resume import LOST, Counts, Resume, began_anew, check_resume, who_lost
from ordercast.core.source import Source
from ordercast.errors import PeerError
from ordercast.names import GroupId, SiteId
from ordercast.protocols.sequencing.messages import Accept, Accepted, DoMulticast, FetchMsgs, Latest, Stable
from ordercast.protocols.sequencing.sequencer import UNDER_WAY_AT_MOST, Sequencer, SequencerState

FETCH_AT_MOST = 256  # messages per request; the rest is fetched when these are there


class SequencingState(msgspec.Struct, array_like=True, tag="sequencing"):
    """The whole state of a machine."""

    now: float
    sequencing: dict[int, SequencerState]
    counted: dict[int, int]
    unsent: list[tuple[Envelope, float]]
    asking: dict[int, dict[int, tuple[DoMulticast, float]]]
    delivered: dict[GroupId, int]
    reported: dict[GroupId, int]
    past: Numbers
    waiting: list[tuple[int, Accept, float]]
    """Part, ACCEPT, since when; by place."""
    fetched: list[GroupId]
    repeated: dict[int, float]
    linked: dict[SiteId, dict[int, Counts]]

    def durable(self) -> object:
        """Return what a replay rebuilds. Volatile is what was reported, fetched, repeated, told, and when."""
        sequencing = {part: msgspec.structs.replace(state, told={}) for part, state in self.sequencing.items()}
        unsent = [envelope for envelope, _ in self.unsent]
        asking = {part: [request for request, _ in asked.values()] for part, asked in self.asking.items()}
        waiting = [(part, accept) for part, accept, _ in self.waiting]
        return sequencing, self.counted, unsent, asking, self.delivered, self.past, waiting


class Sequencing:
    """One site's part: sequencer of some parts, member of some groups, sender to any."""

    def __init__(
        self,
        order_class: OrderClass,
        source: Source,
        sequencers: tuple[SiteId, ...],
        *,
        causal: bool = False,
        patience: float = 0.0,
    ) -> None:
        self.me, self.groups, self.source, self.sequencers = source.me, order_class, source, sequencers
        self.id, self.causal, self.patience = order_class.id, causal, patience
        self.epoch = stamps.first_of(order_class.id)
        self.now = 0.0
        own = [part for part, site in enumerate(sequencers) if site == self.me]
        self.sequencing = {part: Sequencer(order_class, part, causal=causal) for part in own}
        self.counted: dict[int, int] = {}  # requests per part
        self.unsent: deque[tuple[Envelope, float]] = deque()  # waiting for their turn
        self.asking: dict[int, dict[int, tuple[DoMulticast, float]]] = {}  # not yet ACCEPTed, per part, by count
        self.own = [group for group, members in order_class.members.items() if self.me in members]
        self.delivered = dict.fromkeys(self.own, 0)  # D_p, for own groups only (errata 36)
        self.reported = dict.fromkeys(self.own, 0)
        self.past = Past()  # C_p
        self.waiting: dict[tuple[int, int], tuple[Accept, float]] = {}  # by part and place
        self.fetched: list[GroupId] = []  # since the last tick
        self.repeated: dict[int, float] = {}  # when requests were last repeated, per part
        self.linked: dict[SiteId, dict[int, Counts]] = {}  # what was known of each stream when the link came up

    def step(self, event: Event) -> list[Effect]:
        """Take one event to completion."""
        effects: list[Effect] = []
        match event:
            case Received(sender, message):
                self._check(sender, message)
                if self._matters(message, sender):
                    effects.append(Append(event))
                self._take(sender, message, effects)
                self._sequence_own(effects)
            case Multicast(groups, body):
                self.groups.origin(self.me, groups)
                effects.append(Append(event))
                self.unsent.append((self.source.envelope(self.id, groups, body), self.now))
                self._request(effects)
                self._sequence_own(effects)
            case Tick(now):
                self._tick(now, effects)
            case LinkUp(peer):
                self._link_up(peer, effects)
            case LinkDown():
                pass  # requests are repeated, and what is missing is fetched, at ticks
            case PeerReset(peer, incarnation):
                if any(counts.sent or counts.received for counts in self._streams(peer).values()):
                    effects.append(Refuse(peer, began_anew(self.me, peer, incarnation), LOST))
        return effects

    def _to(self, site: SiteId, message: Message, effects: list[Effect]) -> None:
        if site == self.me:
            self._take(site, message, effects)
        else:
            effects.append(Send(site, message, self.id))

    def _check(self, sender: SiteId, message: Message) -> None:
        """Refuse what no honest peer sends, before anything changes (errata 62)."""
        match message:
            case DoMulticast(envelope, count, past):
                part = self.groups.check(sender, envelope)
                right = envelope.source == sender and part in self.sequencing and 0 < count <= NUMBER_AT_MOST
                right = right and self._are_numbers(past)
            case Accept(envelope, place, _, context, past):
                part = self.groups.check(sender, envelope)
                right = self.sequencers[part] == sender and 0 < place <= NUMBER_AT_MOST
                right = right and self.me in self.groups.union(envelope.groups)
                right = right and self._are_numbers(context) and self._are_numbers(past)
                right = right and {group for group, _ in context}.issuperset(envelope.groups)
            case Accepted(part, _, numbers):
                right = 0 <= part < len(self.sequencers) and self.sequencers[part] == sender
                right = right and self._are_numbers(numbers)
            case Latest(numbers):
                right = self._are_numbers(numbers) and all(
                    self._sequencer_site(group) == sender for group, _ in numbers
                )
            case Stable(numbers):
                right = self._are_numbers(numbers) and all(self._serves(sender, group) for group, _ in numbers)
                right = right and all(number <= self._sequencer_of(group).numbers[group] for group, number in numbers)
            case FetchMsgs(group, first, _):
                right = self._are_numbers(((group, first),)) and self._serves(sender, group)
            case Resume():
                check_resume(sender, message)
                right = True
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
        return self.sequencers[self.groups.part_of(group)]

    def _sequencer_of(self, group: GroupId) -> Sequencer:
        return self.sequencing[self.groups.part_of(group)]

    def _matters(self, message: Message, sender: SiteId) -> bool:
        """Whether a message changes what must survive a crash; requests that are repeated or refused do not."""
        match message:
            case DoMulticast(envelope):
                return self._sequencer_of(envelope.groups[0]).refusal(message) is None
            case Stable(numbers):
                return any(number > self._sequencer_of(group).stable[group][sender] for group, number in numbers)
            case Accepted(part, count):
                return count in self.asking.get(part, ())
            case Accept(envelope, place, count):
                part = self.groups.part_of(envelope.groups[0])
                own = envelope.source == self.me and count in self.asking.get(part, ())
                waits = (part, place) in self.waiting
                return own or not (waits or self._was_delivered(message))
        return False

    def _take(self, sender: SiteId, message: Message, effects: list[Effect]) -> None:
        match message:
            case DoMulticast():
                self._sequence(sender, message, effects)
            case Accept():
                self._receive(message, effects)
            case Accepted(part, count, numbers):
                self._accepted(part, count, numbers, effects)
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
            case Resume(stream):
                before = self.linked.get(sender, {}).get(stream, Counts())
                counts = self._streams(sender).get(stream, Counts())
                counts = counts._replace(acked=before.acked, received_before=before.received)
                reason = who_lost(self.me, sender, message, counts)
                if reason is not None:
                    effects.append(Refuse(sender, reason, LOST))

    # The sender.

    def _request(self, effects: list[Effect]) -> None:
        """Send what may go: with `causal`, not while a request to another sequencer has no number yet."""
        while self.unsent:
            envelope, _ = self.unsent[0]
            part = self.groups.part_of(envelope.groups[0])
            if self.causal and any(asking for other, asking in self.asking.items() if other != part):
                return
            asking = self.asking.setdefault(part, {})
            count = self.counted.get(part, 0) + 1
            if count - next(iter(asking), count) >= UNDER_WAY_AT_MOST:
                return  # the sequencer keeps so many answers: the oldest request may still have to be repeated
            self.unsent.popleft()
            self.counted[part] = count
            request = DoMulticast(envelope, count, self.past.frozen() if self.causal else ())
            asking[count] = (request, self.now)
            if self.sequencers[part] != self.me:  # its own requests a sequencer takes when it has room
                effects.append(Send(self.sequencers[part], request, self.id))

    def _accepted(self, part: int, count: int, numbers: Numbers, effects: list[Effect]) -> None:
        """Rule 2: our message has its numbers; they can only raise C_p (errata 33)."""
        if self.asking.get(part, {}).pop(count, None) is not None:
            self.past.merge(numbers)
            self._request(effects)

    def _sequence_own(self, effects: list[Effect]) -> None:
        """Sequence this site's own requests, as far as its histories have room."""
        moved = True
        while moved:
            moved = False
            for part, sequencer in self.sequencing.items():
                asking = self.asking.get(part)
                while asking:
                    request, _ = next(iter(asking.values()))
                    if sequencer.full(request.envelope.groups):
                        break
                    self._sequence(self.me, request, effects)
                    moved = True

    # The sequencer.

    def _sequence(self, sender: SiteId, request: DoMulticast, effects: list[Effect]) -> None:
        part = self.groups.part_of(request.envelope.groups[0])
        sequencer = self.sequencing[part]
        refusal = sequencer.refusal(request)
        if refusal == "taken":  # a repeated request; known by sender, incarnation and count, not by id (errata 34)
            numbers = sequencer.answer(request)
            if numbers is not None:
                self._to(sender, Accepted(part, request.count, numbers), effects)
        if refusal is None:  # else it comes again, and its sender holds back meanwhile
            for accept in sequencer.take(request):
                self._multicast_accept(part, accept, effects)

    def _multicast_accept(self, part: int, accept: Accept, effects: list[Effect]) -> None:
        envelope = accept.envelope
        members = self.groups.union(envelope.groups)
        for site in members:
            self._to(site, accept, effects)
        if envelope.source not in members:
            numbers = _of_destination(accept)
            self._to(envelope.source, Accepted(part, accept.count, numbers), effects)

    # The member.

    def _receive(self, accept: Accept, effects: list[Effect]) -> None:
        envelope = accept.envelope
        part = self.groups.part_of(envelope.groups[0])
        if envelope.source == self.me:
            self._accepted(part, accept.count, _of_destination(accept), effects)
        if not self.waiting and self._missing(accept) is None:
            self._consume(accept, effects)
            return
        if self._was_delivered(accept):
            return
        own = [(group, number) for group, number in accept.context if group in self.delivered]
        self.waiting.setdefault((part, accept.place), (accept, self.now))
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
                accept, _ = self.waiting[key]
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
        sequencer = self.sequencing.get(self.groups.part_of(envelope.groups[0]))
        for group, number in accept.context:
            if group in envelope.groups and group in self.delivered:
                self.delivered[group] = number
                if sequencer is not None:
                    sequencer.report(group, self.me, number)
        if self.causal:  # rule 4
            self.past.merge(accept.past)
            self.past.merge(_of_destination(accept))
        effects.append(Deliver(envelope, stamps.at(self.epoch, accept.place)))

    def _fetch(self, group: GroupId, upto: int, effects: list[Effect]) -> None:
        """Ask once per tick for what a context says is there and we do not have."""
        if self.delivered.get(group, upto) < upto and group not in self.fetched:
            self.fetched.append(group)
            first = self.delivered[group] + 1
            self._to(
                self._sequencer_site(group), FetchMsgs(group, first, min(upto, first + FETCH_AT_MOST - 1)), effects
            )

    # Time and links.

    def _tick(self, now: float, effects: list[Effect]) -> None:
        """Ask again for what was not accepted, report what is stable here, tell the latest numbers."""
        self.now = now
        self.fetched.clear()
        for part, asking in self.asking.items():
            if part in self.sequencing or now - self.repeated.get(part, now - self.patience) < self.patience:
                continue
            for request, since in list(asking.values())[:FETCH_AT_MOST]:
                if since < now:
                    self.repeated[part] = now
                    effects.append(Send(self.sequencers[part], request, self.id))
        reports: dict[SiteId, list[tuple[GroupId, int]]] = {}
        for group in self.own:
            sequencer = self._sequencer_site(group)
            if self.delivered[group] > self.reported[group] and sequencer != self.me:
                self.reported[group] = self.delivered[group]
                reports.setdefault(sequencer, []).append((group, self.delivered[group]))
        for site, numbers in reports.items():
            effects.append(Send(site, Stable(tuple(numbers)), self.id))
        for sequencing in self.sequencing.values():
            effects += [Send(site, Latest(latest), self.id) for site, latest in sequencing.latest(self.me)]

    def _link_up(self, peer: SiteId, effects: list[Effect]) -> None:
        streams = self.linked[peer] = self._streams(peer)
        for stream, (sent, acked, received, _) in streams.items():
            effects.append(Send(peer, Resume(stream, sent, acked, received), self.id))

    def _streams(self, peer: SiteId) -> dict[int, Counts]:
        """Return what is counted between this site and a peer: requests of each part, then numbers of each group.

        A number of a group is sent by its sequencer, received when it is delivered, acknowledged when it is stable.
        """
        found: dict[int, Counts] = {}
        for part, site in enumerate(self.sequencers):
            count = self.counted.get(part, 0)
            if site == peer and count:
                found[part] = Counts(sent=count, acked=next(iter(self.asking.get(part, ())), count + 1) - 1)
            if site == self.me and (taken := self.sequencing[part].taken_of(peer)):
                found[part] = Counts(received=taken)
        for stream, group in enumerate(sorted(self.groups.members), start=len(self.sequencers)):
            site = self._sequencer_site(group)
            if site == self.me and peer in self.groups.members[group]:
                sequencer = self._sequencer_of(group)
                found[stream] = Counts(sent=sequencer.numbers[group], acked=sequencer.stable[group][peer])
            elif site == peer and group in self.delivered:
                found[stream] = Counts(received=self.delivered[group])
        return {stream: counts for stream, counts in found.items() if counts.sent or counts.received}

    # Looking.

    def held(self) -> list[Held]:
        """Everything that waits here."""
        waits = [Held(str(a), self._missing(a) or "nothing", since) for a, since in self.waiting.values()]
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
        waits += [Held(str(e), "earlier requests of this site have no number yet", since) for e, since in self.unsent]
        return waits + asks + early

    @property
    def idle(self) -> bool:
        """Whether nothing waits, nothing is unaccepted and every history is empty."""
        if self.waiting or self.unsent or any(self.asking.values()):
            return False
        reports = any(
            self.delivered[group] > self.reported[group] for group in self.own if self._sequencer_site(group) != self.me
        )
        return not reports and all(sequencer.idle for sequencer in self.sequencing.values())

    @property
    def under_way(self) -> int:
        """What this site has sent and is not accepted, or what is held here, whichever is more."""
        asking = sum(map(len, self.asking.values())) + len(self.unsent)
        return max(asking, len(self.waiting))

    def snapshot(self) -> SequencingState:
        """Return the whole state."""
        return SequencingState(
            self.now,
            {part: sequencer.snapshot() for part, sequencer in self.sequencing.items()},
            dict(sorted(self.counted.items())),
            list(self.unsent),
            {part: asking for part, asking in sorted(self.asking.items()) if asking},
            self.delivered,
            self.reported,
            self.past.frozen(),
            [(part, *self.waiting[part, place]) for part, place in sorted(self.waiting)],
            sorted(self.fetched),
            dict(sorted(self.repeated.items())),
            dict(sorted(self.linked.items())),
        )

    def restore(self, state: SequencingState) -> None:
        """Take over a state."""
        self.now, self.counted, self.asking = state.now, state.counted, state.asking
        for part, sequencer in self.sequencing.items():
            sequencer.restore(state.sequencing[part])
        self.unsent = deque(state.unsent)
        self.delivered, self.reported, self.fetched = state.delivered, state.reported, state.fetched
        self.past = Past()
        self.past.merge(state.past)
        self.waiting = {(part, accept.place): (accept, since) for part, accept, since in state.waiting}
        self.repeated, self.linked = state.repeated, state.linked


def _of_destination(accept: Accept) -> Numbers:
    """Return the numbers of an ACCEPT in its own groups."""
    return tuple((group, number) for group, number in accept.context if group in accept.envelope.groups)
