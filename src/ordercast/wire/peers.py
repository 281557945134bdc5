"""What sites say to each other besides the machines' messages: the handshake. A heartbeat has no payload."""

import msgspec

from ordercast.wire.structs import encode, reader
from ordercast.wire.tags import Code, Tag

__all__ = ["KINDS", "OLDEST", "VERSION", "Hello", "Refuse", "encode", "read"]

VERSION = 5  # of what sites say: frames, tags, messages
OLDEST = 4
"""The version that is still spoken with sites that were not upgraded. Where groups change none is: since version 5 a
class says who sequences it."""


class Hello(msgspec.Struct, frozen=True, array_like=True):
    """The first frame in both directions: who I am, whom I want, and what I run."""

    version: int
    """The newest that I speak, or what you speak if I know that to be older."""
    cluster: str
    site: str
    wanted: str
    incarnation: int
    epoch: int
    plan: str
    """A hash of protocol, plan and groups: sites that differ must not talk."""
    restarted: str = ""
    """The site whose restart began this epoch; only where nothing is durable."""
    records: int = 0
    """How many records the site's history holds, 0 when it keeps none: who comes back with fewer has lost some."""
    boot: int = 0
    """When its process began, in milliseconds: a link to an earlier process is dead, even if nobody has noticed."""
    start: int = 0
    """How often the site was restarted with this history, this time counted."""


class Refuse(msgspec.Struct, frozen=True, array_like=True):
    """The last frame: why I will not talk to you."""

    reason: str
    code: Code = Code.REFUSED


KINDS: dict[int, type[msgspec.Struct]] = {Tag.HELLO: Hello, Tag.REFUSE: Refuse}
read = reader(KINDS)
