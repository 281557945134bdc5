"""Readers of a node come, read, are fed from the history, and go."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from ordercast.client.values import Place, Policy
from ordercast.errors import LocalError
from ordercast.history.store import History
from ordercast.names import GroupId
from ordercast.node import inputs as io
from ordercast.node import recovery
from ordercast.node.readers import Reader

if TYPE_CHECKING:
    from ordercast.node.node import Node


def read_past(history: History, asked: io.ReadPast) -> io.Past:
    """Read a slice of the history; it may have been dropped since somebody began to read there."""
    try:
        return io.Past(asked.reader, history.past(asked.begin, asked.at_most))
    except LocalError as error:
        return io.Past(asked.reader, [], error)


class Reading:
    """One per node; what waits for whom, `Readers` knows."""

    def __init__(self, node: "Node") -> None:
        self.node = node
        self.may_undo: Callable[[GroupId], bool] = lambda _: False
        """Whether a delivery to a group may be rolled back."""
        self.enters: Callable[[GroupId], bool] = lambda _: False
        """Whether the site comes into a group, and its log does not say so yet."""

    def open(self, name: str, groups: list[GroupId] | None, after: int | Place | None, policy: Policy) -> Reader:
        """Open a reader; raises LocalError when it cannot read what it asks for."""
        node = self.node
        if node.phase.value in ("failed", "stopped"):
            raise LocalError(f"the site is {node.phase.value}")
        if groups == [] or not node.groups.issuperset(groups or ()):
            unknown = next((group for group in groups or () if group not in node.groups), "")
            raise LocalError(f"{node.me} is not in group {unknown!r}; it is in {', '.join(sorted(node.groups))}")
        wanted = frozenset(groups) if groups is not None else None
        if isinstance(after, Place):
            self._check(after, wanted)
        first = node.history.first_position if node.settings.durable else node.deliveries.count
        return node.readers.open(name, wanted, policy, after, first, node.deliveries.count)

    def _check(self, place: Place, wanted: frozenset[GroupId] | None) -> None:
        """Refuse a message that says nothing here of what was read elsewhere before it."""
        node = self.node
        if not node.settings.durable:
            raise LocalError(f"{node.me} is not durable: it does not know where earlier messages were")
        if not node.groups.intersection(place.groups if wanted is None else wanted.intersection(place.groups)):
            raise LocalError(f"{'+'.join(place.groups)} is not read here: a message to it says not where to go on")
        for group in sorted(node.groups if wanted is None else wanted):
            if self.may_undo(group):
                raise LocalError(f"what is delivered to {group} may be undone: it is read at one site, by position")
            if self.enters(group):  # it may have the message through another group (errata 122, 134)
                raise LocalError(f"{node.me} is still coming into {group}: another member has what came before")

    def took(self, given: io.Took) -> None:
        """A reader has taken something: let in what waited for it."""
        self.node.readers.took(given.reader)
        if self.node.intake.parked:
            self.node.intake.let_in()

    def past(self, given: io.Past) -> None:
        """A slice of the history is there."""
        if given.error is not None:
            self.node.readers.end(given.reader, given.error)
            return
        lots = [recovery.lot_of(position, record, self.node.me) for position, record in given.entries]
        self.node.readers.catch_up(given.reader, lots, self.node.deliveries.count)

    def leave(self, given: io.Leave) -> None:
        """A reader is gone."""
        self.node.readers.leave(given.reader)
        self.node.intake.let_in()
