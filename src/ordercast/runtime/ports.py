"""Ports that nobody listens at."""

import random
import socket

FIRST, LAST = 20_000, 32_000
"""Below what systems give to outgoing connections, so that none of those takes a port before it is listened at."""


def free_ports(count: int) -> list[int]:
    """Return ports that are free now, all different."""
    chance = random.SystemRandom()
    found: list[int] = []
    while len(found) < count:
        port = chance.randrange(FIRST, LAST)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in found:
            found.append(port)
    return found
