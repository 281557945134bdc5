"""What senders, sequencers and members say to each other (KIN §4.1, §5)."""

import msgspec

from ordercast.core.contexts import Numbers
from ordercast.core.events import Control, Envelope, Message
from ordercast.names import GroupId


class DoMulticast(Message, frozen=True, gc=False, tag=60):
    """DO-MULTICAST: please sequence. `count` is dense per sender and part."""

    envelope: Envelope
    count: int
    past: Numbers = ()
    direct: bool = False
    """Its sender has sent the body to the members itself."""

    def __str__(self) -> str:
        return f"DoMulticast {self.envelope} count={self.count}{' direct' if self.direct else ''}"


class Direct(Message, frozen=True, gc=False, tag=68):
    """The body of a request, from its sender straight to a member; its place comes from the sequencer (KIN §4.1)."""

    envelope: Envelope

    def __str__(self) -> str:
        return f"Direct {self.envelope}"


class Accept(Message, frozen=True, gc=False, tag=61):
    """ACCEPT: this is its place. `context` holds the sequencer's numbers, `past` what the sender came after."""

    envelope: Envelope
    place: int
    """Position in the part: the stamp."""
    count: int
    context: Numbers
    past: Numbers = ()
    direct: bool = False
    """Its sender has sent the body to the members itself: it may be without one."""

    @property
    def bare(self) -> bool:
        """Whether it only gives a place: the body comes another way."""
        return self.direct and not self.envelope.body

    def without_body(self) -> "Accept":
        """Return what members are told that get the body from its sender."""
        return msgspec.structs.replace(self, envelope=msgspec.structs.replace(self.envelope, body=b""))

    def with_body(self, body: bytes) -> "Accept":
        """Return it with the body that came another way."""
        return msgspec.structs.replace(self, envelope=msgspec.structs.replace(self.envelope, body=body))

    def __str__(self) -> str:
        numbers = " ".join(f"{group}:{number}" for group, number in self.context)
        return f"Accept {self.envelope} {numbers}{' without body' if self.bare else ''}"


class Accepted(Message, frozen=True, gc=False, tag=62):
    """The extra, point-to-point ACCEPT to a sender that is no member, or that asked again."""

    part: int
    count: int
    numbers: Numbers

    def __str__(self) -> str:
        return f"Accepted {self.count}"


class FetchMsgs(Control, frozen=True, gc=False, tag=63):
    """FETCH-MSGS: these numbers of a group again, please."""

    group: GroupId
    first: int
    last: int

    def __str__(self) -> str:
        return f"FetchMsgs {self.group} {self.first}-{self.last}"


class Latest(Control, frozen=True, gc=False, tag=64):
    """The sequencer's latest numbers of the member's groups: noticed even when the last ACCEPT was lost."""

    numbers: Numbers

    def __str__(self) -> str:
        return f"Latest {' '.join(f'{group}:{number}' for group, number in self.numbers)}"


class End(Message, frozen=True, gc=False, tag=66):
    """The part is closed: these are its last numbers."""

    part: int
    numbers: Numbers

    def __str__(self) -> str:
        return f"End {' '.join(f'{group}:{number}' for group, number in self.numbers)}"


class AskEnd(Control, frozen=True, gc=False, tag=67):
    """A member knows that the part closes, and has not heard its last numbers."""

    part: int

    def __str__(self) -> str:
        return f"AskEnd {self.part}"


class Stable(Control, frozen=True, gc=False, tag=65):
    """A member has delivered everything up to these numbers: the history may forget it."""

    numbers: Numbers

    def __str__(self) -> str:
        return f"Stable {' '.join(f'{group}:{number}' for group, number in self.numbers)}"
