"""What a source knows of its own messages: which have their place, which are safe, and whom it has told so."""

from collections import OrderedDict
from collections.abc import Iterable

from ordercast.core.effects import Effect, Placed, Safe, Send
from ordercast.errors import PeerError
from ordercast.names import ClassId, SiteId
from ordercast.protocols.propagation.messages import Place, Settled

TELL_SETTLED = 3  # times


class Own:
    """One per machine. All of it but `sent` is volatile: it follows acknowledgements, which are not logged."""

    def __init__(self, class_id: ClassId) -> None:
        self.id = class_id
        self.not_safe: OrderedDict[int, None] = OrderedDict()  # by number, the first in constant time
        self.placing: dict[int, SiteId] = {}  # messages whose place is asked for, and who will say it
        self.sent = 0  # the number of the last message of this site in this class
        self.told_safe, self.times_told = 0, TELL_SETTLED

    @property
    def safe_upto(self) -> int:
        """Up to this number all are safe; where acknowledgements climb."""
        return next(iter(self.not_safe), self.sent + 1) - 1

    @property
    def all_told(self) -> bool:
        """Whether everybody was told that all is safe, as often as it is said."""
        return self.told_safe == self.sent and self.times_told == TELL_SETTLED

    def placed(self, sender: SiteId, message: Place) -> list[Effect]:
        """An entry says where a message stands; raises PeerError when another one has to say it."""
        expected = self.placing.get(message.number)
        if expected is None:  # doubled, or nobody asked
            return []
        if expected != sender:
            raise PeerError(f"{sender} speaks of the place of {message.number}, which {expected} orders")
        del self.placing[message.number]
        return [Placed(message.number, message.stamp)]

    def safe(self, numbers: Iterable[int]) -> list[Effect]:
        """Every member of their groups has acknowledged these."""
        effects: list[Effect] = []
        for number in numbers:
            self.not_safe.pop(number, None)
            self.placing.pop(number, None)  # what told the place was lost
            effects.append(Safe(number))
        return effects

    def tell_settled(self, sites: Iterable[SiteId]) -> list[Effect]:
        """Once this site has fallen silent and all it sent is safe, those who may still name it are told.

        It is said at some ticks, because nobody acknowledges it; whoever misses all of them names more than needed.
        """
        if self.told_safe < self.sent == self.safe_upto:
            self.times_told, self.told_safe = 0, self.sent
        if self.told_safe != self.sent or self.times_told == TELL_SETTLED:
            return []
        self.times_told += 1
        return [Send(site, Settled(self.sent), self.id) for site in sites]
