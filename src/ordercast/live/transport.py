"""How connections are made: an argument of a site, with a real version and one in memory.

Both make connections that call an `asyncio.Protocol`; `testing.check_transport` holds both to one behaviour.
"""

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Protocol

HANDSHAKE_S = 10.0  # for TLS, before a protocol sees its connection
Factory = Callable[[], asyncio.Protocol]
Address = tuple[str, int]


class Listener(Protocol):
    """Something that listens, until it is closed."""

    def close(self) -> None:
        """Take no more connections; those that are there stay."""
        ...


class Transport(Protocol):
    """Makes connections. Both calls raise OSError when it cannot be done."""

    async def listen(self, make: Factory, address: Address, tls: ssl.SSLContext | None = None) -> Listener:
        """Take connections at an address; each gets a protocol of its own."""
        ...

    async def dial(
        self, make: Factory, address: Address, tls: ssl.SSLContext | None = None, name: str | None = None
    ) -> asyncio.Protocol:
        """Connect to an address; with TLS, to whoever has a certificate for that name."""
        ...


class Tcp:
    """TCP, through the event loop."""

    async def listen(self, make: Factory, address: Address, tls: ssl.SSLContext | None = None) -> Listener:
        """Take connections at an address."""
        limit = None if tls is None else HANDSHAKE_S
        return await asyncio.get_running_loop().create_server(make, *address, ssl=tls, ssl_handshake_timeout=limit)

    async def dial(
        self, make: Factory, address: Address, tls: ssl.SSLContext | None = None, name: str | None = None
    ) -> asyncio.Protocol:
        """Connect to an address."""
        loop = asyncio.get_running_loop()
        _, protocol = await loop.create_connection(make, *address, ssl=tls, server_hostname=name)
        return protocol


class Memory:
    """Connections between sites of one event loop, without sockets; addresses are names."""

    def __init__(self) -> None:
        self._listening: dict[Address, Factory] = {}

    async def listen(self, make: Factory, address: Address, tls: ssl.SSLContext | None = None) -> Listener:
        """Take connections at an address."""
        if address in self._listening:
            raise OSError(98, "Address already in use")
        self._listening[address] = make
        return _Listening(self._listening, address)

    async def dial(
        self, make: Factory, address: Address, tls: ssl.SSLContext | None = None, name: str | None = None
    ) -> asyncio.Protocol:
        """Connect to an address."""
        accept = self._listening.get(address)
        if accept is None:
            raise ConnectionRefusedError(111, "Connection refused")
        calling, called = make(), accept()
        here, there = _End(calling), _End(called)
        here.other, there.other = there, here
        called.connection_made(there)
        calling.connection_made(here)
        return calling


class _Listening:
    def __init__(self, table: dict[Address, Factory], address: Address) -> None:
        self._table, self._address = table, address

    def close(self) -> None:
        self._table.pop(self._address, None)


class _End(asyncio.Transport):
    """One end of a connection in memory: what is written arrives at the other end in a later turn of the loop."""

    other: "_End"

    def __init__(self, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self._protocol, self._loop = protocol, asyncio.get_running_loop()
        self._unread: list[bytes] = []
        self._unread_bytes, self._high = 0, 64 * 2**10
        self._reading, self._closing, self._gone, self._full = True, False, False, False
        self._arriving = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Nothing is known of the other end but that it is in memory."""
        return ("memory", 0) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set from how many unread bytes on the writer is asked to pause."""
        self._high = high if high is not None else self._high

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes."""
        self.writelines([data])

    def writelines(self, parts: Any) -> None:
        """Send bytes."""
        data = b"".join(parts)
        if self._closing or self._gone or not data:
            return
        other = self.other
        other._unread.append(data)
        other._unread_bytes += len(data)
        if other._unread_bytes > self._high and not self._full:
            self._full = True
            self._protocol.pause_writing()
        other._arrive()

    def get_write_buffer_size(self) -> int:
        """Bytes that the other end has not read."""
        return self.other._unread_bytes

    def _arrive(self) -> None:
        if not self._arriving:
            self._arriving = True
            self._loop.call_soon(self._read)

    def _read(self) -> None:
        self._arriving = False
        if not self._reading or self._gone:
            return
        data, self._unread, self._unread_bytes = b"".join(self._unread), [], 0
        if data:
            self._protocol.data_received(data)
        if self.other._full:
            self.other._full = False
            if not self.other._gone:
                self.other._protocol.resume_writing()
        if self.other._closing and not self._unread:
            self._end(None)

    def pause_reading(self) -> None:
        """Take nothing in."""
        self._reading = False

    def resume_reading(self) -> None:
        """Take in again."""
        self._reading = True
        self._arrive()

    def is_closing(self) -> bool:
        """Whether nothing more can be written."""
        return self._closing or self._gone

    def close(self) -> None:
        """Close after the other end has read what was written."""
        if not self._closing:
            self._closing = True
            self.other._arrive()
            self._loop.call_soon(self._end, None)

    def abort(self) -> None:
        """Close now; what the other end has not read is lost."""
        self._closing = True
        self.other._unread.clear()
        self.other._arrive()
        self._loop.call_soon(self._end, None)

    def _end(self, error: Exception | None) -> None:
        if not self._gone:
            self._gone = self._closing = True
            self._protocol.connection_lost(error)
