"""What a site's machine in the sequencing service consists of, its links, and how it is looked at."""

import msgspec

from ordercast.core import stamps
from ordercast.core.configuration import OrderClass
from ordercast.core.effects import Effect, Held, Refuse, Send
from ordercast.core.resume import LOST, Counts, Resume, who_lost
from ordercast.core.source import Source
from ordercast.names import SiteId
from ordercast.protocols.sequencing.counts import streams_between
from ordercast.protocols.sequencing.member import Member, MemberState
from ordercast.protocols.sequencing.rules import Rules
from ordercast.protocols.sequencing.sender import Sender, SenderState
from ordercast.protocols.sequencing.sequencer import Sequencer, SequencerState


class SequencingState(msgspec.Struct, array_like=True, tag="sequencing"):
    """The whole state of a machine."""

    now: float
    sequencing: dict[int, SequencerState]
    sender: SenderState
    member: MemberState
    linked: dict[SiteId, dict[int, Counts]]
    finishing: bool = False
    finished: bool = False

    def durable(self) -> object:
        """Return what a replay rebuilds. Volatile is what was reported, fetched, repeated, told, and when."""
        sequencing = {part: msgspec.structs.replace(state, told={}) for part, state in self.sequencing.items()}
        return sequencing, self.sender.durable(), self.member.durable(), self.finishing, self.finished


class Parts:
    """What a site is: sequencer of some parts, member of some groups, sender to any; and how it can be looked at."""

    def __init__(
        self, order_class: OrderClass, source: Source, sequencers: tuple[SiteId, ...],
        *, causal: bool = False, patience: float = 0.0, direct_bytes: int = 0,
    ) -> None:  # fmt: skip
        self.me, self.groups, self.source, self.id, self.causal = source.me, order_class, source, order_class.id, causal
        self.rules = Rules(self.me, order_class, sequencers)
        self.epoch = stamps.first_of(order_class.id)
        self.now = 0.0
        parts = [part for part, site in enumerate(sequencers) if site == self.me]
        self.sequencing = {part: Sequencer(order_class, part, causal=causal) for part in parts}
        self.sender = Sender(order_class.part_of, parts, causal=causal, patience=patience, direct_bytes=direct_bytes)
        own = [group for group, members in order_class.members.items() if self.me in members]
        self.member = Member(own, [group for group in own if self.rules.sequencer_of(group) != self.me])
        self.own_parts = sorted({order_class.part_of(group) for group in own})
        self.finishing = self.finished = False  # the class closes; all of it is here
        self.linked: dict[SiteId, dict[int, Counts]] = {}  # what was known of each stream when the link came up

    # Links.

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
        waits = waits or (self.finishing and not self.finished)
        return not waits and all(sequencer.idle for sequencer in self.sequencing.values())

    @property
    def under_way(self) -> int:
        """What this site has sent and is not accepted, or what is held here, whichever is more."""
        return max(self.sender.under_way, len(self.member.waiting))

    def snapshot(self) -> SequencingState:
        """Return the whole state."""
        sequencing = {part: sequencer.snapshot() for part, sequencer in self.sequencing.items()}
        states = (sequencing, self.sender.snapshot(), self.member.snapshot())
        return SequencingState(self.now, *states, dict(sorted(self.linked.items())), self.finishing, self.finished)

    def restore(self, state: SequencingState) -> None:
        """Take over a state."""
        self.now, self.linked = state.now, state.linked
        self.finishing, self.finished = state.finishing, state.finished
        for part, sequencer in self.sequencing.items():
            sequencer.restore(state.sequencing[part])
        self.sender.restore(state.sender)
        self.member.restore(state.member)
