"""Ports that nobody listens at, for clusters on one machine."""

import socket
from contextlib import ExitStack


def free_ports(count: int) -> list[int]:
    """Return so many; they are all held until the last is found, so that they differ."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
