"""A counter whose client survives its site: kill -9 and a restart in the middle, and every increment counts once.

Three sites run as processes. The application sends increments through one of them and reads them back; while it does,
that site is killed with -9 and started again. `Counter` has not a line about it.

Run: python examples/survivor.py
"""

import asyncio
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import ordercast

PORT = int(sys.argv[1]) if len(sys.argv) > 1 else 7760
SITES = ("a", "b", "c")
CLIENTS = {site: f"127.0.0.1:{PORT + 3 + index}" for index, site in enumerate(SITES)}


class Counter:
    """The whole application: sends increments, adds up what is delivered."""

    def __init__(self, client: ordercast.Client) -> None:
        self.client, self.value = client, 0

    async def add(self, many: int) -> None:
        """Send increments; each is safe when this returns."""
        for _ in range(many):
            await self.client.multicast("counter", b"1", ack="safe")

    async def read(self) -> None:
        """Add up what is delivered."""
        async for message in self.client:
            self.value += int(message.body)


def write_cluster(folder: Path) -> Path:
    """Write the configuration of the three sites."""
    lines = ['policy = "available"', "suspect_after = 0.5", "[sites]"]
    lines += [f'{site} = "127.0.0.1:{PORT + index}"' for index, site in enumerate(SITES)]
    lines += ["[clients]", *(f'{site} = "{address}"' for site, address in CLIENTS.items())]
    lines += ["[groups]", f"counter = {list(SITES)}", ""]
    path = folder / "cluster.toml"
    path.write_text("\n".join(lines))
    return path


def start(site: str, path: Path) -> "subprocess.Popen[bytes]":
    """Start a site."""
    command = [sys.executable, "-m", "ordercast", "site", site, "--cluster", str(path)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


async def begun() -> None:
    """Wait until the cluster has begun."""
    while True:
        with suppress(ordercast.OrdercastError):
            async with ordercast.connect(CLIENTS["c"]) as client:
                if (await client.configuration())["number"]:
                    return
        await asyncio.sleep(0.1)


async def main() -> None:
    """Count to two hundred, with a kill -9 on the way."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_cluster(Path(folder))
        sites = {site: start(site, path) for site in SITES}
        try:
            await begun()
            async with ordercast.connect(CLIENTS["c"]) as client:
                await client.join(after=-1)
                counter = Counter(client)
                reading = asyncio.create_task(counter.read())
                adding = asyncio.create_task(counter.add(200))
                await asyncio.sleep(0.5)
                sites["c"].kill()
                sites["c"].wait()
                print(f"kill -9 c, the client's own site, at {counter.value}")
                sites["c"] = start("c", path)
                await adding
                while counter.value < 200:
                    await asyncio.sleep(0.05)
                await asyncio.sleep(0.2)
                reading.cancel()
                assert counter.value == 200, counter.value
                print("200 increments, each counted once")
        finally:
            for process in sites.values():
                process.terminate()
                process.wait()


asyncio.run(main())
