"""What a participant keeps, and how what was delivered is handed to the application."""

from collections import deque
from typing import TYPE_CHECKING, Any, cast

from ordercast.core.configuration import Destination
from ordercast.core.effects import Deliver, Effect, Placed, Send
from ordercast.core.events import Control, Received
from ordercast.core.machine import Machine
from ordercast.core.source import Source
from ordercast.epochs import messages as m
from ordercast.epochs.behind import Behind
from ordercast.epochs.council import Council
from ordercast.epochs.founding import Founding
from ordercast.epochs.manager import Manager
from ordercast.epochs.opening import Opening
from ordercast.epochs.recovery import Installing
from ordercast.epochs.repeats import Repeats
from ordercast.epochs.requests import Change
from ordercast.epochs.sending import Sending
from ordercast.epochs.setup import ClassSetup, Setup
from ordercast.epochs.stability import Stability
from ordercast.epochs.track import Entry, Recent, Track
from ordercast.names import ClassId, GroupId, SiteId

if TYPE_CHECKING:
    from ordercast.epochs.participant import Participant


class Handing:
    """The state of a participant, and the last step of every message: into the application's hands."""

    def __init__(self, me: SiteId, setup: Setup, incarnation: int = 1) -> None:
        """`setup` has number 0 at a site that has no history: it learns everything from the others."""
        self.me, self.setup, self.now = me, setup, 0.0
        self.since = 0  # taken in with an empty disk by this configuration; earlier classes knew another life of it
        self.admitted = setup.number > 0  # an empty disk may have forgotten promises: it neither votes nor leads
        self.source = Source(me, incarnation)
        self.out: list[Effect] = []
        self.detected: set[SiteId] = set()  # whom the failure detector suspects
        self.fresh: dict[SiteId, int] = {}  # sites that came with an empty disk and are not taken in, as far as known
        first = {setup.number: m.Decision(setup, m.NO_BALLOT, {})} if setup.number else {}
        self.decisions: dict[int, m.Decision] = first
        self.machines: dict[ClassId, Machine] = {}
        self.awake: set[ClassId] = set()  # classes whose machines get the next tick: something happened to them
        self.closed: set[ClassId] = set()  # classes of this configuration that stand still here
        self.reported: set[ClassId] = set()  # closed before, and reported on in a ballot that is not decided
        self.retired: dict[ClassId, list[Entry]] = {}  # of those which were finished since: others may ask for it
        self.earlier: dict[ClassId, ClassSetup] = {}  # closed classes that are not installed everywhere
        self.draining: set[ClassId] = set()  # of these: closing along their tree, and running until all have everything
        self.halted: set[ClassId] = set()  # of these: stopped before that, by a ballot that closes them by report
        self.ends: dict[ClassId, list[tuple[m.Id, Destination]]] = {}  # the last messages of those that have closed so
        self.askers: dict[ClassId, list[tuple[SiteId, Destination]]] = {}  # sources that ask for them
        self.tracks: dict[ClassId, Track] = {}
        self.handed: list[Entry] = []  # what the application has and might have to undo, with all after it
        self.counts: dict[GroupId, int] = {}  # messages of each group of this site since the group was created
        self.history: dict[GroupId, Recent] = {}
        self.council, self.sending, self.installing = Council(), Sending(), Installing()
        self.undone: set[int] = set()  # configurations that somebody may not have installed
        self.asked_for: dict[int, Change] = {}
        self.requests = 0
        self.early: deque[tuple[SiteId, Any, ClassId]] = deque()
        site = cast("Participant", self)
        self.manager, self.stability, self.opening = Manager(site), Stability(site), Opening(site)
        self.founding, self.behind, self.repeats = Founding(site), Behind(site), Repeats()
        self._durable, self._feeding, self._send_later = False, 0, False
        self._here: deque[Received] = deque()  # messages to oneself
        for group in setup.groups:
            if me in setup.members(group):
                self.counts[group] = 0

    @property
    def suspected(self) -> frozenset[SiteId]:
        """Whom this site does not count on."""
        return frozenset(self.detected.union(self.behind.state.strayed))

    @property
    def leader(self) -> SiteId | None:
        """The first of the council that is not suspected, and is known not to have lost its promises.

        Those who have lost their disks come last: they do not know what was closed before and is not done (errata 113).
        """
        out, lives = self.suspected | self.fresh.keys() | (set() if self.admitted else {self.me}), self.setup.lives
        there = [name for name in self.setup.council if name not in out]
        return min(there, key=lambda name: (lives.get(name, (0, 0))[1], name), default=None)

    def remembers(self, number: int) -> bool:
        """Whether this site would know that a configuration is not done: it has its disk since then."""
        return self.admitted and number >= self.since

    def durable(self) -> None:
        """The event that is being taken changes what must survive a crash."""
        self._durable = True

    def say(self, to: SiteId, message: Control, class_id: ClassId = m.CONTROL) -> None:
        """Send to a site, or to oneself: then it is an event of its own."""
        if to == self.me:
            self._here.append(Received(to, message, class_id))
        else:
            self.out.append(Send(to, message, class_id))

    def class_setup(self, class_id: ClassId) -> ClassSetup:
        """Return a class, open or closed."""
        return self.setup.classes[class_id] if class_id in self.setup.classes else self.closed_class(class_id)

    def closed_class(self, class_id: ClassId) -> ClassSetup:
        """Return a class that closes, or was closed and may not be installed everywhere."""
        return self.setup.classes.get(class_id) or self.earlier[class_id]

    def remember(self, entry: Entry, of_class: ClassSetup) -> None:
        """Count a message in the groups of this site that it goes to, and keep it for who comes back."""
        for group in entry.envelope.groups:
            if self.me in of_class.members.get(group, ()) and group in self.counts:
                self.counts[group] += 1
                self.history.setdefault(group, Recent()).append(self.counts[group], entry)

    def placed(self, number: int, stamp: bytes) -> None:
        """A message of this site has its place."""
        own = self.sending.own.get(number)
        if own is not None and not own.placed:
            own.placed = True
            self.out.append(Placed(number, stamp))

    def hand_over(self, class_id: ClassId) -> None:
        """Give the application what it may have of a class, in order."""
        track = self.tracks.get(class_id)
        if track is not None:
            for entry in track.ready(self.class_setup(class_id).delivery):
                self.hand(entry)
            track.prune()

    def hand(self, entry: Entry) -> None:
        """Give the application one message, behind the views of the configuration that its class was opened in."""
        self.opening.tell_views_up_to(entry.class_id.epoch)  # errata 120
        self.durable()
        entry.handed = True
        self.handed.append(entry)
        self.out.append(Deliver(entry.envelope, entry.stamp))
        if len(self.handed) > 64:
            self._forget_handed()

    def _forget_handed(self) -> None:
        """Forget what can never be undone, from the front."""
        final = 0
        for entry in self.handed:
            track = self.tracks.get(entry.class_id)
            if track is not None and not track.is_stable(entry):
                break
            final += 1
        del self.handed[:final]
