"""What a machine asks for.

The contract:

- Effects are applied in list order, and an `Append` is on disk before anything after it is done.
- Every event that changes durable state is appended, whatever kind it is: ticks too. An event that is not appended
  changes only what is volatile: what is acknowledged, asked for or told. Each state says what of it is `durable`.
- Machines are deterministic, so the log is the inputs themselves. A machine that crashed is a new one that steps
  through its log, its effects ignored. Its snapshot then equals the one of the machine that crashed, up to what is
  volatile. What it had sent and nobody has, it sends again.
"""

import msgspec

from ordercast.core.events import Envelope, Event, Message
from ordercast.names import ClassId, SiteId


class Append(msgspec.Struct, frozen=True, gc=False):
    """Make this input durable before what follows."""

    event: Event

    def __str__(self) -> str:
        return f"append {self.event}"


class Send(msgspec.Struct, frozen=True, gc=False):
    """Hand a message to the link; it may be lost, doubled or overtaken."""

    to: SiteId
    message: Message
    class_id: ClassId

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
    """Drop the link to this peer, and say why: it sent what the protocol forbids, or one of both has lost history."""

    peer: SiteId
    reason: str
    code: str = "refused"
    """For programs: `lost-history`, or anything else."""

    def __str__(self) -> str:
        return f"refuse {self.peer}: {self.reason}"


class Finished(msgspec.Struct, frozen=True, gc=False):
    """The end of the class has come down its tree: everything that this site gets of it is delivered."""

    def __str__(self) -> str:
        return "finished"


class HostEffect(msgspec.Struct, frozen=True, gc=False):
    """What else a host is asked for when groups change (`epochs.events`)."""


Effect = Append | Send | Deliver | Placed | Safe | Refuse | Finished | HostEffect


class Held(msgspec.Struct, frozen=True, gc=False):
    """Something that waits: for what, and since when. Silence is a bug (errata 63)."""

    what: str
    reason: str
    since: float

    def __str__(self) -> str:
        return f"{self.what} waits since {self.since:g}: {self.reason}"
