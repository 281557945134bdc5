"""The connection between two sites: handshake, frames, heartbeats; control before data; a bound on what waits.

A link carries what the machines say. What cannot be sent now is dropped: the machines' numbered edges know what is
missing when the link is there again. Bad bytes close the link, with a named reason, and hurt nobody else.
"""

import asyncio
import ssl
from collections import deque
from typing import TYPE_CHECKING, Any, cast

from ordercast.core.events import Control, Message
from ordercast.core.streams import Null
from ordercast.errors import PeerError, bounded
from ordercast.names import ClassId, SiteId
from ordercast.node.inputs import FromPeer, Greeted, LinkMade, RefusedBy
from ordercast.wire import codec, peers
from ordercast.wire.frames import FRAME_AT_MOST, GREETING_AT_MOST, Splitter, frame
from ordercast.wire.peers import Hello, Refuse
from ordercast.wire.tags import FIRST_OF_SITES, Code, Tag

if TYPE_CHECKING:
    from ordercast.live.site import Site

HEARTBEAT_S = 2.0  # of silence; looked at every 2.5 s (`live.linked`), so that an idle cluster costs little
SILENCE_S = 7.0
BEATS = 10  # without a word, where groups change: as many as the failure detector counts
WRITE_AHEAD = 2**20  # bytes handed to the socket; what is behind them waits here, control first
WAITING_AT_MOST = 32 * 2**20


