"""Who has lost history: two sites compare their counts when a link between them comes up.

Each tells, for every stream between them, how many messages it has sent, how many of them were acknowledged, and how
many it has received. All three only grow, and everything is durable before it is sent or acknowledged. So for a stream
from s to r these hold at all times: received by r <= sent by s, and acknowledged to s <= received by r. When one of
them fails, the site with the smaller count has lost part of its history; both sites find out, and both can name it.

A site whose old history was restored may have given new messages old numbers before it meets anybody, as many as its
peer has. But a message that got its number while there was no link was never sent: a peer that has it has another one
(errata 99).

What a site hears was true when the link came up, so it is compared with what this site knew when the link came up.
"""

from typing import NamedTuple

from ordercast.core.configuration import NUMBER_AT_MOST
from ordercast.core.events import Control
from ordercast.errors import PeerError
from ordercast.names import SiteId

LOST = "lost-history"
"""The code of a refusal because of what stands in this file."""


class Resume(Control, frozen=True, gc=False, tag=13):
    """What I have sent you on a stream, what of it you have acknowledged, and what I have received from you on it."""

    stream: int
    sent: int
    acked: int
    received: int

    def __str__(self) -> str:
        return f"Resume sent={self.sent} acked={self.acked} received={self.received}"


class Counts(NamedTuple):
    """What one site knows of a stream to a peer and back."""

    sent: int = 0
    acked: int = 0
    """By the peer, when the link came up."""
    received: int = 0
    received_before: int = 0
    """When the link came up."""
    unsaid: int = 0
    """How many of those sent got their number while there was no link: the peer cannot have them."""


def check_resume(sender: SiteId, told: Resume) -> None:
    """Raise PeerError for counts that cannot be."""
    if not 0 <= told.acked <= told.sent <= NUMBER_AT_MOST or not 0 <= told.received <= NUMBER_AT_MOST:
        raise PeerError(f"{sender} sent counts that cannot be: {told}")


def who_lost(me: SiteId, peer: SiteId, told: Resume, here: Counts) -> str | None:
    """Return who of both has lost what, or None when the counts agree."""
    if told.received > here.sent - here.unsaid:
        return _lost(me, f"sent {told.received} messages to {peer}", here.sent - here.unsaid)
    if told.acked > here.received:
        return _lost(me, f"received {told.acked} messages from {peer}", here.received)
    if told.received < here.acked:
        return _lost(peer, f"received {here.acked} messages from {me}", told.received)
    if told.sent < here.received_before:
        return _lost(peer, f"sent {here.received_before} messages to {me}", told.sent)
    return None


def _lost(site: SiteId, what: str, known: int) -> str:
    return f"{site} has lost part of its history: it {what}, its history knows {known}"


def began_anew(me: SiteId, peer: SiteId, incarnation: int) -> str:
    """Return why a peer is refused that has begun a new life after messages were exchanged with an earlier one."""
    return f"{peer} has lost its history: {me} has exchanged messages with it before it began anew as {incarnation}"
