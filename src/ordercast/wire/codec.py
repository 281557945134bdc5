"""The messages of machines and of configurations to bytes and back; new fields go last, with defaults.

A message travels as a tag, the id of its class, a stream and a number (both zero unless it travels on a numbered edge),
and its fields as a msgpack array, which starts with the tag too: so messages inside snapshots are told apart. Bodies
are opaque.
"""

from zlib import crc32

import msgspec

from ordercast.core import resume, streams
from ordercast.core.events import Control, Message
from ordercast.core.streams import Carry
from ordercast.epochs import messages as epochs
from ordercast.errors import PeerError, bounded
from ordercast.names import ClassId
from ordercast.protocols import timestamp as lamport
from ordercast.protocols import two_phase
from ordercast.protocols.propagation import messages as propagation
from ordercast.protocols.sequencing import messages as sequencing
from ordercast.protocols.swap import counting
from ordercast.protocols.swap import multicast as swap
from ordercast.wire.frames import frame
from ordercast.wire.tags import Tag

KINDS: dict[int, type[Message]] = {
    Tag.PROPAGATE: propagation.Propagate,
    Tag.PLACE: propagation.Place,
    Tag.SETTLED: propagation.Settled,
    Tag.CLOSE: propagation.Close,
    Tag.PROPAGATE_BODY: propagation.Body,
    Tag.ACK: streams.Ack,
    Tag.NULL: streams.Null,
    Tag.RESEND: streams.Resend,
    Tag.RESUME: resume.Resume,
    Tag.PROPOSE: two_phase.Propose,
    Tag.PROPOSAL: two_phase.Proposal,
    Tag.DECIDE: two_phase.Decide,
    Tag.STAMPED: lamport.Stamped,
    Tag.ASK_CLOCK: lamport.Ask,
    Tag.SILENT: lamport.Silent,
    Tag.SWAP: swap.Swap,
    Tag.REQUEST: swap.Request,
    Tag.ORDERED: swap.Ordered,
    Tag.FOUND: swap.Found,
    Tag.ASK_COUNT: counting.Ask,
    Tag.COUNT: counting.Count,
    Tag.GRANT: counting.Grant,
    Tag.NUMBERED: counting.Numbered,
    Tag.DO_MULTICAST: sequencing.DoMulticast,
    Tag.ACCEPT: sequencing.Accept,
    Tag.ACCEPTED: sequencing.Accepted,
    Tag.FETCH: sequencing.FetchMsgs,
    Tag.LATEST: sequencing.Latest,
    Tag.STABLE: sequencing.Stable,
    Tag.END: sequencing.End,
    Tag.ASK_END: sequencing.AskEnd,
    Tag.DIRECT: sequencing.Direct,
    Tag.PREPARE: epochs.Prepare,
    Tag.PROMISE: epochs.Promise,
    Tag.VOTE: epochs.Accept,
    Tag.VOTED: epochs.Accepted,
    Tag.OUTVOTED: epochs.Outvoted,
    Tag.DECIDED: epochs.Decided,
    Tag.AT: epochs.At,
    Tag.WISH: epochs.Wish,
    Tag.REQUEST_DONE: epochs.Answer,
    Tag.STOP: epochs.Close,
    Tag.REPORT: epochs.Report,
    Tag.FETCH_BODIES: epochs.Fetch,
    Tag.BODY: epochs.Body,
    Tag.INSTALLED: epochs.Installed,
    Tag.DONE: epochs.Done,
    Tag.ASK_STATE: epochs.AskState,
    Tag.STATE: epochs.State,
    Tag.HAVE: epochs.Have,
    Tag.ALL_HAVE: epochs.Stable,
    Tag.ASK_SAFE: epochs.AskSafe,
    Tag.WHEREABOUTS: epochs.Whereabouts,
    Tag.ASK_INSTALLED: epochs.AskInstalled,
    Tag.ASK_DONE: epochs.AskDone,
    Tag.ASK_HAVE: epochs.AskHave,
    Tag.RELEASED: epochs.Released,
    Tag.READY: epochs.Ready,
    Tag.BEGAN: epochs.Began,
}
assert all(kind.__struct_config__.tag == tag for tag, kind in KINDS.items()), "a message has another tag than its class"

_TAG_OF = {kind: int(tag) for tag, kind in KINDS.items()}
_DECODERS = {int(tag): msgspec.msgpack.Decoder(kind) for tag, kind in KINDS.items()}
_encode = msgspec.msgpack.Encoder().encode


class Encoder:
    """Encodes; what goes to many in a row is encoded, and its checksum reckoned, once."""

    def __init__(self) -> None:
        self._last: Message | None = None
        self._payload = b""
        self._checksum: int | None = None

    def encode(self, message: Message) -> tuple[int, int, int, bytes]:
        """Return tag, stream, number, payload."""
        if type(message) is Carry:
            inner = message.message
            if inner is not self._last:
                self._last, self._payload, self._checksum = inner, _encode(inner), None
            return _TAG_OF[type(inner)], message.stream, message.number, self._payload
        return _TAG_OF[type(message)], 0, 0, _encode(message)

    def frame(self, message: Message, class_id: ClassId) -> tuple[bytes, bytes]:
        """Return what to write on a link, head and payload."""
        encoded = self.encode(message)
        if encoded[3] is not self._payload:
            return frame(*encoded, class_id)
        if self._checksum is None:
            self._checksum = crc32(self._payload)
        return frame(*encoded, class_id, self._checksum)


def decode(tag: int, stream: int, number: int, payload: bytes | memoryview) -> Message:
    """Return the message; raises PeerError for bytes that are none."""
    decoder = _DECODERS.get(tag)
    if decoder is None:
        raise PeerError(f"tag {tag} is unknown")
    try:
        message = decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise PeerError(f"tag {tag}: {bounded(str(error))}") from None
    if not number:
        return message
    if isinstance(message, Control):
        raise PeerError(f"tag {tag} does not travel on a numbered edge")
    return Carry(stream, number, message)