class Link(asyncio.Protocol):
    """One connection; `peer` is known once it has greeted, and `up` once messages may pass."""

    def __init__(self, site: "Site", wanted: SiteId | None) -> None:
        self.site, self.wanted = site, wanted
        self.peer: SiteId | None = None
        self.up = False
        self.was_useful = False  # it carried more than control: worth to be made again at once
        self.boot = 0  # when the process at the other end began
        self.closed = asyncio.get_running_loop().create_future()
        self.heard = self.spoke = site.loop.time()
        self.silent = False  # it was given up because nothing was heard
        self._unheard = 0  # beats since something was
        self.dropped = 0
        self._transport: asyncio.Transport | None = None
        self._splitter = Splitter(GREETING_AT_MOST)
        self._control: list[bytes] = []
        self._data: deque[tuple[bytes, bytes]] = deque()
        self._data_bytes = 0
        self._paused = False
        self._epoch = 0  # in which we have greeted

    @property
    def dialler(self) -> SiteId | None:
        """Who made this connection."""
        return self.site.me if self.wanted is not None else self.peer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Greet at once when we called."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports look like it and are none
        self._transport.set_write_buffer_limits(high=WRITE_AHEAD)
        self.site.links.connected(self)
        if self.wanted is not None:
            self._greet(self.wanted)

    def data_received(self, data: bytes) -> None:
        """Take whole frames to the node; what is not understood closes the link."""
        self.heard, self._unheard = self.site.loop.time(), 0
        messages: list[tuple[ClassId, Message]] = []
        try:
            for tag, class_id, stream, number, payload in self._splitter.feed(data):
                if tag < FIRST_OF_SITES and self.up:
                    messages.append((class_id, codec.decode(tag, stream, number, payload)))
                else:
                    self._host_frame(tag, payload)
        except PeerError as error:
            self.refuse(str(error), Code.BAD_BYTES)
        if messages and self.up and self.peer is not None:
            self.was_useful = self.was_useful or any(not isinstance(message, Control) for _, message in messages)
            self.site.feed(FromPeer(self.peer, messages))

    def _host_frame(self, tag: int, payload: memoryview) -> None:
        if tag == Tag.HEARTBEAT:
            return
        if tag == Tag.REFUSE:
            refused = peers.read(tag, payload)
            peer = self.peer or self.wanted
            if peer is not None and refused.code != Code.BUSY:
                self.site.feed(RefusedBy(peer, bounded(refused.reason), refused.code))
            self.close()
        elif tag == Tag.HELLO and self.peer is None:
            self._greeted(peers.read(tag, payload))
        else:
            raise PeerError(f"tag {tag} is not expected here")

    def _greeted(self, hello: Hello) -> None:
        node, site = self.site.node, self.site
        refusal = node.peers.why_not(hello, self.wanted, node.clock())
        if refusal is not None:
            self.refuse(refusal.reason, Code(refusal.code))
            return
        wrong = self._wrong_name(hello.site)
        if wrong is not None:
            self.refuse(wrong, Code.NAME)
            return
        self.peer, self.boot = hello.site, hello.boot
        if not site.links.prefers(self, hello.site):
            self.refuse(f"{hello.site} and {site.me} have a link already", Code.BUSY)
            return
        site.feed(Greeted(hello))
        if self.wanted is None:
            self._greet(hello.site)
        if not self._epoch == hello.epoch == node.peers.epoch:  # who is behind moves up, and calls again
            self.close()
            return
        self._splitter.at_most = FRAME_AT_MOST
        self.up = True
        site.links.linked(self, hello.site)
        site.feed(LinkMade(hello.site))

    def _greet(self, peer: SiteId) -> None:
        node = self.site.node
        self._epoch = node.peers.epoch
        self._write_host(Tag.HELLO, peers.encode(node.peers.hello(peer, node.pipeline.written)))

    def _wrong_name(self, name: SiteId) -> str | None:
        """With TLS the name must stand in the certificate."""
        assert self._transport is not None
        tls: ssl.SSLObject | None = self._transport.get_extra_info("ssl_object")
        if tls is None:
            return None
        certificate: dict[str, Any] = dict(tls.getpeercert() or {})
        names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
        return None if name in names else f"the certificate is for {', '.join(names)}, not for {name}"

    def send(self, message: Message, class_id: ClassId) -> None:
        """Queue a message; `flush` writes."""
        head, payload = self.site.encoder.frame(message, class_id)
        if isinstance(message, Control) and type(message) is not Null:  # a null speaks of what was sent before it
            self._control.append(head + payload)
        elif self._data_bytes > WAITING_AT_MOST:
            self.dropped += 1  # the edge will send it again
        else:
            self._data.append((head, payload))
            self._data_bytes += len(payload)

    def flush(self) -> None:
        """Write what may be written: all control, and data while the socket takes it."""
        if self._transport is None or self._transport.is_closing():
            return
        if not self._control and (not self._data or self._paused):
            return
        out, self._control = self._control, []
        while self._data and not self._paused:
            head, payload = self._data.popleft()
            self._data_bytes -= len(payload)
            out += (head, payload)
            if len(out) > 64:
                self._transport.writelines(out)
                out = []
        if out:
            self._transport.writelines(out)
        self.spoke = self.site.loop.time()

    def pause_writing(self) -> None:
        """The socket has enough."""
        self._paused = True

    def resume_writing(self) -> None:
        """The socket takes more."""
        self._paused = False
        self.flush()

    def beat(self, now: float) -> None:
        """Say that we are alive; give up on a peer that does not."""
        self._unheard += 1
        changes = self.site.changes is not None
        if self._unheard > BEATS if changes else now - self.heard > SILENCE_S:  # beats: we may have stood still
            self.site.note("link.silent", peer=self.peer or self.wanted, seconds=round(now - self.heard, 1))
            self.silent = True
            self.abort()
        elif now - self.spoke >= (self.site.links.beat_s if changes else HEARTBEAT_S) and self.up:
            self._write_host(Tag.HEARTBEAT, b"")

    def _write_host(self, tag: int, payload: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(frame(tag, 0, 0, payload))
            self.spoke = self.site.loop.time()

    def refuse(self, reason: str, code: Code = Code.REFUSED) -> None:
        """Say why, and close."""
        if code != Code.BUSY:
            self.site.note("link.closed", peer=self.peer or self.wanted, reason=bounded(reason))
        self._write_host(Tag.REFUSE, peers.encode(Refuse(bounded(reason), code)))
        self.close()

    def close(self) -> None:
        """Close after what is written has gone."""
        self.up = False
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close now."""
        self.up = False
        if self._transport is not None:
            self._transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """Tell the site, and whoever waits for the end."""
        self.up = False
        if not self.closed.done():
            self.closed.set_result(None)
        self.site.links.lost(self)

    @property
    def waiting_bytes(self) -> int:
        """What waits for the socket."""
        return self._data_bytes
