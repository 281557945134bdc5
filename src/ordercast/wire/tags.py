"""The one table of tags: every kind of frame has a number of its own, which is never changed and never used again.

The table knows numbers only, so a client can read it without loading a machine. Who knows the kinds binds them:
`codec` the machines' messages, `peers` what sites say to each other, `clients` what clients and sites say.
"""

from enum import IntEnum, StrEnum, unique


@unique
class Tag(IntEnum):
    """What a frame is. Below 70: messages of machines. From 70: configurations. From 100: sites. From 110: clients."""

    PROPAGATE = 1
    PLACE = 2
    SETTLED = 3
    CLOSE = 4
    PROPAGATE_BODY = 5
    ACK = 10
    NULL = 11
    RESEND = 12
    RESUME = 13
    PROPOSE = 20
    PROPOSAL = 21
    DECIDE = 22
    STAMPED = 30
    ASK_CLOCK = 31
    SILENT = 32
    SWAP = 40
    REQUEST = 41
    ORDERED = 42
    FOUND = 43
    ASK_COUNT = 50
    COUNT = 51
    GRANT = 52
    NUMBERED = 53
    DO_MULTICAST = 60
    ACCEPT = 61
    ACCEPTED = 62
    FETCH = 63
    LATEST = 64
    STABLE = 65
    END = 66
    ASK_END = 67
    DIRECT = 68
    PREPARE = 70
    PROMISE = 71
    VOTE = 72
    VOTED = 73
    OUTVOTED = 74
    DECIDED = 75
    AT = 76
    WISH = 77
    REQUEST_DONE = 78
    STOP = 79
    REPORT = 80
    FETCH_BODIES = 81
    BODY = 82
    INSTALLED = 83
    DONE = 84
    ASK_STATE = 85
    STATE = 86
    HAVE = 89
    ALL_HAVE = 90
    ASK_SAFE = 91
    WHEREABOUTS = 92
    ASK_INSTALLED = 93
    ASK_DONE = 94
    ASK_HAVE = 95
    RELEASED = 96
    READY = 97
    BEGAN = 98

    HELLO = 100
    REFUSE = 101
    HEARTBEAT = 102  # no payload; clients and sites say it too

    LOGIN = 110
    WELCOME = 111
    JOIN = 112
    LOT = 113
    TAKEN = 114
    LEAVE = 115
    POST = 116
    RECEIPT = 117
    ASK = 118
    ANSWER = 119
    ERROR = 120
    DROPPED = 121
    CHANGE = 122
    WANT_STATE = 123
    GIVE_STATE = 124


FIRST_OF_SITES = 100  # smaller tags are messages of machines


class Code(StrEnum):
    """Why a connection, or what was asked on it, is refused: for programs; the reason beside it is for people."""

    REFUSED = "refused"
    """Not allowed, or not possible; asking again does not help."""
    BAD_BYTES = "bad-bytes"
    """A frame that is none, or that is not expected here."""
    VERSION = "version"
    """The two speak different versions of this format."""
    CLUSTER = "cluster"
    """Another cluster, or another site than the one that was called."""
    PLAN = "plan"
    """Protocol, plan or groups differ."""
    LOST_HISTORY = "lost-history"
    """The site comes back without the history that others know it had."""
    NAME = "name"
    """The certificate is for another name."""
    TOKEN = "token"
    """The client's token is not known."""
    BUSY = "busy"
    """Too many connections, or no room; it may work later."""
    SILENT = "silent"
    """Nothing was heard for too long."""
    GONE = "gone"
    """The site was removed from its cluster: other sites take its clients."""
    FAILED = "failed"
    """The site has stopped after a fault of its own."""
