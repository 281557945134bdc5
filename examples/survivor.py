"""Two applications whose site is killed, comes back at another address, and is removed: nothing is lost or doubled.

Both send numbers through site c, one with `await` and one without, and read those of both. Neither has a line about
what happens to c.

Run: python examples/survivor.py
"""

import asyncio
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import ordercast
from ordercast.client import sync

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 7760
MANY = 200
at = {site: (f"127.0.0.1:{PORT + i}", f"127.0.0.1:{PORT + 3 + i}") for i, site in enumerate("abc")}


async def one(client: ordercast.Client) -> list[bytes]:
    """An application: it sends its numbers, and reads everybody's."""
    await client.join(["numbers"], after="beginning")

    async def send() -> None:
        for number in range(MANY):
            await client.multicast("numbers", b"one %d" % number, ack="safe")

    sending, messages = asyncio.create_task(send()), aiter(client)
    read = [(await anext(messages)).body for _ in range(2 * MANY)]
    await sending
    return read


def other(client: sync.SyncClient) -> list[bytes]:
    """The same without `await`."""
    client.join(["numbers"], after="beginning")
    for number in range(MANY):
        client.multicast("numbers", b"other %d" % number, ack="safe")
    messages = client.messages(timeout=60)
    return [next(messages).body for _ in range(2 * MANY)]


def start(site: str, folder: Path) -> "subprocess.Popen[bytes]":
    """Write the site's file, and start it."""
    lines = ['policy = "available"', "suspect_after = 0.5", "[groups]", 'numbers = ["a", "b", "c"]']
    lines += ["[sites]", *(f'{name} = "{own}"' for name, (own, _) in at.items())]
    lines += ["[clients]", *(f'{name} = "{clients}"' for name, (_, clients) in at.items())]
    (folder / f"{site}.toml").write_text("\n".join([*lines, ""]))
    command = [sys.executable, "-m", "ordercast", "site", site, "--cluster", str(folder / f"{site}.toml")]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


async def begun() -> None:
    """Wait until the cluster has begun."""
    number = 0
    while not number:
        with suppress(ordercast.OrdercastError):
            async with ordercast.connect(at["c"][1]) as client:
                number = (await client.configuration())["number"]


async def main() -> None:
    """Let both run, and things happen to c."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sites = {site: start(site, folder) for site in at}
        try:
            await begun()
            async with ordercast.connect(at["c"][1]) as client:
                with sync.connect(at["c"][1]) as waiting:
                    both = asyncio.gather(one(client), asyncio.to_thread(other, waiting))
                    await asyncio.sleep(0.5)
                    sites["c"].kill()
                    print("kill -9 c, the site of both")
                    at["c"] = (f"127.0.0.1:{PORT + 6}", f"127.0.0.1:{PORT + 7}")
                    sites["c"] = start("c", folder)
                    await asyncio.sleep(3)
                    print("c is back, at another address")
                    async with ordercast.connect(at["a"][1]) as operator:
                        await operator.change("remove", sites=["c"])
                    print("c is removed for good")
                    read, also = await both
                    assert read == also and len(set(read)) == 2 * MANY
                    print(f"{2 * MANY} numbers, read once and in one order by both, at {client.site} now")
        finally:
            for process in sites.values():
                process.terminate()
                process.wait()


asyncio.run(main())
