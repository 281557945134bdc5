"""Who may say what to whom in the sequencing service; checked before anything changes (errata 62)."""

from ordercast.core.configuration import NUMBER_AT_MOST, OrderClass
from ordercast.core.contexts import Numbers
from ordercast.core.events import Message
from ordercast.core.resume import Resume, check_resume
from ordercast.errors import PeerError
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


class Rules:
    """The groups of the class, and which site sequences which part."""

    def __init__(self, me: SiteId, groups: OrderClass, sequencers: tuple[SiteId, ...]) -> None:
        self.me, self.groups, self.sequencers = me, groups, sequencers

    def sequencer_of(self, group: GroupId) -> SiteId:
        """Return the site that sequences a group."""
        return self.sequencers[self.groups.part_of(group)]

    def check(self, sender: SiteId, message: Message) -> None:
        """Raise PeerError for what no honest peer sends."""
        if not self._right(sender, message):
            raise PeerError(f"{sender} sent {self.me} what is not for sequencing, or not its to send: {message}")

    def _right(self, sender: SiteId, message: Message) -> bool:
        match message:
            case DoMulticast(envelope, count, past):
                part = self.groups.check(sender, envelope)
                right = envelope.source == sender and self.sequencers[part] == self.me and 0 < count <= NUMBER_AT_MOST
                return right and self._are_numbers(past)
            case Direct(envelope):
                part = self.groups.check(sender, envelope)
                right = envelope.source == sender and self.sequencers[part] not in (sender, self.me)
                return right and bool(envelope.body) and self.me in self.groups.union(envelope.groups)
            case Accept(envelope, place, _, context, past):
                part = self.groups.check(sender, envelope)
                right = self.sequencers[part] == sender and 0 < place <= NUMBER_AT_MOST
                right = right and self.me in self.groups.union(envelope.groups)
                right = right and self._are_numbers(context) and self._are_numbers(past)
                return right and {group for group, _ in context}.issuperset(envelope.groups)
            case Accepted(part, _, numbers):
                right = 0 <= part < len(self.sequencers) and self.sequencers[part] == sender
                return right and self._are_numbers(numbers)
            case End(part, numbers):
                right = 0 <= part < len(self.sequencers) and self.sequencers[part] == sender
                own = (
                    {group for group in self.groups.parts[part] if self.me in self.groups.members[group]}
                    if right
                    else {}
                )
                return bool(own) and self._are_numbers(numbers) and {group for group, _ in numbers}.issuperset(own)
            case AskEnd(part):
                right = 0 <= part < len(self.sequencers) and self.sequencers[part] == self.me
                return right and any(sender in self.groups.members[group] for group in self.groups.parts[part])
            case Latest(numbers):
                return self._are_numbers(numbers) and all(self.sequencer_of(group) == sender for group, _ in numbers)
            case Stable(numbers):
                return self._are_numbers(numbers) and all(self._serves(sender, group) for group, _ in numbers)
            case FetchMsgs(group, first, _):
                return self._are_numbers(((group, first),)) and self._serves(sender, group)
            case Resume():
                check_resume(sender, message)
                return True
        return False

    def _are_numbers(self, numbers: Numbers) -> bool:
        members = self.groups.members
        for group, number in numbers:  # noqa: SIM110 - a loop is faster, and this is done for every message
            if group not in members or not 0 <= number <= NUMBER_AT_MOST:
                return False
        return True

    def _serves(self, member: SiteId, group: GroupId) -> bool:
        """Whether this site sequences a group for a member."""
        return self.sequencer_of(group) == self.me and member in self.groups.members[group]
