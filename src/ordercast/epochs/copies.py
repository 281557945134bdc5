"""Delivery `copied`: an application gets a message when k members have it, durably (KIN §4.1; MGT §5, standbys).

KIN lets a sequencer wait for k copies before it says ACCEPT, and MGT gives primary sites standbys; then a crash of
fewer than k loses nothing. Here no machine waits: members deliver as ever, and each hands over what k of them are known
to have. A cut has everything that any member who is there has, so what was handed over is in it, in its place, unless k
members fail at once. With `safe` everybody waits for the slowest member; here nobody does.
"""

from typing import TYPE_CHECKING

from ordercast.core.configuration import Destination
from ordercast.epochs import messages as m
from ordercast.epochs.track import Track
from ordercast.names import ClassId, Delivery, SiteId

if TYPE_CHECKING:
    from ordercast.epochs.participant import Participant


class Copies:
    """One site's part; it keeps nothing of its own."""

    def __init__(self, site: "Participant") -> None:
        self.site = site

    def count(self, class_id: ClassId, groups: Destination, asked_by: SiteId | None = None) -> None:
        """As the first member of a destination: tell how many messages k members have, when it is news or asked for."""
        site, of_class = self.site, self.site.class_setup(class_id)
        members = of_class.destinations(groups)
        if of_class.delivery is not Delivery.COPIED or members[0] != site.me:
            return
        track = site.tracks[class_id]
        others = tuple(other for other in members if other != site.me)
        count, known = track.copied_to(groups, others, of_class.copies), track.copied.get(groups, 0)
        to = members if count > known else (asked_by,) if known > track.stable.get(groups, 0) else ()
        for other in to:
            if other is not None:
                site.say(other, m.Stable((), ((groups, max(count, known)),)), class_id)

    def told(self, class_id: ClassId, track: Track, counts: m.Counts) -> None:
        """K members have so many: hand them over, and later ones as soon as they are delivered here.

        It is durable even if nothing is handed over now: what is handed over when must be the same after a restart.
        """
        for groups, count in counts:
            if count > track.copied.get(groups, 0):
                self.site.durable()
                track.copied[groups] = count
        self.site.hand_over(class_id)

    def missing(self, class_id: ClassId) -> str:
        """Say why a message of a class is not handed over."""
        of_class = self.site.class_setup(class_id)
        few = f"fewer than {of_class.copies} members are known to have it"
        return few if of_class.delivery is Delivery.COPIED else "not every member is known to have it"
