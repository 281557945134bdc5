"""Ports that nobody listens at, for clusters on one machine."""

import fcntl
import socket
import tempfile
from pathlib import Path

FIRST, LAST = 20_000, 32_000
"""Below what systems give to outgoing connections, so that none of those takes a port before it is listened at."""


def free_ports(count: int) -> list[int]:
    """Return so many, all different.

    A file that all processes share says which port was given last: two clusters that start at once get other ports.
    """
    with (Path(tempfile.gettempdir()) / "ordercast-ports").open("a+") as shared:
        fcntl.flock(shared, fcntl.LOCK_EX)
        shared.seek(0)
        said = shared.read().strip()
        port = int(said) if said.isdigit() else FIRST
        found: list[int] = []
        while len(found) < count:
            port = port + 1 if FIRST <= port < LAST else FIRST
            if _is_free(port):
                found.append(port)
        shared.seek(0)
        shared.truncate()
        shared.write(str(port))
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
