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

Large bodies (`direct`) go from the sender to the members at once, in Kaashoek and Tanenbaum's way (KIN §4.1): ACCEPT
gives them only a place. The sequencer gets the body too: whoever lacks it lacks the number, and fetches it there as
ever.

With `causal` a request carries what its sender has sent and consumed, C_p, and members also wait for those entries
that are of their own groups (errata 40), by "at least", not "equal" (CT2; errata 32). A sequencer leaves out what
every member has of its groups. `causal` with a part for each group is KIN's hybrid: causal everywhere, total in each.

When its class is closed (`Finish`), a sequencer takes nothing more and tells its last numbers (END); a member that has
reached them has everything. What was asked for later is asked for again in the next class, by its sender (`epochs`).
"""

from ordercast.core import stamps
from ordercast.core.contexts import Numbers
from ordercast.core.effects import Append, Deliver, Effect, Finished, Refuse, Send
from ordercast.core.events import Event, Finish, Forgot, LinkDown, LinkUp, Message, Multicast, PeerReset, Received, Tick
from ordercast.core.resume import LOST, Resume, began_anew
from ordercast.names import GroupId, SiteId
from ordercast.protocols.sequencing.messages import (
    Accept,
    Accepted,
    AskEnd,
    Direct,
    DoMulticast,
    End,
    FetchMsgs,
    Latest,
    Stable,
)
from ordercast.protocols.sequencing.parts import Parts
from ordercast.protocols.sequencing.sequencer import Sequencer

FETCH_AT_MOST = 256  # messages per request; the rest is fetched when these are there


class Sequencing(Parts):
    """One site's part: sequencer of some parts, member of some groups, sender to any."""

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
        if self.finishing and not self.finished and all(map(self.member.ended, self.own_parts)):
            self.finished = True
            effects.append(Finished())
        return effects

    def _passes(self, event: Event, effects: list[Effect]) -> None:
        """Take what concerns time and links."""
        match event:
            case Tick(now):
                self._tick(now, effects)
            case Finish():
                effects.append(Append(event))
                self._finish(effects)
            case LinkUp(peer):
                self._link_up(peer, effects)
            case LinkDown():  # requests are repeated, and what is missing is fetched, at ticks
                pass
            case PeerReset(peer, incarnation):
                if any(counts.sent or counts.received for counts in self._streams(peer).values()):
                    effects.append(Refuse(peer, began_anew(self.me, peer, incarnation), LOST))
            case Forgot(peer):
                effects.append(Append(event))
                self.member.forget(peer)
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
            case Direct(envelope):
                return self.member.lacks_body(self.groups.part_of(envelope.groups[0]), envelope)
            case Accept(envelope, _, count):
                part = self.groups.part_of(envelope.groups[0])
                own = envelope.source == self.me and self.sender.waits_for(part, count)
                return own or not (self.member.waits(part, message) or self.member.has(message))
            case End(part):
                return part not in self.member.ends
        return False

    def _take(self, sender: SiteId, message: Message, effects: list[Effect]) -> None:
        match message:
            case DoMulticast():
                self._sequence(sender, message, effects)
            case Accept():
                self._receive(message, effects)
            case Direct(envelope):
                part = self.groups.part_of(envelope.groups[0])
                for ready in self.member.take_body(part, envelope, self.now):
                    self._deliver(ready, effects)
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
            case End(part, numbers):
                self.member.ends.setdefault(part, numbers)
                for group, number in numbers:
                    self._fetch(group, number, effects)
            case AskEnd(part):
                if self.sequencing[part].closed:
                    self._to(sender, self._end(part), effects)
            case Resume():
                self._resumed(sender, message, effects)

    # The sender.

    def _request(self, effects: list[Effect]) -> None:
        for part, request in self.sender.requests(self.now):
            if part in self.sequencing:
                continue  # its own requests a sequencer takes when it has room
            sequencer = self.rules.sequencers[part]
            effects.append(Send(sequencer, request, self.id))
            for site in self.groups.union(request.envelope.groups) if request.direct else ():
                if site not in (self.me, sequencer):
                    effects.append(Send(site, Direct(request.envelope), self.id))

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
        told = accept.without_body() if accept.direct else accept
        for site in members:
            self._to(site, accept if site == self.me else told, effects)
        if source not in members:
            self._to(source, Accepted(part, accept.count, _of_destination(accept)), effects)

    def _finish(self, effects: list[Effect]) -> None:
        """The class closes: what is sequenced here ends now, and every member is told where."""
        self.finishing = True
        for part, sequencer in self.sequencing.items():
            if not sequencer.closed:
                sequencer.close()
                for site in self.groups.union(self.groups.parts[part]):
                    self._to(site, self._end(part), effects)

    def _end(self, part: int) -> End:
        return End(part, tuple(self.sequencing[part].numbers.items()))

    # The member.

    def _receive(self, accept: Accept, effects: list[Effect]) -> None:
        envelope = accept.envelope
        part = self.groups.part_of(envelope.groups[0])
        if accept.bare and envelope.source == self.me:
            accept = accept.with_body(self.sender.body(part, accept.count))
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
        for part, request in self.sender.repeats(now):
            effects.append(Send(self.rules.sequencers[part], request, self.id))
        reports: dict[SiteId, list[tuple[GroupId, int]]] = {}
        for group, number in self.member.reports():
            self.member.reported[group] = number
            reports.setdefault(self.rules.sequencer_of(group), []).append((group, number))
        for site, numbers in reports.items():
            effects.append(Send(site, Stable(tuple(numbers)), self.id))
        for part in self.own_parts if self.finishing else ():
            if part not in self.member.ends:
                effects.append(Send(self.rules.sequencers[part], AskEnd(part), self.id))
        for sequencing in self.sequencing.values():
            effects += [Send(site, Latest(latest), self.id) for site, latest in sequencing.latest(self.me)]


def _of_destination(accept: Accept) -> Numbers:
    """Return the numbers of an ACCEPT in its own groups."""
    return tuple((group, number) for group, number in accept.context if group in accept.envelope.groups)
