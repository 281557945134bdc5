"""TCP and its twin in memory behave alike."""

import asyncio

from ordercast.live.ports import free_ports
from ordercast.live.transport import Memory, Tcp
from ordercast.testing.check_transport import check_transport


def test_tcp_behaves() -> None:
    one, other = free_ports(2)

    asyncio.run(check_transport(Tcp(), ("127.0.0.1", one), ("127.0.0.1", other)))


def test_memory_behaves_like_it() -> None:
    asyncio.run(check_transport(Memory(), ("here", 1), ("nowhere", 1)))
