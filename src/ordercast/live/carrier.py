"""Carries out what a node asks for, in order; it decides nothing."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ordercast.client.values import Receipt
from ordercast.core.effects import Send
from ordercast.live.links import Link
from ordercast.node import inputs as io
from ordercast.wire.tags import Code

if TYPE_CHECKING:
    from ordercast.live.site import Site

log = logging.getLogger("ordercast")


class Carrier:
    """One per site. `does` has a function for every kind of output; another kind is a KeyError, and a bug."""

    def __init__(self, site: "Site") -> None:
        self.site = site
        self._to_flush: dict[Link, None] = {}
        self._timer: asyncio.TimerHandle | asyncio.Handle | None = None
        self.does: dict[type, Callable[[Any], None]] = {
            Send: self._send,
            io.Resolve: _resolve,
            io.More: self._more,
            io.WakeAt: self._wake_at,
            io.Dial: lambda output: site.dialer.dial(output.peer),
            io.Hangup: self._hang_up,
            io.Anew: lambda output: site.links.abort(),
            io.Note: lambda output: site.note(output.event, **output.facts),
            io.Stopped: self._stopped,
        }

    def carry(self, outputs: list[io.Output]) -> None:
        """Do what the node asks for, in order."""
        for output in outputs:
            self.does[type(output)](output)
        while self._to_flush:
            self._to_flush.popitem()[0].flush()

    def _send(self, effect: Send) -> None:
        link = self.site.links.up.get(effect.to)
        if link is not None:
            link.send(effect.message, effect.class_id)
            self._to_flush[link] = None

    def _more(self, output: io.More) -> None:
        inbox = self.site.inboxes.get(output.reader)
        if inbox is not None:
            inbox.wake()

    def _wake_at(self, output: io.WakeAt) -> None:
        self.cancel()
        loop, wait = self.site.loop, output.time - self.site.clock()
        self._timer = loop.call_later(wait, self._wake) if wait > 0 else loop.call_soon(self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.site.feed(io.Wake())

    def cancel(self) -> None:
        """Wake the node no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _hang_up(self, output: io.Hangup) -> None:
        link = self.site.links.up.get(output.peer)
        if link is not None:
            link.refuse(output.reason, Code(output.code)) if output.reason else link.close()

    def _stopped(self, output: io.Stopped) -> None:
        site = self.site
        if output.error is not None:
            log.error("site.failed site=%s reason=%r", site.me, str(output.error))
            site.dialer.cancel()
            site.links.abort()
        site.ended.set()


def _resolve(output: io.Resolve) -> None:
    done: asyncio.Future[list[Receipt]] | None = output.token
    if done is None or done.done():
        return
    if output.error is not None:
        done.set_exception(output.error)
    else:
        done.set_result(output.receipts)
