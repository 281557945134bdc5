"""What sites say to each other about configurations: ballots, closing, installing, handing over, stability.

All of these repair or decide, and travel unnumbered: whoever waits for an answer asks again at the next tick.
"""

from collections.abc import Iterable

import msgspec

from ordercast.core.configuration import Destination
from ordercast.core.events import Control, Envelope
from ordercast.epochs.difference import Gone
from ordercast.epochs.requests import Asked, Refusals
from ordercast.epochs.setup import ClassSetup, Setup
from ordercast.names import ClassId, GroupId, SiteId

CONTROL = ClassId(0, 0)
"""The class of these messages: no class has number 0."""
Ballot = tuple[int, SiteId]
"""A round, and who opened it; larger ones win."""
NO_BALLOT: Ballot = (0, "")
Counts = tuple[tuple[Destination, int], ...]
"""For each destination how many messages to it."""


def _shown(ballot: Ballot) -> str:
    return f"{ballot[0]}{ballot[1]}"


def _names(classes: Iterable[ClassId]) -> str:
    return " ".join(map(str, classes))


def _counts(counts: Counts) -> str:
    return ", ".join(f"{'+'.join(groups)}:{count}" for groups, count in counts)


def _wishes(wish: "Wish") -> list[str]:
    asks = [str(change) for _, _, change in wish.asked]
    return asks + [f"open {c} anew" for c in wish.touch] + [f"{site} is suspected" for site in wish.suspected]


