"""Changes of a group at 20,000 deliveries a second: what its own messages notice of them.

Each site is a process of its own and durable. A member sends batches at a steady pace. In some seconds a site joins the
group and leaves it again, and its sequencer moves; in others nothing changes. All latencies count, also those of
messages that meet the change.

Run: python -m benchmarks.light [--protocol sequencer] [--rounds 12]
"""

import argparse
import asyncio
import gc
import struct
import subprocess
import sys
import tempfile
import time
from array import array
from contextlib import suppress
from pathlib import Path

import numpy as np
from benchmarks.results import record, table

from ordercast import Site, read_cluster
from ordercast.client.client import Client, connect
from ordercast.errors import OrdercastError
from ordercast.live.loop import run
from ordercast.live.ports import free_ports

SITES = ("s0", "s1", "s2", "s3", "s4")
MEMBERS = SITES[:4]
PACE, BATCH = 0.01, 50  # seconds between two batches, messages in one: 5,000 messages a second to four members
QUIET_S, SETTLE_S = 3.0, 5.0


async def site(folder: Path, name: str) -> None:
    """Run a site that sends, when it is the first, and notes what comes, until the parent says stop."""
    noted = {column: array("d") for column in ("sent", "came")}

    async def send(here: Site) -> None:
        next_at = time.monotonic()
        while True:
            now = struct.pack("d", time.monotonic())
            for _ in range(BATCH):
                await here.multicast("all", now)
            next_at += PACE
            await asyncio.sleep(max(0.0, next_at - time.monotonic()))

    async def read(here: Site) -> None:
        async for message in here.inbox():
            noted["sent"].append(struct.unpack("d", message.body)[0])
            noted["came"].append(time.monotonic())

    async with Site(read_cluster(folder / "cluster.toml"), name) as here:
        tasks = [asyncio.create_task(read(here))]
        while not (folder / "go").exists():
            await asyncio.sleep(0.1)
        gc.collect()
        gc.freeze()  # as `ordercast site` does
        if name == SITES[1]:  # no sequencer, and not the manager
            tasks.append(asyncio.create_task(send(here)))
        while not (folder / "stop").exists():
            await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
    columns = {column: np.array(values) for column, values in noted.items()}
    np.savez(folder / f"{name}.npz", **columns)  # type: ignore[arg-type]


async def operate(folder: Path, clients: dict[str, str], asked: argparse.Namespace) -> list[tuple[float, float, float]]:
    """Start, change in every other few seconds, and return when each round began, was still again, and ended."""
    rounds: list[tuple[float, float, float]] = []
    async with await _reached(clients[SITES[0]]) as client:
        (folder / "go").touch()
        await asyncio.sleep(SETTLE_S)
        for _ in range(asked.rounds):
            begun = time.monotonic()
            await client.join_group("all", SITES[4])
            await asyncio.sleep(QUIET_S / 2)
            await client.leave_group("all", SITES[4])
            if asked.protocol == "sequencer":
                await client.move_group("all", SITES[2 + len(rounds) % 2])
            await asyncio.sleep(QUIET_S / 2)
            still = time.monotonic()
            await asyncio.sleep(still - begun)
            rounds.append((begun, still, time.monotonic()))
    (folder / "stop").touch()
    return rounds


async def _reached(address: str) -> Client:
    while True:
        with suppress(OrdercastError):
            async with connect(address) as client:
                if (await client.configuration())["number"]:
                    return connect(address)
        await asyncio.sleep(0.2)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--protocol", default="sequencer")
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--site", nargs=2, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.site:
        run(site(Path(asked.site[0]), asked.site[1]))
        return 0
    ports = [f"127.0.0.1:{port}" for port in free_ports(2 * len(SITES))]
    clients = {name: ports.pop() for name in SITES}
    with tempfile.TemporaryDirectory(prefix="ordercast-light-") as name:
        folder = Path(name)
        lines = [f'protocol = "{asked.protocol}"', 'policy = "available"', "suspect_after = 5.0", "[sites]"]
        lines += [f'{site} = "{ports.pop()}"' for site in SITES]
        lines += ["[clients]", *(f'{site} = "{at}"' for site, at in clients.items())]
        (folder / "cluster.toml").write_text("\n".join([*lines, "[groups]", f"all = {list(MEMBERS)}"]))
        processes = [
            subprocess.Popen([sys.executable, "-m", "benchmarks.light", "--site", name, site]) for site in SITES
        ]
        try:
            rounds = asyncio.run(operate(folder, clients, asked))
            for process in processes:
                process.wait(60)
        finally:
            for process in processes:
                process.kill()
        parts = [np.load(folder / f"{site}.npz") for site in MEMBERS]
    sent, came = (np.concatenate([part[column] for part in parts]) for column in ("sent", "came"))
    took = 1000 * (came - sent)
    with_changes = [took[(sent >= begun) & (sent < still)] for begun, still, _ in rounds]
    without = [took[(sent >= still) & (sent < end)] for _, still, end in rounds]
    p99 = [float(np.percentile(np.concatenate(half), 99)) for half in (with_changes, without)]
    p50 = [float(np.percentile(np.concatenate(half), 50)) for half in (with_changes, without)]
    ratios = [np.percentile(a, 99) / np.percentile(b, 99) for a, b in zip(with_changes, without, strict=True)]
    span = rounds[-1][2] - rounds[0][0]
    count = int(((sent >= rounds[0][0]) & (sent < rounds[-1][2])).sum())
    rows: list[list[object]] = [
        ["deliveries/s", f"{count / span:,.0f}"],
        ["changes", (3 if asked.protocol == "sequencer" else 2) * len(rounds)],
        [
            "seconds with changes: p50, p99, longest ms",
            f"{p50[0]:.1f}, {p99[0]:.1f}, {np.concatenate(with_changes).max():.0f}",
        ],
        ["seconds without: p50, p99, longest ms", f"{p50[1]:.1f}, {p99[1]:.1f}, {np.concatenate(without).max():.0f}"],
        ["p99 with : without", f"{p99[0] / p99[1]:.2f}"],
        ["the same in each round: median", f"{np.median(ratios):.2f}"],
    ]
    told = (
        f"Five sites as processes, durable, policy available, delivery safe; {len(rounds)} rounds of {QUIET_S:g} s "
        f"with changes of the very group that is measured, and {QUIET_S:g} s without."
    )
    command = f"python -m benchmarks.light --protocol {asked.protocol}"
    record(f"Changes under 20,000 deliveries a second: {asked.protocol}", command, [*table(["", ""], rows), "", told])
    return 1 if p99[0] > 1.2 * p99[1] else 0


if __name__ == "__main__":
    sys.exit(main())
