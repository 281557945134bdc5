"""What a message of a site must not overtake, and which of it is everywhere by now.

- fifo: a source that has sent to several groups at once names what it sent to other entries of the part before. Naming
  only what shares a group is not enough: m0 to A+C and m2 to B+D from above, m1 to A+B here, and all wait.
- `causal`: a message names everything its source had sent and delivered, in all parts. It is causal order wherever no
  site is in two parts, and refused elsewhere (`protocols.registry`). What is safe at every destination need not be
  named any more: a source says with its messages, or when it falls silent, up to which number that is so.
"""

from collections.abc import Callable

import msgspec

from ordercast.core.configuration import Destination
from ordercast.names import SiteId
from ordercast.protocols.propagation.messages import Past, Propagate

Last = dict[Destination, int]
"""For a destination the number of the last message."""


class Pasts(msgspec.Struct, array_like=True):
    """One per machine. `several` is durable. The rest shrinks when acknowledgements come, and those are not logged.

    A replay therefore names more than the machine that crashed would, and that changes nothing: what it names besides
    was seen everywhere. Nothing else may depend on what was forgotten.
    """

    own: dict[int, Last] = {}
    """For each part: the last message of this site to a destination."""
    several: list[int] = []
    """The parts in which this site has sent to several groups at once."""
    known: dict[SiteId, Last] = {}
    """With `causal`: what came before the next message, by source."""
    safe_of: dict[SiteId, int] = {}
    """With `causal`: messages of a source up to this number are at all their destinations."""

    def before(
        self,
        me: SiteId,
        part: int,
        groups: Destination,
        number: int,
        *,
        causal: bool,
        elsewhere: Callable[[Destination], bool],
    ) -> Past:
        """Return what this site's next message must not overtake, and remember the message itself.

        `elsewhere` says whether another destination enters at another site: over one entry the stream keeps the order.
        """
        past: Past = ()
        own = self.own.setdefault(part, {})
        if causal:
            known = (
                (source, *last) for source, by_destination in self.known.items() for last in by_destination.items()
            )
            past = tuple(sorted(known))
            self.known.setdefault(me, {})[groups] = number
        elif len(groups) > 1 or part in self.several:
            past = tuple(sorted((me, *last) for last in own.items() if elsewhere(last[0])))
        own[groups] = number
        if len(groups) > 1 and part not in self.several:
            self.several.append(part)
        return past

    def remember(self, message: Propagate) -> None:
        """With `causal`: add a delivered message and its past to what the next one of this site comes after."""
        envelope = message.envelope
        for source, groups, number in (*message.past, (envelope.source, envelope.groups, envelope.number)):
            if number > self.safe_of.get(source, 0):
                known = self.known.setdefault(source, {})
                known[groups] = max(known.get(groups, 0), number)

    def forget(self, source: SiteId, number: int, *, own: bool) -> bool:
        """A source's messages up to this number are everywhere: nothing needs to wait for them any more.

        Returns whether that is news.
        """
        if number <= self.safe_of.get(source, 0):
            return False
        self.safe_of[source] = number
        kept = self.known.get(source)
        if kept is not None:
            self.known[source] = {groups: last for groups, last in kept.items() if last > number}
        if own:
            for sent in self.own.values():
                for groups in [groups for groups, last in sent.items() if last <= number]:
                    del sent[groups]
        return True

    def sorted(self) -> "Pasts":
        """Return the same in a fixed order."""
        own = {part: dict(sorted(last.items())) for part, last in sorted(self.own.items())}
        known = {source: dict(sorted(last.items())) for source, last in sorted(self.known.items())}
        return Pasts(own, sorted(self.several), known, dict(sorted(self.safe_of.items())))