class Id(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A message: its source, the source's life, and the source's number for it."""

    source: SiteId
    incarnation: int
    number: int

    def __str__(self) -> str:
        return f"{self.source}:{self.number}"


NO_MESSAGE = Id("", 0, 0)
"""Stands beside a group whose end is known, where those of others are not."""


class Line(msgspec.Struct, frozen=True, array_like=True):
    """One delivered message in a report, or in a cut: its place and its destination."""

    order: int
    """The part of its class: stamps are comparable inside it."""
    stamp: bytes
    id: Id
    groups: Destination
    index: int
    """It is so manieth to its destination in this class."""
    holders: tuple[SiteId, ...] = ()
    """In a cut: who has its body."""


Place = tuple[ClassId, int, bytes]
"""Class, order, stamp: sorted, all that comes earlier comes first."""


class ClassReport(msgspec.Struct, frozen=True, array_like=True):
    """What a site has delivered in a class: what is stable only as counts, the rest line by line."""

    stable: Counts
    lines: tuple[Line, ...]
    last: tuple[tuple[Id, Destination], ...]
    """Of each source and destination the last message."""


class Cut(msgspec.Struct, frozen=True, array_like=True):
    """The whole history of a closed class, but for what is stable: the sorted union of the reports (errata 19)."""

    stable: Counts
    lines: tuple[Line, ...]
    last: tuple[tuple[Id, Destination], ...]


class Joining(msgspec.Struct, frozen=True, array_like=True):
    """A site comes into a group: who can give it the group's state."""

    site: SiteId
    group: GroupId
    providers: tuple[SiteId, ...]
    replay: bool = False
    """It was a member, and can be given what it missed, message by message."""


class Decision(msgspec.Struct, frozen=True, array_like=True, dict=True):
    """What the council decides: the next configuration, and how it is reached from the one before."""

    setup: Setup
    ballot: Ballot
    cuts: dict[ClassId, Cut]
    """Of the classes that were closed by report, and of earlier ones that were not installed everywhere."""
    joining: tuple[Joining, ...] = ()
    installers: tuple[SiteId, ...] = ()
    """Who has something to install; when all have, everything in the cuts is stable."""
    refused: Refusals = ()
    closed: dict[ClassId, ClassSetup] = {}
    """The classes that are closed, for those who have not known them. Those without a cut close along their tree."""

    @property
    def number(self) -> int:
        """The number of the configuration."""
        return self.setup.number

    @property
    def along_trees(self) -> list[ClassId]:
        """The classes that close along their tree (GS88 §5.1)."""
        return sorted(self.closed.keys() - self.cuts.keys())

    def __str__(self) -> str:
        return f"{self.number}: closes {_names(self.closed) or 'nothing'}"


# Ballots (errata 20, 21): the council of configuration n - 1 decides on number n.


class Prepare(Control, frozen=True, gc=False, tag=70):
    """I want to lead the decision on this number."""

    number: int
    ballot: Ballot

    def __str__(self) -> str:
        return f"Prepare {self.number} in ballot {_shown(self.ballot)}"


class Promise(Control, frozen=True, gc=False, tag=71):
    """I will take nothing from lower ballots; this is what I have accepted so far."""

    number: int
    ballot: Ballot
    accepted: Decision | None

    def __str__(self) -> str:
        return f"Promise {self.number} in ballot {_shown(self.ballot)}{', has accepted one' if self.accepted else ''}"


class Accept(Control, frozen=True, gc=False, tag=72):
    """Accept this decision."""

    decision: Decision

    def __str__(self) -> str:
        return f"Accept {self.decision}"


class Accepted(Control, frozen=True, gc=False, tag=73):
    """I have accepted it, durably."""

    number: int
    ballot: Ballot

    def __str__(self) -> str:
        return f"Accepted {self.number} in ballot {_shown(self.ballot)}"


class Outvoted(Control, frozen=True, gc=False, tag=74):
    """I have promised a higher ballot."""

    number: int
    ballot: Ballot

    def __str__(self) -> str:
        return f"Outvoted {self.number} by ballot {_shown(self.ballot)}"


class Decided(Control, frozen=True, gc=False, tag=75):
    """This was decided."""

    decision: Decision
    gone: Gone | None = None
    """If not None: the decision has only what the configuration before it has not, and this is gone."""

    def __str__(self) -> str:
        return f"Decided {self.decision}"


class At(Control, frozen=True, gc=False, tag=76):
    """This is the configuration that I am in."""

    number: int

    def __str__(self) -> str:
        return f"At {self.number}"


# Requests, suspicions, and what stands still.


class Ready(Control, frozen=True, gc=False, tag=97):
    """My disk is empty, and I was started with a first configuration of this hash (`epochs.founding`)."""

    first: str
    life: int
    """My incarnation."""

    def __str__(self) -> str:
        return "Ready"


class Began(Control, frozen=True, gc=False, tag=98):
    """The cluster has begun with this configuration; None when that is too long ago to be told."""

    setup: Setup | None

    def __str__(self) -> str:
        return f"Began {'long ago' if self.setup is None else ' '.join(self.setup.founders)}"


class Wish(Control, frozen=True, gc=False, tag=77):
    """To the manager: requests that are not answered, classes that stand still, sites that I suspect."""

    number: int
    asked: tuple[Asked, ...]
    touch: tuple[ClassId, ...]
    suspected: tuple[SiteId, ...]
    life: int = 0
    """When I came with an empty disk and was not taken in yet: my incarnation."""
    accepted: bool = False
    """I have accepted a decision on the next number, and do not know what was decided."""
    joining: tuple[GroupId, ...] = ()
    """Groups whose state I wait for."""

    def __str__(self) -> str:
        return f"Wish {', '.join(_wishes(self)) or 'nothing'}"


class Answer(Control, frozen=True, gc=False, tag=78):
    """From the manager: this request of yours cannot be done for a reason, or changes nothing."""

    request: int
    reason: str


# Closing by report (GS88 §5.2.1).


class Close(Control, frozen=True, gc=False, tag=79):
    """Stop these classes for good, and report what you have delivered in them and in those before them."""

    number: int
    ballot: Ballot
    classes: tuple[ClassId, ...]
    before: tuple[ClassId, ...] = ()

    def __str__(self) -> str:
        return f"Close {_names(self.classes) or 'nothing'} for {self.number} in ballot {_shown(self.ballot)}"


class Report(Control, frozen=True, gc=False, tag=80):
    """What I have delivered."""

    number: int
    ballot: Ballot
    classes: dict[ClassId, ClassReport]
    finished: tuple[ClassId, ...] = ()
    """Classes of which I know that everybody has everything."""
    joining: tuple[GroupId, ...] = ()
    """Groups whose state I still wait for."""
    stopped: tuple[ClassId, ...] = ()
    """Classes of this configuration that I have stopped, for this ballot or an earlier one."""

    def __str__(self) -> str:
        told = ", ".join(f"{len(report.lines)} of {class_id}" for class_id, report in self.classes.items())
        return f"Report for {self.number}: {told or 'nothing'}"


class Released(Control, frozen=True, gc=False, tag=96):
    """From the manager: I have given up this ballot, and nobody has accepted anything: go on with what you closed."""

    number: int
    ballot: Ballot

    def __str__(self) -> str:
        return f"Released {self.number} from ballot {_shown(self.ballot)}"


# Installing.


class Fetch(Control, frozen=True, gc=False, tag=81):
    """Send me these messages, which you have delivered."""

    class_id: ClassId
    ids: tuple[Id, ...]

    def __str__(self) -> str:
        return f"Fetch {', '.join(map(str, self.ids))}"


class Body(Control, frozen=True, gc=False, tag=82):
    """A message that you asked for."""

    class_id: ClassId
    id: Id
    envelope: Envelope

    def __str__(self) -> str:
        return f"Body {self.envelope}"


class Installed(Control, frozen=True, gc=False, tag=83):
    """To the manager: I have installed everything of this configuration, and opened its classes."""

    number: int

    def __str__(self) -> str:
        return f"Installed {self.number}"


class AskInstalled(Control, frozen=True, gc=False, tag=93):
    """From the manager: have you installed everything of this configuration?"""

    number: int

    def __str__(self) -> str:
        return f"AskInstalled {self.number}"


class AskDone(Control, frozen=True, gc=False, tag=94):
    """To the manager: has everybody installed everything of this configuration? I have not."""

    number: int

    def __str__(self) -> str:
        return f"AskDone {self.number}"


class Done(Control, frozen=True, gc=False, tag=84):
    """From the manager: everybody has installed everything of this configuration."""

    number: int
    at: int
    """The configuration that the manager is in. Who is not there yet learns first what was decided: perhaps that what
    it has not finished was closed again."""

    def __str__(self) -> str:
        return f"Done {self.number}"


class AskState(Control, frozen=True, gc=False, tag=85):
    """A joiner asks for a group's state as it is when this configuration opens; `after`: what it has of it."""

    number: int
    group: GroupId
    after: int

    def __str__(self) -> str:
        return f"AskState {self.group} of {self.number}"


class State(Control, frozen=True, gc=False, tag=86):
    """A group's state when a configuration opens: its count, and the application's state or what is missing of it."""

    number: int
    group: GroupId
    count: int
    snapshot: bytes | None
    """None when `missed` is all that is missing."""
    missed: tuple[tuple[Place, Envelope], ...] = ()
    at: int = 0
    """The configuration that the giver is in."""

    def __str__(self) -> str:
        return f"State {self.group} of {self.number} after {self.count}"


# Stability (errata 58).


class Have(Control, frozen=True, gc=False, tag=89):
    """To the first member of destinations: so many messages of this class I have delivered, durably."""

    counts: Counts

    def __str__(self) -> str:
        return f"Have {_counts(self.counts)}"


class AskHave(Control, frozen=True, gc=False, tag=95):
    """From the first member: how many messages to these destinations have you delivered?"""

    groups: tuple[Destination, ...]


class Stable(Control, frozen=True, gc=False, tag=90):
    """From the first member: so many messages every member has delivered; and so many, `copies` members have."""

    counts: Counts
    copied: Counts = ()

    def __str__(self) -> str:
        return f"Stable {_counts(self.counts)}" + (f" copied {_counts(self.copied)}" if self.copied else "")


class AskSafe(Control, frozen=True, gc=False, tag=91):
    """A source that is no member asks what became of its messages from this number on."""

    groups: Destination
    number: int

    def __str__(self) -> str:
        return f"AskSafe {'+'.join(self.groups)}"


class Whereabouts(Control, frozen=True, gc=False, tag=92):
    """The answer: up to this number they are safe, and these have their place."""

    groups: Destination
    safe: int
    placed: tuple[tuple[int, bytes], ...]
    last: int | None = None
    """The class is closed: this is the last one in it (GS88 §5.1, the word of the old primary destination).

    Below 0, from a site to itself: nobody knows any more.
    """

    def __str__(self) -> str:
        last = f" last={self.last}" if self.last is not None else ""
        return f"Whereabouts {'+'.join(self.groups)} safe={self.safe}{last}"
