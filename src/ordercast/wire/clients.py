"""What clients and sites say to each other. Loads nothing of a server: `wire.tags` has the numbers.

A client logs in, then posts messages, joins to read, asks. The site answers each post, join, leave and question by its
id. Lots are sent while the client has credit: what it was sent and has not said it has taken is at most
`Welcome.window_bytes`. Posts that are not answered are bounded too: a client that keeps to `Welcome` always finds its
socket read; one that does not waits at its socket.
"""

from typing import Annotated, Literal

import msgspec

from ordercast.wire.batch import MESSAGES_AT_MOST
from ordercast.wire.structs import encode, reader
from ordercast.wire.tags import Code, Tag

__all__ = ["KINDS", "VERSION", "encode", "from_client", "from_site"]

VERSION = 3  # of what clients and sites say to each other

GROUPS_AT_MOST = 4096
NAME_AT_MOST = 256
MESSAGE_COST = 64  # bytes, beside those of its body

AckLevel = Literal["none", "ordered", "safe"]
"""Wait until the site has the message on its disk, until it has its place, or until every member has it durably."""
Policy = Literal["block", "drop", "gap"]
"""What happens when a reader is too far behind: the site takes nothing more in, or the reader is dropped."""
Name = Annotated[str, msgspec.Meta(max_length=NAME_AT_MOST)]
Groups = Annotated[tuple[Name, ...], msgspec.Meta(max_length=GROUPS_AT_MOST)]
Bodies = Annotated[list[bytes], msgspec.Meta(max_length=MESSAGES_AT_MOST)]


def cost(bodies: list[bytes]) -> int:
    """Return what a post counts in a window: messages without bytes are not for nothing."""
    return sum(map(len, bodies)) + MESSAGE_COST * len(bodies)


class Login(msgspec.Struct, frozen=True, array_like=True):
    """A client's first frame."""

    version: int
    token: Annotated[str, msgspec.Meta(max_length=4096)] | None = None
    session: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)] | None = None
    """The same one on every connection of a client that survives its site."""


class Welcome(msgspec.Struct, frozen=True, array_like=True):
    """Who answers, the groups it is in, all groups there are, and the bounds of this connection."""

    site: str
    groups: list[str]
    all_groups: list[str]
    body_bytes: int
    """Of one post, and so of one message."""
    window_bytes: int
    """Of posts that are not answered, by `cost`; a larger one may be under way alone. Also of lots not yet taken."""
    posts: int
    """That are not answered."""
    causal: bool = False
    others: list[str] | None = None
    """Where clients reach the other sites, when a post may be made again at any of them; None when it may not."""
    incarnation: int = 0
    """Of the site: positions are of one life of it."""
    disks: int = 0
    """Changes when a site was taken in that had lost its disk: then nothing is posted again."""


class Place(msgspec.Struct, frozen=True, array_like=True):
    """A message as every member of its groups knows it; positions are of one site."""

    groups: Groups
    source: Name
    number: Annotated[int, msgspec.Meta(ge=1)]
    stamp: Annotated[bytes, msgspec.Meta(max_length=1024)]


class Join(msgspec.Struct, frozen=True, array_like=True):
    """Read these groups (all, when None), after a position (from now on, when None); a receipt answers.

    It has the position that comes next.
    """

    id: int
    groups: Annotated[list[Name], msgspec.Meta(max_length=GROUPS_AT_MOST)] | None
    after: int | None
    policy: Policy = "block"
    name: Name = ""
    """What the site calls this reader where it says who is behind."""
    gives: bool = False
    """This application gives the state of its groups to those who join them."""
    place: Place | None = None
    """Read after this message, wherever it is here; the receipt comes when it is found."""
    begin: bool = False
    """Read from the first message on that is kept here."""


class Leave(msgspec.Struct, frozen=True, array_like=True):
    """Read no more; a receipt answers, and nothing that was delivered comes after it."""

    id: int


class LotFrame(msgspec.Struct, frozen=True, array_like=True):
    """What was delivered."""

    position: int
    groups: tuple[str, ...]
    source: str
    first: int
    stamp: bytes
    body: bytes


class Taken(msgspec.Struct, frozen=True, array_like=True):
    """So many bytes more were read: send more."""

    bytes: Annotated[int, msgspec.Meta(ge=0)]


class Dropped(msgspec.Struct, frozen=True, array_like=True):
    """The reader of this connection is closed; it may join again after this position. The connection stays."""

    reason: str
    after: int


class Post(msgspec.Struct, frozen=True, array_like=True):
    """Send these messages."""

    id: int
    groups: Groups
    ack: AckLevel
    bodies: Bodies
    number: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0
    """The client's number for this post among those to the same groups; with it, it is delivered once."""
    disks: Annotated[int, msgspec.Meta(ge=-1)] = -1
    """Posted again: what the site to which it was posted first has said of lost disks (`Welcome.disks`)."""


class ReceiptFrame(msgspec.Struct, frozen=True, array_like=True):
    """What became of a post, a join or a leave: the number of the first message, the stamps, or why not."""

    id: int
    first: int = 0
    stamps: list[bytes | None] = []
    error: str | None = None
    code: Code | None = None
    """Beside an error. `failed`: it may have been sent. Any other: nothing was changed."""


class Ask(msgspec.Struct, frozen=True, array_like=True):
    """A question: `status`, `configuration`, or `explain` with a message."""

    id: int
    what: Literal["status", "explain", "configuration"]
    about: Name = ""


class Change(msgspec.Struct, frozen=True, array_like=True):
    """Ask for a change of groups or sites; a receipt answers when it is in force, or says why not."""

    id: int
    what: Literal["create", "delete", "join", "leave", "add", "remove", "set", "level", "move"]
    group: Name = ""
    sites: Annotated[tuple[Name, ...], msgspec.Meta(max_length=GROUPS_AT_MOST)] = ()
    options: Annotated[dict[Name, Name], msgspec.Meta(max_length=16)] = {}


class WantState(msgspec.Struct, frozen=True, array_like=True):
    """Give me your state of a group as it is here in the stream; `State` answers."""

    id: int
    group: str


class State(msgspec.Struct, frozen=True, array_like=True):
    """The application's state, as asked for."""

    id: int
    state: bytes


class Answer(msgspec.Struct, frozen=True, array_like=True):
    """The answer, as JSON."""

    id: int
    json: bytes


class Error(msgspec.Struct, frozen=True, array_like=True):
    """The last frame: why the connection ends."""

    reason: str
    code: Code = Code.REFUSED


FROM_CLIENT: dict[int, type[msgspec.Struct]] = {
    Tag.LOGIN: Login,
    Tag.JOIN: Join,
    Tag.TAKEN: Taken,
    Tag.LEAVE: Leave,
    Tag.POST: Post,
    Tag.ASK: Ask,
    Tag.CHANGE: Change,
    Tag.GIVE_STATE: State,
}
FROM_SITE: dict[int, type[msgspec.Struct]] = {
    Tag.WELCOME: Welcome,
    Tag.LOT: LotFrame,
    Tag.RECEIPT: ReceiptFrame,
    Tag.ANSWER: Answer,
    Tag.ERROR: Error,
    Tag.DROPPED: Dropped,
    Tag.WANT_STATE: WantState,
}
KINDS = FROM_CLIENT | FROM_SITE
from_client = reader(FROM_CLIENT)
from_site = reader(FROM_SITE)
