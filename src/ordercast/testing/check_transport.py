"""Holds every transport to one behaviour: what sites rely on, no matter how their bytes travel."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

from ordercast.live.transport import Address, Transport


class Recorder(asyncio.Protocol):
    """One end of a connection that writes down what happens to it."""

    def __init__(self) -> None:
        self.transport: asyncio.Transport
        self.made, self.lost = asyncio.Event(), asyncio.Event()
        self.data = bytearray()
        self.paused = False
        self._more = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection is there."""
        self.transport = cast(asyncio.Transport, transport)
        self.made.set()

    def data_received(self, data: bytes) -> None:
        """Bytes came."""
        self.data += data
        self._more.set()

    def pause_writing(self) -> None:
        """The other end does not read fast enough."""
        self.paused = True

    def resume_writing(self) -> None:
        """It does again."""
        self.paused = False

    def connection_lost(self, error: Exception | None) -> None:
        """The connection is gone."""
        self.lost.set()

    async def until(self, size: int) -> bytes:
        """Wait for so many bytes."""
        while len(self.data) < size:
            self._more.clear()
            await self._more.wait()
        return bytes(self.data)


async def check_transport(transport: Transport, address: Address, nobody: Address) -> None:
    """Check a transport at an address where it may listen; nobody listens at the other one."""
    for check in (_bytes_arrive, _a_close_comes_after_the_bytes, _an_abort_is_noticed, _a_full_end_pauses, _refusals):
        async with asyncio.timeout(30):
            await cast(Callable[[Transport, Address, Address], Awaitable[None]], check)(transport, address, nobody)


async def _pair(transport: Transport, address: Address) -> tuple[Recorder, Recorder, Callable[[], None]]:
    accepted: list[Recorder] = []

    def accept() -> Recorder:
        accepted.append(Recorder())
        return accepted[-1]

    listener = await transport.listen(accept, address)
    calling = cast(Recorder, await transport.dial(Recorder, address))
    await calling.made.wait()
    while not accepted:
        await asyncio.sleep(0)
    await accepted[0].made.wait()
    return calling, accepted[0], listener.close


async def _bytes_arrive(transport: Transport, address: Address, _: Address) -> None:
    """Bytes arrive in order, in both directions, however they were cut."""
    one, other, close = await _pair(transport, address)
    one.transport.writelines([b"ab", b"", b"c"])
    one.transport.write(b"def")
    other.transport.write(b"xyz")

    assert await other.until(6) == b"abcdef"
    assert await one.until(3) == b"xyz"
    one.transport.close()
    await other.lost.wait()
    close()


async def _a_close_comes_after_the_bytes(transport: Transport, address: Address, _: Address) -> None:
    """What was written before a close arrives, and nothing after it; both ends learn of the end."""
    one, other, close = await _pair(transport, address)
    one.transport.write(b"last words")
    one.transport.close()
    one.transport.write(b"too late")

    await asyncio.gather(one.lost.wait(), other.lost.wait())
    assert bytes(other.data) == b"last words"
    assert one.transport.is_closing()
    close()


async def _an_abort_is_noticed(transport: Transport, address: Address, _: Address) -> None:
    """After an abort both ends learn of the end."""
    one, other, close = await _pair(transport, address)
    one.transport.abort()
    await asyncio.gather(one.lost.wait(), other.lost.wait())
    close()


async def _a_full_end_pauses(transport: Transport, address: Address, _: Address) -> None:
    """Who writes to somebody that does not read is asked to pause, then to go on; nothing is lost."""
    one, other, close = await _pair(transport, address)
    one.transport.set_write_buffer_limits(high=2**16)
    other.transport.pause_reading()
    sent = 0
    while not one.paused:
        one.transport.write(bytes(2**16))
        sent += 2**16
        await asyncio.sleep(0)
    other.transport.resume_reading()

    await other.until(sent)
    while one.paused:
        await asyncio.sleep(0)
    one.transport.close()
    await other.lost.wait()
    close()


async def _refusals(transport: Transport, address: Address, nobody: Address) -> None:
    """Nobody there, or somebody there already, is an OSError; an address is free again after a close."""
    listener = await transport.listen(Recorder, address)
    try:
        await transport.dial(Recorder, nobody)
    except OSError:
        pass
    else:
        raise AssertionError("somebody answered where nobody listens")
    try:
        await transport.listen(Recorder, address)
    except OSError:
        pass
    else:
        raise AssertionError("two listen at one address")
    listener.close()
    await asyncio.sleep(0)
    (await transport.listen(Recorder, address)).close()
