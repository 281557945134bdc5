"""The sequencing service on fixed groups (KIN §4.1, §4.2, §5): sequencers, and the members and senders they serve.

One sequencer per part. A sender sends DO-MULTICAST; the sequencer takes each sender's requests in the order of their
counts (errata 39), counts the group up and multicasts ACCEPT with a *context*: the numbers of all its groups that meet
the destination. A member delivers when its own numbers say that nothing is missing in between
(`protocols.sequencing.member`).

ACCEPTs travel unnumbered and may be lost: a member sees from the contexts what it lacks and asks (FETCH-MSGS). The
sequencer keeps a message until all members have it, and tells the latest numbers while somebody lacks some. While a
history is full, requests are refused and leave no trace; what members report as stable is logged, because what is
refused depends on it (errata 74). Ticks only repeat and remind: nothing is decided in them. When a link comes up, both
ends compare their counts (`core.resume`): requests and numbers, for each sequencer between them.

With `causal` a request carries what its sender has sent and consumed, C_p, and members also wait for those entries
that are of their own groups (errata 40), by "at least", not "equal" (CT2; errata 32). `causal` with a part for each
group is KIN's hybrid: causal everywhere, total in each group.
"""

import msgspec

from ordercast.core import stamps
from ordercast.core.configuration import OrderClass
from ordercast.core.contexts import Numbers
from ordercast.core.effects import Append, Deliver, Effect, Held, Refuse, Send
from ordercast.core.events import Event, Forgot, LinkDown, LinkUp, Message, Multicast, PeerReset, Received, Tick
from ordercast.core.resume import LOST, Counts, Resume, began_anew, who_lost
from ordercast.core.source import Source
from ordercast.names import GroupId, SiteId
from ordercast.protocols.sequencing.counts import streams_between
from ordercast.protocols.sequencing.member import Member, MemberState
from ordercast.protocols.sequencing.messages import Accept, Accepted, DoMulticast, FetchMsgs, Latest, Stable
from ordercast.protocols.sequencing.rules import Rules
from ordercast.protocols.sequencing.sender import Sender, SenderState
from ordercast.protocols.sequencing.sequencer import Sequencer, SequencerState

FETCH_AT_MOST = 256  # messages per request; the rest is fetched when these are there


class SequencingState(msgspec.Struct, array_like=True, tag="sequencing"):
    """The whole state of a machine."""

    now: float
    sequencing: dict[int, SequencerState]
    sender: SenderState
    member: MemberState
    linked: dict[SiteId, dict[int, Counts]]

    def durable(self) -> object:
        """Return what a replay rebuilds. Volatile is what was reported, fetched, repeated, told, and when."""
        sequencing = {part: msgspec.structs.replace(state, told={}) for part, state in self.sequencing.items()}
        return sequencing, self.sender.durable(), self.member.durable()


