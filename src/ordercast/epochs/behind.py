"""Who is in another configuration than this site: who is ahead is asked, who is behind is told what was decided since.

Decisions of long ago are kept packed: only who was away needs them. Who was away for longer than they are kept cannot
follow; nobody counts on it, and it says so until an operator replaces it (errata 57, 110).
"""

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import msgspec

from ordercast.core.effects import Held
from ordercast.epochs import messages as m
from ordercast.epochs.difference import difference
from ordercast.epochs.setup import Setup
from ordercast.names import ClassId, SiteId

if TYPE_CHECKING:
    from ordercast.epochs.participant import Participant

AT_ONCE = 8  # decisions that are told in one answer
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(m.Decision).decode


def news_of(before: Setup, decision: m.Decision) -> m.Decided:
    """Return a decision as it is told to those who are in the configuration before it: without what they have."""
    news, gone = difference(before, decision.setup)
    return m.Decided(msgspec.structs.replace(decision, setup=news), gone)


class Packed(msgspec.Struct, frozen=True, array_like=True):
    """A decision, compressed, but for what this site looks at now and then."""

    closed: tuple[ClassId, ...]
    """The classes that it closed."""
    joining: tuple[m.Joining, ...]
    installers: tuple[SiteId, ...]
    data: bytes

    @property
    def decision(self) -> m.Decision:
        """The decision as it was."""
        return _decode(zlib.decompress(self.data))


class BehindState(msgspec.Struct, array_like=True):
    """What a site knows of others that are ahead or behind."""

    archive: dict[int, Packed] = {}
    """Decisions of long ago."""
    strayed: list[SiteId] = []
    """Who is so far behind that nobody keeps the decisions that it needs. Volatile."""
    ahead: tuple[int, SiteId] = (0, "")
    """The last configuration that this site has heard of, and from whom. Volatile."""


class Behind:
    """One site's knowledge of who is where."""

    at_hand = 64
    """So many of the last decisions are kept as they are; those before them are packed."""
    kept = 1024
    """So many decisions are kept, packed or not."""

    def __init__(self, site: "Participant") -> None:
        self.site = site
        self.state = BehindState()
        self._asked = False  # since the last tick
        self._news: tuple[int, m.Decided] | None = None  # what was told last: many are told the same
        self._told: set[SiteId] = set()  # since the last tick: who was told which configuration this is

    # Decisions.

    def keep(self, decision: m.Decision) -> set[ClassId]:
        """Keep a decision, pack old ones, and forget what is older; return the classes that the kept ones closed."""
        site, state, number = self.site, self.state, decision.number
        site.decisions[number] = decision
        for old in [n for n in site.decisions if n <= number - self.at_hand and n not in site.undone]:
            done = site.decisions.pop(old)
            small = zlib.compress(_encode(done))
            state.archive[old] = Packed(tuple(sorted(done.closed)), done.joining, done.installers, small)
        state.archive = {old: packed for old, packed in state.archive.items() if old > number - self.kept}
        closed = {class_id for known in site.decisions.values() for class_id in known.closed}
        return closed | {class_id for packed in state.archive.values() for class_id in packed.closed}

    def decision(self, number: int) -> m.Decision | None:
        """Return a decision that is kept."""
        packed = self.state.archive.get(number)
        return self.site.decisions.get(number) if packed is None else packed.decision

    def told(self, number: int, *, known: bool = True) -> m.Decided:
        """Return a decision that is kept as it is told to others; `known`: they are in the one before it."""
        if known and self._news is not None and self._news[0] == number:
            return self._news[1]
        decision, before = self.decision(number), self.site.decisions.get(number - 1)
        assert decision is not None
        if not known or before is None:
            return m.Decided(decision)
        self._news = (number, news_of(before.setup, decision))
        return self._news[1]

    def decided_on(self, class_id: ClassId) -> list[m.Decision]:
        """Return the decisions that closed a class, as far as they are kept."""
        packed = [one.decision for one in self.state.archive.values() if class_id in one.closed]
        return [*packed, *(known for known in self.site.decisions.values() if class_id in known.closed)]

    def joins(self) -> Iterator[tuple[int, m.Joining]]:
        """Yield who came into which group in which configuration, in order."""
        for number in sorted({*self.state.archive, *self.site.decisions}):
            for joining in self[number].joining:
                yield number, joining

    def __getitem__(self, number: int) -> m.Decision | Packed:
        """Return who joins and who installs in a configuration that is kept."""
        packed = self.state.archive.get(number)
        return self.site.decisions[number] if packed is None else packed

    def __contains__(self, number: int) -> bool:
        return number in self.state.archive or number in self.site.decisions

    # Talk.

    def at(self, sender: SiteId, theirs: int) -> None:
        """A site tells which configuration it is in: who is ahead tells the other what was decided since."""
        site, mine = self.site, self.site.setup.number
        self._stray(sender, astray=0 < theirs < mine - self.kept)
        if theirs == mine:
            site.manager.knows(sender)
        elif theirs > mine:
            self.hears_of(sender, theirs)
        elif sender != site.me:
            first = theirs + 1 if theirs and theirs + 1 in self else mine
            for number in range(first, min(first + AT_ONCE, mine + 1)):
                if number in self:
                    site.say(sender, self.told(number, known=theirs == number - 1))
                    theirs = number

    def _stray(self, sender: SiteId, *, astray: bool) -> None:
        """Count on nobody who cannot follow: it is as if it had failed."""
        strayed = self.state.strayed
        if astray != (sender in strayed) and sender != self.site.me:
            self.state.strayed = sorted({*strayed} ^ {sender})
            self.site.manager.look()

    def hears_of(self, sender: SiteId, number: int) -> None:
        """Somebody is in a later configuration: ask for the decisions between, unless nobody keeps them any more."""
        self.state.ahead = max(self.state.ahead, (number, sender))
        if number <= self.site.setup.number + self.kept:
            self.ask(sender)

    def tell(self, sender: SiteId) -> None:
        """Tell somebody which configuration this is; once between two ticks."""
        if sender not in self._told and sender != self.site.me:
            self._told.add(sender)
            self.site.say(sender, m.At(self.site.setup.number))

    def ask(self, sender: SiteId) -> None:
        """Ask somebody for the decisions since; one site between two ticks is enough, they are large."""
        if not self._asked:
            self._asked = True
            self.tell(sender)

    def tick(self) -> None:
        """Time passes: ask again."""
        self._told.clear()
        self._asked = False
        number, who = self.state.ahead
        if number > self.site.setup.number:
            self.hears_of(who, number)

    def again(self) -> None:
        """Go on after a restart."""
        self.state.strayed, self.state.ahead = [], (0, "")

    # Looking.

    @property
    def idle(self) -> bool:
        """Whether nobody is asked."""
        mine = self.site.setup.number
        return not mine < self.state.ahead[0] <= mine + self.kept

    def held(self) -> list[Held]:
        """What waits here."""
        (number, who), mine = self.state.ahead, self.site.setup.number
        if number <= mine:
            return []
        says = f"{who} is in {number}, and is asked for what was decided since"
        if not self.idle:
            return [Held(f"configuration {mine + 1}", says, self.site.now)]
        says = f"others are in {number} and keep {self.kept} decisions; replace site {self.site.me}"
        return [Held(f"configuration {mine + 1}", says, self.site.now)]
