"""What is fed to a node, and what it asks its host to do.

The host (`live.site` on asyncio, `sim.nodes` in virtual time) feeds inputs and carries the outputs out in the order in
which they are returned. Beside these, `Send` of `core.effects` is an output: hand the message to the link, if there is
one.
"""

from typing import TYPE_CHECKING, Any

import msgspec

from ordercast.client.values import AckLevel, Lot, Receipt, Said
from ordercast.core.effects import Send
from ordercast.core.events import Message
from ordercast.epochs import requests as epochs
from ordercast.epochs.requests import Change
from ordercast.epochs.setup import Setup
from ordercast.errors import LocalError, OrdercastError
from ordercast.history.store import Checkpoint, Position
from ordercast.names import ClassId, GroupId, SiteId
from ordercast.wire.batch import Origin
from ordercast.wire.peers import Hello

if TYPE_CHECKING:
    from ordercast.node.readers import Reader


class FromPeer(msgspec.Struct, frozen=True, gc=False):
    """Messages of machines that arrived over one link, in order."""

    peer: SiteId
    messages: list[tuple[ClassId, Message]]


class Greeted(msgspec.Struct, frozen=True, gc=False):
    """A peer has greeted, and `Peers.why_not` had no objection."""

    hello: Hello


class LinkMade(msgspec.Struct, frozen=True, gc=False):
    """Both sides have greeted in the same epoch: messages may pass."""

    peer: SiteId


class LinkLost(msgspec.Struct, frozen=True, gc=False):
    """The link to a peer is gone."""

    peer: SiteId
    silent: bool = False
    """It was given up because nothing was heard of the peer for as long as it takes to suspect it."""


class RefusedBy(msgspec.Struct, frozen=True, gc=False):
    """A peer will not talk to this site."""

    peer: SiteId
    reason: str
    code: str = ""


class Post(msgspec.Struct, frozen=True, gc=False):
    """The application sends messages, as a batch of their own; `token` comes back in a `Resolve`."""

    groups: tuple[GroupId, ...]
    bodies: list[bytes]
    ack: AckLevel = "none"
    token: Any = None
    origin: Origin | None = None
    """Who posts, and its number for this: posted again, here or elsewhere, it is delivered once."""
    disks: int = -1
    """Of what was posted before: how many disks were lost then, as far as the client knows."""


class Withdraw(msgspec.Struct, frozen=True, gc=False):
    """Who posted with this token is gone: what waits for room is not sent any more."""

    token: Any


class Flush(msgspec.Struct, frozen=True, gc=False):
    """Send what is open; `token` comes back in a `Resolve` when everything so far is on disk."""

    token: Any


class Committed(msgspec.Struct, frozen=True, gc=False):
    """The last `Write` is on disk."""

    seconds: float = 0.0


class Kept(msgspec.Struct, frozen=True, gc=False):
    """The last `Keep` is on disk."""


class DiskFailed(msgspec.Struct, frozen=True, gc=False):
    """What was to be written could not be."""

    error: OrdercastError


class Took(msgspec.Struct, frozen=True, gc=False):
    """A reader has taken something: there may be room for what waits outside."""

    reader: "Reader"


class Past(msgspec.Struct, frozen=True, gc=False):
    """What a `ReadPast` asked for: positions and their records, in order."""

    reader: "Reader"
    entries: list[tuple[Position, bytes]]
    error: LocalError | None = None
    """Why there is nothing: it was dropped while somebody began to read."""


class Leave(msgspec.Struct, frozen=True, gc=False):
    """A reader reads no more."""

    reader: "Reader"


class Ask(msgspec.Struct, frozen=True, gc=False):
    """Somebody asks for a change of the configuration; `token` comes back in a `Resolve`."""

    change: Change
    token: Any = None


class Beat(msgspec.Struct, frozen=True, gc=False):
    """A beat of this site's failure detector."""


class Suspect(msgspec.Struct, frozen=True, gc=False):
    """The failure detector suspects a site; it may be wrong."""

    site: SiteId


class Trust(msgspec.Struct, frozen=True, gc=False):
    """The failure detector trusts a site again."""

    site: SiteId


class Planned(msgspec.Struct, frozen=True, gc=False):
    """What a `Plan` asked for."""

    planned: epochs.Planned


class Snapshotted(msgspec.Struct, frozen=True, gc=False):
    """What a `TakeSnapshot` asked for."""

    number: int
    states: tuple[tuple[GroupId, bytes], ...]


class Wake(msgspec.Struct, frozen=True, gc=False):
    """It is the time that the last `WakeAt` named, or later."""


