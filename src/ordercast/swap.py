"""A swap register in a cluster: `await register.swap(value)` puts a value in and returns the one that was there before.

An ordered multicast is a swap: each value is a message to a group, and what was there before is the message that the
group has right before it. (HTW00 §3 goes the other way: with any swap object, and a multicast without order, messages
are ordered; that is `protocols.swap`.) All swaps of a register, by whatever clients, are one chain: every value is
returned once, but for the one that is in it now.

    async with connect("127.0.0.1:7201") as client, Register(client, "lock") as register:
        before = await register.swap(b"me")
"""

import asyncio
import secrets
from typing import Self

from ordercast.client.client import Client
from ordercast.client.values import Delivered, Restored, RolledBack
from ordercast.errors import LocalError, LostError, OrdercastError
from ordercast.names import GroupId

MARK = b"swap"
TAG_BYTES = 16


class Register:
    """One client's view of the register that a group is; the client is for the register alone."""

    def __init__(self, client: Client, group: GroupId) -> None:
        self.client, self.group = client, group
        self.value: bytes | None = None
        """What is in the register, as far as it was read; None before the first swap."""
        self._waiting: dict[bytes, asyncio.Future[bytes | None]] = {}
        self._reader: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        """Read what was swapped so far; raises LocalError where that is not kept, or may be undone."""
        gives = await self._gives_states()
        await self.client.join([self.group], after="beginning", snapshot=self._state if gives else None)
        self._reader = asyncio.create_task(self._read())
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._reader is not None:
            self._reader.cancel()
            await asyncio.gather(self._reader, return_exceptions=True)
        self._end(LostError("the register was closed"))

    async def swap(self, value: bytes) -> bytes | None:
        """Put a value in, and return what was there before; None when there was nothing.

        When it raises, or is cancelled, the value may be in the register or not.
        """
        if self._reader is None or self._reader.done():
            raise LostError("the register is not open")
        tag = secrets.token_bytes(TAG_BYTES)
        before: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()
        self._waiting[tag] = before
        try:
            await self.client.multicast_many(self.group, [MARK + tag + value])
            return await before
        finally:
            self._waiting.pop(tag, None)

    async def _gives_states(self) -> bool:
        """Whether applications give states to those who join; raises LocalError where deliveries may be undone."""
        try:
            known = await self.client.configuration()
        except LocalError:
            return False  # groups are fixed, and nothing is ever undone
        of_group = known["groups"].get(self.group, {})
        if of_group.get("policy") == "available" and of_group.get("delivery") == "agreed":
            raise LocalError(f"group {self.group}: with policy available a register takes delivery safe")
        return bool(known["states"])

    async def _read(self) -> None:
        try:
            async for event in self.client.events():
                if isinstance(event, Delivered):
                    self._swapped(event.body)
                elif isinstance(event, Restored) and event.group == self.group:
                    self.value = event.state[1:] if event.state else None
                elif isinstance(event, RolledBack):
                    raise LostError(f"swaps of {self.group} were undone")
        except OrdercastError as error:
            self._end(error)
        else:
            self._end(LostError("nothing more is read"))

    def _swapped(self, body: bytes) -> None:
        if not body.startswith(MARK) or len(body) < len(MARK) + TAG_BYTES:
            return  # somebody uses the group for something else
        tag, value = body[len(MARK) : len(MARK) + TAG_BYTES], body[len(MARK) + TAG_BYTES :]
        before, self.value = self.value, value
        future = self._waiting.get(tag)
        if future is not None and not future.done():
            future.set_result(before)

    def _end(self, error: OrdercastError) -> None:
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(error)

    async def _state(self, group: GroupId) -> bytes:
        """Return the value, for a site that joins the group."""
        return b"" if self.value is None else b"\x01" + self.value
