"""A site as a source while groups change: it keeps every message until it is safe, and sends it again when it must.

Go-back-N (errata 10): when a class is closed, whatever of a source is not in its history is sent again in the next
class, in the order of its numbers, under the same numbers; nothing else is. So no message is in two epochs.

Where a class closes along its tree, a source learns which of its messages was the last one in it from a member that has
seen the end of the class; until then it sends nothing more to that destination (errata 10, 11, 15).

A message waits for an earlier one of this source that shares a group with it but has another destination until that one
is safe (errata 81). Otherwise the later one could be delivered at a member of its second group while the earlier one
is lost with the site that ordered it: what is sent again would come too late at those who are in both. With `causal` it
waits for every earlier message to another destination.
"""

import msgspec

from ordercast.core.configuration import Destination
from ordercast.core.events import Multicast
from ordercast.names import ClassId, GroupId


class Own(msgspec.Struct, array_like=True):
    """A message of this site that is not known to be safe."""

    groups: Destination
    body: bytes
    receipt: bool
    class_id: ClassId | None = None
    """The class it was sent in, and whose history it may be in."""
    placed: bool = False
    disks: int = -1
    """Of a message that its client has posted before: how many disks were lost then."""


class Sending(msgspec.Struct, array_like=True):
    """All of them. `unsent` has exactly those without a class, sorted; `open_to` counts the others."""

    own: dict[int, Own] = {}
    unsent: list[int] = []
    open_to: dict[GroupId, dict[Destination, int]] = {}
    """For each group: destinations with messages that were sent and are not safe, and how many."""
    unknown: dict[ClassId, list[Destination]] = {}
    """Destinations with messages that were sent in a class that closes, and it is not known which was the last."""

    def add(self, number: int, multicast: Multicast) -> None:
        """Take a message."""
        self.own[number] = Own(multicast.groups, multicast.body, multicast.receipt, disks=multicast.disks)
        self.unsent.append(number)

    def waits_for(self, number: int, *, causal: bool) -> str | None:
        """Return why a message is not sent now because of earlier ones, if so."""
        groups = self.own[number].groups
        for group, destinations in self.open_to.items():
            if causal or group in groups:
                for destination in destinations:
                    if destination != groups:
                        return f"an earlier message to {'+'.join(destination)} is not safe yet"
        for earlier in self.unsent:
            if earlier >= number:
                break
            if causal or not set(self.own[earlier].groups).isdisjoint(groups):
                return "an earlier message waits"
        return None

    def sent(self, number: int, class_id: ClassId) -> None:
        """A message was given to the machine of a class."""
        own = self.own[number]
        own.class_id = class_id
        self.unsent.remove(number)
        for group in own.groups:
            destinations = self.open_to.setdefault(group, {})
            destinations[own.groups] = destinations.get(own.groups, 0) + 1

    def _close(self, own: Own) -> None:
        for group in own.groups:
            destinations = self.open_to[group]
            destinations[own.groups] -= 1
            if not destinations[own.groups]:
                del destinations[own.groups]
            if not destinations:
                del self.open_to[group]

    def send_again(self, number: int) -> None:
        """A message is not in the history of the class it was sent in: it is sent again in another."""
        own = self.own[number]
        self._close(own)
        own.class_id, own.placed = None, False
        self.unsent.append(number)
        self.unsent.sort()

    def closes(self, class_id: ClassId) -> None:
        """A class closes along its tree: what of this site's is in it is not known."""
        found = sorted({self.own[number].groups for number in self.in_class(class_id)})
        if found:
            self.unknown[class_id] = found

    def closed(self, class_id: ClassId, groups: Destination, last: int) -> None:
        """The last message to a destination in a class is known: later ones are sent again in another."""
        self.unknown[class_id].remove(groups)
        if not self.unknown[class_id]:
            del self.unknown[class_id]
        for number in self.in_class(class_id):
            if self.own[number].groups == groups and number > last:
                self.send_again(number)

    def settle(self, number: int) -> bool:
        """A message is safe, or will never be sent; returns whether that is news."""
        own = self.own.pop(number, None)
        if own is None:
            return False
        if own.class_id is None:
            self.unsent.remove(number)
        else:
            self._close(own)
        return True

    def in_class(self, class_id: ClassId) -> list[int]:
        """Return the messages that were sent in a class, in order."""
        return [number for number, own in sorted(self.own.items()) if own.class_id == class_id]
