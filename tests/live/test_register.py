"""The swap register: an ordered multicast is a swap (HTW00 §3, one direction), on real sites."""

import asyncio
from pathlib import Path

import pytest

from ordercast import connect
from ordercast.errors import LocalError
from ordercast.swap import Register
from tests.support.live import Running, cluster, run

SWAPS = 20


def one_chain(found: list[tuple[bytes, bytes | None]]) -> list[bytes]:
    """Return the values in the order of the chain; fails when it is none."""
    after = {before: value for value, before in found}
    assert len(after) == len(found), "two swaps found the same value"
    chain: list[bytes] = []
    last: bytes | None = None
    while last in after:
        last = after[last]
        chain.append(last)
    assert len(chain) == len(found)
    return chain


@pytest.mark.parametrize("protocol", ["propagation", "sequencer", "arrow", "combining", "two-phase"])
def test_all_swaps_are_one_chain(tmp_path: Path, protocol: str) -> None:
    """Clients at all members swap at once; a client that comes later finds the value that is there."""
    config = cluster(tmp_path, {"a": ["p", "q", "r"], "b": ["q", "r"]}, protocol=protocol, durable=True)

    async def work() -> None:
        found: list[tuple[bytes, bytes | None]] = []

        async def client(site: str) -> None:
            async with connect(config.clients[site]) as link, Register(link, "a") as register:
                for index in range(SWAPS):
                    value = f"{site}{index}".encode()
                    found.append((value, await register.swap(value)))

        async with Running(config):
            await asyncio.gather(*(client(site) for site in "pqr"))
            chain = one_chain(found)
            assert [value for value in chain if value[:1] == b"p"] == [f"p{i}".encode() for i in range(SWAPS)]
            async with connect(config.clients["q"]) as link, Register(link, "a") as register:
                assert await register.swap(b"last") == chain[-1]
                assert register.value == b"last"

    run(work())


def test_what_may_be_undone_is_refused(tmp_path: Path) -> None:
    config = cluster(tmp_path, {"a": ["p", "q"]}, policy="available", delivery="agreed", durable=True)

    async def work() -> None:
        async with Running(config), connect(config.clients["p"]) as link:
            with pytest.raises(LocalError, match="a register takes delivery safe"):
                await Register(link, "a").__aenter__()

    run(work())
