"""One TCP connection of a client to a site: login, frames, questions and their answers, silence, the end."""

import asyncio
import itertools
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

import msgspec

from ordercast.errors import (
    InputError,
    LocalError,
    LostError,
    OrdercastError,
    PeerError,
    UnreachableError,
    bounded,
)
from ordercast.wire import clients as wire
from ordercast.wire.frames import Splitter, frame
from ordercast.wire.tags import Code, Tag

if TYPE_CHECKING:
    from pathlib import Path

BEAT_S, BEATS_MISSED = 1.0, 8  # a site speaks twice a second; one that is silent for so many beats is gone


class Connection(asyncio.Protocol):
    """Everything that is asked has a number; its answer resolves a future, and so does the end of the connection."""

    def __init__(self, address: str, heard: Callable[[int, Any], None]) -> None:
        self.address = address
        self.site = ""
        self.groups: list[str] = []
        """The groups that the site was in at login."""
        self.error: OrdercastError | None = None
        """Why it has ended."""
        self.ended: list[Callable[[OrdercastError], None]] = []
        """Called once, when it ends."""
        self.gone = False
        """It has ended because the site was removed."""
        self._heard = heard  # what is no answer
        self._loop = asyncio.get_running_loop()
        self._welcome: asyncio.Future[wire.Welcome] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._splitter = Splitter()
        self._waiting: dict[int, tuple[asyncio.Future[Any], Callable[[Any], None] | None]] = {}
        self._ids = itertools.count(1)
        self._silent, self._answered = 0, False
        self._listening: asyncio.TimerHandle | None = None

    async def open(
        self, token: str | None, timeout: float, ca: "Path | str | None", session: bytes | None = None
    ) -> wire.Welcome:
        """Connect and log in; raises UnreachableError when nobody answers, LocalError when the site refuses."""
        host, _, port = self.address.rpartition(":")
        if not host or not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
            raise InputError(f"{self.address!r} is not host:port")
        tls = _context(ca)
        try:
            async with asyncio.timeout(timeout):
                await self._loop.create_connection(lambda: self, host.strip("[]"), int(port), ssl=tls)
                self.write(Tag.LOGIN, wire.Login(wire.VERSION, token, session))
                welcome = await self._welcome
        except TimeoutError:
            self.end(UnreachableError(f"{self.address} does not answer within {timeout:g} s"))
            raise cast(OrdercastError, self.error) from None
        except ssl.SSLError as error:
            raise UnreachableError(f"no TLS with {self.address}: {error.reason or error}") from None
        except OSError as error:
            raise UnreachableError(f"nobody answers at {self.address}: {error.strerror or error}") from None
        except asyncio.CancelledError:
            self.end(UnreachableError("nobody waited for the connection"))
            raise
        if tls is not None:
            self._check_name(welcome.site)
        self.site, self.groups = welcome.site, welcome.groups
        self._listening = self._loop.call_later(BEAT_S, self._listen)
        return welcome

    def _check_name(self, site: str) -> None:
        """The site's name must stand in its certificate."""
        assert self._transport is not None
        certificate: dict[str, Any] = self._transport.get_extra_info("peercert") or {}
        names = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
        if site not in names:
            self.end(LocalError(f"{self.address} says it is {bounded(site)}; its certificate is for {names}"))
            raise cast(OrdercastError, self.error)

    def ask(
        self, tag: int, said: Callable[[int], msgspec.Struct], then: Callable[[Any], None] | None = None
    ) -> asyncio.Future[Any]:
        """Say something that has an answer; without a connection that is an error.

        `then` is called with a good answer before the next frame is looked at.
        """
        number, done = next(self._ids), self._loop.create_future()
        done.add_done_callback(lambda one: one.cancelled() or one.exception())  # nobody may wait for it any more
        if self.error is not None:
            done.set_exception(self.error)
        else:
            self._waiting[number] = (done, then)
            self.write(tag, said(number))
        return done

    def write(self, tag: int, said: msgspec.Struct) -> None:
        """Say something."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.writelines(frame(tag, 0, 0, wire.encode(said)))

    def end(self, error: OrdercastError) -> None:
        """Nothing more comes and goes: tell everybody who waits, and close."""
        if self.error is not None:
            return
        self.error = error
        if self._listening is not None:
            self._listening.cancel()
        if not self._welcome.done():
            self._welcome.set_exception(error)
            self._welcome.exception()  # nobody may be waiting for it
        for done, _ in self._waiting.values():
            if not done.done():
                done.set_exception(error)
        self._waiting.clear()
        for tell in self.ended:
            tell(error)
        if self._transport is not None:
            self._transport.close()

    def raise_error(self) -> None:
        """Raise what ended the connection, if it has ended."""
        if self.error is not None:
            raise self.error

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember it."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Take whole frames."""
        self._silent, self._answered = 0, True
        try:
            for tag, *_, payload in self._splitter.feed(data):
                if tag != Tag.HEARTBEAT:
                    self._take(tag, wire.from_site(tag, payload))
        except PeerError as error:
            self.end(LostError(f"{self.site}: {error}") if self.site else self._no_site())

    def _take(self, tag: int, said: Any) -> None:
        if tag == Tag.WELCOME and not self._welcome.done():
            self._welcome.set_result(said)
        elif tag in (Tag.RECEIPT, Tag.ANSWER):
            self._answer(said)
        elif tag == Tag.ERROR:
            self.gone = said.code is Code.GONE
            self.end(self._why(said))
        elif tag in (Tag.LOT, Tag.DROPPED, Tag.WANT_STATE):
            self._heard(tag, said)
        else:
            raise PeerError(f"tag {tag} is not expected from a site")

    def _why(self, said: wire.Error) -> OrdercastError:
        reason = bounded(said.reason, 500)
        if self._welcome.done():
            return LostError(f"{self.site or self.address}: {reason}")
        return UnreachableError(reason) if said.code in (Code.BUSY, Code.GONE) else LocalError(reason)

    def _answer(self, said: Any) -> None:
        done, then = self._waiting.pop(said.id, (None, None))
        error = getattr(said, "error", None)
        if then is not None and error is None:
            then(said)
        if done is None or done.done():
            return
        if error is None:
            done.set_result(said)
        else:
            kind = {Code.FAILED: LostError, Code.BUSY: UnreachableError}.get(said.code, LocalError)
            done.set_exception(kind(bounded(error, 500)))

    def _listen(self) -> None:
        """Count beats, not seconds: a program that was busy for long has not listened, which is no silence."""
        self._silent += 1
        if self._silent > BEATS_MISSED:
            self.end(LostError(f"{self.site} has said nothing for {BEATS_MISSED * BEAT_S:g} s"))
            return
        if self._transport is not None:
            self._transport.writelines(frame(Tag.HEARTBEAT, 0, 0, b""))
        self._listening = self._loop.call_later(BEAT_S, self._listen)

    def connection_lost(self, error: Exception | None) -> None:
        """Tell everybody who waits."""
        if self.site:
            self.end(LostError(f"the connection to {self.address} ended"))
        elif self._answered:
            self.end(self._no_site())
        else:
            self.end(UnreachableError(f"{self.address} ended the connection without a word"))

    def _no_site(self) -> InputError:
        return InputError(f"{self.address} does not answer as sites answer clients; is it in [clients]?")


def _context(ca: "Path | str | None") -> ssl.SSLContext | None:
    """Return what checks the site's certificate; names of sites are no host names, so the name is checked later."""
    if ca is None:
        return None
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.check_hostname = False
    try:
        made.load_verify_locations(ca)
    except OSError as error:  # ssl.SSLError is one
        raise InputError(f"{ca}: no certificates of a CA: {error.strerror or error}") from None
    return made