class Sequencing:
    """One site's part: sequencer of some parts, member of some groups, sender to any."""

    def __init__(
        self, order_class: OrderClass, source: Source, sequencers: tuple[SiteId, ...],
        *, causal: bool = False, patience: float = 0.0,
    ) -> None:  # fmt: skip
        self.me, self.groups, self.source, self.id, self.causal = source.me, order_class, source, order_class.id, causal
        self.rules = Rules(self.me, order_class, sequencers)
        self.epoch = stamps.first_of(order_class.id)
        self.now = 0.0
        parts = [part for part, site in enumerate(sequencers) if site == self.me]
        self.sequencing = {part: Sequencer(order_class, part, causal=causal) for part in parts}
        self.sender = Sender(order_class.part_of, causal=causal, patience=patience)
        own = [group for group, members in order_class.members.items() if self.me in members]
        self.member = Member(own, [group for group in own if self.rules.sequencer_of(group) != self.me])
        self.linked: dict[SiteId, dict[int, Counts]] = {}  # what was known of each stream when the link came up

    def step(self, event: Event) -> list[Effect]:
        """Take one event to completion."""
        effects: list[Effect] = []
        if isinstance(event, Received):
            sender, message = event.sender, event.message
            self.rules.check(sender, message)
            if self._matters(message, sender):
                effects.append(Append(event))
            self._take(sender, message, effects)
            self._sequence_own(effects)
        elif isinstance(event, Multicast):
            self.groups.origin(self.me, event.groups)
            effects.append(Append(event))
            self.sender.unsent.append((self.source.envelope(self.id, event), self.now))
            self._request(effects)
            self._sequence_own(effects)
        else:
            self._passes(event, effects)
        return effects

    def _passes(self, event: Event, effects: list[Effect]) -> None:
        """Take what concerns time and links."""
        match event:
            case Tick(now):
                self._tick(now, effects)
            case LinkUp(peer):
                self._link_up(peer, effects)
            case LinkDown():  # requests are repeated, and what is missing is fetched, at ticks
                pass
            case PeerReset(peer, incarnation):
                if any(counts.sent or counts.received for counts in self._streams(peer).values()):
                    effects.append(Refuse(peer, began_anew(self.me, peer, incarnation), LOST))
            case Forgot(peer):
                effects.append(Append(event))
                for sequencer in self.sequencing.values():
                    sequencer.forget(peer)
            case _:
                raise TypeError(f"no sequencing takes {event!r}")

    def _to(self, site: SiteId, message: Message, effects: list[Effect]) -> None:
        if site == self.me:
            self._take(site, message, effects)
        else:
            effects.append(Send(site, message, self.id))

    def _sequencer_of(self, group: GroupId) -> Sequencer:
        return self.sequencing[self.groups.part_of(group)]

    def _matters(self, message: Message, sender: SiteId) -> bool:
        """Whether a message changes what must survive a crash; requests that are repeated or refused do not.

        Raises PeerError for a report of what does not exist.
        """
        match message:
            case DoMulticast(envelope):
                return self._sequencer_of(envelope.groups[0]).refusal(message) is None
            case Stable(numbers):
                news = [self._sequencer_of(group).is_news(group, sender, number) for group, number in numbers]
                return any(news)  # all are checked
            case Accepted(part, count):
                return self.sender.waits_for(part, count)
            case Accept(envelope, place, count):
                part = self.groups.part_of(envelope.groups[0])
                own = envelope.source == self.me and self.sender.waits_for(part, count)
                waits = (part, place) in self.member.waiting
                return own or not (waits or self.member.has(message))
        return False

    def _take(self, sender: SiteId, message: Message, effects: list[Effect]) -> None:
        match message:
            case DoMulticast():
                self._sequence(sender, message, effects)
            case Accept():
                self._receive(message, effects)
            case Accepted(part, count, numbers):
                if self.sender.accepted(part, count, numbers):
                    self._request(effects)
            case FetchMsgs(group, first, last):
                for accept in self._sequencer_of(group).fetch(group, first, min(last, first + FETCH_AT_MOST - 1)):
                    self._to(sender, accept, effects)
            case Latest(numbers):
                for group, number in numbers:
                    if self.member.delivered.get(group, -1) >= number:
                        self.member.reported[group] = 0  # our report was lost: the next tick sends it again
                    self._fetch(group, number, effects)
            case Stable(numbers):
                for group, number in numbers:
                    self._sequencer_of(group).report(group, sender, number)
            case Resume():
                self._resumed(sender, message, effects)

    # The sender.

    def _request(self, effects: list[Effect]) -> None:
        for part, request in self.sender.requests(self.now):
            if part not in self.sequencing:  # its own requests a sequencer takes when it has room
                effects.append(Send(self.rules.sequencers[part], request, self.id))

    def _sequence_own(self, effects: list[Effect]) -> None:
        """Sequence this site's own requests, as far as its histories have room."""
        moved = True
        while moved:
            moved = False
            for part, sequencer in self.sequencing.items():
                asking = self.sender.asking.get(part)
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
        source, members = accept.envelope.source, self.groups.union(accept.envelope.groups)
        for site in members:
            self._to(site, accept, effects)
        if source not in members:
            self._to(source, Accepted(part, accept.count, _of_destination(accept)), effects)

    # The member.

    def _receive(self, accept: Accept, effects: list[Effect]) -> None:
        envelope = accept.envelope
        part = self.groups.part_of(envelope.groups[0])
        if envelope.source == self.me and self.sender.accepted(part, accept.count, _of_destination(accept)):
            self._request(effects)
        for ready in self.member.take(part, accept, self.now):
            self._deliver(ready, effects)
        if (part, accept.place) in self.member.waiting:
            for group, number in accept.context:
                self._fetch(group, number if group not in envelope.groups else number - 1, effects)

    def _deliver(self, accept: Accept, effects: list[Effect]) -> None:
        envelope = accept.envelope
        sequencer = self.sequencing.get(self.groups.part_of(envelope.groups[0]))
        if sequencer is not None:
            for group, number in _of_destination(accept):
                if group in self.member.delivered:
                    sequencer.report(group, self.me, number)
        if self.causal:  # rule 4
            self.sender.past.merge(accept.past)
            self.sender.past.merge(_of_destination(accept))
        effects.append(Deliver(envelope, stamps.at(self.epoch, accept.place)))

    def _fetch(self, group: GroupId, upto: int, effects: list[Effect]) -> None:
        """Ask once per tick for what a context says is there and we do not have."""
        first = self.member.lacks(group, upto)
        if first is not None:
            fetch = FetchMsgs(group, first, min(upto, first + FETCH_AT_MOST - 1))
            self._to(self.rules.sequencer_of(group), fetch, effects)

    # Time and links.

    def _tick(self, now: float, effects: list[Effect]) -> None:
        """Ask again for what was not accepted, report what is stable here, tell the latest numbers."""
        self.now = now
        self.member.fetched.clear()
        for part, request in self.sender.repeats(now, self.sequencing):
            effects.append(Send(self.rules.sequencers[part], request, self.id))
        reports: dict[SiteId, list[tuple[GroupId, int]]] = {}
        for group, number in self.member.reports():
            self.member.reported[group] = number
            reports.setdefault(self.rules.sequencer_of(group), []).append((group, number))
        for site, numbers in reports.items():
            effects.append(Send(site, Stable(tuple(numbers)), self.id))
        for sequencing in self.sequencing.values():
            effects += [Send(site, Latest(latest), self.id) for site, latest in sequencing.latest(self.me)]

    def _link_up(self, peer: SiteId, effects: list[Effect]) -> None:
        streams = self.linked[peer] = self._streams(peer)
        for stream, (sent, acked, received, *_) in streams.items():
            effects.append(Send(peer, Resume(stream, sent, acked, received), self.id))

    def _resumed(self, sender: SiteId, told: Resume, effects: list[Effect]) -> None:
        before = self.linked.get(sender, {}).get(told.stream, Counts())
        counts = self._streams(sender).get(told.stream, Counts())
        counts = counts._replace(acked=before.acked, received_before=before.received)
        if (reason := who_lost(self.me, sender, told, counts)) is not None:
            effects.append(Refuse(sender, reason, LOST))

    def _streams(self, peer: SiteId) -> dict[int, Counts]:
        return streams_between(peer, self.rules, self.sender, self.member, self.sequencing)

    # Looking.

    def held(self) -> list[Held]:
        """Everything that waits here."""
        early = [held for sequencing in self.sequencing.values() for held in sequencing.held(self.now)]
        return self.member.held() + self.sender.held() + early

    @property
    def idle(self) -> bool:
        """Whether nothing waits, nothing is unaccepted, all is reported and every history is empty."""
        waits = self.member.waiting or self.sender.under_way or self.member.reports()
        return not waits and all(sequencer.idle for sequencer in self.sequencing.values())

    @property
    def under_way(self) -> int:
        """What this site has sent and is not accepted, or what is held here, whichever is more."""
        return max(self.sender.under_way, len(self.member.waiting))

    def snapshot(self) -> SequencingState:
        """Return the whole state."""
        sequencing = {part: sequencer.snapshot() for part, sequencer in self.sequencing.items()}
        states = (sequencing, self.sender.snapshot(), self.member.snapshot())
        return SequencingState(self.now, *states, dict(sorted(self.linked.items())))

    def restore(self, state: SequencingState) -> None:
        """Take over a state."""
        self.now, self.linked = state.now, state.linked
        for part, sequencer in self.sequencing.items():
            sequencer.restore(state.sequencing[part])
        self.sender.restore(state.sender)
        self.member.restore(state.member)


def _of_destination(accept: Accept) -> Numbers:
    """Return the numbers of an ACCEPT in its own groups."""
    return tuple((group, number) for group, number in accept.context if group in accept.envelope.groups)
