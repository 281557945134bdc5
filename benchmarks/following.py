"""`ordercast audit --follow` beside live sites: how far it is behind, and how soon it names a planted fault.

Run: python -m benchmarks.following [--seconds 60] [--rate 5000]
Sites export into one folder; a copier brings the parts into another one, which is followed, and changes a single body
in one of them. Half way the audit is killed and goes on from its state. Once with groups that are fixed, and once with
groups that change: every few seconds a site leaves a group, or comes back.
"""

import argparse
import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks.results import record, table
from tests.support.processes import Processes

from ordercast.client.client import connect
from ordercast.runs.writer import write_table

GROUPS = {"x": ["a", "b", "c", "d"], "y": ["a", "b", "c", "d"]}
TABLES = ("lives", "membership", "sends", "deliveries", "changes")
COPY_S = 0.1
CHANGE_S = 3.0  # between two changes, where groups change


async def load(addresses: list[str], rate: int, seconds: float) -> None:
    """Send so many messages a second, to each site a share."""

    async def one(address: str) -> None:
        async with connect(address) as client:
            begun, sent, share = time.monotonic(), 0, rate / len(addresses)
            while (passed := time.monotonic() - begun) < seconds:
                many = int(passed * share) - sent
                if many > 0:
                    await client.multicast_many("xy"[sent % 2], [b"%099d" % number for number in range(many)])
                    sent += many
                await asyncio.sleep(0.02)

    await asyncio.gather(*(one(address) for address in addresses))


async def change(address: str, seconds: float, done: int = 0) -> int:
    """Let a site leave a group and come back, again and again; returns how many changes there were by now."""
    until = time.monotonic() + seconds
    async with connect(address) as client:
        while time.monotonic() < until:
            await asyncio.sleep(CHANGE_S)
            await (client.join_group("y", "d") if done % 2 else client.leave_group("y", "d"))
            done += 1
    return done


class Copier(threading.Thread):
    """Copies parts as they appear; changes one body when it is told to, and remembers when."""

    def __init__(self, source: Path, target: Path) -> None:
        super().__init__(daemon=True)
        self.source, self.target = source, target
        self.plant = self.stop = False
        self.planted: float | None = None
        self._seen: set[Path] = set()

    def run(self) -> None:
        """Copy until told to stop."""
        while not self.stop:
            for name in TABLES:
                for path in sorted((self.source / name).glob("[!.]*.parquet")):
                    if path not in self._seen:
                        self._seen.add(path)
                        self._copy(path, self.target / name / path.name)
            time.sleep(COPY_S)

    def _copy(self, path: Path, to: Path) -> None:
        to.parent.mkdir(parents=True, exist_ok=True)
        new = to.with_name(f".{to.name}.tmp")
        if self.plant and self.planted is None and path.parent.name == "deliveries":
            rows = pq.read_table(path)
            hashes = rows["body_hash"].to_pylist()
            hashes[len(hashes) // 2] += 1
            at = rows.column_names.index("body_hash")
            write_table(rows.set_column(at, "body_hash", pa.array(hashes)), new)
            self.planted = time.time()
        else:
            shutil.copyfile(path, new)
        new.replace(to)


class Audit:
    """The command as a process; its lines are read by a thread."""

    def __init__(self, run: Path, state: Path) -> None:
        command = [sys.executable, "-m", "ordercast", "audit", str(run), "--follow", "--state", str(state), "--json"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.lines: list[tuple[float, dict[str, Any]]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append((time.time(), json.loads(line)))

    def cpu(self) -> float:
        """Return its CPU seconds so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()
        self._reader.join()


def measure(folder: Path, rate: int, seconds: float, *, changing: bool) -> list[object]:
    """Follow a live cluster; returns a column of the table."""
    followed = folder / "followed"
    followed.mkdir(parents=True)
    options, changes = ['export = "run"', *(['policy = "available"'] if changing else [])], 0
    with Processes(folder, GROUPS, *options) as cluster:
        copier = Copier(folder / "run", followed)
        copier.start()
        sender = threading.Thread(
            target=lambda: asyncio.run(load(list(cluster.clients.values()), rate, seconds)), daemon=True
        )
        audit = Audit(followed, folder / "state")
        sender.start()
        if changing:
            changes = asyncio.run(change(cluster.clients["a"], seconds / 2))
        else:
            time.sleep(seconds / 2)
        first, cpu = audit.lines, audit.cpu()
        audit.kill()
        audit = Audit(followed, folder / "state")
        time.sleep(seconds / 4)
        copier.plant = True
        if changing:
            changes = asyncio.run(change(cluster.clients["a"], seconds / 8, changes))
        sender.join()
        time.sleep(15)
        cpu += audit.cpu()
        copier.stop = True
    audit.kill()
    told = [line for line in first + audit.lines if "behind_s" in line[1]]
    busy = [line for at, line in told if line["behind_s"] is not None and at < told[-1][0] - 15]
    behind = sorted(line["behind_s"] for line in busy[1:])
    named = next((at for at, line in audit.lines if "says" in line), None)
    assert copier.planted is not None
    last = told[-1][1]["deliveries"]
    return [
        f"{last:,}",
        f"{last / seconds:,.0f}",
        changes,
        f"{behind[len(behind) // 2]:.1f}, {behind[-1]:.1f}",
        "never" if named is None else f"{named - copier.planted:.1f}",
        f"{cpu / last * 100_000:.2f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=5000)
    parser.add_argument("--seconds", type=float, default=60.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        fixed = measure(Path(folder) / "fixed", asked.rate, asked.seconds, changing=False)
        changing = measure(Path(folder) / "changing", asked.rate, asked.seconds, changing=True)
    names = ["deliveries judged", "deliveries a second", "changes", "behind, s: median, most",
             "the planted body is named after, s", "CPU s of the audit per 100,000 deliveries"]  # fmt: skip
    rows = [list(row) for row in zip(names, fixed, changing, strict=True)]
    told = (
        "Four durable sites as processes, two groups of all four, 100-byte messages; sites write a part every 2 s, so a"
        " delivery is 0 to 2 s old when it can be judged. Behind: the age of the newest delivery that is judged, every"
        " 5 s. The audit was killed half way, and went on from its state."
    )
    record(
        "Audit: following a live cluster",
        "python -m benchmarks.following",
        [*table(["", "fixed", "groups change"], rows), "", told],
    )


if __name__ == "__main__":
    main()
