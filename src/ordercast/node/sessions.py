"""Which posts of clients were delivered: what a client posts again, because its site was gone, is delivered once.

A client has a session and counts its posts to each destination. All members of a destination deliver the same messages
to it in the same order, so all of them drop the same ones. A session that has posted nothing while a thousand others
have is forgotten: what it posts again so much later is delivered again.
"""

import msgspec

from ordercast.errors import PeerError, bounded
from ordercast.names import GroupId, SiteId
from ordercast.wire.batch import Origin

SESSIONS_AT_MOST = 1024  # of a destination
GAPS_AT_MOST = 64  # numbers that a client has used and were not delivered; beyond, the oldest count as delivered

Ranges = list[tuple[int, int]]
Table = dict[str, dict[bytes, Ranges]]
"""For each destination, and for each session in the order in which they were heard of last: the numbers delivered."""


Kept = list[tuple[str, list[tuple[bytes, Ranges]]]]
"""The same for a checkpoint, in which the order counts."""


class Sessions:
    """One per node whose groups change."""

    def __init__(self) -> None:
        self.known: Table = {}

    def is_new(self, groups: tuple[GroupId, ...], origin: Origin) -> bool:
        """Take note of a post that comes in the order; returns whether it came for the first time."""
        session, number = origin
        of_destination = self.known.setdefault("+".join(groups), {})
        ranges = of_destination.pop(session, [])
        of_destination[session] = ranges
        if any(first <= number <= last for first, last in ranges):
            return False
        of_destination[session] = _with(ranges, number)
        if len(of_destination) > SESSIONS_AT_MOST:
            del of_destination[next(iter(of_destination))]
        return True

    def undo(self, groups: tuple[GroupId, ...], origin: Origin) -> None:
        """A delivery did not happen."""
        session, number = origin
        of_destination = self.known.get("+".join(groups), {})
        if session in of_destination:
            numbers: Ranges = []
            for first, last in of_destination[session]:
                if first <= number <= last:
                    numbers += [pair for pair in ((first, number - 1), (number + 1, last)) if pair[0] <= pair[1]]
                else:
                    numbers.append((first, last))
            of_destination[session] = numbers

    def snapshot(self) -> Kept:
        """Return everything, in its order."""
        return [(to, list(sessions.items())) for to, sessions in self.known.items()]

    def restore(self, kept: Kept) -> None:
        """Take over what was kept."""
        self.known = {to: dict(sessions) for to, sessions in kept}

    def forget(self, group: GroupId) -> None:
        """A group begins, or is no more: what was posted to another one of its name is nothing to it."""
        self.known = {to: sessions for to, sessions in self.known.items() if group not in to.split("+")}

    def viewed(self, group: GroupId, joined: tuple[SiteId, ...], members: tuple[SiteId, ...]) -> None:
        """A group has other members now: it may begin with them, or be no more.

        When it is no more, what was posted to it and to other groups is still known: who was away is given what it
        missed of the others afterwards, and must not take it for new.
        """
        if joined and set(joined) == set(members):
            self.forget(group)
        elif not members:
            self.known.pop(group, None)

    def of_group(self, group: GroupId) -> Table:
        """Return what who joins a group must know."""
        return {to: sessions for to, sessions in self.known.items() if group in to.split("+")}

    def take_over(self, group: GroupId, table: Table) -> None:
        """Take over what another member knows of a group's destinations."""
        self.forget(group)
        self.known |= table


def _with(ranges: Ranges, number: int) -> Ranges:
    """Return ranges with one more number; sorted, and joined where they touch."""
    joined: Ranges = []
    for first, last in sorted([*ranges, (number, number)]):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(last, joined[-1][1]))
        else:
            joined.append((first, last))
    while len(joined) > GAPS_AT_MOST:
        joined[:2] = [(joined[0][0], joined[1][1])]
    return joined


class Given(msgspec.Struct, array_like=True, frozen=True):
    """The state of a group as members give it to each other: the application's, and the posts that are in it."""

    state: bytes
    sessions: Table


_given = msgspec.msgpack.Decoder(Given)


def wrap(state: bytes, sessions: Table) -> bytes:
    """Return a state to give."""
    return msgspec.msgpack.encode(Given(state, sessions))


def unwrap(data: bytes) -> Given:
    """Return a state that was given, an empty one has nothing in it; raises PeerError for what is none."""
    try:
        return _given.decode(data) if data else Given(b"", {})
    except msgspec.MsgspecError as error:
        raise PeerError(f"a state that is none: {bounded(str(error))}") from None
