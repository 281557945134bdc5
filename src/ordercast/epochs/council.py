"""A member of the council: promises and votes, one decision per number (errata 20, 21).

The council of configuration n - 1 decides on configuration n by a single-decree ballot. A member promises to take
nothing from lower ballots, and accepts what the highest one proposes; both are durable before they are answered. So
what a majority has accepted in one ballot is what every later ballot proposes: one value for a number, whoever asks.
"""

import msgspec

from ordercast.core.events import Control
from ordercast.epochs.messages import NO_BALLOT, Accept, Accepted, Ballot, Decision, Outvoted, Prepare, Promise


class Council(msgspec.Struct, array_like=True):
    """What one member has promised and accepted for the next number. `accepted`'s ballot never exceeds `promised`."""

    promised: Ballot = NO_BALLOT
    accepted: Decision | None = None

    def prepare(self, asked: Prepare) -> tuple[Control, bool]:
        """Answer who wants to lead; returns whether that must be durable first."""
        if asked.ballot < self.promised:
            return Outvoted(asked.number, self.promised), False
        news = asked.ballot > self.promised
        self.promised = asked.ballot
        return Promise(asked.number, asked.ballot, self.accepted), news

    def accept(self, asked: Accept) -> tuple[Control, bool]:
        """Vote; returns whether that must be durable first."""
        decision = asked.decision
        if decision.ballot < self.promised:
            return Outvoted(decision.number, self.promised), False
        news = self.accepted is None or self.accepted.ballot != decision.ballot
        self.promised, self.accepted = decision.ballot, decision
        return Accepted(decision.number, decision.ballot), news

    def hears(self, ballot: Ballot) -> bool | None:
        """A manager acts in this ballot: None when a higher one was heard; else whether that is news.

        Every site keeps to this, also outside the council: whoever is closed by a ballot obeys no lower one.
        """
        if ballot < self.promised:
            return None
        news = ballot > self.promised
        self.promised = ballot
        return news

    def decided(self) -> None:
        """The number is decided; the next one begins with nothing."""
        self.promised, self.accepted = NO_BALLOT, None