class Drain(msgspec.Struct, frozen=True, gc=False):
    """Send what is open, take nothing new: the site will stop."""


Input = (
    FromPeer | Greeted | LinkMade | LinkLost | RefusedBy | Post | Withdraw | Flush | Committed | Kept
    | DiskFailed | Took | Past | Leave | Wake | Drain | Ask | Beat | Suspect | Trust | Planned | Snapshotted
)  # fmt: skip


class Write(msgspec.Struct, frozen=True, gc=False):
    """Write this in one commit, then say `Committed` or `DiskFailed`; nothing else is asked to be written before."""

    records: list[bytes]
    positions: list[Position]


class Keep(msgspec.Struct, frozen=True, gc=False):
    """Write a checkpoint, then say `Kept` or `DiskFailed`."""

    checkpoint: Checkpoint
    from_delivered: int
    """Readers may resume from here."""
    needed: frozenset[int] = frozenset()
    """Records whose envelopes are held back: they are delivered after the checkpoint."""


class Resolve(msgspec.Struct, frozen=True, gc=False):
    """Tell who posted: a receipt for each message, or why there is none."""

    token: Any
    receipts: list[Receipt] = []
    error: OrdercastError | None = None


class Delivered(msgspec.Struct, frozen=True, gc=False):
    """This was delivered: for whoever exports it. Readers have it already."""

    lot: Lot
    many: int
    class_id: ClassId
    order: GroupId
    """The order it is in, called after its first group."""
    before: bytes | None
    """The stamp of the message before it in that order."""
    life: int = 0
    """The incarnation of its source."""


class Began(msgspec.Struct, frozen=True, gc=False):
    """A life of this site takes part: for whoever exports it."""

    members: dict[GroupId, tuple[SiteId, ...]]
    """Who was in which group when the cluster began, if this life took part in that: each founder tells of all."""


class Noted(msgspec.Struct, frozen=True, gc=False):
    """The site says this in the stream that applications read: for whoever exports it."""

    position: int
    said: Said
    epoch: int
    """The configuration that a view or a state belongs to; 0 for a rollback."""


class Sent(msgspec.Struct, frozen=True, gc=False):
    """This batch of this site is on disk, and was made after so many deliveries here: for whoever exports it."""

    first: int
    groups: tuple[GroupId, ...]
    body: bytes
    after: int


class More(msgspec.Struct, frozen=True, gc=False):
    """There is something new for a reader, or it was ended."""

    reader: "Reader"


class ReadPast(msgspec.Struct, frozen=True, gc=False):
    """Read so many entries of the history from a position on, and say `Past`."""

    reader: "Reader"
    begin: int
    at_most: int


class Dial(msgspec.Struct, frozen=True, gc=False):
    """This site needs a link to that one: keep calling it."""

    peer: SiteId


class Hangup(msgspec.Struct, frozen=True, gc=False):
    """End the link to a peer; with a reason, tell it."""

    peer: SiteId
    reason: str = ""
    code: str = "refused"


class Anew(msgspec.Struct, frozen=True, gc=False):
    """The cluster begins anew in this epoch (not durable): end all links, and greet again."""

    epoch: int


class Plan(msgspec.Struct, frozen=True, gc=False):
    """Make the classes of the next configuration (`epochs.change.plan_change`), and say `Planned`; it may take long."""

    setup: Setup
    wanted: epochs.Wanted


class TakeSnapshot(msgspec.Struct, frozen=True, gc=False):
    """Ask the application for the state of groups when it has read all before this position; say `Snapshotted`."""

    number: int
    groups: tuple[GroupId, ...]
    position: int


class Dropped(msgspec.Struct, frozen=True, gc=False):
    """These messages, which this site had taken, will not be sent: their groups are no more. Who waits is told."""

    groups: tuple[GroupId, ...]
    bodies: list[bytes]
    reason: str
    first: int = 0
    """The number of the first of them; 0 when they were not counted as sent yet."""


class WakeAt(msgspec.Struct, frozen=True, gc=False):
    """Say `Wake` at this time."""

    time: float


class Note(msgspec.Struct, frozen=True, gc=False):
    """Log one line: a stable name and facts."""

    event: str
    facts: dict[str, Any]


class Stopped(msgspec.Struct, frozen=True, gc=False):
    """The node does nothing more: it was drained, or it has failed."""

    error: OrdercastError | None = None


Output = (
    Send | Write | Keep | Resolve | Delivered | Sent | More | ReadPast | Dial | Hangup | Anew | WakeAt | Note | Stopped
    | Plan | TakeSnapshot | Dropped | Began | Noted
)  # fmt: skip
