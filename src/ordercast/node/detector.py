"""The failure detector of a site: who has not been heard of for some beats is suspected, who is linked is trusted.

It counts beats of this site, not seconds: while this site itself stands still (a busy machine, SIGSTOP) nothing is
counted, so a site that wakes up does not suspect all others. It may be wrong all the same; a wrong suspicion costs a
change of the configuration and nothing else.
"""

from collections.abc import Collection, Iterator

from ordercast.epochs.events import Suspected, Trusted
from ordercast.names import SiteId


class Detector:
    """One per node whose groups change."""

    def __init__(self, beats: int) -> None:
        self.beats = beats  # without a word, until a site is suspected
        self.missed: dict[SiteId, int] = {}

    def silent(self, peer: SiteId) -> None:
        """A link was given up because nothing was heard on it: that was long enough."""
        self.missed[peer] = self.beats

    def beat(
        self, needed: Collection[SiteId], up: Collection[SiteId], suspected: Collection[SiteId]
    ) -> Iterator[Suspected | Trusted]:
        """Count a beat; yields what it changes. `up`: who is linked now."""
        for peer in sorted(needed):
            if peer in up:
                self.missed.pop(peer, None)
                if peer in suspected:
                    yield Trusted(peer)
                continue
            self.missed[peer] = self.missed.get(peer, 0) + 1
            if self.missed[peer] >= self.beats and peer not in suspected:
                yield Suspected(peer)
