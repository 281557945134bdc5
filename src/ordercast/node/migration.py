"""Migration to the busiest sender (KIN §7): a sequencer that works for one other site asks to be moved there."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ordercast.epochs.events import Requested
from ordercast.epochs.participant import Participant
from ordercast.epochs.requests import Move
from ordercast.names import ClassId, Policy, SiteId
from ordercast.protocols.sequencing.machine import Sequencing

if TYPE_CHECKING:
    from ordercast.node.changing import ChangingNode

WINDOWS = 3  # times what it takes to suspect a site: so long a sender must be the busiest


class Migration:
    """One per node. It looks now and then at who has sent what is sequenced here; a crash only begins a window anew."""

    def __init__(self, beats: int, at_least: int) -> None:
        """`at_least`: requests in a window; below that nothing moves."""
        self.beats, self.at_least = WINDOWS * beats, at_least
        self._beat = 0
        self._before: dict[tuple[ClassId, int], dict[SiteId, int]] = {}

    def beat(self, node: "ChangingNode") -> None:
        """Count a beat; at the end of a window ask for what is to be moved."""
        self._beat = (self._beat + 1) % self.beats
        for move in list(self._moves(node.participant)) if not self._beat else ():
            node.note("sequencer.moves", group=move.group, to=move.sequencers[0])
            node.hear(Requested(move))

    def _moves(self, here: Participant) -> Iterator[Move]:
        before, self._before = self._before, {}
        asked = {change.group for change in here.asked_for.values() if isinstance(change, Move)}
        for class_id, of_class in here.setup.classes.items():
            machine = here.machines.get(class_id)
            if not isinstance(machine, Sequencing) or not here.runs(class_id):
                continue
            for part, sequencer in machine.sequencing.items():
                group, taken = of_class.parts[part][0], sequencer.taken_by()
                self._before[class_id, part] = taken
                if (class_id, part) not in before:
                    continue  # opened, or stepped through again, in the middle of a window
                since = before[class_id, part]
                news = {site: count - since.get(site, 0) for site, count in taken.items()}
                busiest = max(sorted(news), key=news.__getitem__, default=here.me)
                enough = sum(news.values()) >= self.at_least and 2 * news.get(busiest, 0) > sum(news.values())
                there = busiest in here.setup.sites and busiest not in here.suspected
                # A class that waits for whoever fails is not given to a site outside: it may be switched off.
                there = there and (of_class.policy is Policy.AVAILABLE or busiest in of_class.sites)
                wanted = all(here.setup.groups[name].migrate for name in of_class.parts[part])
                if enough and there and wanted and busiest != here.me and group not in asked:
                    yield Move(group, (busiest,))
