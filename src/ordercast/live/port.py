"""The client port of a site: who is connected, and what all of them together may take of the site's memory.

Everything a client can make a site keep has a bound for the client and one for all. Frames are small until a client
has logged in. A large frame is read when there is room for all of it, and gives the room back when its post is
answered. Each client gets a share of the windows, which is smaller the more there are. A client that uses its bounds up
is not read from until it keeps to them; one that does not speak is closed.
"""

import asyncio
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

from ordercast.errors import LocalError
from ordercast.live.doorman import Brake, Doorman
from ordercast.live.session import Session
from ordercast.live.tokens import read_tokens
from ordercast.wire.tags import Code

if TYPE_CHECKING:
    from ordercast.live.site import Site

UNKNOWN_AT_MOST = 128  # connections that have not logged in
WINDOWS_BYTES = 64 * 2**20  # of all clients together; more only by the smallest share of each
SHARE_AT_MOST, SHARE_AT_LEAST = 4 * 2**20, 64 * 2**10
LARGE_BYTES = 128 * 2**20  # of frames above `session.LARGE`, unfinished or in posts that are not answered


class Budget:
    """Bytes for large frames. Who finds none waits; first come, first served."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.used = 0
        self._waiting: deque[tuple[Session, int]] = deque()

    def take(self, session: Session, size: int) -> bool:
        """Take bytes for a session; if there are none now, it is told when there are (`Session.let_in`)."""
        if not self._waiting and self.used + size <= self.size:
            self.used += size
            return True
        self._waiting.append((session, size))
        return False

    def give(self, size: int) -> None:
        """Give back, and let in who fits now."""
        self.used -= size
        assert self.used >= 0, "more was given back than taken"
        while self._waiting and self.used + self._waiting[0][1] <= self.size:
            session, wanted = self._waiting.popleft()
            self.used += wanted
            session.let_in(wanted)

    def forget(self, session: Session) -> None:
        """A session has ended: it waits no longer."""
        self._waiting = deque(one for one in self._waiting if one[0] is not session)
        self.give(0)


class Port:
    """One per site that takes clients."""

    def __init__(self, site: "Site") -> None:
        self.site = site
        security = site.cluster.security
        self.doorman = Doorman(read_tokens(site.cluster), security.send, security.receive, security.admin)
        self.brake = Brake()
        self.large = Budget(LARGE_BYTES)
        self.sessions: set[Session] = set()
        self._granted = 0
        self._server: asyncio.Server | None = None

    async def open(self) -> None:
        """Listen; with certificates, TLS."""
        site = self.site
        tls = None
        if site.cluster.security.certs is not None:
            from ordercast.live.tls import client_port

            tls = client_port(site.cluster, site.me)
        host, port = site.cluster.address(site.me, "clients")
        try:
            self._server = await site.loop.create_server(lambda: Session(self), host, port, ssl=tls)
        except OSError as error:
            raise LocalError(f"{site.me} cannot listen to clients at {host}:{port}: {error.strerror}") from None

    def close(self) -> None:
        """Listen no more, and end all connections."""
        if self._server is not None:
            self._server.close()
        for session in list(self.sessions):
            session.close()

    def beat(self, now: float) -> None:
        """Say that the site is there, and close who is not."""
        for session in list(self.sessions):
            if self.site.removed:
                session.refuse(f"{self.site.me} was removed from its cluster", Code.GONE)
            session.beat(now)

    def arrived(self, session: Session) -> None:
        """Take a connection, or refuse it."""
        self.sessions.add(session)
        limit = self.site.limits.connections
        if self.site.removed:
            session.refuse(f"{self.site.me} was removed from its cluster", Code.GONE)
        elif len(self.sessions) > limit:
            session.refuse(f"{self.site.me} has {limit} clients, which is the limit", Code.BUSY)
        elif sum(one.name is None for one in self.sessions) > UNKNOWN_AT_MOST:
            session.refuse(f"too many clients log in at {self.site.me} at once", Code.BUSY)

    def grant(self) -> int:
        """Return the share of the windows of a client that logs in; `left` gives it back."""
        share = max(SHARE_AT_LEAST, min(SHARE_AT_MOST, (WINDOWS_BYTES - self._granted) // 8))
        self._granted += share
        return share

    def left(self, session: Session, share: int) -> None:
        """Forget a connection."""
        with suppress(KeyError):
            self.sessions.remove(session)
        self._granted -= share
        self.large.forget(session)
