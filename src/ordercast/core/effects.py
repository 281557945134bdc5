"""What a machine asks for.

The contract: effects are applied in list order, and an `Append` is on disk before anything after it is done. Machines
are deterministic, so the log is the inputs themselves: a machine that crashed is a new one that steps through its log,
its effects ignored; what it had sent and nobody has, its edges send again.
"""

import msgspec

from ordercast.core.events import Envelope, Event, Message
from ordercast.names import SiteId


class Append(msgspec.Struct, frozen=True, gc=False):
    """Make this input durable before what follows."""

    event: Event

    def __str__(self) -> str:
        return f"append {self.event}"


class Send(msgspec.Struct, frozen=True, gc=False):
    """Hand a message to the link; it may be lost, doubled or overtaken."""

    to: SiteId
    message: Message

    def __str__(self) -> str:
        return f"-> {self.to} {self.message}"


class Deliver(msgspec.Struct, frozen=True, gc=False):
    """Give the envelope to the application; within its class stamps only grow along a site's log."""

    envelope: Envelope
    stamp: bytes

    def __str__(self) -> str:
        return f"deliver {self.envelope.msg_id}"


class Placed(msgspec.Struct, frozen=True, gc=False):
    """This site's message of that number has its place in the order; where the machine gives receipts."""

    number: int
    stamp: bytes

    def __str__(self) -> str:
        return f"placed {self.number}"


class Safe(msgspec.Struct, frozen=True, gc=False):
    """Every member has this site's message of that number, durably; where the machine gives receipts."""

    number: int

    def __str__(self) -> str:
        return f"safe {self.number}"


class Refuse(msgspec.Struct, frozen=True, gc=False):
    """This peer sent what the protocol forbids, found only in its turn: drop the link to it, and say why."""

    peer: SiteId
    reason: str

    def __str__(self) -> str:
        return f"refuse {self.peer}: {self.reason}"


Effect = Append | Send | Deliver | Placed | Safe | Refuse


class Held(msgspec.Struct, frozen=True, gc=False):
    """Something that waits: for what, and since when. Silence is a bug (errata 63)."""

    what: str
    reason: str
    since: float

    def __str__(self) -> str:
        return f"{self.what} waits since {self.since:g}: {self.reason}"
